"""The base of metrics, the registry of their names, and metrics from several others or from a function."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy

from hybrid_lab.diagnostics import SettingError, ShapeError
from hybrid_lab.diagnostics.formatting import lookup
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.mxnet.registry import table
from hybrid_lab.system.provided import Provided

sum_over_workers: Provided[[str, Sequence[str], Sequence[numpy.ndarray]], list[numpy.ndarray]] = Provided(
    "sum_over_workers"
)

Array = numpy.ndarray
Names = Sequence[str] | None
"""Names of the entries that `update_dict` uses; None: all of them."""
MetricClass = TypeVar("MetricClass", bound="type[EvalMetric]")


def register(klass: MetricClass) -> MetricClass:
    """Class decorator: the metric can be created by its class name, in any case."""
    _registry[klass.__name__.lower()] = klass
    return klass


def alias(*names: str) -> Callable[[MetricClass], MetricClass]:
    """Class decorator: further names of a metric."""

    def add(klass: MetricClass) -> MetricClass:
        _registry.update((name.lower(), klass) for name in names)
        return klass

    return add


def create(metric: object, *args: Any, **kwargs: Any) -> EvalMetric:
    """A metric from its name, from a function of (label, pred), from a list of both, or from its settings: a dict as
    `get_config` returns it, or the JSON text of one.

    Raises ValueError for an unknown name, and for invalid JSON.
    """
    if isinstance(metric, EvalMetric):
        return metric
    if isinstance(metric, str) and metric.lstrip().startswith(("{", "[")):
        metric = _settings(metric)
    if isinstance(metric, Mapping):
        settings = {**metric, **kwargs}
        return lookup("metric", str(settings.pop("metric", None)), _registry)(*args, **settings)
    if isinstance(metric, (list, tuple)):
        return CompositeEvalMetric([create(each, *args, **kwargs) for each in metric])
    if callable(metric):
        return CustomMetric(metric, *args, **kwargs)
    return lookup("metric", str(metric), _registry)(*args, **kwargs)


def _settings(text: str) -> dict[str, Any]:
    """The settings of a metric in JSON: an object as of `get_config`, or a list of a name and an object."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"this text does not describe a metric: {text!r} ({error})") from None
    if isinstance(found, list) and len(found) == 2 and isinstance(found[1], dict):
        found = {"metric": found[0], **found[1]}
    if not isinstance(found, dict):
        raise ValueError(f"this text does not describe a metric: {text!r}")
    return found


def check_label_shapes(labels: Any, preds: Any, wrap: bool = False, shape: bool = False) -> tuple[Any, Any]:
    """Check that there are as many labels as predictions, or with `shape` that their shapes agree. Raises ShapeError.

    wrap : single arrays become lists of one
    """
    sizes = (tuple(labels.shape), tuple(preds.shape)) if shape else (len(labels), len(preds))
    if sizes[0] != sizes[1]:
        raise ShapeError(f"labels and predictions do not match: {sizes[0]} and {sizes[1]}")
    if wrap:
        labels = labels if isinstance(labels, (list, tuple)) else [labels]
        preds = preds if isinstance(preds, (list, tuple)) else [preds]
    return labels, preds


def host(array: object) -> Array:
    """An array as a NumPy array."""
    return array.asnumpy() if hasattr(array, "asnumpy") else numpy.asarray(array)


def pairs(labels: Any, preds: Any, extra: bool = False) -> Iterator[tuple[Array, Array]]:
    """The labels and predictions of a batch as NumPy arrays, one pair per device or output. Raises ShapeError.

    extra : there may be more predictions than labels; both are lists then
    """
    if not extra:
        labels, preds = check_label_shapes(labels, preds, wrap=True)
    for label, pred in zip(labels, preds, strict=False):
        yield host(label), host(pred)


