"""watch_nan: stop a model at its first NaN or infinity, forward or backward, and name the operator that made it."""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError, NonFiniteError
from hybrid_lab.diagnostics.formatting import called
from hybrid_lab.diagnostics.location import Location, capture
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.hybridize.compiled_entry import CompiledEntry
from hybrid_lab.hybridize.neutral import NeutralGraph
from hybrid_lab.hybridize.structure import flatten
from hybrid_lab.insight import last_nan
from hybrid_lab.insight.calls import unchanged
from hybrid_lab.insight.eager import listen
from hybrid_lab.insight.nonfinite import (
    Origins,
    described,
    first_in_backward,
    first_in_forward,
    is_nan,
    made,
    not_finite,
)
from hybrid_lab.insight.states import blocks_below, class_name
from hybrid_lab.ndarray import backward as reverse
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.random_state import state as random_state
from hybrid_lab.symbol import tracing


def watch_nan(*nets: Block, infinite: bool = True) -> Watch:
    """Stop at the first value that is not finite, in calls of these models and in `backward()`, until it is closed.

        with mx.watch_nan(net, loss):      or      watch = mx.watch_nan(net); ...; watch.close()
            train()

    infinite : whether infinities count too, or NaN alone

    It raises NonFiniteError, which names the Block, the operator, its line and its operands. The results of Blocks are
    checked, and the gradients of each step of the tape; values inside a Block that do not reach its result, such as a
    mask of -inf behind a softmax, are not. Only when something is wrong, the call runs again, operator by operator and
    with the same random numbers, to find the operator. Hybridized calls run their programs as ever.
    """
    check_switches("watch_nan", infinite=infinite)
    for net in nets:
        if not isinstance(net, Block):
            raise HybridLabError(f"watch_nan needs Blocks, not {type(net).__name__}")
    if not nets:
        raise HybridLabError("name the models to watch, as in mx.watch_nan(net, loss)")
    return Watch(nets, infinite)


