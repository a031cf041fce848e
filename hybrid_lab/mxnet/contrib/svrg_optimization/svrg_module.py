"""SVRGModule: a Module whose steps use stochastic variance reduced gradients (Johnson and Zhang, 2013)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hybrid_lab.context import Context
from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.metric import EvalMetric
from hybrid_lab.mxnet.module import Module
from hybrid_lab.mxnet.module.base_module import Callbacks, Shapes
from hybrid_lab.ndarray import NDArray
from hybrid_lab.symbol import Symbol

__all__ = ["SVRGModule"]


class SVRGModule(Module):
    """A Module that removes a part of the noise of a batch's gradients before each step.

    Every `update_freq` epochs it keeps a snapshot of the parameters and the mean gradient over all batches there. From
    each gradient it then subtracts the snapshot's gradient for the same batch, and adds that mean.

        module = SVRGModule(symbol, label_names=["label"], update_freq=2)
        module.fit(train_iterator, optimizer_params={"learning_rate": 0.1}, num_epoch=5)

    In a loop of your own, call `update_full_grads(iterator)` before the epochs that begin with a snapshot.
    The remaining arguments are Module's. Raises TypeError and SettingError for an update_freq that is not 1 or more.
    """

    def __init__(
        self,
        symbol: Symbol,
        data_names: Sequence[str] | None = ("data",),
        label_names: Sequence[str] | None = ("softmax_label",),
        logger: Any = logging,
        context: Context | Sequence[Context] | None = None,
        work_load_list: Sequence[float] | None = None,
        fixed_param_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        compression_params: Mapping[str, Any] | None = None,
        update_freq: int | None = None,
    ) -> None:
        if isinstance(update_freq, bool) or not isinstance(update_freq, int):
            raise TypeError(f"update_freq is a number of epochs, an int, not {update_freq!r}")
        if update_freq < 1:
            raise SettingError(f"update_freq is a number of epochs, 1 or more, not {update_freq}")
        options = (
            *(symbol, data_names, label_names, logger, context, work_load_list),
            *(fixed_param_names, state_names, group2ctxs, compression_params),
        )
        super().__init__(*options)
        self.update_freq = update_freq
        self._mod_aux = Module(*options)
        """The snapshot."""
        self._full_gradients: dict[str, NDArray] = {}
        """Mean gradient of each parameter over the batches, at the snapshot."""

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
        """Bind this Module and its snapshot to these shapes. See `Module.bind`."""
        options = (data_shapes, label_shapes, for_training, inputs_need_grad, force_rebind, shared_module, grad_req)
        super().bind(*options)
        if for_training:
            self._mod_aux.bind(*options)

    def reshape(self, data_shapes: Shapes, label_shapes: Shapes | None = None) -> None:
        """Go on with batches of other shapes. Raises BindError."""
        super().reshape(data_shapes, label_shapes)
        if self._mod_aux.binded:
            self._mod_aux.reshape(data_shapes, label_shapes)

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Compute the outputs of a batch; in training mode, also run the snapshot on the batch."""
        super().forward(data_batch, is_train)
        if is_train and self._mod_aux.params_initialized:
            self._mod_aux.forward(data_batch, is_train)

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradients, here and at the snapshot."""
        super().backward(out_grads)
        if self._mod_aux.params_initialized:
            self._mod_aux.backward(out_grads)

    def update_full_grads(self, train_data: Any) -> None:
        """Take a snapshot of the parameters, and compute the mean of its gradients over all batches of an iterator."""
        arguments, states = self.get_params()
        self._mod_aux.init_params(arg_params=arguments, aux_params=states, force_init=True)
        sums: dict[str, NDArray] = {}
        count = 0.0
        train_data.reset()
        for batch in train_data:
            self._mod_aux.forward(batch, is_train=True)
            self._mod_aux.backward()
            for name, gradients in self._mod_aux.gradients():
                whole = gradients[0]
                for gradient in gradients[1:]:
                    whole = whole + gradient.as_in_context(whole.ctx)
                sums[name] = sums[name] + whole if name in sums else whole.copy()
            count += 1 - (batch.pad or 0) / train_data.batch_size
        self._full_gradients = {name: whole / (count * len(self._context)) for name, whole in sums.items()}

    def update(self) -> None:
        """Reduce the variance of the gradients of the last backward, and update the parameters from them."""
        self._require("update", optimizer=True)
        if self._full_gradients:
            snapshot = dict(self._mod_aux.gradients())
            for name, gradients in self.gradients():
                for gradient, old in zip(gradients, snapshot[name], strict=True):
                    gradient[:] = gradient - old + self._full_gradients[name].as_in_context(gradient.ctx)
        super().update()

    def _train_epoch(
        self,
        epoch: int,
        train_data: Any,
        eval_metric: EvalMetric,
        monitor: Any,
        batch_end_callback: Callbacks,
        sparse_row_id_fn: Callable[..., Any] | None,
    ) -> list[tuple[str, float]]:
        if epoch % self.update_freq == 0:
            self.update_full_grads(train_data)
            train_data.reset()
        return super()._train_epoch(epoch, train_data, eval_metric, monitor, batch_end_callback, sparse_row_id_fn)
