"""A module of torch beside the Block that it becomes: outputs and gradients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

import hybrid_lab as mx
from hybrid_lab import autograd


@dataclass
class Difference:
    """The largest differences, relative to the largest number of torch's results: eager and hybridized in prediction,
    gradients of parameters and inputs in training, running statistics after it.
    """

    eager: float
    hybrid: float
    gradient: float
    statistics: float
    operators: int

    @property
    def forward(self):
        return max(self.eager, self.hybrid)


def tensors(result):
    """The tensors in a result, in torch's order."""
    leaves = torch.utils._pytree.tree_leaves(result)
    return [item for item in leaves if isinstance(item, torch.Tensor)]


def arrays(result):
    """The arrays in a Block's result."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        return [part for item in result for part in arrays(item)]
    return [] if result is None else [result]


def apart(ours, theirs):
    """The largest difference of two lists of results, relative to the largest number of `theirs`."""
    assert len(ours) == len(theirs)
    found = 0.0
    for one, two in zip(ours, theirs, strict=True):
        one, two = np.asarray(one, "float64"), np.asarray(two, "float64")
        assert one.shape == two.shape, (one.shape, two.shape)
        found = max(found, float(np.abs(one - two).max(initial=0) / max(np.abs(two).max(initial=0), 1e-30)))
    return found


def without_dropout(module):
    """The same module with dropout that drops nothing: random masks are not torch's."""
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout) or type(part).__name__ == "StochasticDepth":
            part.p = 0.0
        if type(part).__name__ == "DropPath":
            part.drop_prob = 0.0
        if isinstance(part, torch.nn.MultiheadAttention):
            part.dropout = 0.0
    return module


def without_zeros(module):
    """The same module with small numbers where it begins with zeros, so that every part counts."""
    for parameter in module.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, 0, 0.05)
    return module


def difference(module, inputs, **options):
    """Import the module and compare it."""
    module = without_zeros(without_dropout(module))
    net = mx.torch.imports(module, inputs, copy=True, **options)
    given = [mx.nd.array(item.numpy(), dtype=str(item.dtype).removeprefix("torch.")) for item in inputs]
    module.eval()
    with torch.no_grad():
        theirs = [item.numpy() for item in tensors(module(*inputs))]
    eager = apart([item.asnumpy() for item in arrays(net(*given))], theirs)
    net.hybridize()
    hybrid = apart([item.asnumpy() for item in arrays(net(*given))], theirs)
    gradient = _gradients(module.train(), net, inputs, given)
    own = net.collect_params()
    buffers = {name: item for name, item in module.named_buffers() if name in own and "running" in name}
    statistics = apart([own[name].data().asnumpy() for name in buffers], [item.numpy() for item in buffers.values()])
    (neutral,) = list(net._graphs.pinned.values())[:1]
    return net, Difference(eager, hybrid, gradient, statistics, len(neutral.graph.operators))


def _gradients(module, net, inputs, given):
    """The difference of gradients of a sum with random weights."""
    floating = [place for place, item in enumerate(inputs) if item.is_floating_point()]
    inputs = [item.clone().requires_grad_(place in floating) for place, item in enumerate(inputs)]
    for place in floating:
        given[place].attach_grad()
    results = [item for item in tensors(module(*inputs)) if item.is_floating_point()]
    weights = [torch.randn(item.shape) for item in results]
    sum((item * weight).sum() for item, weight in zip(results, weights, strict=True)).backward()
    with autograd.record():
        ours = [item for item in arrays(net(*given)) if item.dtype in (np.float32, np.float64)]
        heads = [mx.nd.array(weight.numpy()) for weight in weights]
        total = sum((item * head).sum() for item, head in zip(ours, heads, strict=True))
    total.backward()
    own = net.collect_params()
    theirs = {name: item.grad for name, item in module.named_parameters() if item.grad is not None and name in own}
    assert len(theirs) == sum(item.grad_req != "null" for item in own.values()), "the Block has all parameters"
    pairs = [(own[name].grad().asnumpy().reshape(item.shape), item.numpy()) for name, item in theirs.items()]
    pairs += [(given[place].grad.asnumpy(), inputs[place].grad.numpy()) for place in floating]
    largest = max(float(np.abs(two).max()) for _, two in pairs)
    return max(float(np.abs(one - two).max()) for one, two in pairs) / largest
