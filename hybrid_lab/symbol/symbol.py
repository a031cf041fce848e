"""Symbol: the stand-in for an array in hybrid_forward - a thin user object over graph Values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab.diagnostics.errors import AttributeSpecError, UnknownNameError
from hybrid_lab.diagnostics.formatting import check_choice
from hybrid_lab.diagnostics.location import capture
from hybrid_lab.diagnostics.unknown_names import unknown_method
from hybrid_lab.graph.node import Input, Node, Value, constant_node, input_node
from hybrid_lab.ndarray.context import Context
from hybrid_lab.ndarray.numpy_mode import is_np_shape
from hybrid_lab.ops.arrays.slicing import split_v2_operator
from hybrid_lab.ops.framework.dtypes import TYPE_FLAGS, dtype_of, name_of
from hybrid_lab.ops.framework.operator import Operator, find, get
from hybrid_lab.ops.framework.surface import MISSING, make_function, missing_input, no_arrays, no_input
from hybrid_lab.symbol import scopes, tracing
from hybrid_lab.symbol.composition import composed
from hybrid_lab.symbol.indexing import index_operators
from hybrid_lab.symbol.protocols import REFUSED_ATTRIBUTES, Refusals
from hybrid_lab.symbol.questions import GraphQuestions
from hybrid_lab.symbol.scopes import SHORT_NAMES, AttrScope, scoped, shown
from hybrid_lab.system.provided import Provided

bind_symbol: Provided[..., Any] = Provided("bind_symbol")
simple_bind_symbol: Provided[..., Any] = Provided("simple_bind_symbol")
numpy_symbol_class: Provided[[], Any] = Provided("numpy_symbol_class")
"""The class of the Symbols of `mx.np` code."""

STORAGE_TYPES = ("default", "row_sparse", "csr")
"""Storage types of MXNet's arrays, in the order of their numbers in its files."""


def _operands(operator: str, hint: str, reflected_hint: str | None = None) -> tuple[Any, Any]:
    """The methods `x + y` and `y + x` of a Symbol x, for the operator `+`; the hints are beginnings of the nodes'
    names.
    """

    def method(self: Symbol, other: object) -> Symbol:
        return _binary(operator, hint, self, other)

    def reflected(self: Symbol, other: object) -> Symbol:
        return _binary(operator, reflected_hint or hint, other, self)

    return method, reflected


