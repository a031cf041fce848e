"""The linter and the trace tell the same: what lint calls an error raises that rule, what is clean runs."""

from __future__ import annotations

import itertools
import linecache
import textwrap
from collections.abc import Callable

import pytest

import hybrid_lab as mx
from hybrid_lab import lint
from hybrid_lab.diagnostics import HybridizeError, rules

from .examples import as_module

SOURCE = """\
import numpy as np
import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.gluon import nn

class Net(gluon.HybridBlock):
    def __init__(self, units=4, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.fc = nn.Dense(units)
        self.body = nn.HybridSequential()
        self.body.add(nn.Dense(4), nn.Dense(4))

    def hybrid_forward(self, F, x, y):
{body}
"""
_numbers = itertools.count(1)

RAISING = [
    "return x.reshape((x.shape[0], -1))",
    "return self.fc(x).size * y",
    "return y.astype(x.dtype)",
    "return F.zeros((1,), ctx=x.context) + y",
    "return F.dot(x.T, y)",
    "a, b = x\nreturn a + b + y",
    "return x * y.asnumpy()",
    "y.wait_to_read()\nreturn x * y",
    "return x.detach() + y",
    "if x.max() > 0.5:\n    return x\nreturn y",
    "return x if not F.sum(y) else y",
    "assert F.sum(x) > 0\nreturn y",
    "if x in [y]:\n    return x\nreturn y",
    "for row in x:\n    y = y + row\nreturn y",
    "return F.concat(*x, y)",
    "return F.sum(x) / len(y)",
    "return x * float(F.sum(y))",
    "return x[y > 0]",
    "x[0] = y\nreturn x",
    "x += y\nreturn x",
    "return np.exp(x) + y",
    "return mx.nd.relu(x) + y",
    "self.last = x\nreturn y",
    "return (x\n        .reshape((-1,))\n        .asnumpy()) + y",
    "return F.relu(\n    x).shape",
    "return float(\n    F.sum(y)) * x",
    "return [row for row in x][0] + y",
    "z = [*x]\nreturn z + [y]",
    "for i, row in enumerate(x):\n    y = y + row\nreturn y",
    "return x or y",
    "return (x > 0) and (y > 0)",
    "if self.units and x.sum() > 0:\n    return x\nreturn y",
    "if self.units > 30:\n    return x\nelif F.sum(x) > 0:\n    return y\nreturn x",
    "return y if 0 < x < 1 else x",
    "return [t for t in (x, y) if t > 0]",
    "return any([x > 0, y > 0])",
    "return all(t > 0 for t in (x, y))",
    "while F.sum(x) > 1:\n    x = x / 2\nreturn x + y",
    "return max(x, y)",
    "import math\nreturn math.sqrt(F.sum(x)) * y",
    "for i in range(x):\n    y = y + i\nreturn y",
    "def rows(t):\n    return t.shape\nreturn rows(x)",
    "return (lambda t: t.shape)(x)",
    "return getattr(x, 'shape')",
    "return x[:, F.argmax(y)]",
    "x[0] += 1\nreturn x + y",
    "z = self.fc(x)\nz *= x + y\nreturn z",
    "del x[0]\nreturn x + y",
    "x.attach_grad()\nreturn x + y",
    "return x.grad + y",
    "return x.copy() + y",
    "return np.array(x) + y",
    "return np.sum(F.relu(x), axis=1) + y",
    "return np.concatenate([x, y], axis=1)",
    "return np.maximum(x, 0) + y",
    "return np.var(x) + y",
    "setattr(self, 'last', x)\nreturn y",
]

RUNNING = [
    "return F.relu(x) + y",
    "n = np.zeros((2, 3)).shape[0]\nreturn x * n + y",
    "for layer in self.body:\n    x = layer(x)\nreturn x + y",
    "if self.units > 3 and x is not None:\n    x = self.fc(x)\nreturn x * y",
    "a, b = F.split(x, num_outputs=2)\nreturn F.concat(a, b, y)",
    "parts = [x * i for i in range(3)]\nreturn F.concat(*parts, y)",
    "z = None\nfor part in (x, y):\n    z = part if z is None else z + part\nreturn z",
    "return F.where(x > y, x, y)",
    "return x[0] + y[:, 1:2] - (x @ y) // 2",
    "return np.sqrt(self.units) * x + y",
    "def twice(t):\n    return t * 2\nreturn twice(x) + twice(y)",
    "return ~(x > y) & (x > 0)",
    "x @= y\nreturn x",
    "x //= y\nreturn F.dot(self.fc(x), self.fc.weight.data())",
    "return getattr(self, 'fc')(x) + getattr(F, 'relu')(y)",
]


