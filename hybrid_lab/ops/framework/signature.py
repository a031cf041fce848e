"""Signature: the inputs and outputs of an operator."""

from __future__ import annotations

from dataclasses import dataclass

from hybrid_lab.diagnostics.errors import AttributeSpecError

MOST_OUTPUTS = 100_000
"""More would be a number in a damaged file, for which nodes would be made for minutes."""


@dataclass(frozen=True)
class Signature:
    """The names of an operator's inputs, and how many outputs it has.

    inputs : names, auxiliary states included; a record whose attributes decide nothing may leave them out: they are the
        parameters of `infer_shape`
    outputs, visible : the number of outputs, and of outputs that users see, which come first; None: all
    aux : names of the inputs that are auxiliary states, which the operator updates
    aux_always : whether the auxiliary states are updated outside of training too
    """

    inputs: tuple[str, ...] = ()
    outputs: int = 1
    visible: int = None  # type: ignore[assignment]
    aux: tuple[str, ...] = ()
    aux_always: bool = False

    def __post_init__(self) -> None:
        if type(self.outputs) is int and self.outputs > MOST_OUTPUTS:
            raise AttributeSpecError(f"an operator has at most {MOST_OUTPUTS:,} outputs, not {self.outputs}")
        if self.visible is None:
            object.__setattr__(self, "visible", self.outputs)
