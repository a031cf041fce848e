"""Random calls of operators: a sample of a record with other sizes, attributes, numbers and dtypes."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from hybrid_lab import ops
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.ops.framework.attributes import DType, Field, Scalar
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.run import infer
from hybrid_lab.ops.framework.sample import Derived, Ints, Sample
from tests.random_programs.writing import Chance

#: Operators that MXNet runs with oneDNN or on GPUs only, or not at all.
ABSENT = {
    "RNN",
    "BatchNorm_v1",
    "_contrib_BatchNormWithReLU",
    "_contrib_fft",
    "_contrib_ifft",
    "_contrib_count_sketch",
    "_contrib_group_adagrad_update",
}

#: An operator with a Python number for one of its arrays, as users write it.
_WITH_NUMBER = {
    "broadcast_add": "({0} + {1})",
    "broadcast_sub": "({0} - {1})",
    "broadcast_mul": "({0} * {1})",
    "broadcast_div": "({0} / {1})",
    "broadcast_mod": "({0} % {1})",
    "broadcast_power": "({0} ** {1})",
    "broadcast_maximum": "F.maximum({0}, {1})",
    "broadcast_minimum": "F.minimum({0}, {1})",
    "broadcast_equal": "({0} == {1})",
    "broadcast_not_equal": "({0} != {1})",
    "broadcast_greater": "({0} > {1})",
    "broadcast_greater_equal": "({0} >= {1})",
    "broadcast_lesser": "({0} < {1})",
    "broadcast_lesser_equal": "({0} <= {1})",
}

#: Families whose operands broadcast.
_BROADCAST = {"arithmetic", "comparison"}
#: Families that take arrays of any rank, all of one shape.
_ANY_SHAPE = {
    "elementwise",
    "special",
    "reduce",
    "movement",
    "reshape",
    "softmax",
    "order",
    "scan",
    "cast",
    "finite",
    "piecewise",
    "activation",
    "surrogate",
    "formulas",
    "slicing",
    "creation",
    "select",
    "arithmetic",
    "comparison",
    "norm",
}
#: Attributes that are sizes of axes: they follow where a size changes.
_SIZES = {"num_hidden", "num_filter", "input_dim", "output_dim", "depth", "num_outputs", "shape", "size", "state_size"}
_AXES = {"axis", "dim", "dim1", "dim2", "axes"}
_NAMES = "abcdefghijklmnopqrstuvwxyz"


@dataclass
class Draft:
    """A call that is being written. items : its inputs, as in a sample; shapes are tuples"""

    items: list[Any]
    attributes: dict[str, Any]
    dtype: str


@cache
def members() -> list[tuple[type[Operator], list[Sample]]]:
    """The records that MXNet has, with their samples."""
    found = []
    for record in ops.records():
        samples = [item for item in record.samples if not _is_foreign(record, item)]
        absent = record.mxnet in ABSENT or str(record.mxnet).startswith("_contrib_quantized_")
        if record.mxnet and not absent and samples and record.__module__.startswith("hybrid_lab.ops."):
            found.append((record, samples))
    return found


def _is_foreign(record: type[Operator], sample: Sample) -> bool:
    """Whether MXNet cannot take a sample: arrays for its attributes, or arrays that are computed from others."""
    names = record.input_names
    loaded = any(
        name in record.scalars and not isinstance(item, (int, float))
        for name, item in zip(names, sample.inputs, strict=False)
    )
    return loaded or any(isinstance(item, Derived) for item in sample.inputs)


def operator_case(chance: Chance, seed: int) -> dict[str, Any]:
    """A call of an operator."""
    record, samples = chance.one_of(members())
    sample = chance.one_of(samples)
    draft = _draft(chance, record, sample)
    for attempt in range(8):
        draft = _draft(chance, record, sample, calm=attempt > 4)
        if fits(record, draft) or chance.often(0.03):
            break
    else:
        draft = Draft(list(sample.inputs), dict(sample.attributes), sample.dtype)
    return _case(chance, seed, record, sample, draft)


def fits(record: type[Operator], draft: Draft) -> bool:
    """Whether Hybrid Lab's record takes these shapes, dtypes and attributes."""
    try:
        op = record.bind(**{key: value for key, value in draft.attributes.items() if key not in record.scalars})
        items = list(draft.items)
        shapes = tuple(_shape(item) for item in items)
        dtypes = tuple(None if shape is None else np.dtype(_dtype(item, draft)) for item, shape in zip(items, shapes))
        infer(op.bind_mode(True), tuple(() if shape is None else shape for shape in shapes), dtypes)
    except HybridLabError:
        return False
    except Exception:  # an error without a type, which the case shall show
        return True
    return True


