"""SequentialModule: Modules one behind the other, each fed with the outputs of the one before."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from hybrid_lab.data.io import DataBatch, DataDesc
from hybrid_lab.diagnostics.errors import BindError, SettingError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.initializer import Uniform
from hybrid_lab.metric import EvalMetric
from hybrid_lab.mxnet.model import Params
from hybrid_lab.ndarray import NDArray
from hybrid_lab.optimizer import Updater

from .base_module import LEARNING_RATE, BaseModule, Logger, OptimizerLike, OptimizerParams, Shapes, StoreLike


class SequentialModule(BaseModule):
    """Modules one behind the other.

    chain = mx.mod.SequentialModule()
    chain.add(features).add(classifier, take_labels=True, auto_wiring=True)
    """

    META_TAKE_LABELS = "take_labels"
    META_AUTO_WIRING = "auto_wiring"

    def __init__(self, logger: Logger = logging) -> None:
        super().__init__(logger)
        self._modules: list[BaseModule] = []
        self._takes_labels: list[bool] = []
        self._wired: list[bool] = []
        self._data_shapes: Any = None
        self._label_shapes: Any = None

    def add(self, module: BaseModule, take_labels: bool = False, auto_wiring: bool = False) -> SequentialModule:
        """Add a Module at the end; returns this one. Then it must be bound again.

        take_labels : it is given the labels of the batch
        auto_wiring : the outputs before it are its data by place; else by name
        """
        check_switches("SequentialModule.add", take_labels=take_labels, auto_wiring=auto_wiring)
        self._modules.append(module)
        self._takes_labels.append(take_labels)
        self._wired.append(auto_wiring)
        self.binded = self.params_initialized = self.optimizer_initialized = False
        return self

    @property
    def data_names(self) -> Any:
        """Names of the data of the first Module."""
        return self._modules[0].data_names if self._modules else []

    @property
    def output_names(self) -> Any:
        """Names of the outputs of the last Module."""
        return self._modules[-1].output_names if self._modules else []

    @property
    def data_shapes(self) -> Any:
        """Descriptions of the data of the first Module."""
        self._require("data_shapes", params=False)
        return self._modules[0].data_shapes

    @property
    def label_shapes(self) -> Any:
        """Descriptions of the labels."""
        self._require("label_shapes", params=False)
        return self._label_shapes

    @property
    def output_shapes(self) -> Any:
        """(name, shape) of the outputs of the last Module."""
        self._require("output_shapes", params=False)
        return self._modules[-1].output_shapes

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
        """Bind every Module to the shapes that the one before gives. Raises SettingError without Modules."""
        check_switches(
            "SequentialModule.bind",
            for_training=for_training,
            inputs_need_grad=inputs_need_grad,
            force_rebind=force_rebind,
        )
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if shared_module is not None or not self._modules:
            raise SettingError("bind: a SequentialModule needs Modules, and shares no memory with another one")
        if inputs_need_grad and not for_training:
            raise SettingError("bind: inputs_need_grad=True needs for_training=True")
        shapes: Any = data_shapes
        for index, (module, labels, wired) in enumerate(
            zip(self._modules, self._takes_labels, self._wired, strict=True)
        ):
            if wired:
                if len(module.data_names) != len(shapes):
                    raise BindError(f"bind: Module {index} takes {len(module.data_names)} arrays; {len(shapes)} come")
                given = [each.shape if isinstance(each, DataDesc) else each[1] for each in shapes]
                shapes = list(zip(module.data_names, given, strict=True))
            module.bind(
                shapes,
                label_shapes if labels else None,
                for_training,
                inputs_need_grad or (for_training and index > 0),
                force_rebind,
                grad_req=grad_req,
            )
            shapes = module.output_shapes
        self.for_training, self.inputs_need_grad, self.binded = for_training, inputs_need_grad, True
        self._label_shapes = label_shapes if any(self._takes_labels) else None

    def updaters(self) -> list[Updater]:
        """The Updaters of all Modules, in order."""
        return [updater for module in self._modules for updater in module.updaters()]

    def get_params(self) -> tuple[Params, Params]:
        """(arguments, auxiliary states) of all Modules."""
        self._require("get_params")
        arguments: Params = {}
        states: Params = {}
        for module in self._modules:
            own = module.get_params()
            arguments |= own[0]
            states |= own[1]
        return arguments, states

    def init_params(
        self,
        initializer: Any = Uniform(0.01),  # noqa: B008 - an initializer does not change
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Give the parameters of all Modules their first values. Raises BindError if two have one name."""
        check_switches(
            "SequentialModule.init_params", allow_missing=allow_missing, force_init=force_init, allow_extra=allow_extra
        )
        if self.params_initialized and not force_init:
            return
        self._require("init_params", params=False)
        for module in self._modules:
            module.init_params(initializer, arg_params, aux_params, allow_missing, force_init, allow_extra=True)
        names = [name for module in self._modules for params in module.get_params() for name in params]
        double = {name for name in names if names.count(name) > 1}
        if double:
            raise BindError(f"init_params: two Modules have parameters named {', '.join(sorted(double))}")
        given = {*(arg_params or {}), *(aux_params or {})}
        if not allow_extra and given - set(names):
            raise BindError(f"init_params: no Module has {', '.join(sorted(given - set(names)))}")
        self.params_initialized = True

    def init_optimizer(
        self,
        kvstore: StoreLike = "local",
        optimizer: OptimizerLike = "sgd",
        optimizer_params: OptimizerParams = LEARNING_RATE,
        force_init: bool = False,
    ) -> None:
        """Make an optimizer for every Module."""
        check_switches("SequentialModule.init_optimizer", force_init=force_init)
        self._require("init_optimizer")
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring.")
            return
        for module in self._modules:
            module.init_optimizer(kvstore, optimizer, optimizer_params, force_init)
        self.optimizer_initialized = True

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Run all Modules."""
        self._require("forward")
        label = getattr(data_batch, "label", None)
        batch = DataBatch(data_batch.data, label, getattr(data_batch, "pad", None))
        for index, module in enumerate(self._modules):
            module.forward(batch, is_train)
            if index + 1 < len(self._modules):
                batch = DataBatch(module.get_outputs(), label, batch.pad)

    def backward(self, out_grads: Any = None) -> None:
        """Run the backwards of all Modules, from the last one."""
        self._require("backward")
        for index, module in reversed(list(enumerate(self._modules))):
            module.backward(out_grads)
            if index:
                out_grads = module.get_input_grads()

    def update(self) -> None:
        """Update the parameters of all Modules."""
        self._require("update", optimizer=True)
        for module in self._modules:
            module.update()

    def get_outputs(self, merge_multi_context: bool = True) -> Any:
        """The outputs of the last Module."""
        check_switches("SequentialModule.get_outputs", merge_multi_context=merge_multi_context)
        self._require("get_outputs")
        return self._modules[-1].get_outputs(merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[NDArray]:
        """The gradients of the data of the first Module."""
        check_switches("SequentialModule.get_input_grads", merge_multi_context=merge_multi_context)
        self._require("get_input_grads")
        gradients: list[NDArray] = self._modules[0].get_input_grads(merge_multi_context)
        return gradients

    def update_metric(self, eval_metric: EvalMetric, labels: Any, pre_sliced: bool = False) -> None:
        """Add the outputs of the Modules that take labels to a metric."""
        check_switches("SequentialModule.update_metric", pre_sliced=pre_sliced)
        self._require("update_metric")
        for module, takes in zip(self._modules, self._takes_labels, strict=True):
            if takes:
                module.update_metric(eval_metric, labels, pre_sliced)

    def install_monitor(self, mon: Any) -> None:
        """Let a Monitor look into all Modules."""
        self._require("install_monitor", params=False)
        for module in self._modules:
            module.install_monitor(mon)
