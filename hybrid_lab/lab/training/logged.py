"""Values that `mx.log` takes, as numbers: at once if they are on the host, later if they are on a GPU."""

from __future__ import annotations

import math
import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, SupportsFloat, TypeAlias

import numpy as np

from hybrid_lab.ndarray import NDArray

if TYPE_CHECKING:
    import torch

SMALL = 1024
"""Most elements of an array of which the elements wait for their mean."""
ArrayBytes: TypeAlias = tuple[bytes, np.dtype]
"""The elements of an array of at most SMALL elements, and their dtype. Bytes are copied and joined in a third of the
time of arrays.
"""
RING = 256
"""Most values that wait on a GPU; of one more the oldest is read, which may wait for the GPU."""


class OnDevice:
    """The mean of an array on a GPU. It is computed there, after what was launched before, so that later writes to the
    array do not change it.
    """

    __slots__ = ("_event", "_tensor")

    def __init__(self, tensor: torch.Tensor):
        import torch

        tensor = tensor.detach()
        dtype = torch.float32 if tensor.device.type == "mps" else torch.float64  # which Apple's GPUs do not have
        self._tensor = tensor.mean(dtype=dtype)
        self._event = torch.cuda.Event() if tensor.is_cuda else None
        if self._event is not None:
            self._event.record(torch.cuda.current_stream(tensor.device))

    @property
    def is_ready(self) -> bool:
        """Whether a read does not wait."""
        return self._event is None or bool(self._event.query())

    def read(self) -> float:
        """The number; waits for it, and for nothing that was launched later."""
        if self._event is None:
            return float(self._tensor)
        import torch

        self._event.synchronize()
        with torch.cuda.stream(_reading_stream(self._tensor.device)):
            return float(self._tensor)


_streams: dict[torch.device, torch.cuda.Stream] = {}


def _reading_stream(device: torch.device) -> torch.cuda.Stream:
    """A stream of its own for reads: one on the stream of the training would wait for all that is launched there."""
    if device not in _streams:
        import torch

        _streams[device] = torch.cuda.Stream(device)
    return _streams[device]


class Ring:
    """Values in the order of logging, beginning with the first value still on a GPU.

    values : the name, the step and the value of each
    """

    def __init__(self) -> None:
        self.values: deque[tuple[str, int, float | OnDevice]] = deque()
        self._names: Counter[str] = Counter()

    def count(self, name: str) -> int:
        """How many values of this name wait."""
        return self._names[name]

    def put(self, name: str, step: int, value: float | OnDevice) -> list[tuple[str, int, float]]:
        """Keep a value; returns the (name, step, number) of the values that had to give way to it."""
        self.values.append((name, step, value))
        self._names[name] += 1
        if len(self.values) <= RING:
            return []
        return [self._oldest(), *self.ready()]

    def ready(self) -> Iterator[tuple[str, int, float]]:
        """Take the values that can be read without waiting, from the oldest on."""
        while self.values and (not isinstance(value := self.values[0][2], OnDevice) or value.is_ready):
            yield self._oldest()

    def all(self) -> Iterator[tuple[str, int, float]]:
        """Take all values; waits for the GPU."""
        while self.values:
            yield self._oldest()

    def _oldest(self) -> tuple[str, int, float]:
        name, step, value = self.values[0]
        number = value.read() if isinstance(value, OnDevice) else value
        self.values.popleft()
        self._names[name] -= 1
        return name, step, number


def number_of(name: str, value: object) -> float | OnDevice:
    """A number, or the mean of an array. Raises TypeError for what is neither."""
    if isinstance(value, (float, int)):
        return _float(value)
    if isinstance(value, NDArray):
        buffer = value.buffer
        if not buffer.host_stale and not buffer.stored:
            return _mean(name, value, value.host_view)
        if buffer.stored or buffer.device is None or buffer.device_stale:
            return _mean(name, value, value.asnumpy())
        return OnDevice(value.raw(buffer.device.device)) if value.size else _refuse(name, "an empty array")
    if isinstance(value, (np.ndarray, np.generic)):
        return _mean(name, value, value)
    if "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor):
        return _of_tensor(name, value)
    if hasattr(value, "__float__") and not hasattr(value, "__array__"):
        try:  # Fraction, Decimal and the like
            return _float(value)
        except (TypeError, ValueError):
            _refuse(name, type(value).__name__)
    try:
        return _mean(name, value, np.asarray(value))
    except (TypeError, ValueError, RuntimeError):
        return _refuse(name, "an empty array" if isinstance(value, (list, tuple)) and not value else _kind(value))


def _float(value: SupportsFloat) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 300 digits
        return -math.inf if str(value).startswith("-") else math.inf


def _mean(name: str, value: object, array: np.ndarray | np.generic) -> float:
    """The mean of a NumPy array or scalar."""
    size, dtype = array.size, array.dtype
    if size == 0:
        return _refuse(name, "an empty array")
    if dtype.kind not in "fiub" and (dtype.kind in "OSUTcmM" or dtype.fields is not None):
        return _refuse(name, _kind(value))  # not bfloat16 and other numbers that NumPy itself does not have
    if size == 1:
        return float(array.item())
    return mean_of(np.asarray(array))


def mean_of(value: np.ndarray) -> float:
    """The mean of an array of numbers."""
    if value.size <= _ONES.size:
        # A product: no reduction is as fast, and it gives no warning of an infinity, which the curve notes.
        return float(np.vdot(value.astype(np.float64), _ONES[: value.size])) / value.size
    with np.errstate(all="ignore"):
        return float(np.mean(value, dtype=np.float64))


def means_of(values: Sequence[ArrayBytes]) -> list[float]:
    """The mean of each array, the same number as `mean_of` gives. Arrays of one size and type are computed at once."""
    alike: dict[tuple[int, np.dtype], list[int]] = {}
    for number, (data, dtype) in enumerate(values):
        alike.setdefault((len(data), dtype), []).append(number)
    means = [math.nan] * len(values)
    for (_, dtype), numbers in alike.items():
        rows = np.frombuffer(b"".join([values[number][0] for number in numbers]), dtype).reshape(len(numbers), -1)
        with np.errstate(all="ignore"):
            found = np.vecdot(rows.astype(np.float64), _ONES[: rows.shape[1]]) / rows.shape[1]
        for number, mean in zip(numbers, found.tolist(), strict=True):
            means[number] = mean
    return means


_ONES = np.ones(SMALL)


def _of_tensor(name: str, tensor: torch.Tensor) -> float | OnDevice:
    import torch

    if tensor.is_complex() or tensor.is_meta:
        return _refuse(name, f"a tensor of {tensor.dtype}" if tensor.is_complex() else "a tensor without values")
    if tensor.numel() == 0:
        return _refuse(name, "an empty array")
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.device.type != "cpu":
        return OnDevice(tensor)
    return float(tensor if tensor.numel() == 1 else tensor.mean(dtype=torch.float64))


def _kind(value: object) -> str:
    dtype = getattr(value, "dtype", None)
    return type(value).__name__ if dtype is None else f"{type(value).__name__} of {dtype}"


def _refuse(name: str, what: str) -> float:
    raise TypeError(f"mx.log takes a number or an array of numbers for {name!r}, not {what}")
