"""Optimizer: the base of all optimizers - learning rates, weight decay, update counts.

An optimizer is one class: its settings, the names of its `states`, and the update operator of `ops/updates/` that has
its rule.
"""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np

from hybrid_lab.diagnostics import HybridLabError, SettingError
from hybrid_lab.diagnostics.formatting import lookup
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.lr_scheduler import LRScheduler
from hybrid_lab.ndarray import NDArray, zeros
from hybrid_lab.ops.framework.dtypes import is_narrow
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.run import run_kernel

_registry: dict[str, type[Optimizer]] = {}

OptimizerClass = TypeVar("OptimizerClass", bound="type[Optimizer]")


class ScheduledRateError(HybridLabError, UserWarning):
    """The learning rate was set on an optimizer whose lr_scheduler decides it."""


class Optimizer:
    """Base of the optimizers.

        @mx.optimizer.register
        class Sign(mx.optimizer.Optimizer):
            def create_state(self, index, weight):
                return None

            def update(self, index, weight, grad, state):
                weight[:] = weight - self.learning_rate * grad.sign()

        weight = nd.array([1.0, 2.0])
        mx.optimizer.get_updater(mx.optimizer.create("sign", learning_rate=0.5))(0, nd.array([3.0, -3.0]), weight)
        weight

    learning_rate : None takes the scheduler's, or the class's default without one
    wd : weight decay, the factor of an L2 penalty
    rescale_grad : gradients are multiplied by it first (a Trainer sets 1 / batch size)
    clip_gradient : then limited to [-clip_gradient, clip_gradient]; None or 0 for no limit
    lr_scheduler : a scheduler, whose base_lr a given learning_rate becomes, or any function of the number of updates
    multi_precision : update float16 and bfloat16 weights in float32 copies
    param_idx2name, param_dict : names or Parameters by index, for `set_lr_mult`, `lr_mult` and `wd_mult`
    begin_num_update : where counting starts

    A subclass defines `states` and `operator`; or, as in MXNet, `create_state` and `update`.
    """

    states: ClassVar[tuple[str, ...]] = ()
    """Names of the arrays kept for each weight, zeros at first."""
    default_learning_rate: ClassVar[float] = 0.01

    aggregate_num = 0

    def __init__(
        self,
        rescale_grad: float = 1.0,
        param_idx2name: Mapping[int, str] | None = None,
        wd: float = 0.0,
        clip_gradient: float | None = None,
        learning_rate: float | None = None,
        lr_scheduler: LRScheduler | Callable[[int], float] | None = None,
        sym: Any = None,
        begin_num_update: int = 0,
        multi_precision: bool = False,
        param_dict: Mapping[int, Any] | None = None,
    ) -> None:
        check_switches("Optimizer", multi_precision=multi_precision)
        numbers = {"learning_rate": learning_rate, "wd": wd, "clip_gradient": clip_gradient}
        for key, value in {**numbers, "rescale_grad": rescale_grad}.items():
            if value is not None:
                _check_number(type(self).__name__, key, value)
        if lr_scheduler is not None and not callable(lr_scheduler):
            raise SettingError(
                f"{type(self).__name__}: lr_scheduler must be a scheduler such as lr_scheduler.FactorScheduler(100), "
                f"or a function of the number of updates, not {lr_scheduler!r}"
            )
        self.rescale_grad = _plain_number(rescale_grad)
        self.wd = _plain_number(wd)
        self.clip_gradient = _plain_number(clip_gradient)
        learning_rate = _plain_number(learning_rate)
        self.lr_scheduler = lr_scheduler
        if lr_scheduler is None:
            self.lr = self.default_learning_rate if learning_rate is None else learning_rate
        elif not hasattr(lr_scheduler, "base_lr"):  # any function of the number of updates
            if learning_rate is not None:
                raise SettingError(
                    f"{type(self).__name__}: learning_rate={learning_rate} would have no effect, because the "
                    "lr_scheduler is a function without base_lr; give only one of the two"
                )
            self.lr = _plain_number(lr_scheduler(begin_num_update))
        else:
            schedule: Any = lr_scheduler
            if learning_rate is not None:
                schedule.base_lr = schedule.warmup_final_lr = learning_rate
            self.lr = schedule.base_lr
        self.multi_precision = multi_precision
        self.begin_num_update = begin_num_update
        self.num_update = begin_num_update
        self._all_index_update_counts: dict[int, dict[int, int]] = {0: {}}
        self._index_update_count = self._all_index_update_counts[0]
        self.idx2name = dict(param_idx2name or {})
        self.param_dict: Mapping[int, Any] = param_dict or {}
        self.sym_info = (sym.attr_dict(), sym.list_arguments()) if sym is not None else ()
        self.set_lr_mult({})
        self.set_wd_mult({})
        #: MXNet's, without effect: arrays of `mx.np` are always accepted, and functions of `nd` take them, too.
        self.allow_np_array = True

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self.hyperparameters().items())})"
        )

    @staticmethod
    def register(klass: OptimizerClass) -> OptimizerClass:
        """Class decorator: the optimizer can be created by its class name, in any case."""
        _registry[klass.__name__.lower()] = klass
        return klass

    @staticmethod
    def create_optimizer(name: str, **kwargs: object) -> Optimizer:
        """As `optimizer.create`."""
        return create(name, **kwargs)

    # -- learning rate and weight decay ------------------------------------------------------------------------

    @property
    def learning_rate(self) -> float:
        """The current rate: from the scheduler if there is one, else as set."""
        return self.lr if self.lr_scheduler is None else self.lr_scheduler(self.num_update)

    def set_learning_rate(self, lr: float) -> None:
        """Set the rate. Raises ScheduledRateError if a scheduler decides it."""
        if self.lr_scheduler is not None:
            raise ScheduledRateError(
                "the learning rate follows the lr_scheduler; change optimizer.lr_scheduler, or make the Trainer "
                "without one"
            )
        _check_number(type(self).__name__, "learning_rate", lr)
        self.lr = _plain_number(lr)

    def set_lr_mult(self, args_lr_mult: Mapping[Any, float]) -> None:
        """Multipliers of the learning rate, by index or name; parameters of a Trainer carry their own `lr_mult`."""
        self.lr_mult = {**self._symbol_attributes("__lr_mult__"), **args_lr_mult}

    def set_wd_mult(self, args_wd_mult: Mapping[Any, float]) -> None:
        """Multipliers of the weight decay; names other than `_weight` and `_gamma` start with 0."""
        undecayed = {name: 0.0 for name in self.idx2name.values() if not name.endswith(("_weight", "_gamma"))}
        self.wd_mult = {**undecayed, **self._symbol_attributes("__wd_mult__"), **args_wd_mult}

    def _symbol_attributes(self, key: str) -> dict[str, float]:
        if not self.sym_info:
            return {}
        attributes, names = self.sym_info
        return {name: float(attributes[name][key]) for name in names if key in attributes.get(name, ())}

    def _multiplier(self, index: int, table: Mapping[object, float], attribute: str) -> float:
        if index in self.param_dict:
            return getattr(self.param_dict[index], attribute)
        if index in table:
            return table[index]
        return table.get(self.idx2name.get(index), 1.0)

    def _get_lr(self, index: int) -> float:
        return self.learning_rate * self._multiplier(index, self.lr_mult, "lr_mult")

    def _get_wd(self, index: int) -> float:
        return self.wd * self._multiplier(index, self.wd_mult, "wd_mult")

    def settings_of(self, index: int) -> tuple[float, float, int]:
        """Learning rate and weight decay of a parameter, with its multipliers, and how often it was updated."""
        count = self._index_update_count.get(index, self.begin_num_update)
        return self._get_lr(index), self._get_wd(index), count

    def set_update_count(self, index: int, count: int) -> None:
        """Say how often a parameter was updated, as in the training that this one goes on with."""
        self._index_update_count[index] = count
        self.num_update = max(self.num_update, count)

    def _set_current_context(self, device_id: int) -> None:
        """Count updates for this device from here on."""
        self._index_update_count = self._all_index_update_counts.setdefault(device_id, {})

    def _update_count(self, index: int) -> None:
        for each in index if isinstance(index, (list, tuple)) else [index]:
            count = self._index_update_count.get(each, self.begin_num_update) + 1
            self._index_update_count[each] = count
            self.num_update = max(count, self.num_update)

    # -- states ------------------------------------------------------------------------------------------------

    def create_state(self, index: int, weight: NDArray) -> Any:
        """The state of one weight: None, an NDArray, or a tuple of NDArrays, one per name in `states`."""
        stype = weight.stype if self.updates_rows(weight) else "default"
        arrays = tuple(zeros(weight.shape, ctx=weight.ctx, dtype=weight.dtype, stype=stype) for _ in self.state_names())
        return None if not arrays else arrays[0] if len(arrays) == 1 else arrays

    def state_names(self) -> tuple[str, ...]:
        """The states that these settings need."""
        return self.states

    def create_state_multi_precision(self, index: int, weight: NDArray) -> Any:
        """As `create_state`; for a float16 or bfloat16 weight with multi_precision (float32 copy, its state)."""
        dtype = np.dtype(weight.dtype)
        if is_narrow(dtype):
            if self.multi_precision:
                copy = weight.astype("float32")
                return copy, self.create_state(index, copy)
            warnings.warn(
                f"updating {dtype} weights in {dtype} loses small steps; multi_precision=True updates float32 copies",
                stacklevel=3,
            )
        return self.create_state(index, weight)

    # -- updates -----------------------------------------------------------------------------------------------

    def update_multi_precision(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        """As `update`, through the float32 copy if there is one."""
        if self.multi_precision and is_narrow(np.dtype(weight.dtype)):
            copy, inner = state
            self.update(index, copy, grad.astype("float32"), inner)
            if weight.buffer.stored:
                weight.assign(copy.asnumpy().astype(weight.dtype))
                return
            np.copyto(weight.raw(), copy.raw(), casting="unsafe")
            weight.written()
        else:
            self.update(index, weight, grad, state)

    def update(self, index: int, weight: NDArray, grad: NDArray, state: object) -> None:
        """One step: change `weight` (NDArray) and its `state` in place from `grad`."""
        op = self.operator()
        if op is None:
            raise NotImplementedError(f"{type(self).__name__} defines neither operator() nor update()")
        self._update_count(index)
        lr, wd, count = self._get_lr(index), self._get_wd(index), self._index_update_count[index]
        dtype = np.dtype(weight.dtype)
        numbers = {"rescale_grad": 1.0, **self.scaled_numbers(lr, wd, count, dtype)}
        states = () if state is None else state if isinstance(state, (tuple, list)) else (state,)
        rates = [numbers[name] for name in op.scalars]
        if any(array.buffer.stored for array in (weight, grad, *states)):
            from .rows import update_sparse  # the room of sparse arrays loads when there is one

            update_sparse(op, weight, grad, states, rates, self.updates_rows(weight))
            return
        # The states of a weight that was cast may have its former dtype.
        values = [array.raw().astype(dtype, copy=False) for array in (weight, grad, *states)]
        run_kernel(op, [*values, *rates], (values[0], *values[2:]))  # may write its outputs over its inputs
        for array, updated in zip((weight, *states), (values[0], *values[2:]), strict=True):
            if updated is array.raw():
                array.written()
            else:
                array.assign(updated)

    def updates_rows(self, weight: NDArray) -> bool:
        """Whether a row_sparse gradient updates only the rows that it stores (`lazy_update`): the others get no decay
        and no momentum. Otherwise it is read as a dense one.
        """
        return False

    def operator(self) -> Operator | None:
        """The update operator with these settings, whose states are in the order of `states`. All weights of a Trainer
        are updated by one program of its `step` (see fused). None in a subclass that overrides `update`.
        """
        return None

    def numbers(self, lr: float, wd: float, count: int) -> dict[str, float]:
        """The operator's numbers that change from step to step, by name, without rescale_grad."""
        return {"lr": lr, "wd": wd}

    def scaled_numbers(self, lr: float, wd: float, count: int, dtype: np.dtype) -> dict[str, float]:
        """`numbers` and rescale_grad for weights of this dtype. Without rescale_grad the gradient is not scaled."""
        return self.numbers(lr, wd, count) | {"rescale_grad": self.rescale_grad}

    def _limit(self) -> float:
        """clip_gradient as operators take it: negative for no limit."""
        return self.clip_gradient if self.clip_gradient else -1.0

    # -- saving ------------------------------------------------------------------------------------------------

    def hyperparameters(self) -> dict[str, Any]:
        """The settings as values that JSON can hold; they are saved with a Trainer's states."""
        plain = (bool, int, float, str, type(None))
        return {
            key: value
            for key, value in vars(self).items()
            if isinstance(value, plain) and not key.startswith("_") and key not in ("num_update", "allow_np_array")
        }

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "param_dict": {}}


