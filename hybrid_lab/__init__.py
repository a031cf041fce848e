"""hybrid_lab: Gluon-style modelling inside JupyterLab - eager on NumPy, compiled after hybridize()."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from hybrid_lab import aliases  # lets older names of modules be imported
from hybrid_lab._version import __version__
from hybrid_lab.mxnet import without_compat as _without_compat
from hybrid_lab.system import imports as _imports
from hybrid_lab.system import logger as _logger
from hybrid_lab.system import openblas as _openblas
from hybrid_lab.system import provided as _provided
from hybrid_lab.system import telemetry as _telemetry

if TYPE_CHECKING:
    import hybrid_lab.ndarray as nd
    import hybrid_lab.symbol as sym
    from hybrid_lab import autograd, gluon
    from hybrid_lab.formats import checkpoint
    from hybrid_lab.insight.capture import capture
    from hybrid_lab.insight.compare import compare
    from hybrid_lab.insight.explain import explain
    from hybrid_lab.insight.model_summary import summary
    from hybrid_lab.insight.profile import profile
    from hybrid_lab.insight.tune import tune
    from hybrid_lab.insight.watch import watch_nan
    from hybrid_lab.mxnet import contrib

_logger.install()
_openblas.choose_kernels()
_telemetry.switch_off()
_without_compat.install()

#: Public name -> module, or (module, attribute). A module loads when its name is first used.
_PUBLIC_NAMES: dict[str, str | tuple[str, str]] = {
    "attribute": "hybrid_lab.symbol.attribute",
    "autograd": "hybrid_lab.autograd",
    "base": "hybrid_lab.mxnet.base",
    "callback": "hybrid_lab.mxnet.callback",
    "checkpoint": "hybrid_lab.formats.checkpoint",
    "context": "hybrid_lab.context",
    "contrib": "hybrid_lab.mxnet.contrib",
    "diagnostics": "hybrid_lab.diagnostics",
    "distributed": "hybrid_lab.distributed",
    "engine": "hybrid_lab.mxnet.engine",
    "engines": "hybrid_lab.engines",
    "executor": "hybrid_lab.mxnet.executor",
    "formats": "hybrid_lab.formats",
    "gluon": "hybrid_lab.gluon",
    "graph": "hybrid_lab.graph",
    "image": "hybrid_lab.data.image",
    "img": "hybrid_lab.data.image",
    "init": "hybrid_lab.initializer",
    "initializer": "hybrid_lab.initializer",
    "insight": "hybrid_lab.insight",
    "io": "hybrid_lab.data.io",
    "kv": "hybrid_lab.distributed.kvstore",
    "kvstore": "hybrid_lab.distributed.kvstore",
    "lab": "hybrid_lab.lab",
    "libinfo": "hybrid_lab.mxnet.libinfo",
    "lint": "hybrid_lab.lint",
    "lr_scheduler": "hybrid_lab.lr_scheduler",
    "metric": "hybrid_lab.metric",
    "mod": "hybrid_lab.mxnet.module",
    "model": "hybrid_lab.mxnet.model",
    "module": "hybrid_lab.mxnet.module",
    "mon": "hybrid_lab.mxnet.monitor",
    "monitor": "hybrid_lab.mxnet.monitor",
    "name": "hybrid_lab.symbol.name",
    "nd": "hybrid_lab.ndarray",
    "ndarray": "hybrid_lab.ndarray",
    "np": "hybrid_lab.numpy",
    "npx": "hybrid_lab.numpy.extension",
    "numpy": "hybrid_lab.numpy",
    "numpy_extension": "hybrid_lab.numpy.extension",
    "onnx": "hybrid_lab.onnx",
    "ops": "hybrid_lab.ops",
    "operator": "hybrid_lab.mxnet.operator",
    "optimizer": "hybrid_lab.optimizer",
    "profiler": "hybrid_lab.mxnet.profiler",
    "random": "hybrid_lab.random",
    "recordio": "hybrid_lab.data.recordio",
    "registry": "hybrid_lab.mxnet.registry",
    "rnd": "hybrid_lab.random",
    "rnn": "hybrid_lab.mxnet.rnn",
    "runtime": "hybrid_lab.mxnet.runtime",
    "sym": "hybrid_lab.symbol",
    "symbol": "hybrid_lab.symbol",
    "test_utils": "hybrid_lab.mxnet.test_utils",
    "torch": "hybrid_lab.torch",
    "visualization": "hybrid_lab.mxnet.viz",
    "util": "hybrid_lab.mxnet.util",
    "viz": "hybrid_lab.mxnet.viz",
    "AttrScope": ("hybrid_lab.symbol.attribute", "AttrScope"),
    "Context": ("hybrid_lab.context", "Context"),
    "HybridizeError": ("hybrid_lab.diagnostics", "HybridizeError"),
    "MXNetError": ("hybrid_lab.diagnostics", "MXNetError"),
    "Placeholder": ("hybrid_lab.gluon", "Placeholder"),
    "NonFiniteError": ("hybrid_lab.diagnostics", "NonFiniteError"),
    "cpu": ("hybrid_lab.context", "cpu"),
    "cpu_pinned": ("hybrid_lab.context", "cpu_pinned"),
    "current_context": ("hybrid_lab.context", "current_context"),
    "gpu": ("hybrid_lab.context", "gpu"),
    "num_gpus": ("hybrid_lab.context", "num_gpus"),
    "capture": ("hybrid_lab.insight", "capture"),
    "compare": ("hybrid_lab.insight", "compare"),
    "diff": ("hybrid_lab.formats.archive", "diff"),
    "explain": ("hybrid_lab.insight", "explain"),
    "load_cached_graphs": ("hybrid_lab.formats.archive", "load_cached_graphs"),
    "load_ipython_extension": ("hybrid_lab.lab", "load_ipython_extension"),
    "log": ("hybrid_lab.lab.training.current", "log"),
    "is_np_array": ("hybrid_lab.mxnet.util", "is_np_array"),
    "is_np_shape": ("hybrid_lab.mxnet.util", "is_np_shape"),
    "np_array": ("hybrid_lab.mxnet.util", "np_array"),
    "np_shape": ("hybrid_lab.mxnet.util", "np_shape"),
    "profile": ("hybrid_lab.insight", "profile"),
    "summary": ("hybrid_lab.insight.model_summary", "summary"),
    "tune": ("hybrid_lab.insight", "tune"),
    "save_cached_graphs": ("hybrid_lab.formats.archive", "save_cached_graphs"),
    "set_np_shape": ("hybrid_lab.mxnet.util", "set_np_shape"),
    "use_np": ("hybrid_lab.mxnet.util", "use_np"),
    "use_np_array": ("hybrid_lab.mxnet.util", "use_np_array"),
    "use_np_shape": ("hybrid_lab.mxnet.util", "use_np_shape"),
    "use_compiled": ("hybrid_lab.formats.archive", "use_compiled"),
    "unload_ipython_extension": ("hybrid_lab.lab", "unload_ipython_extension"),
    "watch_nan": ("hybrid_lab.insight", "watch_nan"),
    "view": ("hybrid_lab.lab", "view"),
}

__all__ = ["__version__", *_PUBLIC_NAMES]

#: Functions that rooms call and rooms above them provide -> module, attribute. See `hybrid_lab.system.provided`.
_provided.register({
    "archive_arguments": ("hybrid_lab.formats.archive.open", "archive_arguments"),
    "array_html": ("hybrid_lab.insight.facets", "array_html"),
    "bind_symbol": ("hybrid_lab.mxnet.executor.binding", "bind"),
    "block_html": ("hybrid_lab.lab.views.static_html", "block_html"),
    "distributed_join": ("hybrid_lab.gluon.joined", "join"),
    "joined_workers": ("hybrid_lab.distributed.worker_group", "joined_workers"),
    "sum_over_workers": ("hybrid_lab.distributed.totals", "summed"),
    "distributed_store": ("hybrid_lab.distributed.store", "create"),
    "complete_block": ("hybrid_lab.gluon.completing", "complete"),
    "compile_body": ("hybrid_lab.engines.numpy.engine", "compile_body"),
    "compile_for": ("hybrid_lab.insight.compiled", "compile_for"),
    "compose_call": ("hybrid_lab.symbol.nd_calls", "compose_call"),
    "compose_cond": ("hybrid_lab.symbol.nd_calls", "compose_cond"),
    "compose_creation": ("hybrid_lab.symbol.nd_calls", "compose_creation"),
    "compose_foreach": ("hybrid_lab.symbol.nd_calls", "compose_foreach"),
    "compose_while_loop": ("hybrid_lab.symbol.nd_calls", "compose_while_loop"),
    "export_outermost": ("hybrid_lab.formats.archive.exporting", "export_outermost"),
    "feed_forward_class": ("hybrid_lab.mxnet.module.feed_forward", "feed_forward_class"),
    "graph_dot": ("hybrid_lab.lab.picture.graph_view", "graph_dot"),
    "graph_svg": ("hybrid_lab.lab.views.static_picture", "graph_svg"),
    "findings_of": ("hybrid_lab.lint.runner", "findings_of"),
    "onnx_export_model": ("hybrid_lab.onnx.symbols", "export_model"),
    "onnx_get_model_metadata": ("hybrid_lab.onnx.symbols", "get_model_metadata"),
    "onnx_import_model": ("hybrid_lab.onnx.symbols", "import_model"),
    "onnx_import_to_gluon": ("hybrid_lab.onnx.symbols", "import_to_gluon"),
    "image_det_record_iter": ("hybrid_lab.data.image.detection_record_iter", "ImageDetRecordIter"),
    "image_record_int8_iter": ("hybrid_lab.data.image.record_iter", "ImageRecordInt8Iter"),
    "image_record_iter": ("hybrid_lab.data.image.record_iter", "ImageRecordIter"),
    "image_record_iter_v1": ("hybrid_lab.data.image.record_iter", "ImageRecordIter_v1"),
    "image_record_uint8_iter_v1": ("hybrid_lab.data.image.record_iter", "ImageRecordUInt8Iter_v1"),
    "image_record_uint8_iter": ("hybrid_lab.data.image.record_iter", "ImageRecordUInt8Iter"),
    "invoke_on_device": ("hybrid_lab.ndarray.on_device", "invoke_on_device"),
    "kernel_html": ("hybrid_lab.insight.kernel_table", "kernel_html"),
    "parameter_html": ("hybrid_lab.insight.facets", "parameter_html"),
    "custom_of_file": ("hybrid_lab.mxnet.operator.calls", "custom_of_file"),
    "custom_operator": ("hybrid_lab.mxnet.operator.calls", "custom"),
    "custom_symbol": ("hybrid_lab.mxnet.operator.calls", "custom_symbol"),
    "drop_custom_graphs": ("hybrid_lab.gluon.custom_graphs", "drop_custom_graphs"),
    "model_summary": ("hybrid_lab.insight.model_summary", "summary"),
    "numpy_class": ("hybrid_lab.numpy.array", "numpy_class"),
    "numpy_room": ("hybrid_lab.numpy.rooms", "numpy_room"),
    "numpy_symbol_class": ("hybrid_lab.numpy.symbol", "numpy_symbol_class"),
    "refuse_function": ("hybrid_lab.symbol.nd_calls", "refuse_function"),
    "refuse_numbers": ("hybrid_lab.symbol.nd_calls", "refuse_numbers"),
    "load_archive": ("hybrid_lab.formats.archive", "load"),
    "load_cached_graphs": ("hybrid_lab.formats.archive", "load_cached_graphs"),
    "save_cached_graphs": ("hybrid_lab.formats.archive", "save_cached_graphs"),
    "symbol_of_history": ("hybrid_lab.symbol.history", "symbol_of"),
    "simple_bind_symbol": ("hybrid_lab.mxnet.executor.binding", "simple_bind"),
    "invoke_sparse": ("hybrid_lab.ndarray.sparse.invoke", "invoke_sparse"),
    "sparse_array": ("hybrid_lab.ndarray.sparse.creation", "array"),
    "sparse_zeros": ("hybrid_lab.ndarray.sparse.arrays", "zeros_of"),
    "to_sparse": ("hybrid_lab.ndarray.sparse.arrays", "to_sparse"),
})  # fmt: skip


def __getattr__(name: str) -> Any:
    target = _PUBLIC_NAMES.get(name)
    if target is None:
        if name.startswith("_"):
            raise AttributeError(f"module 'hybrid_lab' has no attribute {name!r}")
        from hybrid_lab.diagnostics.unknown_names import unknown_name

        raise unknown_name("mx", name, _PUBLIC_NAMES)
    if isinstance(target, str):
        value: Any = _imports.load(target)
    else:
        value = getattr(_imports.load(target[0]), target[1])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if "IPython" in sys.modules:
    # Under a running IPython the lab's hooks are registered once; HYBRID_LAB_NO_HOOKS=1 opts out.
    from hybrid_lab.lab.kernel.hooks import register_when_interactive

    register_when_interactive()
