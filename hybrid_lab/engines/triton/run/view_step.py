"""Views in a device program: tensors that share the memory of their source."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybrid_lab.engines.triton.run import availability
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.ops.framework.run import run_kernel


class ViewStep:
    """A view of contiguous memory, as a tensor that shares it wherever torch has one: with strides of its own where its
    elements do not follow one another.
    """

    def __init__(self, node: Node):
        source = node.values_in[0]
        base = np.empty(source.shape, source.dtype)
        inputs = [base if item is source else np.empty(item.shape, item.dtype) if type(item) is Value else item
                  for item in node.inputs]  # fmt: skip
        view = run_kernel(node.op, inputs)[0]
        self.shape = node.outputs[0].shape
        self.start, self.strides, self.order, self.whole = 0, None, None, False
        shares = np.may_share_memory(view, base) and min(view.strides, default=0) >= 0
        if view.size and shares:
            start = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
            self.start = start // base.itemsize
        if view.flags.c_contiguous and (shares or not view.size):
            self.whole = view.size == base.size
        elif shares:
            self.strides = tuple([stride // base.itemsize for stride in view.strides])
        else:  # backwards, or a copy
            import torch

            numbers = np.arange(base.size).reshape(base.shape)
            view = run_kernel(node.op, [numbers, *inputs[1:]])[0]
            self.order = torch.from_numpy(np.array(view, np.int64, order="C")).to(availability.torch_device())

    def __call__(self, tensor: Any) -> Any:
        """The view; a copy where torch has none."""
        tensor = tensor.contiguous()
        if self.order is not None:
            return tensor.reshape(-1)[self.order]
        if self.strides is not None:
            return tensor.as_strided(self.shape, self.strides, tensor.storage_offset() + self.start)
        if self.whole:
            return tensor.view(self.shape)
        flat = tensor.view(-1)
        return flat[self.start : self.start + int(np.prod(self.shape))].view(self.shape)

    def copied(self, tensor: object) -> Any:
        """Its elements one after the other, in memory of their own."""
        import torch

        return self(tensor).clone(memory_format=torch.contiguous_format)
