"""Runs under the real MXNet: loads each symbol JSON of a folder, feeds it the arrays beside it, writes its outputs."""

import glob
import json
import sys
import traceback

import mxnet as mx
import numpy as np


def run(stem):
    """Outputs in predict mode of `<stem>.json` on the arrays of `<stem>.npz`."""
    symbol = mx.sym.load(stem + ".json")
    with np.load(stem + ".npz") as file:
        arrays = {name: mx.nd.array(file[name], dtype=file[name].dtype) for name in file.files}
    args = {name: arrays[name] for name in symbol.list_arguments()}
    states = {name: arrays[name] for name in symbol.list_auxiliary_states()}
    outputs = symbol.bind(mx.cpu(), args, aux_states=states).forward(is_train=False)
    np.savez(stem + ".out.npz", **{str(index): output.asnumpy() for index, output in enumerate(outputs)})


problems = {}
for path in sorted(glob.glob(sys.argv[1] + "/*.json")):
    stem = path[: -len(".json")]
    try:
        run(stem)
    except Exception:
        problems[stem] = traceback.format_exc()[-600:]
with open(sys.argv[1] + "/problems.txt", "w") as file:
    json.dump(problems, file)
