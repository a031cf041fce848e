"""The parameters of the operator RNN lie packed in one vector: which gates' weights and biases, in which order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.ops.framework.types import Shape

GATES: dict[str, tuple[str, ...]] = {
    "rnn_relu": ("",),
    "rnn_tanh": ("",),
    "lstm": ("_i", "_f", "_c", "_o"),
    "gru": ("_r", "_z", "_o"),
}
"""Mode of RNN -> MXNet's names of its gates, in their order."""


class Packing(NamedTuple):
    """Sizes of recurrent layers whose parameters are packed."""

    mode: str
    num_hidden: int
    num_layers: int = 1
    bidirectional: bool = False

    @property
    def directions(self) -> str:
        """A letter for each direction: l, or l and r."""
        return "lr" if self.bidirectional else "l"

    def parts(self, num_input: int) -> Iterator[tuple[str, Shape]]:
        """Name and shape of each gate's part, in order: `l0_i2h_f_weight` and (num_hidden, num_input).

        num_input : channels of the input of the first layer
        """
        hidden, places = self.num_hidden, [(i, side) for i in range(self.num_layers) for side in self.directions]
        for number, side in places:
            width = num_input if number == 0 else hidden * len(self.directions)
            for source, columns in (("i2h", width), ("h2h", hidden)):
                for gate in GATES[self.mode]:
                    yield f"{side}{number}_{source}{gate}_weight", (hidden, columns)
        for number, side in places:
            for source in ("i2h", "h2h"):
                for gate in GATES[self.mode]:
                    yield f"{side}{number}_{source}{gate}_bias", (hidden,)

    def size(self, num_input: int) -> int:
        """The number of all parameters."""
        rows = len(GATES[self.mode]) * self.num_hidden * len(self.directions)
        above = self.num_hidden * (len(self.directions) + 1) + 2
        return rows * (num_input + self.num_hidden + 2) + (self.num_layers - 1) * rows * above

    def num_input(self, size: int) -> int:
        """The channels of the input, from the number of all parameters. Raises ShapeError if there are none."""
        rows = len(GATES[self.mode]) * self.num_hidden * len(self.directions)
        channels = (size - self.size(0)) // rows
        if channels < 1 or self.size(channels) != size:
            raise ShapeError(
                f"{size} packed parameters do not fit {self.num_layers} layers of {self.mode} with {self.num_hidden} "
                "units, for any number of input channels"
            )
        return channels