def create(name: str | Optimizer, **kwargs: Any) -> Optimizer:
    """The optimizer with this name ('sgd'). Raises ValueError for a name that is not registered."""
    if isinstance(name, Optimizer):
        return name
    klass = lookup("optimizer", name, _registry)
    known = defaults(klass)
    for key in kwargs:
        if known is not None and key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(sorted(known))}"
            raise TypeError(f"the optimizer {name!r} takes no argument {key}; {hint}")
        if known is not None and type(known[key]) is float:
            _check_number(klass.__name__, key, kwargs[key])
            kwargs[key] = _plain_number(kwargs[key])
    return klass(**kwargs)


def _check_number(optimizer: str, key: str, value: object) -> None:
    """Raise SettingError for a value that cannot be a number: it would only fail at the first step."""
    if not hasattr(value, "__float__"):
        meant = "; give a schedule as lr_scheduler=..." if callable(value) and key == "learning_rate" else ""
        raise SettingError(f"{optimizer}: {key} must be a number, not {value!r}{meant}")


def _plain_number(value: Any) -> Any:
    """A Python number for NumPy's and for arrays of one element; None and Python's own numbers unchanged."""
    return value if value is None or isinstance(value, (int, float)) else float(value)


def defaults(klass: type[Optimizer]) -> dict[str, Any] | None:
    """All constructor arguments with their defaults, including arguments passed on to the base class."""
    arguments: dict[str, Any] = {}
    for base in klass.__mro__:
        if "__init__" not in vars(base):
            continue
        parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
        own = {each.name: each.default for each in parameters if each.kind is not each.VAR_KEYWORD}
        arguments = {**own, **arguments}
        if all(each.kind is not each.VAR_KEYWORD for each in parameters):
            del arguments["self"]
            return arguments
    return None


register = Optimizer.register
