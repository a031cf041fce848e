"""Windows of a pooling: their places, sweeps over them for NumPy, and their elements for kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import ceil, prod
from types import EllipsisType

import numpy as np

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.ops.framework.dtypes import is_floating
from hybrid_lab.ops.framework.pointwise import MAXIMUM
from hybrid_lab.ops.framework.protocols import Elements, Index, Place, Scratch
from hybrid_lab.ops.framework.types import Shape

#: Kernels read the places of a window one by one, so there are at most this many.
MOST_PLACES = 64


class Windows:
    """The places of the windows of a pooling; one entry per spatial axis."""

    def __init__(self, spatial: Shape, kernel: Shape, stride: Shape, pad: Shape, output: Shape):
        self.spatial, self.kernel, self.stride, self.pad, self.output = spatial, kernel, stride, pad, output
        # The padded input as far as windows reach; "full" reaches beyond the symmetric padding, "valid" may
        # stop before the end.
        self.reach = tuple((out - 1) * step + size for out, step, size in zip(output, stride, kernel, strict=True))
        self.padded = any(pad) or any(reach > size for reach, size in zip(self.reach, spatial, strict=True))

    def counts(self, with_padding: bool) -> list[np.ndarray]:
        """Per axis: how many elements each window averages over.

        Padding counts up to the symmetric border, as in MXNet. A window behind it, which pooling_convention='full'
        may add, counts as one element: its mean is 0.
        """
        made = []
        for size, kernel, step, border, out in zip(
            self.spatial, self.kernel, self.stride, self.pad, self.output, strict=True
        ):
            start = np.arange(out) * step - border
            stop = np.minimum(start + kernel, size + border)
            counts = stop - start if with_padding else np.minimum(stop, size) - np.maximum(start, 0)
            made.append(np.maximum(counts, 1))
        return made

    def places(self) -> Iterator[tuple[slice, ...]]:
        """For every position inside a window, row by row: the part of the padded input that meets it."""
        for place in product(*map(range, self.kernel)):
            yield tuple(
                slice(at, at + (out - 1) * step + 1, step)
                for at, out, step in zip(place, self.output, self.stride, strict=True)
            )

    @property
    def disjoint(self) -> bool:
        return all(step >= size for step, size in zip(self.stride, self.kernel, strict=True))

    def inside(self) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """The common part of the padded and the original array, as slices of either."""
        padded = tuple(
            slice(border, min(border + size, reach))
            for border, size, reach in zip(self.pad, self.spatial, self.reach, strict=True)
        )
        original = tuple(slice(0, part.stop - part.start) for part in padded)
        return padded, original

    def padding(self, data: np.ndarray, fill: float, scratch: Scratch) -> np.ndarray:
        """data surrounded by `fill` as far as windows reach; data itself if windows reach no further."""
        if not self.padded:
            return data
        result = scratch((*data.shape[:2], *self.reach), data.dtype)
        result.fill(fill)
        target, source = self.inside()
        np.copyto(result[everywhere(target)], data[everywhere(source)])
        return result

    def sweep(self, data: np.ndarray, combine: np.ufunc, out: np.ndarray, scratch: Scratch) -> np.ndarray:
        """`combine` over every window, one axis after the other: kernel sizes add up instead of multiplying."""
        rank = len(self.kernel)
        current = data
        for axis in range(rank):
            size, step, length = self.kernel[axis], self.stride[axis], self.output[axis]
            shape = (*current.shape[: axis + 2], *current.shape[axis + 2 :])
            shape = (*shape[: axis + 2], length, *shape[axis + 3 :])
            target = out if axis == rank - 1 else scratch(shape, data.dtype)
            lead = (slice(None),) * (axis + 2)
            parts = [current[(*lead, slice(at, at + (length - 1) * step + 1, step))] for at in range(size)]
            if size == 1:
                np.copyto(target, parts[0])
            else:
                combine(parts[0], parts[1], out=target)
                for part in parts[2:]:
                    combine(target, part, out=target)
            current = target
        return out


def everywhere(where: Sequence[slice]) -> tuple[EllipsisType | slice, ...]:
    """An index of the last axes, for all of the first axes."""
    return (..., *where)


# -- in kernels --------------------------------------------------------------------------------------------------------


def covered(elements: Elements, windows: Windows, place: Place) -> list[tuple[str, str]]:
    """The elements of input 0 in a window, row by row, each with the condition that the element is not padding ("" if
    it never is padding). place : image, channel and window. Raises Unmappable for windows of more than MOST_PLACES.
    """
    few(prod(windows.kernel))
    found = []
    for at in product(*map(range, windows.kernel)):
        pixel, guards = list(place[:2]), []
        for index, step, border, offset, size in zip(
            place[2:], windows.stride, windows.pad, at, windows.spatial, strict=True
        ):
            pixel.append(index * step + (offset - border))
            guards.append(elements.guard(pixel[-1], size))
        guard = " & ".join(filter(None, guards))
        found.append((elements.read(0, pixel, guard), guard))
    return found


def covering(elements: Elements, windows: Windows, place: Place) -> list[tuple[Place, Index, str]]:
    """The windows that an element of the input lies in: (image, channel and window; the index of its place in the
    window, row by row; the condition that the window exists). Raises Unmappable if they are many.
    """
    axes = [
        list(_along(elements, *sizes))
        for sizes in zip(place[2:], windows.kernel, windows.stride, windows.pad, windows.output, strict=True)
    ]
    few(prod(map(len, axes)))
    found: list[tuple[Place, Index, str]] = []
    for chosen in product(*axes):
        number = elements.zero
        for (_, at, _), size in zip(chosen, windows.kernel, strict=True):
            number = number * size + at
        guard = " & ".join(filter(None, (guard for _, _, guard in chosen)))
        found.append(((*place[:2], *(window for window, _, _ in chosen)), number, guard))
    return found


def _along(
    elements: Elements, pixel: Index, kernel: int, stride: int, pad: int, output: int
) -> Iterator[tuple[Index, Index, str]]:
    """The windows over a pixel along one axis: their index, the place in them, and the condition."""
    shifted, overlapping = pixel + pad, ceil(kernel / stride)
    if output <= overlapping:
        for number in range(output):
            at = shifted + -number * stride
            yield elements.zero + number, at, elements.guard(at, kernel)
        return
    last = elements.quotient(shifted, stride)
    for back in range(overlapping):
        window = last + -back
        at = shifted + window * -stride
        inside = f"(({at}) < {kernel})" if stride * (back + 1) > kernel else ""
        yield window, at, " & ".join(filter(None, (elements.guard(window, output), inside)))


def few(places: int) -> None:
    """Raises Unmappable for windows of more than MOST_PLACES."""
    if places > MOST_PLACES:
        raise Unmappable(f"a window of {places} places; kernels have up to {MOST_PLACES}")


def divisor(elements: Elements, windows: Windows, window: Place, with_padding: bool) -> str:
    """How many elements a window averages over, as `Windows.counts` has it. window : an index per spatial axis."""
    factors = []
    axes = zip(window, windows.spatial, windows.kernel, windows.stride, windows.pad, strict=True)
    for counts, (index, size, kernel, step, border) in zip(windows.counts(with_padding), axes, strict=True):
        if (counts == counts[0]).all():
            factors.append(str(counts[0]))
            continue
        start = index * step + -border
        first, end = (f"({start})", size + border) if with_padding else (f"tl.maximum({start}, 0)", size)
        count = f"(tl.minimum({start + kernel}, {elements.shown(end)}) - {first})"
        behind = (len(counts) - 1) * step - border >= end
        factors.append(f"tl.maximum({count}, 1)" if behind else count)
    if all(factor.lstrip("-").isdigit() for factor in factors):
        return str(elements.literal(prod(map(int, factors))))
    return f"({' * '.join(factors)})"


def folded(elements: Elements, parts: Sequence[str], combine: Callable[[str, str], str], name: str) -> str:
    """The parts combined one after the other, a line each."""
    total, *rest = parts
    for number, part in enumerate(rest, 2):
        total = combine(total, part)
        total = total if number == len(parts) else elements.named(total, name)
    return total


def added(elements: Elements, parts: Sequence[str]) -> str:
    """The sum of the parts."""
    return folded(elements, parts, lambda total, part: f"{total} + {part}", "total")


def largest(elements: Elements, parts: Sequence[str]) -> str:
    """The maximum of the parts; NaN if a part is NaN."""
    return folded(elements, parts, MAXIMUM.format, "largest")


def lowest(dtype: np.dtype) -> float:
    """What padding counts as in a maximum."""
    return -np.inf if is_floating(dtype) else int(np.iinfo(dtype).min)