class Symbol(GraphQuestions, Refusals):
    """One or more outputs of a graph under construction.

    Arithmetic, comparison, indexing and the operator methods build the graph further; operations that need numbers
    raise HybridizeError. Traced code in 2.x style may ask for shapes and dtypes: its graph then holds for these shapes
    and dtypes only.
    """

    __slots__ = ("__weakref__", "outputs")
    _is_symbol = True
    is_np = False
    """Whether it stands for an `mx.np` array."""

    def __init__(self, values: Sequence[Value]):
        self.outputs = tuple(values)
        """The Values of the graph that the Symbol stands for."""

    # -- names and structure -------------------------------------------------------------------------------------

    @property
    def name(self) -> str | None:
        """The node's name; None for a group of different nodes."""
        nodes = {value.node for value in self.outputs}
        return self.outputs[0].node.name if len(nodes) == 1 else None

    def __repr__(self) -> str:
        if self.name is not None:
            return f"<Symbol {self.name}>"
        return f"<Symbol group [{', '.join(dict.fromkeys(value.node.name for value in self.outputs))}]>"

    def __hash__(self) -> int:
        return id(self) // 16

    def __copy__(self) -> Symbol:
        return type(self)(self.outputs)

    def __deepcopy__(self, memo: object) -> Symbol:
        return type(self)(self.outputs)

    def as_nd_ndarray(self) -> Symbol:
        """The Symbol itself; for a Symbol of `mx.np` code the same outputs for other code."""
        return self

    def as_np_ndarray(self) -> Any:
        """The same outputs for `mx.np` code."""
        return numpy_symbol_class()(self.outputs)

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle holds the graph as JSON text, and its constants as arrays."""
        from hybrid_lab.formats.mxnet import symbol_json

        constants: dict[str, np.ndarray] = {}
        text = symbol_json.dumps(self.graph(), portable=False, constants=constants)
        return _unpickled, (text, constants)

    def attr(self, key: str) -> str | None:
        """One attribute of the node as MXNet's string, or None."""
        return self.list_attr().get(key)

    def list_attr(self) -> dict[str, str]:
        """All attributes of the node as MXNet's strings."""
        return _attributes(self.outputs[0].node)

    def attr_dict(self) -> dict[str, dict[str, str]]:
        """The attributes of all nodes with attributes, by the names of the nodes."""
        attributes_by_name = {node.name: _attributes(node) for node in self._nodes()}
        return {name: attributes for name, attributes in attributes_by_name.items() if attributes}

    def __call__(self, name: str | None = None, **others: Symbol) -> Symbol:
        """The graph with other Symbols in the place of variables, by the variables' names: `net(data=other)`.

        name : a new name for the node behind the first output
        Raises AttributeSpecError.
        """
        for key, other in others.items():
            if not isinstance(other, Symbol):
                raise AttributeSpecError(f"{self!r}({key}=...) takes a Symbol, not {type(other).__name__}")
        if name is not None and not isinstance(name, str):
            raise AttributeSpecError(
                f"{self!r} takes Symbols by the names of its variables: {', '.join(self.list_inputs())}"
            )
        return type(self)(composed(self.outputs, name, {key: other.outputs for key, other in others.items()}))

    def __len__(self) -> int:
        if len(self.outputs) > 1:
            return len(self.outputs)
        shape_and_dtype = self._asked_type("shape")
        if shape_and_dtype is None:
            self._refuse_protocol("HL124")
        return int(shape_and_dtype[0][0])

    def __iter__(self) -> Iterator[Symbol]:
        if len(self.outputs) > 1:
            return (type(self)((value,)) for value in self.outputs)
        shape_and_dtype = self._asked_type("shape")
        if shape_and_dtype is None:
            self._refuse_iteration()
        return (self[index] for index in range(shape_and_dtype[0][0]))

    def __getitem__(self, key: Any) -> Symbol:
        """An index into a symbol of several outputs picks outputs; on a single output it slices, as on an array."""
        if len(self.outputs) == 1:
            if isinstance(key, str) and not tracing.stands_for_arrays():
                return self._output_named(key)
            result = self
            for op in index_operators(self, key):
                result = compose(op, [result], None)
            return result
        if isinstance(key, str):
            return self._output_named(key)
        if isinstance(key, slice):
            return type(self)(self.outputs[key])
        try:
            return type(self)((self.outputs[key],))
        except IndexError:
            raise IndexError(f"{self!r} has {len(self.outputs)} outputs; index {key} is out of range") from None

    def _output_named(self, key: str) -> Symbol:
        for name, value in zip(self.list_outputs(), self.outputs, strict=True):
            if key in (name, value.node.name):
                return type(self)((value,))
        raise KeyError(f"{self!r} has no output {key!r}; it has {', '.join(self.list_outputs())}")

    def __getattr__(self, name: str) -> Any:
        code = REFUSED_ATTRIBUTES.get(name)
        if code is not None:
            return self._answer(name, code)
        method = symbol_method(name)
        if method is None:
            if name == "tostype":
                raise UnknownNameError(
                    "a Symbol",
                    name,
                    advice="graphs are dense: leave the call out, or write F.cast_storage(x, stype=...)",
                )
            raise unknown_method("Symbol", name, "F")
        return method.__get__(self)

    def _answer(self, name: str, code: str) -> Any:
        """An attribute that only arrays have, such as `shape`, in 2.x style. Raises HybridizeError of the rule
        `code`.
        """
        if name == "T" and tracing.of_arrays() is not None:
            return self.transpose()
        if name in ("shape", "size", "ndim", "dtype"):
            known = self._asked_type("dtype" if name == "dtype" else "shape")
            if known is not None:
                shape, dtype = known
                return {"shape": shape, "size": prod(shape), "ndim": len(shape), "dtype": dtype.type}[name]
        raise tracing.refuse(code, tensor=self, attribute=name, call=name)

    def _asked_type(self, what: str) -> tuple[Any, Any] | None:
        """(shape, dtype) for the inputs of this trace, if traced code in 2.x style asks for `what`; else None.

        what : "shape" or "dtype"
        """
        trace = tracing.of_arrays()
        shape_and_dtype = None if trace is None else trace.known_type(self.outputs[0])
        if trace is not None and shape_and_dtype is not None:
            trace.observed.append((what, capture()))
        return shape_and_dtype

    def __dir__(self) -> list[str]:
        from hybrid_lab.ops.framework.operator import registered_names

        return sorted({*object.__dir__(self), *(name for name in registered_names() if not name.startswith("_"))})

    # -- binding ---------------------------------------------------------------------------------------------------

    def bind(
        self,
        ctx: Context,
        args: Sequence[Any] | Mapping[str, Any],
        args_grad: Sequence[Any] | Mapping[str, Any] | None = None,
        grad_req: str | Sequence[str] | Mapping[str, str] = "write",
        aux_states: Sequence[Any] | Mapping[str, Any] | None = None,
        group2ctx: Mapping[str, Context] | None = None,
        shared_exec: Any = None,
    ) -> Any:
        """An Executor that runs the graph on these arrays.

        args, aux_states : the arrays in the order of `list_arguments()` and `list_auxiliary_states()`, or by name
        args_grad : arrays for the gradients; arguments without an array get no gradient
        grad_req : "write", "add" or "null": one for all arguments, a list, or a dict by name
        group2ctx : accepted if all its contexts are on the device of `ctx`
        shared_exec : an Executor of this Symbol; compiled graphs are shared
        Raises BindError, ShapeError or DTypeError.
        """
        return bind_symbol(self, ctx, args, args_grad, grad_req, aux_states, group2ctx, shared_exec)

    def simple_bind(
        self, ctx: Context, grad_req: str | Sequence[str] | Mapping[str, str] = "write", **options: Any
    ) -> Any:
        """An Executor with new arrays of zeros for arguments, gradients and states.

        options : the shapes of inputs by name, from which all other shapes follow; `type_dict` (dtypes by name),
            `group2ctx`, `shared_exec` with `shared_arg_names` (arguments to take from another Executor), and
            `shared_buffer` (a dict of arrays whose memory the arguments use)
        Raises BindError.
        """
        return simple_bind_symbol(self, ctx, grad_req, **options)

    # -- arithmetic ------------------------------------------------------------------------------------------------

    __add__, __radd__ = _operands("broadcast_add", "_plus")
    __sub__, __rsub__ = _operands("broadcast_sub", "_minus", "_rminus")
    __mul__, __rmul__ = _operands("broadcast_mul", "_mul")
    __truediv__, __rtruediv__ = _operands("broadcast_div", "_div", "_rdiv")
    __mod__, __rmod__ = _operands("broadcast_mod", "_mod", "_rmod")
    __pow__, __rpow__ = _operands("broadcast_power", "_power", "_rpower")
    __matmul__, __rmatmul__ = _operands("dot", "dot")
    __and__, __rand__ = _operands("broadcast_logical_and", "_logical_and")
    __or__, __ror__ = _operands("broadcast_logical_or", "_logical_or")
    __xor__, __rxor__ = _operands("broadcast_logical_xor", "_logical_xor")
    # Python reflects a comparison by the opposite comparison.
    __eq__ = _operands("broadcast_equal", "_equal")[0]
    __ne__ = _operands("broadcast_not_equal", "_not_equal")[0]
    __gt__ = _operands("broadcast_greater", "_greater")[0]
    __ge__ = _operands("broadcast_greater_equal", "_greater_equal")[0]
    __lt__ = _operands("broadcast_lesser", "_lesser")[0]
    __le__ = _operands("broadcast_lesser_equal", "_lesser_equal")[0]

    def __floordiv__(self, other: object) -> Symbol:
        return (self / other).floor()

    def __rfloordiv__(self, other: object) -> Symbol:
        return (other / self).floor()

    def __neg__(self) -> Symbol:
        return compose(get("negative").bind(), [self], None, hint="_mulscalar")

    def __pos__(self) -> Symbol:
        return self

    def __abs__(self) -> Symbol:
        return compose(get("abs").bind(), [self], None)

    def __invert__(self) -> Symbol:
        return compose(get("logical_not").bind(), [self], None)

    def reshape(self, *shape: Any, **attributes: Any) -> Symbol:
        """As nd: `x.reshape((0, -1))`, `x.reshape(0, -1)` or `x.reshape(shape=...)`."""
        if "shape" in attributes:
            shape = attributes.pop("shape")
        elif len(shape) == 1 and isinstance(shape[0], (tuple, list)):
            shape = tuple(shape[0])
        return compose(get("Reshape").bind(shape=tuple(shape), **attributes), [self], None, hint="reshape")

    def flatten(self, inplace: bool = False, **attributes: Any) -> Symbol:
        """As nd: a matrix of the first dimension and the product of all other dimensions. inplace : for arrays only, no
        effect
        """
        return self._called("flatten", **attributes)

    def expand_dims(self, axis: int, inplace: bool = False, **attributes: Any) -> Symbol:
        """As nd: with a further axis of size 1. inplace : for arrays only, no effect"""
        return self._called("expand_dims", axis=axis, **attributes)

    def squeeze(self, axis: int | Sequence[int] | None = None, inplace: bool = False, **attributes: Any) -> Symbol:
        """As nd: without axes of size 1, all such axes or the named axes. inplace : for arrays only, no effect"""
        return self._called("squeeze", axis=axis, **attributes)

    def _called(self, method: str, **attributes: Any) -> Symbol:
        function = symbol_method(method)
        assert function is not None
        result: Symbol = function(self, **attributes)
        return result

    def split_v2(
        self, indices_or_sections: int | Sequence[int], axis: int = 0, squeeze_axis: bool = False
    ) -> Symbol | list[Symbol]:
        """The Symbol cut along `axis`, one output per part; see `nd.split_v2`."""
        return as_arrays(compose(split_v2_operator(indices_or_sections, axis, squeeze_axis), [self], None))

    def transpose(self, *axes: Any, **attributes: Any) -> Symbol:
        """As nd: `x.transpose()`, `x.transpose((1, 0))` or `x.transpose(1, 0)`."""
        if "axes" in attributes:
            axes = attributes.pop("axes") or ()
        elif len(axes) == 1 and isinstance(axes[0], (tuple, list)):
            axes = tuple(axes[0])
        return compose(get("transpose").bind(axes=tuple(axes)), [self], None)

    def astype(self, dtype: DTypeLike | None, copy: bool = True) -> Symbol:
        """As nd: converted to another dtype."""
        return compose(get("Cast").bind(dtype=dtype), [self], None, hint="cast")