def _shape(item: Any) -> tuple[int, ...] | None:
    if isinstance(item, tuple):
        return item
    return tuple(item.shape) if isinstance(item, (Ints, np.ndarray)) else None


def _dtype(item: Any, draft: Draft) -> str:
    if isinstance(item, tuple):
        return draft.dtype
    return str(np.dtype(item.dtype).name)


# -- drafts --------------------------------------------------------------------------------------------------------


def _draft(chance: Chance, record: type[Operator], sample: Sample, calm: bool = False) -> Draft:
    items, attributes = list(sample.inputs), dict(sample.attributes)
    plain = all(isinstance(item, (tuple, float, int)) for item in items)
    if plain and record.family in _ANY_SHAPE and chance.often(0.6) and not calm:
        items = _any_shapes(chance, record, items)
    else:
        items, attributes = _renamed(chance, items, attributes, calm)
    rank = next((len(item) for item in items if isinstance(item, tuple)), 2)
    for name, field in {**record.fields, **record.scalars}.items():
        if not name.startswith("_") and chance.often(0.12 if calm else 0.3):
            attributes[name] = value_of(chance, field, attributes.get(name, field.default), rank)
    return Draft(
        items,
        {key: value for key, value in attributes.items() if value is not _KEEP},
        _dtype_for(chance, record, sample),
    )


def _dtype_for(chance: Chance, record: type[Operator], sample: Sample) -> str:
    if sample.dtype != "float32" or any(not isinstance(item, (tuple, float, int)) for item in sample.inputs):
        return "float64" if sample.dtype == "float32" and chance.often(0.1) else sample.dtype
    if chance.often(0.6):
        return "float32"
    return chance.one_of(["float64", "float64", "float64", "float16", "int32", "int64", "uint8", "int8"])


def _any_shapes(chance: Chance, record: type[Operator], items: list[Any]) -> list[Any]:
    """All arrays get one random shape, or shapes that broadcast."""
    rank = chance.one_of([1, 1, 2, 2, 2, 3, 3, 4, 5])
    shape = tuple(chance.one_of([1, 1, 2, 2, 3, 3, 4, 5, 7]) for _ in range(rank))
    if record.family not in _BROADCAST:
        return [shape if isinstance(item, tuple) else item for item in items]
    return [
        tuple(1 if chance.often(0.25) else size for size in shape) if isinstance(item, tuple) else item
        for item in items
    ]


def _renamed(
    chance: Chance, items: list[Any], attributes: dict[str, Any], calm: bool
) -> tuple[list[Any], dict[str, Any]]:
    """Sizes become other sizes, wherever they stand."""
    sizes = {size for item in items if isinstance(item, (tuple, Ints)) for size in _shape(item) or ()}
    names = {
        size: chance.one_of([1, 2, 3, 4, 5, 6, 8]) for size in sorted(sizes) if chance.often(0.25 if calm else 0.45)
    }

    def renamed(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(renamed, value))
        return names.get(value, value) if isinstance(value, int) and not isinstance(value, bool) else value

    changed = [
        Ints(renamed(item.shape), item.low, max(item.low + 1, renamed(item.high)), item.dtype)
        if isinstance(item, Ints)
        else renamed(item)
        if isinstance(item, tuple)
        else item
        for item in items
    ]
    return changed, {key: renamed(value) if key in _SIZES else value for key, value in attributes.items()}


_KEEP = object()


