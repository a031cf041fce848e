"""The ONNX form of every record as a file: checked in full, equal in ONNX Runtime, at several opsets and open sizes.

`make test` writes the first sample of each record for the oldest opset, and with open sizes for the newest;
HYBRID_LAB_ONNX=all (`make test-onnx`) all samples, for three opsets.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from hybrid_lab.diagnostics.errors import EngineError, HybridLabError, Unmappable
from hybrid_lab.onnx import opsets
from hybrid_lab.onnx.writing.detection import FORMS
from hybrid_lab.ops.framework.onnx_emit import OPSET
from hybrid_lab.ops.framework.run import run_kernel
from tests.ops.cases import CASES, RNG, Case, close

from . import one_operator as one

ALL = os.environ.get("HYBRID_LAB_ONNX") == "all"


def _has_form(case: Case) -> bool:
    op = predicting(case)
    return not op.random and (op.onnx is not None or op.is_composite or op.name in FORMS)


def predicting(case: Case) -> Any:
    return case.record.bind(**case.sample.attributes).bind_mode(False)


CHOSEN = [case for case in CASES if _has_form(case) and (ALL or case.number == 0)]
each = pytest.mark.parametrize("case", CHOSEN, ids=[case.id for case in CHOSEN])


@pytest.mark.parametrize("opset", [13, OPSET, "newest"] if ALL else [13])
@each
def test_forms_are_accepted_and_equal_numpy(case: Case, opset: Any):
    opset = opsets.newest() if opset == "newest" else opset
    op, inputs = predicting(case), case.inputs()
    try:
        model, _ = one.write(op, inputs, opset)
    except Unmappable as refusal:
        _is_explained(refusal, op, inputs, opset)
        return
    try:
        outputs = one.run(model, inputs)
    except EngineError as error:
        assert "NOT_IMPLEMENTED" in str(error)
        assert opsets.newest_that_runs(node.op_type for node in model.graph.node) < opset
        return
    for y, wanted in zip(outputs, run_kernel(op, inputs, rng=RNG), strict=False):
        assert y.dtype == wanted.dtype
        close(y, wanted, 1e-4 if op.attributes.get("mode") == "rnn_tanh" else 1e-5)


def _is_explained(refusal: Unmappable, op: Any, inputs: list[Any], opset: int) -> None:
    """The message names the operator, and the lowest opset that has a form, where there is one."""
    assert str(refusal).startswith(f"{op.name}: ")
    lowest = None
    for later in range(opset + 1, opsets.newest() + 1):
        try:
            one.write(op, inputs, later)
        except Unmappable:
            continue
        lowest = later
        break
    assert (f"not in opset {opset}, the lowest that has it is {lowest}" in str(refusal)) is (lowest is not None)


@each
def test_open_sizes_hold_for_others(case: Case):
    """The first two sizes of each input are tried out; what stays open holds for one more, for three more and for 1."""
    op, inputs = predicting(case), case.inputs()
    newest = opsets.newest_that_runs(["RoiAlign"] if "ROI" in op.name else [])
    try:
        model, sizes = one.write(op, inputs, newest, tried=True)
    except Unmappable:
        return
    arrays = [item for item in inputs if isinstance(item, np.ndarray)]
    for change in (lambda size: size, lambda size: size + 1, lambda size: size + 3, lambda size: 1):
        if change(2) == 1 and sizes.notes:
            continue  # the notes say for which sizes the file does not hold
        shapes = [list(item.shape) for item in arrays]
        for number, axis in sizes.places:
            shapes[number][axis] = change(shapes[number][axis])
        resized = iter([np.resize(item, shape) for item, shape in zip(arrays, shapes, strict=True)])
        others = [next(resized) if isinstance(item, np.ndarray) else item for item in inputs]
        try:
            expected = run_kernel(op, others, rng=RNG)
        except (HybridLabError, ValueError, IndexError):  # these sizes are no call of the operator
            continue
        for y, wanted in zip(one.run(model, others), expected, strict=False):
            close(y, wanted, 1e-4 if op.attributes.get("mode") == "rnn_tanh" else 1e-5)


#: Records whose first size is a batch in networks, and which therefore must not need it as a number.
BATCHED = (
    "FullyConnected", "Convolution", "Pooling", "BatchNorm", "LayerNorm", "Reshape", "transpose", "slice", "slice_axis",
    "slice_like", "Concat", "stack", "SliceChannel", "Embedding", "where", "softmax", "mean", "sum", "batch_dot",
    "_contrib_arange_like", "SequenceMask", "SequenceReverse", "RNN", "_contrib_interleaved_matmul_selfatt_qk",
    "_contrib_box_decode", "Deconvolution", "Pad", "UpSampling", "take", "pick", "one_hot", "topk", "squeeze",
)  # fmt: skip


@pytest.mark.parametrize("name", BATCHED)
def test_a_batch_can_be_open(name: str):
    opened = []
    for case in CASES:
        if case.record.name == name and _has_form(case):
            try:
                _, sizes = one.write(predicting(case), case.inputs(), OPSET, tried=True)
            except Unmappable:
                continue
            opened.append((0, 0) in sizes.places)
            assert not any("as a number" in note for note in sizes.notes)
    assert any(opened)
