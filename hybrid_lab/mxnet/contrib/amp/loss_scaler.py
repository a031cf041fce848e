"""LossScaler: the factor that keeps small gradients in the range of float16, adjusted while training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.invoke import N
from hybrid_lab.system.logger import logger

INITIAL, LARGEST, SMALLEST = 2.0**16, 2.0**24, 2.0**-24
WINDOW = 2000
"""Steps without an overflow after which the scale is doubled. These numbers are MXNet's, but for the smallest."""


class LossScaler:
    """The loss scale: halved when gradients overflow, doubled after 2000 steps without an overflow.

    loss_scale : the factor for the next loss
    steps : number of steps looked at; skipped : number of steps whose gradients were not finite
    """

    def __init__(self) -> None:
        self.loss_scale = INITIAL
        self.steps = self.skipped = 0
        self._good = 0
        self._warned = False

    def get_state(self) -> dict[str, float]:
        """The scale and the counters, as JSON-able data."""
        return {"loss_scale": self.loss_scale, "good": self._good, "steps": self.steps, "skipped": self.skipped}

    def set_state(self, state: Mapping[str, float]) -> None:
        """Continue from what `get_state` gave."""
        self.loss_scale, self._good = float(state["loss_scale"]), int(state["good"])
        self.steps, self.skipped = int(state["steps"]), int(state["skipped"])

    def overflowed(self, gradients: Sequence[NDArray]) -> bool:
        """Whether a gradient holds an infinity or NaN, so that this step must be skipped; the scale follows."""
        self.steps += 1
        if not gradients or bool(N.multi_all_finite(*gradients, num_arrays=len(gradients)).raw()[0]):
            self._good += 1
            if self._good == WINDOW:
                self._good, self.loss_scale = 0, min(2 * self.loss_scale, LARGEST)
                logger.debug(f"amp: {WINDOW} steps without overflow; the loss is scaled by {self.loss_scale:g} now")
            return False
        self._good, self.loss_scale = 0, max(self.loss_scale / 2, SMALLEST)
        self.skipped += 1
        if self.skipped == 1:
            logger.info(
                f"amp: a gradient is not finite; this step is skipped and the loss scaled by {self.loss_scale:g} from "
                "now on. Further skips are counted in trainer.updates"
            )
        if self.loss_scale < 1 and not self._warned:
            self._warned = True
            logger.warning(
                "amp: gradients are not finite even where the loss is not scaled up: the model or its data have "
                "infinities or NaN of their own, or values above 65504. Run a step after amp.disable() to see which"
            )
        return True

    def __repr__(self) -> str:
        steps = "step" if self.steps == 1 else "steps"
        return f"the loss is scaled by {self.loss_scale:g}; {self.skipped} of {self.steps} {steps} skipped"
