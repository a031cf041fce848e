"""Gradients through whole numbers and bools, which each cut off a part, are the eager ones: also into and out of loops
and branches, and where a value is read several times.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hybrid_lab import autograd, nd
from tests.hybridize.test_backward_from_some_outputs import ENGINES
from tests.hybridize.test_hybrid_equals_eager import Function
from tests.triton_device import use_triton


def single(F, x):
    return F.cast(x, dtype="float32")


def read_twice(F, x, whole, dtype):
    return single(F, whole) * 3.5 + single(F, whole) * 2.25


def read_by_a_loop(F, x, whole, dtype):
    outputs, state = F.contrib.foreach(
        lambda a, s: (single(F, whole) * a, s + single(F, whole)), F.stack(x, x), F.zeros_like(x)
    )
    return F.sum(outputs, axis=0) + state


def data_of_a_loop(F, x, whole, dtype):
    outputs, state = F.contrib.foreach(
        lambda a, s: (single(F, a) * s, s + single(F, a)), F.stack(whole, whole), F.ones_like(x)
    )
    return F.sum(outputs, axis=0) + state


def state_of_a_loop(F, x, whole, dtype):
    outputs, state = F.contrib.foreach(
        lambda a, s: (single(F, s) * single(F, s) * a, F.cast(a, dtype=dtype)), F.stack(x, x), whole
    )
    return F.sum(outputs, axis=0) + single(F, state)


def state_of_a_while_loop(F, x, whole, dtype):
    outputs, (_, state) = F.contrib.while_loop(
        lambda i, s: i < 2,
        lambda i, s: (single(F, s) * x, [i + 1, F.cast(x * 3, dtype=dtype)]),
        [F.zeros((1,)), whole],
        max_iterations=3,
    )
    return F.sum(outputs, axis=0) + single(F, state)


def output_of_a_loop(F, x, whole, dtype):
    outputs, _ = F.contrib.foreach(lambda a, s: (F.cast(a * 2.5, dtype=dtype), s), F.stack(x, x), F.zeros((1,)))
    return F.sum(single(F, outputs) * F.stack(x, x), axis=0)


def read_by_a_branch(F, x, whole, dtype):
    return F.contrib.cond(F.sum(x) > 0, lambda: single(F, whole) * 3, lambda: single(F, whole) * 2) + single(F, whole)


def output_of_a_branch(F, x, whole, dtype):
    return single(F, F.contrib.cond(F.sum(x) > 0, lambda: F.cast(x * 2.5, dtype=dtype), lambda: whole)) * x


PROGRAMS = [value for value in list(globals().values()) if getattr(value, "__code__", None) is not None]
PROGRAMS = [value for value in PROGRAMS if value.__code__.co_varnames[:3] == ("F", "x", "whole")]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda item: item.__name__)
def test_gradients_are_the_eager_ones(program: Any, dtype: str, engine: str | None, monkeypatch):
    if engine == "triton":
        use_triton(monkeypatch)

    def gradients(hybrid: bool) -> list[np.ndarray]:
        net = Function(lambda F, x: program(F, x, F.cast(x, dtype=dtype), dtype))
        if hybrid:
            net.hybridize(engine=engine)
        found = []
        for second in (False, True):
            x = nd.array([0.0, 1.0, 2.0])
            x.attach_grad()
            with autograd.record():
                y = net(x)
                if second:
                    (first,) = autograd.grad(y, [x], create_graph=True)
                    y = first * first * x
            y.backward()
            found += [y.asnumpy(), x.grad.asnumpy()]
        return found

    for found, wanted in zip(gradients(True), gradients(False), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
