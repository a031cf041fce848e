"""DeviceArray computes as NumPy's arrays do: keys, `out`, `keepdims`."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hybrid_lab.engines.torch_kernels import device_functions  # noqa: E402, F401 - they need torch
from hybrid_lab.engines.torch_kernels.device_array import DeviceArray  # noqa: E402

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
    if function is np.mean and axis == ():
        return
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