class EvalMetric:
    """Base of the metrics: a sum and a count, whose quotient is the value.

    name : shown with the value; output_names, label_names : which entries `update_dict` uses, default all
    kwargs : has_global_stats, and the settings that `get_config` shows

    A subclass defines `measure(label, pred)` on NumPy arrays, returning what to add to sum and count; or, as in MXNet,
    overrides `update(labels, preds)`. One whose value does not follow from sum and count overrides `totals` and
    `of_totals`, too.
    """

    default_name: ClassVar[str]
    """The name that stands for None."""

    def __init__(
        self,
        name: str | None,
        output_names: Names = None,
        label_names: Names = None,
        **kwargs: Any,
    ) -> None:
        self.name = str(self.default_name if name is None else name)
        self.output_names = output_names
        self.label_names = label_names
        self._has_global_stats = kwargs.pop("has_global_stats", True)
        self._kwargs = kwargs
        self.reset()

    def __str__(self) -> str:
        return f"EvalMetric: {dict(self.get_name_value())}"

    def get_config(self) -> dict[str, Any]:
        """The metric's name and settings."""
        names = {"output_names": self.output_names, "label_names": self.label_names}
        return {**self._kwargs, "metric": type(self).__name__, "name": self.name, **names}

    def get_state(self) -> dict[str, Any]:
        """Its counts, as data, for `set_state` of a metric of the same settings. Functions are left out."""
        return {name: _state_of(value) for name, value in vars(self).items() if not callable(value)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `get_state` gave. Raises SettingError for the state of another metric; nothing changes."""
        own = self.get_state()
        if own.keys() != state.keys() or any(own[name] != state[name] for name in ("name",) if name in own):
            raise SettingError(f"this is the state of another metric than {self.name!r}")
        before = copy.deepcopy(own)
        try:
            _put(self, state)
        except SettingError:
            _put(self, before)
            raise

    def measure(self, label: Array, pred: Array) -> tuple[float, float]:
        """The summands of one pair of arrays for the sum and the count."""
        raise NotImplementedError(f"{type(self).__name__} defines neither measure() nor update()")

    def update(self, labels: object, preds: object) -> None:
        """Add a batch. labels, preds : an NDArray each, or lists of as many (one per device or output)."""
        for label, pred in pairs(labels, preds):
            self._add(*self.measure(label, pred))

    def _add(self, total: float, count: float) -> None:
        self.sum_metric += total
        self.num_inst += count
        self.global_sum_metric += total
        self.global_num_inst += count

    def update_dict(self, label: Mapping[str, object], pred: Mapping[str, object]) -> None:
        """Add a batch given by names."""
        preds = list(pred.values()) if self.output_names is None else [pred[name] for name in self.output_names]
        labels = list(label.values()) if self.label_names is None else [label[name] for name in self.label_names]
        self.update(labels, preds)

    def reset(self) -> None:
        """Forget everything."""
        self.reset_local()
        self.global_num_inst: float = 0
        self.global_sum_metric: float = 0.0

    def reset_local(self) -> None:
        """Forget what came since the last `reset_local`; `get_global` goes on."""
        self.num_inst: float = 0
        self.sum_metric: float = 0.0

    def value(self, total: float, count: float) -> float:
        """The metric from sum and count."""
        return total / count

    def get(self) -> tuple[Any, Any]:
        """(name, value); nan before the first update."""
        return self.name, self.value(self.sum_metric, self.num_inst) if self.num_inst else math.nan

    def get_global(self, workers: bool = False) -> tuple[Any, Any]:
        """(name, value) since `reset`.

        workers : of what all workers of a training have counted (docs/distributed.md). Every worker calls it, with the
            same metrics, outside of a training step; else WorkersDifferError
        """
        check_switches("get_global", workers=workers)
        if workers:
            return over_workers([self])[0]
        if not self._has_global_stats:
            return self.get()
        return self.name, self.value(self.global_sum_metric, self.global_num_inst) if self.global_num_inst else math.nan

    def get_name_value(self) -> list[tuple[str, float]]:
        """`get()` as a list of pairs."""
        return _pairs(*self.get())

    def get_global_name_value(self, workers: bool = False) -> list[tuple[str, float]]:
        """`get_global()` as a list of pairs."""
        check_switches("get_global_name_value", workers=workers)
        return _pairs(*(self.get_global(workers=True) if workers else self.get_global()))

    def totals(self) -> Array:
        """The counts since `reset` as float64 numbers that are summed over workers: of one shape, or a table whose size
        may differ.
        """
        if type(self).get is not EvalMetric.get:
            raise SettingError(
                f"{type(self).__name__} computes its value in get(): define totals() and of_totals(), which give the "
                "numbers that workers sum, and the value of their sums"
            )
        if not self._has_global_stats:
            return numpy.array([self.sum_metric, self.num_inst], "float64")
        return numpy.array([self.global_sum_metric, self.global_num_inst], "float64")

    def of_totals(self, totals: Array) -> float:
        """The value of what `totals` gives, or of sums of it; nan before the first update."""
        total, count = map(float, totals)
        return self.value(total, count) if count else math.nan


def over_workers(metrics: Sequence[EvalMetric]) -> list[tuple[Any, Any]]:
    """(name, value) of each metric for all workers together: one exchange, whose every worker must take part.

    Raises WorkersDifferError if the workers have other metrics.
    """
    plain = [each for metric in metrics for each in _plain(metric)]
    kinds = [f"{each.name} ({type(each).__name__})" for each in plain]
    totals = sum_over_workers("metric", kinds, [each.totals() for each in plain])
    pairs = {id(each): (each.name, each.of_totals(total)) for each, total in zip(plain, totals, strict=True)}
    return [
        _joined([[pairs[id(each)]] for each in _plain(metric)])
        if isinstance(metric, CompositeEvalMetric)
        else pairs[id(metric)]
        for metric in metrics
    ]


def _plain(metric: EvalMetric) -> list[EvalMetric]:
    return (
        [each for part in metric.metrics for each in _plain(part)]
        if isinstance(metric, CompositeEvalMetric)
        else [metric]
    )


def _state_of(value: object) -> Any:
    if isinstance(value, EvalMetric):
        return value.get_state()
    if isinstance(value, list) and value and all(isinstance(each, EvalMetric) for each in value):
        return [each.get_state() for each in value]
    return value


def _put(metric: EvalMetric, state: Mapping[str, Any]) -> None:
    for name, saved in state.items():
        value = vars(metric)[name]
        if isinstance(value, EvalMetric):
            value.set_state(saved)
        elif isinstance(value, list) and value and all(isinstance(each, EvalMetric) for each in value):
            if not isinstance(saved, list) or len(saved) != len(value):
                raise SettingError(f"this is the state of another metric than {metric.name!r}")
            for each, inner in zip(value, saved, strict=True):
                each.set_state(inner)
        else:
            setattr(metric, name, copy.deepcopy(saved))


_registry: dict[str, type[EvalMetric]] = table(EvalMetric)


class PlainMetric(EvalMetric):
    """Base of the metrics without settings."""

    def __init__(self, name: str | None = None, output_names: Names = None, label_names: Names = None) -> None:
        super().__init__(name, output_names, label_names)


def _pairs(name: object, value: object) -> list[tuple[str, float]]:
    names = name if isinstance(name, list) else [name]
    return list(zip(names, value if isinstance(value, list) else [value], strict=True))


@register
@alias("composite")
class CompositeEvalMetric(EvalMetric):
    """Several metrics fed with the same batches; names and values come as lists."""

    def __init__(
        self,
        metrics: Sequence[Any] | None = None,
        name: str = "composite",
        output_names: Names = None,
        label_names: Names = None,
    ) -> None:
        self.metrics = [create(each) for each in metrics or ()]
        super().__init__(name, output_names=output_names, label_names=label_names)

    def add(self, metric: object) -> None:
        """Add a metric, or what `create` makes one of."""
        self.metrics.append(create(metric))

    def get_metric(self, index: int) -> EvalMetric:
        """One of the metrics."""
        return self.metrics[index]

    def update(self, labels: object, preds: object) -> None:
        for metric in self.metrics:
            metric.update(labels, preds)

    def update_dict(self, label: Mapping[str, object], pred: Mapping[str, object]) -> None:
        if self.label_names is not None:
            label = {name: value for name, value in label.items() if name in self.label_names}
        if self.output_names is not None:
            pred = {name: value for name, value in pred.items() if name in self.output_names}
        for metric in self.metrics:
            metric.update_dict(label, pred)

    def reset(self) -> None:
        for metric in self.metrics:
            metric.reset()

    def reset_local(self) -> None:
        for metric in self.metrics:
            metric.reset_local()

    def get(self) -> tuple[list[str], list[float]]:
        return _joined(metric.get_name_value() for metric in self.metrics)

    def get_global(self, workers: bool = False) -> tuple[list[str], list[float]]:
        if workers:
            return super().get_global(workers)
        return _joined(metric.get_global_name_value() for metric in self.metrics)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "metrics": [metric.get_config() for metric in self.metrics]}


def _joined(groups: Any) -> tuple[list[str], list[float]]:
    pairs = [pair for group in groups for pair in group]
    return [name for name, _ in pairs], [value for _, value in pairs]


@register
class CustomMetric(EvalMetric):
    """A function of NumPy arrays `feval(label, pred)` that returns a value, or (sum, count).

        def largest(label, pred):
            return abs(label - pred).max()

        metric = mx.metric.np(largest)
        metric.update(nd.array([1.0, 2.0]), nd.array([1.5, 2.0]))
        metric.get()

    allow_extra_outputs : there may be more predictions than labels
    """

    def __init__(
        self,
        feval: Callable[[Array, Array], Any],
        name: str | None = None,
        allow_extra_outputs: bool = False,
        output_names: Names = None,
        label_names: Names = None,
    ) -> None:
        check_switches("CustomMetric", allow_extra_outputs=allow_extra_outputs)
        if name is None:
            name = getattr(feval, "__name__", "feval")
            name = f"custom({name})" if "<" in name else name
        super().__init__(name, output_names=output_names, label_names=label_names)
        self._feval = feval
        self._allow_extra_outputs = allow_extra_outputs

    def update(self, labels: object, preds: object) -> None:
        for label, pred in pairs(labels, preds, self._allow_extra_outputs):
            self._add(*self.measure(label, pred))

    def measure(self, label: Array, pred: Array) -> tuple[float, float]:
        result = self._feval(label, pred)
        return result if isinstance(result, tuple) else (result, 1)


def np(
    numpy_feval: Callable[[Array, Array], object], name: str | None = None, allow_extra_outputs: bool = False
) -> CustomMetric:
    """A metric from a function of NumPy arrays."""
    check_switches("np", allow_extra_outputs=allow_extra_outputs)
    return CustomMetric(numpy_feval, name or numpy_feval.__name__, allow_extra_outputs)
