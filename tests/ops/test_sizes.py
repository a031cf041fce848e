"""Symbolic sizes: they compute like whole numbers, record guards, and raise NeedsNumber for anything else."""

from __future__ import annotations

import copy
import itertools
import math
import operator

import numpy as np
import pytest

from hybrid_lab.ops import get
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.run import infer
from hybrid_lab.ops.framework.sizes import Binding, BoundSize, Guards, NeedsNumber, SymbolicSize, equal_shapes


def sizes(*values):
    guards = Guards()
    return guards, *(guards.symbol(value) for value in values)


def recorded(guards):
    return len(guards.recorded)


OPERATIONS = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod]


@pytest.mark.parametrize("seed", range(30))
def test_arithmetic_is_that_of_whole_numbers_at_any_sizes(seed):
    random = np.random.RandomState(seed)
    guards, *leaves = sizes(*(int(number) for number in random.randint(1, 9, 3)))
    terms = [*leaves, 1, 2, 7]
    for _ in range(12):
        function = OPERATIONS[random.randint(len(OPERATIONS))]
        terms.append(function(terms[random.randint(len(terms))], terms[random.randint(1, 6)]))
    binding = Binding(guards, [int(number) for number in random.randint(1, 9, 3)])
    numbers = [*binding.values, 1, 2, 7]
    now = [leaf.hint for leaf in leaves] + [1, 2, 7]
    random = np.random.RandomState(seed)
    random.randint(1, 9, 3)
    for term in terms[6:]:
        function = OPERATIONS[random.randint(len(OPERATIONS))]
        place, other = random.randint(len(numbers)), random.randint(1, 6)
        numbers.append(function(numbers[place], numbers[other]))
        now.append(function(now[place], now[other]))
        assert binding.size(term) == numbers[-1]
        assert (term.hint if type(term) is SymbolicSize else term) == now[-1]


@pytest.mark.parametrize("seed", range(10))
def test_a_bound_size_is_an_int_with_its_formula(seed):
    random = np.random.RandomState(seed)
    guards, *leaves = sizes(*(int(number) for number in random.randint(1, 9, 3)))
    values = [[int(number) for number in random.randint(1, 9, 3)] for _ in range(2)]
    now, then = [Binding(guards, each) for each in values]
    shape = now.bound_shape((*leaves, 5))
    assert shape == (*values[0], 5) and type(shape[3]) is int and hash(shape) == hash((*values[0], 5))
    terms, plain, others = [*shape], [*values[0], 5], [*values[1], 5]
    for _ in range(12):
        function, place, other = OPERATIONS[random.randint(5)], random.randint(len(terms)), random.randint(4)
        for each in (terms, plain, others):
            each.append(function(each[place], each[other]))
    for term, number, elsewhere in zip(terms, plain, others, strict=True):
        assert term == number and str(term) == str(number) and [0, 1][term - number] == 0
        assert (then.size(term.size) if type(term) is BoundSize else term) == elsewhere
    assert type(copy.copy(shape[0])) is int and abs(-shape[0]) == shape[0]


