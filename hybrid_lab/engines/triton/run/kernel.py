"""Kernel: a source made ready to run on this machine's device, and the text of its launches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from hybrid_lab.engines.triton.build import internals, texts
from hybrid_lab.engines.triton.run.availability import device
from hybrid_lab.engines.triton.write.source import KernelSource, power_of_two
from hybrid_lab.system import forks

#: Elements per tile in the interpreter, where a program takes milliseconds however large its tiles are.
INTERPRETER_TILE = 65536
#: The interpreter changes Triton's library while a kernel runs in it: one at a time.
_interpreter = forks.lock()


class Kernel:
    """source : the generated text and its arguments; blocks : elements of a tile along each axis

    `bound` gives launches. In the interpreter it is also called, with tensors - inputs, then outputs, contiguous and
    aligned to 16 bytes - and `numbers`; on a GPU the lines of programs launch its `handle`.
    """

    def __init__(self, source: KernelSource):
        self.source = source
        self.interpreted = device().interpreted
        self.blocks = tile_sizes(source) if self.interpreted else dict(source.blocks)

    def grid(self) -> tuple[int, ...]:
        """How many programs run along each axis of the launch."""
        return self.source.programs(self.blocks)

    @functools.cached_property
    def function(self) -> Any:
        """The function that the interpreter runs."""
        return load_function(self.source.name, self.source.code)

    @functools.cached_property
    def handle(self) -> Any:
        """The compiled kernel on this machine's GPU, from memory or disk."""
        from hybrid_lab.engines.triton.build import compiling

        return compiling.load(self.source)

    def numbers(self, rng: tuple[int, int] = (0, 0)) -> list[int]:
        """The arguments behind the pointers: seed and draws, if it draws, then sizes."""
        source = self.source
        draws = [signed(rng[0])] * bool(source.draws) + [signed(rng[1] + draw) for draw in source.draws]
        return [*draws, *(source.sizes[name] for name in source.passed)]

    def __call__(self, tensors: Sequence[Any], numbers: Sequence[int]) -> None:
        with _interpreter, np.errstate(all="ignore"):  # from elements outside the data too, which are never stored
            self.function[self.grid()](*tensors, *numbers, **self.blocks)

    def bound(self, tensors: Sequence[Any]) -> Callable[[int], None]:
        """A launch on these tensors, to be called with a stream as often as wanted. It keeps their memory."""
        numbers = self.numbers()
        if self.interpreted:
            return lambda stream: self(tensors, numbers)
        addresses = [tensor.data_ptr() for tensor in tensors]
        arguments = [*addresses, *numbers, *self.blocks.values()]
        return internals.bound_launch(self.handle, self.grid(), arguments, tuple(tensors))

    def __repr__(self) -> str:
        return self.source.text


def signed(number: int) -> int:
    """A 64-bit pattern as Triton's int64 takes it."""
    return number - (1 << 64) if number >= 1 << 63 else number


def tile_sizes(source: KernelSource) -> dict[str, int]:
    """The blocks for the interpreter: as few programs as tiles of INTERPRETER_TILE elements allow.

    A product has three tiles, each of two of its blocks, an attention some more.
    """
    if source.kind.endswith("attention"):
        return {**source.blocks, **{name: power_of_two(most, 16, 512) for name, most in source.tiled.items()}}
    if "INNER" in source.tiled:
        rows, inner = (power_of_two(source.tiled[name], 16, 512) for name in ("ROWS", "INNER"))
        columns = max(power_of_two(INTERPRETER_TILE * 4 // max(rows, inner)), 16)
        return {"ROWS": rows, "COLUMNS": power_of_two(source.tiled["COLUMNS"], 16, columns), "INNER": inner}
    blocks = dict(source.blocks)
    for name, useful in source.tiled.items():
        others = prod(size for other, size in blocks.items() if other != name)
        blocks[name] = power_of_two(useful, 1, max(power_of_two(INTERPRETER_TILE // others), 1))
    return blocks


@functools.lru_cache(maxsize=1024)
def load_function(name: str, text: str) -> Any:
    """The jit function in generated source. The text is kept in a file too, for tracebacks and for people."""
    device()
    texts.keep(name, text)
    return internals.function_of(name, text, texts.path_of(name, text))
