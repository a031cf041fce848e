"""KVStoreBase: the methods of a store, so that users can write stores of their own."""

from __future__ import annotations

import builtins
import warnings
from collections.abc import Sequence
from os import PathLike
from typing import Any, ClassVar, TypeAlias, TypeVar

from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.ndarray import NDArray
from hybrid_lab.optimizer import Optimizer

Key = int | str
StoreClass: TypeAlias = "type[KVStoreBase]"
Store = TypeVar("Store", bound="KVStoreBase")


class KVStoreBase:
    """Base of all stores. A store of your own defines `broadcast`, `pushpull`, `is_capable`, `type`, `rank` and
    `num_workers`, and is made by its name after registration:

        @mx.kv.KVStoreBase.register
        class MyStore(mx.kv.KVStoreBase):
            ...

        trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore=mx.kv.create("mystore"))
    """

    OPTIMIZER: ClassVar[str] = "optimizer"
    """The capability of a store that updates what it stores by an optimizer."""
    kv_registry: ClassVar[dict[str, StoreClass]] = {}
    """Names in small letters -> the classes that `register` was given."""

    @staticmethod
    def register(klass: builtins.type[Store]) -> builtins.type[Store]:
        """Let `mx.kv.create` make stores of this class by its name, in letters of any case. A decorator."""
        if not (isinstance(klass, type) and issubclass(klass, KVStoreBase)):
            raise SettingError(f"register takes a subclass of KVStoreBase, not {klass!r}")
        name = klass.__name__.lower()
        known = KVStoreBase.kv_registry.get(name)
        if known is not None and known is not klass:
            warnings.warn(f"the store {klass!r} takes the place of {known!r}", stacklevel=2)
        KVStoreBase.kv_registry[name] = klass
        return klass

    def _undefined(self, name: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} does not define {name}")

    def broadcast(self, key: Key | Sequence[Key], value: Any, out: Any, priority: int = 0) -> None:
        """Give the first value of a key to all processes and write it to `out`."""
        raise self._undefined("broadcast")

    def pushpull(self, key: Key | Sequence[Key], value: Any, out: Any = None, priority: int = 0) -> None:
        """Sum the arrays of a key and write the sum to `out`, or to `value`. After `set_optimizer` the sum is a
        gradient, and the updated array is written.
        """
        raise self._undefined("pushpull")

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Update the stored arrays by this optimizer; for stores that are capable of it."""
        raise self._undefined("set_optimizer")

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Whether the store can be given an optimizer ("optimizer")."""
        raise NotImplementedError("the store does not define is_capable")

    def save_optimizer_states(self, fname: str | PathLike[str], dump_optimizer: bool = False) -> None:
        """Write the optimizer's states to a file."""
        raise self._undefined("save_optimizer_states")

    def load_optimizer_states(self, fname: str | PathLike[str]) -> None:
        """Go on with the states of a file."""
        raise self._undefined("load_optimizer_states")

    def set_gradient_compression(self, compression_params: Any) -> None:
        """Compress the data sent between processes."""
        raise self._undefined("set_gradient_compression")

    @property
    def type(self) -> str:
        """The name of the kind of store."""
        raise self._undefined("type")

    @property
    def rank(self) -> int:
        """The number of this process among all."""
        raise self._undefined("rank")

    @property
    def num_workers(self) -> int:
        """How many processes train."""
        raise self._undefined("num_workers")


@KVStoreBase.register
class TestStore(KVStoreBase):
    """The smallest store: it sums arrays of one process and keeps none. An example, and for tests."""

    __test__ = False  # not a test of pytest's

    def broadcast(self, key: Key | Sequence[Key], value: Any, out: Any, priority: int = 0) -> None:
        """Copy the value to `out`."""
        for array in _several(out):
            array[:] = value

    def pushpull(self, key: Key | Sequence[Key], value: Any, out: Any = None, priority: int = 0) -> None:
        """Write the sum of the arrays to `out`, or to the arrays."""
        arrays = _several(value)
        total = arrays[0].copy()
        for array in arrays[1:]:
            total += array.as_in_context(total.context)
        for array in arrays if out is None else _several(out):
            array[:] = total

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Not of an optimizer. Raises SettingError for other capabilities."""
        if capability.lower() != KVStoreBase.OPTIMIZER:
            raise SettingError(f"is_capable: there is the capability 'optimizer', and not {capability!r}")
        return False

    @property
    def type(self) -> str:
        """The name under which it is registered."""
        return "teststore"

    @property
    def rank(self) -> int:
        """0: there is one process."""
        return 0

    @property
    def num_workers(self) -> int:
        """1: there is one process."""
        return 1


def _several(arrays: Any) -> list[NDArray]:
    return list(arrays) if isinstance(arrays, (list, tuple)) else [arrays]
