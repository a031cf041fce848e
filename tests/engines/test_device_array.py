"""DeviceArray computes as NumPy's arrays do: keys, places, and every parameter of NumPy's functions."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hybrid_lab.engines.torch_kernels import device_functions  # noqa: E402, F401 - they need torch
from hybrid_lab.engines.torch_kernels.device_array import CREATORS, FUNCTIONS, DeviceArray  # noqa: E402

VALUES = np.arange(24.0).reshape(2, 3, 4) % 7

KEYS = [
    np.s_[..., ::-1], np.s_[None, ::-1], np.s_[::-1], np.s_[:, ::-1], np.s_[..., ::-1, :], np.s_[:, None, :, ::-1],
    np.s_[::-1, ..., ::-1], np.s_[1:, ..., ::-1],
]  # fmt: skip


def on_device(values):
    return DeviceArray(torch.from_numpy(values.copy()))


def same(found, wanted):
    np.testing.assert_array_equal(found.tensor.numpy(), wanted)
    assert found.shape == wanted.shape


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_an_axis_that_is_read_backwards_is_one_of_the_array(key):
    same(on_device(VALUES)[key], VALUES[key])


def test_a_mask_in_front_of_an_axis_that_is_read_backwards():
    mask = VALUES[0] > 3
    both = np.stack([VALUES, VALUES + 1], axis=-1)
    same(on_device(both)[:, on_device(mask), ::-1], both[:, mask, ::-1])


@pytest.mark.parametrize("function", [np.all, np.any, np.sum, np.mean, np.max, np.min])
@pytest.mark.parametrize("axis", [None, 1, (0, 2), ()])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_keep_axes_and_fill_out(function, axis, keepdims):
    wanted = function(VALUES, axis=axis, keepdims=keepdims)
    same(function(on_device(VALUES), axis=axis, keepdims=keepdims), wanted)
    out = on_device(np.zeros_like(np.asarray(wanted)))
    function(on_device(VALUES), axis=axis, keepdims=keepdims, out=out)
    same(out, wanted)


def test_running_numbers_fill_out():
    for running in (lambda x, out: np.cumsum(x, axis=1, out=out), lambda x, out: np.maximum.accumulate(x, 1, out=out)):
        out, wanted = on_device(np.zeros_like(VALUES)), np.zeros_like(VALUES)
        running(on_device(VALUES), out)
        running(VALUES, wanted)
        same(out, wanted)


def test_only_constant_padding_has_a_form():
    same(np.pad(on_device(VALUES), 1), np.pad(VALUES, 1))
    with pytest.raises(TypeError, match="mode='edge'"):
        np.pad(on_device(VALUES), 1, mode="edge")


# -- every parameter of NumPy's functions has its effect, or is refused ------------------------------------------------

SQUARE = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]])
UNEQUAL = np.sin(np.arange(24.0)).reshape(2, 3, 4)
LINE = np.array([3.0, -1.0, 2.0, 2.0, 0.0])
WHOLE = np.array([3, 1, 2, 2, 0])

#: Function -> arguments that it is called with.
CALLS = {
    np.where: (VALUES > 3, VALUES, 0.0), np.shape: (VALUES,), np.ndim: (VALUES,), np.clip: (VALUES, 1.0, 4.0),
    np.may_share_memory: (VALUES, LINE), np.zeros_like: (VALUES,), np.ones_like: (VALUES,),
    np.full_like: (VALUES, 2.0), np.reshape: (VALUES, (4, 6)), np.transpose: (VALUES,), np.swapaxes: (VALUES, 0, 1),
    np.moveaxis: (VALUES, 0, 2), np.broadcast_to: (LINE, (2, 5)), np.stack: ([LINE, LINE],),
    np.concatenate: ([VALUES, VALUES],), np.column_stack: ([LINE, LINE],), np.pad: (VALUES, 1), np.flip: (VALUES,),
    np.repeat: (VALUES, 2), np.resize: (VALUES, (3, 3)), np.sum: (VALUES,), np.mean: (VALUES,), np.max: (VALUES,),
    np.amax: (VALUES,), np.min: (VALUES,), np.amin: (VALUES,), np.argmax: (VALUES,), np.all: (VALUES,),
    np.any: (VALUES,), np.cumsum: (VALUES,), np.trace: (SQUARE,), np.nonzero: (VALUES,), np.flatnonzero: (VALUES,),
    np.take: (VALUES, WHOLE), np.take_along_axis: (LINE, WHOLE), np.argsort: (UNEQUAL,), np.sort: (UNEQUAL,),
    np.searchsorted: (np.sort(LINE), VALUES), np.unique: (WHOLE,), np.unravel_index: (WHOLE, (2, 3)),
    np.bincount: (WHOLE,), np.diagonal: (SQUARE,), np.tril: (SQUARE,), np.triu: (SQUARE,),
    np.polyval: ([1.0, 2.0], LINE), np.nan_to_num: (LINE,), np.isclose: (LINE, LINE), np.allclose: (LINE, LINE),
    np.einsum: ("ij,jk", SQUARE, SQUARE), np.dot: (SQUARE, SQUARE), np.linalg.norm: (SQUARE,),
    np.histogram: (VALUES, 4, (0.0, 6.0)), np.linalg.inv: (SQUARE,), np.linalg.cholesky: (SQUARE,),
    np.linalg.solve: (SQUARE, SQUARE), np.linalg.det: (SQUARE,), np.linalg.slogdet: (SQUARE,), np.fft.fft: (VALUES,),
    np.fft.ifft: (VALUES,), np.zeros: ((2, 3),), np.ones: ((2, 3),), np.full: ((2, 3), 4), np.arange: (4,),
    np.asarray: (VALUES,), np.array: (VALUES,), np.ascontiguousarray: (VALUES,),
}  # fmt: skip
#: Functions that write into an argument, or whose numbers are not determined, such as the signs of eigenvectors.
ELSEWHERE = {np.copyto, np.put_along_axis, np.empty, np.empty_like, np.linalg.eigh, np.linalg.svd, np.linalg.qr}
#: Parameter -> values that are not its default.
PARAMETERS = {
    "axis": [0, 1, -1, None, (0, 1)], "dtype": ["float32", "int64"], "keepdims": [True], "initial": [3.0, -2.0],
    "where": [VALUES > 2, VALUES[0] > 2], "order": ["F", "C"], "subok": [True, False], "shape": [(3, 2)],
    "casting": ["unsafe"], "copy": [False, True], "kind": ["stable"], "stable": [True], "mode": ["clip", "wrap"],
    "side": ["right"], "sorter": [WHOLE], "return_index": [True], "return_inverse": [True], "return_counts": [True],
    "equal_nan": [False], "weights": [LINE, VALUES], "minlength": [9], "offset": [1], "k": [1, -1],
    "axis1": [1], "axis2": [0], "nan": [1.0], "posinf": [1.0], "neginf": [1.0], "rtol": [0.5], "atol": [0.5],
    "optimize": [True], "ord": [1, 2, "fro"], "density": [True], "range": [(1.0, 3.0)], "bins": [2], "upper": [True],
    "n": [2], "norm": ["ortho"], "ndmin": [4], "device": ["cpu"], "axes": [(1, 0, 2)], "max_work": [1],
}  # fmt: skip


def moved(argument):
    """An argument on the device: arrays, and lists of them."""
    if isinstance(argument, np.ndarray):
        return on_device(argument)
    return list(map(moved, argument)) if isinstance(argument, list) else argument


def compare(found, wanted):
    if isinstance(wanted, tuple):
        for one, other in zip(found, wanted, strict=True):
            compare(one, other)
    elif isinstance(found, DeviceArray):
        exact = np.asarray(wanted).dtype != np.float32
        numbers = found.tensor.resolve_conj().numpy()
        np.testing.assert_allclose(numbers, wanted, rtol=1e-12 if exact else 1e-6, atol=1e-16)
        assert found.shape == np.shape(wanted) and found.dtype == np.asarray(wanted).dtype
    else:
        np.testing.assert_array_equal(found, wanted)


def test_every_function_has_a_call():
    of_numpy = {function for function in FUNCTIONS if function.__module__.startswith("numpy")}
    assert of_numpy | set(CREATORS) == CALLS.keys() | ELSEWHERE


@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__name__)
def test_a_parameter_has_its_effect_or_is_refused(function):
    arguments = CALLS[function]
    on = {"like": on_device(LINE)} if function in CREATORS else {}
    compare(function(*map(moved, arguments), **on), function(*arguments))
    for name, values in PARAMETERS.items():
        for value in values:
            try:
                wanted = function(*arguments, **{name: value})
            except (TypeError, ValueError, IndexError):
                continue  # NumPy has no such parameter, or not this value of it
            try:
                found = function(*map(moved, arguments), **{name: moved(value)}, **on)
            except TypeError:
                continue
            compare(found, wanted)


def test_extremes_with_a_mask_begin_with_the_initial_number():
    for function in (np.max, np.min):
        for mask in (VALUES > 2, VALUES > 100):
            wanted = function(VALUES, axis=1, where=mask, initial=2.5)
            same(function(on_device(VALUES), axis=1, where=on_device(mask), initial=2.5), wanted)


def test_conversions_that_numpy_refuses_are_refused():
    whole = on_device(WHOLE)
    for convert in (
        lambda: np.add(whole, 0.5, out=whole),
        lambda: np.copyto(whole, 0.5),
        lambda: np.copyto(whole, on_device(LINE)),
        lambda: on_device(LINE).astype("int64", casting="safe"),
    ):
        with pytest.raises(TypeError):
            convert()
    np.add(whole, 0.5, out=whole, casting="unsafe")
    same(whole, WHOLE)


@pytest.mark.parametrize("place", [-4, 3])
def test_places_outside_are_an_error_before_the_device_meets_them(place):
    array, places = on_device(SQUARE), np.array([0, place])
    for given in (places, on_device(places)):
        for use in (
            lambda at: array[at],
            lambda at: array[:, at],
            lambda at: array.__setitem__(at, 0.0),
            lambda at: np.take(array, at, axis=1),
            lambda at: np.take_along_axis(array, at.reshape(2, 1), axis=0),
            lambda at: np.put_along_axis(array, at.reshape(2, 1), 0.0, axis=0),
            lambda at: np.add.at(array, at, 1.0),
        ):
            with pytest.raises(IndexError, match=f"index {place} is out of bounds for axis [01] with size 3"):
                use(given)


def test_places_below_zero_count_from_the_end():
    places = np.array([-1, -3, 0])
    same(np.take(on_device(LINE), on_device(places)), LINE[places])
    same(np.take_along_axis(on_device(LINE), on_device(places), 0), LINE[places])
