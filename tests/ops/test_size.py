"""Sizes: they compute like whole numbers, and note what they are asked."""

from __future__ import annotations

import itertools
import math
import operator

import numpy as np
import pytest

from hybrid_lab.ops import get
from hybrid_lab.ops.run import infer
from hybrid_lab.ops.size import Answers, At, Size, same


def sizes(*values):
    answers = Answers()
    return answers, *(answers.size(value) for value in values)


def noted(answers):
    return len(answers.noted)


OPERATIONS = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod]


@pytest.mark.parametrize("seed", range(30))
def test_arithmetic_is_that_of_whole_numbers_at_any_sizes(seed):
    random = np.random.RandomState(seed)
    answers, *leaves = sizes(*(int(number) for number in random.randint(1, 9, 3)))
    terms = [*leaves, 1, 2, 7]
    for _ in range(12):
        function = OPERATIONS[random.randint(len(OPERATIONS))]
        terms.append(function(terms[random.randint(len(terms))], terms[random.randint(1, 6)]))
    at = At(answers, [int(number) for number in random.randint(1, 9, 3)])
    numbers = [*at.numbers, 1, 2, 7]
    now = [leaf.value for leaf in leaves] + [1, 2, 7]
    random = np.random.RandomState(seed)
    random.randint(1, 9, 3)
    for term in terms[6:]:
        function = OPERATIONS[random.randint(len(OPERATIONS))]
        place, other = random.randint(len(numbers)), random.randint(1, 6)
        numbers.append(function(numbers[place], numbers[other]))
        now.append(function(now[place], now[other]))
        assert at.size(term) == numbers[-1]
        assert (term.value if type(term) is Size else term) == now[-1]


def test_what_is_equal_at_all_sizes_is_known_without_a_question():
    answers, n, m = sizes(8, 3)
    assert n * m == m * n and 4 * n // 2 == n + n and (n + 1) * 2 - 2 == 2 * n and n * 64 * m // (m * 64) == n
    assert n - n == 0 and type(n - n) is int and (n * 64) % 16 == 0
    assert (n * 2 + 3) // 4 is (n * 2 + 3) // 4
    assert not [key for key in answers.noted if key[0] == "==" and answers.noted[key]]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (lambda n: n == 1, False),
        (lambda n: n != 8, False),
        (lambda n: n * 4 < 100, True),
        (lambda n: n > 7, True),
        (lambda n: n >= 9, False),
        (lambda n: 8 <= n, True),
        (lambda n: bool(n), True),
        (lambda n: (n, 3) == (8, 3), True),
        (lambda n: 8 in (1, n), True),
        (lambda n: max(n, 5) is n, True),
        (lambda n: n == 8.0, True),
    ],
)
def test_every_answer_is_noted_and_holds_for_no_other_sizes(question, answer):
    answers, n = sizes(8)
    assert question(n) is answer
    assert noted(answers)
    for other in range(1, 40):
        agrees = At(answers, [other]).agrees(answers.count)
        assert not agrees or question(other) is answer


@pytest.mark.parametrize(
    "use",
    [
        lambda n: list(range(n)),
        lambda n: [0] * n,
        lambda n: np.empty((n, 2)),
        lambda n: np.arange(n),
        lambda n: np.array([n], np.int64),
        lambda n: float(n),
        lambda n: int(n),
        lambda n: n / 3,
        lambda n: 3 / n,
        lambda n: 2.5 * n,
        lambda n: n**2,
        lambda n: np.float32(2) * n,
        lambda n: math.sqrt(n),
        lambda n: math.ceil(n),
        lambda n: round(n),
        lambda n: f"{n}",
        lambda n: str(n),
        lambda n: repr((n, 2)),
        lambda n: f"{n:>4}",
        lambda n: get("Reshape").bind(shape=(n, -1)),
        lambda n: get("_zeros").bind(shape=(n,)),
        lambda n: get("expand_dims").bind(axis=n),
    ],
)
def test_nothing_reads_the_number_without_a_note(use):
    answers, n = sizes(8)
    try:
        use(n)
    except TypeError:
        return  # the passes run with plain numbers then
    assert At(answers, [8]).agrees(answers.count)
    assert not any(At(answers, [other]).agrees(answers.count) for other in (1, 7, 9, 16))


@pytest.mark.parametrize("use", [hash, lambda n: {n: 1}, lambda n: {(n, 2)}, lambda n: {8: 1}.get(n)])
def test_no_dict_compares_in_silence(use):
    _, n = sizes(8)
    with pytest.raises(TypeError):
        use(n)


def test_a_division_by_what_may_be_zero_is_noted():
    answers, n, m = sizes(8, 2)
    assert (n // m).value == 4
    assert At(answers, [7, 3]).agrees(answers.count)
    assert not At(answers, [7, 0]).agrees(answers.count)
    with pytest.raises(ZeroDivisionError):
        n // 0


def test_shapes_are_told_apart_without_a_question_where_plain_numbers_differ():
    answers, n = sizes(64)
    assert not same((n, 56, 56), (64, 3, 3)) and not same((n, 2), (n, 2, 1)) and same((n, 2), (n, 2))
    assert not noted(answers)
    assert same((n, 2), (64, 2))
    assert noted(answers) == 1


def test_rules_of_records_give_sizes():
    answers, n = sizes(8)
    f32 = np.dtype("float32")
    conv = get("Convolution").bind(kernel=(3, 3), num_filter=4, pad=(1, 1))
    (shape,), _ = infer(conv, ((n, 3, 9, 9), (4, 3, 3, 3), (4,)), (f32, f32, f32))
    assert shape[0] is n and shape[1:] == (4, 9, 9)
    (shape,), _ = infer(get("Flatten").bind(), ((n, 4, 9),), (f32,))
    assert shape[0] is n and shape[1] == 36
    assert not noted(answers)
    (shape,), _ = infer(get("broadcast_add").bind(), ((n, 1), (1, 5)), (f32, f32))
    assert shape[0] is n and shape[1] == 5
    assert list(answers.noted.values()) == [False]  # n is not 1


def test_broadcasting_is_numpys():
    from hybrid_lab.diagnostics.errors import ShapeError
    from hybrid_lab.ops.shapes import broadcast_shapes

    shapes = [shape for rank in range(4) for shape in itertools.product((0, 1, 3), repeat=rank)]
    for one, two in itertools.product(shapes, repeat=2):
        try:
            wanted = np.broadcast_shapes(one, two)
        except ValueError:
            with pytest.raises(ShapeError, match="do not broadcast"):
                broadcast_shapes("add", one, two)
        else:
            assert broadcast_shapes("add", one, two) == wanted


def test_shapes_that_are_gone_are_not_taken_for_others():
    answers, n = sizes(3)
    at = At(answers, [5])
    for number in range(100):  # tuples of one length get the same place in memory again and again
        assert at.shape((n, number)) == (5, number)
