"""Every sample gives the outputs, gradients and auxiliary states of the real MXNet 1.9.1, or is a listed difference."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hybrid_lab.ops.framework.namespace import F
from hybrid_lab.ops.framework.run import run_gradient
from tests.golden.ops.export_samples import CRASHING, comparable, mxnet_call
from tests.ops.cases import CASES, Case, Contract, close

contract = Contract()
FOLDER = Path(__file__).parent.parent / "golden" / "ops"

#: Cases of which MXNet's answer is not ours on purpose.
DIFFERENT: dict[str, str] = {
    "LeakyReLU-3": "MXNet's gradient of selu multiplies the output by the scale once more; ours is the derivative",
    "softmax-6": "MXNet computes in float16 and converts then; ours computes in float32",
    "log_softmax-4": "MXNet computes in float16 and converts then; ours computes in float32",
    "SoftmaxActivation-2": "MXNet's gradient is that of a softmax over more than the last axis; ours is the derivative",
    "SoftmaxOutput-9": "with out_grad MXNet multiplies with its output in place of the gradient from above",
    **{f"_image_flip_{name}-0": "MXNet's gradient is not flipped" for name in ("left_right", "top_bottom")},
    **{f"{name}_like-1": "MXNet ignores dtype" for name in ("zeros", "ones")},
    "mp_lamb_update_phase2-0": "MXNet leaves weight32 as it was, so that the next step starts there again",
}
#: Cases that MXNet refuses.
REFUSED: dict[str, str] = {
    "transpose-2": "negative axes",
    **{f"norm-{number}": "out_dtype needs MXNET_SAFE_ACCUMULATION=1" for number in range(4, 7)},
    "cumsum-2": "the gradient of a negative axis",
    "batch_take-0": "it has no gradient there",
    **{f"BatchNorm_v1-{number}": "arrays of running statistics cannot be given" for number in range(3)},
    **{f"_image_flip_{name}-1": "one image only" for name in ("left_right", "top_bottom")},
    **{f"_contrib_{name}-{number}": "on GPUs only" for name in ("fft", "ifft", "count_sketch") for number in range(2)},
    "_contrib_ModulatedDeformableConvolution-0": "the gradient is on GPUs only",
    **{f"_contrib_group_adagrad_update-{number}": "sparse gradients only" for number in range(2)},
    **{f"khatri_rao-{number}": "it has no gradient there" for number in range(3)},
    "Deconvolution-8": "three dimensions on a CPU",
    "_contrib_BatchNormWithReLU-0": "needs oneDNN, whose gradients are wrong",
    "_contrib_BatchNormWithReLU-1": "needs oneDNN, whose gradients are wrong",
    "dot-8": "float16 on a CPU",
    "FullyConnected-4": "float16 on a CPU",
    **{
        f"{name}-{number}": "row_sparse arrays only"
        for name in ("_sparse_retain", "_square_sum")
        for number in range(2)
    },
    "_contrib_SparseEmbedding-0": "row_sparse gradients only",
}


@cache
def golden(family: str) -> dict[str, np.ndarray]:
    with np.load(FOLDER / f"{family}.npz") as file:
        return dict(file)


@cache
def exported() -> tuple[dict[str, dict], dict[str, np.ndarray]]:
    with np.load(FOLDER / "samples.npz") as file:
        arrays = dict(file)
    return {call["id"]: call for call in json.loads(str(arrays.pop("calls")))}, arrays


def heads(y: np.ndarray) -> np.ndarray:
    """The head gradients of make_ops.py."""
    return (((np.arange(y.size) * 7919) % 41 - 20) / 16.0).reshape(y.shape).astype(y.dtype)


@contract.each_sample(comparable)
def the_golden_data_belongs_to_this_sample(case: Case):
    calls, arrays = exported()
    name, attributes, inputs = mxnet_call(case)
    assert case.id in calls, "no answer of MXNet: set mxnet = None if it has no such operator, else `make golden`"
    call = calls[case.id]
    assert (call["operator"], call["attributes"]) == (name, attributes), "run tests/golden/ops/export_samples.py again"
    for index, item in enumerate(inputs):
        # Matrices are made by products, whose last bits depend on the processor.
        np.testing.assert_allclose(arrays[f"{case.id}/{index}"], item, rtol=1e-6, atol=1e-6)


@contract.each_sample(comparable)
def agrees_with_mxnet(case: Case):
    answers = golden(case.record.family)
    if case.id in DIFFERENT:
        pytest.skip(DIFFERENT[case.id])
    if f"{case.id}/error" in answers:
        assert case.id in REFUSED, str(answers[f"{case.id}/error"])
        return
    op, inputs = case.op, case.inputs()
    outputs = case.outputs(inputs)
    visible = outputs[: op.signature.visible]
    for index, y in enumerate(visible):
        expected = answers[f"{case.id}/y{index}"]
        assert y.dtype == expected.dtype
        close(y, expected)
    aux = op.aux(F, tuple(inputs), outputs)
    for index, name in enumerate(op.signature.inputs):
        if f"{case.id}/aux{index}" in answers and (case.sample.gradient or case.op.signature.aux_always):
            close(aux.get(name, inputs[index]), answers[f"{case.id}/aux{index}"])
    if not case.sample.gradient or not case.record.differentiable:
        return
    gradients = run_gradient(op, F, inputs, outputs, [heads(y) for y in visible])
    arrays = [index for index, item in enumerate(inputs) if isinstance(item, np.ndarray)]
    for number, index in enumerate(arrays):
        expected = answers.get(f"{case.id}/dx{number}")
        if expected is not None and gradients[index] is None and not expected.any():
            continue  # MXNet answers zeros where a gradient is always zero, the rule answers nothing
        if expected is not None:
            assert gradients[index] is not None and gradients[index].dtype == expected.dtype
            close(gradients[index], expected, 1e-4)


test_records = contract.test(comparable)


def test_listed_cases_exist():
    known = {case.id for case in CASES}
    assert set(DIFFERENT) | set(REFUSED) | CRASHING <= known
