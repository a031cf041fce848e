"""Operator records, one family a file; nd.*, sym.*, gradients, engines and exporters all read them from here."""

from hybrid_lab.ops import (
    activation,
    affine,
    arithmetic,
    boxes,
    cast,
    comparison,
    conv,
    creation,
    deconv,
    elementwise,
    finite,
    formulas,
    group_norm,
    index,
    linalg,
    movement,
    norm,
    order,
    pad,
    patches,
    piecewise,
    pool,
    random,
    reduce,
    reshape,
    resize,
    rnn,
    roi,
    scan,
    scatter,
    select,
    sequence,
    slicing,
    softmax,
    special,
    surrogate,
    update_descent,
    update_moments,
    update_several,
    warp,
)
from hybrid_lab.ops.namespace import F
from hybrid_lab.ops.operator import Operator, find, get, records, registered_names
from hybrid_lab.ops.sample import ints, sample

__all__ = ["F", "Operator", "find", "get", "ints", "records", "registered_names", "sample"]
