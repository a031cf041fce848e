"""The longest common subsequence, and what comes in its place where it would take too long."""

import random

import pytest

from hybrid_lab.insight import subsequence
from hybrid_lab.insight.subsequence import common_runs


def length_of_longest(first, second):
    """By the textbook's table."""
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for row, key in enumerate(first):
        for column, other in enumerate(second):
            longer = max(table[row][column + 1], table[row + 1][column])
            table[row + 1][column + 1] = table[row][column] + 1 if key == other else longer
    return table[-1][-1]


def checked(first, second):
    """The runs, which are in order, of equal keys, and as long as they can be."""
    runs = common_runs(first, second)
    row = column = -1
    for start, other, size in runs:
        assert size > 0 and start >= row and other >= column
        assert (start > row) or (other > column)  # else the two were one run
        assert first[start : start + size] == second[other : other + size]
        row, column = start + size, other + size
    return runs


@pytest.mark.parametrize("keys", [1, 2, 3, 5, 20])
def test_runs_are_those_of_a_longest_common_subsequence(keys):
    chance = random.Random(keys)
    for _ in range(1000):
        first, second = ([chance.randrange(keys) for _ in range(chance.randrange(14))] for _ in range(2))
        assert sum(size for *_, size in checked(first, second)) == length_of_longest(first, second)


def test_edits_of_a_sequence_are_found():
    chance = random.Random(0)
    for _ in range(20):
        first = [chance.randrange(9) for _ in range(150)]
        second = list(first)
        for _ in range(chance.randrange(40)):
            place = chance.randrange(len(second))
            second[place : place + chance.randrange(2)] = [chance.randrange(12)] * chance.randrange(3)
        assert sum(size for *_, size in checked(first, second)) == length_of_longest(first, second)


def test_a_search_that_is_cut_short_still_gives_a_common_subsequence(monkeypatch):
    monkeypatch.setattr(subsequence, "WORK", 200)
    monkeypatch.setattr(subsequence, "SMALL", 10)
    chance = random.Random(0)
    for _ in range(1000):
        keys = chance.choice([1, 2, 3, 5, 20, 200])
        first, second = ([chance.randrange(keys) for _ in range(chance.randrange(60))] for _ in range(2))
        assert bool(checked(first, second)) == bool(set(first) & set(second))


DIFFERENT = {
    "two keys": lambda n, chance: [[chance.randrange(2) for _ in range(n)] for _ in range(2)],
    "many keys": lambda n, chance: [[chance.randrange(100) for _ in range(n)] for _ in range(2)],
    "another order": lambda n, chance: [list(range(n)), chance.sample(range(n), n)],
    "the other way round": lambda n, chance: [list(range(n)), list(range(n))[::-1]],
    "one key": lambda n, chance: [[1] * n, [1] * (n // 2)],
    "one key between others": lambda n, chance: [[2, *[1] * n, 3], [4, *[1] * (n + 7), 5]],
    "in turn": lambda n, chance: [[3, *[1, 2] * (n // 2), 4], [5, *[2, 1] * (n // 2), 6]],
    "nothing in common": lambda n, chance: [list(range(n)), list(range(n, 2 * n))],
}


@pytest.mark.parametrize("kind", DIFFERENT)
def test_the_steps_of_a_search_grow_with_the_length_not_with_its_square(kind, monkeypatch):
    steps = []
    original = subsequence._search

    def counted(first, second, most):
        found = original(first, second, most)
        steps.append(found[-1])
        return found

    monkeypatch.setattr(subsequence, "_search", counted)
    for length in (2000, 8000):
        steps.clear()
        checked(*DIFFERENT[kind](length, random.Random(0)))
        assert sum(steps) <= 2 * subsequence.WORK + 300 * length
