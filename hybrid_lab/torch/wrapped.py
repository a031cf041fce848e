"""Blocks as modules of torch: they stand in a torch model and are trained by its optimizer."""

from __future__ import annotations

from typing import Any

from hybrid_lab.gluon.block import Block


def module(net: Block) -> Any:
    """A torch.nn.Module that computes the same as a Block, with gradients for torch.

        import torch
        net = nn.Dense(2, in_units=3)
        net.initialize()
        mx.torch.module(net)(torch.ones(1, 3)).shape

    net : an initialized Block on the CPU. The module's parameters lie in the memory of the Block's, under their paths:
        a step of torch's optimizer changes the Block, and load_state_dict does. Parameters without gradient, such as
        running statistics, are buffers

    The module takes the Block's arguments, with torch tensors in the place of NDArrays; train() and eval() choose the
    mode. Raises TorchError for a Block without values or on a GPU, and in backward(create_graph=True).
    """
    from hybrid_lab.torch.block_module import BlockModule

    return BlockModule(net)
