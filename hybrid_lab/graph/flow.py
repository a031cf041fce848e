"""Minimum cuts of small flow networks with whole-number capacities, by Dinic's algorithm."""

from __future__ import annotations

from collections import deque

#: A capacity that no cut can afford.
INFINITE = 1 << 60


class FlowNetwork:
    """Vertices are numbered from 0. Edges are stored in pairs: edge e and its reverse e ^ 1."""

    def __init__(self, vertices: int = 0):
        self._edges: list[list[int]] = [[] for _ in range(vertices)]
        self._head: list[int] = []
        self._residual: list[int] = []

    def add_vertex(self) -> int:
        self._edges.append([])
        return len(self._edges) - 1

    def add_edge(self, tail: int, head: int, capacity: int) -> None:
        for start, end, residual in ((tail, head, capacity), (head, tail, 0)):
            self._edges[start].append(len(self._head))
            self._head.append(end)
            self._residual.append(residual)

    def minimum_cut(self, source: int, sink: int) -> set[int]:
        """The vertices on the sink's side of the minimum cut that lies nearest to the sink.

        Raises ValueError where source and sink are joined by edges of infinite capacity.
        """
        while True:
            level = self._levels(source, sink)
            if level is None:
                return self._reaching(sink)
            progress = [0] * len(self._edges)
            while self._augment(source, sink, level, progress):
                pass

    def _levels(self, source: int, sink: int) -> list[int] | None:
        """Distances from the source along edges with room left, or None where the sink is out of reach."""
        level = [-1] * len(self._edges)
        level[source] = 0
        queue = deque([source])
        while queue:
            vertex = queue.popleft()
            for edge in self._edges[vertex]:
                head = self._head[edge]
                if self._residual[edge] and level[head] < 0:
                    level[head] = level[vertex] + 1
                    queue.append(head)
        return level if level[sink] >= 0 else None

    def _augment(self, source: int, sink: int, level: list[int], progress: list[int]) -> bool:
        """Push flow along one path that climbs the levels. `progress` skips edges found to be dead ends."""
        path: list[int] = []
        vertex = source
        while vertex != sink:
            edges = self._edges[vertex]
            while progress[vertex] < len(edges):
                edge = edges[progress[vertex]]
                if self._residual[edge] and level[self._head[edge]] == level[vertex] + 1:
                    break
                progress[vertex] += 1
            if progress[vertex] < len(edges):
                path.append(edges[progress[vertex]])
                vertex = self._head[path[-1]]
            elif path:
                vertex = self._head[path.pop() ^ 1]
                progress[vertex] += 1
            else:
                return False
        flow = min(self._residual[edge] for edge in path)
        if flow >= INFINITE // 2:
            raise ValueError("no finite cut separates source and sink")
        for edge in path:
            self._residual[edge] -= flow
            self._residual[edge ^ 1] += flow
        return True

    def _reaching(self, sink: int) -> set[int]:
        """The vertices from which the sink can still be reached."""
        found = {sink}
        queue = deque([sink])
        while queue:
            vertex = queue.popleft()
            for edge in self._edges[vertex]:
                tail = self._head[edge]
                if self._residual[edge ^ 1] and tail not in found:
                    found.add(tail)
                    queue.append(tail)
        return found
