"""Which operators compute in which precision, as lists of names under MXNet's function names."""

from __future__ import annotations

from collections.abc import Iterable

from hybrid_lab.ops import records
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.precision import SINGLE, Precision, conditional_operators, refuses

from .mode import low_dtype


def _precision(target_dtype: object) -> Precision:
    return Precision(low_dtype(target_dtype, "amp"))


def list_lp16_ops(target_dtype: object = "float16") -> list[str]:
    """The operators that compute in the low precision."""
    return sorted(_precision(target_dtype).low)


def list_fp32_ops(target_dtype: object = "float16") -> list[str]:
    """The operators that compute in float32."""
    return sorted(_public(_precision(target_dtype).float32))


def list_conditional_fp32_ops(target_dtype: object = "float16") -> list[tuple[str, str, list[str]]]:
    """(operator, attribute, values): operators that compute in float32 if the attribute has one of the values."""
    low_dtype(target_dtype, "amp")
    return [(name, attribute, list(values)) for name, attribute, values in conditional_operators()]


def list_widest_type_cast(target_dtype: object = "float16") -> list[str]:
    """The operators that need inputs of one dtype: they compute in float32 if one input is float32."""
    precision = _precision(target_dtype)
    return sorted(name for name in _others(precision) if _is_strict(name, precision))


def list_lp16_fp32_ops(target_dtype: object = "float16") -> list[str]:
    """The operators that compute in the dtype of their inputs."""
    precision = _precision(target_dtype)
    return sorted(name for name in _others(precision) if not _is_strict(name, precision))


def list_loss_output_functions(target_dtype: object = "float16") -> list[str]:
    """The operators that start a gradient of their own, which `scale_loss` does not scale."""
    low_dtype(target_dtype, "amp")
    return [record.name for record in records() if record.own_gradient is not False]  # True, or a property


def list_lp16_use_fp32_params(target_dtype: object = "float16") -> None:
    """None: no operator of low precision keeps parameters in float32, as in MXNet with float16."""
    low_dtype(target_dtype, "amp")


def _public(names: Iterable[str]) -> list[str]:
    """Without the operators that only gradients and lowerings use."""
    by_name = {record.name: record for record in records()}
    return [name for name in names if by_name[name].mxnet is not None]


def _others(precision: Precision) -> list[str]:
    listed = precision.low | precision.float32 | {name for name, _, _ in precision.conditional}
    return [name for name in _public(record.name for record in records()) if name not in listed]


def _is_strict(name: str, precision: Precision) -> bool:
    """Whether the operator refuses a call in which any floating input is in the low precision."""
    record: type[Operator] = next(record for record in records() if record.name == name)
    for sample in record.samples[:1]:
        attributes = {key: value for key, value in sample.attributes.items() if key not in record.scalars}
        dtypes = [getattr(item, "dtype", None) for item in sample.arrays(name)]
        floating = [index for index, dtype in enumerate(dtypes) if dtype == SINGLE]
        if len(floating) > 1:
            op = record.bind(**attributes)
            mixtures = [[precision.target if i == index else d for i, d in enumerate(dtypes)] for index in floating]
            return all(refuses(op, tuple(mixture)) for mixture in mixtures)
    return False
