"""Index formulas: what they say is where NumPy's views have the element, and they are as short as can be."""

import numpy as np
import pytest

from hybrid_lab.engines.triton.write.index import ZERO, Index, formula, linear, strided, strides_of, unravel, variable


def over(shape, name="offsets"):
    """A variable over all elements of a shape, and the places along its axes."""
    whole = variable(name, int(np.prod(shape)))
    return whole, whole.digits(shape)


def evaluated(index, values):
    """The value of an index for values (ints or arrays) of its variables."""
    terms = [factor * ((values[name] // below) % size) for (name, _, below, size), factor in index.terms]
    return index.constant + sum(terms)


def test_a_contiguous_operand_is_read_at_the_offsets():
    _, places = over((2, 3, 40, 7))
    assert str(linear(places, (2, 3, 40, 7))) == "offsets"
    assert str(strided(places, (0, 1, 0, 0))) == "(offsets // 280) % 3"
    assert str(strided(places, (0, 0, 0, 1))) == "offsets % 7"
    assert str(strided(places, (7, 0, 0, 1))) == "(offsets // 840) * 7 + offsets % 7"
    assert str(ZERO) == "0"


def test_a_transposed_operand_and_a_slice():
    _, (i, j) = over((4, 5))
    assert str(strided((i, j), (1, 4))) == "(offsets % 5) * 4 + offsets // 5"
    assert str(strided((i, j), (10, 1), 3)) == "(offsets // 5) * 10 + offsets % 5 + 3"
    assert str(strided((i, j), (5, -1), 4)) == "(offsets // 5) * 5 - offsets % 5 + 4"


def test_another_batch_is_the_same_text():
    texts = set()
    for batch in (2, 3, 64):
        _, places = over((batch, 6, 5))
        texts.add(str(linear((places[0], places[2], places[1]), (batch, 5, 6))))
    assert len(texts) == 1


def random_view(random, data):
    """A view or copy of `data` by one movement, as NumPy makes it."""
    kind = random.randint(5)
    if kind == 0:
        return data.transpose(random.permutation(data.ndim))
    if kind == 1:
        slices = []
        for size in data.shape:
            start = random.randint(size)
            stop = random.randint(start, size) + 1
            slices.append(slice(start, stop, random.randint(1, 3)))
        return data[tuple(slices)]
    if kind == 2:
        return np.flip(data, random.randint(data.ndim))
    if kind == 3 and data.ndim > 1:
        axis = random.randint(data.ndim - 1)
        shape = data.shape
        return data.reshape(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
    axis = random.randint(data.ndim)
    size = data.shape[axis]
    factors = [n for n in range(1, size + 1) if size % n == 0]
    inner = factors[random.randint(len(factors))]
    return data.reshape(*data.shape[:axis], size // inner, inner, *data.shape[axis + 1 :])


def followed(seed):
    """Whether formulas followed a chain of movements, each looked at on its own on a contiguous array."""
    random = np.random.RandomState(seed)
    shape = tuple(random.choice([1, 2, 3, 4, 6, 8], random.randint(1, 5)))
    real = np.arange(np.prod(shape)).reshape(shape)
    steps = []
    for _ in range(random.randint(1, 6)):
        state = random.get_state()
        template = np.empty(real.shape, np.int64)
        view = random_view(random, template)
        random.set_state(state)
        real = random_view(random, real)
        start = (view.__array_interface__["data"][0] - template.__array_interface__["data"][0]) // 8
        steps.append((template.shape, tuple(stride // 8 for stride in view.strides), start))
    places = over(real.shape)[1]
    values = {"offsets": np.arange(real.size)}
    for shape, strides, start in reversed(steps):
        number = strided(places, strides, start)
        places = unravel(number, shape)
        if places is None:
            return False
        again = evaluated(linear(places, shape), values)
        assert np.array_equal(np.broadcast_to(again, real.size), np.broadcast_to(evaluated(number, values), real.size))
    for found in (evaluated(number, values), eval(str(number), {}, values)):
        assert np.array_equal(np.broadcast_to(found, real.size), real.ravel()), (seed, str(number))
    return True


def test_chains_of_views_name_the_right_element():
    """Some do not come apart: slices and turns that a later reshape cuts through. Kernels then read a copy."""
    assert sum(map(followed, range(1000))) >= 900


def test_digits_split_where_an_axis_ends():
    whole = variable("offsets", 12)
    assert [str(item) for item in unravel(whole, (3, 4))] == ["offsets // 4", "offsets % 4"]
    assert [str(item) for item in unravel(whole, (3, 1, 4, 1))] == ["offsets // 4", "0", "offsets % 4", "0"]
    assert [str(item) for item in unravel(Index.of({("offsets", 12, 2, 2): 1}), (2,))] == ["(offsets // 2) % 2"]


def test_what_does_not_come_apart_says_so():
    assert unravel(variable("offsets", 6) + 1, (2, 4)) is None
    assert unravel(Index.of({("offsets", 6, 1, 6): 3}), (4, 4)) is None


def test_strides_of_a_shape():
    assert strides_of((2, 3, 4)) == (12, 4, 1)
    assert strides_of(()) == ()


def test_strides_are_arguments_where_a_kernel_has_the_length_of_the_variable_below():
    lengths = {"row": "rows", "column": "columns"}
    row, column = variable("row", 7), variable("column", 320)
    assert formula(linear((row, column), (7, 320)), lengths) == "row * columns + column"
    image, pixel = column.digits((5, 64))
    assert formula(linear((image, row, pixel), (5, 7, 64)), lengths) == (
        "((column // 64) * rows + row) * 64 + column % 64"
    )
    moved = linear((row, column + -3), (7, 320))
    assert formula(moved, lengths) == "row * columns + column - 3"
    assert formula(moved, {}) == str(moved) == "row * 320 + column - 3"
    assert formula(linear((row * -1, column), (7, 320)), lengths) == "column - row * 320"


@pytest.mark.parametrize("length, text", [(24, "row * 24 + column"), (25, "row * columns + column")])
def test_a_stride_stays_a_number_where_an_argument_would_hide_that_it_is_a_multiple_of_2(length, text):
    """So that several elements are loaded at once."""
    place = linear((variable("row", 7), variable("column", length)), (7, length))
    assert formula(place, {"row": "rows", "column": "columns"}) == text
