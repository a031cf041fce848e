"""Random neutral graphs with inputs, an interpreter that runs them eagerly operator by operator, and a shrinker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Value, constant_node, input_node
from hybrid_lab.ops.namespace import F
from hybrid_lab.ops.operator import get
from hybrid_lab.ops.run import run_gradient, run_kernel

RNG = (20240607, 11)
"""Seed and first draw of every run."""


@dataclass
class Case:
    """A neutral graph (no shapes, mode-free) and one array per input."""

    graph: Graph
    arrays: list[np.ndarray]

    def __str__(self) -> str:
        given = [f"  %{v.node.name}: {a.dtype}{list(a.shape)}" for v, a in zip(self.graph.inputs, self.arrays)]
        return "\n".join([repr(self.graph), *given])


# -- eager interpretation ----------------------------------------------------------------------------------------


def run_eagerly(case: Case, train: bool) -> tuple[list[np.ndarray], list[np.ndarray], dict[Value, Any], list[Any]]:
    """Outputs, new states (in the order of first update), every Value's array, and the tape of (op, node) in order."""
    values: dict[Value, Any] = dict(zip(case.graph.inputs, case.arrays, strict=True))
    updated: dict[Value, Any] = {}
    tape = []
    for node in case.graph.nodes:
        if isinstance(node.op, Input):
            continue
        op = node.op.bind_mode(train) if node.op.mode_dependent else node.op
        count = len(op.names()) if not op.variadic else len(node.inputs)
        operands = [values[item] if isinstance(item, Value) else item for item in node.inputs[:count]]
        rng = (RNG[0], RNG[1] + node.draw) if node.draw is not None else None
        results = run_kernel(op, operands, rng=rng)
        values.update(zip(node.outputs, map(np.asarray, results), strict=False))
        tape.append((op, node))
        if op.aux_names:
            states = [updated.get(item, operand) for item, operand in zip(node.inputs, operands, strict=True)]
            for name, new in op.aux(F, tuple(states), tuple(results)).items():
                updated[node.inputs[op.names().index(name)]] = new
    return [values[value] for value in case.graph.outputs], list(updated.values()), values, tape


def gradients_eagerly(
    case: Case, values: dict[Value, Any], tape: list[Any], heads: Sequence[np.ndarray], wrt: Sequence[int]
) -> list[np.ndarray]:
    """Reverse mode over the tape on raw arrays."""
    found: dict[Value, Any] = {}

    def add(value: Value, gradient: Any) -> None:
        found[value] = found[value] + gradient if value in found else gradient

    for output, head in zip(case.graph.outputs, heads, strict=True):
        add(output, head)
    for op, node in reversed(tape):
        visible = node.outputs[: op.num_visible]
        douts = [found.get(value) for value in visible]
        if not op.differentiable or not node.inputs or all(dout is None for dout in douts):
            continue
        count = len(op.names()) if not op.variadic else len(node.inputs)
        inputs = [values[item] if isinstance(item, Value) else item for item in node.inputs[:count]]
        outputs = [values[value] for value in node.outputs[: op.num_outputs]]
        for item, gradient in zip(node.inputs, run_gradient(op, F, inputs, outputs, douts)):
            if gradient is not None and isinstance(item, Value):
                add(item, gradient)
    sources = [case.graph.inputs[index] for index in wrt]
    return [np.asarray(found.get(value, np.zeros_like(values[value]))) for value in sources]


# -- generation --------------------------------------------------------------------------------------------------

_SIZES = (1, 2, 3, 4, 5, 7)