class Watch:
    """A watch that is on until `close()`, or until the end of `with watch:`. See `watch_nan`."""

    def __init__(self, nets: Sequence[Block], infinite: bool):
        self.is_bad = not_finite if infinite else is_nan
        #: Weak: a model that is gone needs no watch.
        self._nets = [weakref.ref(net) for net in nets]
        self._names = ", ".join(map(called, nets))
        self._calls = _Calls()
        self._hooks = []
        for net in nets:
            for path, block in blocks_below(net):
                self._hooks.append(block.register_forward_pre_hook(self._before(net, path)))
                self._hooks.append(block.register_forward_hook(self._after()))
        reverse.watchers.append(self._before_backward)

    def close(self) -> None:
        """Switch the watch off; a second time does nothing."""
        while self._hooks:
            self._hooks.pop().detach()
        if self._before_backward in reverse.watchers:
            reverse.watchers.remove(self._before_backward)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def on(self) -> bool:
        """Whether it is on."""
        return bool(self._hooks) and any(net() is not None for net in self._nets)

    def is_of(self, net: Block) -> bool:
        """Whether it is on, and of this model."""
        return bool(self._hooks) and any(reference() is net for reference in self._nets)

    def _alive(self) -> list[Block]:
        return [net for reference in self._nets if (net := reference()) is not None]

    def __repr__(self) -> str:
        return f"<watch for NaN in {self._names}: {'on' if self.on else 'off'}>"

    # -- forward ------------------------------------------------------------------------------------------------------

    def _before(self, net: Block, path: str) -> Callable[[Block, tuple[object, ...]], None]:
        """The pre-hook of a Block."""

        def hook(block: Block, args: tuple[object, ...]) -> None:
            calls = self._calls
            if calls.busy or tracing.current() is not None:
                return
            if not path:
                calls.running.clear()  # of calls that ended with an error
            calls.running.append(_WatchedCall(net, path, block, args))

        return hook

    def _after(self) -> Callable[[Block, tuple[object, ...], object], None]:
        """The hook of a Block: a function, since the hooks of a Block are copied with it."""
        return lambda block, args, result: self._returned(block, result)

    def _returned(self, block: Block, result: object) -> None:
        calls = self._calls
        if calls.busy or tracing.current() is not None:
            return
        while calls.running:
            call = calls.running.pop()
            if call.block is block:
                break
        else:
            return
        arrays = _arrays(result)
        if any(map(self.is_bad, arrays)):
            with calls.searching():
                raise last_nan.note([call.net], self._forward_error(call, arrays))
        elif not call.path:
            last_nan.is_finite(call.net)
        if tape.state.recording:
            self._label(call, arrays)

    def _forward_error(self, call: _WatchedCall, results: Sequence[NDArray]) -> NonFiniteError:
        """The error for a call that returned something bad."""
        neutral = call.graph()
        if neutral is not None:
            arrays = [*call.leaves(), *(parameter.data() for parameter in neutral.parameters)]
            culprit = first_in_forward(neutral.graph, arrays, call.rng, call.training, self.is_bad)
        else:
            origins = Origins(self.is_bad)
            with call.again():
                again, _ = listen(call.block, lambda: call.block(*call.args), origins.hear)
            culprit = origins.of(_arrays(again))
        if culprit is not None:
            path = call.path_of(culprit.scope)
            return culprit.error(path, call.name_of(path), "forward")
        if (given := self._given(call)) is not None:
            return given
        why = "its code gave other values when it ran again"
        if neutral is not None:
            why = "its operators, run one by one, do not: mx.compare shows which step of the program differs"
        bad = made([item for item in results if self.is_bad(item)])
        return NonFiniteError(
            f"{call.name} returns {bad}, but {why}", call.path, location=capture(), inputs=described(call.leaves())
        )

    def _given(self, call: _WatchedCall) -> NonFiniteError | None:
        """The error for a call that got a bad input, or has a bad parameter; None if it did not."""
        for number, leaf in enumerate(call.leaves()):
            if self.is_bad(leaf):
                return NonFiniteError(
                    f"input {number} of {call.name} holds {made([leaf])} before the call",
                    call.path,
                    location=capture(),
                    inputs=described([leaf]),
                )
        for below, block in blocks_below(call.block):
            path = ".".join(part for part in (call.path, below) if part)
            for attribute, parameter in access.own_parameters(block).items():
                for array in access.arrays(parameter) or ():
                    if self.is_bad(array):
                        return NonFiniteError(
                            f"the parameter {parameter.name} of {call.name_of(path)} holds {made([array])} before "
                            "the call: an update, or the code that set it, made it so; create or load the model again, "
                            "and the watch stops at the operator that makes the first one",
                            path,
                            inputs=described([array]),
                            parameter=attribute,
                        )
        return None

    # -- backward -----------------------------------------------------------------------------------------------------

    def _label(self, call: _WatchedCall, results: Sequence[NDArray]) -> None:
        """Put a check around the steps that a call recorded, with the call that they belong to."""
        steps = _steps([item.tape_link for item in results], call.order)
        numbers: Counter[str] = Counter()
        for step in steps:
            assert step.entry is not None
            name = step.entry.name
            step.entry = _Checked(step.entry, self, call, numbers[name])
            numbers[name] += 1

    def _before_backward(self, heads: Sequence[NDArray]) -> None:
        """Check the steps outside of the models too, such as a loss that is computed in the training loop."""
        if self.on and not self._calls.busy:
            for step in _steps([head.tape_link for head in heads], -1.0):
                assert step.entry is not None
                step.entry = _Checked(step.entry, self, None, 0)

    def check(self, step: _Checked, douts: Sequence[Any], results: Sequence[Any]) -> None:
        """Raise NonFiniteError if the gradients that a step made are bad."""
        bad = [item for item in results if item is not None and self.is_bad(item)]
        if bad and not self._calls.busy:
            with self._calls.searching():
                error = self._backward_error(step, [_raw(dout) for dout in douts], bad)
                raise last_nan.note([step.call.net] if step.call is not None else self._alive(), error)

    def _backward_error(self, step: _Checked, douts: Sequence[Any], bad: Sequence[Any]) -> NonFiniteError:
        call, inner = step.call, step.inner
        gradients = described(douts, "gradient ")
        where = "the code outside of the models" if call is None else call.name
        if any(dout is not None and self.is_bad(dout) for dout in douts):
            return NonFiniteError(
                f"the gradient that the backward of {where} starts from is not finite",
                None if call is None else call.path,
                part="backward",
                location=capture(),
                inputs=gradients,
            )
        if isinstance(inner, CompiledEntry) and inner.leaves:
            program = inner.program
            arrays = [*inner.leaves, *(p.data(program.context) for p in program.neutral.parameters)]
            graph = program.neutral.graph
            culprit = first_in_backward(graph, arrays, inner.rng, program.training, douts, self.is_bad)
            if culprit is not None:
                path = None if call is None else call.path_of(culprit.scope)
                name = program.block_name if call is None or path is None else call.name_of(path)
                return culprit.error(path, name, "backward")
        location = None
        if call is not None and not isinstance(inner, CompiledEntry):
            location, inputs = call.find(inner.name, step.number)
            gradients = inputs + gradients
        return NonFiniteError(
            f"the gradient of {inner.name} gives {made(bad)}, in the backward of {where}",
            None if call is None else call.path,
            inner.name,
            "backward",
            location if call is not None else capture(),
            gradients,
        )


class _Calls(threading.local):
    """Per thread: the calls that run, and whether a search for an operator runs, in which nothing is watched."""

    def __init__(self) -> None:
        self.running: list[_WatchedCall] = []
        self.busy = False

    @contextlib.contextmanager
    def searching(self) -> Iterator[None]:
        self.busy = True
        try:
            with np.errstate(all="ignore"):
                yield
        finally:
            self.busy = False


