"""Beside the real MXNet's amp: what nodes compute in, the lists, the loss scale. It has no numbers on a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import nd
from hybrid_lab.contrib import amp
from hybrid_lab.ops.framework.operator import find
from tests.golden.amp.cases import CASES

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/amp/amp.json").read_text())

#: MXNet converts a float16 value for one reader and hands the float32 copy to others of it too.
CONVERTED_FOR_ANOTHER = {"both_output": "float16"}


def dtypes_of(symbol):
    internals = symbol.get_internals()
    _, types, _ = internals.infer_type(**dict.fromkeys(internals.list_arguments(), "float32"))
    return {name: np.dtype(kind).name for name, kind in zip(internals.list_outputs(), types, strict=True)}


@pytest.mark.parametrize("name", CASES)
def test_nodes_compute_in_what_they_compute_in_there(name):
    build, _ = CASES[name]
    found = dtypes_of(amp.convert_symbol(build(mx)))
    wanted = {**GOLDEN["dtypes"][name], **{k: v for k, v in CONVERTED_FOR_ANOTHER.items() if name == "network"}}
    named = {key: kind for key, kind in wanted.items() if key in found}
    assert len(named) > 12 and {key: found[key] for key in named} == named


@pytest.mark.parametrize("name", CASES)
def test_eager_calls_give_the_same_dtypes(name):
    """Where the conversions lie does not depend on who puts them there."""
    build, shape = CASES[name]
    symbol = build(mx)
    shapes, _, states = symbol.infer_shape(data=shape)
    arguments = {key: nd.ones(each) * 0.1 for key, each in zip(symbol.list_arguments(), shapes)}
    arguments |= {key: nd.ones(each) for key, each in zip(symbol.list_auxiliary_states(), states)}
    converted = dtypes_of(amp.convert_symbol(symbol))
    amp.init()
    try:
        outputs = symbol.eval(**arguments)
    finally:
        amp.disable()
    for key, output in zip(symbol.list_outputs(), outputs, strict=True):
        assert np.dtype(output.dtype).name == converted[key]


def test_the_lists_agree():
    ours = {
        "lp16_ops": amp.list_lp16_ops(),
        "fp32_ops": amp.list_fp32_ops(),
        "widest_type_cast": amp.list_widest_type_cast(),
        "lp16_fp32_ops": amp.list_lp16_fp32_ops(),
    }
    place = {name: kind for kind, names in ours.items() for name in names}
    others = {}
    for kind, names in GOLDEN["lists"].items():
        for name in names if kind != "conditional_fp32_ops" else ():
            record = find(name)
            if record is not None and place.get(record.name) != kind:
                others.setdefault((kind, place.get(record.name)), set()).add(record.name)
    # Products of arrays are of low precision here.
    assert others.pop(("widest_type_cast", "lp16_ops")) == {
        "dot",
        "batch_dot",
        "_contrib_interleaved_matmul_selfatt_qk",
        "_contrib_interleaved_matmul_selfatt_valatt",
        "_contrib_interleaved_matmul_encdec_qk",
        "_contrib_interleaved_matmul_encdec_valatt",
    }
    # Between the other two the record decides: whether it takes inputs of both kinds, or needs one.
    assert set(others) <= {("widest_type_cast", "lp16_fp32_ops"), ("lp16_fp32_ops", "widest_type_cast")}
    assert [list(each) for each in amp.list_conditional_fp32_ops()] == GOLDEN["lists"]["conditional_fp32_ops"]


def test_the_loss_scale_goes_the_same_way():
    scaler, found = amp.LossScaler(), []
    for text in "..x.x..":
        scaler.overflowed([nd.array([np.inf if text == "x" else 1.0])])
        found.append(scaler.loss_scale)
    assert found == GOLDEN["scales"]
