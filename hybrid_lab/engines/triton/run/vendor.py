"""Products by the vendor's library (cuBLAS, cuDNN, rocBLAS, MIOpen), through torch, where tuning has found it faster.

A group is then torch's call and, where something is made of the result, kernels of its own for that. What the factors
are made of would have to be written to memory first: such a group stays a kernel. float32 is multiplied as the kernel
would multiply it, sums of float16 are not rounded in between, and torch's own flags are what they were afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from hybrid_lab.engines.torch_kernels import rules
from hybrid_lab.engines.triton.run.view_step import ViewStep
from hybrid_lab.engines.triton.write.body import Refused
from hybrid_lab.engines.triton.write.core.product import operators_before
from hybrid_lab.engines.triton.write.kinds import is_product
from hybrid_lab.engines.triton.write.source import KernelSource
from hybrid_lab.engines.triton.write.write import write_kernels
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.graph.partition import Region


@dataclass(frozen=True, eq=False)
class VendorKernel:
    """A product by torch's call, in the place of a KernelSource, and of the Kernel that launches one.

    nodes : the product, and views before it; inputs : what they read; outputs : the product's value
    tf32 : float32 factors may be rounded to 10 bits
    """

    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    tf32: bool
    draws: ClassVar[tuple[int, ...]] = ()
    kind: ClassVar[str] = "vendor"

    @property
    def name(self) -> str:
        return f"{self.nodes[-1].op.name}_by_torch"

    @property
    def source(self) -> VendorKernel:
        return self

    @cached_property
    def _steps(self) -> list[Any]:
        import torch

        return [*map(ViewStep, self.nodes[:-1]), rules.kernel_of(torch, self.nodes[-1])]

    @cached_property
    def _flags(self) -> list[tuple[Any, str, Any]]:
        return flags_of(self.nodes[-1], self.tf32)

    def __call__(self, tensors: Sequence[Any]) -> None:
        """Compute it. tensors : inputs and then the output, as a Kernel takes them"""
        import torch

        known: dict[Any, Any] = dict(zip(self.inputs, tensors[:-1], strict=True))
        with torch.no_grad(), flags(self._flags):
            for node, view in zip(self.nodes[:-1], self._steps, strict=False):
                known[node.outputs[0]] = view(known[node.values_in[0]])
            operands = [known[item] if isinstance(item, Value) else item for item in self.nodes[-1].inputs]
            tensors[-1].copy_(self._steps[-1](*operands))

    def bound(self, tensors: Sequence[Any]) -> Callable[[int], None]:
        """A call on these tensors, as `Kernel.bound` gives it."""
        return lambda stream: self(tensors)

    def __repr__(self) -> str:
        return self.name


def vendor_form(group: Region, kernels: Sequence[KernelSource]) -> tuple[Any, ...] | None:
    """The group as torch's call and kernels for what is made of its result; None where it cannot be.

    kernels : of the group, as they are written
    """
    products = [node for node in group.nodes if is_product(node)]
    if len(products) != 1 or any(source.draws for source in kernels):
        return None
    (anchor,) = products
    first = operators_before(anchor, group.nodes)
    if not all(node.op.view and len(node.outputs) == 1 for node in first) or not _has_call(anchor):
        return None
    nodes = (*(node for node in group.nodes if node in first), anchor)
    product = anchor.outputs[0]
    inputs = tuple(dict.fromkeys(value for node in nodes for value in node.values_in if value.node not in nodes))
    call = VendorKernel(nodes, inputs, (product,), any(source.precision == "tf32" for source in kernels))
    rest = tuple(node for node in group.nodes if node not in nodes)
    outputs = tuple(value for value in group.outputs if value != product)
    if not rest or not outputs:
        return (call,) if group.outputs == (product,) else None
    read = dict.fromkeys(value for node in rest for value in node.values_in if value.node not in rest)
    if any(value.node in first for value in read):
        return None
    constants = [value for value in read if not value.node.inputs and value not in group.inputs]
    try:
        behind = write_kernels(Region(rest, tuple(value for value in read if value not in constants), outputs))
    except Refused:
        return None
    return (call, *behind)


def _has_call(anchor: Node) -> bool:
    """Whether torch's table has the operator. Unlike the torch engine's rules, half precision is welcome: on a GPU."""
    return len(anchor.outputs) == 1 and rules.unserved(anchor) is None


@contextlib.contextmanager
def flags(wanted: Sequence[tuple[object, str, object]]) -> Iterator[None]:
    """torch's flags for one call; what they were is set again, whatever happens. wanted : as `flags_of` gives them"""
    changed = []
    try:
        for place, name, value in wanted:
            before = getattr(place, name)
            if before != value:
                setattr(place, name, value)
                changed.append((place, name, before))
        yield
    finally:
        for place, name, before in changed:
            setattr(place, name, before)


def flags_of(anchor: Node, tf32: bool) -> list[tuple[Any, str, Any]]:
    """(where torch keeps a flag, its name, its value) for what a product's call depends on."""
    import torch

    cuda: Any = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    convolves, dtype = "onv" in anchor.op.name, anchor.outputs[0].dtype.name
    wanted: list[tuple[Any, str, Any]] = []
    if convolves:
        wanted += [(cudnn, "benchmark", False), (cudnn, "deterministic", True)]
    if dtype == "float32" and hasattr(cuda, "fp32_precision"):  # from torch 2.9 on
        wanted.append((cudnn.conv if convolves else cuda, "fp32_precision", "tf32" if tf32 else "ieee"))
    elif dtype == "float32":
        wanted.append((cudnn if convolves else cuda, "allow_tf32", tf32))
    elif not convolves and dtype in ("float16", "bfloat16"):
        short = "fp16" if dtype == "float16" else "bf16"
        wanted.append((cuda, f"allow_{short}_reduced_precision_reduction", False))
    return wanted
