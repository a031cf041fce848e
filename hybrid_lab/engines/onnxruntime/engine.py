"""OnnxRuntimeEngine: partition, make a session of each region, and run both in one planned program."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from hybrid_lab.diagnostics.errors import EngineError, Unmappable
from hybrid_lab.diagnostics.formatting import first_line
from hybrid_lab.engines.onnxruntime import cost
from hybrid_lab.engines.onnxruntime.loading import TooLong, native_errors
from hybrid_lab.engines.onnxruntime.model import build_model, refusal, refusal_of_form
from hybrid_lab.engines.onnxruntime.session import BoundSession, trim
from hybrid_lab.engines.planned.build import PlannedEngine
from hybrid_lab.engines.regions import RegionOperator, contracted, refuse
from hybrid_lab.engines.report import Report
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Node, Value
from hybrid_lab.graph.passes.decompose import lower_random
from hybrid_lab.graph.passes.partition import Region, partition
from hybrid_lab.graph.passes.simplify import simplify
from hybrid_lab.ops.framework.run import run_kernel
from hybrid_lab.system.logger import logger


class SessionOperator(RegionOperator):
    """A region that a session runs.

    told : not empty once the user was warned that NaN would be lost
    """

    name: ClassVar[str] = "onnxruntime"
    run_keywords: ClassVar[frozenset[str]] = frozenset({"out"})

    def __init__(self, region: Region, session: BoundSession):
        super().__init__(region, len(region.outputs), session=session, told=[])

    session: BoundSession
    told: list[bool]

    def numpy(self, *inputs: Any, out: Any = None) -> Any:
        outputs = out if type(out) is tuple else (out,)
        try:
            lost = self.session(inputs, outputs)
        except EngineError as error:
            self._tell_refusal(error)
            lost = True
        except native_errors() as error:
            self._tell_once(f"{{}} are computed in NumPy, because ONNX Runtime failed: {first_line(error)}")
            lost = True
        if lost:
            self._in_numpy(inputs, outputs)
        return out

    def pack(self, weights: Mapping[int, np.ndarray], token: Hashable) -> None:
        """Run with these inputs baked in, by position. token : equal ones promise equal weights"""
        self.session.pack(weights, token)

    def unpack(self) -> None:
        self.session.unpack()

    def _tell_once(self, text: str) -> bool:
        """Warn, unless something was said before. `{}` in the text stands for the operators."""
        if self.told:
            return False
        self.told.append(True)
        logger.warning(text.replace("{}", ", ".join(dict.fromkeys(node.op.name for node in self.region.nodes))))
        return True

    def _tell_refusal(self, error: EngineError) -> None:
        """A session was made in the background, and there is none. The next compile leaves out the node that caused the
        error.
        """
        if isinstance(error, TooLong):  # which is told, and known to the next compile
            self.told.append(True)
        elif self._tell_once(f"{{}} are computed in NumPy, because ONNX Runtime turned them down: {error}"):
            _culprits(self.region)

    def _in_numpy(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Fill the outputs by the records' kernels, which keep NaN."""
        self._tell_once(
            "numbers that are not finite came up in {}: ONNX Runtime would lose NaN there, so such calls are "
            "computed once more in NumPy, which is slower"
        )
        values: dict[Value, Any] = dict(zip(self.region.inputs, inputs, strict=True))
        for node in self.region.nodes:
            operands = []
            for item in node.inputs:
                if isinstance(item, Value) and item not in values:
                    values[item] = item.node.op.array  # type: ignore[attr-defined]
                operands.append(values[item] if isinstance(item, Value) else item)
            with np.errstate(all="ignore"):
                values.update(zip(node.outputs, run_kernel(node.op, operands), strict=True))
        for value, target in zip(self.region.outputs, outputs, strict=True):
            np.copyto(target, values[value])


