"""The longest common subsequence of two sequences of keys, in a time that grows with their difference."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise

WORK = 1_000_000
"""Steps of one search. They suffice for all that differs in a thousand places, however long it is."""
SMALL = 20_000
"""Steps that each part may take in any case."""


def common_runs(first: Sequence[Hashable], second: Sequence[Hashable]) -> list[tuple[int, int, int]]:
    """(start in the first, start in the second, size) of the runs of a longest common subsequence, in order.

    Myers, "An O(ND) difference algorithm and its variations", 1986. Sequences that differ in more places than WORK
    steps find are cut at keys that occur once on both sides, as many as are in one order, and each part is searched by
    itself. A part without such keys is matched from its beginning, some hundred differences at a time; the result is
    then a common subsequence, perhaps not the longest.
    """
    pairs = sorted(_Search(first, second).pairs())
    starts = [place for place, pair in enumerate(pairs) if not place or pairs[place - 1] != (pair[0] - 1, pair[1] - 1)]
    return [(*pairs[start], end - start) for start, end in pairwise([*starts, len(pairs)])]


class _Search:
    def __init__(self, first: Sequence[Hashable], second: Sequence[Hashable]):
        numbers: dict[Hashable, int] = {}
        self._first, self._second = (
            [numbers.setdefault(key, len(numbers)) for key in keys] for keys in (first, second)
        )
        self._left = WORK

    def pairs(self) -> Iterator[tuple[int, int]]:
        """The places of the common subsequence, in no order."""
        one, two = self._first, self._second
        pending = [(0, len(one), 0, len(two))]
        while pending:
            start, end, other, other_end = pending.pop()
            while start < end and other < other_end and one[start] == two[other]:
                yield start, other
                start, other = start + 1, other + 1
            while start < end and other < other_end and one[end - 1] == two[other_end - 1]:
                end, other_end = end - 1, other_end - 1
                yield end, other_end
            # Leave out elements that the other side does not have.
            here, there = set(one[start:end]), set(two[other:other_end])
            rows = [place for place in range(start, end) if one[place] in there]
            columns = [place for place in range(other, other_end) if two[place] in here]
            if not rows:
                continue
            keys = [one[place] for place in rows], [two[place] for place in columns]
            found = self._longest(*keys)
            if found is not None:
                yield from ((rows[row], columns[column]) for row, column in found)
                continue
            anchors = _anchors(one, two, rows, columns)
            if anchors:
                yield from anchors
                ends = [(start - 1, other - 1), *anchors, (end, other_end)]
                pending += [(a + 1, c, b + 1, d) for (a, b), (c, d) in pairwise(ends)]
                continue
            found, (row, column), _ = _search(*keys, SMALL)
            yield from ((rows[row], columns[column]) for row, column in found)
            pending.append(([*rows, end][row], end, [*columns, other_end][column], other_end))

    def _longest(self, first: list[int], second: list[int]) -> list[tuple[int, int]] | None:
        """The pairs of a longest common subsequence; None if it takes too many steps to find it."""
        most = max(self._left // 2, SMALL)
        common = (Counter(first) & Counter(second)).total()
        if (len(first) + len(second) - 2 * common) ** 2 > 4 * most:  # the least number of edits
            return None
        found, end, steps = _search(first, second, most)
        self._left -= steps
        return found if end == (len(first), len(second)) else None


def _search(first: list[int], second: list[int], most: int) -> tuple[list[tuple[int, int]], tuple[int, int], int]:
    """The pairs of a longest common subsequence of the beginnings that `most` steps come to, where these end, and the
    number of steps.
    """
    rows, columns = len(first), len(second)
    # reached[diagonal] is the furthest row on it, after `edits` edits; a diagonal is row - column.
    reached, history, steps = {1: 0}, list[dict[int, int]](), 0
    for edits in range(rows + columns + 1):
        before, reached = reached, {}
        history.append(before)
        for diagonal in range(-min(edits, 2 * columns - edits), min(edits, 2 * rows - edits) + 1, 2):
            down, right = before.get(diagonal + 1, -1), before.get(diagonal - 1, -2)
            row = begin = down if down > right else right + 1
            column = row - diagonal
            while row < rows and column < columns and first[row] == second[column]:
                row, column = row + 1, column + 1
            reached[diagonal] = row
            steps += 1 + row - begin
            if row >= rows and column >= columns:
                return _path(history, rows, columns), (rows, columns), steps
        if steps > most:
            break
    ends = [(row, row - diagonal) for diagonal, row in reached.items() if row <= rows and row - diagonal <= columns]
    end = max(ends, key=sum)
    return _path(history, *end), end, steps


def _path(history: list[dict[int, int]], row: int, column: int) -> list[tuple[int, int]]:
    """The matched places on the way from an end back to the beginning."""
    pairs = []
    for edits in range(len(history) - 1, -1, -1):
        diagonal, before = row - column, history[edits]
        down, right = before.get(diagonal + 1, -1), before.get(diagonal - 1, -2)
        came, begin = (diagonal + 1, down) if down > right else (diagonal - 1, right + 1)
        while row > begin:
            row, column = row - 1, column - 1
            pairs.append((row, column))
        row = before[came]
        column = row - came
    return pairs


def _anchors(one: list[int], two: list[int], rows: list[int], columns: list[int]) -> list[tuple[int, int]]:
    """Pairs of places of keys that occur once on both sides, the most that are in one order."""
    counts = Counter(one[row] for row in rows), Counter(two[column] for column in columns)
    places = {two[column]: column for column in columns if counts[1][two[column]] == 1}
    unique = [(row, places[one[row]]) for row in rows if counts[0][one[row]] == 1 and one[row] in places]
    ends: list[int] = []  # of sequences of each length the lowest column that one ends with
    lengths = []
    for _, column in unique:
        length = bisect_left(ends, column)
        ends[length : length + 1] = [column]
        lengths.append(length)
    anchors, wanted = [], len(ends) - 1
    for pair, length in zip(reversed(unique), reversed(lengths), strict=True):
        if length == wanted:
            anchors.append(pair)
            wanted -= 1
    return anchors[::-1]
