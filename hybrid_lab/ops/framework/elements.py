"""Functions that several Element kernels share: the place of an element of cut and joined arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hybrid_lab.ops.framework.protocols import Elements, Index, Place


def among_zeros(elements: Elements, cut: tuple[slice, ...], place: Place) -> str:
    """The element of input 0 that lies at `place` where `cut` puts the whole of it among zeros."""
    inner, guards = [], []
    for index, part, size, whole in zip(place, cut, elements.shape(0), elements.shape(1), strict=True):
        start, _, step = part.indices(whole)
        sign = 1 if step > 0 else -1
        at, guard = elements.divided(index * sign + -start * sign, abs(step), size)
        inner.append(at)
        guards += [guard] * bool(guard)
    guard = " & ".join(guards)
    return str(elements.where(guard, elements.read(0, inner, guard), elements.literal(0)))


def joined(elements: Elements, index: Index, ends: Sequence[int], read: Callable[[int, int, str], str]) -> str:
    """The element of that input to which an index along an axis leads. ends : where each input's part ends

    read : (input, where its part starts, condition) -> the element's name
    """
    parts, start = [], 0
    for number, end in enumerate(ends):
        if index.smallest < end and index.largest >= start:
            low = [f"(({index}) >= {elements.shown(start)})"] if index.smallest < start else []
            high = [f"(({index}) < {elements.shown(end)})"] if index.largest >= end else []
            parts.append((end, read(number, start, " & ".join(low + high))))
        start = end
    text = parts[-1][1]
    for end, name in reversed(parts[:-1]):
        text = f"tl.where(({index}) < {elements.shown(end)}, {name}, {text})"
    return text


def on_diagonal(elements: Elements, place: Place, row: int, column: int, k: int, source: Place) -> str:
    """In kernels: the element of input 0 at `source` if the axes row and column are on diagonal k, else 0."""
    if not place[row].variables and not place[column].variables:
        hit = place[column].constant == place[row].constant + k
        return str(elements.read(0, source) if hit else elements.literal(0))
    guard = f"(({place[column]}) == ({place[row]}) + {k})"
    return str(elements.where(guard, elements.read(0, source, guard), elements.literal(0)))
