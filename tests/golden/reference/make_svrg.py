"""Writes the weights of the real MXNet's SVRGModule after each of two epochs into svrg.npz, beside this script."""

import mxnet as mx
import numpy as np
from mxnet.contrib.svrg_optimization.svrg_module import SVRGModule

random_values = np.random.RandomState(0)
data = random_values.rand(22, 3).astype("float32")
label = data.dot(np.array([1.0, -2.0, 3.0], "float32"))
batches = mx.io.NDArrayIter(data, label, batch_size=4, label_name="label")
output = mx.sym.FullyConnected(mx.sym.Variable("data"), name="fc", num_hidden=1)
symbol = mx.sym.LinearRegressionOutput(output, mx.sym.Variable("label"), name="out")
found = {"data": data, "label": label}


def keep(epoch, symbol, arguments, states):
    """Keep the parameters of an epoch."""
    found.update({f"{name}_{epoch}": values.asnumpy() for name, values in arguments.items()})


module = SVRGModule(symbol, label_names=["label"], update_freq=2)
module.fit(
    batches,
    eval_metric="mse",
    optimizer_params={"learning_rate": 0.05, "momentum": 0.9},
    initializer=mx.init.Constant(0.1),
    epoch_end_callback=keep,
    num_epoch=2,
)
np.savez_compressed("svrg.npz", **found)
