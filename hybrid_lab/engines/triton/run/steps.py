"""Steps of a device program: kernels, and what runs operators that have none - torch on the device, or the host."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from hybrid_lab.engines import memory
from hybrid_lab.engines.regions import RegionOperator
from hybrid_lab.engines.torch_kernels import on_device, registry
from hybrid_lab.engines.triton.run import availability
from hybrid_lab.engines.triton.run.kernel import Kernel
from hybrid_lab.engines.triton.run.vendor import VendorKernel
from hybrid_lab.engines.triton.write.source import KernelSource
from hybrid_lab.graph.node import Constant, Node, Value
from hybrid_lab.graph.passes.partition import Region
from hybrid_lab.ops.framework.run import run_kernel


class KernelOperator(RegionOperator):
    """A fused group, whose kernels it launches.

    kernels : in the order in which they run; a product may be the vendor's (see vendor.py)
    temporaries : (shape, dtype) of the values that one kernel leaves for the next, the node's last outputs
    """

    name: ClassVar[str] = "triton"
    own_bfloat16: ClassVar[bool] = True
    #: A plan gives it the memory that its kernels write to.
    run_keywords: ClassVar[frozenset[str]] = frozenset({"out", "rng"})

    def __init__(self, group: Region, sources: tuple[KernelSource | VendorKernel, ...]):
        parts = [value for source in sources for value in source.outputs if value not in group.outputs]
        kernels = [each if isinstance(each, VendorKernel) else Kernel(each) for each in sources]
        temporaries = [(value.shape, value.dtype) for value in parts]
        outputs = len(group.outputs) + len(parts)
        super().__init__(group, outputs, label=sources[-1].name, kernels=kernels, parts=parts, temporaries=temporaries)

    @property
    def hint(self) -> str:
        """The next step if it fails, for its errors; "" if there is none to name."""
        if not any(isinstance(kernel, VendorKernel) for kernel in self.kernels):
            return ""
        return "the vendor's library computes this; hybridize(products='own') takes kernels of this package instead"

    label: str
    kernels: list[Kernel | VendorKernel]
    parts: list[Value]
    temporaries: list[tuple[Any, Any]]

    def places(self, inputs: Any, outputs: Any) -> dict[Value, Any]:
        """The tensor or number of each Value of the kernels, constants left out."""
        region = self.region
        return {
            **dict(zip(region.inputs, inputs, strict=True)),
            **dict(zip((*region.outputs, *self.parts), outputs, strict=True)),
        }


class AllocatingOperator(KernelOperator):
    """A product by a call of the vendor's library that makes memory for its result."""

    run_keywords: ClassVar[frozenset[str]] = frozenset()
    fresh: ClassVar[bool] = True


def step_of(group: Region, sources: tuple[KernelSource | VendorKernel, ...]) -> KernelOperator:
    """The operator that runs a group."""
    first = sources[0]
    allocates = len(sources) == 1 and isinstance(first, VendorKernel) and first.allocates
    return (AllocatingOperator if allocates else KernelOperator)(group, sources)


def has_rule(node: Node) -> bool:
    """Whether the table of torch calls has the operator. A captured program can hold it."""
    return registry.refusal(node) is None


def on_torch(node: Node) -> bool:
    """Whether torch computes the operator on the device, if no kernel does."""
    return has_rule(node) or on_device.refusal(node) is None


def why_on_host(node: Node) -> str:
    """Why an operator without a kernel runs on the host; "" if it does not."""
    return "" if has_rule(node) else on_device.refusal(node) or ""


class TorchStep:
    """An operator by torch's own kernels on the device; call it with tensors and numbers.

    Returns a tuple of contiguous tensors in memory of their own.
    """

    def __init__(self, node: Node):
        import torch

        with torch.device(availability.torch_device()):  # tensors that the entry makes beforehand lie there, too
            self._kernel = registry.kernel_of(torch, node)
        entry = registry.entry_of(node.op)
        self._clones = entry is not None and entry.shared
        self._guard, self._torch = torch.no_grad, torch

    def __call__(self, rng: tuple[int, int], *inputs: Any) -> tuple[Any, ...]:
        with self._guard():
            results = self._kernel(*inputs)
            results = results if isinstance(results, tuple) else (results,)
            if self._clones:
                return tuple([item.clone(memory_format=self._torch.contiguous_format) for item in results])
            return tuple([item.contiguous() for item in results])


class ArrayStep:
    """An operator by its record's NumPy kernel on arrays of the device, which torch computes with.

    Returns a tuple of contiguous tensors in memory of their own, None for outputs without readers.
    """

    def __init__(self, node: Node, needs: tuple[bool, ...]):
        import torch

        self._kernel = on_device.kernel_of(node, needs, torch.device(availability.torch_device()))
        self._guard = torch.no_grad

    def __call__(self, rng: tuple[int, int], *inputs: Any) -> tuple[Any, ...]:
        with self._guard():
            return self._kernel(rng, *inputs)


class HostStep:
    """An operator by its record's NumPy kernel, with counted copies to the host and back.

    to_host, to_device : how many a call makes
    """

    def __init__(self, node: Node, needs: tuple[bool, ...]):
        self.node, self.needs = node, needs
        self._read = [
            type(item) is Value and not isinstance(item.node.op, Constant) and node.op.reads_values(index)
            for index, item in enumerate(node.inputs)
        ]
        #: Shapes of what only the shape is read of, and constants, which the host has.
        self._known = [
            None if type(item) is not Value or read
            else item.node.op.array if isinstance(item.node.op, Constant)
            else np.broadcast_to(np.zeros((), item.dtype), item.shape)
            for item, read in zip(node.inputs, self._read, strict=True)
        ]  # fmt: skip
        self.to_host = len({item for item, read in zip(node.inputs, self._read, strict=True) if read})
        self.to_device = sum(needs)

    def __call__(self, rng: tuple[int, int], *inputs: Any) -> tuple[Any, ...]:
        on_host: dict[int, np.ndarray] = {}
        operands = []
        for item, read, known in zip(inputs, self._read, self._known, strict=True):
            if read:
                if id(item) not in on_host:
                    on_host[id(item)] = memory.to_host(item)
                operands.append(on_host[id(item)])
            else:
                operands.append(item if known is None else known)
        node = self.node
        outputs = run_kernel(node.op, operands, rng=(rng[0], rng[1] + (node.draw or 0)), need=self.needs)
        device = availability.torch_device()
        return tuple(
            [
                memory.to_device(np.asarray(item), device) if item is not None and need else None
                for item, need in zip(outputs, self.needs, strict=True)
            ]
        )