def _unpickled(text: str, constants: Mapping[str, np.ndarray]) -> Symbol:
    """The Symbol written by `Symbol.__reduce__`."""
    from hybrid_lab.formats.mxnet import symbol_json

    return Symbol(symbol_json.loads(text, constants).outputs)


# -- composing -----------------------------------------------------------------------------------------------


def var(
    name: str,
    attr: Mapping[str, str] | None = None,
    shape: Any = None,
    lr_mult: float | None = None,
    wd_mult: float | None = None,
    dtype: Any = None,
    init: Any = None,
    stype: Any = None,
    role: str = "data",
    **keywords: str,
) -> Symbol:
    """A variable. `shape`, sizes or one size, may have None for unknown sizes, and 0 (with NumPy's shapes -1); it is a
    hint for inference and for MXNet's files.

    stype : "default", "row_sparse" or "csr": of the array that `simple_bind` makes, and a hint for MXNet's files
    keywords : further attributes, whose names start and end with two underscores. Raises AttributeSpecError for other
    attributes
    """
    attrs = scoped(attr)
    partial_shape, unknown = None, -1 if is_np_shape() else 0
    if shape is not None:
        shape = (shape,) if isinstance(shape, (int, np.integer)) else shape
        partial_shape = shape = tuple(None if size == unknown else size for size in shape)
        attrs["__shape__"] = str(tuple(unknown if size is None else size for size in shape))
    if lr_mult is not None:
        attrs["__lr_mult__"] = str(lr_mult)
    if wd_mult is not None:
        attrs["__wd_mult__"] = str(wd_mult)
    if dtype is not None:
        attrs["__dtype__"] = str(TYPE_FLAGS[name_of(dtype_of(dtype))])
    if init is not None:
        attrs["__init__"] = init if isinstance(init, str) else init.dumps()
    if stype is not None:
        check_choice(f"var {name!r}: stype", stype, STORAGE_TYPES, AttributeSpecError)
        attrs["__storage_type__"] = str(STORAGE_TYPES.index(stype))
    for key, value in keywords.items():
        if not (key.startswith("__") and key.endswith("__")):
            raise AttributeSpecError(f"var {name!r}: unknown argument {key}; attributes are named like __key__")
        attrs[key] = str(value)
    return Symbol((input_node(name, role, shape=partial_shape, dtype=dtype, attrs=attrs or None),))


