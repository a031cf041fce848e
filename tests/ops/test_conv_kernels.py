"""Convolution and its gradients, cut into units and among threads in every way: the numbers are torch's."""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab.ops import F
from hybrid_lab.ops.kernels import blas, convolution

torch = pytest.importorskip("torch")

#: batch, channels, filters, spatial, kernel, stride, dilate, pad, groups
GEOMETRIES = {
    "3x3": (3, 8, 6, (9, 7), (3, 3), 1, 1, 1, 1),
    "one image": (1, 8, 6, (17, 9), (3, 3), 1, 1, 1, 1),
    "stride 2": (2, 5, 8, (11, 8), (3, 2), 2, 1, 1, 1),
    "1x1 with stride": (3, 4, 8, (8, 9), (1, 1), 2, 1, 0, 1),
    "1x1": (2, 4, 8, (8, 9), (1, 1), 1, 1, 0, 1),
    "1x1, groups": (2, 4, 8, (8, 9), (1, 1), 1, 1, 0, 2),
    "stem": (1, 3, 8, (20, 21), (7, 7), 2, 1, 3, 1),
    "dilated": (2, 4, 4, (12, 11), (3, 3), 1, 2, 2, 1),
    "groups": (2, 8, 12, (9, 8), (3, 3), 1, 1, 1, 4),
    "groups with stride": (2, 8, 12, (9, 8), (3, 3), 2, 1, 1, 2),
    "depthwise": (2, 6, 6, (9, 8), (3, 3), 1, 1, 1, 6),
    "depthwise with stride": (2, 6, 6, (9, 8), (3, 3), 2, 1, 1, 6),
    "depthwise, two filters a channel": (2, 6, 12, (9, 8), (3, 3), 2, 1, 1, 6),
    "many filters, few pixels": (1, 8, 40, (4, 3), (3, 3), 1, 1, 1, 1),
    "a pad wider than the kernel": (1, 3, 4, (6, 5), (2, 2), 1, 1, 2, 1),
    "one axis": (3, 4, 6, (19,), (5,), 2, 1, 2, 1),
    "three axes": (2, 3, 4, (6, 5, 7), (3, 2, 3), 1, 1, 1, 1),
}


@pytest.fixture(params=["whole", "threads", "small units", "threads and small units"])
def cut(request, monkeypatch):
    """How the work is cut; the small sizes here would otherwise stay whole."""
    if "threads" in request.param:
        if blas.thread_control() is None:
            pytest.skip("NumPy's BLAS has no thread control")
        monkeypatch.setattr(blas, "workers", lambda products: 3)
    if "units" in request.param:
        monkeypatch.setattr(convolution, "PIECE", 200)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_equals_torch(name, cut):
    batch, channels, filters, spatial, kernel, stride, dilate, pad, groups = GEOMETRIES[name]
    rank, random = len(kernel), np.random.RandomState(0)
    x = random.normal(0, 1, (batch, channels, *spatial)).astype("float32")
    weight = random.normal(0, 1, (filters, channels // groups, *kernel)).astype("float32")
    bias = random.normal(0, 1, filters).astype("float32")
    attributes = {
        "kernel": kernel,
        "stride": (stride,) * rank,
        "dilate": (dilate,) * rank,
        "pad": (pad,) * rank,
        "num_filter": filters,
        "num_group": groups,
    }
    given = [torch.tensor(item, requires_grad=True) for item in (x, weight, bias)]
    expected = getattr(torch.nn.functional, f"conv{rank}d")(*given, stride, pad, dilate, groups)
    dy = random.normal(0, 1, expected.shape).astype("float32")
    expected.backward(torch.tensor(dy))
    for found, wanted in (
        (F.Convolution(x, weight, bias, **attributes), expected.detach()),
        (F._conv_data_grad(dy, x, weight, **attributes), given[0].grad),
        (F._conv_weight_grad(dy, x, weight, **attributes), given[1].grad),
    ):
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("batch", [1, 3])
def test_views_of_other_arrays(batch):
    """Inputs that lie in memory in another order, as a transpose hands them on."""
    random = np.random.RandomState(0)
    x = random.normal(0, 1, (batch, 9, 8, 4)).astype("float32")
    weight = random.normal(0, 1, (6, 4, 3, 3)).astype("float32")
    dy = random.normal(0, 1, (batch, 4, 3, 6)).astype("float32")
    views = x.transpose(0, 3, 1, 2), dy.transpose(0, 3, 1, 2)
    copies = [np.ascontiguousarray(view) for view in views]
    attributes = {"kernel": (3, 3), "stride": (2, 2), "num_filter": 6}
    for name in ("Convolution", "_conv_data_grad", "_conv_weight_grad"):
        more = {"no_bias": True} if name == "Convolution" else {}
        found, expected = (
            getattr(F, name)(*((data, weight) if more else (head, data, weight)), **attributes, **more)
            for data, head in (views, copies)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_every_item_is_done_once_and_errors_arrive():
    done: list[int] = []
    control = blas.thread_control()
    before = None if control is None else control[0]()
    blas.share(range(200), [done.append] * 3)
    assert sorted(done) == list(range(200))

    def fail(item):
        raise ValueError("of a part")

    with pytest.raises(ValueError, match="of a part"):
        blas.share(range(9), [fail, fail])
    assert control is None or control[0]() == before


@pytest.mark.parametrize("kernel, stride, groups", [(1, 1, 1), (3, 1, 1), (3, 2, 2), (1, 2, 1)])
@pytest.mark.parametrize("name", ["Convolution", "Deconvolution"])
def test_a_batch_without_images_has_gradients_of_zero(name, kernel, stride, groups):
    x, w = mx.nd.ones((0, 4, 5, 5)), mx.nd.ones((4, 4 // groups, kernel, kernel))
    for array in (x, w):
        array.attach_grad()
    with mx.autograd.record():
        y = getattr(mx.nd, name)(
            x, w, kernel=(kernel,) * 2, stride=(stride,) * 2, num_filter=4, num_group=groups, no_bias=True
        )
    y.backward()
    assert x.grad.shape == x.shape and not w.grad.asnumpy().any()
