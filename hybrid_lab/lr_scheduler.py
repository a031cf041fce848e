"""Learning-rate schedules: the rate as a function of the number of updates done so far.

A schedule here is a pure function of `num_update` (MXNet's mutate their `base_lr` while they run), so a resumed or
rewound training run sees the same rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hybrid_lab.diagnostics.formatting import check_choice
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

__all__ = ["CosineScheduler", "FactorScheduler", "LRScheduler", "MultiFactorScheduler", "PolyScheduler"]


_MOST_CHANGES = 1_000_000
"""So many multiplications by a factor take a moment; more are a power."""


class LRScheduler:
    """Base of the schedules: `scheduler(num_update) -> float`.

    base_lr : the rate a schedule starts from, after the warm-up
    warmup_steps : updates during which the rate climbs from `warmup_begin_lr` to `base_lr`
    warmup_mode : 'linear', or 'constant' to stay at `warmup_begin_lr`

    Subclasses override `decayed(num_update)`, or `__call__` as in MXNet.
    """

    def __init__(
        self, base_lr: float = 0.01, warmup_steps: int = 0, warmup_begin_lr: float = 0.0, warmup_mode: str = "linear"
    ) -> None:
        if warmup_begin_lr > base_lr:
            raise ValueError(
                f"warmup_begin_lr ({warmup_begin_lr}) is above base_lr ({base_lr}); a warm-up must increase the rate"
            )
        if warmup_steps < 0:
            raise ValueError(f"warmup_steps must be a number of updates, not {warmup_steps}")
        check_choice("warmup_mode", warmup_mode, ("linear", "constant"))
        self.base_lr = base_lr
        self.warmup_steps = warmup_steps
        self.warmup_begin_lr = warmup_begin_lr
        self.warmup_final_lr = base_lr
        self.warmup_mode = warmup_mode

    def get_warmup_lr(self, num_update: int) -> float:
        """The rate during the warm-up, for num_update < warmup_steps."""
        if self.warmup_mode == "constant":
            return self.warmup_begin_lr
        climb = self.warmup_final_lr - self.warmup_begin_lr
        return self.warmup_begin_lr + climb * num_update / self.warmup_steps

    def decayed(self, num_update: int) -> float:
        """The rate after the warm-up."""
        raise NotImplementedError(f"{type(self).__name__} overrides neither decayed() nor __call__()")

    def __call__(self, num_update: int) -> float:
        """The rate to use for the update number `num_update` (the largest count over all parameters)."""
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        return self.decayed(num_update)

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={value!r}" for key, value in vars(self).items() if not key.startswith("warmup"))
        return f"{type(self).__name__}({shown})"


class FactorScheduler(LRScheduler):
    """Multiply by `factor` every `step` updates, never below `stop_factor_lr`."""

    def __init__(
        self, step: int, factor: float = 1.0, stop_factor_lr: float = 1e-8, base_lr: float = 0.01, **warmup: Any
    ) -> None:
        super().__init__(base_lr, **warmup)
        if step < 1:
            raise ValueError(f"step must be at least 1, not {step}")
        if factor > 1.0:
            raise ValueError(f"factor must be at most 1, so that the rate decreases, not {factor}")
        self.step = step
        self.factor = factor
        self.stop_factor_lr = stop_factor_lr

    def decayed(self, num_update: int) -> float:
        rate, changes = self.base_lr, -(-num_update // self.step) - 1
        if self.factor == 1.0:
            return rate if changes < 1 else max(rate, self.stop_factor_lr)
        if changes > _MOST_CHANGES:
            return max(rate * self.factor**changes, self.stop_factor_lr)
        for _ in range(changes):  # not a power: the digits are MXNet's
            rate *= self.factor
            if rate < self.stop_factor_lr:
                return self.stop_factor_lr
        return rate


class MultiFactorScheduler(LRScheduler):
    """Multiply by `factor` after each of the update numbers in `step`, an increasing list.

    ```python
    schedule = mx.lr_scheduler.MultiFactorScheduler(step=[5, 8], factor=0.1, base_lr=1.0)
    [round(schedule(step), 3) for step in (0, 6, 9)]
    ```
    """

    def __init__(self, step: Sequence[int], factor: float = 1.0, base_lr: float = 0.01, **warmup: Any) -> None:
        super().__init__(base_lr, **warmup)
        step = list(step)
        if not step or step[0] < 1 or any(later <= earlier for earlier, later in zip(step, step[1:], strict=False)):
            raise ValueError(f"step must be an increasing list of update numbers of at least 1, not {step}")
        if factor > 1.0:
            raise ValueError(f"factor must be at most 1, so that the rate decreases, not {factor}")
        self.step = step
        self.factor = factor

    def decayed(self, num_update: int) -> float:
        rate = self.base_lr
        for _ in range(sum(num_update > step for step in self.step)):
            rate *= self.factor
        return rate


class _FinalScheduler(LRScheduler):
    """From `base_lr` to `final_lr` in `max_update` updates; the curve is the subclass's `remaining`."""

    def __init__(self, max_update: int, base_lr: float = 0.01, final_lr: float = 0.0, **warmup: Any) -> None:
        super().__init__(base_lr, **warmup)
        if max_update < 1:
            raise ValueError(f"max_update must be at least 1, not {max_update}")
        self.max_update = max_update
        self.final_lr = final_lr

    def remaining(self, progress: float) -> float:
        """How much of the way down is left at `progress` in [0, 1]: 1 at the start, 0 at the end."""
        raise NotImplementedError

    def decayed(self, num_update: int) -> float:
        steps = self.max_update - self.warmup_steps
        progress = 1.0 if steps <= 0 else min(1.0, (num_update - self.warmup_steps) / steps)
        return self.final_lr + (self.base_lr - self.final_lr) * self.remaining(progress)


class PolyScheduler(_FinalScheduler):
    """final_lr + (base_lr - final_lr) * (1 - progress) ** pwr."""

    def __init__(
        self, max_update: int, base_lr: float = 0.01, pwr: float = 2, final_lr: float = 0.0, **warmup: Any
    ) -> None:
        super().__init__(max_update, base_lr, final_lr, **warmup)
        self.power = pwr

    def remaining(self, progress: float) -> float:
        return (1.0 - progress) ** self.power


class CosineScheduler(_FinalScheduler):
    """final_lr + (base_lr - final_lr) * (1 + cos(pi * progress)) / 2.

    ```python
    schedule = mx.lr_scheduler.CosineScheduler(max_update=10, base_lr=0.1, warmup_steps=2)
    [round(schedule(step), 3) for step in (0, 1, 2, 6, 10)]
    ```
    """

    def remaining(self, progress: float) -> float:
        return (1.0 + math.cos(math.pi * progress)) / 2.0


_suggest_names(__name__)
