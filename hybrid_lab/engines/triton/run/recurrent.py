"""Calls of recurrent layers: cuDNN's, and for tests without a GPU torch's own layers in their place.

The packed parameters of RNN have cuDNN's layout, which is checked when a layer is first compiled; so nothing is copied.
cuDNN makes memory for its results.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hybrid_lab.engines.torch_kernels.recurrent import split_weights
from hybrid_lab.engines.triton.plan.recurrent import VendorRNN, layers_of
from hybrid_lab.engines.triton.run.availability import has_cudnn, torch_device
from hybrid_lab.graph.node import Node
from hybrid_lab.ops.rnn.rnn import RNN, RNNGrad
from hybrid_lab.system.logger import logger

if TYPE_CHECKING:
    from torch import Tensor

#: RNN's modes as cuDNN numbers them.
MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
#: The sizes of the layers that are computed on both sides before cuDNN is trusted: steps, batch, width.
PROBE = (3, 2, 8)
#: How far they may be apart.
NEAR = 2e-2


def kernel_of(node: Node) -> Callable[..., Any]:
    """The call of a layer, or of a gradient: takes the node's inputs, returns its output, or a tuple of them."""
    op = layers_of(node)
    assert op is not None
    trains = isinstance(node.op, VendorRNN)
    if isinstance(op, RNNGrad):
        return (_cudnn_gradient if has_cudnn() else _plain_gradient)(op)
    return (_cudnn_forward if has_cudnn() else _plain_forward)(op, trains)


def _states(op: RNN | RNNGrad, rest: tuple[Any, ...]) -> tuple[Any, Any, tuple[Any, ...]]:
    """state, an LSTM's cell or None, and what follows."""
    return (rest[0], rest[1], rest[2:]) if op.mode == "lstm" else (rest[0], None, rest[1:])


def _visible(op: RNN | RNNGrad, y: Tensor, state: Tensor, cell: Tensor | None) -> tuple[Any, ...]:
    if not op.state_outputs:
        return (y,)
    return (y, state, cell) if op.mode == "lstm" else (y, state)


def _one_or_all(made: tuple[Tensor, ...]) -> tuple[Tensor, ...] | Tensor:
    return made if len(made) > 1 else made[0]


# -- cuDNN -------------------------------------------------------------------------------------------------------------


def _options(op: RNN | RNNGrad, trains: bool) -> tuple[Any, ...]:
    """mode, hidden size, projection, layers, whether the batch is first, dropout, training, both directions, lengths,
    the state of a dropout.
    """
    both = op.sizes.directions == 2
    return MODES[op.mode], op.state_size, 0, op.num_layers, False, 0.0, trains, both, [], None


def _cudnn_forward(op: RNN | RNNGrad, trains: bool) -> Callable[..., Any]:
    import torch

    call, options = torch._cudnn_rnn, _options(op, trains)  # noqa: SLF001 - its only name

    def kernel(x: Tensor, vector: Tensor, *rest: Tensor) -> tuple[Any, ...] | Tensor:
        state, cell, _ = _states(op, rest)
        y, last, last_cell, reserve, _ = call(x, [vector], 1, vector, state, cell, *options)
        made = _visible(op, y, last, last_cell)
        return (*made, reserve) if trains else _one_or_all(made)

    return kernel


def _cudnn_gradient(op: RNNGrad) -> Callable[..., Any]:
    import torch

    call = torch.ops.aten._cudnn_rnn_backward.default  # noqa: SLF001 - its only name
    options, heads = _options(op, True), op.heads
    wanted = [True, True, op.mode == "lstm", True]

    def kernel(x: Tensor, vector: Tensor, *rest: Tensor) -> tuple[Any, ...]:
        state, cell, (y, reserve, *present) = _states(op, rest)
        given = iter(present)
        dy, dstate, dcell = ([next(given) if there else None for there in heads] + [None, None])[:3]
        weights = [part[name] for part in split_weights(op, vector, x.shape[2]) for name in ("wx", "wh", "bx", "bh")]
        # cuDNN overwrites the reserve, which a second backward would read.
        dx, dh, dc, dweights = call(
            x, weights, 4, vector, state, cell, y, dy, dstate, dcell, *options, reserve.clone(), wanted
        )
        dvector = dweights[0].as_strided(tuple(vector.shape), (1,), 0)  # they are views of one array, packed as ours
        return (dx, dvector, dh, dc) if op.mode == "lstm" else (dx, dvector, dh)

    return kernel


@lru_cache(maxsize=256)
def is_trusted(mode: str, hidden: int, layers: int, directions: int, width: int, dtype: str) -> bool:
    """Whether cuDNN packs parameters of these layers as RNN does, and gives the numbers of torch on the host for small
    layers of the kind. It logs why not.
    """
    try:
        _check_layout(mode, hidden, layers, directions, width, dtype)
        _check_numbers(mode, layers, directions, dtype)
    except Exception as error:  # of torch or cuDNN, each has its own
        logger.warning(f"recurrent layers ({mode}) run in kernels of this package, not in cuDNN: {error}")
        return False
    return True


