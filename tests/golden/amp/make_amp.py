"""Mixed precision in the real MXNet 1.9.1: writes amp.json. No numbers: MXNet computes in float16 on GPUs only.

Needs the oracle's environment:

    MXNET_MKLDNN_ENABLED=0 .oracle/bin/python tests/golden/amp/make_amp.py

dtypes : by case, the dtype of every named node's output after `amp.convert_symbol`; lists : `amp.list_*`;
scales : the loss scale after each of some steps, "x" for one that overflowed
"""

import json
from pathlib import Path

import mxnet as mx
import numpy as np
from cases import CASES
from mxnet import gluon
from mxnet.contrib import amp
from mxnet.contrib.amp.loss_scaler import LossScaler


def dtypes_of(symbol, shape):
    internals = amp.convert_symbol(symbol).get_internals()
    _, types, _ = internals.infer_type(**dict.fromkeys(internals.list_arguments(), "float32"))
    wanted = {f"{node}_output" for node in symbol.get_internals().list_outputs()} | set(
        symbol.get_internals().list_outputs()
    )
    return {name: np.dtype(kind).name for name, kind in zip(internals.list_outputs(), types) if name in wanted}


def scales():
    parameter = gluon.Parameter("p", shape=(2,))
    parameter.initialize()
    scaler, found = LossScaler(), []
    for text in "..x.x..":
        parameter.grad()[:] = np.inf if text == "x" else 1
        scaler.has_overflow([parameter])
        found.append(scaler._next_loss_scale)
    return found


lists = {
    name: getattr(amp, f"list_{name}")("float16")
    for name in ("lp16_ops", "fp32_ops", "conditional_fp32_ops", "widest_type_cast", "lp16_fp32_ops")
}
found = {
    "dtypes": {name: dtypes_of(build(mx), shape) for name, (build, shape) in CASES.items()},
    "lists": lists,
    "scales": scales(),
}
Path(__file__).with_name("amp.json").write_text(json.dumps(found, indent=1) + "\n")
