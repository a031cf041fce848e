"""The inputs of programs: floating, whole numbers or masks, of several dtypes, in batches of any size or of rank 0."""

from __future__ import annotations

from typing import Any, NamedTuple

from hybrid_lab import nd
from tests.random_programs.run import numbers
from tests.random_programs.writing import Chance

#: Sizes behind the batch, by rank; and those that arrays of more than 2,000 elements have now and then.
_SIZES = {1: (1, 3, 4, 5), 2: (1, 2, 4, 5), 3: (1, 2, 4, 6), 4: (1, 2, 4)}
_LARGE = {1: (1500,), 2: (48, 40), 3: (12, 16)}

#: The batches of a program, of which the first one comes first; rarely none or many rows.
_BATCHES = [(2, 3), (1, 2), (4, 2), (3, 1)]
_UNUSUAL = [(2, 0), (0, 3), (3, 150), (100, 2)]

_WHOLE = ["int32", "int32", "int64", "int64", "uint8", "int8"]


class Input(NamedTuple):
    """One input. shape : behind the batch, or None for rank 0; kind : as in `run.numbers`"""

    seed: int
    shape: tuple[int, ...] | None
    kind: str
    dtype: str

    @property
    def floating(self) -> bool:
        return self.dtype.startswith("float")

    def full_shape(self, batch: int) -> tuple[int, ...]:
        return () if self.shape is None else (batch, *self.shape)

    def draft(self, batch: int) -> Any:
        """An array that classes are written on."""
        kind = "plain" if self.floating else self.kind
        return nd.array(numbers(self.seed, self.full_shape(batch), kind), dtype=self.dtype)

    def text(self, batch: int) -> str:
        """The expression that makes it in a program."""
        more = [] if (self.kind, self.dtype) == ("plain", "float32") else [repr(self.kind)]
        more += [] if self.dtype == "float32" else [repr(self.dtype)]
        return f"run.array({', '.join([str(self.seed), str(self.full_shape(batch)), *more])})"


def choose_input(chance: Chance, finite: bool, first: bool, rows: int) -> Input:
    """An input; the first one of a program has a batch, of at most so many rows."""
    seed = chance.randrange(1000)
    if not first and chance.often(0.1):
        return Input(seed, None, "plain", "float32")
    rank = chance.one_of([1, 1, 2, 2, 3, 3, 4, 0])
    if not rank:
        kind = chance.one_of(["whole", "whole", "mask"])
        shape = (3,) if chance.often(0.7) else (4, 2)
        return Input(seed, shape, kind, "bool" if kind == "mask" else chance.one_of(_WHOLE))
    sizes = _LARGE if rank in _LARGE and rows < 10 and chance.often(0.04) else _SIZES
    shape = tuple(chance.one_of(sizes[rank]) for _ in range(rank))
    kinds = ["plain"] * 6 + ["ties", "special"] if finite else ["plain", "special", "special"]
    dtype = chance.one_of(["float64", "float16"]) if chance.often(0.05) else "float32"
    return Input(seed, shape, chance.one_of(kinds), dtype)


def choose_batches(chance: Chance) -> tuple[int, int]:
    """The batch of the first inputs, and another one."""
    return chance.one_of(_UNUSUAL if chance.often(0.2) else _BATCHES)
