"""Random orders of calls, changes and saves of one network; every file is opened in a process without its code.

A file must give what the net gives for each call that it had, in prediction mode, or the save must have said why not.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
import os
import pickle
import random
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd, np

from .networks import NETWORKS, Network
from .opener import arrays_of, encoded

FLAGS: list[dict[str, Any]] = [
    {}, {"static_alloc": True}, {"static_alloc": True, "static_shape": True}, {"engine": "numpy"}, {"inline_limit": 3},
]  # fmt: skip

READ_SHAPES = {"shapes", "np", "np plain top"}
"""Networks whose code reads shapes: each batch size is a graph of its own, and only some are kept."""

Expected = tuple[str, Any, list[numpy.ndarray]]
"""The path of a Block, the arguments of a call of it, and the arrays that it gave."""


class Lost(AssertionError):
    """A graph or a number was lost without a word."""


class Opener:
    """The process that opens files; it knows none of the networks' code."""

    def __init__(self) -> None:
        environment = {**os.environ, "HYBRID_LAB_CPU": "numpy"}
        command = [sys.executable, "-m", "tests.orders.opener"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def ask(self, kind: str, path: str, calls: list[tuple[str, Any]]) -> list[Any]:
        """The outputs of each call of a Block in the file, or the text of an error."""
        assert self._process.stdin is not None and self._process.stdout is not None
        data = pickle.dumps((kind, os.path.abspath(path), calls))
        self._process.stdin.write(struct.pack("<Q", len(data)) + data)
        self._process.stdin.flush()
        size = struct.unpack("<Q", self._process.stdout.read(8))[0]
        return pickle.loads(self._process.stdout.read(size))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


class _Said(logging.Handler):
    """Collects warnings and errors of the package's log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextlib.contextmanager
def hearing() -> Iterator[list[str]]:
    """The warnings of the package's log inside the block."""
    handler, logger = _Said(), logging.getLogger("hybrid_lab")
    logger.addHandler(handler)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)


