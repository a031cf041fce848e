"""BucketingModule: one Module for each kind of batch, such as sentences of one length, with common parameters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from hybrid_lab import ndarray as nd
from hybrid_lab import symbol as sym
from hybrid_lab.context import Context
from hybrid_lab.data.io import DataDesc
from hybrid_lab.diagnostics.errors import BindError, SettingError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.initializer import Uniform
from hybrid_lab.metric import EvalMetric
from hybrid_lab.mxnet.model import Params, load_params
from hybrid_lab.ndarray import NDArray
from hybrid_lab.optimizer import Updater
from hybrid_lab.symbol import Symbol
from hybrid_lab.symbol.name import NameManager

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
from .module import Module

Generated = tuple[Symbol, Sequence[str] | None, Sequence[str] | None]


class BucketingModule(BaseModule):
    """Modules for several Symbols, which share parameters, optimizer and memory.

    sym_gen : from a bucket's key to (symbol, data_names, label_names)
    default_bucket_key : the bucket that `bind` binds; it should be the largest, since the other buckets use its memory

    The remaining arguments are Module's. The attribute `bucket_key` of a batch says which bucket takes it.
    """

    def __init__(
        self,
        sym_gen: Callable[[Any], Generated],
        default_bucket_key: Hashable | None = None,
        logger: Logger = logging,
        context: Context | Sequence[Context] | None = None,
        work_load_list: Sequence[float] | None = None,
        fixed_param_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        compression_params: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(logger)
        if default_bucket_key is None:
            raise SettingError("BucketingModule: default_bucket_key= names the largest bucket")
        self._sym_gen, self._default_bucket_key = sym_gen, default_bucket_key
        self._options: dict[str, Any] = {
            "context": context,
            "work_load_list": work_load_list,
            "fixed_param_names": fixed_param_names,
            "state_names": state_names,
            "group2ctxs": group2ctxs,
            "compression_params": compression_params,
        }
        self._buckets: dict[Any, Module] = {}
        self._module: Module | None = None
        self._curr_bucket_key: Any = None
        self._grad_req: Any = None
        self._monitor: Any = None
        self._generated(default_bucket_key)  # its errors are better seen now

    def _generated(self, key: Any) -> Generated:
        with NameManager():  # the same automatic names in every bucket
            generated = self._sym_gen(key)
        if not isinstance(generated, tuple) or len(generated) != 3:
            raise SettingError("BucketingModule: sym_gen returns (symbol, data_names, label_names)")
        return generated

    @property
    def _curr_module(self) -> Module:
        """The Module of the bucket in use. Raises ModuleStateError before bind."""
        if self._module is None:
            raise ModuleStateError("the BucketingModule is not bound; call bind(data_shapes, label_shapes) first")
        return self._module

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def save_checkpoint(self, prefix: str, epoch: int, remove_amp_cast: bool = False) -> None:
        """Write `prefix-EPOCH.params`, `prefix-KEY-symbol.json` for every bucket, and their keys in `prefix.buckets`.

        Raises BindError for keys that are no whole numbers.
        """
        check_switches("BucketingModule.save_checkpoint", remove_amp_cast=remove_amp_cast)
        keys = list(self._buckets)
        if not keys or not all(isinstance(key, (int, np.integer)) for key in keys):
            raise BindError(f"save_checkpoint: the keys of the buckets must be whole numbers, not {keys}")
        self.save_params(f"{prefix}-{epoch:04d}.params")
        for key in keys:
            self._generated(key)[0].save(f"{prefix}-{key}-symbol.json")
        nd.save(f"{prefix}.buckets", nd.array(keys, dtype="int32"))

    @staticmethod
    def load(
        prefix: str,
        epoch: int,
        sym_gen: Callable[[Any], Generated] | None = None,
        default_bucket_key: Hashable | None = None,
        **kwargs: Any,
    ) -> BucketingModule:
        """The BucketingModule of a checkpoint; it still must be bound. Raises ArchiveError, FileError."""
        loaded = nd.load(f"{prefix}.buckets")
        keys = loaded[0] if isinstance(loaded, list) else None
        if keys is None:
            raise BindError(f"{prefix}.buckets does not hold the keys of buckets")
        symbols = {int(key): sym.load(f"{prefix}-{int(key)}-symbol.json") for key in keys.asnumpy().reshape(-1)}
        return BucketingModule.load_dict(symbols, sym_gen, default_bucket_key, *load_params(prefix, epoch), **kwargs)

    @staticmethod
    def load_dict(
        sym_dict: Mapping[Any, Symbol] | None = None,
        sym_gen: Callable[[Any], Generated] | None = None,
        default_bucket_key: Hashable | None = None,
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
        **kwargs: Any,
    ) -> BucketingModule:
        """A BucketingModule of these Symbols by key, and these parameters; it still must be bound."""
        given = {"sym_dict": sym_dict, "sym_gen": sym_gen, "arg_params": arg_params, "aux_params": aux_params}
        missing = [name for name, value in given.items() if value is None]
        if missing or sym_dict is None or sym_gen is None:
            raise SettingError(f"BucketingModule: {', '.join(missing)} must be given")
        if default_bucket_key not in sym_dict:
            raise SettingError(f"BucketingModule: {default_bucket_key!r} is not among the buckets {list(sym_dict)}")
        loaded = BucketingModule(sym_gen, default_bucket_key, **kwargs)
        for key, symbol in sym_dict.items():
            _, data_names, label_names = sym_gen(key)
            loaded._buckets[key] = Module(symbol, data_names, label_names, loaded.logger, **loaded._options)
        default = loaded._module = loaded._buckets[default_bucket_key]
        default._arg_params, default._aux_params = dict(arg_params or {}), dict(aux_params or {})
        default.params_initialized = loaded.params_initialized = True
        loaded._curr_bucket_key = default_bucket_key
        return loaded

    def updaters(self) -> list[Updater]:
        """The Updater that all buckets share."""
        return [] if self._module is None else self._curr_module.updaters()

    # -- descriptions --------------------------------------------------------------------------------------------

    @property
    def data_names(self) -> Sequence[str]:
        """Names of the data of the bucket in use."""
        if self._module is not None:
            return self._module.data_names
        return self._generated(self._default_bucket_key)[1] or ()

    @property
    def output_names(self) -> Sequence[str]:
        """Names of the outputs of the bucket in use."""
        if self._module is not None:
            return self._module.output_names
        return self._generated(self._default_bucket_key)[0].list_outputs()

    @property
    def data_shapes(self) -> list[DataDesc]:
        """Descriptions of the data of the bucket in use."""
        return self._curr_module.data_shapes

    @property
    def label_shapes(self) -> list[DataDesc] | None:
        """Descriptions of the labels of the bucket in use."""
        return self._curr_module.label_shapes

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """(name, shape) of the outputs of the bucket in use."""
        return self._curr_module.output_shapes

    @property
    def symbol(self) -> Symbol:
        """The Symbol of the bucket in use."""
        return self._curr_module._symbol

    # -- buckets -------------------------------------------------------------------------------------------------

    def bind(
        self,
        data_shapes: Shapes,
        label_shapes: Shapes | None = None,
        for_training: bool = True,
        inputs_need_grad: bool = False,
        force_rebind: bool = False,
        shared_module: Any = None,
        grad_req: Any = "write",
    ) -> None:
        """Bind the default bucket; see Module.bind. Other buckets are bound when a batch comes for them."""
        check_switches(
            "BucketingModule.bind",
            for_training=for_training,
            inputs_need_grad=inputs_need_grad,
            force_rebind=force_rebind,
        )
        if shared_module is not None:
            raise SettingError("bind: a BucketingModule shares no memory with another one; leave shared_module out")
        params = self.get_params() if self.params_initialized else None
        if force_rebind:
            self.binded, self._buckets = False, {}
        if self.binded:
            self.logger.warning("Already bound, ignoring bind()")
            return
        self.for_training, self.inputs_need_grad, self._grad_req = for_training, inputs_need_grad, grad_req
        key = self._default_bucket_key
        module = self._bucket(key)
        module.bind(data_shapes, label_shapes, for_training, inputs_need_grad, grad_req=grad_req)
        self._module, self._curr_bucket_key, self.binded = module, key, True
        if params is not None:
            self.set_params(*params)

    def _bucket(self, key: Any) -> Module:
        """The Module of a bucket, bound or not."""
        if key not in self._buckets:
            symbol, data_names, label_names = self._generated(key)
            self._buckets[key] = Module(symbol, data_names, label_names, self.logger, **self._options)
        return self._buckets[key]

    def switch_bucket(self, bucket_key: Any, data_shapes: Shapes, label_shapes: Shapes | None = None) -> None:
        """Go on with the Module of a bucket, which is bound to these shapes the first time."""
        self._require("switch_bucket", params=False)
        module = self._bucket(bucket_key)
        if not module.binded:
            module.bind(
                data_shapes,
                label_shapes,
                self.for_training,
                self.inputs_need_grad,
                shared_module=self._buckets[self._default_bucket_key],
                grad_req=self._grad_req,
            )
            if self._monitor is not None:
                module.install_monitor(self._monitor)
        if self.optimizer_initialized and not module.optimizer_initialized:
            module.borrow_optimizer(self._curr_module)
        module._params_dirty |= self._curr_module._params_dirty
        self._module, self._curr_bucket_key = module, bucket_key

    def prepare(self, data_batch: Any, sparse_row_id_fn: Any = None) -> None:
        """Bind the bucket of a batch; the one in use stays in use."""
        super().prepare(data_batch, sparse_row_id_fn)
        self._require("prepare")
        module, key = self._curr_module, self._curr_bucket_key
        self.switch_bucket(data_batch.bucket_key, data_batch.provide_data, data_batch.provide_label)
        self._module, self._curr_bucket_key = module, key

    # -- parameters and optimizer --------------------------------------------------------------------------------

    def get_params(self) -> tuple[Params, Params]:
        """The current (arguments, auxiliary states)."""
        params = self._curr_module.get_params()
        for module in self._buckets.values():
            module._params_dirty = False
        return params

    def init_params(
        self,
        initializer: Any = Uniform(0.01),  # noqa: B008 - an initializer does not change
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Give the parameters their first values; see Module.init_params."""
        check_switches(
            "BucketingModule.init_params", allow_missing=allow_missing, force_init=force_init, allow_extra=allow_extra
        )
        if self.params_initialized and not force_init:
            return
        self._require("init_params", params=False)
        self._curr_module.init_params(initializer, arg_params, aux_params, allow_missing, force_init, allow_extra)
        self.params_initialized = True

    def set_params(
        self,
        arg_params: Mapping[str, NDArray],
        aux_params: Mapping[str, NDArray],
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Set the parameters; see Module.set_params."""
        check_switches(
            "BucketingModule.set_params", allow_missing=allow_missing, force_init=force_init, allow_extra=allow_extra
        )
        self._require("set_params", params=False)
        self._curr_module.set_params(arg_params, aux_params, allow_missing, force_init, allow_extra)
        self.params_initialized = True

    def init_optimizer(
        self,
        kvstore: StoreLike = "local",
        optimizer: OptimizerLike = "sgd",
        optimizer_params: OptimizerParams = LEARNING_RATE,
        force_init: bool = False,
    ) -> None:
        """Make the optimizer of all buckets; see Module.init_optimizer."""
        check_switches("BucketingModule.init_optimizer", force_init=force_init)
        self._require("init_optimizer")
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring.")
            return
        self._curr_module.init_optimizer(kvstore, optimizer, optimizer_params, force_init)
        for module in self._buckets.values():
            if module is not self._module and module.binded:
                module.borrow_optimizer(self._curr_module)
        self.optimizer_initialized = True

    # -- calls ---------------------------------------------------------------------------------------------------

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Switch to the bucket of the batch and compute its outputs."""
        self._require("forward")
        self.switch_bucket(data_batch.bucket_key, data_batch.provide_data, data_batch.provide_label)
        self._curr_module.forward(data_batch, is_train)

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradients in the bucket in use."""
        self._curr_module.backward(out_grads)

    def update(self) -> None:
        """Update the parameters, which all buckets share."""
        self._require("update", optimizer=True)
        self._curr_module.update()

    def get_outputs(self, merge_multi_context: bool = True) -> Any:
        """The outputs of the last forward."""
        check_switches("BucketingModule.get_outputs", merge_multi_context=merge_multi_context)
        return self._curr_module.get_outputs(merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> Any:
        """The gradients of the data."""
        check_switches("BucketingModule.get_input_grads", merge_multi_context=merge_multi_context)
        return self._curr_module.get_input_grads(merge_multi_context)

    def get_states(self, merge_multi_context: bool = True) -> Any:
        """The states of the bucket in use."""
        check_switches("BucketingModule.get_states", merge_multi_context=merge_multi_context)
        return self._curr_module.get_states(merge_multi_context)

    def set_states(self, states: Any = None, value: Any = None) -> None:
        """Set the states of the bucket in use."""
        self._curr_module.set_states(states, value)

    def update_metric(self, eval_metric: EvalMetric, labels: Any, pre_sliced: bool = False) -> None:
        """Add the last forward to a metric."""
        check_switches("BucketingModule.update_metric", pre_sliced=pre_sliced)
        self._curr_module.update_metric(eval_metric, labels, pre_sliced)

    def install_monitor(self, mon: Any) -> None:
        """Let a Monitor look into all buckets."""
        self._require("install_monitor", params=False)
        self._monitor = mon
        for module in self._buckets.values():
            if module.binded:
                module.install_monitor(mon)
