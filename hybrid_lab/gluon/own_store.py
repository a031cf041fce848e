"""OwnStore: a Trainer's parameters and gradients in a store that the user wrote."""

from __future__ import annotations

from collections.abc import Sequence

from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.distributed.kvstore import KVStoreBase
from hybrid_lab.optimizer import Optimizer

from .parameter import Parameter


class OwnStore:
    """Sums gradients by the store's `pushpull`, under the numbers of the parameters; `broadcast` comes first.

    updates : whether the store updates the parameters, by the Trainer's optimizer
    Raises SettingError if it should, but is not capable of it.
    """

    def __init__(
        self, store: KVStoreBase, params: Sequence[Parameter], optimizer: Optimizer, update_on_kvstore: bool | None
    ) -> None:
        capable = store.is_capable(KVStoreBase.OPTIMIZER)
        if update_on_kvstore and not capable:
            raise SettingError(
                f"a {type(store).__name__} cannot update parameters; set update_on_kvstore=False, or leave it out"
            )
        self.store, self.updates = store, capable if update_on_kvstore is None else update_on_kvstore
        self._params, self._waiting = params, dict(enumerate(params))
        if self.updates:
            store.set_optimizer(optimizer)

    def pushpull(self, fresh_only: bool = False) -> None:
        """Hand over the gradients: they become sums over contexts and processes, or the parameters are updated.

        fresh_only : only for parameters whose gradient was written since the last step
        """
        self._broadcast()
        for index, parameter in enumerate(self._params):
            if parameter.grad_req == "null" or index in self._waiting:
                continue
            values = parameter.list_data()
            if fresh_only and not all(value._fresh_grad for value in values):
                continue
            out = values if self.updates else None
            self.store.pushpull(index, parameter.list_grad(), out=out, priority=-index)

    def _broadcast(self) -> None:
        """Give the store the values of parameters that it does not have yet; deferred ones come later."""
        for index, parameter in list(self._waiting.items()):
            if parameter._data is not None:
                values = parameter.list_data()
                self.store.broadcast(index, values[0], values)
                del self._waiting[index]

    def refuse(self, call: str) -> None:
        """Raise SettingError for a call that makes no sense if the store updates the parameters."""
        if self.updates:
            raise SettingError(
                f"{call}: the store updates the parameters and holds the optimizer's states; "
                "set update_on_kvstore=False"
            )