class _WatchedCall:
    """One call of a watched Block, as it can be run again.

    path : of the Block in `net`; rng : seed and number of its first draw; order : tells steps recorded in it from older
    """

    def __init__(self, net: Block, path: str, block: Block, args: tuple[object, ...]):
        self.net, self.path, self.block, self.args = net, path, block, args
        self.rng = random_state.next_draws(0)
        self.order = tape.now()
        self.recording, self.training = bool(tape.state.recording), bool(tape.state.training)

    @property
    def name(self) -> str:
        """What to call the Block: `net0.features.3 (Dense)`."""
        return self.name_of(self.path)

    def name_of(self, path: str) -> str:
        """What to call a Block of the same model."""
        blocks = dict(blocks_below(self.net))
        kind = f" ({class_name(blocks[path])})" if path in blocks else ""
        return f"{called(self.net, path)}{kind}"

    def path_of(self, scope: str) -> str:
        """The path in the model of a scope in a run of this Block, `net0.conv1`."""
        inner = scope.partition(".")[2]
        return ".".join(part for part in (self.path, inner) if part)

    def leaves(self) -> list[NDArray]:
        """The arrays among the arguments."""
        return _arrays(self.args)

    def graph(self) -> NeutralGraph | None:
        """The graph that the call ran; None if it ran the code."""
        block = self.block
        if not isinstance(block, HybridBlock) or not (access.runs_graphs(block) or access.graphs(block).pinned):
            return None
        leaves, spec = flatten(self.args)
        calls = access.calls(block)
        with tape.Mode(self.recording, self.training):
            if access.runs_graphs(block):
                return calls.program(spec, leaves).neutral
            types = tuple((leaf.shape, leaf.host_view.dtype.name) for leaf in leaves)
            return calls.graphs.pinned_for(spec, types, self.training)

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Run things as the call ran: with its random numbers, in its mode; states change back."""
        saved = random_state.get_state()
        with unchanged(self.block), tape.Mode(self.recording, self.training):
            random_state.set_state(saved | {"seed": str(self.rng[0]), "draws": self.rng[1]})
            try:
                yield
            finally:
                random_state.set_state(saved)

    def find(self, name: str, number: int) -> tuple[Location | None, list[str]]:
        """Line and inputs of the recorded operator with this name and number in the Block's own code."""
        found: list[tuple[Location | None, list[str]]] = []
        numbers = itertools.count()

        def hear(
            operator: str, inputs: Sequence[object], results: Sequence[NDArray], scope: str, place: Location | None
        ) -> None:
            recorded = isinstance(results[0].tape_link, tape.Output)
            if operator == name and recorded and "." not in scope and next(numbers) == number:
                found.append((place, described(inputs)))

        with self.again():
            listen(self.block, lambda: self.block(*self.args), hear)
        return found[0] if found else (None, [])


class _Checked(tape.Entry):
    """A step of the tape whose gradients are looked at.

    call : the call of a Block that recorded it, None outside of the watched models
    number : which step of its operator in the Block's own code it is
    """

    def __init__(self, inner: tape.Entry, watch: Watch, call: _WatchedCall | None, number: int):
        self.inner, self.watch, self.call, self.number = inner, watch, call, number
        self.name, self.device, self.takes_leaves = inner.name, inner.device, inner.takes_leaves

    def backward(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        return self._checked(douts, self.inner.backward(douts, needed))

    def finish(
        self, douts: list[Any], needed: tuple[bool, ...], leaves: Sequence[tape.Leaf | None] | None = None
    ) -> Sequence[Any]:
        if leaves is None:
            return self._checked(douts, self.inner.finish(douts, needed))
        return self._checked(douts, self.inner.finish(douts, needed, leaves))

    def backward_recorded(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        return self._checked(douts, self.inner.backward_recorded(douts, needed))

    def _checked(self, douts: Sequence[Any], results: Sequence[Any]) -> Sequence[Any]:
        if self.watch.on:
            self.watch.check(self, douts, results)
        return results

    def apart(self, arrived: tuple[bool, ...]) -> frozenset[int]:
        return self.inner.apart(arrived)

    def unfold(self, node: tape.Node) -> bool:
        return self.inner.unfold(node)

    def check(self) -> None:
        self.inner.check()

    def release(self) -> None:
        self.inner.release()


def _steps(links: Sequence[tape.Link], after: float) -> list[tape.Node]:
    """The steps behind some links that are not checked yet and were recorded after a moment, in their order."""
    found: set[tape.Node] = set()
    stack = [link.node for link in links if isinstance(link, tape.Output)]
    while stack:
        node = stack.pop()
        if node not in found and node.entry is not None and node.order > after:
            found.add(node)
            stack += [link.node for link in node.links if isinstance(link, tape.Output)]
    return sorted((node for node in found if type(node.entry) is not _Checked), key=lambda node: node.order)


def _arrays(item: object) -> list[NDArray]:
    """The NDArrays in arguments or results."""
    try:
        leaves = flatten(item)[0]
    except HybridLabError:
        leaves = list(item) if isinstance(item, (tuple, list)) else []
    return [leaf for leaf in leaves if isinstance(leaf, NDArray)]


def _raw(dout: object) -> object:
    return dout.raw() if isinstance(dout, NDArray) else dout