def _check_layout(mode: str, hidden: int, layers: int, directions: int, width: int, dtype: str) -> None:
    import torch

    op: Any = RNN.bind(mode=mode, state_size=hidden, num_layers=layers, bidirectional=directions == 2)
    numbers = torch.arange(op.sizes.parameters(width), device=torch_device()).remainder(2039)
    vector = numbers.to(getattr(torch, dtype))
    parts = split_weights(op, vector, width)
    weights = [part[name].clone() for part in parts for name in ("wx", "wh", "bx", "bh")]
    with torch.no_grad():
        packed = torch._cudnn_rnn_flatten_weight(  # noqa: SLF001 - its only name
            weights, 4, width, MODES[mode], hidden, 0, layers, False, directions == 2
        )
    if not torch.equal(packed, vector):
        raise RuntimeError("it packs parameters in another order")


def _check_numbers(mode: str, layers: int, directions: int, dtype: str) -> None:
    import torch

    steps, batch, width = PROBE
    attributes: Any = {"mode": mode, "state_size": 8, "num_layers": layers, "bidirectional": directions == 2}
    op: Any = RNN.bind(**attributes, state_outputs=True)
    gradient: Any = RNNGrad.bind(**attributes, state_outputs=True, heads=(1,) * op.signature.visible)
    random = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.rand(shape, generator=random) - 0.5

    places = layers * directions
    states = [drawn(places, batch, 8) for _ in range(op.signature.visible - 1)]
    inputs = [drawn(steps, batch, width), drawn(op.sizes.parameters(width)), *states]
    heads = [drawn(steps, batch, 8 * directions), *(drawn(places, batch, 8) for _ in states)]
    expected = _plain_forward(op, True)(*inputs)
    expected_gradients = _plain_gradient(gradient)(*inputs, expected[0], expected[-1], *heads)

    def there(tensors: list[Tensor]) -> list[Tensor]:
        return [tensor.to(torch_device(), getattr(torch, dtype)) for tensor in tensors]

    inputs, heads = there(inputs), there(heads)
    found = _cudnn_forward(op, True)(*inputs)
    gradients = _cudnn_gradient(gradient)(*inputs, found[0], found[-1], *heads)
    pairs = zip((*found[:-1], *gradients), (*expected[:-1], *expected_gradients), strict=True)
    for number, (one, other) in enumerate(pairs):
        away = float((one.float().cpu() - other).abs().max())
        if not away <= NEAR * max(float(other.abs().max()), 1.0):
            raise RuntimeError(f"result {number} of a small layer is off by {away:.3g}")


# -- torch's layers ----------------------------------------------------------------------------------------------------


def _layer(op: RNN | RNNGrad, x: Tensor, vector: Tensor, state: Tensor, cell: Tensor | None) -> tuple[Tensor, ...]:
    """y, the last states, and an LSTM's last cells."""
    import torch

    parts = split_weights(op, vector, x.shape[2])
    weights = [part[name] for part in parts for name in ("wx", "wh", "bx", "bh")]
    options = (True, op.num_layers, 0.0, False, op.sizes.directions == 2, False)
    first: Any = (state, cell) if op.mode == "lstm" else state
    return getattr(torch, op.mode)(x, first, weights, *options)


def _plain_forward(op: RNN | RNNGrad, trains: bool) -> Callable[..., Any]:
    import torch

    def kernel(x: Tensor, vector: Tensor, *rest: Tensor) -> tuple[Any, ...] | Tensor:
        state, cell, _ = _states(op, rest)
        with torch.no_grad():
            y, last, *more = _layer(op, x, vector, state, cell)
        made = _visible(op, y.contiguous(), last.contiguous(), more[0].contiguous() if more else None)
        return (*made, x.new_zeros((1,), dtype=torch.uint8)) if trains else _one_or_all(made)

    return kernel


def _plain_gradient(op: RNNGrad) -> Callable[..., Any]:
    """The gradient by torch's autograd, which computes the layer again."""
    import torch

    heads = op.heads

    def kernel(x: Tensor, vector: Tensor, *rest: Tensor) -> tuple[Any, ...]:
        state, cell, (_, _, *present) = _states(op, rest)
        with torch.enable_grad():
            given = [item.detach().requires_grad_() for item in (x, vector, state, cell) if item is not None]
            outputs = _layer(op, given[0], given[1], given[2], given[3] if op.mode == "lstm" else None)
            read = [output for output, there in zip(outputs, heads, strict=False) if there]
            found = torch.autograd.grad(read, given, list(present), materialize_grads=True)
        return tuple([gradient.contiguous() for gradient in found])

    return kernel
