"""Find the operator that made the first NaN or infinity of a call, by running the call again operator by operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import NonFiniteError
from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.diagnostics.location import Location
from hybrid_lab.engines.memory import is_tensor, to_host
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node
from hybrid_lab.insight.calls import gradients
from hybrid_lab.insight.summary import Summary, summarize
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.interpret import interpret
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ops.framework.dtypes import is_floating

#: Whether an array has a value that is looked for.
IsBad = Callable[[Any], bool]


def not_finite(array: object) -> bool:
    """Whether an NDArray, NumPy array or torch tensor holds NaN or an infinity."""
    if isinstance(array, NDArray):
        buffer = array.buffer
        if buffer.device is not None and not buffer.device_stale:
            return not_finite(array.raw(buffer.device.device))
        array = array.raw()
    if isinstance(array, np.ndarray):
        if not is_floating(array.dtype):
            return False
        with np.errstate(all="ignore"):
            # One number says it, unless the sum of finite values overflows.
            return not np.isfinite(np.add.reduce(array, axis=None)) and not bool(np.isfinite(array).all())
    return is_tensor(array) and array.is_floating_point() and not bool(array.isfinite().all())  # type: ignore[attr-defined]


def is_nan(array: object) -> bool:
    """Whether it holds NaN; infinities do not count."""
    if not not_finite(array):
        return False
    if isinstance(array, NDArray):
        array = array.raw()
    return bool(np.isnan(array).any()) if isinstance(array, np.ndarray) else bool(array.isnan().any())  # type: ignore[attr-defined]


@dataclass
class Culprit:
    """The operator that made a bad value from good values.

    scope : path of the Block in the run; inputs : the operands; made : the fault in its result
    """

    operator: str
    scope: str
    location: Location | None
    inputs: list[str]
    made: str

    def error(self, block: str | None, name: str, part: str) -> NonFiniteError:
        """The error to raise. block : path in the model; name : what to call the Block"""
        what = self.operator if part == "forward" else f"the gradient of {self.operator}"
        message = f"{what} gives {self.made}, in the {part} of {name}"
        return NonFiniteError(message, block, self.operator, part, self.location, self.inputs)


class Origins:
    """Where the bad values of a run come from. `hear` gets the operators of the run in order."""

    def __init__(self, is_bad: IsBad, top: Iterable[Node] = ()):
        self._is_bad, self._top = is_bad, frozenset(top)
        #: By the id of a buffer with bad values: the buffer, and the operator behind it (None: it was given).
        self._known: dict[int, tuple[object, Culprit | None]] = {}
        self._inside: list[Culprit] = []

    def hear(
        self, name: str, inputs: Sequence[object], outputs: Sequence[NDArray], scope: str, location: Location | None
    ) -> None:
        """One operator ran."""
        bad = [item for item in outputs if self._is_bad(item)]
        if not bad:
            return
        before = [item for item in inputs if isinstance(item, NDArray) and self._is_bad(item)]
        if before:
            found = [self._known.get(id(item.buffer), (None, None))[1] for item in before]
            culprit = next((item for item in found if item is not None), None)
        else:
            culprit = Culprit(name, scope, location, described(inputs), _made(summarize(bad[0])))
            self._inside.append(culprit)
        for item in bad:
            self._known[id(item.buffer)] = item.buffer, culprit

    def look(self, node: Node, inputs: Sequence[object], outputs: Sequence[NDArray]) -> None:
        """One operator of an interpreted graph ran. For a loop or branch, the first operator inside is told."""
        inside = self._inside if node.op.subgraphs else []
        first = inside[0] if inside else None
        self.hear(node.op.name, inputs, outputs, node.scope, node.location)
        if first is not None:
            for item in outputs:
                if id(item.buffer) in self._known:
                    self._known[id(item.buffer)] = item.buffer, first
        if node in self._top:
            self._inside = []

    def of(self, results: Iterable[object]) -> Culprit | None:
        """The operator behind the first bad result."""
        for item in results:
            if isinstance(item, NDArray) and self._is_bad(item):
                return self._known.get(id(item.buffer), (None, None))[1]
        return None


def first_in_forward(
    graph: Graph, arrays: Sequence[NDArray], rng: tuple[int, int], training: bool, is_bad: IsBad
) -> Culprit | None:
    """The operator of a traced graph that makes the first bad value which its outputs depend on."""
    origins = Origins(is_bad, graph.nodes)
    with tape.Mode(False, training):
        results = interpret(graph, arrays, rng, update=False, look=origins.look)
    return origins.of(results)


def first_in_backward(
    graph: Graph,
    arrays: Sequence[NDArray],
    rng: tuple[int, int],
    training: bool,
    heads: Sequence[Any],
    is_bad: IsBad,
) -> Culprit | None:
    """The operator of a traced graph whose gradient is the first bad one. heads : gradients of the outputs, or None"""
    leaves = [NDArray.view_of(array.buffer, array.host_view) for array in arrays]
    for leaf in leaves:
        if is_floating(leaf.host_view.dtype):
            leaf.attach_grad()

    def look(node: Node, inputs: Sequence[object], outputs: Sequence[NDArray]) -> None:
        link = outputs[0].tape_link
        if isinstance(link, tape.Output) and link.node.entry is not None and not node.op.subgraphs:
            link.node.entry = _TapeStep(link.node.entry, node, inputs, is_bad)

    with tape.Mode(True, training):
        results = interpret(graph, leaves, rng, update=False, look=look)
    pairs = [(result, head) for result, head in zip(results, heads, strict=True) if head is not None]
    try:
        gradients(
            [result for result, _ in pairs], [to_host(head) if is_tensor(head) else head for _, head in pairs], ()
        )
    except _CulpritFound as found:
        return found.culprit
    return None


class _CulpritFound(Exception):
    def __init__(self, culprit: Culprit):
        self.culprit = culprit


class _TapeStep(tape.Entry):
    """The step of one operator on the tape, which ends the pass with _CulpritFound if it makes a bad gradient."""

    def __init__(self, inner: tape.Entry, node: Node, inputs: Sequence[object], is_bad: IsBad):
        self.inner, self.node, self.inputs, self.is_bad, self.name = inner, node, inputs, is_bad, inner.name

    def backward(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        results = self.inner.backward(douts, needed)
        bad = [item for item in results if item is not None and self.is_bad(item)]
        if bad:
            node = self.node
            texts = [*described(self.inputs), *described(douts, "gradient ")]
            raise _CulpritFound(Culprit(node.op.name, node.scope, node.location, texts, made(bad)))
        return results

    def release(self) -> None:
        self.inner.release()


def made(arrays: Sequence[object]) -> str:
    """The fault in the first bad array: `3 NaN among 64 values`."""
    first = arrays[0]
    return _made(summarize(to_host(first) if is_tensor(first) else first))  # type: ignore[arg-type]


def _made(summary: Summary) -> str:
    parts = [f"{summary.nans:,} NaN"] * bool(summary.nans)
    parts += [f"{summary.infinities:,} infinite"] * bool(summary.infinities)
    return f"{' and '.join(parts) or 'NaN or infinite'} among {count(summary.looked, 'value')}"


def described(items: Sequence[object], prefix: str = "") -> list[str]:
    """The inputs of an operator in words; numbers unchanged."""
    texts = []
    for item in items:
        if item is None:
            continue
        if is_tensor(item):
            item = to_host(item)
        texts.append(prefix + str(summarize(item) if isinstance(item, (NDArray, np.ndarray)) else item))
    return texts
