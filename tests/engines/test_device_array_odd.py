"""What NumPy's functions make of odd arguments, they make of DeviceArrays: a result, or an error of the same class."""

import inspect
import itertools
import warnings

import numpy as np
import pytest

from hybrid_lab.engines.torch_kernels.device_array import CREATORS
from tests.engines.test_device_array import CALLS, compare, moved, on_device

SHAPES = [(), (1,), (4,), (0,), (2, 3), (3, 3), (0, 3), (2, 0), (2, 3, 4)]
WHOLE = [np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5) for shape in SHAPES]
ARRAYS = [np.asarray(array * 0.5 + 1.0) for array in WHOLE if array.ndim != 3 and array.size != 1]
PLACES = [np.array(value, int) for value in ([], [0], [-1], [3, 1], [1, 1], [99], [-99], 7, -7, [[0, 1]], [[0], [2]])]
ODD = [0, 1, -1, 2, 9, -9, (), (0,), (0, 0), (0, 1), (1, -1), (0, 9), (-1, 6), (2, 3), (2, 1, 0), (3, -9)]
#: Further parameters, by name.
NAMED = {
    "axis": [None, *ODD], "axis1": ODD[:6], "axis2": ODD[:6], "axes": [None, *ODD], "offset": ODD[:6],
    "keepdims": [True], "minlength": ODD[:6], "mode": ["clip", "wrap"], "k": ODD[:6], "n": ODD[:6], "initial": [0.0],
    "constant_values": [2],
}  # fmt: skip


def parameters(function):
    try:
        return set(inspect.signature(function).parameters)
    except ValueError:
        return set(NAMED)  # a function of C, which tells no parameters


PARAMETERS_OF = {function: parameters(function) for function in CALLS}


def variants(function):
    base = CALLS[function]
    arrays = [*WHOLE, *ARRAYS]
    for position, usual in enumerate(base):
        for value in [*arrays, *PLACES] if isinstance(usual, (np.ndarray, list)) else ODD:
            for given in ([value, value], [value, usual[0]]) if isinstance(usual, list) else (value,):
                yield (*base[:position], given, *base[position + 1 :]), {}
    for array in arrays:
        first = [array, array] if isinstance(base[0], list) else array
        if len(base) > 1:
            for value in [*PLACES, *ODD]:
                if isinstance(value, np.ndarray) == isinstance(base[1], np.ndarray):
                    yield (first, value, *base[2:]), {}
        for name, values in NAMED.items():
            if name in PARAMETERS_OF[function]:
                for value in values:
                    yield (first, *base[1:]), {name: value}


def outcome(call, arguments, keywords):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(*arguments, **keywords), None
    except Exception as error:
        return None, error


def difference(function, arguments, keywords, on):
    wanted, expected = outcome(function, arguments, keywords)
    found, error = outcome(function, map(moved, arguments), {k: moved(v) for k, v in keywords.items()} | on)
    if isinstance(error, TypeError) or isinstance(expected, TypeError):
        return None  # no form for a DeviceArray, or no arguments of the function
    if expected is not None:
        return None if isinstance(error, type(expected)) else f"{expected!r} became {error!r} {found!r}"
    if error is not None:
        return f"{wanted!r} became {error!r}"
    try:
        compare(found, wanted)
    except Exception as other:
        return f"{wanted!r} became {found!r}: {str(other)[:80]}"
    return None


#: np.max and np.min have further names.
FUNCTIONS = [function for function in CALLS if function.__name__ not in ("may_share_memory", "amax", "amin")]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_odd_arguments_have_numpys_result_or_numpys_error(function):
    on = {"like": on_device(np.ones(1))} if function in CREATORS else {}
    wrong = []
    for arguments, keywords in variants(function):
        if (
            not any(isinstance(item, np.ndarray) for item in arguments)
            and not isinstance(arguments[0], list)
            and not on
        ):
            continue
        if function is np.argsort:
            keywords = {"kind": "stable"} | keywords
        if function is np.unravel_index and np.min(arguments[1], initial=0) < 0:
            continue  # for no indices, NumPy takes some of these shapes
        found = difference(function, arguments, keywords, on)
        if found:
            wrong.append(f"{arguments} {keywords}: {found}")
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:40])


def test_methods_of_ufuncs_with_odd_arguments():
    wrong = []
    for array in [*WHOLE, *ARRAYS]:
        for ufunc, axis in itertools.product((np.add, np.maximum, np.logical_or), ODD):
            for method in (ufunc.reduce, ufunc.accumulate):
                wrong.append(difference(method, (array, axis), {}, {}))
        for places in PLACES:
            wrong.append(difference(np.add.reduceat, (array, places), {}, {}))
        for other in [*WHOLE, *ARRAYS]:
            for ufunc in (np.add, np.maximum, np.matmul, np.less):
                wrong.append(difference(ufunc, (array, other), {}, {}))
    assert not [item for item in wrong if item]


def changed(change):
    """The array of a function that writes, after it has written."""

    def call(array, *arguments, **keywords):
        array = array.copy()
        change(array, *arguments, **keywords)
        return array

    return call


def test_keys_and_writers_with_odd_arguments():
    along = changed(np.put_along_axis)
    keys = [
        *PLACES,
        *ODD,
        [],
        [3, 1],
        np.array([0.0]),
        np.array([True, False]),
        None,
        ...,
        (..., 9),
        (slice(9, 1), [0]),
    ]
    wrong = []
    for array in [*WHOLE, *ARRAYS]:
        for key in keys:
            wrong.append(difference(lambda x, at: x[at], (array, key), {}, {}))
            if outcome(lambda x, at: x[at], (array, key), {})[1]:
                continue  # with a value of a wrong shape, too, which error comes first is free
            for value in (0, WHOLE[0], WHOLE[2], WHOLE[4]):
                wrong.append(difference(changed(lambda x, at, v: x.__setitem__(at, v)), (array, key, value), {}, {}))
        for shape in ODD:
            wrong.append(difference(lambda x, sizes: x.reshape(sizes), (array, shape), {}, {}))
            wrong.append(difference(lambda x, order: x.transpose(order), (array, shape), {}, {}))
        for other in [*WHOLE, *PLACES]:
            wrong.append(difference(changed(np.copyto), (array, other), {"casting": "unsafe"}, {}))
            for axis in (0, 1, -1, 9):
                wrong.append(difference(along, (array, other, 1), {"axis": axis}, {}))
    assert not [item for item in wrong if item]


def test_a_result_is_not_spread_over_a_larger_out():
    for function in (np.sum, np.max, np.argmax, np.mean, np.all, np.add.reduce):
        with pytest.raises(ValueError):
            function(on_device(ARRAYS[-1]), axis=0, out=on_device(np.zeros((2, *ARRAYS[-1].shape[1:]))))


def test_a_solution_takes_arrays_of_two_axes_for_matrices():
    a = np.stack([np.eye(3), 2 * np.eye(3), np.eye(3) + 1])
    compare(np.linalg.solve(on_device(a), on_device(ARRAYS[3])), np.linalg.solve(a, ARRAYS[3]))


@pytest.mark.parametrize("call", [
    lambda x: np.zeros_like(x, order="F"), lambda x: np.concatenate([x, x], casting="unsafe"),
    lambda x: np.argsort(x, kind="odd"),
])  # fmt: skip
def test_a_refused_value_of_an_allowed_keyword_is_named(call):
    with pytest.raises(TypeError, match="^(order='F'|casting='unsafe'|kind='odd') has no function of torch"):
        call(on_device(np.ones(3)))
