"""Modules of MXNet that are laid out differently here: MXNet's module -> the places that have its names."""

from __future__ import annotations

#: Module of MXNet, without `mxnet.` -> the places that have its names, without `hybrid_lab.`, searched in this order. A
#: place is a module, or `module:name` for a namespace such as `nd.contrib`, which then is the module itself. If this
#: package has a module of the same name, the places have the names that the module lacks.
PLACES: dict[str, tuple[str, ...]] = {
    "gluon.data.dataset": ("mxnet.compat.layer_helpers",),
    "gluon.utils": ("mxnet.compat.layer_helpers",),
    "io": ("mxnet.compat.batch_helpers",),
    "module.base_module": ("mxnet.compat.batch_helpers",),
    "module.executor_group": ("mxnet.compat.batch_helpers",),
    "executor_manager": ("mxnet.compat.batch_helpers",),
    "model": ("mxnet.compat.update_helpers",),
    "contrib.amp.amp": ("mxnet.contrib.amp", "mxnet.contrib.amp.mode"),
    "contrib.ndarray": ("ndarray:contrib",),
    "contrib.text.utils": ("mxnet.contrib.text.counting",),
    "contrib.symbol": ("symbol:contrib",),
    "gluon.block": ("gluon", "gluon.hybrid", "gluon.symbol_block", "mxnet.compat.nested_arguments"),
    "gluon.contrib.cnn.conv_layers": ("gluon.contrib.cnn",),
    "gluon.contrib.nn.basic_layers": ("gluon.contrib.nn",),
    "gluon.contrib.rnn.conv_rnn_cell": ("gluon.contrib.rnn",),
    "gluon.contrib.rnn.rnn_cell": ("gluon.contrib.rnn",),
    "gluon.contrib.estimator.utils": ("gluon.contrib.estimator.metrics",),
    "gluon.contrib.data.sampler": ("gluon.contrib.data",),
    "gluon.data.dataloader": ("gluon.data.batchify", "gluon.data.sampler", "gluon.data.worker_iter"),
    "gluon.nn.activations": ("gluon.nn.activation",),
    "gluon.nn.basic_layers": (
        "gluon.nn.container",
        "gluon.nn.dense",
        "gluon.nn.dropout",
        "gluon.nn.function",
        "gluon.nn.norm",
        "gluon.nn.shape",
    ),
    "gluon.nn.conv_layers": ("gluon.nn.conv", "gluon.nn.pool", "gluon.nn.shape", "mxnet.compat.layer_helpers"),
    "gluon.parameter": ("gluon.parameter_dict",),
    "gluon.rnn.rnn_cell": (
        "gluon.rnn",
        "gluon.rnn.cell",
        "gluon.rnn.modifier",
        "gluon.rnn.stack",
        "mxnet.compat.sequence_helpers",
    ),
    "gluon.rnn.rnn_layer": ("gluon.rnn.layer",),
    "image.image": ("data.image", "mxnet.compat.layer_helpers"),
    "io.io": ("data.io", "mxnet.compat.batch_helpers"),
    "io.utils": ("data.io", "mxnet.compat.batch_helpers"),
    "kvstore.base": ("distributed.kvstore",),
    "ndarray._internal": ("ndarray:_internal",),
    "ndarray.contrib": ("ndarray:contrib",),
    "ndarray.image": ("ndarray:image",),
    "ndarray.linalg": ("ndarray:linalg",),
    "ndarray.ndarray": ("ndarray", "mxnet.compat.layer_helpers"),
    "ndarray.op": ("ndarray:op",),
    "ndarray.utils": ("ndarray",),
    "optimizer.optimizer": ("optimizer",),
    "rnn.rnn": ("mxnet.rnn",),
    "rnn.rnn_cell": ("mxnet.rnn",),
    "symbol.contrib": ("symbol:contrib",),
    "symbol.image": ("symbol:image",),
    "symbol.linalg": ("symbol:linalg",),
    "symbol.op": ("symbol",),
    "symbol.random": ("symbol:random",),
    "symbol.symbol": ("symbol",),
    "visualization": ("mxnet.viz",),
}

#: Modules that a module of MXNet imports and that libraries take from there: `from mxnet.metric import ndarray`.
IMPORTED: dict[str, tuple[str, ...]] = {"metric": ("ndarray",)}
