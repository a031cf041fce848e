"""One run of a program: what its text calls `run`. Eagerly, or hybridized with an engine; every observation is kept."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics import AutogradError
from hybrid_lab.ndarray import backward as reverse
from hybrid_lab.ndarray import calls, tape
from hybrid_lab.ndarray.buffer import Buffer


class Seen(NamedTuple):
    """An observation. kind : "forward", "gradient", "state" or "fact"; value : an array, or a fact to be equal."""

    label: str
    kind: str
    value: Any


class Start(mx.init.Uniform):
    """Uniform numbers, for parameters of any name."""

    def _init_default(self, name: str, arr: Any) -> None:
        self._init_weight(name, arr)


def numbers(seed: int, shape: tuple[int, ...], kind: str) -> Any:
    """kind : "plain", "ties", "special" (infinite, NaN, 0, large), "whole" (0, 1, 2, 3), "mask" (0 or 1)"""
    random = np.random.RandomState(seed)
    if kind in ("whole", "mask"):
        return random.randint(0, 4 if kind == "whole" else 2, shape)
    values = random.uniform(-1.5, 1.5, shape)
    if kind == "ties":
        values = random.choice([-1.0, 0.0, 0.5, 1.0], shape)
    if kind == "special":
        odd = random.choice([0.0, np.inf, -np.inf, np.nan, 1e4, -0.0], shape)
        values = np.where(random.uniform(size=shape) < 0.2, odd, values)
    return values


class Run:
    """engine : None for an eager run, else the engine to hybridize with, "auto" for the choice between them
    late : the step whose writes between a call and its backward are done at its end
    rows : how many rows an empty batch has instead of none
    zeros : per backward, the gradients that get zeros first, or to which zeros are added, by number, so that a Trainer
        applies them
    waits : per error, the parameters, by number, of which an eager call does not keep the values that it gave them in
        this step before it raised
    skips : per backward or `autograd.grad`, whether an eager one leaves out heads that are in no graph, and gives zeros
        for variables on which no head depends

    done : per backward or `autograd.grad`, whether it raised nothing
    written : per backward, the gradients that it wrote; waiting : per error, the parameters without values behind it
    refused : the first HybridizeError; errors : those that ended a step; said : all errors, by the number of their
        observation
    """

    def __init__(
        self,
        engine: str | None = None,
        late: str | None = None,
        rows: int = 0,
        zeros: Sequence[list[int]] = (),
        waits: Sequence[list[int]] = (),
        skips: Sequence[bool] = (),
    ):
        self.engine, self.late, self.rows, self.zeros, self.waits = engine, late, rows, zeros, waits
        self.skips = skips
        self.done: list[bool] = []
        self.written: list[list[int]] = []
        self.waiting: list[list[int]] = []
        self._deferred: dict[int, Any] = {}
        self._arrays: list[Any] = []
        self._writes: list[Any] = []
        self.seen: list[Seen] = []
        self.refused: Any = None
        self.errors: list[Exception] = []
        self.said: dict[int, Exception] = {}
        self._label = "start"
        self._nets: list[Any] = []
        self._folder = tempfile.TemporaryDirectory()
        mx.random.seed(11)

    # -- what differs between an eager and a hybridized run ----------------------------------------------------------

    def hybridize(self, block: Any, active: bool = True, **flags: Any) -> None:
        if self.engine is not None:
            block.hybridize(active, engine=None if self.engine == "auto" else self.engine, **flags)

    def replaced(self, net: Any, make: Callable[[], Any]) -> Any:
        """A net that was saved and opened again; the eager run goes on with the one it has, without its gradients: an
        opened net has received none.
        """
        opened = net if self.engine is None else make()
        self._nets = [opened]
        for parameter in opened.collect_params().values():
            if parameter._array is not None and parameter.grad_req != "null":
                parameter.zero_grad()
                parameter.data()._fresh_grad = False
        return opened

    def reopened(self, net: Any) -> Any:
        """The net that its archive gives, without its code."""
        net.save(self.path("net.hlab"))
        return gluon.load(self.path("net.hlab"))

    def copied(self, net: Any) -> Any:
        self._nets = [copy.deepcopy(net)]
        return self._nets[0]

    def pinned(self, net: Any) -> None:
        """Load an archive of a net so that its graphs win; the eager run goes on with the code."""
        if self.engine is not None:
            net.save(self.path("net.hlab"))
            net.load(self.path("net.hlab"), graphs="file")

    def exported(self, net: Any, *arguments: Any) -> Any:
        """The net that `export` wrote for these arguments, imported again; the eager run takes a copy of its own.
        Called without arguments, it gives its arrays in a list.
        """
        self.hybridize(net)
        numbers = mx.random.get_state()
        net(*arguments)  # an export needs a graph
        mx.random.set_state(numbers)
        if self.engine is None:
            for parameter in net.collect_params().values():
                if parameter.shape == ():  # the error that an export has: .params files have no such shape
                    nd.save(self.path("scalar.params"), {parameter.name: parameter.data()})
            again = copy.deepcopy(net)
            return _Flat(again, list(again.collect_params().values()), arguments)
        symbol, parameters = net.export(self.path("net"))
        flat = arrays_in(arguments)
        known = mx.sym.load(symbol).list_inputs()
        names = ["data"] if len(flat) == 1 else [f"data{index}" for index in range(len(flat))]
        read = [(name, array) for name, array in zip(names, flat, strict=True) if name in known]
        block = gluon.SymbolBlock.imports(symbol, [name for name, _ in read], parameters)
        loaded = block.collect_params()
        for name, parameter in net.collect_params().items():
            if name in loaded:
                loaded[name].grad_req = parameter.grad_req  # which a file does not hold
        self.hybridize(block)
        return _Flat(block, [loaded[name] for name in net.collect_params()], [array for _, array in read])

    # -- numbers -----------------------------------------------------------------------------------------------------

    def array(self, seed: int, shape: tuple[int, ...], kind: str = "plain", dtype: str = "float32") -> Any:
        """The numbers of a seed as an array."""
        array = nd.array(numbers(seed, tuple(size or self.rows for size in shape), kind), dtype=dtype)
        self._arrays.append(array)
        return array

    def write(self, array: Any, value: float) -> None:
        """Write to an array between a call and its backward."""
        if self.late == self._label:
            self._writes.append((array, value))
        else:
            array[:] = value

    def initialize(self, net: Any, **options: Any) -> None:
        net.initialize(Start(0.6), **options)
        self._nets.append(net)

    def path(self, name: str) -> str:
        return os.path.join(self._folder.name, name)

    # -- observations ------------------------------------------------------------------------------------------------

    def note(self, kind: str, what: str, value: Any) -> None:
        self.seen.append(Seen(f"{self._label}: {what}", kind, value))

    def see(self, what: str, item: Any, kind: str = "forward") -> None:
        """Keep a result: arrays in tuples, lists and dicts, and the structure around them."""
        if isinstance(item, nd.NDArray):
            self.note(kind, what, item.asnumpy().copy())
        elif isinstance(item, (tuple, list)):
            self.note("fact", what, (type(item).__name__, len(item)))
            for index, part in enumerate(item):
                self.see(f"{what}[{index}]", part, kind)
        elif isinstance(item, dict):
            self.note("fact", what, tuple(item))
            for key, part in item.items():
                self.see(f"{what}[{key!r}]", part, kind)
        else:
            self.note(
                "fact", what, item if isinstance(item, (int, float, str, bool, type(None))) else type(item).__name__
            )

    def see_error(self, error: Exception) -> None:
        """Keep the type of an error."""
        parameters = self._parameters()
        for index in self.waits[len(self.waiting)] if len(self.waiting) < len(self.waits) else ():
            if index < len(parameters) and id(parameters[index]) in self._deferred:
                parameters[index].uninitialize(*self._deferred[id(parameters[index])])
        self.waiting.append([index for index, parameter in enumerate(parameters) if parameter._array is None])
        self.said[len(self.seen)] = error
        self.note("fact", "error", type(error).__name__)

    def see_net(self, net: Any, gradients: bool = True) -> None:
        """Keep its parameters, running statistics and gradients."""
        for name, parameter in net._collect_params_with_prefix().items():
            self.see_parameter(name, parameter, gradients)

    def see_parameter(self, name: str, parameter: Any, gradients: bool = True) -> None:
        """Keep the value of a parameter, and its gradient."""
        if parameter._array is None:
            self.note("fact", name, "not initialized")
            return
        self.see(name, parameter.data(), "state")
        if gradients and parameter.grad_req != "null":
            self.see(f"{name}.grad", parameter.grad(), "gradient")

    def see_grads(self, **arrays: Any) -> None:
        """Keep the gradients of arrays."""
        for name, array in arrays.items():
            if array.grad is not None:
                self.see(f"{name}.grad", array.grad, "gradient")

    def _parameters(self) -> list[Any]:
        return [parameter for net in self._nets for parameter in net.collect_params().values()]

    @contextlib.contextmanager
    def step(self, label: str) -> Iterator[None]:
        """A part of the program; an error ends the part, and its type is kept."""
        self._label = f"{len(self.seen)} {label}"
        parameters = self._parameters()
        self._deferred = {id(p): (p._shape, p._deferred_init) for p in parameters if p._array is None}
        held = [(p, p.data().copy()) for p in parameters if p._array is not None]
        try:
            yield
        except Exception as error:
            if isinstance(error, mx.HybridizeError) and self.refused is None:
                self.refused = error
            self.see_error(error)
            self.errors.append(error)
            # How much of a step was done before an error is nobody's promise.
            for parameter, value in held:
                parameter.set_data(value.astype(parameter.dtype))
            known = {id(parameter) for parameter, _ in held}
            for parameter in parameters:  # which only one run may have initialized before
                statistic = parameter.name.endswith(("running_mean", "running_var"))
                if statistic and id(parameter) not in known and parameter._array is not None:
                    parameter.initialize(force_reinit=True)
            mx.random.seed(len(self.errors))
        for array, value in self._writes:
            array[:] = value
        self._writes = []
        state = mx.random.get_state()
        self.note("fact", "draws", repr(sorted(state.items(), key=str)))
        self.note("fact", "modes", (autograd.is_recording(), autograd.is_training()))

    def backward(self, plain: Callable[..., None], heads: Any, gradients: Any, *flags: Any) -> None:
        """A backward that keeps which gradients it writes, or writes zeros to those of `zeros` first."""
        arrays = [*[p.data() for p in self._parameters() if p._array is not None], *self._arrays]
        leaves = [array.tape_link for array in arrays if type(array.tape_link) is tape.Leaf]
        for index in self.zeros[len(self.written)] if len(self.written) < len(self.zeros) else ():
            if index < len(leaves):
                leaves[index].receive(None)
        before = [leaf.fresh for leaf in leaves]
        for leaf in leaves:
            leaf.fresh = False
        try:
            with self._in_graphs(heads, gradients) as (heads, gradients):
                if heads or not self.skips:
                    plain(heads, gradients, *flags)
        finally:
            self.written.append([index for index, leaf in enumerate(leaves) if leaf.fresh])
            for leaf, fresh in zip(leaves, before, strict=True):
                leaf.fresh |= fresh

    def grad(self, plain: Callable[..., Any], heads: Any, variables: Any, gradients: Any, *flags: Any) -> list[Any]:
        """An `autograd.grad` of the heads that `_in_graphs` leaves."""
        skips = len(self.done) < len(self.skips) and self.skips[len(self.done)]
        with self._in_graphs(heads, gradients) as (heads, gradients):
            if heads and skips:
                heads = [reverse.as_function_of(head, variables) for head in heads]
            if heads or not self.skips:
                return plain(heads, variables, gradients, *flags)
            return [nd.zeros_like(variable) for variable in variables]

    @contextlib.contextmanager
    def _in_graphs(self, heads: Any, gradients: Any) -> Iterator[tuple[Any, Any]]:
        """Heads and their gradients for a backward, without the heads that are in no graph where `skips` says so. The
        body is the backward.
        """
        if len(self.done) < len(self.skips) and self.skips[len(self.done)]:
            given = gradients or [None] * len(heads)
            pairs = [pair for pair in zip(heads, given, strict=True) if pair[0].tape_link is not None]
            heads, gradients = map(list, zip(*pairs, strict=True)) if pairs else ([], [])
        self.done.append(False)
        yield heads, gradients
        self.done[-1] = True

    # -- accidents ---------------------------------------------------------------------------------------------------

    def leaves(self, item: Any) -> list[Any]:
        """The floating arrays of a result."""
        if isinstance(item, dict):
            item = list(item.values())
        if isinstance(item, (tuple, list)):
            return [leaf for part in item for leaf in self.leaves(part)]
        return [item] if isinstance(item, nd.NDArray) and "float" in str(np.dtype(item.dtype)) else []

    def total(self, item: Any) -> Any:
        """The sum of all elements of a result."""
        return nd.add_n(*[leaf.astype("float32").sum() for leaf in self.leaves(item)])

    def interrupt(self, net: Any, call: Callable[[], Any], at: int) -> None:
        """Ctrl-C in the `at`-th function that a call enters: every state is as before or as after, and so it stays. A
        plain Block may call a hybridized one several times, and a state is as after one of these calls. What hooks see
        in these calls does not count.
        """
        before = len(self.seen)
        parameters = list(net.collect_params().values())
        numbers = mx.random.get_state()
        if any(p._array is None for p in parameters):
            call()  # gives deferred parameters their values
        held = [(p, p.data().copy()) for p in parameters if p._array is not None]
        start = mx.random.get_state()
        if self.engine is not None:
            with _values_of([(p.data(), value.asnumpy()) for p, value in held]) as whole:
                call()
            self._restore(start, held)
            with _interrupted(at):
                call()
            found = [p.data().asnumpy() for p, _ in held]
            fine = [
                np.array_equal(x, values[0], equal_nan=True)
                or any(np.allclose(x, new, 1e-3, 1e-5, equal_nan=True) for new in values)
                for x, values in zip(found, whole, strict=True)
            ]
        else:
            call()
            fine = [True] * len(held)
        self._restore(numbers, held)
        del self.seen[before:]
        self.note("fact", "states as before or as after", all(fine))

    def interrupt_backward(self, call: Callable[[], Any], at: int) -> None:
        """Ctrl-C in the `at`-th function that a backward enters, where it is hybridized; its gradients are lost, and
        so is the error of heads that have none.
        """
        if self.engine is not None:
            with contextlib.suppress(AutogradError), _interrupted(at):
                call()

    @staticmethod
    def _restore(numbers: Any, held: list[Any]) -> None:
        mx.random.set_state(numbers)
        for parameter, value in held:
            parameter.set_data(value)

    def forked(self, call: Callable[[], Any]) -> None:
        """A call in a forked process, which leaves this one as it is. An error in it ends the part."""
        numbers = mx.random.get_state()
        result = _in_child(call)
        mx.random.set_state(numbers)
        self.see("forked", result)

    def threads(self, call: Callable[[], Any], count: int = 3) -> None:
        """The same call from several threads at once. An error of one of them ends the part, as any error does."""
        numbers, results = mx.random.get_state(), [None] * count
        errors: dict[int, Exception] = {}

        def work(index: int) -> None:
            try:
                results[index] = call()
            except Exception as error:
                errors[index] = error

        workers = [threading.Thread(target=work, args=(index,)) for index in range(count)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        mx.random.set_state(numbers)
        if errors:
            raise errors[min(errors)]
        for index, result in enumerate(results):
            self.see(f"thread {index}", result)


class _Flat:
    """A net with its arguments. Called, it gives the arrays that the net returns, in a list."""

    def __init__(self, net: Any, parameters: list[Any], arguments: Any):
        self.net, self.parameters, self._arguments = net, parameters, arguments
        net.collect_params().zero_grad()

    def __call__(self) -> list[Any]:
        return arrays_in(self.net(*self._arguments))


def arrays_in(item: Any) -> list[Any]:
    """The arrays in nested tuples, lists and dicts."""
    if isinstance(item, dict):
        item = list(item.values())
    if isinstance(item, (tuple, list)):
        return [array for part in item for array in arrays_in(part)]
    return [item] if isinstance(item, nd.NDArray) else []


def _in_child(call: Callable[[], Any]) -> list[Any]:
    """The arrays that a call gives in a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            try:
                answer: Any = [array.asnumpy() for array in arrays_in(call())]
            except Exception as error:
                answer = error
            with os.fdopen(writing, "wb") as stream:
                pickle.dump(answer, stream)
        finally:
            os._exit(0)
    os.close(writing)
    timer = threading.Timer(60, os.kill, (child, signal.SIGKILL))
    timer.start()
    try:
        with os.fdopen(reading, "rb") as stream:
            answer = pickle.load(stream)
    finally:
        timer.cancel()
        os.waitpid(child, 0)
    if isinstance(answer, Exception):
        raise answer
    return [nd.array(array, dtype=array.dtype) for array in answer]


