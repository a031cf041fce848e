"""Captured launches on the simulated GPU: what is launched meanwhile is written down instead, torch's part too."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulated_gpu import SimulatedGpu


class SimulatedRecorder:
    """Its `capture` is in the place of `capture.by_torch`.

    As with a CUDA graph no kernel runs before the first replay, and a replay reads and writes the addresses of the
    capture: memory that the function takes lives as long as the capture. What torch makes anew is made once while
    capturing too, for its memory's sake. What would wait for the device, or read memory of the host, is an error.
    """

    def __init__(self, gpu: SimulatedGpu):
        self._gpu = gpu

    def capture(self, function: Callable[[], list[Any]]) -> tuple[Callable[[], None], list[Any]]:
        from torch.utils._python_dispatch import TorchDispatchMode

        steps: list[Callable[[], Any]] = []
        memory: list[Any] = []

        class Listener(TorchDispatchMode):
            def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                given = kwargs or {}
                name = op.overloadpacket.__name__
                _permitted(op, args)
                if op.is_view or name.startswith("empty") or name in ("detach", "alias", "_reshape_alias"):
                    memory.append(op(*args, **given))
                    return memory[-1]
                if name.endswith("_"):
                    steps.append(lambda: op(*args, **given))
                    return args[0]
                made = op(*args, **given)

                def again() -> None:
                    fresh = op(*args, **given)
                    places, values = (each if isinstance(each, (tuple, list)) else [each] for each in (made, fresh))
                    for place, value in zip(places, values, strict=True):
                        if place is not None:  # a gradient that was not asked for
                            place.copy_(value)

                steps.append(again)
                return made

        # Torch wraps it for torch.compile, whose import takes seconds.
        plain = Listener.__torch_dispatch__
        Listener.__torch_dispatch__ = getattr(plain, "__wrapped__", plain)
        previous, self._gpu.capturing = self._gpu.capturing, steps
        try:
            with Listener():
                made = function()
        finally:
            self._gpu.capturing = previous

        def replay(memory: list[Any] = memory) -> None:
            for step in steps:
                step()

        return replay, made


def _permitted(op: Any, args: Any) -> None:
    """Raise RuntimeError, as CUDA does, for a call of torch that cannot be a part of a graph."""
    import torch

    waits = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}.intersection(op.tags)
    host = any(isinstance(item, torch.Tensor) and not item.untyped_storage().resizable() for item in args)
    if waits or host:
        raise RuntimeError(f"{op}: operation not permitted when stream is capturing")
