"""The Triton engine in Triton's interpreter: every pointwise record, fusion, broadcasting, tiles, random masks, and
compiling for GPUs.
"""

import os
import re

import numpy as np
import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import hybrid_lab as mx
from hybrid_lab import autograd, engines, gluon
from hybrid_lab.diagnostics import EngineError, EngineUnavailable
from hybrid_lab.engines import libraries
from hybrid_lab.engines.triton.build.compiling import compile_all
from hybrid_lab.engines.triton.plan.other_batches import kernels_of
from hybrid_lab.engines.triton.run import availability, kernel
from hybrid_lab.engines.triton.support import refusal
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import input_node
from hybrid_lab.graph.passes.simplify import simplify
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.ops.framework.run import run_kernel
from tests.ops.cases import CASES, RNG, close, each_sample
from tests.triton_device import ON_GPU, use_triton
from tests.tutorial_nets import Net, TrainingNet


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    use_triton(monkeypatch)


def one_node(case):
    """A graph of one operator on its sample's inputs."""
    inputs, arrays = [], []
    for index, item in enumerate(case.inputs()):
        if isinstance(item, np.ndarray):
            inputs.append(input_node(f"x{index}", shape=item.shape, dtype=item.dtype))
            arrays.append(item)
        else:
            inputs.append(item)
    node = make_node(case.op, inputs, draw=0 if case.op.random else None)
    return Graph([item for item in inputs if not isinstance(item, (int, float))], node.outputs, draws=1), arrays, node


#: How many samples at least have kernels.
MOST = 540


def _has_kernel(case):
    graph, _, node = one_node(case)
    return bool(not case.op.view and simplify(graph).operators and refusal(node) is None)


def test_most_samples_have_a_kernel():
    assert sum(map(_has_kernel, CASES)) >= MOST


@each_sample(lambda case: not case.op.view)
def test_kernel_equals_numpy(case):
    if not _has_kernel(case):
        return
    graph, arrays, _ = one_node(case)
    executable = engines.get("triton").compile(graph, products="own")
    assert executable.report.operators["triton"] == 1
    for result, expected in zip(executable(arrays, RNG), run_kernel(case.op, case.inputs(), rng=RNG), strict=True):
        assert result.dtype == expected.dtype
        if expected.dtype == bool:
            assert np.array_equal(result, expected)
        close(result, expected)


def chain():
    """x (2, 3, 40, 7), b (3, 1, 1), r (7): tanh(x * b + r) and its exp."""
    x = input_node("x", shape=(2, 3, 40, 7), dtype="float32")
    b = input_node("b", shape=(3, 1, 1), dtype="float32")
    r = input_node("r", shape=(7,), dtype="float32")
    product = make_node(get("broadcast_mul").bind(), [x, b]).outputs[0]
    total = make_node(get("broadcast_add").bind(), [product, r]).outputs[0]
    y = make_node(get("tanh").bind(), [total]).outputs[0]
    z = make_node(get("exp").bind(), [y]).outputs[0]
    return Graph([x, b, r], [y, z])


@pytest.mark.parametrize("block", [64, 256, 2048])
def test_a_fused_chain_with_broadcasts_and_ragged_tiles(block, monkeypatch):
    monkeypatch.setattr(kernel, "INTERPRETER_TILE", block)
    graph = chain()
    executable = engines.get("triton").compile(graph)
    assert len(executable.report.regions) == 1
    x, b, r = (np.random.RandomState(0).randn(*value.shape).astype("float32") for value in graph.inputs)
    y, z = executable([x, b, r])
    close(y, np.tanh(x * b + r))
    close(z, np.exp(np.tanh(x * b + r)))


def test_the_kernel_reads_like_one_a_person_wrote():
    (source,) = kernels_of(chain())[2]
    assert source.name == "mul_add_tanh_exp"
    assert "tl.load(b_ptr + (offsets // 280) % 3, mask=inside, other=0)" in source.text
    assert re.search(r"tanh = .*# tanh\n", source.text)


def test_another_batch_size_gives_the_same_kernel():
    def text(batch):
        x = input_node("x", shape=(batch, 4, 5), dtype="float32")
        b = input_node("b", shape=(4, 1), dtype="float32")
        y = make_node(get("broadcast_add").bind(), [x, b]).outputs[0]
        source = kernels_of(Graph([x, b], [y]))[2][0].text
        return re.sub(r'""".*?"""| *#.*', "", source)

    assert text(2) == text(7)


