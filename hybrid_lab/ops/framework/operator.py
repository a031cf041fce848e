"""Operator: the class is the record, an instance is the operator bound to its attributes."""

from __future__ import annotations

import importlib
import inspect
import math
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, DTypeError, HybridLabError, RecordError, ShapeError
from hybrid_lab.ops.framework.attributes import Field, Scalar
from hybrid_lab.ops.framework.contract import RUN_KEYWORDS, check_record, named_parameters, read_shapes
from hybrid_lab.ops.framework.dtypes import BFLOAT16, bfloat16
from hybrid_lab.ops.framework.kernel import Kernel
from hybrid_lab.ops.framework.protocols import Functions, Tensor
from hybrid_lab.ops.framework.sample import Sample
from hybrid_lab.ops.framework.signature import Signature
from hybrid_lab.ops.framework.types import PartialShape, PartialShapes, PartialSizes, Shape

_PACKAGE = f"{__name__.partition('.')[0]}."
_REGISTRY: dict[str, type[Operator]] = {}
_RECORDS: list[type[Operator]] = []
_modules: dict[str, int] = {}
"""The modules of records -> their place in the order of `records()`; see `declare_modules`."""
_unloaded: list[str] = []
"""Those of them that may not be imported yet."""


class Operator:
    """Base of all records. docs/rooms/operators.md lists the members that a record may declare.

    Instances are interned per attribute values, immutable and hashable by identity: `Softmax.bind(axis=1) is
    Softmax.bind(axis=1)`.
    """

    name: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()
    family: ClassVar[str] = ""
    mxnet: ClassVar[str | None] = None
    """The operator's name in MXNet's files; None where MXNet has no such operator. Default: `name`."""
    fields: ClassVar[dict[str, Field]] = {}
    scalars: ClassVar[dict[str, Field]] = {}
    """The inputs annotated as `Scalar`: numbers or arrays with one element, which MXNet has as attributes."""
    declared: ClassVar[tuple[str, ...]] = ()
    """Names of fields and scalars in the order of their declaration, which is MXNet's."""
    samples: ClassVar[list[Sample]] = []

    alias_safe: ClassVar[bool] = False
    view: ClassVar[bool] = False
    identity: ClassVar[bool] = False
    """The output is the first input, value for value."""
    identity_if_alike: ClassVar[bool] = False
    """The output is the first input where the two have one shape and dtype."""
    in_order: ClassVar[bool] = False
    """The output has the elements of the first input in their order, in another shape."""
    permutes: ClassVar[bool] = False
    """The output is the first input with its axes in another order."""
    expensive: ClassVar[bool] = False
    """An element takes longer to compute than to read back from memory: a backward keeps the result."""
    precision: ClassVar[Literal["low", "float32"] | None] = None
    """What mixed precision computes the operator in: "low" is float16 or bfloat16. None: what its inputs are."""
    float32_where: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Mixed precision computes in float32 where an attribute has one of these values."""
    random: ClassVar[bool] = False
    mode_dependent: ClassVar[bool] = False
    shape_only: ClassVar[tuple[str, ...]] = ()
    shaped_like: ClassVar[int | None] = None
    """Number of the input whose shape the outputs have, of a record without `infer_shape`."""
    assumes_equal_shapes: ClassVar[bool] = False
    """Whether `complete` and `complete_from` assume that operands have one shape, though they may be broadcast. They
    are asked when nothing else is known.
    """
    typed_like: ClassVar[int | None] = None
    """Number of the input whose dtype the outputs have; None: all inputs must have one dtype, which is theirs."""
    arrays_only: ClassVar[tuple[str, ...]] = ()
    """Inputs in whose place a number is a DTypeError, as it is for the input of `typed_like`; "args" means all variadic
    ones.
    """
    dtype_kinds: ClassVar[str] = "fiub"
    """Which dtypes the first output may have, as NumPy's kind letters: "f" floating only, "fiu" no bool."""
    channels: ClassVar[int | None] = None
    """The axis of the output's channels, of a layer that can scale them by its weight: see `scaled_weight`."""
    triton: ClassVar[Kernel | None] = None
    """The operator in a Triton kernel; a property where attributes decide."""

    asks_bfloat16: bool = False
    """Whether an attribute of this instance is the dtype bfloat16."""
    is_open: bool = False
    """Whether some sizes of the array that this instance makes follow from its readers."""
    by_shapes: ClassVar[bool] = False
    """Whether `lower` takes the operator's place as soon as the shapes of a graph are known, before any other pass. Its
    gradient is that of `lower`.
    """
    passes_inputs: ClassVar[bool] = False
    """Whether each output is the input of the same number and depends on no other one."""
    refuses_gradient: ClassVar[bool] = False
    """Whether an operator without `grad` has a derivative other than zero: differentiating it is an AutogradError."""
    own_gradient: bool = False
    """Whether inputs get the gradient of a loss, whatever gradient arrives from above; may be a property."""
    channels_last: bool = False
    """Whether this instance is about data with channels last, so that graphs run what `channels_first` makes of it."""
    own_bfloat16: ClassVar[bool] = False
    """Whether `numpy()` takes bfloat16 as it is. Others, but for views, get and give float32: see `run.InFloat32`."""
    half_in_float32: ClassVar[bool] = False
    """Whether `numpy()` gets and gives float32 for float16, too."""

    signature: Signature = Signature()
    """The inputs and outputs; a cached property where attributes decide."""

    subgraphs: Any = ()
    """Pairs (label, graph): what an operator of control flow runs inside."""

    takes_ready: ClassVar[bool] = False
    """Whether `numpy()` takes `ready`, and calls it with the number of each output and its array as soon as nothing
    writes to the array any more: see `engines.engine.Ready`.
    """

    # Filled in per class.
    input_names: ClassVar[tuple[str, ...]] = ()
    variadic: ClassVar[bool] = False
    differentiable: ClassVar[bool] = False
    is_composite: ClassVar[bool] = False
    """Whether `lower` says how to write the operator in others; else it is a primitive."""
    run_keywords: ClassVar[frozenset[str]] = frozenset()
    grad_wants: ClassVar[bool] = False
    _interned: ClassVar[dict[tuple[Any, ...], Operator]]
    _bound: ClassVar[dict[Any, Operator]]

    def __init_subclass__(cls, name: str | None = None, aliases: Sequence[str] = (), **keywords: Any):
        super().__init_subclass__(**keywords)
        cls.aliases = tuple(aliases)
        cls.is_composite = cls.lower is not Operator.lower
        if name is None:
            return  # an abstract base of a family
        if not cls.__module__.startswith(_PACKAGE):
            load_all()  # so that a name in use is an error here
        cls.name = name
        cls.family = cls.__module__.rsplit(".", 1)[-1]
        declared = dict(_read_fields(cls))
        cls.declared = tuple(declared)
        cls.scalars = {key: field for key, field in declared.items() if field.annotation is Scalar}
        cls.fields = {key: field for key, field in declared.items() if key not in cls.scalars}
        cls.input_names, cls.variadic = cls.named_inputs()
        if isinstance(inspect.getattr_static(cls, "signature"), Signature):
            cls.signature = replace(cls.signature, inputs=cls.input_names)
        if "mxnet" not in cls.__dict__:
            # None is inherited from a family's abstract base, a name is not.
            families = [base for base in cls.__mro__ if base not in (cls, Operator) and not getattr(base, "name", "")]
            cls.mxnet = None if any(base.__dict__.get("mxnet", name) is None for base in families) else name
        cls.differentiable = cls.grad is not Operator.grad
        cls.grad_wants = "wanted" in named_parameters(cls.grad)[0]
        cls.run_keywords = frozenset(named_parameters(cls.numpy)[0]) & frozenset(RUN_KEYWORDS)
        cls._interned, cls._bound = {}, {}
        check_record(cls, Operator)
        for key in (name, *cls.aliases):
            if key in _REGISTRY:
                raise HybridLabError(
                    f"operator {key!r} is declared twice: {_REGISTRY[key].__qualname__} and {cls.__qualname__}"
                )
            _REGISTRY[key] = cls
        _RECORDS.append(cls)

    # -- instances ---------------------------------------------------------------------------------------------

    @classmethod
    def bind(cls, **attributes: Any) -> Operator:
        """The operator with these attributes (MXNet's strings are parsed). Raises AttributeSpecError."""
        try:
            key = tuple(attributes.items())
            return cls._bound[key]
        except KeyError:
            bound = cls._parse(attributes)
            # Equal keys (1, 1.0, True) parse to the same value of the field's type, except for the sign of zero: after
            # `a_min=0`, `a_min=-0.0` would find its entry.
            given = [bound.attributes[name] for name in attributes]
            zeros = any(type(value) is float and value == 0 for value in given)
            if len(cls._bound) < 4096 and not zeros:
                cls._bound[key] = bound
            return bound
        except TypeError:
            return cls._parse(attributes)

    @classmethod
    def _parse(cls, attributes: dict[str, Any]) -> Operator:
        values = {name: field.default for name, field in cls.fields.items()}
        for key, value in attributes.items():
            field = cls.fields.get(key)
            if field is None or key.startswith("_"):
                raise AttributeSpecError(unknown_attribute(cls, key))
            values[key] = field.read(cls.name, value)
        for name, field in cls.fields.items():
            if field.required and name not in attributes:
                raise AttributeSpecError(f"{cls.name}: the attribute {name} is missing")
        return cls._intern(values)

    @classmethod
    def _intern(cls, values: dict[str, Any]) -> Operator:
        key = tuple(repr(value) if type(value) is float else value for value in values.values())
        operator = cls._interned.get(key)
        if operator is None:
            operator = object.__new__(cls)
            for name, value in values.items():
                object.__setattr__(operator, f"{name}_" if _is_rule(name) else name, value)
            object.__setattr__(operator, "attributes", values)
            object.__setattr__(operator, "inferred", {})
            if BFLOAT16 in values.values():
                bfloat16()  # from here on NumPy knows the name, for which records ask it
                object.__setattr__(operator, "asks_bfloat16", True)
            operator.check()
            cls._interned[key] = operator
        return operator

    @classmethod
    def split_scalars(cls, inputs: Sequence[Any], keywords: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Inputs with the scalars that follow the tensors filled in - from the keywords, else their defaults - and the
        remaining keywords. Raises AttributeSpecError for a missing scalar.
        """
        names = cls.input_names
        arguments = list(inputs)
        for name in names[len(arguments) :]:
            field = cls.scalars.get(name)
            if field is None:
                break
            if name in keywords:
                value = keywords[name]
                arguments.append(field.read(cls.name, value) if isinstance(value, str) else value)
            elif field.required:
                raise AttributeSpecError(f"{cls.name}: the attribute {name} is missing")
            else:
                arguments.append(field.default)
        consumed = names[len(inputs) : len(arguments)]
        return tuple(arguments), {key: value for key, value in keywords.items() if key not in consumed}

    def variant(self, **changes: Any) -> Any:
        """This operator with some attributes changed, also hidden attributes. Values are not converted."""
        return self._intern({**self.attributes, **changes})

    attributes: dict[str, Any]
    """The values of all fields, hidden ones too."""
    inferred: dict[Any, Any]
    """What `run.infer` found: (input shapes, input dtypes) -> (output shapes, output dtypes)."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{self.name} is immutable; use variant({name}=...)")

    def __reduce__(self) -> tuple[Callable[..., Operator], tuple[str, dict[str, Any]]]:
        return _rebuild, (self.name, self.attributes)

    def __copy__(self) -> Operator:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Operator:
        return self

    @cached_property
    def changed(self) -> dict[str, Any]:
        """The attributes that differ from their defaults, also hidden attributes."""
        return {
            name: self.attributes[name]
            for name, field in self.fields.items()
            if field.required or self.attributes[name] != field.default
        }

    @property
    def written(self) -> dict[str, Any]:
        """The visible attributes that differ from their defaults."""
        return {name: value for name, value in self.changed.items() if not name.startswith("_")}

    @cached_property
    def _text(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self.written.items())
        return f"{self.name}({inner})"

    def __repr__(self) -> str:
        return self._text

    # -- what records override ---------------------------------------------------------------------------------

    @classmethod
    def named_inputs(cls) -> tuple[tuple[str, ...], bool]:
        """The names of the inputs, and whether any number of further inputs may follow."""
        if cls.infer_shape is not Operator.infer_shape:
            return named_parameters(cls.infer_shape)
        names, more = named_parameters(cls.numpy)
        if more and cls.lower is not Operator.lower:  # the kernel takes the inputs of `lower`
            names, more = named_parameters(cls.lower)
        return tuple(name for name in names if name != "F" and name not in RUN_KEYWORDS), more

    variable_attrs: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Input -> attributes of the variable that stands for it where a Symbol is composed without it."""

    def check(self) -> None:
        """Raise AttributeSpecError if attributes contradict one another. Runs once per instance."""

    def reads_values(self, index: int) -> bool:
        """Whether input number `index` is read for more than its shape and dtype.

        "args" in shape_only means all variadic inputs.
        """
        names = self.signature.inputs
        return (names[index] if index < len(names) else "args") not in self.shape_only

    def needs_array(self, index: int) -> bool:
        """Whether a number in the place of input number `index` is an error: see `arrays_only`."""
        if index == self.typed_like or (self.variadic and "args" in self.arrays_only):
            return True
        names = self.signature.inputs
        return index < len(names) and names[index] in self.arrays_only

    def reads_for(self, output: int, index: int) -> bool:
        """Whether output number `output` is computed from the values of input number `index`."""
        return self.reads_values(index)

    def complete(self, *shapes: PartialShape) -> PartialShapes:
        """Fill unknown input shapes (None) and dimensions (None inside) from the known shapes and the attributes."""
        return shapes

    def complete_from(self, output: PartialSizes, *shapes: PartialShape) -> PartialShapes:
        """Fill unknown input shapes from the first output, some of whose sizes are known, if they follow.

        Sizes that `infer_shape` copies from one input need no rule: see graph.partial.
        """
        return shapes

    def multiply_adds(self, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
        """The number of multiply-adds of the operator, for inputs and outputs of these shapes.

        0 for operators that are no products: they take about one operation for each element. One multiply-add is two
        FLOP.
        """
        return 0

    def infer_shape(self, *shapes: Shape) -> Any:
        """Complete input shapes -> the output's shape, or a list of shapes. Raises ShapeError."""
        if self.shaped_like is None:
            raise NotImplementedError(f"{self.name} has no shape rule")
        expected = self.first_shape(*shapes)
        if expected is not None and shapes[0] != expected:
            raise ShapeError(f"{self.name}: {self.signature.inputs[0]} has shape {shapes[0]}; it needs {expected}")
        count = self.signature.outputs
        return shapes[self.shaped_like] if count == 1 else [shapes[self.shaped_like]] * count

    def first_shape(self, *shapes: Shape) -> Shape | None:
        """The shape that the first input must have, for records without `infer_shape`. None allows any shape.

        For gradients, whose first input is the gradient of an output. shapes : of all inputs. Raises ShapeError if the
        remaining inputs do not fit.
        """
        return None

    def infer_type(self, *dtypes: np.dtype | None) -> Any:
        """Input dtypes (None: an immediate) -> the output's dtype, or a list. Raises DTypeError."""
        if self.typed_like is not None:
            return dtypes[self.typed_like]
        tensors = [dtype for dtype in dtypes if dtype is not None]
        if not tensors:
            return np.dtype("float32")
        if any(dtype != tensors[0] for dtype in tensors):
            names = ", ".join(dtype.name for dtype in tensors)
            raise DTypeError(
                f"{self.name}: inputs have different dtypes ({names}); convert one with F.cast(x, dtype=...)"
            )
        return tensors[0]

    def numpy(self, *inputs: Any, out: Any = None) -> Any:
        """The reference kernel."""
        raise NotImplementedError(f"{self.name} has no NumPy kernel")

    def bind_mode(self, train: bool) -> Operator:
        """The operator to run in training or prediction; only mode_dependent records override it."""
        return self

    def channels_first(self, F: Functions, *inputs: Tensor) -> Tensor:
        """An operator with `channels_last`, written with operators on data with channels first."""
        raise NotImplementedError(f"{self.name} has no layout")

    def fix_mode(self, train: bool) -> Operator | None:
        """The operator that runs in training or prediction independently of the call's mode; None if no attribute can
        express that. Graphs and files hold it, so it must be expressed by public attributes.
        """
        if not self.mode_dependent:
            return self
        bound = self.bind_mode(train)
        return None if bound.mode_dependent else bound

    def aux(self, F: Functions, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
        """New values of auxiliary states by input name; empty outside training."""
        return {}

    def bound(self, sizes: Sequence[float], shapes: Sequence[Shape], filters: Callable[[int], float]) -> float:
        """The largest |element| that the first output can have if the elements of input i are at most `sizes[i]` in
        magnitude.

        shapes : of the inputs; filters : index of a weight among the inputs -> the largest sum of |elements| over one
        output channel; inf for an unknown weight
        """
        return sizes[0] if self.view or self.identity or self.in_order else math.inf

    def grad(self, F: Functions, *values: Any) -> Any:
        """Gradients of the inputs from inputs, outputs and output gradients.

        A record may name a last keyword `wanted=None`: one bool per input, None meaning all; unwanted gradients may be
        None.
        """
        raise NotImplementedError(f"{self.name} is not differentiable")

    def presence(self, node: Any, index: int) -> Any:
        """If output `index` of a graph's node is a gradient that only some calls have: the Value of shape (1,) that is
        0 in calls without the gradient. None: every call has it.
        """
        return None

    def scaled_weight(self, F: Functions, weight: Tensor, scale: Tensor) -> Tensor:
        """The weight for outputs `scale` times as large; `scale` has one number per channel."""
        return weight * F._channel_like(scale, weight, axis=0)

    def lower(self, F: Functions, *inputs: Any) -> Any:
        """The operator in primitives."""
        raise NotImplementedError(f"{self.name} is a primitive")

    # `onnx` is a method `onnx(self, g, *inputs)` or the ONNX operator's name as a string.
    onnx: Any = None


def _rebuild(name: str, attributes: dict[str, Any]) -> Operator:
    return get(name)._intern(attributes)


def _is_rule(name: str) -> bool:
    """Whether a method of Operator has this name: MXNet's attribute of this name is declared as `lower_`."""
    return callable(getattr(Operator, name, None))


def _read_fields(cls: type[Operator]) -> Iterator[tuple[str, Field]]:
    """The annotated attributes of a record, bases first, without ClassVars and our own bookkeeping."""
    seen: dict[str, tuple[Any, Any, bool]] = {}
    for base in reversed(cls.__mro__):
        if base is object or base is Operator or not issubclass(base, Operator):
            continue
        for name, text in inspect.get_annotations(base).items():
            annotation: object = _evaluated(base.__module__, text)
            if typing.get_origin(annotation) is ClassVar or annotation is ClassVar:
                continue
            seen.pop(name, None)  # a field declared again takes the place of the new declaration
            seen[name] = (annotation, base.__dict__.get(name), name not in base.__dict__)
    for name, (annotation, default, required) in seen.items():
        if not required and name in cls.__dict__:
            default = cls.__dict__[name]
        name = name[:-1] if name.endswith("_") and _is_rule(name[:-1]) else name
        try:
            field = Field(name, annotation, default, required)
        except TypeError as error:
            raise RecordError(cls.name, name, str(error)) from None
        if not required:
            try:
                field.read(cls.name, default)
            except AttributeSpecError as error:
                raise RecordError(cls.name, name, f"has a default that its type does not take: {error}") from None
        yield name, field


@cache
def _evaluated(module: str, annotation: Any) -> Any:
    """An annotation as an object; most are strings, because records postpone the evaluation."""
    return eval(annotation, vars(sys.modules[module])) if isinstance(annotation, str) else annotation


def unknown_attribute(cls: type[Operator], key: str) -> str:
    """The message for an attribute that the record lacks, with the nearest names."""
    import difflib

    public = [name for name in cls.declared if not name.startswith("_")]
    near = difflib.get_close_matches(key, public, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(public) or 'none'}"
    return f"{cls.name}: unknown attribute {key}{hint}"


def declare_modules(names: Sequence[str]) -> None:
    """Name all modules of records, in the order of `records()`. The first request for a name without an imported record
    imports all modules.
    """
    _modules.update((name, place) for place, name in enumerate(names))
    _unloaded[:] = names


def load_all() -> None:
    """Import all modules of records."""
    for name in tuple(_unloaded):
        importlib.import_module(name)
    _unloaded.clear()


def get(name: str) -> type[Operator]:
    """The record of an operator by its name or alias. Raises HybridLabError with the nearest names."""
    try:
        return _REGISTRY[name]
    except KeyError:
        if (record := find(name)) is not None:
            return record
        import difflib

        near = difflib.get_close_matches(name, _REGISTRY, n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise HybridLabError(f"there is no operator named {name!r}{hint}") from None


def forward_shape(name: str, *shapes: Shape, **attributes: Any) -> Shape:
    """The shape of an operator's first output, and of the gradient that arrives there. Raises ShapeError."""
    op = get(name).bind(**attributes)
    return read_shapes(op, op.infer_shape(*shapes))[0]


def find(name: str) -> type[Operator] | None:
    """The record, or None."""
    record = _REGISTRY.get(name)
    if record is None and _unloaded and not name.startswith("__"):
        load_all()
        record = _REGISTRY.get(name)
    return record


def records() -> list[type[Operator]]:
    """All records, each once, in the order of declaration."""
    load_all()
    return sorted(_RECORDS, key=lambda record: _modules.get(record.__module__, len(_modules)))


def registered_names() -> dict[str, type[Operator]]:
    """Every name and alias with its record."""
    load_all()
    return dict(_REGISTRY)
