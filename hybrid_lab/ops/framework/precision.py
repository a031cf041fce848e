"""Mixed precision: which operators compute in a low precision, which in float32, and the dtype of each of a call's
inputs.

Records say it in `precision` and `float32_where`, for eager calls and for graphs, for float16 and for bfloat16:

low         sums of products, which have units of their own on GPUs and add up in float32 there
float32     functions whose results, or whose slopes, soon leave the range of float16, and lose digits in bfloat16; sums
            of many; linear algebra; positions, of which float16 counts 2,048, bfloat16 256

Every other operator computes in the dtype of its inputs; if its record refuses mixed dtypes, in the wider dtype. The
choice is MXNet's `contrib.amp`, except for products of arrays (`dot`, `batch_dot`, attention), which MXNet leaves in
the dtype of their inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError, SettingError
from hybrid_lab.ops.framework.operator import Operator, find, records, registered_names
from hybrid_lab.system.logger import logger

HALF, SINGLE, DOUBLE = np.dtype("float16"), np.dtype("float32"), np.dtype("float64")
_CASTS = frozenset({"Cast", "_cast_like", "amp_cast", "amp_multicast", "BlockGrad"})


class Precision:
    """The settings of mixed precision: the low dtype, and which operators compute in which.

    low, float32 : names of operators (MXNet's count too); conditional : (name, attribute, values), for float32 there;
    None: the records' choice
    Raises SettingError for names that no operator has, and for names in two of the lists.
    """

    def __init__(
        self, target: Any = HALF, low: Iterable[str] | None = None, float32: Iterable[str] | None = None,
        conditional: Iterable[Sequence[Any]] | None = None,
    ):  # fmt: skip
        self.target = np.dtype(target)
        self.low = _stated("low") if low is None else _named(low, "the operators of low precision")
        given = frozenset() if float32 is None else _named(float32, "the operators of float32")
        pairs = conditional_operators() if conditional is None else list(conditional)
        self.conditional = tuple(
            (next(iter(_named([name], "conditional_fp32_ops"))), attribute, tuple(values))
            for name, attribute, values in pairs
        )
        both = self.low & (given | {name for name, _, _ in self.conditional})
        if both:
            hint = "; give both lists to move an operator from one to the other" if low is None else ""
            names = ", ".join(sorted(both))
            raise SettingError(f"{names} cannot compute in {self.target.name} and in float32{hint}")
        # An operator that the caller lists as low is removed from the default float32 list; the reverse does not
        # happen.
        self.float32 = given if float32 is not None else _stated("float32") - self.low
        self._known: dict[Any, Any] = {}
        self._warned: set[str] = set()

    def _key(self) -> tuple[Any, ...]:
        return self.target, self.low, self.float32, self.conditional

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Precision) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"mixed precision ({self.target.name} and float32)"

    def wanted(self, op: Operator, dtypes: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Per input the dtype to convert it to, or None if it stays; None if all do.

        dtypes : of the inputs, None for a number
        """
        key = (op, dtypes)
        try:
            return self._known[key]
        except KeyError:
            if len(self._known) > 4096:
                self._known.clear()
            found = self._known[key] = self._decide(op, dtypes)
            return found

    def of(self, op: Operator, dtypes: tuple[Any, ...]) -> tuple[Any, ...]:
        """The dtypes in which the operator gets its inputs, given the inputs' own dtypes."""
        wanted = self.wanted(op, dtypes)
        return dtypes if wanted is None else tuple(new or old for new, old in zip(wanted, dtypes, strict=True))

    def _decide(self, op: Operator, dtypes: tuple[Any, ...]) -> tuple[Any, ...] | None:
        ours = (self.target, SINGLE)
        given = [dtype for dtype in dtypes if dtype is not None]  # to NumPy None is float64
        floating = {dtype for dtype in given if dtype in ours}
        if not floating or DOUBLE in given or op.name in _CASTS or op.subgraphs:
            return None
        dtype = self._dtype_for(op, dtypes, floating)
        if dtype is None:
            return None
        if op.own_gradient:
            self._warn_of(op.name)
        names, aux = op.signature.inputs, op.signature.aux
        wanted = tuple(
            # A state that is computed on the way could not be updated.
            dtype if item in floating and item != dtype and not (index < len(names) and names[index] in aux) else None
            for index, item in enumerate(dtypes)
        )
        return wanted if any(wanted) else None

    def _dtype_for(self, op: Operator, dtypes: tuple[Any, ...], floating: set[Any]) -> np.dtype | None:
        if op.name in self.low:
            return self.target
        if op.name in self.float32 or any(
            op.name == name and getattr(op, attribute, None) in values for name, attribute, values in self.conditional
        ):
            return SINGLE
        if op.name == "broadcast_div" and dtypes[0] is None:  # 1 / x is `reciprocal` in other words
            return SINGLE
        return SINGLE if len(floating) > 1 and refuses(op, dtypes) else None

    def _warn_of(self, name: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            logger.warning(
                f"{name} starts a gradient of its own, which amp.scale_loss does not scale: multiply its grad_scale by "
                "trainer._amp_loss_scaler.loss_scale, or use a loss of gluon.loss"
            )


def conditional_operators() -> list[tuple[str, str, tuple[str, ...]]]:
    """(operator, attribute, values): what computes in float32 if the attribute has one of the values."""
    return [(record.name, *item) for record in records() for item in record.float32_where.items()]


def _stated(precision: str) -> frozenset[str]:
    """The operators whose records say so."""
    return frozenset(record.name for record in records() if record.precision == precision)


def refuses(op: Operator, dtypes: tuple[Any, ...]) -> bool:
    """Whether the operator's record has no answer for inputs of these dtypes."""
    try:
        op.infer_type(*dtypes)
    except DTypeError:
        return True
    except (IndexError, TypeError, ValueError):  # too few inputs: the call itself will say it
        return False
    return False


def _named(names: Iterable[str], what: str) -> frozenset[str]:
    """The operators' own names. Raises SettingError."""
    if isinstance(names, str):
        raise SettingError(f"{what}: a list of names is needed, such as [{names!r}], not {names!r}")
    found = set()
    for name in names:
        record = find(name)
        if record is None:
            import difflib

            near = difflib.get_close_matches(name, registered_names(), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SettingError(f"{what}: there is no operator {name!r}{hint}")
        found.add(record.name)
    return frozenset(found)
