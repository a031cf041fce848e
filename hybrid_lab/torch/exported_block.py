"""The operator `hybrid_lab::block`, which stands for a Block in a program that torch.export makes.

It takes the tensors of the call and the weights, and gives the results. Its fake kernel tells torch their shapes, also
if sizes of the inputs are open. Loading this loads torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations, count
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from hybrid_lab import autograd
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.parameter import Parameter
from hybrid_lab.hybridize.structure import Spec, flatten, unflatten
from hybrid_lab.ndarray import NDArray
from hybrid_lab.torch.errors import TorchError
from hybrid_lab.torch.memory import array_of, tensor_on

#: (shape, dtype of torch) of each result
Kinds = list[tuple[tuple[int, ...], Any]]


@dataclass
class _Traced:
    """A call that an exported program has. leaves : its arguments, None for tensors; structure : of the result"""

    net: Block
    parameters: Sequence[Parameter]
    leaves: Sequence[Any]
    arguments: object
    structure: Spec = ()

    def run(self, tensors: Sequence[NDArray]) -> list[NDArray]:
        """The results of a prediction for the tensors among the arguments."""
        rest = iter(tensors)
        leaves = [next(rest) if leaf is None else leaf for leaf in self.leaves]
        args = pytree.tree_unflatten(leaves, self.arguments)  # type: ignore[arg-type]
        with autograd.pause(False):
            results, self.structure = flatten(self.net(*args), "the result")
        return results

    def kinds(self, inputs: Sequence[tuple[Sequence[int], Any]]) -> Kinds:
        """The kinds of the results for zeros of these shapes and dtypes of torch."""
        zeros = [NDArray.wrap(array_of(torch.zeros(shape, dtype=dtype), "an input")) for shape, dtype in inputs]
        return [(result.shape, tensor_on(result.asnumpy()).dtype) for result in self.run(zeros)]


_TRACED: dict[str, _Traced] = {}
"""By the name in the program. They live as long as the process: torch does not tell when a program is gone."""
_NUMBERS = count()
"""Each number is given once, also to threads that export at the same time."""


def trace(
    net: Block, weights: dict[Parameter, Any], leaves: Sequence[Any], arguments: object, training: bool
) -> object:
    """The result of a call while torch.export traces it. leaves, arguments : as `tree_flatten` gives them"""
    if training:
        raise TorchError(f"{net.name}: torch.export takes a Block as it predicts: call eval() on the module before")
    if torch.compiler.is_dynamo_compiling():
        raise TorchError("torch.export(strict=True) reads Python code, which a Block has none of: use strict=False")
    name = f"{net.name}_{next(_NUMBERS)}"
    kept = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    _TRACED[name] = traced = _Traced(net, list(weights), kept, arguments)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    results = torch.ops.hybrid_lab.block(name, tensors, list(weights.values()))
    return unflatten(traced.structure, iter(results))


@torch.library.custom_op("hybrid_lab::block", mutates_args=())
def _block(name: str, inputs: list[torch.Tensor], weights: list[torch.Tensor]) -> list[torch.Tensor]:
    traced = _found(name)
    before: list[tuple[NDArray, np.ndarray]] = []
    try:
        for parameter, tensor in zip(traced.parameters, weights, strict=True):
            arrays = access.arrays(parameter)
            if not arrays:
                raise TorchError(f"{parameter.name} has no values any more, so the exported program cannot use it")
            array = arrays[0]
            if array.raw().__array_interface__["data"][0] != tensor.data_ptr():  # weights that the program was given
                before.append((array, array.asnumpy()))
                array[:] = array_of(tensor.detach(), parameter.name)
        given = [NDArray.wrap(array_of(tensor.detach(), "an input")) for tensor in inputs]
        return [tensor_on(result.asnumpy()).clone() for result in traced.run(given)]
    finally:
        for array, values in before:
            array[:] = values


@_block.register_fake
def _fake(name: str, inputs: list[Any], weights: list[Any]) -> list[Any]:
    traced = _found(name)
    sizes = {str(size): size for item in inputs for size in item.shape if isinstance(size, torch.SymInt)}

    def kinds(values: dict[str, int]) -> Kinds:
        """The results' shapes for these values of the open sizes: the Block is called on zeros."""
        asked = [([values.get(str(size), size) for size in item.shape], item.dtype) for item in inputs]
        try:
            return _outside(lambda: traced.kinds(asked))
        except HybridLabError as error:
            open_sizes = ", ".join(f"{key}={value}" for key, value in values.items())
            tried = f" with {open_sizes}" if values else ""
            raise TorchError(f"{traced.net.name} cannot be exported{tried}: {error}") from error

    values = {key: _hint(size) for key, size in sizes.items()}
    first = kinds(values)
    shapes = _opened(kinds, first, values, sizes, traced.net.name)
    return [torch.empty(shape, dtype=dtype) for shape, (_, dtype) in zip(shapes, first, strict=True)]


