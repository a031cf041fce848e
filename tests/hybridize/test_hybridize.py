"""What hybridize() is asked for is what it does, or an error, or a warning."""

import logging
import re
import sys

import pytest

import hybrid_lab as mx
from hybrid_lab.diagnostics import EngineUnavailable, NestingError
from hybrid_lab.engines import registry
from hybrid_lab.gluon import nn
from hybrid_lab.system.logger import logger


@pytest.fixture
def warnings():
    """What the logger warns of."""
    found = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: found.append(record.getMessage())
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)


def two_layers():
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=3), nn.Dense(2, in_units=2))
    net.initialize()
    return net


@pytest.mark.skipif(mx.num_gpus() > 0, reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_an_error():
    net = two_layers()
    with pytest.raises(EngineUnavailable, match=r"gpu\(0\) cannot be used"):
        net.hybridize(device=mx.gpu(0))
    assert not net._active


def test_the_cpu_is_there():
    net = two_layers()
    net.hybridize(engine="numpy", device=mx.cpu())
    assert net(mx.nd.ones((1, 3))).shape == (1, 2)


def test_the_policy_chooses_on_the_cpu_where_triton_is_the_default(monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setenv("HYBRID_LAB_TRITON", "interpret")
    monkeypatch.delenv("HYBRID_LAB_CPU", raising=False)
    net = two_layers()
    net.hybridize(device=mx.cpu())
    net(mx.nd.ones((1, 3)))
    assert registry.for_flags(net._flags) is None and registry.default() is registry.get("triton")
    assert re.search(r"engine: (onnxruntime|numpy): predictions run on", str(mx.explain(net)))


def test_an_engine_of_the_cpu_is_not_moved_to_a_gpu(monkeypatch):
    monkeypatch.setattr("hybrid_lab.ndarray.context._usable_gpus", lambda: (1, ""))
    with pytest.raises(EngineUnavailable, match="'numpy' runs on the CPU here, not on a GPU"):
        two_layers().hybridize(engine="numpy", device=mx.gpu(0))


def test_a_misspelt_flag_is_warned_of_once_and_mxnets_flags_are_not(warnings):
    net = two_layers()
    net.hybridize(engine="numpy", static_aloc=True, inline_limit=4, forward_bulk_size=2, clear=True, backend=None)
    (warning,) = warnings
    assert warning == (f"{net.name}: hybridize() has no flag 'static_aloc', it is ignored; did you mean static_alloc?")
    assert net._flags["inline_limit"] == 4 and "static_aloc" not in net[0]._flags


def test_blocks_nested_deeper_than_python_goes():
    net = nn.Dense(2, in_units=2)
    for _ in range(150):  # Python 3.12 has a limit of its own for calls of objects, about 300, which nothing raises
        outer = nn.HybridSequential()
        outer.add(net)
        net = outer
    net.initialize()
    net.hybridize(engine="numpy")
    x = mx.nd.ones((1, 2))
    before = sys.getrecursionlimit()  # some libraries raise it
    try:
        sys.setrecursionlimit(500)
        with pytest.raises(NestingError, match=rf"{net.name}: .* recursion limit of 500 .*set"):
            net(x)
        sys.setrecursionlimit(10_000)
        hybrid = net(x)
        net.hybridize(False)
        assert (hybrid == net(x)).asnumpy().all()
    finally:
        sys.setrecursionlimit(before)
