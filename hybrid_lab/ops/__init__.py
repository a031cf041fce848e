"""Operator records, one family a file; nd.*, sym.*, gradients, engines and exporters all read them from here."""

from hybrid_lab.ops import (
    activation,
    affine,
    arithmetic,
    cast,
    comparison,
    conv,
    creation,
    elementwise,
    finite,
    index,
    linalg,
    movement,
    norm,
    piecewise,
    pool,
    random,
    reduce,
    reshape,
    rnn,
    select,
    slicing,
    softmax,
    special,
    update_descent,
    update_moments,
    update_several,
)
from hybrid_lab.ops.namespace import F
from hybrid_lab.ops.operator import Operator, find, get, records, registered_names
from hybrid_lab.ops.sample import ints, sample

__all__ = ["F", "Operator", "find", "get", "ints", "records", "registered_names", "sample"]
