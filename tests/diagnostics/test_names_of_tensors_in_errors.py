"""Errors of a trace name tensors as the user wrote them, and by their node where the source cannot tell."""

from __future__ import annotations

import linecache
import textwrap

import pytest

import hybrid_lab as mx
from hybrid_lab.diagnostics import HybridizeError

HEAD = """\
import numpy as np
from hybrid_lab import gluon, nd

class Net(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
"""


def refused(body: str, keep_source: bool = True) -> HybridizeError:
    """The error of tracing a block with this body."""
    source = HEAD + textwrap.indent(body, " " * 8)
    file = "<ipython-input-1-written>"
    namespace: dict = {"__name__": "written"}
    exec(compile(source, file, "exec"), namespace)
    linecache.cache[file] = (len(source), None, source.splitlines(True) if keep_source else ["no source\n"], file)
    net = namespace["Net"]()
    net.hybridize(engine="numpy")
    with pytest.raises(HybridizeError) as raised:
        net(mx.nd.ones((2, 3)))
    return raised.value


@pytest.mark.parametrize(
    ("body", "tensor"),
    [
        ("return x.shape", "x"),
        ("z = F.relu(x)\nreturn z.size", "z"),
        ("return F.exp(x).asnumpy()", "F.exp(x)"),
        ("return len(x)", "x"),
        ("x -= 1\nreturn x", "x"),
        ("for row in F.exp(x):\n    x = row\nreturn x", "F.exp(x)"),
        ("kept = {'a': x}\nreturn kept['a'].shape", "kept['a']"),
        ("return (x *\n        2).shape", "x * 2"),
        ("for a, b in [x]:\n    x = a\nreturn x", "x"),
        ("table = [1, 2]\nreturn x * table[x]", "x"),
        ("return F.broadcast_add(F.exp(x), F.exp(F.log(F.relu(x)))).shape", "x"),
    ],
)
def test_the_tensor_is_named_as_it_is_written(body, tensor):
    error = refused(body)
    assert error.tensor == tensor
    assert "data" not in error.message and "data0" not in error.rewrite


def test_the_array_that_met_a_tensor_is_named():
    error = refused("return x * np.ones((2, 3))")
    assert error.code == "HL164"
    assert error.message == "`np.ones((2, 3))` is a NumPy array, which cannot enter a graph."


def test_without_its_source_the_node_is_named():
    error = refused("return x.shape", keep_source=False)
    assert error.tensor == "data"
    assert error.message == "`.shape` of the tensor `data` cannot be read while a graph is made."


def test_a_source_that_changed_since_is_not_believed():
    file = "<ipython-input-1-changed>"
    source = HEAD + "        return x.shape\n"
    namespace: dict = {"__name__": "changed"}
    exec(compile(source, file, "exec"), namespace)
    linecache.cache[file] = (1, None, (HEAD + "        return F.relu(x)\n").splitlines(True), file)
    net = namespace["Net"]()
    net.hybridize(engine="numpy")
    with pytest.raises(HybridizeError) as raised:
        net(mx.nd.ones((2, 3)))
    assert raised.value.tensor == "data"


@pytest.mark.parametrize(
    ("body", "rewrite"),
    [
        ("return x.detach()", "F.BlockGrad(x)"),
        ("return x.copy()", "F.identity(x)      or      x itself: nothing in a graph changes a tensor"),
        ("x.attach_grad()\nreturn x", "outside the network: attach_grad() on its input, then with autograd.record(): "
         "out = net(input)"),
        ("F.sum(x).backward()\nreturn x", "outside the network: with autograd.record(): loss = ..., then "
         "loss.backward()"),
        ("return x.grad", "outside the network, after loss.backward(): the input's .grad holds the gradient"),
    ],
)  # fmt: skip
def test_gradients_belong_outside_and_copies_have_operators(body, rewrite):
    error = refused(body)
    assert error.code == "HL113"
    assert error.rewrite == rewrite


@pytest.mark.parametrize(
    ("body", "call", "rewrite"),
    [
        ("return np.sin(x)", "np.sin", "F.sin(x)"),
        ("return np.array(x)", "np.array", "x itself, a tensor already      or      F.cast(x, dtype='float32') for "
         "another type"),
        ("return np.mean(x, axis=1)", "np.mean", "F.mean(x, axis=1)"),
        ("return np.stack([x, x], axis=1)", "np.stack", "F.stack(x, x, axis=1)"),
        ("return np.var(x)", "np.var", "no operator of F is like np.var: do it with others, or in a plain Block"),
    ],
)  # fmt: skip
def test_numpy_calls_are_named_with_the_operator_for_them(body, call, rewrite):
    error = refused(body)
    assert error.code == "HL162"
    assert error.message.startswith(f"`{call}` was given the tensor `x`")
    assert error.rewrite == rewrite


def test_the_operators_for_numpy_functions_exist():
    from hybrid_lab.diagnostics.rules import numpy_calls
    from hybrid_lab.ops.framework.operator import find

    names = {*numpy_calls.ELEMENTWISE, *numpy_calls.SAME_OPERATOR.values()}
    assert sorted(name for name in names if find(name) is None) == []


def test_the_operators_for_functions_of_math_exist():
    import math

    from hybrid_lab.diagnostics import rules
    from hybrid_lab.ops.framework.operator import find

    pairs = {
        key.removeprefix("math."): text.partition("(")[0].removeprefix("F.")
        for key, text in rules.get("HL125").rewrites.items()
        if key.startswith("math.")
    }
    assert pairs and all(hasattr(math, function) and find(operator) for function, operator in pairs.items())


@pytest.mark.parametrize(
    ("body", "call", "rewrite"),
    [
        ("return x * int(x)", "int", "F.cast(x, dtype='int32')"),
        ("return max(x, 1)", "max", "F.maximum(x, other)"),
        ("from math import sqrt\nreturn sqrt(x)", "math.sqrt", "F.sqrt(x)"),
    ],
)
def test_python_numbers_have_operators(body, call, rewrite):
    error = refused(body)
    assert (error.code, error.rewrite) == ("HL125", rewrite)
    assert f"`{call}()`" in error.message
