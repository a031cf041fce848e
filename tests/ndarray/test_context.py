"""Contexts: names of devices, the current one, and what is missing where there is no GPU."""

from __future__ import annotations

import pytest

import hybrid_lab as mx
from hybrid_lab import nd
from hybrid_lab.diagnostics import AttributeSpecError, EngineUnavailable, UninitializedError

needs_no_gpu = pytest.mark.skipif(mx.num_gpus() > 0, reason="this machine has a GPU")


def test_contexts_are_values():
    assert mx.cpu() == mx.cpu(0) != mx.cpu(1) and mx.cpu() != mx.gpu()
    assert len({mx.cpu(), mx.cpu(0), mx.gpu(1), mx.gpu(1)}) == 2
    assert mx.Context("gpu", 1) == mx.Context(mx.gpu(1)) and mx.gpu(1).device_type == "gpu"
    with pytest.raises(AttributeSpecError, match="'tpu'"):
        mx.Context("tpu")
    with pytest.raises(AttributeError):
        mx.cpu().device_id = 3


def test_the_current_context_nests():
    assert mx.current_context() == mx.cpu(0)
    with mx.cpu(1), mx.Context("cpu", 2):
        assert nd.ones((1,)).ctx == nd.arange(3).ctx == nd.random.uniform(shape=2).ctx == mx.cpu(2)
    assert mx.current_context() == mx.cpu(0)


def test_results_stay_on_the_first_input():
    a, b = nd.ones((1,), ctx=mx.cpu(1)), nd.ones((1,), ctx=mx.cpu(2))
    assert (a + b).ctx == mx.cpu(1) and (2 * b).ctx == mx.cpu(2)
    assert a.as_in_context(mx.cpu(1)) is a and a.as_in_context(mx.cpu(2)).ctx == mx.cpu(2)
    assert a.copyto(mx.cpu(3)).ctx == mx.cpu(3) and a.ctx == mx.cpu(1)


@needs_no_gpu
def test_a_missing_gpu_says_what_is_missing():
    for make in (
        lambda: nd.ones((2,), ctx=mx.gpu(0)),
        lambda: nd.ones((2,)).as_in_context(mx.gpu(0)),
        lambda: nd.random.uniform(shape=2, ctx=mx.gpu(0)),
        lambda: mx.context.gpu_memory_info(0),
    ):
        with pytest.raises(EngineUnavailable, match=r"gpu\(0\) cannot be used: .*ctx=mx.cpu\(\)"):
            make()
    with mx.gpu(0), pytest.raises(EngineUnavailable):
        nd.zeros((1,))


def test_gpus_are_numbered_from_0():
    with pytest.raises(EngineUnavailable, match=r"gpu\(-1\) cannot be used: "):
        nd.ones((2,), ctx=mx.gpu(-1))


def test_a_parameter_on_another_context_says_how_to_move_it():
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize(ctx=mx.cpu(1))
    with pytest.raises(UninitializedError, match=r"only on cpu\(1\).*reset_ctx\(mx\.cpu\(2\)\) moves it"):
        net(nd.ones((1, 3), ctx=mx.cpu(2)))