def value_of(chance: Chance, field: Field, value: Any, rank: int) -> Any:
    """Another value of an attribute."""
    annotation = field.annotation
    optional = False
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        options = [each for each in typing.get_args(annotation) if each is not type(None)]
        optional = type(None) in typing.get_args(annotation)
        if optional and chance.often(0.25):
            return _KEEP
        annotation = chance.one_of(options)
    if typing.get_origin(annotation) is Literal:
        return chance.one_of([each for each in typing.get_args(annotation) if each is not None])
    maker = _MAKERS.get(annotation)
    return maker(chance, field.name, value, rank) if maker else value


def _bool(chance: Chance, name: str, value: Any, rank: int) -> bool:
    return chance.often(0.5)


def _int(chance: Chance, name: str, value: Any, rank: int) -> int:
    if name in _AXES:
        return chance.randrange(-rank, rank) if chance.often(0.96) else rank + 1
    if isinstance(value, int) and not isinstance(value, bool) and chance.often(0.7):
        return max(value + chance.one_of([-1, 1, 2]), 0 if value >= 0 else -5)
    return chance.one_of([0, 1, 1, 2, 3, -1, -2])


def _float(chance: Chance, name: str, value: Any, rank: int) -> float:
    if isinstance(value, float) and value and chance.often(0.6):
        return float(f"{value * chance.one_of([0.5, 1.5, 2.0, 0.1]):.4g}")
    return chance.one_of([0.0, 0.5, 1.0, -0.5, 2.0, 0.1])


def _shape_value(chance: Chance, name: str, value: Any, rank: int) -> Any:
    if name in _AXES:
        axes = list(range(rank))
        chance.shuffle(axes)
        count = rank if name == "axes" else chance.randrange(1, rank + 1)
        return tuple(axis - rank if chance.often(0.15) else axis for axis in axes[:count])
    length = len(value) if isinstance(value, tuple) and value else chance.one_of([1, 2, 2, rank])
    if name in ("shape", "reps", "begin", "end", "step", "slice_like"):
        return tuple(chance.one_of([0, 1, 2, -1, 3, -2, 4]) for _ in range(length))
    return tuple(chance.one_of([1, 1, 2, 3, 0]) for _ in range(length))


def _optional_ints(chance: Chance, name: str, value: Any, rank: int) -> Any:
    length = len(value) if isinstance(value, tuple) else chance.randrange(1, rank + 1)
    return tuple(chance.one_of([None, 0, 1, 2, -1, -2]) for _ in range(length))


def _floats(chance: Chance, name: str, value: Any, rank: int) -> Any:
    if isinstance(value, tuple) and value:
        return tuple(float(f"{each * chance.one_of([0.5, 1.0, 1.5]):.4g}") for each in value)
    return value


def _dtype_value(chance: Chance, name: str, value: Any, rank: int) -> str:
    return chance.one_of(["float32", "float32", "float64", "float64", "float16", "int32", "int64", "uint8", "int8"])


def _same(chance: Chance, name: str, value: Any, rank: int) -> Any:
    return value if value is not None else _KEEP


_MAKERS: dict[Any, Callable[[Chance, str, Any, int], Any]] = {
    bool: _bool,
    int: _int,
    float: _float,
    Scalar: _float,
    str: _same,
    DType: _dtype_value,
    tuple[int, ...]: _shape_value,
    tuple[int | None, ...]: _optional_ints,
    tuple[float, ...]: _floats,
}


# -- cases ---------------------------------------------------------------------------------------------------------


