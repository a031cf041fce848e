"""KVStore: arrays by key, in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, cast

from hybrid_lab import optimizer as optimizers
from hybrid_lab.diagnostics.errors import HybridLabError, SettingError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.invoke import invoke
from hybrid_lab.ndarray.tape import Mode
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.optimizer import Optimizer, Updater
from hybrid_lab.system.provided import Provided

from .base import Key, KVStoreBase

UpdateFunction = Callable[[Any, NDArray, NDArray], object]

distributed_store: Provided[[str], KVStoreBase | None] = Provided("distributed_store")

TYPES = ("local", "local_update_cpu", "local_allreduce_cpu", "local_allreduce_device", "device", "nccl")
"""Types of stores in one process. In MXNet they differ by where sums are computed; here the stored array says it."""


class KVStoreError(HybridLabError, ValueError):
    """A key or value that a KVStore cannot take, or a store that does not exist here."""


class KVStore(KVStoreBase):
    """Arrays by key. `push` sums what several devices give, `pull` hands the result out.

        kv = mx.kv.create("local")
        kv.init("weight", mx.nd.zeros((2, 3)))
        kv.push("weight", [gradient_0, gradient_1])
        kv.pull("weight", out=[weight_0, weight_1])

    Keys are whole numbers or strings, one kind in one store. Without an optimizer the pushed sum replaces the array;
    after `set_optimizer` it is a gradient and updates the array.
    """

    def __init__(self, kind: str = "local") -> None:
        self._kind = kind
        self._arrays: dict[Key, NDArray] = {}
        self._key_type: type | None = None
        self._updater: UpdateFunction | None = None

    def __repr__(self) -> str:
        return f"KVStore({self._kind!r}, {len(self._arrays)} keys)"

    @property
    def type(self) -> str:
        """The type it was created with."""
        return self._kind

    @property
    def rank(self) -> int:
        """The number of this process: 0, since there is one."""
        return 0

    @property
    def num_workers(self) -> int:
        """How many processes train: one."""
        return 1

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Whether the store can be given an optimizer ("optimizer"); all can."""
        return capability.lower() == "optimizer"

    # -- arrays --------------------------------------------------------------------------------------------------

    def init(self, key: Key | Sequence[Key], value: Any) -> None:
        """Store copies of arrays under new keys. Raises KVStoreError for a key that is there."""
        for each, arrays in self._pairs(key, value):
            if each in self._arrays:
                raise KVStoreError(f"init: the key {each!r} is in the store already")
            self._arrays[each] = arrays[0].copy()

    def push(self, key: Key | Sequence[Key], value: Any, priority: int = 0) -> None:
        """Sum the arrays given for a key, then replace the stored array, or update it by the optimizer.

        value : an array, or a list of one array for each device; for a list of keys, a list of these
        priority : accepted for MXNet's sake; calls are not reordered
        """
        for each, arrays in self._pairs(key, value):
            stored = self._stored(each)
            total = self._total(each, arrays, stored)
            if self._updater is None:
                with Mode(False, None):
                    total.copyto(stored)
            else:
                self._updater(each, total, stored)

    def _total(self, key: Key, arrays: Sequence[NDArray], stored: NDArray) -> NDArray:
        """The sum of a push of a key."""
        return sum_of(arrays, stored)

    def pull(self, key: Key | Sequence[Key], out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Copy the stored arrays to `out`: an array or a list of arrays for each key.

        priority : accepted for MXNet's sake; calls are not reordered
        ignore_sparse : leave sparse arrays of `out` unchanged, as MXNet does
        """
        check_switches("KVStore.pull", ignore_sparse=ignore_sparse)
        if out is None:
            raise SettingError("pull: give the arrays that take the values as out=")
        for each, arrays in self._pairs(key, out):
            stored = self._stored(each)
            with Mode(False, None):
                for array in arrays:
                    if array.stype == "default" or not ignore_sparse:
                        stored.copyto(array)

    def pushpull(self, key: Key | Sequence[Key], value: Any, out: Any = None, priority: int = 0) -> None:
        """`push`, then `pull` to `out`, or to `value` itself."""
        self.push(key, value, priority)
        self.pull(key, value if out is None else out, priority, ignore_sparse=False)

    def broadcast(self, key: Key | Sequence[Key], value: Any, out: Any, priority: int = 0) -> None:
        """`init`, then `pull` to `out`."""
        self.init(key, value)
        self.pull(key, out, priority)

    def row_sparse_pull(
        self, key: Key | Sequence[Key], out: Any = None, priority: int = 0, row_ids: Any = None
    ) -> None:
        """Copy rows of the stored arrays to `out`, row_sparse arrays, which hold no other rows then.

        out : as for `pull`; row_ids : the numbers of the rows, an array for each of `out`, or one for all of a key
        priority : accepted for MXNet's sake; calls are not reordered
        Raises KVStoreError for an array of `out` that is not row_sparse.
        """
        if out is None or row_ids is None:
            raise SettingError("row_sparse_pull: give the arrays that take the values as out=, and their row_ids=")
        wanted = self._pairs(key, row_ids)
        for (each, arrays), (_, rows) in zip(self._pairs(key, out), wanted, strict=True):
            stored = self._stored(each)
            rows = rows * len(arrays) if len(rows) == 1 else rows
            if len(rows) != len(arrays):
                raise KVStoreError(f"row_sparse_pull: {len(arrays)} arrays and {len(rows)} row_ids of the key {each!r}")
            with Mode(False, None):
                source = stored if stored.stype == "row_sparse" else stored.tostype("row_sparse")
                for array, numbers in zip(arrays, rows, strict=True):
                    if array.stype != "row_sparse":
                        raise KVStoreError(f"row_sparse_pull: an array of out= is {array.stype}, not row_sparse")
                    array[:] = invoke(get("_sparse_retain").bind(), (source, numbers.reshape((-1,))))

    # -- updates -------------------------------------------------------------------------------------------------

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Update the stored arrays by this optimizer from the pushed arrays."""
        self._set_updater(optimizers.get_updater(optimizer))

    def set_updater(self, updater: UpdateFunction) -> None:
        """Call `updater(key, pushed, stored)` at each push; it changes `stored`."""
        self._set_updater(updater)

    def _set_updater(self, updater: UpdateFunction) -> None:
        self._updater = updater

    def set_gradient_compression(self, compression_params: Mapping[str, Any]) -> None:
        """Raises KVStoreError: in one process nothing is sent that could be compressed."""
        raise KVStoreError("gradients are not compressed: one process sends none; leave compression_params out")

    def save_optimizer_states(self, fname: str | PathLike[str], dump_optimizer: bool = False) -> None:
        """Write the optimizer's states to a file; its settings too with `dump_optimizer`.

        Raises KVStoreError without an optimizer.
        """
        check_switches("KVStore.save_optimizer_states", dump_optimizer=dump_optimizer)
        write_states(self._own_updater("save_optimizer_states"), fname, dump_optimizer)

    def load_optimizer_states(self, fname: str | PathLike[str]) -> None:
        """Go on with the states of a file that `save_optimizer_states` wrote. Raises KVStoreError, ArchiveError."""
        read_states(self._own_updater("load_optimizer_states"), fname)

    @property
    def updater(self) -> Updater:
        """The optimizer and its states. Raises KVStoreError without an optimizer."""
        return self._own_updater("updater")

    def _own_updater(self, call: str) -> Updater:
        if not isinstance(self._updater, Updater):
            raise KVStoreError(f"{call}: this store has no optimizer; call set_optimizer first")
        return self._updater

    # -- keys ----------------------------------------------------------------------------------------------------

    def _stored(self, key: Key) -> NDArray:
        if key not in self._arrays:
            raise KVStoreError(f"the key {key!r} is not in the store; call init first")
        return self._arrays[key]

    def _pairs(self, key: Key | Sequence[Key], value: Any) -> list[tuple[Key, list[NDArray]]]:
        """Each key with its arrays. Raises KVStoreError for keys of another kind, SettingError for other values."""
        if not isinstance(key, (list, tuple)):
            keys, values = [cast(Key, key)], [value]
        else:
            keys, values = list(key), list(value) if isinstance(value, (list, tuple)) else [value]
            if len(values) != len(keys) and len(values) % max(len(keys), 1) == 0:
                each = len(values) // len(keys)
                values = [values[index * each : (index + 1) * each] for index in range(len(keys))]
            if len(values) != len(keys):
                raise KVStoreError(f"{len(keys)} keys and {len(values)} values were given")
        pairs = []
        for one, arrays in zip(keys, values, strict=True):
            self._check_key(one)
            several = list(arrays) if isinstance(arrays, (list, tuple)) else [arrays]
            for array in several:
                if not isinstance(array, NDArray):
                    raise SettingError(f"the key {one!r} takes NDArrays, not {type(array).__name__}")
            pairs.append((one, several))
        return pairs

    def _check_key(self, key: object) -> None:
        kind = str if isinstance(key, str) else int if isinstance(key, int) and not isinstance(key, bool) else None
        if kind is None:
            raise KVStoreError(f"a key is a whole number or a string, not {key!r}")
        self._key_type = self._key_type or kind
        if kind is not self._key_type:
            known = "strings" if self._key_type is str else "numbers"
            raise KVStoreError(f"the keys of this store are {known}, and {key!r} is not one")


def write_states(updater: Updater, fname: str | PathLike[str], dump_optimizer: bool = False) -> None:
    """Write the states of an Updater to a file."""
    from hybrid_lab.formats.atomic import atomic_write

    with atomic_write(fname) as file:
        file.write(updater.get_states(dump_optimizer))


def read_states(updater: Updater, fname: str | PathLike[str]) -> None:
    """Give an Updater the states of a file that `write_states` wrote."""
    from hybrid_lab.diagnostics.file_errors import open_regular, reading

    with reading(fname), open_regular(fname) as file:
        states = file.read()
    updater.set_states(states)


def sum_of(arrays: Sequence[NDArray], target: NDArray) -> NDArray:
    """The sum of arrays on several devices, on the device of `target`."""
    total = arrays[0]
    with Mode(False, None):
        if total.ctx != target.ctx:
            total = total.as_in_context(target.ctx)
        for array in arrays[1:]:
            total = total + array.as_in_context(target.ctx)
    return total


def create(name: str = "local") -> Any:
    """A new store. Raises KVStoreError for an unknown type.

    name : "local", "device", or another of MXNet's names of the same; "dist_sync" for several processes, which a
        launcher has started (`torchrun --nproc-per-node 2 train.py`); or a class given to `KVStoreBase.register`
    """
    if not isinstance(name, str):
        raise SettingError(f"create: the type of a KVStore is a string, not {type(name).__name__}")
    kind = name.lower()
    if kind in KVStoreBase.kv_registry:
        return KVStoreBase.kv_registry[kind]()
    if "dist" in kind or kind in ("horovod", "byteps", "p3", "nccl"):
        store = distributed_store(kind)
        if store is not None:
            return store
    if kind not in TYPES:
        known = ", ".join([*TYPES, *KVStoreBase.kv_registry])
        raise KVStoreError(f"there is no KVStore of the type {name!r}; there are {known}")
    return KVStore(name)
