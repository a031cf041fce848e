"""Operator records, one family a file; nd.*, sym.*, gradients, engines and exporters all read them from here."""

from hybrid_lab.ops.arrays import (
    constant_index,
    coordinates,
    creation,
    declared,
    index,
    movement,
    order,
    reduce,
    reshape,
    scan,
    scatter,
    sequence,
    slicing,
    spectral,
    storage,
)
from hybrid_lab.ops.elementwise import (
    activation,
    arithmetic,
    cast,
    comparison,
    elementwise,
    finite,
    formulas,
    piecewise,
    quantize,
    select,
    special,
    surrogate,
)
from hybrid_lab.ops.framework.namespace import F
from hybrid_lab.ops.framework.operator import Operator, find, get, records, registered_names
from hybrid_lab.ops.framework.sample import ints, sample
from hybrid_lab.ops.layers import (
    affine,
    attention,
    conv,
    ctc,
    deconv,
    first_versions,
    fused_gradient,
    group_norm,
    hawkes,
    norm,
    outputs,
    patches,
    pool,
    pool_place,
    quantized,
    softmax,
)
from hybrid_lab.ops.linalg import decompositions, linalg, linalg_parts, linalg_products, linalg_solve, numpy_products
from hybrid_lab.ops.random import densities, distributions, random
from hybrid_lab.ops.rnn import recurrence, rnn
from hybrid_lab.ops.updates import update_descent, update_groups, update_moments, update_several
from hybrid_lab.ops.vision import (
    anchors,
    boxes,
    correlation,
    deformable,
    image_colors,
    images,
    pad,
    proposals,
    resize,
    roi,
    roi_parts,
    sampler_grid,
    warp,
)

__all__ = ["F", "Operator", "find", "get", "ints", "records", "registered_names", "sample"]
