"""Divisions and square roots of kernels round correctly: NVIDIA's plain ones of float32 are off by up to 2 units."""

import ast
import os
import re

import numpy as np
import pytest

pytest.importorskip("triton")

import hybrid_lab as mx
from hybrid_lab import autograd, optimizer
from hybrid_lab.engines.triton.build.compiling import compile_all
from hybrid_lab.engines.triton.plan.other_batches import kernels_of
from hybrid_lab.engines.triton.plan.training import with_less_saved
from hybrid_lab.engines.triton.run.update import DeviceUpdate
from hybrid_lab.engines.triton.write.exact import exact
from hybrid_lab.gluon import nn, rnn
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.ops.framework.dtypes import is_floating
from hybrid_lab.optimizer.fused import update_graph
from tests.engines.test_samples import graph_of
from tests.gluon.test_fused_update import SETTINGS
from tests.ops.cases import CASES, Case, each_sample

#: NVIDIA's instructions of float32 that are off by more than rounding. Those of float64 begin an exact division.
APPROXIMATE = re.compile(r"\b(?:div\.(?:full|approx)|r?sqrt\.approx|rcp\.approx)[.\w]*\.f32")
#: Functions of kernels that divide in float64, or numbers by numbers, or are what rounds correctly.
DIVIDING = ("divide", "modulo", "rest_of_division", "hyperbolic_sine", "area_tangent")


@pytest.mark.parametrize(
    "line, wanted",
    [
        ("x = a / b", "x = divide(a, b)"),
        ("x = (a + b) / (c - d) / e", "x = divide(divide(a + b, c - d), e)"),
        ("x = (1.0 / tl.sqrt(a))", "x = (divide(1.0, square_root(a)))"),
        ("x = a / (b / c)  # of a / b", "x = divide(a, divide(b, c))  # of a / b"),
        ("x = -((a / b) * c) / -d", "x = divide(-((divide(a, b)) * c), -d)"),
        ("for i in range(0, a // b):", "for i in range(0, a // b):"),
        ("x = 1.0 / 3.0 + a // 2 + tl.fdiv(a, b)", "x = 1.0 / 3.0 + a // 2 + tl.fdiv(a, b)"),
        ("for i in range(0, a / b):", "for i in range(0, divide(a, b)):"),
        ('x = tl.where(a, float("nan"), b / c)', 'x = tl.where(a, float("nan"), divide(b, c))'),
    ],
)
def test_divisions_and_roots_become_calls(line, wanted):
    lines = [line, "    y = d / 2.0"] if line.endswith(":") else [line, "y = d / 2.0"]
    found = exact(lines)
    assert found[0] == wanted and found[1].strip() == "y = divide(d, 2.0)"


def test_a_statement_of_several_lines_is_edited_as_a_whole():
    lines = ["x = (a *", "    b / c", ")", "if x:", "    y = a / b"]
    assert exact(lines) == ["x = (divide(a *", "    b, c)", ")", "if x:", "    y = divide(a, b)"]


def kernels_of_sample(case: Case):
    """The kernels of a sample's call and of its gradient."""
    graph, arrays = graph_of(case)
    differentiable = case.record.differentiable and case.sample.gradient
    wrt = [index for index, array in enumerate(arrays) if is_floating(array.dtype)] if differentiable else []
    parts = specialize(graph, [item.shape for item in arrays], [item.dtype for item in arrays], True, wrt)
    return [source for part in (parts.forward, parts.backward) if part is not None for source in kernels_of(part)[2]]


def assert_exact(source):
    """Nothing in a kernel's text divides or takes a root by what is approximate on some GPU."""
    for function in ast.parse(source.code).body:
        if not isinstance(function, ast.FunctionDef):
            continue
        for item in ast.walk(function):
            if isinstance(item, (ast.BinOp, ast.AugAssign)) and isinstance(item.op, ast.Div):
                assert function.name in DIVIDING, ast.unparse(item)
            if isinstance(item, ast.Attribute) and item.attr in ("sqrt", "rsqrt", "sigmoid", "softmax"):
                assert function.name == "square_root", ast.unparse(item)


