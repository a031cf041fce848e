"""Minimum cuts of small flow networks with whole-number capacities, by Dinic's algorithm."""

from __future__ import annotations

from collections import deque

#: A capacity that no cut can afford.
INFINITE = 1 << 60
#: The vertices of a part with source and sink, the source's edges into it, and its edges to the sink.
_Part = tuple[list[int], list[int], list[int]]


class FlowNetwork:
    """Vertices are numbered from 0. Edges are stored in pairs: edge e and its reverse e ^ 1."""

    def __init__(self, vertices: int = 0):
        self._edges: list[list[int]] = [[] for _ in range(vertices)]
        self._head: list[int] = []
        self._capacity: list[int] = []
        self._residual: list[int] = []
        self._known: dict[tuple[int, int, int], list[_Part]] = {}

    def add_vertex(self) -> int:
        self._edges.append([])
        return len(self._edges) - 1

    def add_edge(self, tail: int, head: int, capacity: int) -> int:
        """Returns the edge's number, for `set_capacity`."""
        number = len(self._head)
        self._edges[tail].append(number)
        self._edges[head].append(number + 1)
        self._head += (head, tail)
        self._capacity += (capacity, 0)
        return number

    def set_capacity(self, edge: int, capacity: int) -> None:
        self._capacity[edge] = capacity

    def minimum_cut(self, source: int, sink: int) -> set[int]:
        """The vertices on the sink's side of the minimum cut that lies nearest to the sink.

        Parts of the network that only source and sink join are cut one by one, as no flow goes between them.
        Raises ValueError if source and sink are joined by edges of infinite capacity.
        """
        behind = {sink}
        self._residual = list(self._capacity)
        level, progress = [-1] * len(self._edges), [0] * len(self._edges)
        ends = self._edges[source], self._edges[sink]
        for vertices, *edges in self._parts(source, sink):
            self._edges[source], self._edges[sink] = edges
            while self._levels(source, sink, level, vertices):
                for vertex in vertices:
                    progress[vertex] = 0
                while self._augment(source, sink, level, progress):
                    pass
            behind |= self._reaching(sink)
        self._edges[source], self._edges[sink] = ends
        return behind

    def _parts(self, source: int, sink: int) -> list[_Part]:
        """The parts of the network that only source and sink join."""
        key = source, sink, len(self._head)
        if key not in self._known:
            self._known[key] = self._found_parts(source, sink)
        return self._known[key]

    def _found_parts(self, source: int, sink: int) -> list[_Part]:
        number = [-1] * len(self._edges)
        parts: list[_Part] = []
        number[source] = number[sink] = -2
        for start in range(len(self._edges)):
            if number[start] != -1:
                continue
            number[start] = len(parts)
            vertices = [start]
            for vertex in vertices:
                for edge in self._edges[vertex]:
                    head = self._head[edge]
                    if number[head] == -1:
                        number[head] = len(parts)
                        vertices.append(head)
            parts.append((vertices, [], []))
        for place, end in enumerate((source, sink), 1):
            for edge in self._edges[end]:
                owner = number[self._head[edge]]
                for part in parts if owner < 0 else parts[owner : owner + 1]:
                    part[place].append(edge)
        for vertices, _, _ in parts:
            vertices += (source, sink)
        return parts or [([source, sink], self._edges[source], self._edges[sink])]

    def _levels(self, source: int, sink: int, level: list[int], vertices: list[int]) -> bool:
        """Write distances from the source along edges with room left; False if the sink is out of reach."""
        for vertex in vertices:
            level[vertex] = -1
        level[source] = 0
        queue = deque([source])
        while queue:
            vertex = queue.popleft()
            for edge in self._edges[vertex]:
                head = self._head[edge]
                if self._residual[edge] and level[head] < 0:
                    level[head] = level[vertex] + 1
                    queue.append(head)
        return level[sink] >= 0

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
        reaching = {sink}
        queue = deque([sink])
        while queue:
            vertex = queue.popleft()
            for edge in self._edges[vertex]:
                tail = self._head[edge]
                if self._residual[edge ^ 1] and tail not in reaching:
                    reaching.add(tail)
                    queue.append(tail)
        return reaching
