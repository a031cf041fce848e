"""Signature: the inputs and outputs of an operator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Signature:
    """The names of an operator's inputs, and how many outputs it has.

    inputs : names, auxiliary states included; a record whose attributes decide nothing may leave them out: they are the
        parameters of `infer_shape`
    outputs, visible : the number of outputs, and of those that users see, which come first; None: all
    aux : names of the inputs that are auxiliary states, which the operator updates
    aux_always : whether the auxiliary states are updated outside of training too
    """

    inputs: tuple[str, ...] = ()
    outputs: int = 1
    visible: int = None  # type: ignore[assignment]
    aux: tuple[str, ...] = ()
    aux_always: bool = False

    def __post_init__(self) -> None:
        if self.visible is None:
            object.__setattr__(self, "visible", self.outputs)
