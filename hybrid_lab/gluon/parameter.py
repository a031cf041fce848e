"""Parameter and Constant: a named array of a Block, its initialization, its gradient, its copies per context."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab import autograd, initializer
from hybrid_lab.diagnostics import (
    DeferredInitializationError,
    HybridLabError,
    SettingError,
    ShapeError,
    UninitializedError,
)
from hybrid_lab.diagnostics.formatting import check_choice
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.hybridize.block import AnyParameter
from hybrid_lab.initializer import InitializerLike
from hybrid_lab.ndarray import NDArray, changes, tape
from hybrid_lab.ndarray import array as nd_array
from hybrid_lab.ndarray import zeros as nd_zeros
from hybrid_lab.ndarray.context import Context, cpu, current_context, named
from hybrid_lab.ndarray.invoke import invoke
from hybrid_lab.ndarray.numpy_mode import in_mode, is_np_array
from hybrid_lab.ndarray.random_state import state as random_state
from hybrid_lab.ndarray.tape import GRAD_REQS
from hybrid_lab.ops.framework.dtypes import prepared
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.symbol import tracing
from hybrid_lab.symbol.symbol import STORAGE_TYPES, Symbol
from hybrid_lab.system.provided import Provided

from . import budget

__all__ = ["Constant", "DeferredInitializationError", "Parameter", "tensor_types"]

tensor_types = (Symbol, NDArray)
"""The classes of the tensors in the code of a Block, for `isinstance(x, gluon.tensor_types)`."""

Shape = tuple[int, ...]

parameter_html: Provided[[Any], str | None] = Provided("parameter_html")


class NothingToMoveError(UninitializedError, ValueError):
    """`reset_ctx` of a parameter before `initialize()`, in MXNet a ValueError."""


class DeferredInit(NamedTuple):
    """What `initialize()` decided, kept until the shape is known."""

    init: object
    ctx: list[Context]
    default_init: Any
    data: Any  # a value that `set_data` gave in the meantime, or None
    draw: tuple[int, int]  # (seed, number) of the generator for random values


class Parameter(AnyParameter):
    """A named array that belongs to a Block: the weights, or a state like a running mean.

        weight = gluon.Parameter("weight", shape=(2, 3))
        weight.initialize(mx.init.One())
        weight.data()
        weight.set_data(nd.zeros((2, 3)))

    name : with the block's prefix, 'net0_dense0_weight'
    grad_req : 'write', 'add' (gradients accumulate until `zero_grad()`) or 'null' (none is kept)
    shape : a tuple; 0, -1 or None stands for a dimension that the first forward pass completes
    dtype : of the values and of the gradient; None is float32, as in MXNet
    lr_mult, wd_mult : multiply the Trainer's learning rate and weight decay for this parameter
    init : its own initializer (a name or an Initializer); None takes the one given to `initialize()`
    allow_deferred_init : whether `initialize()` may wait for the shape
    differentiable : False fixes grad_req to 'null'
    stype : accepted for MXNet's sake; the values are dense. `row_sparse_data` gives rows of them
    grad_stype : the storage type of the gradient, 'default' or 'row_sparse'

    from_file : whether a file made it, and gave the name

    The object stays the same when values are loaded, cast or moved, so a Trainer that holds it stays valid. A subclass
    may define `data()`, as GluonNLP's WeightDropParameter does; a Block with such a parameter runs eagerly.
    """

    makes_data = False
    """Whether a subclass defines `data()`. Graphs do not call it: they read the values themselves."""
    _ctx_list = _ctx_map = _trainer = None
    """Attributes that libraries' subclasses copy from one Parameter to another; nothing here reads them."""

    def __init_subclass__(cls, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        cls.makes_data = cls.data is not Parameter.data

    from_file = False
    dtype_was_given = True
    """False after `dtype=None`: until the dtype is given, another place that shares the Parameter may give it."""

    def __init__(
        self,
        name: str = "weight",
        grad_req: str = "write",
        shape: int | Sequence[int | None] | None = None,
        dtype: DTypeLike | None = "float32",
        lr_mult: float = 1.0,
        wd_mult: float = 1.0,
        init: InitializerLike | None = None,
        allow_deferred_init: bool = False,
        differentiable: bool = True,
        stype: str = "default",
        grad_stype: str = "default",
    ) -> None:
        check_switches("Parameter", allow_deferred_init=allow_deferred_init, differentiable=differentiable)
        for kind, value in (("stype", stype), ("grad_stype", grad_stype)):
            check_choice(f"{kind} of {name!r}", value, STORAGE_TYPES, UnknownStorageError)
        budget.spend()
        self.name = name
        self.lr_mult = lr_mult
        self.wd_mult = wd_mult
        self.init = init
        self._array: NDArray | None = None  # the copy on the first context; compiled calls read it every time
        self._data: list[NDArray] | None = None
        self._grad: list[NDArray] | None = None
        self._deferred_init: DeferredInit | None = None
        self._initialized_by: DeferredInit | None = None  # the last `initialize()` that gave it values
        self.differentiable = differentiable
        self._allow_deferred_init = allow_deferred_init
        self._shape = None if shape is None else _normalized(shape)
        self._dtype = _element_type(dtype)
        self.dtype_was_given = dtype is not None
        self._grad_req = "null"
        self._stype = stype
        self._grad_stype = grad_stype
        self._var: object = None
        self._made_for_np = is_np_array()
        self.registered = False  # whether a Block has it; until then its name is without the Block's prefix
        self.grad_req = grad_req

    def __repr__(self) -> str:
        return f"{type(self).__name__} {self.name} (shape={self.shape}, dtype={np.dtype(self.dtype).name})"

    def _repr_html_(self) -> str | None:
        """Values and gradient as HTML without scripts, if a notebook shows the parameter."""
        return parameter_html(self)

    # -- attributes --------------------------------------------------------------------------------------------

    @property
    def grad_req(self) -> str:
        """'write', 'add' or 'null'; may be changed at any time."""
        return self._grad_req

    @grad_req.setter
    def grad_req(self, req: str) -> None:
        check_choice(f"grad_req of {self.name!r}", req, GRAD_REQS)
        if not self.differentiable:
            req = "null"
        if req == self._grad_req:
            return
        self._grad_req = req
        changes.happened()
        if self._data is None:
            return
        if req == "null":
            self._grad = None
            for array in self._data:
                array.attach_grad("null")
        else:
            self._init_grad()

    @property
    def dtype(self) -> Any:
        """The element type; assigning casts the values."""
        return self._dtype

    @dtype.setter
    def dtype(self, dtype: DTypeLike | None) -> None:
        self.cast(dtype)

    @property
    def shape(self) -> Shape | None:
        """The shape, 0 for a dimension that is not known yet; None if not even their number is.

        Assigning completes unknown dimensions. Raises ShapeError if a known one would change.
        """
        return None if self._shape is None else _shown(self._shape)

    @shape.setter
    def shape(self, shape: int | Sequence[int | None]) -> None:
        wanted = _normalized(shape)
        merged = merged_shape(self._shape, wanted)
        if merged is None:
            raise ShapeError(
                f"Parameter {self.name!r} has shape {self.shape}, which does not fit {_shown(wanted)}. "
                "Was a layer's size (units, in_units, channels ...) changed after it was used, or does the "
                "input have another shape?"
            )
        if merged != self._shape:
            self._var = None
            self._shape = merged

    @property
    def partial_shape(self) -> tuple[int | None, ...] | None:
        """The shape with None for unknown dimensions, as shape inference takes it."""
        return self._shape

    @property
    def shape_is_known(self) -> bool:
        """Whether every dimension is known."""
        return self._shape is not None and None not in self._shape

    # -- initialization ----------------------------------------------------------------------------------------

    def initialize(
        self,
        init: InitializerLike | None = None,
        ctx: Context | Sequence[Context] | None = None,
        default_init: Any = None,
        force_reinit: bool = False,
    ) -> None:
        """Give the parameter its first values, now or, if the shape is not known and may be deferred, when it is.

        init : overrides the parameter's own initializer; default_init is taken if there is neither
        ctx : one context or a list of them; each gets a copy. Default: the current context
        force_reinit : initialize again; without it an initialized parameter is left alone, with a warning

        Raises ValueError if the shape is unknown and must not be.
        """
        check_switches("Parameter.initialize", force_reinit=force_reinit)
        if self._data is not None and not force_reinit:
            warnings.warn(
                f"Parameter {self.name!r} is already initialized, nothing is done; "
                "force_reinit=True initializes it again",
                stacklevel=2,
            )
            return
        if not self.shape_is_known and not self._allow_deferred_init:
            raise ValueError(f"Parameter {self.name!r} cannot be initialized: its shape {self.shape} is not known")
        default_init = initializer.Uniform() if default_init is None else initializer.create(default_init)
        if init is None:
            init = default_init if self.init is None else self.init
        self._set_arrays(None)
        self._grad = None
        draw = random_state.next_initializer_draw()
        self._deferred_init = DeferredInit(init, _contexts(ctx), default_init, None, draw)
        if self.shape_is_known:
            self._finish_deferred_init()

    def _finish_deferred_init(self, shape: Sequence[int] | None = None) -> None:
        """Make the arrays of a deferred parameter; `shape` completes its own first. Does nothing if it has arrays."""
        if shape is not None:
            self.shape = shape
        deferred = self._deferred_init
        if deferred is None:
            return
        if not self.shape_is_known:
            raise DeferredInitializationError(
                f"Parameter {self.name!r} cannot be initialized yet: its shape {self.shape} is not known. "
                "Give the layer its input size (in_units, in_channels ...)"
            )
        with tape.Mode(False, False):
            data = deferred.data
            if data is None:
                data = self._in_mode(nd_zeros(self.shape or (), ctx=cpu(), dtype=self._dtype))
                self._fill(data, deferred)
            self._init_impl(data, deferred.ctx)
        self._deferred_init = None
        # Load holds the arrays of a whole file: it is not kept, and says nothing about the first values either.
        loaded = isinstance(deferred.default_init, initializer.Load) or data is deferred.data
        self._initialized_by = None if loaded else deferred

    def _fill(self, data: NDArray, deferred: DeferredInit) -> None:
        with initializer.drawing(*deferred.draw), random_state.preserved():
            self._apply(data, deferred.init, deferred.default_init)

    def _apply(self, data: NDArray, own: Any, default: Any) -> None:
        """Write the first values, drawn from the generator at hand."""
        # Mixed, Load and plain functions choose by the name, which an `__init__` attribute would override.
        by_name = own is default and not isinstance(own, (str, initializer.Initializer))
        desc = initializer.InitDesc(self.name, {} if by_name else {"__init__": own})
        default(desc, data)

    def _init_impl(self, data: NDArray, ctx: Sequence[Context], own: bool = False) -> None:
        taken = own and list(ctx) == [data.ctx]
        arrays = [data] if taken else [nd_array(data, ctx=each, dtype=data.dtype) for each in ctx]
        self._set_arrays([self._in_mode(array) for array in arrays])
        self._init_grad()

    def _in_mode(self, array: NDArray) -> Any:
        """An `mx.np` array, if NumPy semantics are on or were on when the parameter was created."""
        return array.as_np_ndarray() if self._made_for_np else in_mode(array)

    @property
    def is_np(self) -> bool:
        """Whether its values are, or will be, `mx.np` arrays."""
        if self._array is not None:
            return self._array.is_np
        return self._made_for_np or is_np_array()

    def _init_grad(self) -> None:
        if self._grad_req == "null" or self._data is None:
            self._grad = None
            return
        stype = self._grad_stype
        if stype != "default" and self._data[0].is_np:
            raise SettingError(f"Parameter {self.name!r}: gradients of mx.np arrays are dense, not {stype}")
        self._grad = [
            array.alike(nd_zeros(array.shape, ctx=array.ctx, dtype=array.dtype, stype=stype)) for array in self._data
        ]
        autograd.mark_variables(self._data, self._grad, self._grad_req)

    def _set_arrays(self, arrays: list[NDArray] | None) -> None:
        self._data = arrays
        self._array = arrays[0] if arrays else None
        changes.happened()

    def uninitialize(self, shape: tuple[int | None, ...] | None, deferred: DeferredInit | None) -> None:
        """Take the values away again: the Parameter is as before it got them.

        shape : with None for unknown dimensions; deferred : of an `initialize()` that waited for the shape
        """
        self._set_arrays(None)
        self._grad = None
        self._shape, self._deferred_init, self._var = shape, deferred, None

    def _load_init(self, data: NDArray, ctx: Context | Sequence[Context] | None = None, own: bool = False) -> None:
        """Take `data` (already of the right dtype) as the values, initializing the parameter if need be.

        own : the caller gives `data` away, so that a parameter without values may keep it instead of a copy
        """
        if self._data is not None:
            self.set_data(data)
        else:
            self.shape = data.shape
            if self._deferred_init is not None:
                where = self._deferred_init.ctx
            else:
                where = [cpu()] if ctx is None else _contexts(ctx)
            with tape.Mode(False, False):
                self._init_impl(data, where, own)
        self._deferred_init = None

    def reset_ctx(self, ctx: Context | Sequence[Context] | None) -> None:
        """Move to other contexts. Raises NothingToMoveError before `initialize()`."""
        where = _contexts(ctx)
        if self._data is not None:
            with tape.Mode(False, False):
                self._init_impl(self._reduce(), where)
        elif self._deferred_init is not None:
            self._deferred_init = self._deferred_init._replace(ctx=where)
        else:
            raise NothingToMoveError(str(self._uninitialized()))

    # -- values ------------------------------------------------------------------------------------------------

    def _uninitialized(self) -> UninitializedError:
        if self._deferred_init is not None:
            return DeferredInitializationError(
                f"Parameter {self.name!r} has no values yet: its shape {self.shape} is completed by the first "
                "forward pass. Call the network once with data, or give the layer its input size "
                "(in_units, in_channels ...)"
            )
        if self.from_file:
            return UninitializedError(
                f"{self.name!r} has no values, because the file of the graph holds none. If it is an input, "
                "name it in input_names; if it is a parameter, load its values, or call net.initialize()"
            )
        return UninitializedError(
            f"Parameter {self.name!r} has not been initialized: net.initialize() is missing. "
            "(net.params holds a block's own parameters only; net.collect_params() also its children's.)"
        )

    def _on(self, arrays: list[NDArray] | None, ctx: Context | None) -> NDArray:
        if arrays is None:
            raise self._uninitialized()
        if len(arrays) == 1 and ctx is None:
            return arrays[0]
        wanted = current_context() if ctx is None else ctx
        for array in arrays:
            if array.ctx == wanted:
                return array
        where = ", ".join(str(array.ctx) for array in arrays)
        raise UninitializedError(
            f"Parameter {self.name!r} was not initialized on {wanted}, only on {where}. "
            f"net.collect_params().reset_ctx(mx.{wanted}) moves it"
        )

    @property
    def _differentiable(self) -> bool:
        """MXNet's name of `differentiable`, which libraries' subclasses read."""
        return self.differentiable

    def _check_and_get(self, arr_list: list[NDArray] | None, ctx: Context | None) -> NDArray:
        """MXNet's name of `_on`, which libraries' subclasses call."""
        return self._on(arr_list, ctx)

    def data(self, ctx: Context | None = None) -> Any:
        """The values on one context, an NDArray (not a copy). Inside a trace: the variable that stands for it.

        Raises UninitializedError before `initialize()`, DeferredInitializationError before the shape is known.
        """
        trace = tracing.current()
        if trace is not None:
            return trace.parameter(self)
        return self._on(self._data, ctx)

    def list_data(self) -> list[NDArray]:
        """The values on every context."""
        if self._data is None:
            raise self._uninitialized()
        return self._data

    def row_sparse_data(self, row_id: NDArray) -> Any:
        """Rows of the values as a row_sparse array on the context of `row_id`; recorded.

        row_id : the numbers of the rows, of any shape and in any order
        Raises UnsuitableStorageError for a parameter whose stype is not 'row_sparse'.
        """
        _check_row_id(row_id)
        return self._rows(self._on(self._data, row_id.ctx), row_id)

    def list_row_sparse_data(self, row_id: NDArray) -> list[Any]:
        """`row_sparse_data` for every context."""
        _check_row_id(row_id)
        return [self._rows(array, row_id) for array in self.list_data()]

    def _rows(self, array: NDArray, row_id: NDArray) -> Any:
        if self._stype != "row_sparse":
            raise UnsuitableStorageError(
                f"Parameter {self.name!r} has the stype {self._stype!r}; use data(). row_sparse_data() is for "
                "parameters with stype='row_sparse'"
            )
        rows = row_id.as_in_context(array.ctx).reshape((-1,))
        return invoke(get("_sparse_retain").bind(), (array.tostype("row_sparse"), rows))

    def set_data(self, data: object) -> None:
        """Overwrite the values on every context, in place. Gradients of calls recorded before keep the old values.

        data : NDArray, NumPy array or nested lists of the parameter's shape. Raises ShapeError, UninitializedError.
        """
        if not hasattr(data, "shape"):
            data = np.asarray(data)
        self.shape = data.shape
        if self._data is not None:
            with tape.Mode(False, False):
                for array in self._data:
                    tape.keep(array)
                    array[:] = data
        elif self._deferred_init is not None:
            value = data if isinstance(data, NDArray) else nd_array(data, dtype=self._dtype)
            self._deferred_init = self._deferred_init._replace(data=value)
        else:
            raise self._uninitialized()

    def grad(self, ctx: Context | None = None) -> NDArray:
        """The gradient on one context, an NDArray of the values' shape and dtype.

        Raises HybridLabError if grad_req is 'null', UninitializedError before `initialize()`.
        """
        self._check_has_grad()
        return self._on(self._grad, ctx)

    def list_grad(self) -> list[NDArray]:
        """The gradient on every context."""
        self._check_has_grad()
        if self._grad is None:
            raise self._uninitialized()
        return self._grad

    def _check_has_grad(self) -> None:
        if self._data is not None and self._grad is None:
            raise NoGradientError(f"Parameter {self.name!r} has no gradient: its grad_req is 'null'")

    def list_ctx(self) -> list[Context]:
        """The contexts it is, or will be, initialized on."""
        if self._data is not None:
            return [array.ctx for array in self._data]
        if self._deferred_init is not None:
            return list(self._deferred_init.ctx)
        raise self._uninitialized()

    def zero_grad(self) -> None:
        """Set the gradient to zero on every context; nothing happens if there is none."""
        for array in self._grad or ():
            array.fill(0)
        for value in self._data or ():
            if type(value.tape_link) is tape.Leaf:
                value.tape_link.written = False

    def cast(self, dtype: DTypeLike | None) -> None:
        """Change the element type of values and gradient; None is float32, as in MXNet."""
        self._dtype = dtype = _element_type(dtype)
        self.dtype_was_given = True
        self._var = None
        if self._data is None:
            return
        with tape.Mode(False, False):
            self._set_arrays([array.astype(dtype) for array in self._data])
            if self._grad is not None:
                self._grad = [array.astype(dtype) for array in self._grad]
                autograd.mark_variables(self._data, self._grad, self._grad_req)

    def _reduce(self) -> NDArray:
        """The values on the CPU: the mean over the contexts."""
        arrays = self.list_data()
        if len(arrays) == 1:
            return nd_array(arrays[0], ctx=cpu(), dtype=arrays[0].dtype)
        total = np.mean([array.raw() for array in arrays], axis=0)
        return nd_array(total, ctx=cpu(), dtype=self._dtype)

    def var(self, taken: set[str] | None = None) -> Any:
        """A Symbol variable of this name, carrying shape, dtype, multipliers and initializer.

        taken : names of all other variables of a graph; this variable's name is added. It gets a number if its name is
            among them, as in a model that has opened the same file twice.
        """
        name = self.name
        if taken is not None:
            if name in taken:
                numbered = (f"{name}_{number}" for number in itertools.count(1))
                name = next(each for each in numbered if each not in taken)
            taken.add(name)
        if name == self.name and self._var is not None:
            return self._var
        from hybrid_lab import symbol

        variable = symbol.var(
            name,
            shape=self._shape,
            dtype=self._dtype,
            lr_mult=self.lr_mult,
            wd_mult=self.wd_mult,
            init=self.init if isinstance(self.init, str) or callable(getattr(self.init, "dumps", None)) else None,
            role="param",
        )
        if name == self.name:
            self._var = variable
        return variable

    def __getstate__(self) -> dict[str, Any]:
        """Pickled and deep-copied are the values, no gradients."""
        return {**vars(self), "_grad": None, "_array": None, "_var": None, "_initialized_by": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({**state, "_data": None})
        if state["_data"] is not None:
            with tape.Mode(False, False):
                arrays = [nd_array(array, ctx=array.ctx, dtype=array.dtype) for array in state["_data"]]
                self._set_arrays([old.alike(array) for old, array in zip(state["_data"], arrays, strict=True)])
                self._init_grad()


class UnknownStorageError(HybridLabError, ValueError, AssertionError):
    """A storage type that is none; MXNet raises an AssertionError."""


class UnsuitableStorageError(HybridLabError, RuntimeError):
    """Rows of a parameter that is not a row_sparse one were asked for."""


def _check_row_id(row_id: object) -> None:
    if not isinstance(row_id, NDArray):
        raise SettingError(f"row_id= takes the numbers of rows as an NDArray, not {type(row_id).__name__}")


class NoGradientError(HybridLabError, RuntimeError):
    """The gradient of a parameter that keeps none was asked for."""


class Constant(Parameter):
    """A parameter that is never trained: an array that belongs to the model, saved and moved with it.

        class Shift(gluon.HybridBlock):
            def __init__(self, **kwargs):
                super().__init__(**kwargs)
                self.shift = self.params.get_constant("shift", [1.0, 2.0])

            def hybrid_forward(self, F, x, shift):
                return F.broadcast_add(x, shift)

        net = Shift()
        net.initialize()
        net(nd.zeros((2, 2)))

    value : NDArray, NumPy array or nested lists; `set_data` may change it later
    """

    def __init__(self, name: str, value: Any) -> None:
        if not isinstance(value, NDArray):
            value = nd_array(value)
        self.value = value
        super().__init__(
            name,
            grad_req="null",
            shape=value.shape,
            dtype=value.dtype,
            init=_Value(value),
            differentiable=False,
        )

    @property
    def grad_req(self) -> str:
        """Always 'null'."""
        return "null"

    @grad_req.setter
    def grad_req(self, req: str) -> None:
        if req != "null":
            warnings.warn(f"Constant {self.name!r} takes no gradient; grad_req={req!r} is ignored", stacklevel=2)


class _Value(initializer.Initializer):
    """The initializer of a Constant. It is not written into symbol files: the value stands in the parameters' file."""

    dumps = None  # type: ignore[assignment]

    def __init__(self, value: NDArray) -> None:
        super().__init__()
        self.value = value

    def _init_weight(self, name: str, arr: Any) -> None:
        arr[:] = self.value

    __eq__ = object.__eq__
    __hash__ = object.__hash__


def _element_type(dtype: DTypeLike | None) -> Any:
    return "float32" if dtype is None else prepared(dtype)


def _normalized(shape: int | Iterable[int | None]) -> tuple[int | None, ...]:
    sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    return tuple(None if size is None or size in (0, -1) else int(size) for size in sizes)


def _shown(shape: tuple[int | None, ...]) -> Shape:
    return tuple(size or 0 for size in shape)


def merged_shape(known: tuple[int | None, ...] | None, wanted: tuple[int | None, ...]) -> tuple[int | None, ...] | None:
    """Both shapes in one, or None if they contradict each other."""
    if known is None or known == wanted:
        return wanted
    if len(known) != len(wanted) or any(
        a != b for a, b in zip(known, wanted, strict=True) if a is not None and b is not None
    ):
        return None
    return tuple(b if a is None else a for a, b in zip(known, wanted, strict=True))


def _contexts(ctx: Context | Sequence[Context] | None) -> list[Context]:
    if ctx is None:
        return [current_context()]
    return [ctx] if isinstance(ctx, Context) else [named(ctx)] if isinstance(ctx, str) else list(ctx)