@pytest.mark.long
@each_sample()
def test_every_record_divides_exactly(case: Case):
    for source in kernels_of_sample(case):
        assert_exact(source)
        assert "tl.fdiv" not in source.code


class Attention(mx.gluon.HybridBlock):
    """Scores divided by a number, softmax, values."""

    def __init__(self, jumps=False):
        super().__init__()
        self.jumps = jumps

    def hybrid_forward(self, F, query, key, value):
        scores = F.batch_dot(query, key, transpose_b=True) / 3.0
        return F.batch_dot(F.softmax(F.floor(scores) if self.jumps else scores), value)


def kernels_of_net(net, *shapes):
    """The kernels of a recorded call and of its gradient."""
    net.initialize()
    net.hybridize(engine="numpy")
    arrays = [mx.nd.random.uniform(0.5, 1.5, shape=shape) for shape in shapes]
    for array in arrays:
        array.attach_grad()
    with autograd.record():
        net(*arrays)
    special = with_less_saved(net._graph_calls.compilations[-1].program.special)
    return kernels_of(special.forward)[2] + kernels_of(special.backward)[2]


def lines_with(sources, what):
    return [line.strip() for source in sources for line in source.code.splitlines() if what in line]


def test_what_is_approximate_says_so():
    """Scores and weights in an attention's loop, of which the exponential is off by more, and steps of a mean."""
    shapes = [(2, 64, 32)] * 3
    lines = lines_with(kernels_of_net(Attention(), *shapes), "tl.fdiv")
    assert lines and all(re.match(r"div\d* = tl\.fdiv\((batch_dot|scores|sub|exp)\d*, ", line) for line in lines)
    assert not lines_with(kernels_of_net(Attention(jumps=True), *shapes), "tl.fdiv"), "floor would show the difference"
    (line,) = lines_with(kernels_of_net(nn.LayerNorm(), (8, 9000)), "tl.fdiv")
    assert line.startswith("mean_so_far += ")


@pytest.mark.parametrize(("name", "options"), SETTINGS)
def test_updates_of_all_weights_divide_exactly(name, options):
    operator = optimizer.create(name, **options).operator()
    graphs = [update_graph(operator, np.dtype("float32"), names) for names in (("lr",), ("lr", "wd"))]
    source = DeviceUpdate(graphs).for_elements(4096)
    assert_exact(source)
    for function in ("divide", "square_root"):
        assert source.code.count(f"def {function}(") == (f" {function}(" in source.code.replace("def ", ""))


@pytest.mark.long
def test_generated_code_has_no_approximate_instructions():
    """In PTX for sm_90; one kernel of each kind. `make test-gpu SIMULATE=sm90` looks at every record's."""

    class Formulas(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x, y):
            values = [x / y, F.sqrt(y), F.rsqrt(y), F.sigmoid(x), F.arcsinh(x), F.rcbrt(y), F.arctan(x), F.log1p(y)]
            return F.add_n(*values) / (F.mean(x) + 2)

    graph = update_graph(optimizer.create("adam").operator(), np.dtype("float32"), ("lr",))
    adam = DeviceUpdate([graph]).for_elements(4096)
    sources = [
        *kernels_of_net(Formulas(), (8, 40), (8, 40)), *kernels_of_net(nn.LayerNorm(), (8, 64)),
        *kernels_of_net(rnn.LSTM(8, input_size=8), (2, 4, 8)), adam,
    ]  # fmt: skip
    for source, binary in zip(sources, compile_all(sources, "sm90"), strict=True):
        assert not APPROXIMATE.findall(binary.assembly), source.text


@pytest.mark.skipif(
    os.environ.get("SIMULATED_GPU") != "sm90",
    reason="compiles some 500 kernels for sm90, whatever the GPU: a part of make test-gpu SIMULATE=sm90",
)
def test_no_kernel_of_a_record_has_approximate_instructions():
    sources = {}
    for case in CASES:
        if case.number == 0:
            sources |= {(item.code, *item.signature.values()): item for item in kernels_of_sample(case)}
    assert len(sources) > 400
    for source, binary in zip(sources.values(), compile_all([*sources.values()], "sm90"), strict=True):
        assert not APPROXIMATE.findall(binary.assembly), source.text
