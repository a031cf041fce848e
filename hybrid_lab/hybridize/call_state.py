"""CallState: what a compiled call knows of its parameters from one call to the next; all else of it never changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hybrid_lab.ndarray import changes, tape

if TYPE_CHECKING:
    import numpy as np

    from hybrid_lab.hybridize.compiled_call import CompiledCall
    from hybrid_lab.hybridize.head_sets import HeadSets
    from hybrid_lab.ndarray.context import Context
    from hybrid_lab.ndarray.ndarray import NDArray

_link = tape.link


class CallState:
    """The arrays of the parameters of one compiled call, and what was read of them last.

    arrays : of the parameters, on the context of the call; buffers : theirs
    requests : (name, whether its gradient is wanted) of each parameter, if calls are recorded
    checked : `changes.count` when `still_valid` last looked
    cached_inputs : versions of the parameters (None: always read them again), and the arrays that the forward reads
    packed : whether the engine has packed the parameters; quiet : calls since they changed
    patience : how many such calls until the engine packs them
    gradients : the programs of gradients of gradients, see `higher_order.gradient_program`
    head_sets : the programs that differentiate other outputs
    one_step : whether a call stays one step of the history if its gradients are differentiated; None: not known yet
    """

    __slots__ = (
        "_links", "arrays", "buffers", "cached_inputs", "checked", "context", "gradients", "head_sets", "one_step",
        "packed", "parameters", "patience", "quiet", "recording", "requests",
    )  # fmt: skip

    def __init__(self, parameters: Sequence[Any], context: Context, recording: bool) -> None:
        self.parameters, self.context, self.recording = parameters, context, recording
        self.arrays: list[NDArray] = [parameter._on(parameter._data, context) for parameter in parameters]
        self.buffers = [array.buffer for array in self.arrays]
        for buffer in self.buffers:
            buffer.watched = True
        self.requests = self.requests_now()
        self.checked = changes.count
        self.cached_inputs: tuple[list[int] | None, list[np.ndarray]] = (None, [])
        self.packed, self.quiet, self.patience = False, 0, 1
        self.gradients: dict[Any, tuple[CompiledCall | None, tuple[int, ...]]] = {}
        self.head_sets: HeadSets | None = None
        self.one_step: bool | None = None
        # `changes.count` when it was last looked up what the parameters have on the tape (None: in any case), and that.
        self._links: tuple[int | None, tuple[tape.Link, ...]] = (None, ())

    def still_valid(self) -> bool:
        """Whether the parameters have the arrays, and ask for the gradients, that the call was compiled for."""
        now = changes.count
        if self.checked == now:
            return True
        if not self.holds_current() or self.requests_now() != self.requests:
            return False
        if any(buffer.exported for buffer in self.buffers):
            self.cached_inputs = (None, [])
        self.checked = now
        return True

    def holds_current(self) -> bool:
        """Whether its arrays are the parameters' current arrays."""
        return all(
            parameter._array is array or any(array is other for other in parameter._data or ())
            for parameter, array in zip(self.parameters, self.arrays, strict=True)
        )

    def requests_now(self) -> tuple[tuple[str, bool], ...]:
        """(name, whether its gradient is wanted) of each parameter, if calls are recorded."""
        if not self.recording:
            return ()
        pairs = []
        for parameter in self.parameters:
            arrays = parameter._data
            pairs.append(
                (parameter.name, arrays is not None and _link(parameter._on(arrays, self.context)) is not None)
            )
        return tuple(pairs)

    def links(self) -> Sequence[tape.Link]:
        """What a call links to for each parameter: looked up again after a change that `changes` tells of."""
        known, now = self._links, changes.count
        if known[0] != now:
            links = tuple(map(_link, self.arrays))
            # The history of a result may be used up, of which `changes` does not tell.
            self._links = known = None if tape.Output in map(type, links) else now, links
        return known[1]

    def for_other_heads(self) -> CallState:
        """The state of the same call with a backward for other outputs."""
        twin = type(self)(self.parameters, self.context, self.recording)
        twin.arrays, twin.buffers, twin.requests = self.arrays, self.buffers, self.requests
        twin.checked, twin.gradients, twin.head_sets = self.checked, self.gradients, self.head_sets
        twin.one_step = self.one_step
        return twin
