"""Makes the .params golden files with the real MXNet 1.9.1: run with its Python, in this folder."""

import mxnet as mx
import numpy as np
from mxnet import nd

rng = np.random.RandomState(7)
DTYPES = ["float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool"]

nd.save(
    "named.params",
    {f"arg:{dtype}_weight": nd.array(rng.randint(0, 2, (2, 3)), dtype=dtype) for dtype in DTYPES}
    | {"aux:batchnorm0_running_mean": nd.array(rng.rand(4)), "größe.0.weight": nd.ones((1, 1, 1, 1, 2))},
)
nd.save("list.params", [nd.arange(5), nd.array([[1.5]])])
nd.save("row_sparse.params", {"w": nd.sparse.row_sparse_array(([[1, 2], [3, 4]], [0, 2]), shape=(4, 2))})
nd.save("csr.params", {"m": nd.sparse.csr_matrix(([1.0, 2.0], [0, 1], [0, 1, 2, 2]), shape=(3, 2))})
nd.save("row_sparse_empty.params", [nd.sparse.zeros("row_sparse", (4, 2))])
with mx.util.np_shape():
    nd.save("np_shape.params", [nd.zeros((0, 3)), nd.ones(())])
