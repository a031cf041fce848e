"""Kernel: a compiled kernel and its launch on NumPy arrays."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import linecache
import os
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from hybrid_lab.engines.cache import cache_folder
from hybrid_lab.engines.triton.availability import device
from hybrid_lab.engines.triton.source import KernelSource, power_of_two

#: Elements per tile in the interpreter, where a program takes milliseconds however large its tiles are.
INTERPRETER_TILE = 65536


class Transfers:
    """Host copies that launches have made, for reports: on a GPU each input goes there and each output comes back."""

    to_device = to_host = bytes = 0


transfers = Transfers()


class Kernel:
    """source : the generated text and its arguments; blocks : elements of a tile along each axis"""

    def __init__(self, source: KernelSource):
        self.source = source
        self.blocks = tile_sizes(source) if device().interpreted else dict(source.blocks)
        self.grid = tuple(-(-source.sizes[size] // self.blocks.get(block, 1)) for size, block in source.grid)
        self._function = load_function(source.name, source.code)

    def __call__(self, inputs: list[Any], outputs: list[np.ndarray], rng: tuple[int, int]) -> None:
        """Run the kernel: inputs and outputs are contiguous arrays in the order of the source's arguments."""
        import torch

        where, source = device(), self.source
        numbers = [_signed(rng[0])] * bool(source.draws) + [_signed(rng[1] + draw) for draw in source.draws]
        numbers += [source.sizes[name] for name in source.passed]
        tensors = [_tensor(array) for array in inputs]
        if where.interpreted:
            targets = [torch.from_numpy(array) for array in outputs]
            self._function[self.grid](*tensors, *targets, *numbers, **self.blocks)
            return
        tensors = [tensor.to(where.torch) for tensor in tensors]
        targets = [
            torch.empty(array.shape, dtype=torch.from_numpy(array).dtype, device=where.torch) for array in outputs
        ]
        self._function[self.grid](*tensors, *targets, *numbers, **self.blocks)
        for array, target in zip(outputs, targets, strict=True):
            torch.from_numpy(array).copy_(target)
        transfers.to_device += len(tensors)
        transfers.to_host += len(targets)
        transfers.bytes += sum(array.nbytes for array in (*inputs, *outputs))

    def __repr__(self) -> str:
        return self.source.text


def _tensor(array: np.ndarray) -> Any:
    """The array as a torch tensor without copying, where it is contiguous and writable."""
    import torch

    if not array.flags.c_contiguous or not array.flags.writeable:
        array = np.array(array, order="C")
    return torch.from_numpy(array)


def _signed(number: int) -> int:
    """A 64-bit pattern as Triton's int64 takes it."""
    return number - (1 << 64) if number >= 1 << 63 else number


def tile_sizes(source: KernelSource) -> dict[str, int]:
    """The blocks for the interpreter: as few programs as tiles of INTERPRETER_TILE elements allow.

    A product has three tiles, each of two of its blocks.
    """
    if source.kind == "product":
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
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    folder = cache_folder("kernels")
    file = str((folder or Path("hybrid_lab-kernels")) / f"{name[:60]}_{digest}.py")
    if folder is not None:
        with contextlib.suppress(OSError):  # the text in linecache is enough
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            partial = f"{file}.{os.getpid()}"
            Path(partial).write_text(text, encoding="utf-8")
            os.replace(partial, file)
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    scope: dict[str, Any] = {"__name__": f"hybrid_lab_kernel_{digest}", "__file__": file}
    exec(compile(text, file, "exec"), scope)
    return scope[name]
