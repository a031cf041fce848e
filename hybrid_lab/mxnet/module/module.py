"""Module: one Symbol with its parameters and an optimizer, on one or several contexts."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from hybrid_lab import optimizer as optimizers
from hybrid_lab.context import Context, cpu
from hybrid_lab.data.io import DataDesc
from hybrid_lab.diagnostics.errors import BindError, SettingError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.distributed.kvstore import KVStore, KVStoreBase
from hybrid_lab.distributed.kvstore import create as create_kvstore
from hybrid_lab.distributed.kvstore.kvstore import KVStoreError, read_states, write_states
from hybrid_lab.initializer import InitDesc, Uniform
from hybrid_lab.metric import EvalMetric
from hybrid_lab.mxnet.model import Params, load_checkpoint, save_checkpoint
from hybrid_lab.ndarray import NDArray, zeros
from hybrid_lab.ndarray.tape import Mode
from hybrid_lab.symbol import Symbol

from .base_module import (
    LEARNING_RATE,
    BaseModule,
    Logger,
    ModuleStateError,
    OptimizerLike,
    OptimizerParams,
    Shapes,
    StoreLike,
)
from .executor_group import DataParallelExecutorGroup, descs

_PARAMETER_ENDINGS = ("_weight", "_bias", "_gamma", "_beta")


class Module(BaseModule):
    """A Symbol that can be trained.

        module = mx.mod.Module(symbol, context=mx.cpu())
        module.fit(train_iterator, optimizer_params={"learning_rate": 0.1}, num_epoch=5)
        module.predict(test_iterator)

    data_names, label_names : the arguments that batches fill
    context : one, or several, between which every batch is divided in the proportions of work_load_list
    fixed_param_names : parameters that are not trained
    state_names : arguments that stay from batch to batch, see `set_states`
    group2ctxs : contexts for the attribute `ctx_group`; all must be on the device of `context`
    compression_params : must be None; gradients are not compressed
    """

    def __init__(
        self,
        symbol: Symbol,
        data_names: Sequence[str] | None = ("data",),
        label_names: Sequence[str] | None = ("softmax_label",),
        logger: Logger = logging,
        context: Context | Sequence[Context] | None = None,
        work_load_list: Sequence[float] | None = None,
        fixed_param_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        compression_params: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(logger)
        self._context = [context or cpu()] if context is None or isinstance(context, Context) else list(context)
        self._work_load_list = [1.0] * len(self._context) if work_load_list is None else list(work_load_list)
        if len(self._work_load_list) != len(self._context):
            raise SettingError("Module: work_load_list has one number for each context")
        self._symbol: Symbol = symbol
        self._data_names, self._label_names = list(data_names or ()), list(label_names or ())
        self._state_names, self._fixed_param_names = list(state_names or ()), list(fixed_param_names or ())
        for names, kind in (
            (self._data_names, "data_names"),
            (self._state_names, "state_names"),
            (self._fixed_param_names, "fixed_param_names"),
        ):
            _check_names(symbol, names, kind)
        for name in self._label_names:
            if name not in symbol.list_arguments():
                warnings.warn(_unknown_input(symbol, name, "label_names"), stacklevel=2)
        inputs = {*self._data_names, *self._label_names, *self._state_names}
        self._param_names = [name for name in symbol.list_arguments() if name not in inputs]
        self._aux_names, self._output_names = symbol.list_auxiliary_states(), symbol.list_outputs()
        self._group2ctxs, self._compression_params = group2ctxs, compression_params
        self._arg_params: Params | None = None
        self._aux_params: Params | None = None
        self._params_dirty = False
        self._optimizer: Any = None
        self._kvstore: KVStoreBase | None = None
        self._update_on_kvstore = False
        self._updater: optimizers.Updater | None = None
        self._preload_opt_states: str | None = None
        self._grad_req: Any = None
        self._exec_group: Any = None
        self._data_shapes: list[DataDesc] = []
        self._label_shapes: list[DataDesc] | None = None

    # -- checkpoints ---------------------------------------------------------------------------------------------

    @staticmethod
    def load(prefix: str, epoch: int, load_optimizer_states: bool = False, **kwargs: Any) -> Module:
        """The Module of a checkpoint; it still must be bound.

        load_optimizer_states : continue with `prefix-EPOCH.states` when the optimizer is made
        kwargs : as for Module
        Raises ArchiveError, FileError.
        """
        symbol, arguments, states = load_checkpoint(prefix, epoch)
        module = Module(symbol, **kwargs)
        module._arg_params, module._aux_params = arguments, states
        module.params_initialized = True
        if load_optimizer_states:
            module._preload_opt_states = f"{prefix}-{epoch:04d}.states"
        return module

    def save_checkpoint(
        self, prefix: str, epoch: int, save_optimizer_states: bool = False, remove_amp_cast: bool = True
    ) -> None:
        """Write `prefix-symbol.json`, `prefix-EPOCH.params`, and `prefix-EPOCH.states` if asked for.

        The real MXNet reads the first two. Its states are pickles, ours a safetensors file.
        """
        check_switches(
            "Module.save_checkpoint", save_optimizer_states=save_optimizer_states, remove_amp_cast=remove_amp_cast
        )
        save_checkpoint(prefix, epoch, self._symbol, *self.get_params())
        self.logger.info('Saved checkpoint to "%s-%04d.params"', prefix, epoch)
        if save_optimizer_states:
            name = f"{prefix}-{epoch:04d}.states"
            self.save_optimizer_states(name)
            self.logger.info('Saved optimizer state to "%s"', name)

    def save_optimizer_states(self, fname: str) -> None:
        """Write the optimizer's states."""
        self._require("save_optimizer_states", optimizer=True)
        if self._kvstore is not None and self._update_on_kvstore:
            self._kvstore.save_optimizer_states(fname)
        elif self._updater is not None:
            write_states(self._updater, fname)

    def load_optimizer_states(self, fname: str) -> None:
        """Go on with the states of a file. Raises ArchiveError for a file of another kind, such as MXNet's pickles."""
        self._require("load_optimizer_states", optimizer=True)
        if self._kvstore is not None and self._update_on_kvstore:
            self._kvstore.load_optimizer_states(fname)
        elif self._updater is not None:
            read_states(self._updater, fname)

    def updaters(self) -> list[optimizers.Updater]:
        """The Updater with the optimizer's states. Raises KVStoreError if a store of the user's own has it."""
        if self._updater is not None:
            return [self._updater]
        if self._kvstore is None or not self._update_on_kvstore:
            return []
        if not isinstance(self._kvstore, KVStore):
            raise KVStoreError(f"the optimizer's states are in a {type(self._kvstore).__name__}, which keeps them")
        return [self._kvstore.updater]

    # -- descriptions --------------------------------------------------------------------------------------------

    @property
    def data_names(self) -> list[str]:
        """Names of the data."""
        return self._data_names

    @property
    def label_names(self) -> list[str]:
        """Names of the labels."""
        return self._label_names

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs."""
        return self._output_names

    @property
    def data_shapes(self) -> list[DataDesc]:
        """Descriptions of the data that the Module is bound to."""
        self._require("data_shapes", params=False)
        return self._data_shapes

    @property
    def label_shapes(self) -> list[DataDesc] | None:
        """Descriptions of the labels that the Module is bound to."""
        self._require("label_shapes", params=False)
        return self._label_shapes

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """(name, shape) of the outputs."""
        self._require("output_shapes", params=False)
        shapes: list[tuple[str, tuple[int, ...]]] = self._exec_group.get_output_shapes()
        return shapes

    # -- binding -------------------------------------------------------------------------------------------------

    def bind(
        self,
        data_shapes: Shapes,
        label_shapes: Shapes | None = None,
        for_training: bool = True,
        inputs_need_grad: bool = False,
        force_rebind: bool = False,
        shared_module: Module | None = None,
        grad_req: Any = "write",
    ) -> None:
        """Make the arrays for these shapes.

        for_training : with gradients; inputs_need_grad : with gradients of the data
        force_rebind : bind again even if the Module is bound, instead of ignoring the call
        shared_module : a Module whose parameters and memory are used
        grad_req : "write", "add" or "null"; a dict by name or a list sets them one by one
        Raises BindError, SettingError.
        """
        check_switches(
            "Module.bind", for_training=for_training, inputs_need_grad=inputs_need_grad, force_rebind=force_rebind
        )
        if force_rebind:
            self.binded, self._exec_group = False, None
        if self.binded:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if inputs_need_grad and not for_training:
            raise SettingError("bind: inputs_need_grad=True needs for_training=True")
        data, labels = self._described(data_shapes, label_shapes)
        shared_group = None
        if shared_module is not None:
            shared_module._require("bind: shared_module")
            shared_group = shared_module._exec_group
        group = DataParallelExecutorGroup(
            self._symbol,
            self._context,
            self._work_load_list,
            data,
            labels,
            self._param_names,
            for_training,
            inputs_need_grad,
            shared_group,
            self._fixed_param_names,
            grad_req,
            self._state_names,
            self._group2ctxs,
        )
        self.for_training, self.inputs_need_grad, self._grad_req = for_training, inputs_need_grad, grad_req
        self._data_shapes, self._label_shapes = data, labels
        self._exec_group, self._total_exec_bytes = group, group._total_exec_bytes
        if shared_module is not None:
            self._arg_params, self._aux_params = shared_module._arg_params, shared_module._aux_params
            self.params_initialized = True
        elif self.params_initialized:
            group.set_params(self._arg_params or {}, self._aux_params or {})
        else:
            self._arg_params = _like(self._param_names, group.param_arrays)
            self._aux_params = _like(self._aux_names, group.aux_arrays)
        if shared_module is not None and shared_module.optimizer_initialized:
            self.borrow_optimizer(shared_module)
        self.binded = True

    def _described(
        self, data_shapes: Shapes, label_shapes: Shapes | None
    ) -> tuple[list[DataDesc], list[DataDesc] | None]:
        data, labels = descs(data_shapes), descs(label_shapes) if label_shapes else None
        if sorted(each.name for each in data) != sorted(self._data_names):
            given = ", ".join(each.name for each in data)
            raise BindError(f"data_shapes describe {given}; data_names are {', '.join(self._data_names)}")
        if labels is not None and sorted(each.name for each in labels) != sorted(self._label_names):
            given = ", ".join(each.name for each in labels)
            warnings.warn(f"label_shapes describe {given}; label_names are {self._label_names}", stacklevel=3)
        return data, labels

    def reshape(self, data_shapes: Shapes, label_shapes: Shapes | None = None) -> None:
        """Go on with batches of other shapes. Raises BindError."""
        self._require("reshape", params=False)
        self._data_shapes, self._label_shapes = self._described(data_shapes, label_shapes)
        self._exec_group.reshape(self._data_shapes, self._label_shapes)

    # -- parameters ----------------------------------------------------------------------------------------------

    def get_params(self) -> tuple[Params, Params]:
        """The current (arguments, auxiliary states)."""
        if not self.params_initialized or self._arg_params is None or self._aux_params is None:
            raise ModuleStateError("get_params: the Module has no parameters yet; call init_params() first")
        if self._params_dirty:
            self._exec_group.get_params(self._arg_params, self._aux_params)
            self._params_dirty = False
        return self._arg_params, self._aux_params

    def init_params(
        self,
        initializer: Any = Uniform(0.01),  # noqa: B008 - an initializer does not change
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Give the parameters their first values: from `arg_params` and `aux_params`, else from the initializer.

        allow_missing : let the initializer make values missing in the dicts
        force_init : replace existing values, instead of ignoring the call
        allow_extra : ignore names in the dicts that the Symbol does not have
        Raises ModuleStateError before bind, BindError for missing and for further names.
        """
        check_switches(
            "Module.init_params", allow_missing=allow_missing, force_init=force_init, allow_extra=allow_extra
        )
        if self.params_initialized and not force_init:
            warnings.warn(
                "the Module has parameters already, so init_params does nothing; force_init=True replaces them",
                stacklevel=2,
            )
            return
        self._require("init_params", params=False)
        attributes = self._symbol.attr_dict()
        for own, given in ((self._arg_params or {}, arg_params), (self._aux_params or {}, aux_params)):
            missing = [] if given is None or allow_missing else sorted(own.keys() - given.keys())
            if missing:
                raise BindError(f"{', '.join(missing)} not among the given parameters; allow_missing=True allows that")
            if given is not None and not allow_extra and given.keys() - own.keys():
                unknown = ", ".join(sorted(given.keys() - own.keys()))
                raise BindError(f"the Symbol has no parameter {unknown}; allow_extra=True ignores it")
        with Mode(False, None):
            for own, given in ((self._arg_params or {}, arg_params), (self._aux_params or {}, aux_params)):
                for name, array in sorted(own.items()):
                    if given is not None and name in given:
                        if given[name] is not array:
                            given[name].astype(array.dtype).copyto(array)
                    elif initializer is not None:
                        initializer(InitDesc(name, attributes.get(name)), array)
        self.params_initialized, self._params_dirty = True, False
        self._exec_group.set_params(self._arg_params, self._aux_params)

    def set_params(
        self,
        arg_params: Mapping[str, NDArray],
        aux_params: Mapping[str, NDArray],
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Set the parameters; with allow_missing only the given parameters, and the rest does not change."""
        check_switches("Module.set_params", allow_missing=allow_missing, force_init=force_init, allow_extra=allow_extra)
        if not allow_missing:
            self.init_params(None, arg_params, aux_params, allow_missing, force_init, allow_extra)
            return
        if self.params_initialized and not force_init:
            warnings.warn("the Module has parameters already, so set_params does nothing", stacklevel=2)
            return
        self._require("set_params", params=False)
        self._exec_group.set_params(arg_params, aux_params, allow_extra=allow_extra)
        self._params_dirty = self.params_initialized = True

    # -- optimizer -----------------------------------------------------------------------------------------------

    def init_optimizer(
        self,
        kvstore: StoreLike = "local",
        optimizer: OptimizerLike = "sgd",
        optimizer_params: OptimizerParams = LEARNING_RATE,
        force_init: bool = False,
    ) -> None:
        """Make the optimizer.

        kvstore : sums the gradients of several contexts: None, a name such as "local", or a KVStore
        optimizer : a name with optimizer_params, or an Optimizer. By name, gradients are divided by the batch size
        force_init : replace an existing optimizer, instead of ignoring the call
        """
        check_switches("Module.init_optimizer", force_init=force_init)
        self._require("init_optimizer")
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring...")
            return
        arguments, _ = self.get_params()
        store, on_store = store_for(kvstore, len(self._context), arguments)
        count = 1 if on_store else len(self._context)
        names = {
            index * count + place: name
            for index, name in enumerate(self._exec_group.param_names)
            for place in range(count)
        }
        workers = store.num_workers if isinstance(store, KVStore) else 1
        scale = 1.0 / ((self._exec_group.batch_size or 1) * workers)
        if isinstance(optimizer, str):
            options = {"rescale_grad": scale, **dict(optimizer_params)}
            optimizer = optimizers.create(optimizer, sym=self._symbol, param_idx2name=names, **options)
        elif not isinstance(optimizer, optimizers.Optimizer):
            raise SettingError(f"init_optimizer: optimizer is a name or an Optimizer, not {type(optimizer).__name__}")
        else:
            if optimizer.rescale_grad != scale:
                warnings.warn(
                    f"rescale_grad of the optimizer is {optimizer.rescale_grad}, and 1 / batch size is {scale}; "
                    "a Module does not divide gradients otherwise",
                    stacklevel=2,
                )
            optimizer.idx2name = optimizer.idx2name or names
        self._optimizer, self._kvstore, self._update_on_kvstore = optimizer, store, on_store
        self._updater = None if on_store else optimizers.get_updater(optimizer)
        if store is not None:
            if self._compression_params:
                store.set_gradient_compression(self._compression_params)
            for name, arrays in zip(self._param_names, self._exec_group.param_arrays, strict=True):
                store.broadcast(name, arguments[name], arrays)
            if on_store:
                store.set_optimizer(optimizer)
        self.optimizer_initialized = True
        if self._preload_opt_states is not None:
            self.load_optimizer_states(self._preload_opt_states)
            self._preload_opt_states = None

    def borrow_optimizer(self, shared_module: Module) -> None:
        """Use the optimizer of another Module, with its states."""
        shared_module._require("borrow_optimizer", optimizer=True)
        self._optimizer, self._updater = shared_module._optimizer, shared_module._updater
        self._kvstore, self._update_on_kvstore = shared_module._kvstore, shared_module._update_on_kvstore
        self.optimizer_initialized = True

    def gradients(self) -> list[tuple[str, list[NDArray]]]:
        """(name, its gradients on every context) of the parameters that are trained, as the last backward left them."""
        self._require("gradients")
        rows = zip(self._param_names, self._exec_group.grad_arrays or (), strict=True)
        return [(name, arrays) for name, arrays in rows if arrays[0] is not None]

    def update(self) -> None:
        """Update the parameters from the gradients of the last backward."""
        self._require("update", optimizer=True)
        self._params_dirty = True
        group, store = self._exec_group, self._kvstore
        rows = [
            (index, name, weights, gradients)
            for index, (name, weights, gradients) in enumerate(
                zip(self._param_names, group.param_arrays, group.grad_arrays or (), strict=True)
            )
            if gradients[0] is not None
        ]
        if store is not None:
            for _, name, weights, gradients in rows:
                store.pushpull(name, gradients, weights if self._update_on_kvstore else None)
        if self._updater is not None and rows:
            count = len(self._context)
            for place in range(count):
                self._updater(
                    [index * count + place for index, *_ in rows],
                    [gradients[place] for *_, gradients in rows],
                    [weights[place] for _, _, weights, _ in rows],
                )

    # -- calls ---------------------------------------------------------------------------------------------------

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Compute the outputs of a batch; a batch of other shapes binds the Module to them first.

        data_batch : a DataBatch, or a list of one for each context
        is_train : the mode; None for the value given to bind
        """
        self._require("forward")
        first = data_batch[0] if isinstance(data_batch, list) else data_batch
        times = len(data_batch) if isinstance(data_batch, list) else 1
        shapes = [(times * each.shape[0], *each.shape[1:]) if each.shape else () for each in first.data]
        if shapes != [tuple(each.shape) for each in self._data_shapes]:
            labels = getattr(first, "label", None)
            self.reshape(
                getattr(first, "provide_data", None) or _resized(self._data_shapes, shapes),
                getattr(first, "provide_label", None)
                or (
                    _resized(self._label_shapes, [(times * each.shape[0], *each.shape[1:]) for each in labels])
                    if labels and self._label_shapes
                    else None
                ),
            )
        self._exec_group.forward(data_batch, is_train)

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradients; `out_grads` are the gradients of outputs that are no losses."""
        self._require("backward")
        self._exec_group.backward(out_grads)

    def get_outputs(self, merge_multi_context: bool = True) -> Any:
        """The outputs of the last forward, joined over the contexts, or as a list of them for each output."""
        check_switches("Module.get_outputs", merge_multi_context=merge_multi_context)
        self._require("get_outputs")
        return self._exec_group.get_outputs(merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> Any:
        """The gradients of the data, as `get_outputs`."""
        check_switches("Module.get_input_grads", merge_multi_context=merge_multi_context)
        self._require("get_input_grads")
        return self._exec_group.get_input_grads(merge_multi_context)

    def get_states(self, merge_multi_context: bool = True) -> Any:
        """The states of every context; pass merge_multi_context=False."""
        check_switches("Module.get_states", merge_multi_context=merge_multi_context)
        self._require("get_states")
        return self._exec_group.get_states(merge_multi_context)

    def set_states(self, states: Any = None, value: Any = None) -> None:
        """Set the states, from `get_states` or `get_outputs(merge_multi_context=False)`, or all to one number."""
        self._require("set_states")
        self._exec_group.set_states(states, value)

    def update_metric(self, eval_metric: EvalMetric, labels: Any, pre_sliced: bool = False) -> None:
        """Add the last forward to a metric."""
        check_switches("Module.update_metric", pre_sliced=pre_sliced)
        self._exec_group.update_metric(eval_metric, labels, pre_sliced)

    def install_monitor(self, mon: Any) -> None:
        """Let a Monitor look at the arrays of the Executors."""
        self._require("install_monitor", params=False)
        self._exec_group.install_monitor(mon)


def store_for(kvstore: StoreLike, contexts: int, params: Params) -> tuple[KVStoreBase | None, bool]:
    """The KVStore that is needed, or None; and whether it updates the parameters."""
    if kvstore is None:
        return None, False
    if isinstance(kvstore, str):
        if contexts == 1 and "dist" not in kvstore and kvstore.lower() not in KVStoreBase.kv_registry:
            return None, False
        largest = max((array.size for array in params.values()), default=0)
        on_store = kvstore != "local" or largest <= 16 * 1024 * 1024
        store: KVStoreBase = create_kvstore(kvstore)
    elif isinstance(kvstore, KVStoreBase):
        store, on_store = kvstore, True
    else:
        raise SettingError(f"init_optimizer: kvstore is None, a name or a KVStore, not {type(kvstore).__name__}")
    on_store = on_store and store.is_capable(KVStoreBase.OPTIMIZER)
    return store, on_store and os.environ.get("MXNET_UPDATE_ON_KVSTORE", "1") != "0"


def _like(names: Sequence[str], arrays: Sequence[Sequence[NDArray]]) -> Params:
    """New arrays by name, of the shapes of `arrays`."""
    return {
        name: zeros(each[0].shape, dtype=each[0].dtype, stype=each[0].stype)
        for name, each in zip(names, arrays, strict=True)
    }


def _resized(known: Sequence[DataDesc], shapes: Sequence[tuple[int, ...]]) -> list[DataDesc]:
    return [DataDesc(each.name, shape, each.dtype, each.layout) for each, shape in zip(known, shapes, strict=True)]


def _check_names(symbol: Symbol, names: Sequence[str], kind: str) -> None:
    for name in names:
        if name not in symbol.list_arguments():
            raise BindError(_unknown_input(symbol, name, kind))


def _unknown_input(symbol: Symbol, name: str, kind: str) -> str:
    inputs = [each for each in symbol.list_arguments() if not each.endswith(_PARAMETER_ENDINGS)]
    return f"Module: {name!r} in {kind} is not an argument of the Symbol; its inputs are {', '.join(inputs)}"
