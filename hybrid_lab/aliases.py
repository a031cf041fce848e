"""Older names of modules: `import hybrid_lab.image` gives the module `hybrid_lab.data.image` itself.

Users' code, pickles and archives name modules by where they were. A finder on `sys.meta_path` gives the same module
object under both names, also for the modules inside a folder. A module that moves gets an entry if a released version
had it, or `tests/aliases/modules.txt`. It needs none where its older name is now a folder of modules that only the lab
uses: `lab/documents`, `lab/picture` and `lab/saving`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

_PACKAGE = "hybrid_lab."

#: Older name of a module -> the module that has its contents now, and had a name of its own before.
_JOINED = {
    "distributed.early": "distributed.buckets",
    "engines.collector": "system.memory",
    "engines.copies": "engines.memory",
    "engines.planned.source": "engines.planned.program",
    "image.warping": "data.image.record_augmenting",
    "insight.values": "insight.reference",
    "ndarray.nested": "ndarray.control_flow",
    "ndarray.sparse.storage": "ndarray.sparse.arrays",
    "ops.framework.work": "ops.framework.shapes",
    "symbol.shape_forms": "symbol.questions",
    "symbol.trace_types": "symbol.tracing",
}
#: Older name of a module or folder -> where it is, both without `hybrid_lab.`. No other table has older names.
MODULES: dict[str, str] = {
    "_openblas": "system.openblas",
    "_telemetry": "system.telemetry",
    "attribute": "symbol.attribute",
    "base": "mxnet.base",
    "callback": "mxnet.callback",
    "checkpoint": "formats.checkpoint",
    "compat": "mxnet.compat",
    "contrib": "mxnet.contrib",
    "diagnostics.words": "diagnostics.formatting",
    "engine": "mxnet.engine",
    "engines.freed_memory": "system.memory",
    "engines.threads": "system.threads",
    "engines.torch_kernels.rules": "engines.torch_kernels.registry",
    "engines.triton.choices": "engines.triton.tuning_results",
    "engines.triton.plan.plans": "engines.triton.plan.other_batches",
    "engines.triton.write.words": "engines.triton.write.syntax",
    "engines.triton.write.write": "engines.triton.write.choose",
    "executor": "mxnet.executor",
    "forks": "system.forks",
    "gluon.block_notes": "hybridize.block_notes",
    "gluon.downloading": "gluon.files.downloading",
    "gluon.hybridized": "hybridize",
    "gluon.hybridized.ahead": "gluon.ahead",
    "gluon.hybridized.around": "hybridize.calls",
    "gluon.hybridized.assigned": "gluon.assigned",
    "gluon.hybridized.cached_graph": "hybridize.graphs",
    "gluon.hybridized.code": "hybridize.stale.code",
    "gluon.hybridized.custom_graphs": "gluon.custom_graphs",
    "gluon.hybridized.device_program": "hybridize.device_call",
    "gluon.hybridized.failure": "hybridize.failures",
    "gluon.hybridized.frozen": "hybridize.stale.trace_warnings",
    "gluon.hybridized.graphs_of_calls": "gluon.files.graphs_of_calls",
    "gluon.hybridized.guarded_trace": "hybridize.stale.watch",
    "gluon.hybridized.observed_shapes": "gluon.files.observed_shapes",
    "gluon.hybridized.operator_hooks": "gluon.operator_hooks",
    "gluon.hybridized.own_call": "gluon.own_call",
    "gluon.hybridized.passed": "hybridize.container_arguments",
    "gluon.hybridized.program": "hybridize.compiled_call",
    "gluon.hybridized.reached": "hybridize.stale.reached",
    "gluon.hybridized.read_values": "hybridize.stale.read_values",
    "gluon.hybridized.user_state": "hybridize.stale.user_state",
    "gluon.hybridized.value_guard": "hybridize.stale.value_guard",
    "gluon.hybridized.watched_values": "hybridize.stale.watched_values",
    "gluon.loading": "gluon.files.loading",
    "gluon.looks": "lab.models.revisions",
    "gluon.registering": "gluon.files.registering",
    "gluon.saved": "gluon.files.saved",
    "gluon.states": "gluon.files.states",
    "gluon.trainer_trial": "gluon.files.trainer_trial",
    "graph.algebra": "graph.passes.algebra",
    "graph.bind_mode": "graph.passes.bind_mode",
    "graph.body": "graph.loops.body",
    "graph.composed": "graph.loops.composed",
    "graph.control_flow": "graph.loops.control_flow",
    "graph.decompose": "graph.passes.decompose",
    "graph.differentiate": "graph.passes.differentiate",
    "graph.flow": "graph.passes.flow",
    "graph.fold_norm": "graph.passes.fold_norm",
    "graph.hoist": "graph.passes.hoist",
    "graph.infer": "graph.passes.infer",
    "graph.joint_plan": "graph.memory.joint_plan",
    "graph.layout": "graph.passes.layout",
    "graph.loop": "graph.loops.steps",
    "graph.mixed_precision": "graph.passes.mixed_precision",
    "graph.packing": "graph.memory.packing",
    "graph.partition": "graph.passes.partition",
    "graph.plan": "graph.memory.plan",
    "graph.simplify": "graph.passes.simplify",
    "graph.specialized": "graph.call_graphs",
    "graph.split": "graph.passes.split",
    "image": "data.image",
    "image_files": "data.image_files",
    "io": "data.io",
    "kvstore": "distributed.kvstore",
    "lab.actions": "lab.saving.actions",
    "lab.answers": "lab.kernel.answers",
    "lab.archives": "lab.saving.archives",
    "lab.autosaves": "lab.saving.autosaves",
    "lab.block_work": "lab.models.block_work",
    "lab.boxes": "lab.picture.boxes",
    "lab.chart": "lab.training.chart",
    "lab.comm": "lab.kernel.comm",
    "lab.compared": "lab.picture.compared",
    "lab.curves": "lab.training.curves",
    "lab.document_server": "lab.documents.pool",
    "lab.document_worker": "lab.documents.reader",
    "lab.dot": "lab.picture.dot",
    "lab.every": "lab.saving.all_models",
    "lab.files": "lab.saving.file_names",
    "lab.gradient_norm": "lab.training.gradient_norm",
    "lab.graph_view": "lab.picture.graph_view",
    "lab.groups": "lab.models.groups",
    "lab.history": "lab.saving.history",
    "lab.hooks": "lab.kernel.hooks",
    "lab.hybrid_programs": "lab.picture.hybrid_block",
    "lab.imports": "system.imports",
    "lab.kept": "lab.picture.kept_inputs",
    "lab.kept_runs": "lab.training.kept_runs",
    "lab.lifecycle": "lab.kernel.lifecycle",
    "lab.logged": "lab.training.logged",
    "lab.loop": "lab.training.progress",
    "lab.magics": "lab.kernel.magics",
    "lab.naming": "lab.models.naming",
    "lab.nan_watches": "lab.kernel.nan_watches",
    "lab.notebook_workers": "lab.distributed.workers",
    "lab.numpy_warnings": "lab.kernel.numpy_warnings",
    "lab.onnx_document": "lab.documents.onnx",
    "lab.overlays": "lab.picture.overlays",
    "lab.programs": "lab.picture.programs",
    "lab.quiet": "lab.saving.quiet",
    "lab.registry": "lab.models.registry",
    "lab.rows": "lab.models.rows",
    "lab.run": "lab.training.run",
    "lab.run_export": "lab.training.export",
    "lab.run_keeper": "lab.training.keeper",
    "lab.run_list": "lab.training.comparison",
    "lab.save_facts": "lab.saving.save_facts",
    "lab.save_list": "lab.saving.save_list",
    "lab.series": "lab.training.series",
    "lab.session": "lab.kernel.session",
    "lab.shared_page": "lab.views.shared_page",
    "lab.sharing": "lab.views.sharing",
    "lab.shown": "lab.training.shown",
    "lab.snapshot": "lab.saving.snapshot",
    "lab.static_html": "lab.views.static_html",
    "lab.static_picture": "lab.views.static_picture",
    "lab.svg": "lab.views.svg",
    "lab.timed_cells": "lab.kernel.timed_cells",
    "lab.tracebacks": "lab.kernel.tracebacks",
    "lab.training_html": "lab.training.html",
    "lab.training_runs": "lab.training.current",
    "lab.training_words": "lab.training.words",
    "lab.tree": "lab.models.tree",
    "lab.unbound": "lab.models.unbound",
    "lab.undo": "lab.saving.undo",
    "lab.units": "lab.picture.units",
    "lab.values": "lab.models.values",
    "lab.variables": "lab.models.variables",
    "lab.whole": "lab.picture.plain_block",
    "lab.widget": "lab.views.widget",
    "lab.worker_board": "lab.distributed.board",
    "lab.worker_news": "lab.distributed.news",
    "lab.worker_process": "lab.distributed.process",
    "libinfo": "mxnet.libinfo",
    "logger": "system.logger",
    "model": "mxnet.model",
    "module": "mxnet.module",
    "monitor": "mxnet.monitor",
    "name": "symbol.name",
    "ndarray.functions": "ndarray.namespace",
    "numpy_extension": "numpy.extension",
    "onnx.asked": "onnx.writing.asked",
    "onnx.backend": "onnx.reading.backend",
    "onnx.batch_norm": "onnx.writing.batch_norm",
    "onnx.block": "onnx.reading.block",
    "onnx.box_nms": "onnx.writing.box_nms",
    "onnx.calls": "onnx.writing.calls",
    "onnx.checked": "onnx.reading.checked",
    "onnx.compose": "onnx.reading.compose",
    "onnx.control": "onnx.reading.control",
    "onnx.control_flow": "onnx.writing.control_flow",
    "onnx.detection": "onnx.writing.detection",
    "onnx.emitter": "onnx.writing.emitter",
    "onnx.equalities": "onnx.writing.equalities",
    "onnx.exporting": "onnx.writing.exporting",
    "onnx.file": "onnx.writing.file",
    "onnx.importer": "onnx.reading.importer",
    "onnx.importers": "onnx.reading.importers",
    "onnx.initial_values": "onnx.training_info.initial_values",
    "onnx.model_file": "onnx.reading.model_file",
    "onnx.network": "onnx.writing.network",
    "onnx.nodes": "onnx.writing.nodes",
    "onnx.open_sizes": "onnx.writing.open_sizes",
    "onnx.optimizers": "onnx.training_info.optimizers",
    "onnx.read_optimizers": "onnx.training_info.read_optimizers",
    "onnx.samplers": "onnx.writing.samplers",
    "onnx.support": "onnx.writing.support",
    "onnx.training": "onnx.training_info.reading",
    "onnx.training_export": "onnx.training_info.writing",
    "onnx.tree": "onnx.reading.tree",
    "operator": "mxnet.operator",
    "ops.kernels.conv_kernels": "ops.kernels.convolution",
    "ops.kernels.resizing": "ops.kernels.opencv",
    "ops.updates.update": "ops.updates.rule",
    "profiler": "mxnet.profiler",
    "progress": "system.progress",
    "provided": "system.provided",
    "recordio": "data.recordio",
    "registry": "mxnet.registry",
    "rnn": "mxnet.rnn",
    "runtime": "mxnet.runtime",
    "scopes": "symbol.scopes",
    "temporary": "system.temporary",
    "test_utils": "mxnet.test_utils",
    "util": "mxnet.util",
    "viz": "mxnet.viz",
    **_JOINED,
}
_OLDER = {current: name for name, current in MODULES.items() if name not in _JOINED}


def current_name(name: str) -> str:
    """The full name of the module that `name` stands for: `hybrid_lab.data.io.batch` for `hybrid_lab.io.batch`. Any
    other name is returned unchanged, and so is a name inside a module.
    """
    return _replaced(name, MODULES)


def older_name(name: str) -> str:
    """The name by which users know a module or what is in it: `hybrid_lab.io.batch` for `hybrid_lab.data.io.batch`."""
    return _replaced(name, _OLDER)


def _replaced(name: str, table: dict[str, str]) -> str:
    """`name` with its longest start that the table has replaced."""
    if name.startswith(_PACKAGE):
        start = short = name[len(_PACKAGE) :]
        while start:
            if start in table:
                return _PACKAGE + table[start] + short[len(start) :]
            start = start.rpartition(".")[0]
    return name


class Aliases:
    """A finder and loader of older names. It has no base class, because `importlib.abc` takes 15 ms to import.

    It is asked last, so that imports by today's names cost nothing, until a first older name is imported. From then on
    it is asked first: Python's own finder would find a module inside an older folder, and load it a second time.
    """

    def __init__(self) -> None:
        self._is_first = False

    def be_first(self) -> None:
        """Be asked before all other finders."""
        if not self._is_first:
            self._is_first = True
            finder: Any = self
            sys.meta_path.insert(0, finder)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of an older name, None for any other one. The module is not loaded, but the modules around it
        are.
        """
        current = current_name(fullname)
        if current == fullname:
            return None
        found = _spec_of(current)
        if found is None:
            return None
        self.be_first()
        loader: Any = self
        spec = ModuleSpec(fullname, loader, origin=found.origin)
        spec.submodule_search_locations = found.submodule_search_locations
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself. The import system then sets its `__spec__`, which exec_module sets back."""
        module = importlib.import_module(current_name(spec.name))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module is loaded already."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state

    def get_code(self, fullname: str) -> CodeType | None:
        """The code of the module, which `python -m` runs."""
        found = _spec_of(current_name(fullname))
        loader: Any = found and found.loader
        code: CodeType | None = loader.get_code(current_name(fullname))
        return code


def _spec_of(current: str) -> ModuleSpec | None:
    """The spec of a module, None if there is none. The module is not loaded, but the modules around it are."""
    import importlib.util  # 2 ms, and in most processes no older name is imported

    try:
        return importlib.util.find_spec(current)
    except ModuleNotFoundError:  # the parent is a module, not a folder
        return None


def install() -> None:
    """Let the import system find the older names. A second call does nothing."""
    if any(isinstance(finder, Aliases) for finder in sys.meta_path):
        return
    finder: Any = Aliases()
    sys.meta_path.append(finder)
    if _left_behind():
        finder.be_first()


def _left_behind() -> bool:
    """Whether older folders are still there, empty but for `__pycache__`, as an update of a checkout leaves them.
    Python's own finder would take one for a package without a file.
    """
    try:
        return any(name in MODULES for name in os.listdir(os.path.dirname(__file__)))
    except OSError:  # imported from a zip file
        return False


install()
