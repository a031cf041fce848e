"""For which shapes an imported graph holds: formulas, ties, ranges, and the errors that name input, axis and sizes."""

import numpy as np
import pytest

from hybrid_lab.diagnostics.errors import AttributeSpecError, DeclaredSizeError, DTypeError
from hybrid_lab.ops.framework.declared_shapes import DeclaredInput, DeclaredShapes, Formula
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.ops.framework.sizes import Guards


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2*n + 1", 15),
        ("n // 2 - -3", 6),
        ("max(n, 3, 9) % 4", 1),
        ("min(n, 3)**2", 9),
        ("n > 3 and n != 8", True),
        ("not 3 <= n < 7 or n == 1", True),
    ],
)
def test_formulas_compute_with_whole_numbers(text, value):
    assert Formula(text).value({"n": 7}) == value
    symbolic = Formula(text).value({"n": Guards().symbol(7)})
    assert getattr(symbolic, "hint", symbolic) == value


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "n.bit_length()", "n[0]", "lambda: n", "2.5*n", "n**n", "2**99", "'a'", "n if n else 1"]
    + ["(" * 300, "-" * 900 + "n", "n" * 2000, "", "max()", "f(n)", "n := 3", "[n]", "n @ n", "n << 60"],
)
def test_other_text_is_no_formula(text):
    with pytest.raises(ValueError, match="formula|power"):
        Formula(text)


def _check(sizes, shapes, conditions=()):
    inputs = tuple(DeclaredInput(name, tuple(each)) for name, each in sizes.items())
    DeclaredShapes(inputs, tuple(conditions)).check_shapes(shapes, lambda item: "Do so.")


SIZES = {
    "number": ({"x": ["b", 6]}, [(3, 6)], [(3, 8)], "'x' has the size 8 on axis 1; .* holds for 6 there"),
    "rank": ({"x": ["b", 6]}, [(3, 6)], [(3, 6, 1)], "'x' has 3 dimensions; .* takes 2 dimensions, \\(b, 6\\)"),
    "tie": ({"x": ["b", 6], "m": ["b"]}, [(3, 6), (3,)], [(3, 6), (4,)], "'m' has the size 4 on .* axis 0 of 'x'"),
    "tie in one": ({"x": ["n", "n"]}, [(3, 3)], [(3, 4)], "size 4 on axis 1; .* equal to axis 0 of 'x', which has 3"),
    "odd": ({"x": ["2*n + 1"]}, [(7,)], [(8,)], "holds for 2\\*n \\+ 1"),
    "derived": ({"x": ["b", "n"], "y": ["b*n"]}, [(2, 3), (6,)], [(2, 3), (7,)], "holds for b\\*n there, with b = 2"),
    "any": ({"x": [None, 2]}, [(9, 2)], [(9, 3)], "holds for 2"),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name):
    sizes, good, bad, message = SIZES[name]
    _check(sizes, good)
    with pytest.raises(DeclaredSizeError, match=message):
        _check(sizes, bad)


@pytest.mark.parametrize(
    ("condition", "size"), [("b <= 64", 65), ("b > 3", 3), ("b % 2 == 0", 5), ("4 // (b - 5) > 0", 5)]
)
def test_conditions(condition, size):
    _check({"x": ["b"]}, [(6,)], [condition])
    with pytest.raises(DeclaredSizeError, match=f"'x' has the size {size} on axis 0"):
        _check({"x": ["b"]}, [(size,)], [condition])


def test_symbolic_sizes_become_guards():
    guards = Guards()
    _check({"x": ["b", 6]}, [(guards.symbol(3), guards.symbol(6))], ["b < 9"])
    assert len(guards.recorded) == 2


@pytest.mark.parametrize(
    ("declared", "given", "good"),
    [
        ("float32", "float64", True),
        ("float32", "float16", True),
        ("int64", "int32", True),
        ("bool", "bool", True),
        ("float32", "int32", False),
        ("int64", "float32", False),
        ("int64", "uint8", False),
        ("bool", "float32", False),
    ],
)
def test_dtypes_of_one_kind_stand_for_each_other(declared, given, good):
    shapes = DeclaredShapes((DeclaredInput("x", ("b",), declared),))
    if good:
        shapes.check_dtypes([np.dtype(given)])
    else:
        with pytest.raises(DTypeError, match="'x' has the dtype"):
            shapes.check_dtypes([np.dtype(given)])


@pytest.mark.parametrize(
    "declares",
    ["", "{}", "[]", "[1]", '[["x"]]', '[["x",[-1],null]]', '[["x",["a.b"],null]]', '[["x",[1],"no dtype"]]']
    + ["[" * 9000, '[["x",[1.5],null]]', "[[3,[1],null]]", '[["x",{"a":1},null]]'],
)
def test_damaged_declarations_are_typed_errors(declares):
    with pytest.raises(AttributeSpecError, match="_check_inputs"):
        get("_check_inputs").bind(declares=declares)
