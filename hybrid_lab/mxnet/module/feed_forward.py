"""FeedForward, as `mx.model.FeedForward`: MXNet's older interface to a Symbol with parameters, over Module."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hybrid_lab import metric as metrics
from hybrid_lab.context import Context, cpu
from hybrid_lab.data.io import DataDesc, DataIter, NDArrayIter, ResizeIter
from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.initializer import Uniform
from hybrid_lab.mxnet.executor import Executor
from hybrid_lab.mxnet.model import BatchEndParam, load_checkpoint, save_checkpoint
from hybrid_lab.mxnet.monitor import Monitor
from hybrid_lab.ndarray import NDArray
from hybrid_lab.symbol import Symbol
from hybrid_lab.system.logger import logger as package_logger

from .base_module import BaseModule, Callbacks, Logger, Metric, OptimizerLike, StoreLike, as_list
from .bucketing_module import BucketingModule
from .module import Module

Params = Mapping[str, NDArray]


class FeedForward:
    """A network with its parameters: `fit` trains it, `predict` and `score` run it. New code uses Module.

        model = mx.model.FeedForward(symbol, num_epoch=5, learning_rate=0.1)
        model.fit(X, y)
        probabilities = model.predict(X)

    symbol : the network; or a function of a bucket's key that returns it, for an iterator of buckets
    ctx : one context or several; predictions use the first
    num_epoch, begin_epoch : train from epoch `begin_epoch` up to this one
    epoch_size : the number of batches in an epoch; None: as many batches as the iterator has
    optimizer : a name, with its options among `kwargs`, or an Optimizer
    numpy_batch_size : the batch size if X is an array
    arg_params, aux_params : values to start from; the initializer makes the missing values
    allow_extra_params : drop parameters that the Symbol does not have
    """

    def __init__(
        self,
        symbol: Symbol | Callable[[Any], Symbol],
        ctx: Context | Sequence[Context] | None = None,
        num_epoch: int | None = None,
        epoch_size: int | None = None,
        optimizer: OptimizerLike = "sgd",
        initializer: Any = Uniform(0.01),  # noqa: B008 - an initializer does not change
        numpy_batch_size: int = 128,
        arg_params: Params | None = None,
        aux_params: Params | None = None,
        allow_extra_params: bool = False,
        begin_epoch: int = 0,
        **kwargs: Any,
    ) -> None:
        check_switches("FeedForward", allow_extra_params=allow_extra_params)
        warnings.warn("FeedForward is deprecated; use mx.mod.Module", DeprecationWarning, stacklevel=2)
        self.symbol = symbol if isinstance(symbol, Symbol) else None
        self.sym_gen = None if isinstance(symbol, Symbol) else symbol
        self.ctx = [ctx or cpu()] if ctx is None or isinstance(ctx, Context) else list(ctx)
        self.num_epoch, self.epoch_size, self.begin_epoch = num_epoch, epoch_size, begin_epoch
        self.optimizer, self.initializer, self.kwargs = optimizer, initializer, dict(kwargs)
        self.numpy_batch_size, self.allow_extra_params = numpy_batch_size, allow_extra_params
        self.arg_params, self.aux_params = arg_params, aux_params
        if allow_extra_params and self.symbol is not None:
            self.arg_params = _known(arg_params, self.symbol.list_arguments())
            self.aux_params = _known(aux_params, self.symbol.list_auxiliary_states())
        self._executor: Executor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_executor": None}

    # -- training ------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,  # noqa: N803 - MXNet's name
        y: Any = None,
        eval_data: Any = None,
        eval_metric: Metric = "acc",
        epoch_end_callback: Callbacks = None,
        batch_end_callback: Callbacks = None,
        kvstore: StoreLike = "local",
        logger: Logger | None = None,
        work_load_list: Sequence[float] | None = None,
        monitor: Monitor | None = None,
        eval_end_callback: Callbacks = None,
        eval_batch_end_callback: Callbacks = None,
    ) -> None:
        """Train on an iterator, or on arrays X and y, which are shuffled; `Module.fit` documents the remaining
        arguments.

        eval_data : an iterator, or a pair of arrays
        batch_end_callback : called with a BatchEndParam whose batches count from 1
        """
        data = self._iterator(X, y, training=True)
        if self.epoch_size is not None:
            data = ResizeIter(data, self.epoch_size, reset_internal=False)
        module = self._module(data, logger or logging, work_load_list)
        symbol = self.symbol
        assert symbol is not None
        arg_params = _known(self.arg_params, symbol.list_arguments())
        aux_params = _known(self.aux_params, symbol.list_auxiliary_states())
        dropped = [*_others(self.arg_params, arg_params), *_others(self.aux_params, aux_params)]
        if dropped and not self.allow_extra_params:
            package_logger.warning(f"fit: the Symbol has no {', '.join(dropped)}; these parameters are dropped")
        module.fit(
            data,
            None if eval_data is None else self._validation(eval_data),
            eval_metric,
            epoch_end_callback,
            [_from_one(each) for each in as_list(batch_end_callback)],
            kvstore,
            self.optimizer,
            self.kwargs,
            eval_end_callback,
            eval_batch_end_callback,
            self.initializer,
            arg_params,
            aux_params,
            allow_missing=True,
            begin_epoch=self.begin_epoch,
            num_epoch=self.num_epoch,
            monitor=monitor,
        )
        self.arg_params, self.aux_params = module.get_params()

    def _module(self, data: Any, logger: Logger, work_load_list: Sequence[float] | None) -> BaseModule:
        """The Module of the network, or of the networks of all buckets."""
        names = [_described(each).name for each in data.provide_data]
        labels = [_described(each).name for each in data.provide_label]
        generate = self.sym_gen
        if generate is None:
            assert self.symbol is not None
            known = self.symbol.list_arguments()
            labels = [name for name in labels if name in known]
            return Module(self.symbol, names, labels, logger, self.ctx, work_load_list)
        self.symbol = generate(data.default_bucket_key)
        return BucketingModule(
            lambda key: (generate(key), names, labels), data.default_bucket_key, logger, self.ctx, work_load_list
        )

    def _validation(self, eval_data: Any) -> Any:
        if not isinstance(eval_data, (tuple, list)):
            return self._iterator(eval_data, None, training=False)
        data, label = eval_data
        if label is None or isinstance(data, DataIter):
            return self._iterator(data, None, training=False)
        data, label = (np.array(each) if isinstance(each, list) else each for each in (data, label))
        return self._iterator(data, label, training=True)

    def _iterator(self, data: Any, label: Any, training: bool) -> Any:
        """An iterator; one over arrays, if arrays are given. Raises SettingError for arrays that do not fit."""
        if not isinstance(data, (np.ndarray, NDArray)):
            if not hasattr(data, "provide_data"):
                raise SettingError(f"X is an iterator or an array, not {type(data).__name__}")
            return data
        if label is None:
            if training:
                raise SettingError("fit: y must be given with an array X")
            label = np.zeros(data.shape[0], np.float32)
        if label.ndim == 2 and label.shape[1] == 1:
            label = label.reshape((-1,))
        if label.ndim != 1 or label.shape[0] != data.shape[0]:
            raise SettingError(f"y has the shape {label.shape}; it needs one number for each of {data.shape[0]} rows")
        size = min(data.shape[0], self.numpy_batch_size)
        if training:
            return NDArrayIter(data, label, size, shuffle=True, last_batch_handle="roll_over")
        return NDArrayIter(data, label, size)

    # -- predictions ---------------------------------------------------------------------------------------------

    def predict(
        self,
        X: Any,  # noqa: N803 - MXNet's name
        num_batch: int | None = None,
        return_data: bool = False,
        reset: bool = True,
    ) -> Any:
        """The outputs for all rows as NumPy arrays: one, or a list of several.

        num_batch : number of batches to predict; return_data : return (outputs, data, labels)
        """
        check_switches("FeedForward.predict", return_data=return_data, reset=reset)
        data = self._iterator(X, None, training=False)
        outputs: list[list[np.ndarray]] = []
        seen: list[list[np.ndarray]] = []
        labels: list[list[np.ndarray]] = []
        for batch, results in self._batches(data, num_batch, reset):
            rows = data.batch_size - (batch.pad or 0)
            for columns, arrays in ((outputs, results), (seen, batch.data), (labels, batch.label or [])):
                columns += [[] for _ in range(len(arrays) - len(columns))]
                for column, array in zip(columns, arrays, strict=True):
                    column.append(array.asnumpy()[:rows])
        return tuple(map(_joined, (outputs, seen, labels))) if return_data else _joined(outputs)

    def score(
        self,
        X: Any,  # noqa: N803 - MXNet's name
        eval_metric: Metric = "acc",
        num_batch: int | None = None,
        batch_end_callback: Callbacks = None,
        reset: bool = True,
    ) -> Any:
        """The value of a metric on an iterator. For an array it is, as in MXNet, that for labels of 0, with a warning.

        batch_end_callback : called with a BatchEndParam
        """
        check_switches("FeedForward.score", reset=reset)
        metric = metrics.create(eval_metric)
        data = self._iterator(X, None, training=False)
        if data is not X:
            package_logger.warning("score: an array has no labels, so the metric compares with zeros; give an iterator")
        for number, (batch, results) in enumerate(self._batches(data, num_batch, reset)):
            metric.update(batch.label, results)
            for callback in as_list(batch_end_callback):
                callback(BatchEndParam(epoch=0, nbatch=number, eval_metric=metric, locals=locals()))
        return metric.get()[1]

    def _batches(self, data: Any, num_batch: int | None, reset: bool) -> Any:
        """Each batch with the outputs for it."""
        if reset:
            data.reset()
        executor = self._bound([_described(each) for each in data.provide_data])
        names = [_described(each).name for each in data.provide_data]
        for number, batch in enumerate(data):
            if number == num_batch:
                break
            yield batch, executor.forward(is_train=False, **dict(zip(names, batch.data, strict=True)))

    def _bound(self, inputs: Sequence[DataDesc]) -> Executor:
        """The network bound to the current parameters. Raises SettingError before there are some."""
        if self.symbol is None or self.arg_params is None:
            raise SettingError("the model has no parameters yet; call fit, or give arg_params")
        shapes = {name: array.shape for name, array in self.arg_params.items()}
        shapes |= {each.name: tuple(each.shape) for each in inputs}
        executor = self._executor
        if executor is None or any(executor.arg_dict[each.name].shape != tuple(each.shape) for each in inputs):
            types = {name: array.dtype for name, array in self.arg_params.items()}
            types |= {each.name: each.dtype for each in inputs}
            executor = self._executor = self.symbol.simple_bind(self.ctx[0], grad_req="null", type_dict=types, **shapes)
        executor.copy_params_from(self.arg_params, self.aux_params or {})
        return executor

    # -- files ---------------------------------------------------------------------------------------------------

    def save(self, prefix: str, epoch: int | None = None, remove_amp_cast: bool = True) -> None:
        """Write `prefix-symbol.json` and `prefix-EPOCH.params`; the epoch is `num_epoch` if None is given."""
        check_switches("FeedForward.save", remove_amp_cast=remove_amp_cast)
        epoch = self.num_epoch if epoch is None else epoch
        if epoch is None:
            raise SettingError("save: the model has no num_epoch; give the number of the epoch")
        if self.symbol is None or self.arg_params is None:
            raise SettingError("save: the model has no parameters yet; call fit, or give arg_params")
        save_checkpoint(prefix, epoch, self.symbol, self.arg_params or {}, self.aux_params or {}, remove_amp_cast)

    @staticmethod
    def load(prefix: str, epoch: int, ctx: Context | Sequence[Context] | None = None, **kwargs: Any) -> FeedForward:
        """The model of a checkpoint, whose training goes on at `epoch`. kwargs : as for the constructor"""
        symbol, arg_params, aux_params = load_checkpoint(prefix, epoch)
        options = {"arg_params": arg_params, "aux_params": aux_params, "begin_epoch": epoch, **kwargs}
        return FeedForward(symbol, ctx, **options)

    @staticmethod
    def create(
        symbol: Symbol | Callable[[Any], Symbol],
        X: Any,  # noqa: N803 - MXNet's name
        y: Any = None,
        ctx: Context | Sequence[Context] | None = None,
        num_epoch: int | None = None,
        epoch_size: int | None = None,
        optimizer: OptimizerLike = "sgd",
        initializer: Any = Uniform(0.01),  # noqa: B008 - an initializer does not change
        eval_data: Any = None,
        eval_metric: Metric = "acc",
        epoch_end_callback: Callbacks = None,
        batch_end_callback: Callbacks = None,
        kvstore: StoreLike = "local",
        logger: Logger | None = None,
        work_load_list: Sequence[float] | None = None,
        eval_end_callback: Callbacks = None,
        eval_batch_end_callback: Callbacks = None,
        **kwargs: Any,
    ) -> FeedForward:
        """Make a model and train it. Takes the arguments of the constructor and of `fit`."""
        model = FeedForward(symbol, ctx, num_epoch, epoch_size, optimizer, initializer, **kwargs)
        model.fit(
            X,
            y,
            eval_data,
            eval_metric,
            epoch_end_callback,
            batch_end_callback,
            kvstore,
            logger,
            work_load_list,
            eval_end_callback=eval_end_callback,
            eval_batch_end_callback=eval_batch_end_callback,
        )
        return model


def feed_forward_class() -> type[FeedForward]:
    """The class, for `mx.model`, which is below this room."""
    return FeedForward


def _from_one(callback: Callable[[BatchEndParam], object]) -> Callable[[BatchEndParam], None]:
    """A callback for Module, which numbers batches from 0; FeedForward does so from 1."""

    def call(param: BatchEndParam) -> None:
        callback(param._replace(nbatch=param.nbatch + 1))

    return call


def _known(params: Params | None, names: Sequence[str]) -> dict[str, NDArray] | None:
    """The parameters with these names."""
    return None if params is None else {name: array for name, array in params.items() if name in names}


def _others(params: Params | None, known: Params | None) -> list[str]:
    """Names of the parameters missing among the known ones."""
    return [name for name in params or {} if name not in (known or {})]


def _described(given: Any) -> DataDesc:
    """Name, shape and dtype of an input: an iterator may have plain tuples."""
    return given if isinstance(given, DataDesc) else DataDesc(*given)


def _joined(columns: list[list[np.ndarray]]) -> Any:
    arrays = [np.concatenate(column) for column in columns]
    return arrays[0] if len(arrays) == 1 else arrays
