"""capture: what Blocks inside a model return, and the gradients of that, in eager and in hybridized calls."""

from __future__ import annotations

import difflib
import fnmatch
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import called
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value, input_node
from hybrid_lab.hybridize.calls import GraphCalls, Interceptor
from hybrid_lab.hybridize.neutral import NeutralGraph, spread, trace_block
from hybrid_lab.hybridize.structure import LEAF, Spec, flatten, unflatten
from hybrid_lab.insight.facets import facets
from hybrid_lab.insight.silent import silent
from hybrid_lab.insight.states import blocks_below, walk
from hybrid_lab.insight.table import folded, frame
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.interpret import interpret
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ops.framework.dtypes import is_floating
from hybrid_lab.symbol.symbol import Symbol


class _CapturedCall(NamedTuple):
    """One call of a named Block in a graph: its results, and the nodes made before it returned."""

    path: str
    spec: Spec
    values: list[Value]
    before: int


#: The captures that live, the latest at the end: the lab shows their contents.
_captures: list[weakref.ref[Capture]] = []

_SHOWN = 40
"""Values that the HTML shows at most."""


def capture(
    net: Block, *names: str | Block, grad: bool = False, replace: Callable[[Any], Any] | None = None
) -> Capture:
    """Read what Blocks of a model return in the calls of a with-block.

        with mx.capture(net, "features.3", "output.*") as seen:
            net(x)
        seen["features.3"]

    names : paths of attribute names ("" is the model itself), patterns with *, ? and [], or Blocks of the model
    grad : keep gradients too: after `backward()`, `seen["features.3"].grad`
    replace : takes the result of a named Block, and returns the result for its caller; in eager runs only

    The result holds a copy of each Block's results in its last call. A hybridized call computes its traced graph
    operator by operator while it is captured, with the same random numbers; later calls run the compiled program as
    before, and nothing is compiled.

    Raises HybridLabError for names that the model does not have, with similar names, and in the with-block for a
    hybridized call with `replace`.
    """
    check_switches("capture", grad=grad)
    return Capture(net, names, grad, replace)


def last_captured(block: Block) -> Any:
    """The Block's results in its latest living capture; None if there is none."""
    for reference in reversed(_captures):
        seen = reference()
        if seen is not None:
            known = (path for path, named in seen.blocks.items() if named is block and path in seen)
            for path in known:
                return seen[path]
    return None


