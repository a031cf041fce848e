"""ONNX's products of matrices."""

from __future__ import annotations

from typing import Any

from hybrid_lab.onnx.reading.importers.functions import Functions, Tensor
from hybrid_lab.onnx.reading.importers.table import operator


def matmul(F: Functions, a: Tensor, b: Tensor) -> Tensor:
    """The product as numpy.matmul."""
    if a.rank == 1 and b.rank == 1:
        return F.reduced("sum", a * b, (0,), False)
    if a.rank == 1:
        made = matmul(F, F.reshape_to(a, (1, *a.shape)), b)
        return F.reshape_to(made, (*made.shape[:-2], made.shape[-1]))
    if b.rank == 1:
        made = matmul(F, a, F.reshape_to(b, (*b.shape, 1)))
        return F.reshape_to(made, made.shape[:-1])
    if b.rank == 2:
        return F.dot(a, b)
    rank = max(a.rank, b.rank)
    a, b = F.with_rank(a, rank), F.with_rank(b, rank)
    batch = tuple(one if _is_larger(one, two) else two for one, two in zip(a.shape[:-2], b.shape[:-2], strict=True))
    a, b = F.expand_to(a, (*batch, *a.shape[-2:])), F.expand_to(b, (*batch, *b.shape[-2:]))
    return F._linalg_gemm2(a, b)


def _is_larger(one: Any, two: Any) -> bool:
    return not isinstance(one, int) or (isinstance(two, int) and two == 1)


@operator("MatMul", 1)
def _matmul(F: Functions, a: Tensor, b: Tensor) -> Tensor:
    return matmul(F, a, b)


@operator("Gemm", 7)
def _gemm(
    F: Functions, a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 1.0,
    transA: int = 0, transB: int = 0,
) -> Tensor:  # fmt: skip
    if a.rank != 2 or b.rank != 2:
        raise F.unsupported(f"matrices are needed, not shapes {a.shape} and {b.shape}")
    whole = a.is_floating
    whole_input = a if a.flattened is None else a.flattened  # a Dense layer flattens, too
    flatten = a.flattened is not None
    plain = not transA and transB and alpha == 1.0 and whole
    if plain and c is not None and beta == 1.0 and c.rank == 1 and c.shape[0] == b.shape[0]:
        return F.FullyConnected(whole_input, b, c, num_hidden=b.shape[0], flatten=flatten)
    if plain and c is None:
        return F.FullyConnected(whole_input, b, num_hidden=b.shape[0], flatten=flatten, no_bias=True)
    made = F.dot(a, b, transpose_a=bool(transA), transpose_b=bool(transB))
    made = made if alpha == 1.0 else made * alpha
    if c is None:
        return made
    return made + (c if beta == 1.0 else c * beta)


@operator("Einsum", 12)
def _einsum(F: Functions, *arrays: Tensor, equation: str) -> Tensor:
    inputs, output = _spelled_out(F, equation.replace(" ", ""), arrays)
    if len(inputs) != len(arrays):
        raise F.unsupported(f"the equation {equation!r} has {len(inputs)} operands, the node {len(arrays)}")
    letters = list(dict.fromkeys([*output, *"".join(inputs)]))
    if len(output) != len(set(output)) or not set(output) <= set("".join(inputs)):
        raise F.unsupported(f"the equation {equation!r} names an output axis that no operand has")
    if len(arrays) == 2:
        made = _contracted(F, arrays[0], arrays[1], inputs[0], inputs[1], output)
        if made is not None:
            return made
    product: Any = None
    for item, names in zip(arrays, inputs, strict=True):
        item, names = _diagonal(F, item, names)
        order = sorted(range(len(names)), key=lambda place: letters.index(names[place]))
        rest = iter([item.shape[place] for place in order])
        shape = [next(rest) if letter in names else 1 for letter in letters]
        item = F.reshape_to(F.transposed(item, order), shape)
        product = item if product is None else product * item
    return F.reduced("sum", product, range(len(output), len(letters)), False)


