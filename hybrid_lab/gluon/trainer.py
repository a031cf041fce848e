"""Trainer: applies an optimizer to a set of Parameters after each backward pass."""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Protocol

import numpy as np

from hybrid_lab import optimizer as optimizers
from hybrid_lab.diagnostics import ArchiveError, HybridLabError, LoadMismatchError
from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.distributed import kvstore as kvstores
from hybrid_lab.distributed.store import DistributedStore
from hybrid_lab.engines import early_import
from hybrid_lab.gluon.files import trainer_trial
from hybrid_lab.ndarray import NDArray, changes, zeros
from hybrid_lab.ndarray.tape import Leaf

from .own_store import OwnStore
from .parameter import Parameter, merged_shape
from .parameter_dict import ParameterDict
from .step import boundary
from .worker_gradients import WorkerGradients

__all__ = ["StaleGradientError", "Trainer"]

_FORMAT = "hybrid_lab.trainer"
_VERSION = 1
_MOST_UPDATES = 1 << 53
"""Whole numbers below this are the same in every reader of JSON."""


class SavedStates(Protocol):
    """The type of `trainer_states` in an archive's report."""

    def restore(self, trainer: Trainer) -> None: ...


_Step = tuple[tuple[int, ...], tuple[NDArray, ...], tuple[NDArray, ...]]
"""Numbers of the parameters, their gradients, their values."""


trainers: weakref.WeakSet[Trainer] = weakref.WeakSet()
"""Every Trainer that is alive: `explain` tells how they update the parameters of a model."""


class StaleGradientError(HybridLabError, UserWarning):
    """`step` met a parameter whose gradient no backward pass has written since the last step."""