class Generator:
    """Grows one graph. Every choice comes from `seed`; values are computed along, to keep them tame."""

    def __init__(self, seed: int):
        self.random = np.random.RandomState(seed)
        self.inputs: list[Value] = []
        self.arrays: list[np.ndarray] = []
        self.pool: list[Value] = []
        self.numbers: dict[Value, np.ndarray] = {}
        self.draws = 0

    def case(self) -> Case:
        rank = self.choice((2, 2, 3, 4))
        for _ in range(self.random.randint(1, 4)):
            self.fresh_input(self.shape(rank), "data")
        steps = self.random.randint(2, 32)
        moves: list[Callable[[], None]] = [
            self.unary,
            self.unary,
            self.binary,
            self.binary,
            self.binary,
            self.scalar,
            self.reduction,
            self.view,
            self.view,
            self.several,
            self.product,
            self.dense,
            self.normalize,
            self.spatial,
            self.dropout,
            self.indexing,
        ]
        while len(self.numbers) - len(self.inputs) < steps:
            self.choice(moves)()
        outputs = [self.pool[-1]]
        for _ in range(self.random.randint(0, 4)):
            outputs.append(self.choice(self.pool))
        return Case(Graph(self.inputs, outputs, draws=self.draws, name="random"), self.arrays)

    # -- pieces --------------------------------------------------------------------------------------------

    def choice(self, options: Sequence[Any]) -> Any:
        return options[self.random.randint(len(options))]

    def shape(self, rank: int) -> tuple[int, ...]:
        return tuple(int(self.choice(_SIZES)) for _ in range(rank))

    def fresh_input(self, shape: tuple[int, ...], role: str, low: float = -1.5, high: float = 1.5) -> Value:
        array = self.random.uniform(low, high, shape).astype(np.float32)
        value = input_node(f"{role}{len(self.inputs)}", role)
        self.inputs.append(value)
        self.arrays.append(array)
        self.numbers[value] = array
        if role == "data":
            self.pool.append(value)
        return value

    def add(
        self, name: str, *inputs: Any, draw: bool = False, keep: bool = True, **attributes: Any
    ) -> tuple[Value, ...]:
        """Append an operator; results that grow large are scaled down.

        A saturated tanh or exp would make the comparison one of rounding errors.
        """
        op = get(name).bind(**attributes)
        number = None
        if draw:
            number, self.draws = self.draws, self.draws + 1
        node = make_node(op, inputs, draw=number)
        operands = [self.numbers[item] if isinstance(item, Value) else item for item in inputs]
        bound = op.bind_mode(True) if op.mode_dependent else op
        rng = (RNG[0], RNG[1] + number) if number is not None else None
        results = run_kernel(bound, operands[: len(bound.names())] if not op.variadic else operands, rng=rng)
        for value, result in zip(node.outputs, results, strict=False):
            self.numbers[value] = np.asarray(result)
        visible = node.outputs[: op.num_visible]
        if keep:
            for value in visible:
                largest = float(np.abs(self.numbers[value]).max(initial=0))
                if largest > 2:
                    value = self.add("broadcast_mul", value, round(1 / largest, 3), keep=False)[0]
                self.pool.append(value)
        return visible

    def pick(self, rank: int | None = None) -> Value:
        """A value of the pool (of this rank, made by a new input if there is none); recent ones more often."""
        options = [value for value in self.pool if rank is None or self.numbers[value].ndim == rank]
        if not options:
            return self.fresh_input(self.shape(rank or 2), "data")
        return self.choice(options[-3:] if self.random.rand() < 0.8 else options)

    def of(self, value: Value) -> tuple[int, ...]:
        return self.numbers[value].shape

    # -- moves ---------------------------------------------------------------------------------------------

    def unary(self) -> None:
        self.add(
            self.choice("relu sigmoid tanh exp square negative abs sin softsign erf identity BlockGrad".split()),
            self.pick(),
        )

    def scalar(self) -> None:
        name = self.choice("broadcast_add broadcast_sub broadcast_mul broadcast_maximum broadcast_greater".split())
        number = float(np.round(self.random.uniform(-2, 2), 2))
        value = self.pick()
        operands = (value, number) if self.random.rand() < 0.6 else (number, value)
        self.add(name, *operands)
        if self.random.rand() < 0.3:
            self.add("clip", value, a_min=-0.6, a_max=0.7)

    def binary(self) -> None:
        lhs = self.pick()
        options = [value for value in self.pool if _broadcast(self.of(lhs), self.of(value))]
        rhs = self.choice(options)
        name = self.choice(
            "broadcast_add broadcast_sub broadcast_mul broadcast_mul broadcast_maximum broadcast_div".split()
        )
        if name == "broadcast_div":
            rhs = self.add("broadcast_add", self.add("square", rhs, keep=False)[0], 0.7, keep=False)[0]
        if self.random.rand() < 0.15:
            condition = self.add("broadcast_greater", lhs, 0.1, keep=False)[0]
            if self.of(lhs) == self.of(rhs):
                self.add("where", condition, lhs, rhs)
                return
        self.add(name, lhs, rhs)

    def reduction(self) -> None:
        value = self.pick()
        rank = len(self.of(value))
        if rank == 0:
            return
        axis = int(self.random.randint(rank))
        name = self.choice(("sum", "mean", "max", "min", "sum"))
        self.add(
            name,
            value,
            axis=axis if self.random.rand() < 0.8 else (0, rank - 1) if rank > 1 else 0,
            keepdims=bool(self.random.rand() < 0.5),
        )

    def view(self) -> None:
        value = self.pick()
        shape = self.of(value)
        kind = self.random.randint(8)
        if kind == 0:
            self.add("Reshape", value, shape=(-1,))
        elif kind == 1 and len(shape) > 1:
            self.add("Reshape", value, shape=(-3,) + (-2,) if len(shape) > 2 else (-1, 1))
        elif kind == 2:
            self.add("expand_dims", value, axis=int(self.random.randint(len(shape) + 1)))
        elif kind == 3 and len(shape) > 1:
            self.add("transpose", value)
        elif kind == 4 and len(shape) > 1:
            self.add("Flatten", value)
        elif kind == 5 and len(shape) and shape[0] > 1:
            self.add("slice_axis", value, axis=0, begin=1, end=None)
        elif kind == 6 and len(shape) and shape[-1] > 2:
            self.add("slice", value, begin=(0,), end=(1,))
            self.add("slice_axis", value, axis=-1, begin=0, end=2)
        elif len(shape) == 2:
            self.add("SwapAxis", value, dim1=0, dim2=1)

    def several(self) -> None:
        value = self.pick()
        shape = self.of(value)
        if len(shape) and shape[0] % 2 == 0 and shape[0] and self.random.rand() < 0.6:
            self.add("SliceChannel", value, num_outputs=2, axis=0, squeeze_axis=bool(shape[0] == 2 and len(shape) > 1))
        elif len(shape):
            other = self.choice([item for item in self.pool if self.of(item) == shape])
            self.add("Concat", value, other, dim=int(self.random.randint(len(shape))))

    def product(self) -> None:
        lhs = self.pick()
        shape = self.of(lhs)
        if len(shape) == 3:
            rhs = self.fresh_input((shape[0], shape[2], int(self.choice(_SIZES))), "data")
            self.add("batch_dot", lhs, rhs)
        elif len(shape) == 2:
            rhs = self.choice([item for item in self.pool if len(self.of(item)) == 2])
            a, b = shape, self.of(rhs)
            if a[1] == b[0]:
                self.add("dot", lhs, rhs)
            elif a[1] == b[1]:
                self.add("dot", lhs, rhs, transpose_b=True)
            elif a[0] == b[0]:
                self.add("dot", lhs, rhs, transpose_a=True)

    def dense(self) -> None:
        value = self.pick()
        shape = self.of(value)
        if len(shape) < 2:
            return
        units = int(self.choice(_SIZES))
        weight = self.fresh_input((units, int(np.prod(shape[1:]))), "param", -0.7, 0.7)
        if self.random.rand() < 0.6:
            self.add("FullyConnected", value, weight, self.fresh_input((units,), "param"), num_hidden=units)
        else:
            self.add("FullyConnected", value, weight, num_hidden=units, no_bias=True)

    def normalize(self) -> None:
        value = self.pick()
        shape = self.of(value)
        if not shape:
            return
        kind = self.random.randint(4)
        if kind == 0:
            self.add("softmax", value, axis=-1)
        elif kind == 1:
            self.add("log_softmax", value, axis=-1)
        elif kind == 2 and shape[-1] > 1:
            gamma, beta = (self.fresh_input(shape[-1:], "param", 0.5, 1.5) for _ in range(2))
            self.add("LayerNorm", value, gamma, beta, axis=-1)
        elif len(shape) in (2, 4) and shape[0] > 1:
            gamma, beta = (self.fresh_input(shape[1:2], "param", 0.5, 1.5) for _ in range(2))
            mean, var = (self.fresh_input(shape[1:2], "aux", 0.5, 1.5) for _ in range(2))
            # A large epsilon: a channel of a few nearly equal numbers would make the comparison about rounding.
            self.add("BatchNorm", value, gamma, beta, mean, var, fix_gamma=bool(self.random.rand() < 0.5), eps=0.1)

    def spatial(self) -> None:
        value = self.pick(4)
        n, channels, height, width = self.of(value)
        kind = self.random.randint(3)
        if kind == 0:
            kernel = (min(3, height), min(2, width))
            filters = int(self.choice((1, 2, 3)))
            weight = self.fresh_input((filters, channels, *kernel), "param", -0.6, 0.6)
            bias = self.fresh_input((filters,), "param")
            pad = (1, 0) if kernel[0] > 1 else (0, 0)
            self.add("Convolution", value, weight, bias, kernel=kernel, num_filter=filters, pad=pad)
        elif height > 1 and width > 1:
            stride = int(self.choice((1, 2)))
            kind = self.choice(("max", "avg"))
            self.add("Pooling", value, kernel=(2, 2), stride=(stride, stride), pool_type=kind)

    def dropout(self) -> None:
        self.add("Dropout", self.pick(), p=0.4, draw=True)

    def indexing(self) -> None:
        value = self.pick()
        shape = self.of(value)
        if len(shape) == 2:
            indices = constant_node(self.random.randint(0, shape[1], shape[0]).astype(np.float32))
            self.numbers[indices] = indices.node.op.array
            self.add("pick", value, indices)
            rows = constant_node(self.random.randint(0, shape[0], (3, 2)).astype(np.float32))
            self.numbers[rows] = rows.node.op.array
            self.add("Embedding", rows, value, input_dim=shape[0], output_dim=shape[1])
        elif len(shape) == 1:
            indices = constant_node(self.random.randint(0, shape[0], 4).astype(np.float32))
            self.numbers[indices] = indices.node.op.array
            self.add("take", value, indices)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(a, b)
    except ValueError:
        return False
    return True


