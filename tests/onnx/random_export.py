"""Random programs exported to ONNX: what each HybridBlock of a program predicts, beside the file in ONNX Runtime.

`python -m tests.onnx.random_export FIRST-LAST` prints a line for each file that differs.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime

import hybrid_lab as mx
from hybrid_lab import autograd
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.hybridize.structure import flatten
from hybrid_lab.ndarray import NDArray
from hybrid_lab.onnx import own_graph
from hybrid_lab.onnx.reading.model_file import OnnxFile
from hybrid_lab.symbol import tracing
from tests.random_programs.rounding import other_rounding
from tests.random_programs.run import run_text
from tests.random_programs.session import write_program

MOST_CALLS = 3
"""Calls of a Block that are compared."""
TOLERANCE = 1e-3
"""Relative to the largest value: a file has other orders of summation. What differs more has to be moved as much by
other roundings of an eager call."""


class Comparison:
    """The files of some programs. outcomes : how often what came out; differences : one line for each file"""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outcomes: Counter[str] = Counter()
        self.differences: list[str] = []

    def program(self, seed: int) -> None:
        """Run a program eagerly; each prediction of an outermost Block is compared with its file."""
        calls: Counter[int] = Counter()
        with self._around_calls(seed, calls), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run_text(write_program(seed))

    @contextmanager
    def _around_calls(self, seed: int, calls: Counter[int]) -> Iterator[None]:
        original, of_own, inside = HybridBlock.__call__, HybridBlock._call_from_outside, [False]

        def compared(block: Any, args: Any, run: Callable[[], Any]) -> Any:
            if inside[0] or tracing.current() is not None or autograd.is_recording() or autograd.is_training():
                return run()
            inside[0] = True
            try:
                result = run()
                calls[id(block)] += 1
                if calls[id(block)] <= MOST_CALLS:
                    self._compare(seed, block, args, result, run)
                return result
            finally:
                inside[0] = False

        def call(block: Any, *args: Any) -> Any:
            if block._own_call:  # a __call__ of the program's has called super().__call__(*args): the file holds both
                return original(block, *args)
            return compared(block, args, lambda: original(block, *args))

        def whole_call(block: Any, args: Any, *keywords: Any) -> Any:
            if not block._own_call or any(keywords):
                return of_own(block, args, *keywords)
            return compared(block, args, lambda: of_own(block, args, *keywords))

        HybridBlock.__call__, HybridBlock._call_from_outside = call, whole_call  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            HybridBlock.__call__, HybridBlock._call_from_outside = original, of_own  # type: ignore[method-assign]

    def _compare(self, seed: int, block: Any, args: Any, result: Any, again: Callable[[], Any]) -> None:
        try:
            leaves, _ = flatten(args, "an argument")
        except HybridLabError:
            return
        if not leaves or not all(isinstance(leaf, NDArray) for leaf in leaves):
            return
        arrays = [leaf.asnumpy() for leaf in leaves]
        wanted = _arrays(result)
        outcome = self._outcome(block, args, arrays, wanted, again)
        self.outcomes[outcome.partition(":")[0]] += 1
        if outcome.startswith("differs"):
            self.differences.append(f"seed {seed}, {block.name}: {outcome}")

    def _outcome(
        self, block: Any, args: Any, arrays: list[np.ndarray], wanted: list[np.ndarray], again: Callable[[], Any]
    ) -> str:
        """again : makes the call once more, eagerly"""
        path = self.folder / "m.onnx"
        try:
            report = mx.onnx.export(block, path)
            if not all(map(_fits, report.exported[0].inputs.values(), arrays)):
                report = mx.onnx.export(block, path, inputs=args)  # a Block that is not hybridized: of its first call
        except HybridLabError as error:
            return f"refused by {type(error).__name__}"
        if not all(array.size for array in arrays):
            return "no elements, for which ONNX' operators have other rules"
        model = onnx.load(path)
        if not _comes_back(model):
            return "differs: the graph in its metadata does not give its nodes"
        text = str(model)
        if 'op_type: "Random' in text or 'op_type: "Bernoulli' in text:
            return "random numbers"
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001 - ONNX Runtime has errors of its own for each reason
            return "no kernel in ONNX Runtime" if "NOT_IMPLEMENTED" in str(error) else f"differs: {str(error)[-200:]}"
        read = {item.name for item in session.get_inputs()}
        names = list(report.exported[0].inputs)
        feeds = {name: array for name, array in zip(names, arrays, strict=True) if name in read}
        try:
            found = session.run(None, feeds)
        except Exception as error:  # noqa: BLE001
            return f"differs: {str(error)[-200:]}"
        for place, (one, two) in enumerate(zip(found, wanted, strict=True)):
            if (one.shape, one.dtype) != (two.shape, two.dtype):
                return f"differs: {one.dtype}{one.shape}, not {two.dtype}{two.shape}"
            if not all(np.isfinite(array.astype(np.float64)).all() for array in (two, *arrays)):
                return "not finite"
            scale = max(np.abs(two.astype(np.float64)).max(initial=0), 1e-3)
            gap = np.abs(one.astype(np.float64) - two).max(initial=0)
            if gap > TOLERANCE * scale and not _moves(again, place, two, gap):
                return f"differs: by {gap:g} of {scale:g}"
        return "equal"


def _arrays(result: Any) -> list[np.ndarray]:
    return [leaf.asnumpy() for leaf in flatten(result, "a result")[0]]


def _comes_back(model: onnx.ModelProto) -> bool:
    """Whether an import takes the operators that a file was written from, if the file has them."""
    names = [[item.name for item in values] for values in (model.graph.input, model.graph.output)]
    tells = any(item.key == own_graph.METADATA for item in model.metadata_props)
    return not tells or own_graph.restored(OnnxFile(model), *names) is not None


def _fits(dimensions: tuple[int | str, ...], array: np.ndarray) -> bool:
    """Whether a file's input takes an array."""
    pairs = zip(dimensions, array.shape, strict=False)
    return len(dimensions) == array.ndim and all(isinstance(wanted, str) or wanted == size for wanted, size in pairs)


def _moves(again: Callable[[], Any], place: int, wanted: np.ndarray, gap: float) -> bool:
    """Whether other roundings move output number `place` of an eager call about as much as `gap`."""
    state = mx.random.get_state()
    try:
        for trial in range(8):
            with other_rounding(trial):
                moved = _arrays(again())[place].astype(np.float64)
            if gap <= 4 * np.abs(moved - wanted).max(initial=0):
                return True
        return False
    finally:
        mx.random.set_state(state)


def compare(seeds: range, folder: Path, show: bool = False) -> Comparison:
    """Compare the files of these programs."""
    comparison = Comparison(folder)
    for seed in seeds:
        known = len(comparison.differences)
        comparison.program(seed)
        for line in comparison.differences[known:] if show else ():
            print(line, flush=True)
    return comparison


def main() -> int:
    """Compare the programs FIRST to LAST."""
    first, _, last = sys.argv[1].partition("-")
    with TemporaryDirectory() as folder:
        comparison = compare(range(int(first), int(last or first) + 1), Path(folder), show=True)
    for outcome, number in comparison.outcomes.most_common():
        print(f"{number:6,} {outcome}")
    return 1 if comparison.differences else 0


if __name__ == "__main__":
    sys.exit(main())
