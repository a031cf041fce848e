"""Every kind of kernel in every dtype, forward and gradient, with two tiles or more along each axis that is tiled and a
ragged last one; split rows and split sums in two parts or more. The reference is eager in float64.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

from hybrid_lab import engines
from hybrid_lab.engines.triton.write.source import KernelSource
from hybrid_lab.graph import Builder, Graph, input_node
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.ops.framework.operator import get
from tests.engines.graph_cases import RNG, Case, gradients_eagerly, run_eagerly
from tests.engines.small_tiles import TILES, not_ragged, use_small_tiles
from tests.engines.test_triton import interpreter  # noqa: F401

#: dtype -> tolerances forward and of gradients, relative to the largest value. What kernels compute of float64 with
#: series for float32 (tanh, erf) has its digits.
TOLERANCES = {"float32": (1e-5, 1e-4), "float16": (4e-3, 1e-2), "float64": (1e-7, 1e-7)}


@dataclass(frozen=True)
class Tiled:
    """compute : F and inputs -> outputs; shapes : of the inputs; kinds : kernels that must be there with ragged tiles

    numbers : place of an input -> below what its whole numbers are
    recorded : whether there is a gradient; trained : in the graphs of a recorded call, where attention keeps no weights
    loops, split : as in `use_small_tiles`; dtypes : a case like one that has them all has float32 only
    """

    compute: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    kinds: tuple[str, ...]
    loops: bool = False
    split: bool = False
    numbers: dict[int, int] | None = None
    recorded: bool = True
    trained: bool = False
    dtypes: tuple[str, ...] = tuple(TOLERANCES)

    def case(self, dtype: str) -> Case:
        builder, random = Builder(), np.random.RandomState(0)
        inputs = [input_node(f"x{index}") for index in range(len(self.shapes))]
        made = self.compute(builder, *map(builder.expr, inputs))
        made = made if isinstance(made, (tuple, list)) else (made,)
        arrays = [random.uniform(-1.5, 1.5, shape).astype(dtype) for shape in self.shapes]
        for index, most in (self.numbers or {}).items():
            arrays[index] = random.randint(0, most, self.shapes[index]).astype(dtype)
        return Case(Graph(inputs, [item.value for item in made], draws=1), arrays)


def attention(F: Any, q: Any, k: Any, v: Any) -> Any:
    return F.batch_dot(F.softmax(F.batch_dot(q, k, transpose_b=True) * 0.5), v)


def several_sums(F: Any, x: Any) -> Any:
    """Down the columns, so that neighbours in memory are in different rows of the kernel, and along them."""
    return F.sum(F.exp(x), axis=0), F.mean(x, axis=0), F.broadcast_sub(x, F.mean(x, axis=1, keepdims=True))


def extremes(F: Any, x: Any) -> Any:
    return F.max(x, axis=1), F.min(x, axis=1), F.sum(F.square(x), axis=1), F.prod(x * 0.1 + 1.0, axis=1)


def dropout(F: Any, x: Any) -> Any:
    return F.expr(make_node(get("Dropout").bind(p=0.4), [x.value], draw=0).outputs[0])


def layer_norm(F: Any, x: Any, gamma: Any, beta: Any) -> Any:
    return F.LayerNorm(x, gamma, beta, axis=-1, eps=0.1)


def recurrent(mode: str) -> Callable[..., Any]:
    def compute(F: Any, x: Any, weights: Any, state: Any, cell: Any = None) -> Any:
        cells = [] if cell is None else [cell]
        return F.RNN(x, weights, state, *cells, state_size=18, num_layers=1, mode=mode)

    return compute


def windows(F: Any, x: Any) -> Any:
    window = {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}
    return F.Pooling(x * 2.0, pool_type="max", **window), F.tanh(F.Pooling(x, pool_type="avg", **window))


def convolution(F: Any, x: Any, weight: Any, bias: Any) -> Any:
    return F.relu(F.Convolution(x, weight, bias, kernel=(3, 3), stride=(2, 1), pad=(1, 0), num_filter=17))


def weight_gradient(F: Any, dy: Any, x: Any, weight: Any) -> Any:
    return F._conv_weight_grad(dy, x, weight, kernel=(3, 3), pad=(1, 1), num_filter=17)


def depthwise(F: Any, x: Any, weight: Any) -> Any:
    return F.Convolution(x, weight, kernel=(3, 3), pad=(1, 1), num_filter=5, num_group=5, no_bias=True)


def transposed(F: Any, x: Any, weight: Any) -> Any:
    return F.Deconvolution(x, weight, kernel=(2, 2), stride=(2, 2), num_filter=17)


def dense(F: Any, x: Any, weight: Any, bias: Any) -> Any:
    return F.tanh(F.FullyConnected(x, weight, bias, num_hidden=17))


def views(F: Any, x: Any, y: Any) -> Any:
    turned = F.transpose(F.exp(x), axes=(2, 0, 1))
    part = F.slice_axis(F.Reshape(turned, shape=(7, 15)), axis=1, begin=2, end=None)
    return F.broadcast_mul(part, y), F.Concat(part, F.reverse(y, axis=(0,)), dim=0)


ONLY = ("float32",)

#: What a gradient by number adds up, and what is read by number.
BY_NUMBER = {
    "Embedding": (lambda F, x, weight: F.Embedding(x, weight, input_dim=19, output_dim=11), ((3, 7), (19, 11))),
    "take": (lambda F, place, x: F.take(x, place, axis=1), ((3, 7), (5, 19, 3))),
    "gather_nd": (lambda F, place, x: F.gather_nd(x, place), ((1, 21), (19, 5))),
}

CASES = {
    "broadcasts": Tiled(
        lambda F, x, b, r: F.tanh(F.broadcast_add(F.broadcast_mul(x, b), r)), ((3, 5, 7), (5, 1), (7,)), ("pointwise",)
    ),
    "views": Tiled(views, ((3, 5, 7), (7, 13)), ("pointwise",), dtypes=ONLY),
    "a scalar for all": Tiled(
        lambda F, x, y: F.broadcast_mul(F.sin(x), y), ((9, 11), (1,)), ("pointwise",), dtypes=ONLY
    ),
    "dropout": Tiled(dropout, ((7, 53),), ("pointwise",)),
    "windows": Tiled(windows, ((1, 3, 9, 7),), ("pointwise",)),
    "depthwise": Tiled(depthwise, ((1, 5, 5, 3), (5, 1, 3, 3)), ("pointwise", "rows")),
    "softmax": Tiled(lambda F, x: F.softmax(x), ((9, 13),), ("rows",)),
    "softmax in a loop": Tiled(lambda F, x: F.softmax(x), ((9, 19),), ("rows in a loop",), loops=True),
    "log_softmax of split rows": Tiled(
        lambda F, x: F.log_softmax(x), ((3, 37),), ("parts of rows", "rows of parts", "pointwise"), split=True
    ),
    "sums": Tiled(several_sums, ((9, 13),), ("rows",), dtypes=ONLY),
    "sums in a loop": Tiled(several_sums, ((19, 13),), ("rows in a loop",), loops=True, dtypes=ONLY),
    "split sums": Tiled(
        lambda F, x: (F.sum(F.exp(x), axis=0), F.mean(x, axis=0)), ((37, 3),), ("parts of rows", "rows of parts"),
        split=True, dtypes=ONLY,
    ),
    "extremes": Tiled(extremes, ((9, 7),), ("rows",), dtypes=ONLY),
    "extremes in a loop": Tiled(extremes, ((9, 19),), ("rows in a loop",), loops=True, dtypes=ONLY),
    "split extremes": Tiled(extremes, ((3, 37),), ("parts of rows", "rows of parts"), split=True, dtypes=ONLY),
    "LayerNorm": Tiled(layer_norm, ((9, 7), (7,), (7,)), ("rows", "rows and columns")),
    "LayerNorm in a loop": Tiled(layer_norm, ((9, 19), (19,), (19,)), ("rows in a loop",), loops=True),
    "statistics of split rows": Tiled(
        lambda F, x, gamma, beta: F.GroupNorm(x, gamma, beta, num_groups=3, eps=0.1),
        ((1, 3, 37), (3,), (3,)), ("parts of rows", "rows of parts"), split=True,
    ),
    "dense": Tiled(dense, ((18, 37), (17, 37), (17,)), ("product",)),
    "batches": Tiled(
        lambda F, x, y: F.batch_dot(x, y, transpose_b=True), ((2, 19, 21), (2, 17, 21)), ("product",), dtypes=ONLY
    ),
    "convolution": Tiled(convolution, ((1, 3, 9, 7), (17, 3, 3, 3), (17,)), ("product",)),
    "transposed convolution": Tiled(transposed, ((1, 18, 3, 3), (18, 17, 2, 2)), ("product",), dtypes=ONLY),
    "split sums of products": Tiled(
        dense, ((18, 75), (17, 75), (17,)), ("parts of a product", "product of parts"), split=True
    ),
    "split weight gradient": Tiled(
        weight_gradient, ((1, 17, 7, 6), (1, 2, 7, 6), (17, 2, 3, 3)), ("parts of a product", "product of parts"),
        split=True, recorded=False, dtypes=ONLY),
    "attention": Tiled(attention, ((2, 19, 5), (2, 37, 5), (2, 37, 7)), ("attention",), recorded=False),
    "attention that keeps its weights": Tiled(attention, ((2, 19, 5), (2, 21, 5), (2, 21, 7)), ("whole attention",)),
    "attention with its gradient": Tiled(
        attention, ((2, 19, 5), (2, 37, 5), (2, 37, 7)), ("gradient of attention",), trained=True,
        dtypes=("float32", "float16"),
    ),
    **{
        name: Tiled(
            compute, shapes, ("collect", "pointwise"), numbers={0: 19}, dtypes=tuple(TOLERANCES) if not number else ONLY
        )
        for number, (name, (compute, shapes)) in enumerate(BY_NUMBER.items())
    },
    "LSTM": Tiled(
        recurrent("lstm"), ((2, 17, 3), (4 * 18 * (3 + 18 + 2),), (1, 17, 18), (1, 17, 18)), ("recurrence",)
    ),
    "GRU": Tiled(recurrent("gru"), ((2, 17, 3), (3 * 18 * (3 + 18 + 2),), (1, 17, 18)), ("recurrence",), dtypes=ONLY),
    "RNN": Tiled(recurrent("rnn_tanh"), ((2, 17, 3), (18 * (3 + 18 + 2),), (1, 17, 18)), ("recurrence",), dtypes=ONLY),
}  # fmt: skip

_counts: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def hand_counts_over(totals):
    """They are printed at the end of the run."""
    yield
    totals.update({f"{kind} kernels with ragged tiles along every axis": count for kind, count in _counts.items()})


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_every_kind_has_a_case(dtype):
    """Attention in float64 keeps its weights: its gradient is three products."""
    wanted = set(TILES) - ({"gradient of attention"} if dtype == "float64" else set())
    assert {kind for case in CASES.values() for kind in case.kinds if dtype in case.dtypes} == wanted


@pytest.mark.parametrize(
    "name, dtype",
    [
        pytest.param(name, dtype, marks=[pytest.mark.long] * (dtype == "float64"))
        for name, case in CASES.items()
        for dtype in case.dtypes
    ],
)
def test_ragged_tiles(name: str, dtype: str, monkeypatch):
    tiled = CASES[name]
    use_small_tiles(monkeypatch, tiled.loops, tiled.split)
    case = tiled.case(dtype)
    outputs, _, values, tape = run_eagerly(case.in_float64(), True)
    heads = [np.random.RandomState(5).uniform(-1, 1, item.shape).astype(dtype) for item in outputs]
    wrt = case.wrt if tiled.recorded else []
    found, gradients, sources = run(case, wrt, heads, tiled.trained)
    ragged = Counter(source.kind for source in sources if not not_ragged(source))
    _counts.update(ragged)
    missing = {kind for kind in tiled.kinds if not ragged[kind]}
    assert not missing, [(source.kind, not_ragged(source), dict(source.sizes)) for source in sources]
    forward, backward = TOLERANCES[dtype]
    for result, wanted in zip(found, outputs, strict=True):
        near(result, wanted, dtype, forward)
        if name == "dropout":
            assert np.array_equal(result == 0, wanted == 0)
    wanted_gradients = gradients_eagerly(case.in_float64(), values, tape, heads, wrt) if wrt else []
    for result, wanted in zip(gradients, wanted_gradients, strict=True):
        near(result, wanted, dtype, backward)


def run(
    case: Case, wrt: list[int], heads: list[Any], trained: bool = False
) -> tuple[list[Any], list[Any], list[KernelSource]]:
    """Outputs, gradients, and the kernels of both programs."""
    engine = engines.get("triton")
    parts = specialize(case.graph, [a.shape for a in case.arrays], [a.dtype for a in case.arrays], True, wrt)
    count, gradients = len(case.graph.outputs), list[Any]()
    forward, backward, sources = parts.forward, parts.backward, parts.sources
    if trained:
        split = engine.training_graphs(parts.split, products="own")
        forward, backward, sources = split.forward, split.backward, split.sources
    programs = [engine.compile(forward, products="own")]
    results = programs[0]([case.arrays[index] for _, index in parts.forward_sources], RNG)
    if backward is not None:
        programs.append(engine.compile(backward, products="own"))
        given = {"input": case.arrays, "head": heads, "output": results[:count], "saved": results[count:]}
        gradients = programs[1]([given[kind][index] for kind, index in sources], RNG)
    nodes = [node for program in programs for node in program.graph.operators]
    sources = [item.source for node in nodes for item in getattr(node.op, "kernels", ())]
    return results[:count], gradients, sources


def near(found: np.ndarray, wanted: np.ndarray, dtype: str, tolerance: float) -> None:
    assert found.dtype == dtype and found.shape == wanted.shape
    scale = max(float(np.abs(wanted).max(initial=0)), 1e-2)
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("name", ["views", "LayerNorm", "dense", "Embedding"])
def test_arrays_that_are_not_contiguous(name: str):
    """Every second element of a larger array, and axes in the opposite order in memory."""
    case = CASES[name].case("float32")
    wanted = run(case, [], [])[0]
    for change in (np.asfortranarray, lambda array: np.repeat(array, 2, axis=-1)[..., ::2]):
        arrays = [change(array) for array in case.arrays]
        assert any(not array.flags.c_contiguous for array in arrays)
        for result, expected in zip(run(Case(case.graph, arrays), [], [])[0], wanted, strict=True):
            assert np.array_equal(result, expected)


EMPTY: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "pointwise": (lambda F, x, y: F.tanh(F.broadcast_add(x, y)), ((3, 0), (3, 1))),
    "no rows": (lambda F, x: F.softmax(F.exp(x)), ((0, 5),)),
    "sums of nothing": (lambda F, x: F.broadcast_add(F.sum(x, axis=1), 1.0), ((3, 0),)),
    "products of nothing": (lambda F, x, y: F.tanh(F.dot(x, y)), ((3, 0), (0, 2))),
    "no columns": (lambda F, x, y: F.relu(F.dot(x, y)), ((3, 4), (4, 0))),
    "joined": (lambda F, x, y: F.Concat(F.exp(x), y, dim=1), ((3, 0), (3, 2))),
    "no words": (lambda F, x, y: F.Embedding(x, y, input_dim=4, output_dim=2), ((0,), (4, 2))),
    "an empty batch": (lambda F, x, y: F.FullyConnected(x, y, num_hidden=2, no_bias=True), ((0, 3), (2, 3))),
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty_arrays(name: str):
    """Nothing to compute, with results and gradients of the right shapes, and what else there is computed."""
    compute, shapes = EMPTY[name]
    case = Tiled(compute, shapes, ()).case("float32")
    outputs, _, values, tape = run_eagerly(case, True)
    heads = [np.ones_like(item) for item in outputs]
    found, gradients, _ = run(case, case.wrt, heads)
    wanted = [*outputs, *gradients_eagerly(case, values, tape, heads, case.wrt)]
    for result, expected in zip([*found, *gradients], wanted, strict=True):
        near(result, expected, "float32", 1e-5)