class OnnxRuntimeEngine(PlannedEngine):
    """Runs predictions on a CPU by default, and recorded calls if torch does not.

    worth : decides whether a region becomes a session (None) or stays in NumPy (the reason)
    """

    name: ClassVar[str] = "onnxruntime"
    title: ClassVar[str] = "ONNX Runtime"

    def __init__(self, worth: Callable[[Region], str | None] = cost.worth):
        self.worth = worth

    @staticmethod
    def missing() -> str | None:
        if importlib.util.find_spec("onnxruntime") is None:
            return "onnxruntime is not installed; pip install hybrid-lab[cpu]"
        return None

    def trim(self) -> None:
        super().trim()
        trim()

    def prepare(self, graph: Graph, strict: bool, background: bool = False) -> tuple[Graph, Report]:
        total = len(graph.operators)
        graph = simplify(lower_random(graph))
        sessions, refused = self._sessions(graph, strict, background)
        if strict:
            # Work that is merely too small may stay in NumPy.
            wrong = {node: why for node, why in refused.items() if why != cost.TOO_SMALL and not node.op.random}
            refuse(wrong, f"{len(wrong)} of {total} operators cannot run in ONNX Runtime")
        operators = {region: SessionOperator(region, session) for region, session in sessions.items()}
        return contracted(self.name, graph, operators, refused)

    def _sessions(
        self, graph: Graph, strict: bool, background: bool
    ) -> tuple[dict[Region, BoundSession], dict[Node, str]]:
        """The session of each region, and the refused nodes with reasons. A node without an ONNX form, or a node that
        onnxruntime turns down, is taken out of its region, and the rest is tried again.

        strict : write the form of every node, also of nodes too small for a session
        background : make sessions of many operators in the background; operators that they refuse are found later
        """
        turned_down: dict[Node, str] = {}
        sessions: dict[tuple[Node, ...], BoundSession] = {}

        def supported(node: Node) -> str | None:
            known = turned_down.get(node) or _turned_down.get(_signature(node)) or refusal(node)
            return known or (refusal_of_form(node) if strict else None)

        while True:
            regions, refused = partition(graph, supported, self.worth)
            culprits: dict[Node, str] = {}
            for region in regions:
                if region.nodes not in sessions:
                    session = _try(region, background and len(region.nodes) > cost.MANY)
                    if isinstance(session, BoundSession):
                        sessions[region.nodes] = session
                    else:
                        alone = {} if isinstance(session, TooLong) else _culprits(region)
                        culprits.update(alone or dict.fromkeys(region.nodes, str(session)))
            if not culprits:
                return {region: sessions[region.nodes] for region in regions}, refused
            turned_down.update(culprits)


def _try(region: Region, background: bool = False) -> BoundSession | EngineError | Unmappable:
    """The region's session, or why there is none; if it is made in the background that shows later."""
    try:
        return BoundSession(build_model(region), background)
    except (EngineError, Unmappable) as error:
        return error


def _culprits(region: Region) -> dict[Node, str]:
    """The nodes of a failing region that fail alone too, with the reason. What onnxruntime turned down is remembered,
    as every node costs a session.
    """
    found = {node: reason for node in region.nodes if (reason := refusal_of_form(node)) is not None}
    if found:
        return found
    tried: dict[Any, str] = {}
    for node in region.nodes:
        key = _signature(node)
        if key not in tried:
            given = dict.fromkeys(v for v in node.values_in if not isinstance(v.node.op, Constant))
            result = _try(Region((node,), tuple(given), node.outputs))
            tried[key] = "" if isinstance(result, BoundSession) else str(result)
        if tried[key]:
            found[node] = _turned_down[key] = tried[key]
    return found


#: What onnxruntime turned down in this process, so that the next compile knows.
_turned_down: dict[Any, str] = {}


def _signature(node: Node) -> Any:
    """What decides whether onnxruntime takes an operator: itself, and shapes, dtypes or numbers of its inputs."""
    given = tuple((v.shape, v.dtype) if isinstance(v, Value) else (type(v), repr(v)) for v in node.inputs)
    return node.op, given


ENGINE = OnnxRuntimeEngine()
