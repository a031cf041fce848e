"""Calls of attention: torch's flash attention on a GPU, and its counterpart on the host in tests without one.

Both keep the logarithms of the sums of exponentials for the gradient. On a GPU a small attention is compared with the
host's first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hybrid_lab.engines.triton.plan.attention import VendorAttention, VendorAttentionGrad
from hybrid_lab.engines.triton.run.availability import has_cudnn, torch_device
from hybrid_lab.graph.node import Node
from hybrid_lab.system.logger import logger

if TYPE_CHECKING:
    from torch import Tensor

#: The attention that is compared: heads, queries, keys, width.
PROBE = (2, 40, 72, 16)
#: How far results may be apart.
NEAR = 3e-2


def kernel_of(node: Node) -> Callable[..., Any]:
    """The call of an attention or its gradient: takes the node's inputs, returns its output, or a tuple of them."""
    op: Any = node.op
    if isinstance(op, VendorAttentionGrad):
        return (_flash_gradient if has_cudnn() else _plain_gradient)(op)
    return (_flash if has_cudnn() else _plain)(op)


def _flash(op: VendorAttention) -> Callable[..., Any]:
    import torch

    call, scale = torch.ops.aten._scaled_dot_product_flash_attention.default, op.scale  # noqa: SLF001 - its only name
    trains = op.signature.outputs == 2

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor] | Tensor:
        y, sums = call(q[None], k[None], v[None], 0.0, False, False, scale=scale)[:2]
        return (y[0].contiguous(), sums[0].contiguous()) if trains else y[0].contiguous()

    return kernel


def _flash_gradient(op: VendorAttentionGrad) -> Callable[..., Any]:
    import torch

    call = torch.ops.aten._scaled_dot_product_flash_attention_backward.default  # noqa: SLF001 - its only name
    scale, random = op.scale, dict[Any, Any]()

    def kernel(dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, sums: Tensor) -> tuple[Tensor, ...]:
        if q.device not in random:  # the state of a dropout that there is not
            random[q.device] = torch.zeros(2, dtype=torch.uint64, device=q.device)
        state = random[q.device]
        gradients = call(
            dy[None], q[None], k[None], v[None], y[None], sums[None], None, None, q.shape[1], k.shape[1], 0.0, False,
            state, state[:0], scale=scale,
        )  # fmt: skip
        return tuple([gradient[0].contiguous() for gradient in gradients])

    return kernel


def _plain(op: VendorAttention) -> Callable[..., Any]:
    import torch

    call = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default  # noqa: SLF001 - its only name
    scale, trains = op.scale, op.signature.outputs == 2

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor] | Tensor:
        y, sums = call(q[None], k[None], v[None], 0.0, False, scale=scale)
        return (y[0].contiguous(), sums[0].float().contiguous()) if trains else y[0].contiguous()

    return kernel


def _plain_gradient(op: VendorAttentionGrad) -> Callable[..., Any]:
    import torch

    call = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default  # noqa: SLF001 - its only name
    scale = op.scale

    def kernel(dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, sums: Tensor) -> tuple[Tensor, ...]:
        gradients = call(dy[None], q[None], k[None], v[None], y[None], sums[None], 0.0, False, scale=scale)
        return tuple([gradient[0].contiguous() for gradient in gradients])

    return kernel


@lru_cache(maxsize=64)
def is_trusted(dtype: str) -> bool:
    """Whether the GPU's attention gives the host's numbers for a small one, gradients too. It logs why not."""
    try:
        _check(dtype)
    except Exception as error:  # torch's and the driver's have no common base
        logger.warning(f"attention of {dtype} runs in kernels of this package, not in torch's: {error}")
        return False
    return True


def _check(dtype: str) -> None:
    import torch

    heads, queries, keys, width = PROBE
    random = torch.Generator().manual_seed(0)
    shapes = ((heads, queries, width), (heads, keys, width), (heads, keys, width), (heads, queries, width))
    q, k, v, dy = (torch.rand(shape, generator=random) - 0.5 for shape in shapes)
    first, second = VendorAttention(0.7, 2), VendorAttentionGrad(0.7, 3)
    y, sums = _plain(first)(q, k, v)
    expected = (y, *_plain_gradient(second)(dy, q, k, v, y, sums))
    q, k, v, dy = (each.to(torch_device(), getattr(torch, dtype)) for each in (q, k, v, dy))
    y, sums = _flash(first)(q, k, v)
    found = (y, *_flash_gradient(second)(dy, q, k, v, y, sums))
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        away = float((one.float().cpu() - other).abs().max())
        if not away <= NEAR * float(other.abs().max()):
            raise RuntimeError(f"result {number} of a small attention is off by {away:.3g}")
