"""The operator `hybrid_lab::block`, which stands for a Block in a program that torch.export makes.

It takes the tensors of the call and the weights, and gives the results. Its fake kernel tells torch their shapes, also
if sizes of the inputs are open. Loading this loads torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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


def trace(
    net: Block, weights: dict[Parameter, Any], leaves: Sequence[Any], arguments: object, training: bool
) -> object:
    """The result of a call while torch.export traces it. leaves, arguments : as `tree_flatten` gives them"""
    if training:
        raise TorchError(f"{net.name}: torch.export takes a Block as it predicts: call eval() on the module before")
    if torch.compiler.is_dynamo_compiling():
        raise TorchError("torch.export(strict=True) reads Python code, which a Block has none of: use strict=False")
    name = f"{net.name}_{len(_TRACED)}"
    kept = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    _TRACED[name] = traced = _Traced(net, list(weights), kept, arguments)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    results = torch.ops.hybrid_lab.block(name, tensors, list(weights.values()))
    return unflatten(traced.structure, iter(results))


@torch.library.custom_op("hybrid_lab::block", mutates_args=())
def _block(name: str, inputs: list[torch.Tensor], weights: list[torch.Tensor]) -> list[torch.Tensor]:
    traced = _found(name)
    before: list[tuple[NDArray, np.ndarray]] = []
    for parameter, tensor in zip(traced.parameters, weights, strict=True):
        arrays = access.arrays(parameter)
        if not arrays:
            raise TorchError(f"{parameter.name} has no values any more, so the exported program cannot use it")
        array = arrays[0]
        if array.raw().__array_interface__["data"][0] != tensor.data_ptr():  # weights that the program was given
            before.append((array, array.asnumpy()))
            array[:] = array_of(tensor.detach(), parameter.name)
    try:
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
    """The results' shapes, in which each size is a sum of multiples of open sizes. known : the kinds for the values"""
    first = [list(shape) for shape, _ in known]
    constant = [list(shape) for shape in first]
    terms: list[list[list[Any]]] = [[[] for _ in shape] for shape in first]
    for keys in _groups(kinds, values, sizes):
        key, size = keys[0], sizes[keys[0]]
        one, two = (kinds({**values, **dict.fromkeys(keys, values[key] + more)}) for more in (1, 2))
        for index, shape in enumerate(first):
            for axis, number in enumerate(shape):
                step = one[index][0][axis] - number
                if two[index][0][axis] != number + 2 * step:
                    raise TorchError(
                        f"{name}: axis {axis} of result {index} is no multiple of the open size {key}, so torch cannot "
                        "be told its size; fix that size in dynamic_shapes"
                    )
                if step:
                    terms[index][axis].append(step * size)
                    constant[index][axis] -= step * values[key]
    return [
        [sum(more, number) for number, more in zip(numbers, others, strict=True)]
        for numbers, others in zip(constant, terms, strict=True)
    ]


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