def test_what_is_equal_at_all_sizes_is_known_without_a_guard():
    guards, n, m = sizes(8, 3)
    assert n * m == m * n and 4 * n // 2 == n + n and (n + 1) * 2 - 2 == 2 * n and n * 64 * m // (m * 64) == n
    assert n - n == 0 and type(n - n) is int and (n * 64) % 16 == 0
    assert (n * 2 + 3) // 4 is (n * 2 + 3) // 4
    assert not [key for key in guards.recorded if key[0] == "==" and guards.recorded[key]]


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
        (lambda n: bool(n != np.float64(9)), True),
    ],
)
def test_every_comparison_is_a_guard(question, answer):
    guards, n = sizes(8)
    assert question(n) is answer
    assert recorded(guards)
    for other in range(1, 40):
        satisfies = Binding(guards, [other]).satisfies(guards.count)
        assert not satisfies or question(other) is answer


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
        lambda n: 2.5 + n,
        lambda n: 2.5 - n,
        lambda n: n - 2.5,
        lambda n: n // 2.5,
        lambda n: n**2,
        lambda n: n << 1,
        lambda n: n & (n - 1),
        lambda n: ~n,
        lambda n: n.bit_length(),
        lambda n: np.float32(2) * n,
        lambda n: math.sqrt(n),
        lambda n: math.ceil(n),
        lambda n: round(n),
        lambda n: f"{n:>4}",
        "{:d}".format,
        lambda n: copy.deepcopy(n),
        hash,
        lambda n: {n: 1},
        lambda n: {(n, 2)},
        lambda n: {8: 1}.get(n),
        lambda n: get("Reshape").bind(shape=(n, -1)),
        lambda n: get("_zeros").bind(shape=(n,)),
        lambda n: get("expand_dims").bind(axis=n),
    ],
)
def test_what_needs_the_number_is_told_so(use):
    guards, m, n = sizes(3, 8)
    with pytest.raises(NeedsNumber) as need:
        use(n * 4 // 3 + 1)
    assert need.value.symbols == {1} and "needs the size as a number" in str(need.value)


def test_a_printed_size_is_its_formula():
    guards, n, m = sizes(8, 3)
    assert repr((n, 2)) == "(s0, 2)" and f"{n * m * 2 - 1} {(n + 1) // 2}" == "-1 + 2*s0*s1 ((1 + s0) // (2))"
    assert repr(n + n) == repr(2 * n) and not recorded(guards)


def test_a_rule_that_needs_the_number_is_named():
    class Counting(Operator):
        name = "counting"

        def infer_shape(self, data):
            return (len(range(data[0])),)

    op = object.__new__(Counting)
    for name in ("attributes", "inferred"):
        object.__setattr__(op, name, {})
    guards, n = sizes(8)
    with pytest.raises(NeedsNumber, match="counting: its rule needs the size as a number"):
        infer(op, ((n, 2),), (np.dtype("float32"),))


def test_a_division_by_what_may_be_zero_is_guarded():
    guards, n, m = sizes(8, 2)
    assert (n // m).hint == 4
    assert Binding(guards, [7, 3]).satisfies(guards.count)
    assert not Binding(guards, [7, 0]).satisfies(guards.count)
    with pytest.raises(ZeroDivisionError):
        n // 0


def test_shapes_are_told_apart_without_a_guard_where_numbers_differ():
    guards, n = sizes(64)
    assert (
        not equal_shapes((n, 56, 56), (64, 3, 3))
        and not equal_shapes((n, 2), (n, 2, 1))
        and equal_shapes((n, 2), (n, 2))
    )
    assert not recorded(guards)
    assert equal_shapes((n, 2), (64, 2))
    assert recorded(guards) == 1


def test_rules_of_records_give_sizes():
    guards, n = sizes(8)
    f32 = np.dtype("float32")
    conv = get("Convolution").bind(kernel=(3, 3), num_filter=4, pad=(1, 1))
    (shape,), _ = infer(conv, ((n, 3, 9, 9), (4, 3, 3, 3), (4,)), (f32, f32, f32))
    assert shape[0] is n and shape[1:] == (4, 9, 9)
    (shape,), _ = infer(get("Flatten").bind(), ((n, 4, 9),), (f32,))
    assert shape[0] is n and shape[1] == 36
    assert not recorded(guards)
    (shape,), _ = infer(get("broadcast_add").bind(), ((n, 1), (1, 5)), (f32, f32))
    assert shape[0] is n and shape[1] == 5
    assert list(guards.recorded.values()) == [False]  # n is not 1


def test_broadcasting_is_numpys():
    from hybrid_lab.diagnostics.errors import ShapeError
    from hybrid_lab.ops.framework.shapes import broadcast_shapes

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
    guards, n = sizes(3)
    binding = Binding(guards, [5])
    for number in range(100):  # tuples of one length get the same place in memory again and again
        assert binding.shape((n, number)) == (5, number)
