"""Values of this package's own types as simpler values, and back: arrays, contexts, metrics, schedules, Trainers.

An object of a metric, a schedule, an initializer or an optimizer is its class's name and its attributes. The class is
looked up among the live subclasses of these bases, and the object gets its attributes without running any code: no
module is imported and no attribute read by a name of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hybrid_lab.diagnostics import LoadMismatchError
from hybrid_lab.gluon import Parameter, Trainer, access
from hybrid_lab.initializer import Initializer
from hybrid_lab.lr_scheduler import LRScheduler
from hybrid_lab.metric import EvalMetric
from hybrid_lab.metric.regression import Spread
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.context import Context
from hybrid_lab.optimizer import Optimizer

from .kinds import Kind, MissingObject, live_class, name_of_class

_BASES: dict[str, type] = {
    "metric": EvalMetric,
    "schedule": LRScheduler,
    "initializer": Initializer,
    "optimizer": Optimizer,
    "spread": Spread,
}


def of(value: object) -> Kind | None:
    """The kind of a value; None if it has none here, as a dense NDArray."""
    if isinstance(value, NDArray):
        return _NP if value.is_np else _SPARSE if value.stype != "default" else None
    if isinstance(value, Context):
        return _CONTEXT
    return next((_KINDS[name] for name, base in _BASES.items() if isinstance(value, base)), None)


def named(name: str) -> Kind | None:
    """The kind of this name in a file."""
    return _BY_NAME.get(name)


# -- arrays ------------------------------------------------------------------------------------------------------------


def _sparse_parts(array: Any) -> object:
    buffer = array.buffer
    return buffer.shape, buffer.data, buffer.indices, buffer.indptr


def _sparse_array(parts: Any) -> Any:
    from hybrid_lab.ndarray.sparse.arrays import BaseSparseNDArray
    from hybrid_lab.ndarray.sparse.buffer import INDEX, SparseBuffer

    shape, data, indices, indptr = parts
    if any(each is not None and each.dtype != INDEX for each in (indices, indptr)) or not isinstance(data, np.ndarray):
        raise ValueError
    buffer = SparseBuffer(tuple(shape), data, indices, indptr)
    buffer.validate()
    return BaseSparseNDArray.of(buffer)


_NP = Kind("np", lambda array: array.asnumpy(), lambda array: NDArray.wrap(array).as_np_ndarray())
_SPARSE = Kind("sparse", _sparse_parts, _sparse_array)
_CONTEXT = Kind("context", lambda ctx: (ctx.device_type, ctx.device_id), lambda parts: Context(*parts))


# -- objects of registered bases ---------------------------------------------------------------------------------------


def _object_kind(name: str, base: type) -> Kind:
    def parts(value: object) -> object:
        attributes = {
            key: item for key, item in vars(value).items() if key not in ("param_dict", "_index_update_count")
        }
        return *name_of_class(type(value)), attributes

    def build(parts: Any) -> object:
        module, qualname, attributes = parts
        kind = live_class(base, module, qualname)
        if kind is None:
            return MissingObject(f"{module}.{qualname}", attributes)
        if any(callable(getattr(kind, key, None)) for key in attributes):  # a file replaces no method
            raise ValueError
        made: Any = object.__new__(kind)
        vars(made).update(attributes)
        if isinstance(made, Optimizer):
            counts = attributes["_all_index_update_counts"]
            vars(made).update(param_dict={}, _index_update_count=next(iter(counts.values())))
        return made

    return Kind(name, parts, build)


_KINDS = {name: _object_kind(name, base) for name, base in _BASES.items()}
_BY_NAME = {kind.name: kind for kind in (_NP, _SPARSE, _CONTEXT, *_KINDS.values())}


# -- Trainers ----------------------------------------------------------------------------------------------------------


def trainer_parts(value: object, ids: Mapping[int, str]) -> dict[str, object] | None:
    """A Trainer of parameters of the model: its optimizer, its states, and the ids of its parameters. None for other
    values.

    ids : id() of each Parameter -> its id in the archive
    """
    if not isinstance(value, Trainer) or access.has_own_store(value):
        return None
    parameters = access.trainer_parameters(value)
    if any(id(each) not in ids for each in parameters):
        return None
    settings, arrays = value.get_states()
    named = [
        {**entry, "id": ids[id(parameter)]} for entry, parameter in zip(settings["parameters"], parameters, strict=True)
    ]
    return {"optimizer": value.optimizer, "settings": {**settings, "parameters": named}, "arrays": arrays}


def trainer_of(parts: Any, parameters: Mapping[str, Parameter]) -> Trainer | None:
    """The Trainer that `trainer_parts` described, of the parameters of a loaded model. None if the model lacks one of
    the parameters, if a parameter has no values or another shape, or if the optimizer's class is not defined here.
    """
    ids = [entry["id"] for entry in parts["settings"]["parameters"]]
    found = [parameters[each] for each in ids if each in parameters]
    ready = all(access.arrays(each) is not None or access.deferred_init(each) is not None for each in found)
    if len(found) != len(ids) or not ready or not isinstance(parts["optimizer"], Optimizer):
        return None
    trainer = Trainer(found, parts["optimizer"])
    try:
        trainer.set_states(parts["settings"], parts["arrays"])
    except LoadMismatchError:
        return None
    return trainer
