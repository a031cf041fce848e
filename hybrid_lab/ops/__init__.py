"""Operator records, one family a file; nd.*, sym.*, gradients, engines and exporters all read them from here."""

from hybrid_lab.ops import (
    activation,
    arithmetic,
    comparison,
    conv,
    creation,
    elementwise,
    index,
    linalg,
    movement,
    norm,
    pool,
    random,
    reduce,
    slicing,
    softmax,
)
from hybrid_lab.ops.namespace import F
from hybrid_lab.ops.operator import Operator, find, get, records, registered_names
from hybrid_lab.ops.sample import ints, sample

__all__ = ["F", "Operator", "find", "get", "ints", "records", "registered_names", "sample"]

#: The families in the order of the documentation.
FAMILIES = (
    arithmetic,
    comparison,
    elementwise,
    activation,
    reduce,
    movement,
    slicing,
    index,
    linalg,
    conv,
    pool,
    norm,
    softmax,
    random,
    creation,
)
