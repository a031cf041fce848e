"""MXNet's private functions for KVStores and updates, which training loops import from `mxnet.model`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.distributed.kvstore import KVStoreBase
from hybrid_lab.distributed.kvstore import create as create_store
from hybrid_lab.mxnet.module.module import store_for
from hybrid_lab.ndarray import NDArray

#: The same parameter or gradient on each context.
Copies = Sequence[Any]
Store: TypeAlias = Any
"""A KVStore, whose methods `init`, `push` and `pull` MXNet's base class does not name."""
Callbacks = Callable[..., object] | list[Callable[..., object]] | None


def _create_kvstore(
    kvstore: KVStoreBase | str | None, num_device: int, arg_params: Mapping[str, NDArray]
) -> tuple[KVStoreBase | None, bool]:
    """The KVStore that a training on several contexts needs, or None, and whether the KVStore updates the parameters.

    kvstore : None, a name or a KVStore. Raises SettingError
    """
    return store_for(kvstore, num_device, dict(arg_params))


def _create_sparse_kvstore(kvstore: KVStoreBase | str) -> tuple[KVStoreBase, bool]:
    """The KVStore for row_sparse parameters, which it always updates. Raises SettingError."""
    store = create_store(kvstore) if isinstance(kvstore, str) else kvstore
    if not isinstance(store, KVStoreBase) or not store.is_capable(KVStoreBase.OPTIMIZER):
        raise SettingError(f"row_sparse parameters need a KVStore that updates them, or its name, not {kvstore!r}")
    return store, True


def _initialize_kvstore(
    kvstore: Store,
    param_arrays: Sequence[Copies],
    arg_params: Mapping[str, NDArray],
    param_names: Sequence[str],
    update_on_kvstore: bool,
) -> None:
    """Put the parameters into a KVStore; if it updates them, all contexts get its values."""
    for name, copies in zip(param_names, param_arrays, strict=False):
        if update_on_kvstore and arg_params[name].stype == "default":
            kvstore.broadcast(name, arg_params[name], out=copies)
        else:
            kvstore.init(name, arg_params[name])


def _update_params_on_kvstore(
    param_arrays: Sequence[Copies], grad_arrays: Sequence[Copies], kvstore: KVStoreBase, param_names: Sequence[str]
) -> None:
    """Let a KVStore update the parameters from the sums of the gradients of all contexts."""
    for index, (weights, gradients) in enumerate(zip(param_arrays, grad_arrays, strict=False)):
        if gradients[0] is not None:
            _exchange(kvstore, param_names[index], gradients, weights, index)


def _update_params(
    param_arrays: Sequence[Copies],
    grad_arrays: Sequence[Copies],
    updater: Callable[..., object],
    num_device: int,
    kvstore: KVStoreBase | None = None,
    param_names: Sequence[str] | None = None,
) -> None:
    """Update the parameters of each context with `updater`, after a KVStore has summed the gradients of all contexts.

    updater : called with lists of numbers, gradients and parameters, once for each context
    """
    updates: list[list[tuple[int, Any, Any]]] = [[] for _ in range(num_device)]
    for index, (weights, gradients) in enumerate(zip(param_arrays, grad_arrays, strict=False)):
        if gradients[0] is None:
            continue
        if kvstore:
            if param_names is None:
                raise SettingError("_update_params: a KVStore needs param_names")
            _exchange(kvstore, param_names[index], gradients, gradients, index)
        for context, (weight, gradient) in enumerate(zip(weights, gradients, strict=False)):
            updates[context].append((index * num_device + context, gradient, weight))
    for each in updates:
        if each:
            numbers, gradients, weights = zip(*each, strict=True)
            updater(list(numbers), list(gradients), list(weights))


def _multiple_callbacks(callbacks: Callbacks, *args: object, **kwargs: object) -> None:
    """Call one callback or a list of them; None is no callback."""
    for callback in callbacks if isinstance(callbacks, list) else [callbacks] if callbacks else []:
        callback(*args, **kwargs)


def _exchange(kvstore: Store, name: str, pushed: Copies, pulled: Copies, index: int) -> None:
    """Push arrays and pull the KVStore's results; the first parameters have priority."""
    if all(arrays[0].stype == "default" for arrays in (pushed, pulled)):
        kvstore.pushpull(name, pushed, out=pulled, priority=-index)
    else:
        kvstore.push(name, pushed, priority=-index)
        kvstore.pull(name, out=pulled, priority=-index)