def _spelled_out(F: Functions, equation: str, arrays: tuple[Tensor, ...]) -> tuple[list[str], str]:
    """Operands and output with letters for `...`, and with the implied output."""
    left, arrow, output = equation.partition("->")
    inputs = left.split(",")
    spare = [chr(number) for number in range(0x391, 0x3A9)]
    most = max(
        (
            item.rank - len(names.replace("...", ""))
            for item, names in zip(arrays, inputs, strict=False)
            if "..." in names
        ),
        default=0,
    )
    if most > len(spare):
        raise F.unsupported("an operand has too many axes")
    full = []
    for item, names in zip(arrays, inputs, strict=False):
        count = item.rank - len(names.replace("...", ""))
        if count < 0 or (count and "..." not in names):
            raise F.unsupported(f"{names!r} does not fit an operand with {item.rank} axes")
        full.append(names.replace("...", "".join(spare[most - count : most])))
    if not arrow:
        joined = "".join(full)
        output = "..." + "".join(sorted(name for name in set(joined) if joined.count(name) == 1 and name not in spare))
    return full + inputs[len(full) :], output.replace("...", "".join(spare[:most]))


def _contracted(F: Functions, a: Tensor, b: Tensor, first: str, second: str, output: str) -> Tensor | None:
    """The product of two operands as one of matrices, if every axis is of the batch, of one operand, or summed."""
    if len(set(first)) != len(first) or len(set(second)) != len(second):
        return None
    batch = [name for name in output if name in first and name in second]
    summed = [name for name in first if name in second and name not in output]
    rows = [name for name in first if name not in second]
    columns = [name for name in second if name not in first]
    if not summed or not set(rows) | set(columns) <= set(output):
        return None
    own = [
        item.shape[names.index(name)]
        for item, names in ((a, first), (b, second))
        for name in (*batch, *summed)
        if name in names
    ]
    half = len(own) // 2
    if any(
        one is not two and (not isinstance(one, int) or one != two)
        for one, two in zip(own[:half], own[half:], strict=True)
    ):
        return None
    one = _grouped(F, a, first, batch, rows, summed)
    two = _grouped(F, b, second, batch, summed, columns)
    sizes = {**dict(zip(first, a.shape, strict=True)), **dict(zip(second, b.shape, strict=True))}
    names = [*batch, *rows, *columns]
    made = F.reshape_to(F.batch_dot(one, two), [sizes[name] for name in names])
    return F.transposed(made, [names.index(name) for name in output])


def _grouped(F: Functions, x: Tensor, names: str, *groups: list[str]) -> Tensor:
    """x with one axis for each group of axes."""
    order = [names.index(name) for group in groups for name in group]
    moved = F.transposed(x, order)
    shape: list[Any] = []
    for group in groups:
        size: Any = 1
        for name in group:
            size = x.shape[names.index(name)] * size
        shape.append(size)
    return F.reshape_to(moved, shape)


def _diagonal(F: Functions, x: Tensor, names: str) -> tuple[Tensor, str]:
    """x without letters that occur twice: the elements at which both places are equal."""
    for name in dict.fromkeys(names):
        while names.count(name) > 1:
            one = names.index(name)
            two = names.index(name, one + 1)
            x = F.diag(x, axis1=one, axis2=two) if x.rank > 1 else x
            names = names.replace(name, "", 2) + name
    return x, names


@operator("Det", 11)
def _det(F: Functions, x: Tensor) -> Tensor:
    made = F._linalg_det(x)
    return F.reshape_to(made, x.shape[:-2])


@operator("MatMulInteger", 10)
def _matmul_integer(F: Functions, a: Tensor, b: Tensor, za: Tensor | None = None, zb: Tensor | None = None) -> Tensor:
    one, two = F.cast(a, "int32"), F.cast(b, "int32")
    if za is not None:
        zero = F.cast(za, "int32")
        one = one - (F.reshape_to(zero, (*zero.shape, 1)) if zero.rank == 1 and zero.shape[0] != 1 else zero)
    if zb is not None:
        two = two - F.cast(zb, "int32")
    return matmul(F, one, two)