@contextlib.contextmanager
def _values_of(arrays: Sequence[tuple[Any, Any]]) -> Iterator[list[list[Any]]]:
    """The values that each array has while calls in `with` update it, on host or device, the given one first."""
    values = [[value] for _, value in arrays]
    of = {id(array): taken for (array, _), taken in zip(arrays, values, strict=True)}
    on_device = {id(array.buffer): (array, taken) for (array, _), taken in zip(arrays, values, strict=True)}
    plain, plain_on_device = nd.NDArray.assign, Buffer.written_on_device

    def assign(self: Any, new: Any) -> None:
        plain(self, new)
        if id(self) in of:
            of[id(self)].append(self.asnumpy().copy())

    def written_on_device(self: Any) -> None:
        plain_on_device(self)
        if id(self) in on_device:
            array, taken = on_device[id(self)]
            taken.append(array.asnumpy().copy())

    nd.NDArray.assign, Buffer.written_on_device = assign, written_on_device  # type: ignore[method-assign]
    try:
        yield values
    finally:
        nd.NDArray.assign, Buffer.written_on_device = plain, plain_on_device  # type: ignore[method-assign]


@contextlib.contextmanager
def _interrupted(at: int) -> Iterator[None]:
    left = at

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal left
        if event != "call" or "hybrid_lab" not in frame.f_code.co_filename or frame.f_code.co_name.startswith("__"):
            return
        left -= 1
        if left == 0:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(count)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)


def run_text(
    text: str,
    engine: str | None = None,
    late: str | None = None,
    name: str = "program",
    rows: int = 0,
    zeros: Sequence[list[int]] = (),
    waits: Sequence[list[int]] = (),
    skips: Sequence[bool] = (),
) -> Run:
    """Run the function `program(run)` that a text defines."""
    import linecache

    file = f"<{name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space: dict[str, Any] = {"__name__": "random_program"}
    run = Run(engine, late, rows, zeros, waits, skips)
    with np.errstate(all="ignore"):
        exec(compile(text, file, "exec"), space)
        backward, grad = reverse.backward, reverse.grad
        try:
            reverse.backward = calls.backward = partial(run.backward, backward)
            reverse.grad = partial(run.grad, grad)
            space["program"](run)
        finally:
            reverse.backward = calls.backward = backward
            reverse.grad = grad
    return run