class Order:
    """One order of steps. Its text is what a user would have typed."""

    def __init__(self, seed: int, opener: Opener, folder: str) -> None:
        self.random = random.Random(seed)
        self.name = self.random.choice(sorted(NETWORKS))
        self.network: Network = NETWORKS[self.name]
        self.opener, self.folder = opener, folder
        self.text = [f"seed {seed}: {self.name}"]
        self.counts: Counter[str] = Counter()
        self.dtype, self.batches, self.number = "float32", [], 0
        self.trainer: gluon.Trainer | None = None
        self.is_opened = False
        mx.random.seed(seed)
        numpy.random.seed(seed % 2**31)
        self.net = self._made()

    def _made(self) -> Any:
        net = self.network.make()
        if not self.network.is_made:
            net.initialize()
        return net

    # -- steps ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Make between four and nine steps, and end with a save that must have everything."""
        steps = self._steps()
        for _ in range(self.random.randint(4, 9)):
            step = self.random.choice(steps)
            self.text.append(step.__name__)
            step()
        self.text.append("save (end)")
        self.save()

    def _steps(self) -> list[Callable[[], None]]:
        steps = [self.call, self.call, self.call, self.hybridize, self.hybridize, self.save, self.eager]
        steps += [self.train] * bool(self.net.collect_params())
        steps += [self.export, self.folder_of_mxnet, self.load, self.copy, self.pickle, self.reset_ctx]
        steps += [self.cast] * self.network.casts
        steps += [self.onnx, self.checkpoint, self.parameters, self.replace, self.shallow_copy, self.open]
        steps += [self.call_many] * (self.name not in READ_SHAPES)
        steps += [self.change] * self.network.scale + [self.fail] * self.network.fails
        return steps

    def _array(self, *shape: int) -> Any:
        values = numpy.asarray(numpy.random.normal(size=shape), self.dtype)
        return (np if self.network.is_np else nd).array(values, dtype=values.dtype)

    def _arguments(self, batch: int) -> tuple[Any, ...]:
        return self.network.arguments(batch, self._array)

    def call(self) -> None:
        """In prediction mode, with one of three batch sizes."""
        batch = self.random.choice(self.batches if self.is_opened else [2, 3, 4])
        if self._try(lambda: self.net(*self._arguments(batch))):
            self.batches = [*(each for each in self.batches if each != batch), batch]

    def call_many(self) -> None:
        """With more batch sizes than a Block keeps kinds of calls."""
        for batch in range(5, 75) if not self.is_opened else ():
            if not self._try(functools.partial(self.net, *self._arguments(batch))):
                return
            if batch == 74:  # the latest
                self.batches.append(batch)

    def train(self) -> None:
        """One training step."""
        batch = self.random.choice(self.batches if self.is_opened else [2, 3])
        if self.trainer is None and self.net.collect_params():
            self.trainer = gluon.Trainer(self.net.collect_params(), "sgd", {"learning_rate": 0.01}, kvstore=None)

        def step() -> None:
            with autograd.record():
                outputs = _leaves(self.net(*self._arguments(batch)))
                loss = sum((each * each).mean() for each in outputs)
            loss.backward()
            if self.trainer is not None:
                self.trainer.step(1, ignore_stale_grad=True)

        if self._try(step) and batch not in self.batches:
            self.batches.insert(0, batch)  # files take a prediction for later than a training

    def hybridize(self) -> None:
        """With flags at random."""
        self.net.hybridize(**self.random.choice(FLAGS))

    def eager(self) -> None:
        """Back to eager calls."""
        self.net.hybridize(False)

    def cast(self) -> None:
        """To another floating dtype; the next calls have it."""
        if self.is_opened and self.name in ("shapes", "np"):  # their graphs hold for the dtypes of their trace alone
            return
        self.dtype = self.random.choice(["float32", "float64"])
        self.net.cast(self.dtype)
        self.trainer = None

    def change(self) -> None:
        """Another value of an attribute that the code reads."""
        if not self.is_opened:
            self.net.scale = self.random.choice([0.25, 2.0, 3.5])

    def fail(self) -> None:
        """The code cannot be traced, or can be traced again."""
        if not self.is_opened:
            self.net.fail = not self.net.fail

    def reset_ctx(self) -> None:
        """To the context where everything is."""
        self._try(lambda: self.net.reset_ctx(mx.cpu()))

    def copy(self) -> None:
        """Go on with a deep copy."""
        self.net, self.trainer = copy.deepcopy(self.net), None

    def shallow_copy(self) -> None:
        """Go on with a copy that has the same children and Parameters."""
        self.net, self.trainer = copy.copy(self.net), None

    def open(self) -> None:
        """Go on with the file's model, which has no code, if it has all calls."""
        fails = self.network.fails and not self.is_opened and self.net.fail
        is_whole = isinstance(self.net, gluon.HybridBlock) and bool(self.batches)
        path = self._write() if is_whole and not fails else None
        if path is None or any("no graph" in line for line in self.said):
            return
        self._compare(path)
        self.net, self.trainer, self.is_opened = gluon.load(path), None, True

    def pickle(self) -> None:
        """Go on with what a pickle brings back; a net from a file refuses to be pickled."""
        try:
            data = pickle.dumps(self.net)
        except mx.MXNetError:
            self.counts["refused: pickle"] += 1
            return
        self.net, self.trainer = pickle.loads(data), None

    def load(self) -> None:
        """Save, and go on with a new net of the same code that loads the file."""
        path = None if self.is_opened else self._write()
        if path is None:
            return
        net = self._made()
        if self.dtype != "float32":
            net.cast(self.dtype)
        if self.network.scale:
            net.scale = self.net.scale
        if self.network.fails and self.net.fail:
            return
        net.load(path)
        self.net, self.trainer = net, None

    def save(self) -> None:
        """Save, open the file without the code, and compare."""
        path = self._write()
        if path is not None:
            self._compare(path)

    def export(self) -> None:
        """MXNet's two files."""
        if not isinstance(self.net, gluon.HybridBlock):
            return
        path = os.path.join(self.folder, f"export{self.number}")
        self.number += 1
        expected = self._expected()
        try:
            self.net.export(path)
        except mx.MXNetError as error:
            self._excuse(error, bool(expected))
            return
        if expected:
            self._check("mxnet", path, [(place, *rest) for place, *rest in expected[-1:]], [])

    def folder_of_mxnet(self) -> None:
        """A folder of MXNet's files."""
        path = os.path.join(self.folder, f"folder{self.number}")
        self.number += 1
        with hearing() as said:
            try:
                mx.save_cached_graphs(self.net, path, format="mxnet")
            except mx.MXNetError as error:
                self._excuse(error, bool(self._expected()))
                return
        for place, arguments, outputs in self._latest(self._expected()):
            prefix = os.path.join(path, place or "__root__")
            if os.path.exists(prefix + "-symbol.json"):
                self._check("mxnet", prefix, [("", arguments, outputs)], said)
            elif not said:
                raise Lost(f"{place!r} has no file in the folder")

    def onnx(self) -> None:
        """An ONNX file of a HybridBlock, which its own importer opens."""
        if not isinstance(self.net, gluon.HybridBlock) or self.network.is_np or self.dtype != "float32":
            return
        path = os.path.join(self.folder, f"onnx{self.number}.onnx")
        self.number += 1
        expected = self._expected()
        try:
            mx.onnx.export(self.net, path)
        except mx.MXNetError as error:
            self._excuse(error, bool(expected))
            return
        self._check("onnx", path, expected[-1:], [])

    def checkpoint(self) -> None:
        """A checkpoint of a folder that has others already."""
        manager = mx.checkpoint.Manager(os.path.join(self.folder, "run"), self.net, keep_last=2)
        with hearing() as said:
            self.number += 1
            path = manager.save(self.number)
        self._check("hlab", str(path), self._expected(), said)

    def parameters(self) -> None:
        """Write the parameters, and load them again."""
        path = os.path.join(self.folder, "net.params")
        try:
            self.net.save_parameters(path)
        except mx.MXNetError as error:
            self._excuse(error, bool(self.batches))
            return
        self.net.load_parameters(path)

    def replace(self) -> None:
        """Another child of the same kind."""
        if self.name not in ("scaled", "np plain top", "plain top", "deep"):
            return
        name = {"scaled": "second", "np plain top": "head", "plain top": "decoder", "deep": "stem"}[self.name]
        if self.dtype != "float32" or self.is_opened:
            return
        child = getattr(self.network.make(), name)
        child.initialize()
        setattr(self.net, name, child)
        self.trainer = None
        self.batches = []

    # -- checks --------------------------------------------------------------------------------------------------

    def _try(self, step: Callable[[], object]) -> bool:
        """A step that may end with a typed error; whether it did not."""
        try:
            step()
        except mx.MXNetError as error:
            self._excuse(error, True)
            return False
        return True

    def _excuse(self, error: Exception, expected: bool) -> None:
        name, text = type(error).__name__, str(error)
        fails = self.network.fails and not self.is_opened and self.net.fail
        if name in ("UninitializedError", "DeferredInitializationError") and not self.batches:
            self.counts["refused: never called"] += 1
        elif self.is_opened and name == "MissingGraphError" and "in training" in text:
            self.counts["refused: the file has no graph of a training"] += 1
        elif fails and ("HL1" in text):
            self.counts["refused: the code does not trace"] += 1
        elif not expected and ("never called" in text or "call the model once" in text):
            self.counts["refused: never called"] += 1
        elif name == "Unmappable" or "cannot be written to MXNet" in text or "MXNet" in text:
            self.counts["refused: no form in MXNet's files"] += 1
        else:
            raise error

    def _write(self) -> str | None:
        path = os.path.join(self.folder, f"net{self.random.randrange(3)}.hlab")
        with hearing() as self.said:
            try:
                self.net.save(path)
            except mx.MXNetError as error:
                if type(error).__name__ != "FewerGraphsError":
                    raise
                self.counts["asked before fewer graphs are written"] += 1
                self.net.save(path, overwrite="fewer graphs")
        return path

    def _expected(self) -> list[Expected]:
        """(path, arguments, outputs) of each call of an outermost HybridBlock, in prediction mode, by a copy that runs
        eagerly.
        """
        if not self.batches:
            return []
        twin = copy.deepcopy(self.net)
        twin.hybridize(False)
        calls: list[Expected] = []
        hooks = []
        for place, block in _outermost(twin):

            def note(_: Any, arguments: Any, result: Any, place: str = place) -> None:
                calls.append((place, encoded(tuple(arguments)), arrays_of(encoded(result))))

            hooks.append(block.register_forward_hook(note))
        state = numpy.random.get_state()
        for batch in self.batches:
            twin(*self._arguments(batch))
        numpy.random.set_state(state)
        for hook in hooks:
            hook.detach()
        return calls

    def _latest(self, expected: list[Expected]) -> list[Expected]:
        return list({place: (place, arguments, outputs) for place, arguments, outputs in expected}.values())

    def _compare(self, path: str) -> None:
        self._check("hlab", path, self._expected(), self.said)

    def _check(self, kind: str, path: str, expected: list[Expected], said: list[str]) -> None:
        results = self.opener.ask(kind, path, [(place, arguments) for place, arguments, _ in expected])
        for (place, arguments, outputs), result in zip(expected, results, strict=True):
            if isinstance(result, str):
                if kind == "mxnet" and self.name in ("shapes", "optional", "dicts", "np"):
                    self.counts["MXNet's file is of another structure or shape"] += 1
                    continue
                if any("no graph" in line for line in said):
                    self.counts["a warning said why"] += 1
                    continue
                raise Lost(f"{os.path.basename(path)}, {place!r}: {result}\nwarnings: {said}")
            self.counts[f"{kind} outputs compared"] += 1
            for mine, theirs in zip(outputs, result, strict=kind == "hlab"):
                largest = float(numpy.abs(mine).max()) if mine.size else 0.0
                if mine.shape != theirs.shape or not numpy.allclose(mine, theirs, 1e-4, 1e-5 * (1 + largest)):
                    if kind == "mxnet" and self.name in ("shapes", "optional", "np"):
                        self.counts["MXNet's file is of another structure or shape"] += 1
                        continue
                    raise Lost(f"{os.path.basename(path)}, {place!r}: other numbers for {arguments}")


def _outermost(net: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(net, gluon.HybridBlock):
        return [(path, net)]
    found: dict[int, tuple[str, Any]] = {}
    for name, child in net._children.items():
        for place, block in _outermost(child, f"{path}.{name}".lstrip(".")):
            found.setdefault(id(block), (place, block))
    return list(found.values())


def _leaves(item: Any) -> list[Any]:
    if isinstance(item, dict):
        item = list(item.values())
    if isinstance(item, (list, tuple)):
        return [leaf for part in item for leaf in _leaves(part)]
    return [] if item is None else [item]


def run_order(seed: int, opener: Opener, folder: str) -> Counter[str]:
    """One order; raises Lost, or what the package raised, with the order's text as a note."""
    order = None
    try:
        order = Order(seed, opener, folder)
        with contextlib.ExitStack() as stack:
            if order.network.is_np:
                stack.enter_context(mx.util.np_shape(True))
                stack.enter_context(mx.util.np_array(True))
            order.run()
    except Exception as error:
        if order is not None:
            error.add_note(" -> ".join(order.text))
        raise
    return order.counts
