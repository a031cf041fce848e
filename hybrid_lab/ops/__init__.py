"""Operator records, one family a file; nd.*, sym.*, gradients, engines and exporters all read them from here.

The families of usual networks are imported here, all others when a name is asked for that these do not have.
"""

from hybrid_lab.ops.arrays import constant_index, creation, index, movement, reduce, reshape, slicing
from hybrid_lab.ops.elementwise import activation, arithmetic, cast, comparison, elementwise, select
from hybrid_lab.ops.framework.namespace import F
from hybrid_lab.ops.framework.operator import Operator, declare_modules, find, get, records, registered_names
from hybrid_lab.ops.framework.sample import ints, sample
from hybrid_lab.ops.layers import affine, conv, norm, pool, softmax
from hybrid_lab.ops.linalg import linalg
from hybrid_lab.ops.random import random

__all__ = ["F", "Operator", "find", "get", "ints", "records", "registered_names", "sample"]

#: The files with records, folder by folder.
_FAMILIES = {
    "arrays": (
        "slicing", "constant_index", "index", "coordinates", "creation", "declared", "movement", "order", "reduce",
        "reshape", "scan", "scatter", "sequence", "spectral", "storage",
    ),
    "elementwise": (
        "activation", "arithmetic", "cast", "comparison", "elementwise", "finite", "formulas", "piecewise", "quantize",
        "select", "special", "surrogate",
    ),
    "layers": (
        "affine", "attention", "conv", "ctc", "deconv", "norm", "pool", "first_versions", "fused_gradient",
        "group_norm", "hawkes", "outputs", "patches", "pool_place", "quantized", "softmax",
    ),
    "linalg": (
        "linalg", "linalg_products", "linalg_solve", "decompositions", "linalg_parts", "numpy_products",
    ),
    "random": ("densities", "random", "distributions"),
    "rnn": ("recurrence", "rnn"),
    "updates": ("update_descent", "update_groups", "update_moments", "update_several"),
    "vision": (
        "boxes", "anchors", "correlation", "deformable", "image_colors", "images", "pad", "proposals", "resize", "roi",
        "roi_parts", "sampler_grid", "warp",
    ),
}  # fmt: skip
declare_modules([f"{__name__}.{folder}.{file}" for folder, files in _FAMILIES.items() for file in files])
