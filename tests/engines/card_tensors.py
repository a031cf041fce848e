"""Tensors on a card that is not there: torch computes them on the CPU, and refuses what it would refuse on a GPU.

A `CardTensor` says that it is on the device "card". As on a GPU, a call with tensors of the card and of the CPU is an
error, but for copies and for numbers (tensors without axes).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

#: Calls that take tensors of two devices.
COPIES = frozenset(("copy_", "_to_copy", "_copy_from"))


@cache
def card() -> torch.device:
    """The device. Skips the test if this torch cannot have one of Python's."""
    from torch.utils import backend_registration

    setup = getattr(backend_registration, "_setup_privateuseone_for_python_backend", None)
    if setup is None:
        pytest.skip("torch has no devices that are written in Python")
    setup("card")
    return torch.device("card", 0)


class CardTensor(torch.Tensor):
    """A tensor on the card; inner : its numbers, on the CPU"""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> CardTensor:
        made: Any = torch.Tensor._make_wrapper_subclass(  # noqa: SLF001 - its only name
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            device=card(),
        )  # fmt: skip
        made.inner = inner
        return made

    # What torch computes below the level at which `computed` is called.

    def new_tensor(self, data: Any, **options: Any) -> CardTensor:
        return CardTensor(self.inner.new_tensor(data, **options))

    def tolist(self) -> Any:
        return self.inner.tolist()

    def untyped_storage(self) -> Any:
        return self.inner.untyped_storage()

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(op, args, kwargs or {})


class MixedDevices(AssertionError):
    """A call with tensors of the card and of the CPU."""


def computed(op: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """A call of torch, on the CPU. Its results are on the card if it reads a tensor of it, or names it."""
    given: list[torch.Tensor] = []
    tree_map(lambda item: given.append(item) if isinstance(item, torch.Tensor) else None, (args, kwargs))
    on_card = [item for item in given if isinstance(item, CardTensor)]
    name = op.overloadpacket.__name__
    others = [item for item in given if not isinstance(item, CardTensor) and item.ndim]
    if on_card and others and name not in COPIES:
        raise MixedDevices(f"{op} takes tensors of the card and of the CPU, of {list(others[0].shape)}")
    device = kwargs.get("device")
    result_on_card = bool(on_card) if device is None else torch.device(device) == card()
    if device is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    made = op(*tree_map(_inner, args), **tree_map(_inner, kwargs))
    if name.endswith("_") and not name.startswith("__"):
        return args[0]
    if kwargs.get("out") is not None:
        return kwargs["out"]
    if name == "_local_scalar_dense" or not result_on_card:
        return made
    return tree_map(lambda item: CardTensor(item) if isinstance(item, torch.Tensor) else item, made)


def _inner(item: Any) -> Any:
    return item.inner if isinstance(item, CardTensor) else item


class _Card(TorchDispatchMode):
    """Takes calls that name the card, too."""

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(op, args, kwargs or {})


@contextmanager
def on_card() -> Iterator[torch.device]:
    """While the block runs, torch has the card."""
    device, as_tensor = card(), torch.as_tensor

    def as_tensor_there(data: Any, dtype: Any = None, device: Any = None) -> torch.Tensor:
        return as_tensor(data, dtype=dtype).to(device)  # in two steps: torch's own is below `computed`, too

    torch.as_tensor = as_tensor_there
    try:
        with _Card():
            yield device
    finally:
        torch.as_tensor = as_tensor