def _case(chance: Chance, seed: int, record: type[Operator], sample: Sample, draft: Draft) -> dict[str, Any]:
    arrays: dict[str, dict[str, Any]] = {}
    words: list[str] = []
    kind = _kind_of_numbers(chance, sample, draft)
    for index, item in enumerate(draft.items):
        if _shape(item) is None:
            words.append(repr(item))
            continue
        name = _NAMES[index] if index < len(_NAMES) else f"x{index}"
        arrays[name] = _spec(chance, sample, draft, item, kind)
        words.append(name)
    try:
        signature = record.bind(**{k: v for k, v in draft.attributes.items() if k not in record.scalars}).signature
        names, aux = signature.inputs, signature.aux
    except HybridLabError:
        names, aux = record.input_names, ()
    places = [name if index < len(names) and names[index] in aux else "" for index, name in enumerate(words)]
    after = [name for name in places if name]
    case: dict[str, Any] = {"seed": seed, "kind": "operator", "name": record.mxnet, "arrays": arrays}
    text = _text(record, words, draft.attributes, names)
    targets = _targets(record, draft)
    if targets and max(targets) < len(words):
        out = ", ".join(words[place] for place in targets)
        text = f"{text[:-1]}, out={'[' + out + ']' if len(targets) > 1 else out})"
        after += [name for name in arrays if name not in after]
    case["text"] = text
    floating = [
        name for name, item in zip(words, draft.items, strict=True)
        if name in arrays and not isinstance(item, Ints) and np.dtype(arrays[name]["dtype"]).kind == "f"
    ]  # fmt: skip
    if sample.gradient and not targets:
        case["grads"] = [name for name in floating if name not in after]
    if after:
        case["after"] = after
    if record.mode_dependent:
        case["train"] = chance.often(0.7)
    passes = record.name == "Dropout" and not case.get("train", True) and "'always'" not in case["text"]
    if record.random and not passes:
        case["random"] = True
    return case


def _kind_of_numbers(chance: Chance, sample: Sample, draft: Draft) -> str:
    if any(not isinstance(item, (tuple, float, int)) for item in draft.items):
        return "plain"
    kinds = ["plain"] * 8 + ["whole", "whole", "special", "zeros"]
    kind = chance.one_of(kinds)
    return "plain" if kind == "zeros" and chance.often(0.5) else kind


def _spec(chance: Chance, sample: Sample, draft: Draft, item: Any, kind: str) -> dict[str, Any]:
    seed = chance.randrange(10**6)
    if isinstance(item, Ints):
        return {"shape": list(item.shape), "dtype": item.dtype, "values": "ints", "low": item.low, "high": item.high,
                "seed": seed, "exact": True}  # fmt: skip
    if isinstance(item, np.ndarray):
        wanted = draft.dtype if item.dtype.kind == "f" and item.dtype != np.float16 else item.dtype.name
        return {"shape": list(item.shape), "dtype": wanted, "data": item.ravel().tolist()}
    return {
        "shape": list(item),
        "dtype": draft.dtype,
        "values": kind,
        "low": sample.low,
        "high": sample.high,
        "seed": seed,
    }


def _targets(record: type[Operator], draft: Draft) -> tuple[int, ...]:
    if not hasattr(record, "targets"):
        return ()
    try:
        return tuple(record.bind(**{k: v for k, v in draft.attributes.items() if k not in record.scalars}).targets())
    except HybridLabError:
        return ()


class Word(str):
    """The name of an array, which is written without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _place(record: type[Operator], index: int) -> str:
    return record.input_names[index] if index < len(record.input_names) else ""


def _text(record: type[Operator], words: list[str], attributes: dict[str, Any], names: tuple[str, ...]) -> str:
    given, number = [], None
    written = dict(attributes)
    for index, word in enumerate(words):
        if word.isidentifier() and index < len(names) and names[index] != _place(record, index):
            written[names[index]] = Word(word)  # an optional input is left out before it
        elif word.isidentifier():
            given.append(word)
        elif index < len(names) and names[index] in record.scalars:
            number_word = float(word)
            written[names[index]] = (
                int(number_word) if number_word.is_integer() and names[index] == "t" else number_word
            )
        else:
            number = index
    if number is not None and record.name in _WITH_NUMBER and len(words) == 2:
        return _WITH_NUMBER[record.name].format(*words)
    given += [f"{key}={value!r}" for key, value in written.items()]
    return f"{_function(str(record.mxnet))}({', '.join(given)})"


def _function(name: str) -> str:
    for prefix, room in (("_contrib_", "contrib"), ("_linalg_", "linalg"), ("_image_", "image")):
        if name.startswith(prefix):
            return f"F.{room}.{name[len(prefix) :]}"
    return f"op({name!r})" if name.startswith("_") else f"F.{name}"
