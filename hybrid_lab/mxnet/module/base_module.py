"""BaseModule: the loops that train, validate and predict, over the methods that a kind of Module defines."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from hybrid_lab import metric as metrics
from hybrid_lab import ndarray as nd
from hybrid_lab.data.io import DataBatch, DataIter
from hybrid_lab.diagnostics.errors import HybridLabError, SettingError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.distributed.kvstore import KVStoreBase
from hybrid_lab.initializer import Uniform
from hybrid_lab.metric import EvalMetric
from hybrid_lab.mxnet.model import BatchEndParam, Params, read_params, save_params
from hybrid_lab.mxnet.monitor import Monitor
from hybrid_lab.ndarray import NDArray
from hybrid_lab.optimizer import Optimizer, Updater
from hybrid_lab.symbol import Symbol

Callback = Callable[..., object]
Callbacks = Callback | Sequence[Callback] | None
Shapes = Sequence[Any]
"""DataDescs, or pairs of a name and a shape."""
OptimizerParams = Mapping[str, Any] | Iterable[tuple[str, Any]]
Metric = object
"""A metric, the name of one, a function of (label, prediction), or a list of these: see `mx.metric.create`."""
StoreLike = str | KVStoreBase | None
OptimizerLike = str | Optimizer
Logger = logging.Logger | ModuleType
"""A logger, or the module `logging`."""
LEARNING_RATE: OptimizerParams = (("learning_rate", 0.01),)


class ModuleStateError(HybridLabError, RuntimeError):
    """A call that a Module is not ready for: forward before bind, update before init_optimizer."""


class BaseModule:
    """Base of the Modules.

    A subclass defines `bind`, `init_params`, `init_optimizer`, `forward`, `backward`, `update`, `get_outputs`,
    `update_metric` and the descriptions of its inputs and outputs; this class has the loops over them.

    binded, params_initialized, optimizer_initialized : how far the Module is
    for_training, inputs_need_grad : how it was bound
    """

    def __init__(self, logger: Logger = logging) -> None:
        self.logger = logger
        self.binded = self.for_training = self.inputs_need_grad = False
        self.params_initialized = self.optimizer_initialized = False
        self._symbol: Symbol | None = None
        self._total_exec_bytes = 0

    def __getstate__(self) -> dict[str, Any]:
        """Pickled and copied without the logger if it is the module `logging`."""
        return {**vars(self), "logger": None if self.logger is logging else self.logger}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, logger=state["logger"] or logging)

    def updaters(self) -> list[Updater]:
        """The Updaters with the optimizer's states, one for each Module inside; none before `init_optimizer`."""
        return []

    def _require(self, call: str, *, params: bool = True, optimizer: bool = False) -> None:
        """Raise ModuleStateError if the Module is not bound, or has no parameters or optimizer."""
        if not self.binded:
            raise ModuleStateError(f"{call}: the Module is not bound; call bind(data_shapes, label_shapes) first")
        if params and not self.params_initialized:
            raise ModuleStateError(f"{call}: the Module has no parameters yet; call init_params() first")
        if optimizer and not self.optimizer_initialized:
            raise ModuleStateError(f"{call}: the Module has no optimizer yet; call init_optimizer() first")

    # -- loops ---------------------------------------------------------------------------------------------------

    def forward_backward(self, data_batch: Any) -> None:
        """`forward` in training mode, then `backward`."""
        self.forward(data_batch, is_train=True)
        self.backward()

    def fit(
        self,
        train_data: Any,
        eval_data: Any = None,
        eval_metric: Metric = "acc",
        epoch_end_callback: Callbacks = None,
        batch_end_callback: Callbacks = None,
        kvstore: StoreLike = "local",
        optimizer: OptimizerLike = "sgd",
        optimizer_params: OptimizerParams = LEARNING_RATE,
        eval_end_callback: Callbacks = None,
        eval_batch_end_callback: Callbacks = None,
        initializer: Any = Uniform(0.01),  # noqa: B008 - an initializer does not change
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_rebind: bool = False,
        force_init: bool = False,
        begin_epoch: int = 0,
        num_epoch: int | None = None,
        validation_metric: Metric = None,
        monitor: Monitor | None = None,
        sparse_row_id_fn: Callable[..., Any] | None = None,
    ) -> None:
        """Bind, initialize and train from `begin_epoch` to `num_epoch`, with a validation after each epoch.

        train_data, eval_data : iterators
        eval_metric, validation_metric : metrics, or their names
        epoch_end_callback : called with (epoch, symbol, arguments, auxiliary states), one or several
        batch_end_callback, eval_end_callback, eval_batch_end_callback : called with a BatchEndParam
        arg_params, aux_params : values to start from; the initializer makes those missing, with `allow_missing`
        monitor : a Monitor
        Raises SettingError without num_epoch.
        """
        check_switches("BaseModule.fit", allow_missing=allow_missing, force_rebind=force_rebind, force_init=force_init)
        if num_epoch is None:
            raise SettingError("fit: say how long to train, with num_epoch=")
        self.bind(train_data.provide_data, train_data.provide_label, for_training=True, force_rebind=force_rebind)
        if monitor is not None:
            self.install_monitor(monitor)
        self.init_params(initializer, arg_params, aux_params, allow_missing, force_init)
        self.init_optimizer(kvstore, optimizer, optimizer_params)
        validation_metric = validation_metric or eval_metric
        eval_metric = metrics.create(eval_metric)
        for epoch in range(begin_epoch, num_epoch):
            started = time.perf_counter()
            values = self._train_epoch(epoch, train_data, eval_metric, monitor, batch_end_callback, sparse_row_id_fn)
            for name, value in values:
                self.logger.info("Epoch[%d] Train-%s=%f", epoch, name, value)
            self.logger.info("Epoch[%d] Time cost=%.3f", epoch, time.perf_counter() - started)
            arguments, states = self.get_params()
            self.set_params(arguments, states)
            for callback in as_list(epoch_end_callback):
                callback(epoch, self.symbol, arguments, states)
            if eval_data is not None:
                found = self.score(
                    eval_data,
                    validation_metric,
                    batch_end_callback=eval_batch_end_callback,
                    score_end_callback=eval_end_callback,
                    epoch=epoch,
                )
                for name, value in found:
                    self.logger.info("Epoch[%d] Validation-%s=%f", epoch, name, value)
            train_data.reset()

    def _train_epoch(
        self,
        epoch: int,
        train_data: Any,
        eval_metric: EvalMetric,
        monitor: Monitor | None,
        batch_end_callback: Callbacks,
        sparse_row_id_fn: Callable[..., Any] | None,
    ) -> list[tuple[str, float]]:
        """Train with every batch once; the values of the metric over all."""
        eval_metric.reset()
        values: list[tuple[str, float]] = []
        batches = iter(train_data)
        data_batch = next(batches, None)
        nbatch = 0
        while data_batch is not None:
            if monitor is not None:
                monitor.tic()
            self.forward_backward(data_batch)
            self.update()
            self._update_metric(eval_metric, data_batch)
            following = next(batches, None)  # after the last use of data_batch: iterators may reuse its memory
            if following is not None:
                self.prepare(following, sparse_row_id_fn=sparse_row_id_fn)
            if monitor is not None:
                monitor.toc_print()
            if following is None:  # before callbacks, which may reset the metric
                values = eval_metric.get_global_name_value()
            for callback in as_list(batch_end_callback):
                callback(BatchEndParam(epoch, nbatch, eval_metric, locals()))
            data_batch, nbatch = following, nbatch + 1
        return values

    def _update_metric(self, eval_metric: EvalMetric, batch: Any) -> None:
        if isinstance(batch, list):
            self.update_metric(eval_metric, [each.label for each in batch], pre_sliced=True)
        else:
            self.update_metric(eval_metric, batch.label)

    def _predictions(self, eval_data: Any, num_batch: int | None, reset: bool, prepare: Any) -> Iterator[Any]:
        """(number, batch) of each batch, after its forward in prediction mode."""
        if reset:
            eval_data.reset()
        for number, batch in enumerate(eval_data):
            if number == num_batch:
                return
            self.prepare(batch, sparse_row_id_fn=prepare)
            self.forward(batch, is_train=False)
            yield number, batch

    def score(
        self,
        eval_data: Any,
        eval_metric: Metric,
        num_batch: int | None = None,
        batch_end_callback: Callbacks = None,
        score_end_callback: Callbacks = None,
        reset: bool = True,
        epoch: int = 0,
        sparse_row_id_fn: Callable[..., Any] | None = None,
    ) -> list[tuple[str, float]]:
        """(name, value) of the metric over an iterator, or over its first `num_batch` batches."""
        check_switches("BaseModule.score", reset=reset)
        self._require("score")
        eval_metric = metrics.create(eval_metric)
        eval_metric.reset()
        count = 0
        for nbatch, eval_batch in self._predictions(eval_data, num_batch, reset, sparse_row_id_fn):
            self._update_metric(eval_metric, eval_batch)
            for callback in as_list(batch_end_callback):
                callback(BatchEndParam(epoch, nbatch, eval_metric, locals()))
            count += 1
        for callback in as_list(score_end_callback):
            callback(BatchEndParam(epoch, count, eval_metric, locals()))
        values: list[tuple[str, float]] = eval_metric.get_name_value()
        return values

    def iter_predict(
        self,
        eval_data: Any,
        num_batch: int | None = None,
        reset: bool = True,
        sparse_row_id_fn: Callable[..., Any] | None = None,
    ) -> Iterator[tuple[list[NDArray], int, Any]]:
        """(outputs without padding, number, batch) of each batch."""
        check_switches("BaseModule.iter_predict", reset=reset)
        self._require("iter_predict")
        for number, batch in self._predictions(eval_data, num_batch, reset, sparse_row_id_fn):
            yield self._unpadded(batch), number, batch

    def _unpadded(self, batch: Any) -> list[NDArray]:
        return [output[: output.shape[0] - (batch.pad or 0)] for output in self.get_outputs()]

    def predict(
        self,
        eval_data: Any,
        num_batch: int | None = None,
        merge_batches: bool = True,
        reset: bool = True,
        always_output_list: bool = False,
        sparse_row_id_fn: Callable[..., Any] | None = None,
    ) -> Any:
        """The outputs for an iterator, or for one array.

        merge_batches : join the outputs of all batches; else a list of the outputs of each batch
        always_output_list : a list also of a single output
        Raises SettingError for other data, ValueError if batches have different numbers of outputs.
        """
        check_switches(
            "BaseModule.predict", merge_batches=merge_batches, reset=reset, always_output_list=always_output_list
        )
        self._require("predict")
        if isinstance(eval_data, (NDArray, np.ndarray)):
            array = eval_data if isinstance(eval_data, NDArray) else nd.array(eval_data)
            self.forward(DataBatch([array]))
            return self.get_outputs()[0]
        if not isinstance(eval_data, DataIter):
            raise _NotAnIterator(f"predict takes an iterator or an array, not {type(eval_data).__name__}")
        batches = [
            [output.copy() for output in self._unpadded(batch)]
            for _, batch in self._predictions(eval_data, num_batch, reset, sparse_row_id_fn)
        ]
        if not batches or not merge_batches:
            return batches
        if len({len(outputs) for outputs in batches}) > 1:
            raise ModuleStateError("predict: batches have different numbers of outputs; pass merge_batches=False")
        merged = [nd.concat(*outputs, dim=0) for outputs in zip(*batches, strict=True)]
        return merged[0] if len(merged) == 1 and not always_output_list else merged

    # -- parameters ----------------------------------------------------------------------------------------------

    def set_params(
        self,
        arg_params: Mapping[str, NDArray],
        aux_params: Mapping[str, NDArray],
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Set all parameters; see `init_params`."""
        check_switches(
            "BaseModule.set_params", allow_missing=allow_missing, force_init=force_init, allow_extra=allow_extra
        )
        self.init_params(None, arg_params, aux_params, allow_missing, force_init, allow_extra)

    def save_params(self, fname: str) -> None:
        """Write all parameters to a file."""
        save_params(fname, *self.get_params())

    def load_params(self, fname: str) -> None:
        """Set all parameters from a file. Raises ArchiveError for a file of another kind."""
        self.set_params(*read_params(fname))

    # -- methods of a kind of Module -----------------------------------------------------------------------------

    @property
    def symbol(self) -> Any:
        """The Symbol."""
        return self._symbol

    @property
    def data_names(self) -> Sequence[str]:
        """Names of the data."""
        self._undefined("data_names")

    @property
    def output_names(self) -> Sequence[str]:
        """Names of the outputs."""
        self._undefined("output_names")

    @property
    def data_shapes(self) -> Any:
        """Descriptions of the data."""
        self._undefined("data_shapes")

    @property
    def label_shapes(self) -> Any:
        """Descriptions of the labels."""
        self._undefined("label_shapes")

    @property
    def output_shapes(self) -> Any:
        """(name, shape) of the outputs."""
        self._undefined("output_shapes")

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
        """Make the arrays for these shapes."""
        self._undefined("bind")

    def init_params(
        self,
        initializer: Any = Uniform(0.01),  # noqa: B008 - an initializer does not change
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Give the parameters their first values."""
        self._undefined("init_params")

    def init_optimizer(
        self,
        kvstore: StoreLike = "local",
        optimizer: OptimizerLike = "sgd",
        optimizer_params: OptimizerParams = LEARNING_RATE,
        force_init: bool = False,
    ) -> None:
        """Make the optimizer."""
        self._undefined("init_optimizer")

    def get_params(self) -> tuple[Params, Params]:
        """(arguments, auxiliary states)."""
        self._undefined("get_params")

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Compute the outputs of a batch."""
        self._undefined("forward")

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradients."""
        self._undefined("backward")

    def update(self) -> None:
        """Update the parameters from their gradients."""
        self._undefined("update")

    def get_outputs(self, merge_multi_context: bool = True) -> Any:
        """The outputs of the last forward."""
        self._undefined("get_outputs")

    def get_input_grads(self, merge_multi_context: bool = True) -> Any:
        """The gradients of the data."""
        self._undefined("get_input_grads")

    def update_metric(self, eval_metric: EvalMetric, labels: Any, pre_sliced: bool = False) -> None:
        """Add the last forward to a metric."""
        self._undefined("update_metric")

    def install_monitor(self, mon: Any) -> None:
        """Let a Monitor look at the arrays."""
        self._undefined("install_monitor")

    def get_states(self, merge_multi_context: bool = True) -> Any:
        """The arrays that `set_states` sets; a Module without any has an empty list."""
        check_switches("BaseModule.get_states", merge_multi_context=merge_multi_context)
        return []

    def set_states(self, states: Any = None, value: Any = None) -> None:
        """Set inputs that stay from batch to batch. Raises ModuleStateError if there are none."""
        if states or value:
            raise ModuleStateError(f"set_states: a {type(self).__name__} without state_names has no states")

    def prepare(self, data_batch: Any, sparse_row_id_fn: Callable[..., Any] | None = None) -> None:
        """Get ready for a batch, before its `forward`.

        sparse_row_id_fn : without effect. In MXNet it tells which rows of row_sparse parameters to fetch from the
            store; the parameters of a Module here are dense, and all their rows are up to date
        """

    def _undefined(self, name: str) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} does not define {name}")


class _NotAnIterator(SettingError, ValueError):
    """Data that is neither an iterator nor an array."""


def as_list(callbacks: Callbacks) -> Sequence[Callback]:
    """One callback or several as a list."""
    if callbacks is None:
        return []
    return callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]  # type: ignore[list-item]
