"""Operators that torch computes on a GPU make no tensor on the CPU on the way: a GPU would refuse it."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from hybrid_lab.diagnostics.errors import DTypeError, HybridLabError, ShapeError
from hybrid_lab.engines.memory import numpy_dtype, shared
from hybrid_lab.engines.torch_kernels import engine, on_device, registry  # noqa: F401
from hybrid_lab.engines.triton.run.steps import has_rule
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.node import input_node
from hybrid_lab.ops.framework.run import run_kernel
from tests.engines.card_tensors import CardTensor, MixedDevices, card, on_card
from tests.ops.cases import RNG, close, each_sample


def on_torch(case):
    """The sample's operator, its arrays, and whether the table of torch calls has it; None if torch does not
    compute it.
    """
    inputs = case.inputs()
    operands = [
        input_node(f"x{index}", shape=item.shape, dtype=item.dtype) if isinstance(item, np.ndarray) else item
        for index, item in enumerate(inputs)
    ]
    try:
        node = make_node(case.op, operands, draw=0 if case.op.random else None)
    except (DTypeError, ShapeError):
        return None
    rule = has_rule(node)
    return (node, inputs, rule) if rule or on_device.refusal(node) is None else None


@each_sample()
def test_every_tensor_is_on_the_device(case):
    found = on_torch(case)
    if found is None:
        pytest.skip("torch does not compute it on a GPU")
    node, inputs, rule = found
    card()
    try:
        expected = run_kernel(node.op, inputs, rng=RNG)
    except HybridLabError:
        pytest.skip("the record refuses its numbers")
    with on_card() as device:
        tensors = [CardTensor(shared(np.array(item))) if isinstance(item, np.ndarray) else item for item in inputs]
        if rule:
            with device:
                kernel = registry.kernel_of(torch, node)
            made = kernel(*tensors)
        else:
            made = on_device.kernel_of(node, (True,) * len(node.outputs), device)(RNG, *tensors)
    made = made if isinstance(made, tuple) else (made,)
    for tensor, wanted in zip(made, expected, strict=True):
        assert isinstance(tensor, CardTensor)
        if tensor.dtype != torch.bfloat16:
            array = tensor.inner.numpy()
            close(array.astype(numpy_dtype(tensor.dtype)), wanted)


def test_a_tensor_of_the_cpu_is_refused():
    card()
    with on_card():
        x = CardTensor(torch.ones(3))
        assert (x * torch.tensor(2.0)).inner.tolist() == [2, 2, 2]
        with pytest.raises(MixedDevices, match="mul.*card and of the CPU"):
            x * torch.ones(3)
