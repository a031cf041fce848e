"""Samples: the small example inputs of a record, from which its tests and golden data are made."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from hybrid_lab.ops.framework.operator import Operator


@dataclass(frozen=True)
class Ints:
    """An array of whole numbers in [low, high), for indices and labels."""

    shape: tuple[int, ...]
    low: int = 0
    high: int = 10
    dtype: str = "float32"


@dataclass(frozen=True)
class Derived:
    """An array computed from the sample's other arrays: an output that a gradient operator takes as input."""

    function: Callable[[list[Any]], np.ndarray]

    def __repr__(self) -> str:
        return "Derived()"


@dataclass(frozen=True)
class Sample:
    """Inputs and attributes for one call of an operator.

    inputs : shapes (random distinct numbers in [low, high)), Ints, Derived, arrays, or Python scalars (immediates)
    gradient : whether the gradient is compared too (False for integer inputs)
    smooth : whether a derivative exists there (False for ties, where the gradient is a convention)
    """

    inputs: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    low: float = -1.0
    high: float = 1.0
    gradient: bool = True
    smooth: bool = True

    def arrays(self, name: str, dtype: str | None = None) -> list[Any]:
        """The inputs, the same in every process: seeded by `name` and the sample itself.

        `dtype` replaces a float dtype.
        """
        seed = zlib.crc32(f"{name}{self.inputs!r}{sorted(self.attributes.items())!r}{self.dtype}".encode())
        generator = np.random.RandomState(seed)
        made = [self._array(item, generator, dtype) for item in self.inputs]
        return [item.function(made) if isinstance(item, Derived) else item for item in made]

    def _array(self, item: Any, generator: np.random.RandomState, dtype: str | None) -> object:
        wanted = dtype if dtype and np.dtype(self.dtype).kind == "f" else self.dtype
        if isinstance(item, Ints):
            return generator.randint(item.low, item.high, item.shape).astype(item.dtype)
        if isinstance(item, np.ndarray):
            return item.astype(wanted) if item.dtype.kind == "f" else item
        if isinstance(item, tuple):
            return self._distinct(item, generator).astype(wanted)
        return item

    def _distinct(self, shape: tuple[int, ...], generator: np.random.RandomState) -> np.ndarray:
        """Numbers that are pairwise apart and off zero, so that maxima, signs and kinks are unambiguous."""
        count = int(np.prod(shape, dtype=np.int64))
        if np.dtype(self.dtype).kind in "iu":
            low = max(self.low, 0) if np.dtype(self.dtype).kind == "u" else self.low
            return generator.randint(int(low), max(int(self.high), int(low) + 1) + 8, shape)
        steps = (generator.permutation(count) + 0.25 + 0.5 * generator.rand(count)) / max(count, 1)
        return (self.low + (self.high - self.low) * steps).reshape(shape)


def sample(
    *inputs: Any, dtype: str = "float32", low: float = -1.0, high: float = 1.0, gradient: bool = True,
    smooth: bool = True, attrs: dict[str, Any] | None = None, **attributes: Any,
) -> Sample:  # fmt: skip
    """`sample((4, 5), axis=1)`: one call with a random (4, 5) array.

    `attrs=` holds attributes named like our own keywords (dtype).
    """
    return Sample(inputs, {**attributes, **(attrs or {})}, dtype, low, high, gradient, smooth)


def gradient_samples(
    record: type[Operator], *roles: str, chosen: Callable[[dict[str, Any]], bool] = lambda attributes: True
) -> list[Sample]:
    """Samples of an operator that computes the gradients of another one, from the samples of that one.

    record : the second operator
    roles : per input "dy", as the first output; "y", that output; "d", as the first input; or an input's name
    chosen : attributes -> whether the sample is chosen
    """
    samples = []
    for item in filter(lambda item: chosen(item.attributes), record.samples):
        op = record.bind(**item.attributes)
        shapes = [tuple(value) if isinstance(value, tuple) else value.shape for value in item.inputs]
        output = op.infer_shape(*shapes)
        names = op.signature.inputs
        values = dict(zip(names, item.inputs, strict=True))
        values |= {"dy": output[0] if isinstance(output, list) else output, "d": shapes[0]}
        if "y" in roles:
            values["y"] = Derived(partial(_output, op, [roles.index(name) for name in names]))
        samples.append(replace(item, inputs=tuple(values[role] for role in roles)))
    return samples


def _output(op: Operator, places: list[int], arrays: list[Any]) -> np.ndarray:
    return op.numpy(*[arrays[place] for place in places])


#: `ints((3, 4), 0, 5)`: whole numbers in [0, 5).
ints = Ints
