"""Mixed precision on and off, for the whole process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hybrid_lab.diagnostics import DTypeError, SettingError
from hybrid_lab.diagnostics.unknown_names import unknown_name
from hybrid_lab.gluon.trainer import trainers
from hybrid_lab.hybridize.calls import forget_all_programs
from hybrid_lab.ndarray import invoke as invoking
from hybrid_lab.ops.framework.dtypes import dtype_of, is_narrow
from hybrid_lab.ops.framework.precision import Precision
from hybrid_lab.system.logger import logger


def __getattr__(name: str) -> object:
    if name == "_amp_initialized":  # libraries ask for it
        return invoking.precision is not None
    raise unknown_name("hybrid_lab.mxnet.contrib.amp.mode", name, globals())


def init(
    target_dtype: object = "float16",
    target_precision_ops: Iterable[str] | None = None,
    conditional_fp32_ops: Iterable[Sequence[object]] | None = None,
    fp32_ops: Iterable[str] | None = None,
) -> None:
    """Compute in mixed precision from now on, eagerly and hybridized. Compiled calls are compiled anew.

    target_dtype : 'float16' or 'bfloat16'. bfloat16 has the range of float32, so that losses need no scaling, and fewer
        digits than float16
    target_precision_ops : names of the operators that compute in it, instead of `list_lp16_ops()`
    conditional_fp32_ops : (operator, attribute, values) for operators that compute in float32 if an attribute has one
        of the values, instead of `list_conditional_fp32_ops()`
    fp32_ops : names of the operators that compute in float32, instead of `list_fp32_ops()`

    All other operators compute in the dtype of their inputs, and in float32 if the inputs have both dtypes. Raises
    SettingError for an unknown operator or dtype, and if mixed precision is on with other settings. `disable()` ends
    it.
    """
    wanted = Precision(low_dtype(target_dtype, "amp.init"), target_precision_ops, fp32_ops, conditional_fp32_ops)
    now = invoking.precision
    if now is not None:
        if now != wanted:
            raise SettingError(f"amp.init: {now} is on with other settings; call amp.disable() first")
        return
    invoking.set_precision(wanted)
    forget_all_programs()
    logger.info(f"{wanted} is on")


def disable() -> None:
    """End mixed precision: compiled calls are compiled anew, Trainers skip no steps any more."""
    if invoking.precision is None:
        return
    invoking.set_precision(None)
    forget_all_programs()
    for trainer in tuple(trainers):
        if trainer._amp_loss_scaler is not None:
            trainer._amp_loss_scaler, trainer._scale = None, trainer._amp_original_scale


def low_dtype(dtype: object, what: str) -> np.dtype:
    """The low dtype that is asked for. Raises SettingError."""
    try:
        low = dtype_of(dtype)
    except DTypeError as error:  # bfloat16, and ml_dtypes is missing
        raise SettingError(f"{what}: {error}") from None
    except TypeError:
        low = None
    if low is None or not is_narrow(low):
        raise SettingError(f"{what}: target_dtype must be 'float16' or 'bfloat16', not {dtype!r}")
    return low
