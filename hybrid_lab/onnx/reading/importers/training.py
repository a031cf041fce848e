"""ONNX's optimizers as operators, of the domain ai.onnx.preview.training."""

from __future__ import annotations

from collections.abc import Sequence

from hybrid_lab.onnx.reading.importers.functions import Functions, Tensor
from hybrid_lab.onnx.reading.importers.table import operator

_DOMAIN = "ai.onnx.preview.training"


def _grouped(F: Functions, rest: tuple[Tensor, ...], count: int) -> list[tuple[Tensor, ...]]:
    """Per weight its operands, of which each kind stands together."""
    if len(rest) % count:
        raise F.unsupported(f"{len(rest)} tensors are no {count} for each weight")
    number = len(rest) // count
    return [rest[place::number] for place in range(number)]


def _spread(results: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return tuple(item for kind in zip(*results, strict=True) for item in kind)


@operator("Momentum", 1, _DOMAIN)
def _momentum(
    F: Functions,
    rate: Tensor,
    step: Tensor,
    *rest: Tensor,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> tuple[Tensor, ...]:
    results = []
    first = int(F.number(step, "the number of the step")) == 0
    for weight, gradient, momentum in _grouped(F, rest, 3):
        slope = gradient + weight * norm_coefficient
        new = momentum * alpha + slope * (1.0 if first else beta)
        towards = new if mode == "standard" else slope + new * alpha
        results.append((weight - rate * towards, new))
    return _spread(results)


@operator("Adagrad", 1, _DOMAIN)
def _adagrad(
    F: Functions, rate: Tensor, step: Tensor, *rest: Tensor, decay_factor: float = 0.0, epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> tuple[Tensor, ...]:  # fmt: skip
    results = []
    rate = rate / (F.cast(step, rate.dtype) * decay_factor + 1.0)
    for weight, gradient, total in _grouped(F, rest, 3):
        slope = gradient + weight * norm_coefficient
        new = total + F.square(slope)
        results.append((weight - rate * slope / (F.sqrt(new) + epsilon), new))
    return _spread(results)


@operator("Adam", 1, _DOMAIN)
def _adam(
    F: Functions, rate: Tensor, step: Tensor, *rest: Tensor, alpha: float = 0.9, beta: float = 0.999,
    epsilon: float = 1e-6, norm_coefficient: float = 0.0, norm_coefficient_post: float = 0.0,
) -> tuple[Tensor, ...]:  # fmt: skip
    results = []
    number = int(F.number(step, "the number of the step"))
    factor = (1 - beta**number) ** 0.5 / (1 - alpha**number) if number > 0 else 1.0
    for weight, gradient, mean, spread in _grouped(F, rest, 4):
        slope = gradient + weight * norm_coefficient
        new_mean = mean * alpha + slope * (1.0 - alpha)
        new_spread = spread * beta + F.square(slope) * (1.0 - beta)
        moved = weight - rate * factor * new_mean / (F.sqrt(new_spread) + epsilon)
        results.append((moved * (1.0 - norm_coefficient_post), new_mean, new_spread))
    return _spread(results)
