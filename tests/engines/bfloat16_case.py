"""Samples of records with bfloat16 in place of float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError
from hybrid_lab.ops.framework.dtypes import bfloat16
from hybrid_lab.ops.framework.run import infer
from tests.ops.cases import Case


class NarrowCase(Case):
    """A case whose float32 arrays are of another dtype: what the sample makes at random, else whatever is float32.

    Raises DTypeError where the operator takes neither.
    """

    def __init__(self, case: Case, dtype: Any = None):
        super().__init__(case.record, case.sample, case.number)
        self.dtype = bfloat16() if dtype is None else np.dtype(dtype)
        self.all = not any(isinstance(item, tuple) for item in self.sample.inputs)
        try:
            self.inferred()
        except DTypeError:
            self.all = True
            self.inferred()

    def inferred(self) -> tuple[Any, Any]:
        inputs = self.inputs()
        return infer(self.op, tuple(map(np.shape, inputs)), tuple(getattr(item, "dtype", None) for item in inputs))

    def inputs(self, dtype: str | None = None) -> list[Any]:
        return [
            item.astype(self.dtype)
            if isinstance(item, np.ndarray) and item.dtype == np.float32 and (self.all or isinstance(given, tuple))
            else item
            for given, item in zip(self.sample.inputs, super().inputs(dtype), strict=True)
        ]


def narrowed(case: Case, dtype: Any = None) -> NarrowCase | None:
    """The case in bfloat16 (or another dtype); None where the operator refuses it."""
    try:
        return NarrowCase(case, dtype)
    except DTypeError:
        return None


def is_float32(case: Case) -> bool:
    """Whether there is something to narrow."""
    return any(isinstance(item, np.ndarray) and item.dtype == np.float32 for item in case.inputs())