class Capture(Mapping[str, Any]):
    """Path of a Block -> its last result: an NDArray, or a structure of NDArrays. See `capture`."""

    def __init__(
        self, net: Block, names: Sequence[str | Block], grad: bool, replace: Callable[[Any], Any] | None
    ) -> None:
        if not isinstance(net, Block):
            raise HybridLabError(f"capture needs a Block, not {type(net).__name__}")
        if not names:
            raise HybridLabError("name the Blocks whose results are wanted, as in mx.capture(net, 'features.*')")
        self.net, self._grad, self._replace = net, grad, replace
        self.blocks = chosen(net, names)
        self._seen: dict[str, Any] = {}
        self._undo: list[Callable[[], object]] = []
        #: While a graph is traced for the capture: the calls of named Blocks in it.
        self._calls: list[_CapturedCall] | None = None
        self._traces: dict[tuple[int, Spec], list[tuple[NeutralGraph, list[_CapturedCall]]]] = {}

    def __enter__(self) -> Capture:
        self._seen.clear()
        _captures[:] = [each for each in _captures if each() is not None and each() is not self] + [weakref.ref(self)]
        for path, block in self.blocks.items():
            if self._replace is not None:
                self._replace_results(path, block)
            self._undo.append(block.register_forward_hook(self._hook(path)).detach)
        for path, block in blocks_below(self.net):
            if isinstance(block, HybridBlock) and any(_is_below(each, path) for each in self.blocks):
                calls = access.calls(block)
                interceptor = self._interceptor(path)
                calls.add_interceptor(interceptor)
                self._undo.append(partial(calls.remove_interceptor, interceptor))
        return self

    def __exit__(self, *exception: object) -> None:
        self._traces.clear()
        while self._undo:
            self._undo.pop()()

    # -- the captured results -----------------------------------------------------------------------------------------

    def __getitem__(self, path: str) -> Any:
        if path in self._seen:
            return self._seen[path]
        if path in self.blocks:
            raise KeyError(f"{path!r} was not called in the with-block")
        raise KeyError(f"{path!r} is not captured; {', '.join(map(repr, self.blocks))} are")

    def __iter__(self) -> Iterator[str]:
        return iter(self._seen)

    def __len__(self) -> int:
        return len(self._seen)

    def __repr__(self) -> str:
        lines = [f"{path or called(self.net)}: {_described(result)}" for path, result in self._seen.items()]
        return "\n".join(lines) or "nothing was called yet"

    def _repr_html_(self) -> str:
        """Numbers, histogram and picture of each value."""
        parts = []
        for path, result in list(self._seen.items())[:_SHOWN]:
            arrays = [item for item in _arrays(result) if isinstance(item, NDArray)]
            inner = "".join(facets(item, f"output {index}").part() for index, item in enumerate(arrays))
            inner += "".join(facets(item.grad, "gradient").part() for item in arrays if item.grad is not None)
            parts.append(folded(f"{path or called(self.net)}: {_described(result)}", inner))
        left = len(self._seen) - _SHOWN
        return frame(f"values in {called(self.net)}", *parts, f"<div>and {left} more</div>" if left > 0 else "")

    def _hook(self, path: str) -> Callable[[Block, tuple[object, ...], object], None]:
        """The hook of a named Block."""
        return lambda block, args, result: self._note(path, result)

    def _note(self, path: str, result: object) -> None:
        """A named Block returned."""
        leaves = _arrays(spread(result))
        if any(isinstance(leaf, Symbol) for leaf in leaves):
            if self._calls is not None:
                _, spec = flatten(spread(result))
                now = input_node("now", "data").node.serial
                self._calls.append(_CapturedCall(path, spec, [leaf.outputs[0] for leaf in leaves], now))
            return
        if all(isinstance(leaf, NDArray) for leaf in leaves):
            _, spec = flatten(result)
            self._seen[path] = unflatten(spec, iter([self._copy(leaf) for leaf in leaves]))
        else:
            self._seen[path] = result

    def _copy(self, array: NDArray) -> NDArray:
        """A copy, which gets the gradient of the original when that is computed."""
        leaf = tapped(array) if self._grad else None
        with tape.Mode(False, False):
            copy = array.copy()
        copy.tape_link = leaf
        return copy

    # -- replacing ----------------------------------------------------------------------------------------------------

    def _replace_results(self, path: str, block: Block) -> None:
        """Let the Block's forward return something else."""
        forward, replace = block.forward, self._replace
        assert replace is not None

        def other(*args: object, **options: object) -> Any:
            result = forward(*args, **options)
            if any(isinstance(leaf, Symbol) for leaf in _arrays(result)):
                raise self._refused(path)
            return replace(result)

        before = vars(block).get("forward")
        object.__setattr__(block, "forward", other)

        def undo() -> None:
            if before is None:
                vars(block).pop("forward", None)
            else:
                object.__setattr__(block, "forward", before)

        self._undo.append(undo)

    def _refused(self, path: str) -> HybridLabError:
        return HybridLabError(
            f"{called(self.net, path)} runs inside a graph, in which its result cannot be replaced: call "
            f"{called(self.net)}.hybridize(False) before"
        )

    # -- hybridized calls ---------------------------------------------------------------------------------------------

    def _interceptor(self, top: str) -> Interceptor:
        """An interceptor that runs the hybridized calls of the Block at this path."""

        def run(running: GraphCalls, args: tuple[Any, ...], proceed: Callable[[], Any]) -> Any:
            inner = [path for path in self.blocks if path != top and _is_below(path, top)]
            if self._replace is not None:
                raise self._refused(inner[0] if inner else top)
            if not inner:
                return proceed()
            leaves, spec = flatten(args, f"the input of {running.block.name}")
            neutral, calls = self._traced(running, spec, leaves, top)
            access.complete_parameters(running.block, neutral, leaves)
            context = leaves[0].context if leaves else None
            arrays = [*leaves, *(parameter.data(context) for parameter in neutral.parameters)]
            return unflatten(neutral.out_spec, iter(self._run(neutral.graph, arrays, calls)))

        return run

    def _traced(
        self, running: GraphCalls, spec: Spec, leaves: Sequence[NDArray], top: str
    ) -> tuple[NeutralGraph, list[_CapturedCall]]:
        """The graph of a call, and the results of each named Block in it."""
        types = tuple((leaf.shape, np.dtype(leaf.dtype).name) for leaf in leaves)
        training, recording = bool(tape.state.training), bool(tape.state.recording)
        if running.graphs.pinned:
            neutral = running.graphs.pinned_for(spec, types, training)
            return neutral, _calls_by_scope(neutral.graph, self.blocks, top)
        known = self._traces.setdefault((id(running), spec), [])
        for neutral, calls in known:
            if neutral.observation.holds(types, training, recording):
                return neutral, calls
        self._calls = calls = []
        try:
            with silent():
                neutral = trace_block(
                    running.block, spec, [(leaf.shape, np.dtype(leaf.dtype)) for leaf in leaves], training, keep=False
                )
        finally:
            self._calls = None
        known.append((neutral, calls))
        return neutral, calls

    def _run(self, graph: Graph, arrays: Sequence[NDArray], calls: Sequence[_CapturedCall]) -> list[NDArray]:
        """The outputs of the graph, operator by operator; the results of the calls are kept."""
        due = _due(graph, calls)
        wanted = {value for pending in due.values() for call in pending for value in call.values}
        known = dict(zip(graph.inputs, arrays, strict=True))

        def look(node: Node | None, inputs: Sequence[object], outputs: Sequence[NDArray]) -> None:
            if node is not None:
                known.update(pair for pair in zip(node.outputs, outputs, strict=False) if pair[0] in wanted)
            for call in due.get(node, ()):
                if all(value in known for value in call.values):
                    copies = [self._copy(known[value]) for value in call.values]
                    self._seen[call.path] = unflatten(call.spec, iter(copies))

        look(None, (), ())
        return interpret(graph, arrays, look=look)