def Group(symbols: Sequence[Symbol]) -> Symbol:  # noqa: N802 - MXNet's name
    """Several Symbols as one with all their outputs."""
    return Symbol([value for symbol in symbols for value in symbol.outputs])


def compose(op: Operator, inputs: Sequence[object], name: str | None, hint: str | None = None) -> Symbol:
    """A new node on Symbols and immediates; inputs left out become variables `<name>_<input>`."""
    trace = tracing.current()
    node_name = scopes.NameManager.current.get(name, hint or op.name.lower())
    drawing = op.random or op.subgraphs
    if trace is not None and trace.fixed is not None:
        op = trace.operator(op, *trace.fixed)
    attributes = scoped()
    operands = []
    input_names = op.signature.inputs if not op.variadic else tuple(f"arg{index}" for index in range(len(inputs)))
    for position, (input_name, item) in enumerate(zip(input_names, inputs, strict=True)):
        operands.append(_operand(op, position, input_name, item, node_name, attributes))
    if operands and not any(isinstance(item, Value) for item in operands):
        raise no_arrays(op, inputs, _needed())
    # Dropout in prediction also uses up the draw
    draw = (trace.next_draw() if trace else free_draw()) if drawing else None
    node = Node(
        op,
        operands,
        name=node_name,
        scope=trace.scope if trace else "",
        location=capture(),
        draw=draw if op.random or op.subgraphs else None,
        attrs=attributes or None,
    )
    kinds = (type(item) for item in inputs if isinstance(item, Symbol))
    return make_symbol(node, next((kind for kind in kinds if kind is not Symbol), Symbol))