class Trainer:
    """Updates parameters from their gradients.

        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
        with autograd.record():
            loss = loss_function(net(x), y)
        loss.backward()
        trainer.step(batch_size)

    params : `net.collect_params()`, or a list of Parameters; they must be initialized (shapes may be deferred)
    optimizer : a name with `optimizer_params` (learning_rate, wd, momentum, lr_scheduler ...), or an Optimizer
    kvstore : 'dist_sync' for several processes, which a launcher has started: gradients are summed over all processes,
        and `batch_size` counts the samples of all (docs/distributed.md). Or 'local', 'device', a KVStore, or None.
        Gradients of several contexts are summed in this process, and every context is updated here, one by one. A store
        of your own (see KVStoreBase), or its registered name, sums them itself
    update_on_kvstore : whether such a store updates the parameters; None leaves that to the store's capabilities
    compression_params : given to the store
    Raises WorkersError where 'dist_sync' finds no other workers, WorkersDifferError if they have other parameters.
    """

    #: The constructor makes the store. MXNet makes it later, which its tutorial on learning rates asks for.
    _kv_initialized = True

    def __init__(
        self,
        params: ParameterDict | Mapping[str, Parameter] | Sequence[Parameter],
        optimizer: str | optimizers.Optimizer,
        optimizer_params: Mapping[str, Any] | None = None,
        kvstore: object = "device",
        compression_params: Mapping[str, Any] | None = None,
        update_on_kvstore: bool | None = None,
    ) -> None:
        check_switches("Trainer", update_on_kvstore=update_on_kvstore)
        if isinstance(params, (ParameterDict, Mapping)):
            # In the order of the blocks. MXNet sorts by name, and dense9, dense10 sort unlike dense1, dense2.
            params = list(params.values())
        if not isinstance(params, (list, tuple)) or not all(isinstance(each, Parameter) for each in params):
            raise TypeError("a Trainer takes net.collect_params() or a list of Parameters")
        # A Parameter that layers share is updated once, however often it is given.
        self._params: list[Parameter] = list({id(each): each for each in params}.values())
        self._contexts = self._common_contexts()
        self._optimizer = self._make_optimizer(optimizer, optimizer_params or {})
        self._scale = self._optimizer.rescale_grad
        # Of `contrib.amp`: the scaler that skips a step with overflowed gradients, and `_scale` without loss scaling.
        self._amp_loss_scaler: Any = None
        self.amp_saved: Mapping[str, float] | None = None  # of loaded states, for a loss scaler yet to come
        self._amp_original_scale = self._scale
        self._updaters = [optimizers.get_updater(self._optimizer) for _ in self._contexts]
        self._steps: dict[int, tuple[int, _Step]] = {}
        self._kvstore = kvstores.create(kvstore) if isinstance(kvstore, str) else kvstore
        if not isinstance(self._kvstore, kvstores.KVStoreBase | None):
            raise SettingError(f"a Trainer's kvstore is None, a name or a KVStore, not {type(kvstore).__name__}")
        self._own_store: OwnStore | WorkerGradients | None = None
        if self._kvstore is not None and type(self._kvstore) is not kvstores.KVStore:
            if compression_params:
                self._kvstore.set_gradient_compression(compression_params)
            if isinstance(self._kvstore, DistributedStore):
                self._own_store = WorkerGradients(self._kvstore, self._params)
            else:
                self._own_store = OwnStore(self._kvstore, self._params, self._optimizer, update_on_kvstore)
        trainers.add(self)
        early_import.trains(parameter._shape for parameter in self._params)

    def _common_contexts(self) -> list[Any]:
        contexts: list[Any] | None = None
        for parameter in self._params:
            own = parameter.list_ctx()
            if contexts is not None and own != contexts:
                raise ValueError(
                    f"all parameters must be on the same contexts: {parameter.name!r} is on {own}, those before it "
                    f"on {contexts}"
                )
            contexts = own
        return contexts or []

    def _make_optimizer(
        self, optimizer: str | optimizers.Optimizer, options: Mapping[str, Any]
    ) -> optimizers.Optimizer:
        by_index = dict(enumerate(self._params))
        if isinstance(optimizer, optimizers.Optimizer):
            if options:
                raise ValueError(
                    "optimizer_params are only for an optimizer that is given by name; this one was already created"
                )
            optimizer.param_dict = by_index
            return optimizer
        return optimizers.create(optimizer, param_dict=by_index, **options)

    def __getstate__(self) -> dict[str, Any]:
        """Pickled and deep-copied are the parameters, the optimizer and its states."""
        return {**vars(self), "_steps": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._optimizer.param_dict = dict(enumerate(self._params))  # which a pickled optimizer does not have
        trainers.add(self)

    def __repr__(self) -> str:
        return f"Trainer({count(len(self._params), 'parameter')}, {self._optimizer!r})"

    # -- the optimizer -----------------------------------------------------------------------------------------

    @property
    def optimizer(self) -> optimizers.Optimizer:
        """The optimizer."""
        return self._optimizer

    @property
    def learning_rate(self) -> float:
        """The learning rate now."""
        return self._optimizer.learning_rate

    def set_learning_rate(self, lr: float) -> None:
        """Set the learning rate. Raises ScheduledRateError if the optimizer has an lr_scheduler."""
        self._optimizer.set_learning_rate(lr)

    @property
    def updates(self) -> list[str]:
        """How the last step updated the parameters, one text per context: all by one program, or one by one and why.
        In mixed precision also the scale of the loss and the number of skipped steps.
        """
        lines = [repr(updater.fused) for updater in self._updaters]
        return lines if self._amp_loss_scaler is None else [*lines, repr(self._amp_loss_scaler)]

    # -- steps -------------------------------------------------------------------------------------------------

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Update all parameters, gradients divided by `batch_size`. Call it after backward(), outside record().

        ignore_stale_grad : do not update parameters whose gradient is from an earlier step.
        Raises StaleGradientError for such a parameter otherwise; then nothing is updated. An interrupt (Ctrl-C, the
        stop button) during the update takes effect after it.
        """
        check_switches("Trainer.step", ignore_stale_grad=ignore_stale_grad)
        self._check_fresh(ignore_stale_grad)
        if isinstance(self._own_store, WorkerGradients):
            self._own_store.note_batch(batch_size)
        if self._own_store is None or not self._own_store.updates:
            self._sum_gradients(ignore_stale_grad)
        self._update(batch_size, ignore_stale_grad)

    def allreduce_grads(self) -> None:
        """Sum the gradients of every parameter over its contexts, and over all workers, as `step` does; `update` may
        follow.
        """
        if self._own_store is not None:
            self._own_store.refuse("allreduce_grads")
        self._sum_gradients(False)

    def _sum_gradients(self, ignore_stale_grad: bool) -> None:
        workers = isinstance(self._own_store, WorkerGradients)
        if len(self._contexts) > 1 and (workers or self._own_store is None):
            self._sum_over_contexts()
        if self._own_store is not None:
            self._own_store.pushpull(workers and ignore_stale_grad)

    def _sum_over_contexts(self) -> None:
        for parameter in self._params:
            if parameter.grad_req == "null" or parameter._data is None:
                continue
            gradients = parameter.list_grad()
            total = gradients[0].raw().copy()
            for each in gradients[1:]:
                total += each.raw()
            for each in gradients:
                each.assign(total)

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """As `step`, without summing gradients over contexts."""
        check_switches("Trainer.update", ignore_stale_grad=ignore_stale_grad)
        if self._own_store is not None:
            self._own_store.refuse("update")
        self._check_fresh(ignore_stale_grad)
        self._update(batch_size, ignore_stale_grad)

    def _check_fresh(self, ignore_stale_grad: bool) -> None:
        if ignore_stale_grad:
            return
        steps = [self._arrays(number, False) for number in range(len(self._contexts))]
        if all(type(each.tape_link) is Leaf and each.tape_link.fresh for step in steps for each in step[2]):
            return
        for parameter in self._params:
            if parameter.grad_req == "null":
                continue
            for array in parameter.list_data():
                if not array._fresh_grad:
                    raise StaleGradientError(
                        f"the gradient of Parameter {parameter.name!r} on {array.ctx} was not written by a backward "
                        "pass since the last step: this iteration did not use it. If that is meant, "
                        "step(batch_size, ignore_stale_grad=True) leaves the parameter unchanged"
                    )

    def _update(self, batch_size: float, ignore_stale_grad: bool) -> None:
        self._optimizer.rescale_grad = self._scale / batch_size
        with boundary.lock, boundary.interrupts:
            self._update_arrays(ignore_stale_grad)
        boundary.passed()
        for listener in boundary.listeners:
            listener(self)

    def _update_arrays(self, ignore_stale_grad: bool) -> None:
        steps = [self._arrays(number, ignore_stale_grad) for number in range(len(self._updaters))]
        scaler = self._amp_loss_scaler
        skip = scaler is not None and scaler.overflowed([each for step in steps for each in step[1]])
        on_store = self._own_store is not None and self._own_store.updates
        if self._own_store is not None and on_store and not skip:
            self._own_store.pushpull(ignore_stale_grad)
        for (indices, gradients, weights), updater in zip(steps, self._updaters, strict=True):
            for weight in weights:
                weight._fresh_grad = False
            if not (skip or on_store):
                updater(indices, gradients, weights)
        if scaler is not None:
            self._scale = self._amp_original_scale  # until the next loss is scaled

    def _arrays(self, number: int, fresh_only: bool) -> _Step:
        """The arrays that a step updates on context `number`: the same tuples until one of the arrays changes."""
        known = self._steps.get(number)
        if known is None or known[0] != changes.count:
            count, arrays = changes.count, []
            for index, parameter in enumerate(self._params):
                if parameter.grad_req != "null" and not (parameter._data is None and fresh_only):
                    arrays.append((index, parameter.list_grad()[number], parameter.list_data()[number]))
            known = self._steps[number] = count, _columns(arrays)
        step = known[1]
        if fresh_only and not all(weight._fresh_grad for weight in step[2]):
            return _columns([row for row in zip(*step, strict=True) if row[2]._fresh_grad])
        return step

    # -- saving ------------------------------------------------------------------------------------------------

    def get_states(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The optimizer's settings and counters as JSON-able data, and its states as arrays.

        Arrays are named `<number of the parameter>.<place>`: `0.0` is the first parameter's momentum.
        """
        if self._own_store is not None:
            self._own_store.refuse("get_states")
        optimizer = self._optimizer
        scheduler = optimizer.lr_scheduler
        data = {
            "format": _FORMAT,
            "version": _VERSION,
            "optimizer": type(optimizer).__name__,
            "hyperparameters": optimizer.hyperparameters(),
            "scheduler": None if scheduler is None else {"name": type(scheduler).__name__, **_plain(vars(scheduler))},
            "num_update": optimizer.num_update,
            "counts": {str(index): count for index, count in optimizer._index_update_count.items()},
            "parameters": [{"name": each.name, "shape": list(each.shape or ())} for each in self._params],
        }
        if self._amp_loss_scaler is not None:
            data["amp"] = self._amp_loss_scaler.get_state()
        return data, self._updaters[0].get_arrays() if self._updaters else {}

    def set_states(
        self,
        data: Mapping[str, Any] | SavedStates,
        arrays: Mapping[str, np.ndarray] | None = None,
        source: str | None = None,
    ) -> None:
        """Continue from the two parts that `get_states` gave, or from the `trainer_states` of a loaded archive's report
        (the random state too, then). All or nothing: raises LoadMismatchError listing the misfits.
        """
        if self._own_store is not None:
            self._own_store.refuse("set_states")
        if not isinstance(data, Mapping):
            data.restore(self)
            return
        arrays = arrays or {}
        differences = self.differences(data, arrays)
        if differences:
            raise LoadMismatchError(
                "these states belong to another Trainer; nothing was loaded", differences, path=source
            )
        optimizer = self._optimizer
        seen = {int(name.split(".")[0]) for name in arrays}
        for number, updater in enumerate(self._updaters):
            weights = {index: self._params[index].list_data()[number] for index in sorted(seen)}
            updater.set_arrays(arrays, weights)
        for key, value in data["hyperparameters"].items():
            setattr(optimizer, key, value)
        scheduler = data.get("scheduler")
        if scheduler is not None and optimizer.lr_scheduler is not None:
            live = vars(optimizer.lr_scheduler)
            live.update({key: value for key, value in scheduler.items() if key in live})
        self.amp_saved = data.get("amp")
        if self.amp_saved is not None and self._amp_loss_scaler is not None:
            self._amp_loss_scaler.set_state(self.amp_saved)
        optimizer.num_update = data["num_update"]
        counts = {int(index): count for index, count in data["counts"].items()}
        optimizer._all_index_update_counts = {ctx.device_id: dict(counts) for ctx in self._contexts} or {0: counts}
        optimizer._index_update_count = next(iter(optimizer._all_index_update_counts.values()))

    def differences(self, data: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> list[str]:
        """Why states that `get_states` gave do not fit this Trainer, one line each; empty if they fit."""
        if data.get("format") != _FORMAT or data.get("version") != _VERSION:
            return [f"not the states of a Trainer: format {data.get('format')!r}, version {data.get('version')!r}"]
        lines = _malformed(data)
        if lines:
            return lines
        optimizer = self._optimizer
        if data.get("optimizer") != type(optimizer).__name__:
            lines.append(f"optimizer: {type(optimizer).__name__} here, {data.get('optimizer')} in the file")
            return lines
        known = optimizer.hyperparameters()
        for name, value in data.get("hyperparameters", {}).items():
            if name not in known:
                lines.append(f"setting: {name} is not one of {type(optimizer).__name__}")
            elif not _same_kind(value, known[name]):
                lines.append(f"setting: {name} is {value!r} in the file, {known[name]!r} here")
        counters = [data.get("num_update"), *data.get("counts", {}).values()]
        if not all(type(count) is int and 0 <= count < _MOST_UPDATES for count in counters):
            lines.append("counters: an update count is not a number of updates")
        if not _is_loss_scale(data.get("amp")):
            lines.append("amp: the loss scale or its counters are not valid numbers")
        saved = (data.get("scheduler") or {}).get("name")
        current = None if optimizer.lr_scheduler is None else type(optimizer.lr_scheduler).__name__
        if saved != current:
            lines.append(f"lr_scheduler: {current} here, {saved} in the file")
        shapes = [tuple(each["shape"]) for each in data.get("parameters", ())]
        if len(shapes) != len(self._params):
            lines.append(f"parameters: {len(self._params)} here, {len(shapes)} in the file")
            return lines
        for parameter, shape in zip(self._params, shapes, strict=True):
            if merged_shape(parameter.partial_shape, shape) is None:
                lines.append(f"shape: {parameter.name} is {parameter.shape} here, {shape} in the file")
        if not lines:
            lines += trainer_trial.problems(optimizer, data) or self._array_differences(data, arrays)
        return lines

    def _array_differences(self, data: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> list[str]:
        lines, waiting = [], []
        for name in arrays:
            index = name.split(".")[0]
            if not index.isdecimal() or int(index) >= len(self._params):
                lines.append(f"state: {name} belongs to no parameter")
                continue
            if self._params[int(index)]._data is None:
                waiting.append(
                    f"state: {self._params[int(index)].name} has no values yet; load the model's parameters first"
                )
        if lines:
            return lines + waiting
        twin = optimizers.create(type(self._optimizer).__name__, **self._settings(data["hyperparameters"]))
        for number in sorted({int(name.split(".")[0]) for name in arrays}):
            updater = optimizers.get_updater(twin)
            parameter, shape = self._params[number], tuple(data["parameters"][number]["shape"])
            weight = zeros(shape, dtype=parameter.dtype) if parameter._data is None else parameter.list_data()[0]
            updater.states[number] = twin.create_state_multi_precision(number, weight)
            expected = updater.get_arrays()
            missing = sorted(expected.keys() - arrays.keys())
            lines += [f"state: {name} of {parameter.name} is missing" for name in missing]
            for name in sorted(expected.keys() & arrays.keys()):
                if arrays[name].shape != expected[name].shape:
                    lines.append(f"state: {name} is {arrays[name].shape} in the file, {expected[name].shape} here")
        return lines + waiting

    def _settings(self, hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
        """The saved settings on which the kinds of states depend, as arguments of the constructor."""
        return {
            key: hyperparameters[key] for key in ("momentum", "centered", "multi_precision") if key in hyperparameters
        }

    def save_states(self, fname: str | PathLike[str]) -> None:
        """Write settings, counters and states: a safetensors file with the settings as JSON in its header. A store that
        updates the parameters writes its own file.
        """
        from hybrid_lab.formats.kinds import check_path
        from hybrid_lab.formats.safetensors import write_safetensors

        if self._own_store is not None and self._own_store.updates:
            self._own_store.store.save_optimizer_states(fname, dump_optimizer=True)
            return
        check_path(fname, "states of a Trainer", ".params", ".safetensors")
        data, arrays = self.get_states()
        write_safetensors(fname, arrays, {_FORMAT: json.dumps(data, sort_keys=True)})

    def load_states(self, fname: str | PathLike[str]) -> None:
        """Continue from a file that `save_states` wrote.

        Raises ArchiveError for a damaged file, LoadMismatchError for a file of another model or optimizer; nothing
        changes then.
        """
        from hybrid_lab.formats.kinds import other_kind
        from hybrid_lab.formats.safetensors import SafetensorsFile
        from hybrid_lab.formats.source import Source

        if self._own_store is not None and self._own_store.updates:
            self._own_store.store.load_optimizer_states(fname)
            return
        path = fspath(fname)
        try:
            file = SafetensorsFile.open(path)
            arrays = {name: file[name] for name in file}
        except ArchiveError as error:
            other = other_kind(Source.open(path), "states")
            if other is not None:
                raise ArchiveError(f"not a file of Trainer states but {other}", path=path) from None
            raise ArchiveError(f"not a readable file of Trainer states: {error.reason}", path=path) from None
        text = file.metadata.get(_FORMAT)
        if text is None:
            raise ArchiveError(
                "a safetensors file; net.load_parameters(file) or nd.load(file) reads it. It holds no Trainer states",
                path=path,
            )
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ArchiveError(f"the settings in the file are damaged: {error}", path=path) from None
        if not isinstance(data, dict):
            raise ArchiveError("the settings in the file are damaged: they are not a JSON object", path=path)
        self.set_states(data, arrays, path)


def _columns(rows: Sequence[tuple[int, NDArray, NDArray]]) -> _Step:
    indices, gradients, weights = zip(*rows, strict=True) if rows else ((), (), ())
    return indices, gradients, weights


def _is_loss_scale(data: object) -> bool:
    """Whether this is what `amp.LossScaler.get_state` gives, or None."""
    if data is None:
        return True
    if not isinstance(data, dict) or data.keys() != {"loss_scale", "good", "steps", "skipped"}:
        return False
    scale, *counts = (data[key] for key in ("loss_scale", "good", "steps", "skipped"))
    whole = all(type(count) is int and count >= 0 for count in counts)
    return whole and type(scale) in (int, float) and 0 < scale < float("inf")


def _malformed(data: Mapping[str, Any]) -> list[str]:
    """Which settings of a file are not of the kind that `get_states` writes, one line each."""
    kinds: dict[str, Any] = {"hyperparameters": Mapping, "counts": Mapping, "parameters": list}
    lines = [f"{name}: {data.get(name)!r:.60}" for name, kind in kinds.items() if not isinstance(data.get(name), kind)]
    if not isinstance(data.get("scheduler"), Mapping | None):
        lines.append(f"scheduler: {data['scheduler']!r:.60}")
    if not lines:
        wrong = [key for key in data["counts"] if not str(key).isdecimal()]
        lines += [f"counts: {key!r:.60} is not the number of a parameter" for key in wrong]
        shapes = [each.get("shape") if isinstance(each, Mapping) else None for each in data["parameters"]]
        lines += [
            f"parameters: {shape!r:.60} is not a shape" for shape in shapes if not isinstance(shape, list | tuple)
        ]
    return [f"damaged settings: {line}" for line in lines]


def _same_kind(value: object, known: object) -> bool:
    """Whether a setting from a file may take the place of the one here."""
    if value is None or known is None:
        return value is None or isinstance(value, (int, float))
    if isinstance(known, bool) or isinstance(known, str):
        return type(value) is type(known)
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _plain(values: Mapping[str, object]) -> dict[str, Any]:
    """The values that JSON can hold."""
    plain = {}
    for key, value in values.items():
        try:
            json.dumps(value)
        except TypeError:
            continue
        plain[key] = value
    return plain


_suggest_names(__name__)