def namespace_of(source: str) -> dict:
    """What a module with this source defines; its lines can be found, as those of a cell."""
    file = f"<ipython-input-{next(_numbers)}-agreement>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    namespace: dict = {"__name__": "agreement"}
    exec(compile(source, file, "exec"), namespace)
    return namespace


def first_call(source: str) -> Callable[..., mx.nd.NDArray]:
    """A function that makes the source's Net, hybridizes it with strict=True and calls it."""

    def call(*inputs):
        net = namespace_of(source)["Net"]()
        net.initialize()
        net.hybridize(engine="numpy", strict=True)
        return net(*inputs)

    return call


def hybrid_call(body: str) -> tuple[str, Callable[[], mx.nd.NDArray]]:
    """The source of a block with this body, and its first hybrid call, on two 4x4 arrays."""
    source = SOURCE.format(body=textwrap.indent(body, " " * 8))
    call = first_call(source)
    return source, lambda: call(mx.nd.ones((4, 4)), mx.nd.ones((4, 4)))


@pytest.mark.parametrize("body", RAISING)
def test_what_lint_calls_an_error_raises_it(body):
    source, call = hybrid_call(body)
    findings = [finding for finding in lint.check(source) if finding.severity == "error"]
    with pytest.raises(HybridizeError) as raised:
        call()
    error = raised.value
    finding = next(finding for finding in findings if finding.code == error.code)
    assert finding.line <= error.location.line <= finding.end_line
    assert (error.message, error.rewrite) == (finding.message, finding.rewrite)
    assert finding.tensor in (error.tensor, None)


@pytest.mark.parametrize("record", [r for r in rules.all() if r.code != "HL002"], ids=lambda record: record.code)
def test_the_examples_of_the_rules_name_the_same_tensor(record):
    """Where a rule's example cannot be traced, the trace says what lint says of that line."""
    source = as_module(record.bad)
    call = first_call(source)
    try:
        call(mx.nd.ones((3, 3)))
    except HybridizeError as error:
        said = [f for f in lint.check(source, target="mxnet") if f.code == error.code and f.severity == "error"]
        assert not said or (error.message, error.rewrite) in [(f.message, f.rewrite) for f in said]
        assert not said or error.tensor in [f.tensor for f in said] or {f.tensor for f in said} == {None}
    except Exception:
        pass  # what fails in other words is not a rule of the trace


@pytest.mark.parametrize("body", RUNNING)
def test_what_is_clean_runs(body):
    source, call = hybrid_call(body)
    assert lint.check(source) == []
    assert call().shape[0] == 4


def test_what_mxnet_lacks_is_told_for_mxnet():
    """Both run here, in both modes; MXNet 1.9.1 raises AssertionError and TypeError."""
    for body, code in (("return F.dot(x, self.fc.weight.data()) + y", "HL164"), ("x @= y\nreturn x", "HL153")):
        source, _ = hybrid_call(body)
        assert lint.check(source) == []
        assert code in [finding.code for finding in lint.check(source, target="mxnet")]
    source, _ = hybrid_call("return F.dot(x, self.fc.weight.list_data()[0]) + y")
    assert [finding.code for finding in lint.check(source)] == ["HL164"]


def test_a_parameter_read_with_data_gives_the_same_in_both_modes():

    class Net(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.fc = mx.gluon.nn.Dense(4, in_units=4)

        def hybrid_forward(self, F, x):
            x @= x
            return F.dot(x, self.fc.weight.data())

    net = Net()
    net.initialize()
    x = mx.nd.ones((4, 4))
    eager = net(x).asnumpy()
    net.hybridize(engine="numpy")
    assert (net(x).asnumpy() == eager).all() and (x.asnumpy() == 1).all()
    net.fc.weight.set_data(net.fc.weight.data() * 2)
    assert (net(x).asnumpy() == 2 * eager).all()
