"""cuDNN without a GPU: the functions of torch that call it, for tensors on the CPU, by torch's own ones.

They refuse what cuDNN would copy or not take: memory of another format than it writes, states that are not contiguous,
packed parameters of another size.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import torch

from hybrid_lab.engines.torch_kernels.recurrent import split_weights
from hybrid_lab.engines.triton.run import attention, recurrent
from hybrid_lab.ops.framework.run import run_kernel
from hybrid_lab.ops.rnn.rnn import RNN, RNNGrad

MODES = {number: mode for mode, number in recurrent.MODES.items()}


def _format(*tensors: torch.Tensor) -> torch.memory_format:
    last = any(
        tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()
        for tensor in tensors
    )
    return torch.channels_last if last else torch.contiguous_format


def _convolution(x, weight, padding, stride, dilation, groups, benchmark, deterministic, allow_tf32, *, out):
    assert x.dim() in (4, 5) and isinstance(benchmark, bool) and isinstance(deterministic, bool)
    found = torch.convolution(x, weight, None, stride, padding, dilation, False, [0] * len(stride), groups)
    assert found.shape == out.shape and out.is_contiguous(memory_format=_format(x, weight))
    return out.copy_(found)


def _transposed(x, weight, padding, over, stride, dilation, groups, benchmark, deterministic, allow_tf32):
    assert x.dim() in (4, 5) and isinstance(benchmark, bool) and isinstance(deterministic, bool)
    found = torch.convolution(x, weight, None, stride, padding, dilation, True, over, groups)
    return found.contiguous(memory_format=_format(x, weight))


def _attributes(mode, hidden, projection, layers, batch_first, dropout, both):
    assert (projection, batch_first, dropout) == (0, False, 0.0)
    return {"mode": MODES[mode], "state_size": hidden, "num_layers": layers, "bidirectional": both}


def _by_numpy(op, *tensors):
    found = run_kernel(op, [tensor.numpy() for tensor in tensors if tensor is not None])
    return [torch.from_numpy(array.copy()) for array in found]


def _rnn(
    x, weights, stride, packed, hx, cx, mode, hidden, projection, layers, batch_first, dropout, train, both, sizes,
    dropout_state,
):  # fmt: skip
    op = RNN.bind(**_attributes(mode, hidden, projection, layers, batch_first, dropout, both), state_outputs=True)
    assert packed.numel() == op.sizes.parameters(x.shape[2]) and hx.is_contiguous()
    y, state, *cell = _by_numpy(op.bind_mode(False), x, packed, hx, cx)
    reserve = torch.full((7,), 5, dtype=torch.uint8) if train else torch.empty(0, dtype=torch.uint8)
    return y, state, cell[0] if cell else x.new_empty(0), reserve, packed.clone()


def _rnn_backward(
    x, weights, stride, packed, hx, cx, y, dy, dhy, dcy, mode, hidden, projection, layers, batch_first, dropout, train,
    both, sizes, dropout_state, reserve, mask,
):  # fmt: skip
    assert train and stride == 4 and bool((reserve == 5).all()) and mask[2] == (cx is not None)
    reserve.zero_()  # as cuDNN, which writes to it
    heads = [dy, dhy] + ([dcy] if cx is not None else [])
    attributes = _attributes(mode, hidden, projection, layers, batch_first, dropout, both)
    op = RNNGrad.bind(
        **attributes, state_outputs=True, heads=tuple(int(head is not None) for head in heads), kept=False
    )
    found = _by_numpy(op, x, packed, hx, cx, *heads)
    dweights = [part[name] for part in split_weights(op, found[1], x.shape[2]) for name in ("wx", "wh", "bx", "bh")]
    assert [each.shape for each in dweights] == [each.shape for each in weights]
    return found[0], found[2], found[3] if cx is not None else x.new_empty(0), dweights


def _flattened(weights, stride, width, mode, hidden, projection, layers, batch_first, both):
    """All weights, then all biases."""
    parts = [weights[at : at + 4] for at in range(0, len(weights), 4)]
    return torch.cat([each.reshape(-1) for pair in (slice(0, 2), slice(2, 4)) for part in parts for each in part[pair]])


def _attention(q, k, v, dropout=0.0, is_causal=False, return_mask=False, *, scale):
    assert (dropout, is_causal) == (0.0, False) and all(item.dim() == 4 and item.stride(-1) == 1 for item in (q, k, v))
    scores = q.float() @ k.float().transpose(-1, -2) * scale
    y, sums, nothing = (scores.softmax(-1) @ v.float()).to(q.dtype), scores.logsumexp(-1), torch.zeros(0)
    return y, sums, nothing, nothing, q.shape[2], k.shape[2], nothing, nothing, nothing


def _attention_backward(
    dy, q, k, v, y, sums, first_q, first_k, queries, keys, dropout, is_causal, seed, offset, *, scale
):  # fmt: skip
    assert first_q is first_k is None and (queries, keys) == (q.shape[2], k.shape[2]) and seed.dtype == torch.uint64
    weights = (q.float() @ k.float().transpose(-1, -2) * scale - sums[..., None]).exp()
    inner = dy.float() @ v.float().transpose(-1, -2) - (dy.float() * y.float()).sum(-1, keepdim=True)
    scores = weights * inner * scale
    found = scores @ k.float(), scores.transpose(-1, -2) @ q.float(), weights.transpose(-1, -2) @ dy.float()
    return tuple(gradient.to(q.dtype) for gradient in found)


FUNCTIONS = {
    "_scaled_dot_product_flash_attention": _attention,
    "_scaled_dot_product_flash_attention_backward": _attention_backward,
    "cudnn_convolution.out": _convolution,
    "cudnn_convolution_transpose": _transposed,
    "_cudnn_rnn": _rnn,
    "_cudnn_rnn_backward": _rnn_backward,
    "_cudnn_rnn_flatten_weight": _flattened,
}


@contextlib.contextmanager
def cudnn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let torch on the CPU have cuDNN, for the Triton engine in the interpreter."""
    library = torch.library.Library("aten", "IMPL")
    for name, function in FUNCTIONS.items():
        library.impl(name, function, "CPU")
    for place in ("calls", "recurrent", "attention", "availability"):
        monkeypatch.setattr(f"hybrid_lab.engines.triton.run.{place}.has_cudnn", lambda: True)
    for module in (recurrent, attention):
        module.is_trusted.cache_clear()
    try:
        yield
    finally:
        for module in (recurrent, attention):
            module.is_trusted.cache_clear()
        library._destroy()