def as_arrays(result: Symbol) -> Symbol | list[Symbol]:
    """The result of an operator's call: if Symbols stand for arrays, several outputs are a list, as in a call on
    arrays.
    """
    return list(result) if len(result.outputs) > 1 and tracing.stands_for_arrays() else result


def make_symbol(node: Node, kind: type[Symbol] = Symbol) -> Symbol:
    """The visible outputs of a node. kind : the class of the Symbol"""
    trace = tracing.current()
    if trace is not None:
        trace.nodes.append(node)
        trace.note_types(node)
    return kind(node.outputs[: node.op.signature.visible])


_draws = 0


def free_draw(count: int = 1) -> int:
    """The first of `count` draw numbers for Symbols composed by hand, outside any Block."""
    global _draws
    first = _draws
    _draws += count
    return first


def _attributes(node: Node) -> dict[str, str]:
    """The attributes of a node as strings: the operator's and the user's."""
    return shown({**({} if isinstance(node.op, Input) else node.op.written), **(node.attrs or {})})


def _operand(
    op: Operator,
    position: int,
    input_name: str,
    item: object,
    node_name: str,
    attributes: Mapping[str, str] | None = None,
) -> Any:
    if item is MISSING:
        if tracing.stands_for_arrays():  # the same error as on arrays
            raise missing_input(op, input_name)
        role = "aux" if input_name in op.signature.aux else "param"
        attrs = {**op.variable_attrs.get(input_name, {}), **(attributes or {})}
        return input_node(f"{node_name}_{input_name}", role, attrs=attrs or None)
    if isinstance(item, Symbol):
        if len(item.outputs) != 1:
            raise AttributeSpecError(
                f"{op.name}: the input {input_name} is a Symbol with {len(item.outputs)} outputs; pick one with [i]"
            )
        trace = tracing.current()
        return item.outputs[0] if trace is None else trace.outside_pause(item.outputs[0])
    if isinstance(item, (bool, int, float, np.integer, np.floating, np.bool_)):
        return item.item() if isinstance(item, np.generic) else item
    if hasattr(item, "_data") or isinstance(item, np.ndarray):
        raise tracing.refuse("HL164", tensor=input_name, value=item, expression=input_name, kind=_kind(item))
    raise no_input(op, position, item, _needed())