def _due(graph: Graph, calls: Sequence[_CapturedCall]) -> dict[Node | None, list[_CapturedCall]]:
    """The last operator before the end of each call, in the graph or in a body inside of it; None for no operator."""
    due: dict[Node | None, list[_CapturedCall]] = {}
    known = {value for node in graph.nodes for value in node.outputs}
    elsewhere = [call for call in calls if not known.issuperset(call.values)]
    for call in calls:
        if known.issuperset(call.values):
            last = [node for node in graph.operators if node.serial < call.before][-1:]
            due.setdefault(last[0] if last else None, []).append(call)
    for body in _bodies(graph) if elsewhere else ():
        nodes = {node.name: node for node in body.operators if node.name}  # made anew, under the same names
        for call in elsewhere:
            if all(value.node.name in nodes for value in call.values):
                values = [nodes[value.node.name].outputs[value.index] for value in call.values]
                last_node = max((value.node for value in values), key=lambda node: node.serial)
                due.setdefault(last_node, []).append(call._replace(values=values))
    return due


def _bodies(graph: Graph) -> Iterator[Graph]:
    """The graphs of loops and branches in a graph, with those inside of them."""
    for node in graph.operators:
        for _, body in node.op.subgraphs:
            yield body
            yield from _bodies(body)


def chosen(net: Block, names: Sequence[str | Block]) -> dict[str, Block]:
    """The Blocks of a model by path that are named. Raises HybridLabError for a name that none has."""
    blocks = {path: block for path, _, block, _ in walk(net)}
    found: dict[str, Block] = {}
    for name in names:
        if isinstance(name, Block):
            paths = [path for path, block in blocks.items() if block is name][:1]
            if not paths:
                raise HybridLabError(f"{called(name)} is no Block of {called(net)}")
        elif name in blocks or name == net.name:
            paths = [name if name in blocks else ""]
        else:
            paths = [path for path in blocks if fnmatch.fnmatchcase(path, str(name))]
        if not paths:
            near = difflib.get_close_matches(str(name), blocks, n=3, cutoff=0.3)
            near = near or [path for path in blocks if path][:5]
            hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "it has no Blocks inside"
            raise HybridLabError(f"{called(net)} has no Block {name!r}; {hint}")
        found.update({path: blocks[path] for path in paths})
    return found


def tapped(array: NDArray) -> tape.Leaf | None:
    """A leaf that gets the gradient of a recorded array in the next backward; None if the array has no history."""
    link = tape.link(array)
    if link is None or isinstance(link, tape.Leaf) or not is_floating(array.host_view.dtype):
        return link if isinstance(link, tape.Leaf) else None
    leaf = tape.Leaf(NDArray.from_host(np.zeros(array.shape, array.host_view.dtype), array.context), "write")
    array.tape_link = tape.Output(tape.Node(_Tap(leaf), (link,), 1), 0)
    return leaf


class _Tap(tape.Entry):
    """y = x, with a leaf that gets the gradient on its way."""

    __slots__ = ("leaf",)

    name = "a captured value"

    def __init__(self, leaf: tape.Leaf):
        self.leaf = leaf

    def backward(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        self.leaf.receive(douts[0])
        return douts

    def backward_recorded(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        self.leaf.receive(douts[0].raw())
        return douts


def _calls_by_scope(graph: Graph, blocks: Mapping[str, Block], top: str) -> list[_CapturedCall]:
    """What leaves the Blocks in a graph from a file, which tells only which Block made each operator."""
    users, calls = graph.users(), []
    for path in blocks:
        if path == top or not _is_below(path, top):
            continue
        inner = path[len(top) + 1 :] if top else path
        inside = {node for node in graph.operators if _is_below(node.scope.partition(".")[2], inner)}
        values = [
            value
            for node in graph.nodes
            if node in inside
            for value in node.outputs
            if value in graph.outputs or any(user not in inside for user in users.get(value, ()))
        ]
        if values:
            spec = LEAF if len(values) == 1 else ("tuple", (LEAF,) * len(values))
            calls.append(_CapturedCall(path, spec, values, max(node.serial for node in inside) + 1))
    return calls


def _is_below(path: str, top: str) -> bool:
    """Whether a path is `top`, or leads to something inside of it."""
    return path == top or not top or path.startswith(f"{top}.")


def _arrays(result: object) -> list[Any]:
    """The arrays in the result of a Block; the result itself if it is no structure of arrays."""
    try:
        return flatten(result)[0]
    except HybridLabError:
        return [result]


def _described(result: object) -> str:
    types = [
        f"{np.dtype(item.dtype).name}{list(item.shape)}" if isinstance(item, NDArray) else type(item).__name__
        for item in _arrays(result)
    ]
    return ", ".join(types)
