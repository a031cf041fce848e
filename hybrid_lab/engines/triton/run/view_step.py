"""Views in a device program: tensors that share the memory of their source."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from hybrid_lab.engines.triton.run import availability
from hybrid_lab.engines.triton.write.index import strides_in
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.ops.framework.run import run_kernel


class ViewStep:
    """A view of contiguous memory, as a tensor that shares it wherever torch has one."""

    def __init__(self, node: Node):
        source, self.shape = node.values_in[0], node.outputs[0].shape
        strides = strides_in(node, 0)
        self.order = None
        if strides is None or min(strides[0], default=0) < 0:  # a copy, or backwards
            import torch

            inputs = [np.empty(item.shape, item.dtype) if type(item) is Value else item for item in node.inputs]
            inputs[0] = np.arange(prod(source.shape)).reshape(source.shape)
            order = np.array(run_kernel(node.op, inputs)[0], np.int64, order="C")
            self.order = torch.from_numpy(order).to(availability.torch_device())
        else:
            self.strides, self.start = strides

    def __call__(self, tensor: Any) -> Any:
        """The view; a copy if torch has none."""
        tensor = tensor.contiguous()
        if self.order is not None:
            return tensor.reshape(-1)[self.order]
        return tensor.as_strided(self.shape, self.strides, tensor.storage_offset() + self.start)

    def copied(self, tensor: object) -> Any:
        """Its elements one after the other, in memory of their own."""
        import torch

        return self(tensor).clone(memory_format=torch.contiguous_format)