def test_small_arrays_share_the_kernel_of_large_ones():
    def source(size):
        x, y = (input_node(name, shape=(size,), dtype="float32") for name in "xy")
        total = make_node(get("broadcast_add").bind(), [x, y]).outputs[0]
        return kernels_of(Graph([x, y], [total]))[2][0]

    small, large = source(16), source(1 << 20)
    assert (small.code, small.blocks) == (large.code, large.blocks)


def test_dropout_masks_are_bit_equal():
    x = mx.nd.ones((37, 53))

    def run(engine):
        net = gluon.nn.Dropout(0.4)
        if engine:
            net.hybridize(engine=engine)
        mx.random.seed(11)
        with autograd.record():
            return [net(x).asnumpy() for _ in range(3)]

    eager, hybrid = run(None), run("triton")
    assert all(np.array_equal(a, b) for a, b in zip(eager, hybrid, strict=True))


def sorting_net():
    """A network with an operator that has no kernel."""
    net = gluon.nn.HybridSequential()
    net.add(Net(), gluon.nn.HybridLambda(lambda F, x: F.sort(x) * 2.0))
    net.initialize()
    return net


class Sorting(gluon.HybridBlock):
    """An operator that no kernel holds."""

    def hybrid_forward(self, F, x):
        return F.sort(x * 2, axis=1) + 1


def test_a_gpu_is_the_default_and_the_interpreter_counts_as_one(capsys):
    net = Sorting()
    net.hybridize()
    net(mx.nd.array([[3, 1, 2]]))
    where = f"on {availability.device_name()}" if ON_GPU else "in the interpreter"
    assert f"Triton {where}" in capsys.readouterr().err
    assert engines.default().name == "triton"
    fallbacks = mx.explain(net).fallbacks
    assert any("sort on torch: the operator has no Triton kernel" in item for item in fallbacks)


def test_strict_refuses_operators_without_a_kernel():
    net = Sorting()
    net.hybridize(engine="triton", strict=True)
    message = r"^1 operator without a Triton kernel.*\n  sort: the operator has no Triton kernel.*test_triton\.py"
    with pytest.raises(EngineError, match=message):
        net(mx.nd.array([[3, 1, 2]]))


def test_a_whole_network_is_in_kernels():
    net = Net()
    net.initialize()
    net.hybridize()
    net(mx.nd.ones((1, 1, 28, 28)))
    assert not mx.explain(net).fallbacks


def test_without_a_gpu_the_error_says_what_is_missing(monkeypatch):
    monkeypatch.delenv("HYBRID_LAB_TRITON", raising=False)
    monkeypatch.setattr(libraries, "driver_seen", lambda: False)
    with pytest.raises(EngineUnavailable, match="HYBRID_LAB_TRITON=interpret"):
        gluon.nn.Dense(2).hybridize(engine="triton")


@pytest.mark.parametrize(
    "target, marker", [("gfx942", "amdgcn"), pytest.param("sm90", ".target sm_90", marks=pytest.mark.long)]
)
def test_kernels_compile_for_gpus_that_are_not_here(target, marker):
    """Forward and backward of the training network: every pointwise kernel gives assembly and a binary."""
    net = TrainingNet()
    net.initialize()
    net.hybridize(engine="numpy")
    x = mx.nd.ones((2, 1, 28, 28))
    with autograd.record():
        net(x)
    special = net._graph_calls.compilations[-1].program.special
    sources = kernels_of(special.forward)[2] + kernels_of(special.backward)[2]
    assert len(sources) >= 8
    binaries = compile_all(sources, target)
    assert len(binaries) == len(sources)
    assert all(marker in item.assembly and item.binary_bytes > 500 for item in binaries)
    assert "TRITON_INTERPRET" not in os.environ or os.environ["TRITON_INTERPRET"] == "1"


def test_an_unknown_target_names_the_known_ones():
    with pytest.raises(EngineError, match="gfx942"):
        compile_all([], "gfx1")


ORDER = """
import triton
import triton.language as tl


@triton.jit
def order(out_ptr, count_ptr):
    program = tl.program_id(0) * 3 + tl.program_id(1)
    tl.store(out_ptr + program, tl.atomic_add(count_ptr, 1))
"""


@pytest.mark.skipif(ON_GPU, reason="of the interpreter")
def test_programs_run_in_an_order_of_chance():
    import torch

    out, count = torch.full((15,), -1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    kernel.load_function("order", ORDER)[(5, 3)](out, count)
    assert sorted(out.tolist()) == list(range(15)) != out.tolist()