def _opened(
    kinds: Callable[[dict[str, int]], Kinds], known: Kinds, values: dict[str, int], sizes: dict[str, Any], name: str
) -> list[list[Any]]:
    """The results' shapes, in which each size is a sum of multiples of open sizes and of products of two. known : the
    kinds for the values
    """
    groups = _groups(kinds, values, sizes)

    def moved(steps: dict[int, int]) -> list[list[int]]:
        """The shapes if the sizes of these groups are larger by these steps."""
        larger = {key: values[key] + step for group, step in steps.items() for key in groups[group]}
        return [list(shape) for shape, _ in kinds({**values, **larger})]

    first = [list(shape) for shape, _ in known]
    if not groups:
        return first
    ones, twos = ([moved({group: step}) for group in range(len(groups))] for step in (1, 2))
    pairs = {(i, j): moved({i: 1, j: 1}) for i, j in combinations(range(len(groups)), 2)}
    steps = [group + 1 for group in range(len(groups))]
    together = moved(dict(enumerate(steps))) if len(groups) > 1 else ones[0]

    def opened(index: int, axis: int) -> object:
        def number(shapes: list[list[int]]) -> int:
            return shapes[index][axis]

        begin = number(first)
        slopes = [number(shapes) - begin for shapes in ones]
        for keys, slope, shapes in zip(groups, slopes, twos, strict=True):
            if number(shapes) != begin + 2 * slope:
                raise TorchError(
                    f"{name}: axis {axis} of result {index} is no multiple of the open size {keys[0]}, so torch cannot "
                    "be told its size; fix that size in dynamic_shapes"
                )
        products = {(i, j): number(shapes) - begin - slopes[i] - slopes[j] for (i, j), shapes in pairs.items()}
        expected = begin + sum(slope * step for slope, step in zip(slopes, steps, strict=True))
        if number(together) != expected + sum(more * steps[i] * steps[j] for (i, j), more in products.items()):
            raise TorchError(
                f"{name}: axis {axis} of result {index} is no sum of multiples of the open sizes and of products of "
                "two, so torch cannot be told its size; fix a size in dynamic_shapes"
            )
        at = [values[keys[0]] for keys in groups]
        total: Any = begin - sum(slope * value for slope, value in zip(slopes, at, strict=True))
        for (i, j), more in products.items():
            total += more * at[i] * at[j]
            slopes[i] -= more * at[j]
            slopes[j] -= more * at[i]
        for keys, slope in zip(groups, slopes, strict=True):
            total = total + slope * sizes[keys[0]] if slope else total
        for (i, j), more in products.items():
            total = total + more * sizes[groups[i][0]] * sizes[groups[j][0]] if more else total
        return total

    return [[opened(index, axis) for axis in range(len(shape))] for index, shape in enumerate(first)]


def _groups(kinds: Callable[[dict[str, int]], Kinds], values: dict[str, int], sizes: dict[str, Any]) -> list[list[str]]:
    """The open sizes; sizes that must be equal, such as the batches of two inputs, are one group. torch is told."""
    groups: list[list[str]] = []
    for key, value in values.items():
        if any(key in group for group in groups):
            continue
        group = [key]
        try:
            kinds({**values, key: value + 1})
        except TorchError:
            group += [other for other in values if other != key and values[other] == value]
            for other in group[1:]:
                torch._check(sizes[key] == sizes[other])  # noqa: SLF001 - of torch's documentation
        groups.append(group)
    return groups


def _outside(work: Callable[[], Kinds]) -> Kinds:
    """The result of the work outside of torch's tracing, which belongs to the thread: engines may compute with
    torch.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def _found(name: str) -> _Traced:
    if name not in _TRACED:
        raise TorchError(
            f"the program calls the Block {name.rpartition('_')[0]}, which only the process has that exported it; for "
            "other processes write mx.torch.write_source(net, 'm.py') and export that module"
        )
    return _TRACED[name]


def _hint(size: torch.SymInt) -> int:
    """A number that an open size may have."""
    return max(int(size.node.hint), 2)
