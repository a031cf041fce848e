"""PythonModule: a Module written in Python, without parameters; PythonLossModule: a loss as one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hybrid_lab import ndarray as nd
from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.initializer import Uniform
from hybrid_lab.metric import EvalMetric
from hybrid_lab.mxnet.model import Params
from hybrid_lab.ndarray import NDArray

from .base_module import LEARNING_RATE, BaseModule, Logger, OptimizerLike, OptimizerParams, Shapes, StoreLike
from .executor_group import descs


class PythonModule(BaseModule):
    """Base of Modules without parameters. A subclass defines `forward`, `backward`, `get_outputs`, `get_input_grads`
    and `_compute_output_shapes`.
    """

    def __init__(
        self,
        data_names: Sequence[str],
        label_names: Sequence[str] | None,
        output_names: Sequence[str],
        logger: Logger = logging,
    ) -> None:
        super().__init__(logger)
        self._data_names, self._output_names = list(data_names), list(output_names)
        self._label_names = None if label_names is None else list(label_names)
        self._data_shapes: Any = None
        self._label_shapes: Any = None
        self._output_shapes: Any = None

    @property
    def data_names(self) -> list[str]:
        """Names of the data."""
        return self._data_names

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs."""
        return self._output_names

    @property
    def data_shapes(self) -> Any:
        """Descriptions of the data."""
        return self._data_shapes

    @property
    def label_shapes(self) -> Any:
        """Descriptions of the labels."""
        return self._label_shapes

    @property
    def output_shapes(self) -> Any:
        """(name, shape) of the outputs."""
        return self._output_shapes

    def _compute_output_shapes(self) -> Any:
        """(name, shape) of the outputs, from `_data_shapes` and `_label_shapes`."""
        self._undefined("_compute_output_shapes")

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
        """Take the shapes. Raises SettingError for another grad_req than "write"."""
        check_switches(
            "PythonModule.bind", for_training=for_training, inputs_need_grad=inputs_need_grad, force_rebind=force_rebind
        )
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if grad_req != "write":
            raise SettingError("bind: a PythonModule writes gradients; grad_req must be 'write'")
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self._data_shapes = descs(data_shapes)
        self._label_shapes = None if label_shapes is None else descs(label_shapes)
        self._output_shapes = self._compute_output_shapes()
        self.binded = True

    def get_params(self) -> tuple[Params, Params]:
        """Two empty dicts."""
        return {}, {}

    def init_params(
        self,
        initializer: Any = Uniform(0.01),  # noqa: B008 - an initializer does not change
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """There are no parameters to initialize."""
        check_switches(
            "PythonModule.init_params", allow_missing=allow_missing, force_init=force_init, allow_extra=allow_extra
        )
        self.params_initialized = True

    def init_optimizer(
        self,
        kvstore: StoreLike = "local",
        optimizer: OptimizerLike = "sgd",
        optimizer_params: OptimizerParams = LEARNING_RATE,
        force_init: bool = False,
    ) -> None:
        """There are no parameters to optimize."""
        check_switches("PythonModule.init_optimizer", force_init=force_init)
        self.optimizer_initialized = True

    def update(self) -> None:
        """There are no parameters to update."""

    def update_metric(self, eval_metric: EvalMetric, labels: Any, pre_sliced: bool = False) -> None:
        """Add the outputs to a metric, if the Module takes labels."""
        check_switches("PythonModule.update_metric", pre_sliced=pre_sliced)
        if self._label_shapes is None:
            return
        if pre_sliced:
            raise SettingError("update_metric: a PythonModule takes the labels of a whole batch")
        eval_metric.update(labels, self.get_outputs())


class PythonLossModule(PythonModule):
    """A loss: its output is its data, and `grad_func(scores, labels)` gives the gradient of the data.

    Without grad_func a subclass defines `_backward_impl`, which sets `_scores_grad`.
    """

    def __init__(
        self,
        name: str = "pyloss",
        data_names: Sequence[str] = ("data",),
        label_names: Sequence[str] = ("softmax_label",),
        logger: Logger = logging,
        grad_func: Callable[[NDArray, NDArray], Any] | None = None,
    ) -> None:
        super().__init__(data_names, label_names, [f"{name}_output"], logger)
        if len(data_names) != 1 or len(label_names) != 1:
            raise SettingError("PythonLossModule takes one array of data and one of labels")
        if grad_func is not None and not callable(grad_func):
            raise SettingError(f"grad_func is a function of (scores, labels), not {type(grad_func).__name__}")
        self._name, self._grad_func = name, grad_func
        self._scores: Any = None
        self._labels: Any = None
        self._scores_grad: Any = None

    def _compute_output_shapes(self) -> Any:
        return [(self._output_names[0], self._data_shapes[0].shape)]

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Take the data, and in training mode the labels."""
        self._scores = data_batch.data[0]
        if self.for_training if is_train is None else is_train:
            self._labels = data_batch.label[0]

    def get_outputs(self, merge_multi_context: bool = True) -> list[NDArray]:
        """The data. Raises SettingError for merge_multi_context=False."""
        check_switches("PythonLossModule.get_outputs", merge_multi_context=merge_multi_context)
        if not merge_multi_context:
            raise SettingError("get_outputs: a PythonLossModule is not divided between contexts")
        return [self._scores]

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradient of the data. Raises SettingError for gradients of the output, since it is a loss."""
        if out_grads is not None:
            raise SettingError("backward: a loss takes no gradients of its output")
        self._require("backward", params=False)
        self._backward_impl()

    def _backward_impl(self) -> None:
        """Set `_scores_grad` from `_scores` and `_labels`."""
        if self._grad_func is None:
            self._undefined("_backward_impl, and has no grad_func")
        gradient = self._grad_func(self._scores, self._labels)
        self._scores_grad = gradient if isinstance(gradient, NDArray) else nd.array(gradient)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[NDArray]:
        """The gradient of the data."""
        check_switches("PythonLossModule.get_input_grads", merge_multi_context=merge_multi_context)
        return [self._scores_grad]

    def install_monitor(self, mon: Any) -> None:
        """Raises SettingError: there is no Executor to look into."""
        raise SettingError("install_monitor: a PythonModule has no Executor")
