"""Random neutral graphs with inputs: branches, broadcasts, views, shared parts, states, masks - and every record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Value, constant_node, input_node
from hybrid_lab.ops.framework.operator import Operator, get
from hybrid_lab.ops.framework.run import run_kernel
from hybrid_lab.ops.framework.sample import Derived, Sample
from tests.engines.graph_cases import RNG, Case
from tests.engines.steadiness import Member, is_steady, members

_SIZES = (1, 2, 3, 4, 5, 7)


class Generator:
    """Grows one graph. Every choice comes from `seed`; values are computed along, to keep them tame."""

    def __init__(self, seed: int):
        self.seed = seed
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
        steps = self.random.randint(4, 48)
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
            *[self.record] * 6,
        ]
        for member in self.own_members():
            self.member(member)
        while len(self.numbers) - len(self.inputs) < steps:
            self.choice(moves)()
        read = {value for value in self.numbers if value.node.inputs for value in value.node.values_in}
        unread = [value for value in self.pool if value not in read]
        outputs = [self.pool[-1], *unread[-int(self.random.randint(2, 9)) :]]
        outputs += [self.choice(self.pool) for _ in range(self.random.randint(0, 3))]
        return Case(Graph(self.inputs, outputs, draws=self.draws, name="random"), self.arrays)

    # -- pieces --------------------------------------------------------------------------------------------

    def choice(self, options: Sequence[Any]) -> Any:
        return options[self.random.randint(len(options))]

    def shape(self, rank: int) -> tuple[int, ...]:
        return tuple(int(self.choice(_SIZES)) for _ in range(rank))

    def fresh_input(self, shape: tuple[int, ...], role: str, low: float = -1.5, high: float = 1.5) -> Value:
        value = self.input_of(self.random.uniform(low, high, shape).astype(np.float32), role)
        if role == "data":
            self.pool.append(value)
        return value

    def add(self, name: str, *inputs: Any, keep: bool = True, **attributes: Any) -> tuple[Value, ...]:
        """Append an operator; results that others may build on are scaled down where they grow large.

        A saturated tanh or exp would make the comparison one of rounding errors, and so would a value at which the
        operator jumps: such results nobody reads.
        """
        return self.append(get(name).bind(**attributes), inputs, keep)

    def append(self, op: Operator, inputs: Sequence[Any], keep: bool = True) -> tuple[Value, ...]:
        """As add, for a bound operator."""
        bound = op.bind_mode(True) if op.mode_dependent else op
        operands = [self.numbers[item] if isinstance(item, Value) else item for item in inputs]
        operands = operands[: len(bound.signature.inputs)] if not op.variadic else operands
        computed = [isinstance(item, Value) and bool(item.node.inputs) for item in inputs]
        number = None
        if op.random:
            number, self.draws = self.draws, self.draws + 1
        node = make_node(op, inputs, draw=number)
        rng = (RNG[0], RNG[1] + number) if number is not None else None
        results = run_kernel(bound, operands, rng=rng)
        for value, result in zip(node.outputs, results, strict=False):
            self.numbers[value] = np.asarray(result)
        visible = node.outputs[: op.signature.visible]
        if keep and is_steady(bound, operands, computed, results, rng):
            for value in visible:
                self.offer(value)
        return visible

    def offer(self, value: Value) -> None:
        """Put a value into the pool, as a small float32."""
        array = self.numbers[value]
        if not array.ndim:
            return  # only allclose makes such; MXNet's operators know no arrays without axes
        if array.dtype.name in ("int32", "int64", "uint8", "int8", "bool", "float64"):
            value = self.add("Cast", value, dtype="float32", keep=False)[0]
        elif array.dtype != np.float32:
            return
        largest = float(np.abs(array).max(initial=0))
        if largest > 2:
            value = self.add("broadcast_mul", value, float(f"{1 / largest:.2g}"), keep=False)[0]
        self.pool.append(value)

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

    # -- every record --------------------------------------------------------------------------------------

    def own_members(self) -> list[Member]:
        """The records that this graph has in any case: seed after seed all of them come around."""
        every = members()
        return [every[(2 * self.seed + offset) % len(every)] for offset in range(2)]

    def record(self) -> None:
        self.member(self.choice(members()))

    def member(self, member: Member) -> None:
        """A record on inputs like those of one of its samples: values of the pool made to fit, and new inputs."""
        sample: Sample = self.choice(member.samples)
        op = member.record.bind(**sample.attributes)
        names, arrays = op.signature.inputs, sample.arrays(op.name)
        derived = any(isinstance(item, Derived) for item in sample.inputs)
        inputs: list[Any] = []
        for index, (given, array) in enumerate(zip(sample.inputs, arrays, strict=True)):
            name = names[index] if index < len(names) else "args"
            if not isinstance(array, np.ndarray):
                inputs.append(array)
            elif name in op.signature.aux:
                inputs.append(self.input_of(array, "aux"))
            elif isinstance(given, tuple) and not derived and array.ndim and self.random.rand() < 0.7:
                inputs.append(self.fitted(array.shape, sample.low, sample.high))
            elif not isinstance(given, tuple) and self.random.rand() < 0.5:
                inputs.append(self.constant(array))
            else:
                inputs.append(self.input_of(array, "param" if index and isinstance(given, tuple) else "data"))
        if op.refuses_gradient:  # nothing that is differentiated may lead to it
            inputs = [self.constant(self.numbers[item]) if isinstance(item, Value) else item for item in inputs]
        self.append(op, inputs)

    def input_of(self, array: np.ndarray, role: str) -> Value:
        """A new input that holds this array."""
        value = input_node(f"{role}{len(self.inputs)}", role)
        self.inputs.append(value)
        self.arrays.append(array)
        self.numbers[value] = array
        return value

    def constant(self, array: np.ndarray) -> Value:
        value = constant_node(array)
        self.numbers[value] = array
        return value

    def fitted(self, shape: tuple[int, ...], low: float, high: float) -> Value:
        """A value of the pool with another shape, its numbers between `low` and `high`."""
        value, size = self.pick(), int(np.prod(shape))
        have = self.numbers[value].size
        if size == 0:
            return self.input_of(np.zeros(shape, np.float32), "data")
        if have >= size:
            if self.of(value) != (have,):
                value = self.add("Reshape", value, shape=(-1,), keep=False)[0]
            if have > size:
                begin = int(self.random.randint(have - size + 1))
                value = self.add("slice_axis", value, axis=0, begin=begin, end=begin + size, keep=False)[0]
            if shape != (size,):
                value = self.add("Reshape", value, shape=shape, keep=False)[0]
        else:
            mean = self.add("Reshape", self.add("mean", value, keep=False)[0], shape=(1,) * len(shape), keep=False)[0]
            value = self.add("broadcast_add", self.fresh_input(shape, "data"), mean, keep=False)[0]
        middle, half = (low + high) / 2, (high - low) * 0.45
        value = self.add("tanh", value, keep=False)[0]
        value = self.add("broadcast_mul", value, half, keep=False)[0]
        return self.add("broadcast_add", value, middle, keep=False)[0] if middle else value

    def dropout(self) -> None:
        self.add("Dropout", self.pick(), p=0.4)

    def indexing(self) -> None:
        value = self.pick()
        shape = self.of(value)
        if len(shape) == 2:
            indices = self.constant(self.random.randint(0, shape[1], shape[0]).astype(np.float32))
            self.add("pick", value, indices)
            rows = self.constant(self.random.randint(0, shape[0], (3, 2)).astype(np.float32))
            self.add("Embedding", rows, value, input_dim=shape[0], output_dim=shape[1])
        elif len(shape) == 1:
            indices = self.constant(self.random.randint(0, shape[0], 4).astype(np.float32))
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
