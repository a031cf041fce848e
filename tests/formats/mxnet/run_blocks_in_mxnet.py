"""Runs under the real MXNet: imports each `<stem>-symbol.json` of a folder, writes its outputs to `<stem>.out.npz`."""

import glob
import sys

import mxnet as mx
import numpy as np
from mxnet import gluon

for path in sorted(glob.glob(sys.argv[1] + "/*-symbol.json")):
    stem = path[: -len("-symbol.json")]
    with np.load(stem + ".npz") as file:
        inputs = {name: mx.nd.array(file[name], dtype=file[name].dtype) for name in file.files}
    parameters = glob.glob(stem + "-0000.params")
    block = gluon.SymbolBlock.imports(path, list(inputs), parameters[0] if parameters else None)
    outputs = block(*inputs.values())
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    np.savez(stem + ".out.npz", **{str(index): y.asnumpy() for index, y in enumerate(outputs)})
