"""Runs under the real MXNet: imports each `<stem>-symbol.json` of a folder, writes outputs and gradients."""

import glob
import json
import sys
import traceback

import mxnet as mx
import numpy as np
from mxnet import gluon


def run(stem):
    with np.load(stem + ".npz") as file:
        inputs = {name: mx.nd.array(file[name], dtype=file[name].dtype) for name in file.files}
    block = gluon.SymbolBlock.imports(stem + "-symbol.json", list(inputs), stem + "-0000.params")
    outputs = block(*inputs.values())
    outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    found = {str(index): output.asnumpy() for index, output in enumerate(outputs)}
    trained = [p for p in block.collect_params().values() if p.grad_req != "null"]
    if trained:
        found |= gradients(block, inputs, trained)
    np.savez(stem + "-outputs.npz", **found)


def gradients(block, inputs, trained):
    """Of the sum of squares of all outputs, in predict mode (which MXNet's backward must be told again)."""
    with mx.autograd.record(train_mode=False):
        outputs = block(*inputs.values())
        outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        loss = sum((output * output).sum() for output in outputs)
    loss.backward(train_mode=False)
    return {f"grad:{p.name}": p.grad().asnumpy() for p in trained}


problems = {}
for path in sorted(glob.glob(sys.argv[1] + "/*-symbol.json")):
    stem = path[: -len("-symbol.json")]
    try:
        run(stem)
    except Exception:
        problems[stem] = traceback.format_exc()[-800:]
with open(sys.argv[1] + "/problems.txt", "w") as file:
    json.dump(problems, file)
