"""An output of a loop or branch has a history where one of its own inputs has one, hybridized as eagerly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hybrid_lab import autograd, nd
from hybrid_lab.diagnostics import AutogradError
from tests.hybridize.test_hybrid_equals_eager import Function, flat

X = np.array([0.5, 2.0, 4.0], np.float32)


def a_counter(F, x, p):
    return F.contrib.while_loop(
        lambda i, s: i < 3, lambda i, s: (i * 2, (i + 1, F.sin(s))), (F.zeros(1), x), max_iterations=4
    )


def a_state_that_reaches_another(F, x, p):
    return F.contrib.while_loop(
        lambda i, a, b, c: i < 3,
        lambda i, a, b, c: ((a, i), (i + 1, b * 2, c * 2, F.sqrt(c))),
        (F.zeros(1), F.ones(3), F.ones(3), x),
        max_iterations=3,
    )


def what_only_a_condition_reads(F, x, p):
    return F.contrib.while_loop(
        lambda i, a, b: F.sum(a) < 30,
        lambda i, a, b: (b, (i + 1, a + p, b)),
        (F.zeros(1), x, F.ones(3)),
        max_iterations=3,
    )


def a_branch(F, x, p):
    return F.contrib.cond(p > 0, lambda: [x * 2, F.ones(3)], lambda: [F.exp(x), F.zeros(3)])


def columns_apart(F, x, p):
    return F.contrib.foreach(
        lambda row, state: ([row + 1, state[0] * 1], [state[0] + 1, F.floor(row)]), x, [F.zeros(1), F.zeros(1)]
    )


def nested(F, x, p):
    def body(row, state):
        y, s = F.contrib.cond(p > 0, lambda: [row * 2, state[0] + 1], lambda: [row, state[0]])
        return [y, s], [s, state[1] + y]

    return F.contrib.foreach(body, x, [F.zeros(1), F.zeros(1)])


@pytest.mark.parametrize(
    "function", [a_counter, a_state_that_reaches_another, what_only_a_condition_reads, a_branch, columns_apart, nested]
)
def test_outputs_have_the_same_history_hybridized(function):
    def run(active: bool, index: int) -> Any:
        net = Function(function)
        net.hybridize(active, engine="numpy")
        x, p = nd.array(X), nd.ones((1,))
        for item in (x, p):
            item.attach_grad()
            item.grad[:] = 7
        with autograd.record():
            outputs = flat(net(x, p))
        if index == len(outputs):
            return None
        try:
            outputs[index].backward()
        except AutogradError as error:
            return str(error)
        return [x.grad.asnumpy().tolist(), p.grad.asnumpy().tolist()]

    eager: list[Any] = []
    while not eager or eager[-1] is not None:
        eager.append(run(False, len(eager)))
    assert [run(True, index) for index in range(len(eager))] == eager
    assert any("not in a computational graph" in found for found in eager if isinstance(found, str))