def random_case(seed: int) -> Case:
    """The graph of this seed."""
    return Generator(seed).case()


# -- shrinking ---------------------------------------------------------------------------------------------------


def shrink(case: Case, fails: Callable[[Case], bool], train: bool = True) -> Case:
    """A smaller case that still fails: fewer outputs, operators replaced by inputs that hold their values."""
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(case, train):
            if fails(smaller):
                case, progress = smaller, True
                break
    return case


def _smaller(case: Case, train: bool) -> Any:
    outputs = case.graph.outputs
    if len(outputs) > 1:
        for index in range(len(outputs)):
            yield _pruned(
                Graph(case.graph.inputs, outputs[:index] + outputs[index + 1 :], draws=case.graph.draws), case
            )
    values = run_eagerly(case, train)[2]
    operators = [node for node in case.graph.nodes if not isinstance(node.op, (Input, Constant))]
    for node in operators:
        if node.outputs[0] in outputs and len(outputs) == 1:
            for value in node.values_in:
                if not value.is_input:
                    yield _pruned(Graph(case.graph.inputs, [value], draws=case.graph.draws), case)
            continue
        fresh = {
            value: input_node(f"{node.op.name}_{node.serial}_{value.index}")
            for value in node.outputs
            if value in values
        }
        graph = case.graph.substitute(dict(fresh))
        made = Graph([*graph.inputs, *fresh.values()], graph.outputs, draws=graph.draws)
        arrays = dict(zip(made.inputs, [*case.arrays, *(values[value] for value in fresh)], strict=True))
        yield _pruned(made, Case(made, list(arrays.values())))


def _pruned(graph: Graph, case: Case) -> Case:
    """Without the inputs that nothing reads."""
    arrays = dict(zip(case.graph.inputs, case.arrays, strict=True))
    read = {value for node in graph.nodes for value in node.values_in} | set(graph.outputs)
    inputs = [value for value in graph.inputs if value in read]
    return Case(Graph(inputs, graph.outputs, draws=graph.draws, name="smallest"), [arrays[value] for value in inputs])
