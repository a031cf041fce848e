"""What one call does not differentiate gets no gradient inside graphs either: no zeros, which 0 times infinity spoils.

Branches that are not taken, loops without a step, and states of loops that nobody reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from tests.hybridize.test_backward_from_some_outputs import ENGINES, same
from tests.hybridize.test_hybrid_equals_eager import Function, flat
from tests.triton_device import use_triton

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
X = np.array([0.0, 1.0, 4.0], np.float32)


def cond(F: Any, p: Any, then: Any, other: Any) -> Any:
    return F.contrib.cond(p, then, other)


def one_branch(F, x, p, q):
    root = F.sqrt(x)
    return cond(F, p, lambda: root * 1, lambda: x * 2)


def other_branch(F, x, p, q):
    root = F.sqrt(x)
    return cond(F, p, lambda: x * 2, lambda: root * 1)


def both_branches(F, x, p, q):
    root = F.sqrt(x + 1)
    return cond(F, p, lambda: root * 1, lambda: root * 2)


def a_branch_and_the_code_around_it(F, x, p, q):
    y = F.exp(x)
    root = F.sqrt(x)
    return cond(F, p, lambda: root * y, lambda: y * 2) + y


def two_conditions(F, x, p, q):
    root = F.sqrt(x)
    return cond(F, p, lambda: root * 1, lambda: x * 2) + cond(F, q, lambda: x * 3, lambda: root * 2)


def one_condition_twice(F, x, p, q):
    root = F.sqrt(x)
    return cond(F, p, lambda: root * 1, lambda: x * 2) * cond(F, p, lambda: root + 2, lambda: x * x)


def inside_a_branch(F, x, p, q):
    root = F.log(x)
    return cond(F, p, lambda: cond(F, q, lambda: root * 1, lambda: x * 3), lambda: x * 2)


def one_after_the_other(F, x, p, q):
    root = F.sqrt(x)
    inner = cond(F, p, lambda: root * 1, lambda: x * 3)
    wide = F.rsqrt(inner)
    return cond(F, q, lambda: wide * 1, lambda: inner * 2)


def several_outputs_of_a_branch(F, x, p, q):
    first, second = F.split(F.sqrt(F.concat(x, x, dim=0)), num_outputs=2, axis=0)
    return cond(F, p, lambda: first * second, lambda: x * 2)


def through_dropout(F, x, p, q):
    root = F.Dropout(F.sqrt(x), p=0.5)
    return cond(F, p, lambda: root * 1, lambda: x * 2)


def loop_without_a_step(F, x, p, q):
    root = F.sqrt(x)
    _, (_, state) = F.contrib.while_loop(
        lambda i, s: i < p, lambda i, s: ([], [i + 1, s * root]), [p * 0, x * 2], max_iterations=3
    )
    return state


def loop_without_a_step_of_which_the_outputs_are_read(F, x, p, q):
    root = F.sqrt(x)
    outputs, (_, state) = F.contrib.while_loop(
        lambda i, s: i < p, lambda i, s: (s * 1, [i + 1, s * root]), [p * 0, root * 2], max_iterations=3
    )
    return F.sum(outputs, axis=0) + x


def a_last_state_that_nobody_reads(F, x, p, q):
    outputs, _ = F.contrib.foreach(lambda d, s: (d * s, F.sqrt(s) + 1), F.stack(x, x), F.ones_like(x) + x)
    return F.sum(outputs, axis=0)


def what_only_outputs_read_that_nobody_reads(F, x, p, q):
    root = F.sqrt(x)
    outputs, state = F.contrib.foreach(lambda d, s: ([d * s, root * d], s + d), F.stack(x, x), x * 1)
    return F.sum(outputs[0], axis=0) + state


def one_step_of_a_loop(F, x, p, q):
    root = F.sqrt(x)
    outputs, _ = F.contrib.foreach(lambda d, s: (d * s, s * root), F.expand_dims(x, axis=0), x * 1)
    return F.sum(outputs, axis=0)


def a_branch_inside_a_loop(F, x, p, q):
    root = F.sqrt(x)
    outputs, _ = F.contrib.foreach(
        lambda d, s: (F.contrib.cond(p, lambda: d * root, lambda: d * s), s + d), F.stack(x, x), x * 1
    )
    return F.sum(outputs, axis=0)


def a_loop_inside_a_branch(F, x, p, q):
    root = F.sqrt(x)

    def loop():
        _, state = F.contrib.foreach(lambda d, s: ([], s + d * root), F.stack(x, x), x * 1)
        return state

    return F.contrib.cond(p, loop, lambda: x * 2)


def a_state_of_two_that_nobody_reads(F, x, p, q):
    _, (state, _) = F.contrib.foreach(
        lambda d, s: ([], [s[0] * d, F.sqrt(s[1]) * 0]), F.stack(x, x), [F.ones_like(x), x * 1]
    )
    return state


def an_output_of_a_loop_that_nobody_reads(F, x, p, q):
    outputs, state = F.contrib.foreach(lambda d, s: ([d * s, F.sqrt(d)], s + d), F.stack(x, x), x * 1)
    return F.sum(outputs[0], axis=0) + state


def an_output_of_a_branch_that_nobody_reads(F, x, p, q):
    return F.contrib.cond(p, lambda: [x * 2, F.sqrt(x)], lambda: [x * 3, F.log(x)])[0]


PROGRAMS = [value for value in list(globals().values()) if getattr(value, "__code__", None) is not None]
PROGRAMS = [value for value in PROGRAMS if value.__code__.co_varnames[:4] == ("F", "x", "p", "q")]


def run(net: Any, p: float, q: float, second: bool) -> list[Any]:
    mx.random.seed(4)
    x = nd.array(X)
    x.attach_grad()
    with autograd.record():
        y = flat(net(x * 1, nd.array([p]), nd.array([q])))[0]
        if second:
            (dx,) = autograd.grad(y, [x], create_graph=True)
            y = (y + 1) * (dx + 1)
    y.backward()
    return [y.asnumpy(), x.grad.asnumpy()]


@pytest.mark.each_value
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda item: item.__name__)
def test_only_what_ran_is_differentiated(program, engine, monkeypatch):
    if engine == "triton":
        use_triton(monkeypatch)
    eager, net = Function(program), Function(program)
    net.hybridize(engine=engine)
    for p in (0.0, 1.0):
        for q in (0.0, 1.0):
            same(run(net, p, q, False), run(eager, p, q, False))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda item: item.__name__)
def test_second_derivatives(program):
    eager, net = Function(program), Function(program)
    net.hybridize(engine="numpy")
    for p in (0.0, 1.0):
        for q in (0.0, 1.0):
            same(run(net, p, q, True), run(eager, p, q, True))