def _needed() -> str:
    """The kind of input for an error's message. Traced code is written for arrays, so its message asks for an
    NDArray.
    """
    return "a Symbol" if tracing.current() is None else "an NDArray"


def _kind(item: object) -> str:
    """The kind of an array in words, with its article."""
    return "a NumPy array" if isinstance(item, np.ndarray) else "an NDArray"


def _binary(operator: str, hint: str, lhs: object, rhs: object) -> Symbol:
    other = rhs if isinstance(lhs, Symbol) else lhs
    if isinstance(other, Symbol):
        return compose(get(operator).bind(), [lhs, rhs], None, hint=hint)
    if isinstance(other, (bool, int, float, np.integer, np.floating, np.bool_)):
        separator = "_scalar" if hint.startswith(("_equal", "_not", "_greater", "_lesser", "_logical")) else "scalar"
        return compose(get(operator).bind(), [lhs, rhs], None, hint=hint + separator)
    if hasattr(other, "_data") or isinstance(other, np.ndarray):
        raise tracing.refuse("HL164", tensor="an array", value=other, expression="the operand", kind=_kind(other))
    raise no_input(get(operator).bind(), 1 if other is rhs else 0, other, _needed())


def constant(array: np.ndarray, name: str | None = None) -> Symbol:
    """An array embedded in the graph (`F.array(...)`)."""
    trace = tracing.current()
    values = np.array(array, copy=True)
    values.flags.writeable = False
    node_name = scopes.NameManager.current.get(name, "constant")
    value = constant_node(values, name=node_name, scope=trace.scope if trace else "", location=capture())
    return make_symbol(value.node)


def dispatch(op: Operator, inputs: list[object], out: object, name: str | None, *, hint: str) -> Symbol | list[Symbol]:
    """The call of the functions of `sym`: see ops.surface. hint : the beginning of a name, if none is given"""
    if out is not None:
        raise AttributeSpecError(f"{op.name}: out= needs arrays; a Symbol has no memory to write to")
    return as_arrays(compose(op, inputs, name, hint=hint))


#: Functions that MXNet writes in Python -> the beginning of their nodes' names.
_HINTS = {"maximum": "_maximum", "minimum": "_minimum", "hypot": "_hypot"}

_methods: dict[str, object] = {}


def symbol_method(name: str) -> Any:
    """The operator `name` as a method of Symbol, or None."""
    if name.startswith("_"):
        return None
    method = _methods.get(name)
    if method is None:
        record = find(name)
        if record is None or not (record.input_names or record.variadic):
            return None
        method = _methods[name] = symbol_function(record, name)
    return method


def symbol_function(record: type[Operator], name: str, hint: str | None = None) -> Callable[..., Any]:
    """The function `sym.<name>` of a record. Further keywords such as `lr_mult=2` and `__layout__="NC"`, and the
    entries of a dict `attr`, become attributes of the node and of the variables made for omitted inputs.

    hint : the beginning of the node's name if none is given; by default the name of the function, as in MXNet:
        `sym.flip` makes flip0, though the record is called reverse
    """
    plain = make_function(record, partial(dispatch, hint=hint or _HINTS.get(name, name.lower())), name)

    @wraps(plain)
    def function(*args: Any, **keywords: Any) -> Any:
        own = {
            key: str(keywords.pop(key))
            for key in list(keywords)
            if key.startswith("__") or (key in SHORT_NAMES and key not in record.fields)
        }
        if keywords.get("attr"):
            own |= {key: str(value) for key, value in keywords.pop("attr").items()}
        if not own:
            return plain(*args, **keywords)
        for key in own:
            if key not in SHORT_NAMES and not (key.startswith("__") and key.endswith("__")):
                raise AttributeSpecError(f"{record.name}: unknown attribute {key}; attributes are named like __key__")
        with AttrScope(**own):
            return plain(*args, **keywords)

    return function
