"""The names of operators and of their outputs in MXNet's files: scalar and equal-shape forms, output counts, attributes
to ignore.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hybrid_lab.ops.framework.operator import Operator, get


class ScalarForm(NamedTuple):
    """An operator with a number in place of one tensor: `left` is MXNet's name for `x op 2`, `right` for `2 op x`."""

    left: str
    right: str


SCALAR_FORMS: dict[str, ScalarForm] = {
    "broadcast_add": ScalarForm("_plus_scalar", "_plus_scalar"),
    "broadcast_sub": ScalarForm("_minus_scalar", "_rminus_scalar"),
    "broadcast_mul": ScalarForm("_mul_scalar", "_mul_scalar"),
    "broadcast_div": ScalarForm("_div_scalar", "_rdiv_scalar"),
    "broadcast_mod": ScalarForm("_mod_scalar", "_rmod_scalar"),
    "broadcast_power": ScalarForm("_power_scalar", "_rpower_scalar"),
    "broadcast_maximum": ScalarForm("_maximum_scalar", "_maximum_scalar"),
    "broadcast_minimum": ScalarForm("_minimum_scalar", "_minimum_scalar"),
    "broadcast_hypot": ScalarForm("_hypot_scalar", "_hypot_scalar"),
    "broadcast_equal": ScalarForm("_equal_scalar", "_equal_scalar"),
    "broadcast_not_equal": ScalarForm("_not_equal_scalar", "_not_equal_scalar"),
    "broadcast_greater": ScalarForm("_greater_scalar", "_lesser_scalar"),
    "broadcast_greater_equal": ScalarForm("_greater_equal_scalar", "_lesser_equal_scalar"),
    "broadcast_lesser": ScalarForm("_lesser_scalar", "_greater_scalar"),
    "broadcast_lesser_equal": ScalarForm("_lesser_equal_scalar", "_greater_equal_scalar"),
    "broadcast_logical_and": ScalarForm("_logical_and_scalar", "_logical_and_scalar"),
    "broadcast_logical_or": ScalarForm("_logical_or_scalar", "_logical_or_scalar"),
    "broadcast_logical_xor": ScalarForm("_logical_xor_scalar", "_logical_xor_scalar"),
}

SCALAR_NAMES: dict[str, tuple[str, bool]] = {
    **{form.right: (name, True) for name, form in SCALAR_FORMS.items() if form.right.startswith("_r")},
    **{form.left: (name, False) for name, form in SCALAR_FORMS.items()},
}
"""MXNet's name -> our operator, and whether the number stands left."""
for _form, (_name, _left) in list(SCALAR_NAMES.items()):  # MXNet's older spellings: _PlusScalar, _RMinusScalar ...
    SCALAR_NAMES["_" + "".join(part.capitalize() for part in _form.strip("_").split("_"))] = (_name, _left)
SCALAR_NAMES |= {
    "_RMinusScalar": ("broadcast_sub", True),
    "_RDivScalar": ("broadcast_div", True),
    "_RModScalar": ("broadcast_mod", True),
    "_RPowerScalar": ("broadcast_power", True),
}

EQUAL_SHAPE_FORMS: dict[str, str] = {
    "broadcast_add": "elemwise_add",
    "broadcast_sub": "elemwise_sub",
    "broadcast_mul": "elemwise_mul",
    "broadcast_div": "elemwise_div",
}
"""Our operator -> MXNet's name for equal shapes, which other tools know better."""

EQUIVALENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "_softrelu": ("Activation", {"act_type": "softrelu"}),
    "_drop_axes": ("_np_squeeze", {}),
    "_np_reshape": ("_np_reshape", {}),
    "_npi_arctan2": ("_npi_arctan2", {}),
}
"""Operators that MXNet has as a case of another one."""

ALWAYS_WRITTEN: dict[str, tuple[str, ...]] = {
    "_arange": ("start", "stop"),
    "slice_axis": ("begin", "end"),
    "_rnn_param_concat": ("dim",),
}
"""Attributes that have a default here and none in MXNet."""

REWRITTEN: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("transpose", "axes"): lambda axes: tuple(axis % len(axes) for axis in axes),
}
"""(operator, attribute) -> a function to the value as MXNet takes it: its transpose refuses negative axes."""


def as_in_files(op: Operator) -> Operator:
    """The operator that a file has in the place of `op`, with the attributes that a file has."""
    if op.name in EQUIVALENTS:
        name, further = EQUIVALENTS[op.name]
        op = get(name).bind(**op.written, **further)
    for name, key in REWRITTEN:
        if op.name == name and op.attributes[key]:
            op = op.bind(**{**op.attributes, key: REWRITTEN[name, key](op.attributes[key])})
    return op


OUTPUT_COUNTS: dict[str, int] = {
    "BatchNorm": 3,
    "LayerNorm": 3,
    "InstanceNorm": 3,
    "GroupNorm": 3,
    "Dropout": 2,
    "sort": 2,
    "CTCLoss": 2,
    "_linalg_det": 3,
    "_linalg_slogdet": 4,
    "LRN": 2,
    "ROIPooling": 2,
    "BilinearSampler": 2,
    "GridGenerator": 2,
    "SpatialTransformer": 3,
    "_contrib_BatchNormWithReLU": 3,
    "_contrib_box_nms": 2,
}
"""Outputs that MXNet counts, hidden ones included, where that is not the number of visible ones."""

OUTPUT_NAMES: dict[str, tuple[str, ...]] = {
    "BatchNorm": ("output", "mean", "var"),
    "LayerNorm": ("output", "mean", "std"),
    "GroupNorm": ("output", "mean", "std"),
    "RNN": ("output", "state_output", "statecell_output"),
    "make_loss": ("loss",),
    "_contrib_MultiBoxTarget": ("loc_target", "loc_mask", "cls_target"),
    "_contrib_Proposal": ("output", "score"),
    "_contrib_MultiProposal": ("output", "score"),
    "_contrib_hawkesll": ("output", "out_state"),
    "_contrib_calibrate_entropy": ("threshold", "divergence"),
    "_contrib_quantized_pooling": ("output", "min_output", "max_output"),
    "_sg_mkldnn_conv": ("output", "output_min", "output_max"),
}
"""MXNet's names of an operator's outputs, if they are not `output` or `output0`, `output1`, ..."""

_NUMBERED = frozenset({"SliceChannel", "sort", "CTCLoss", "_linalg_det", "_contrib_box_nms"})
"""Operators whose outputs MXNet numbers even if only one is visible."""


def output_name(op: Operator, index: int) -> str:
    """MXNet's name of an output: `<node>_<name>` in lists of outputs."""
    names = OUTPUT_NAMES.get(op.name)
    if names is not None:
        return names[index]
    numbered = op.signature.visible > 1 or op.name in _NUMBERED
    if numbered or (op.name == "topk" and op.attributes["ret_typ"] == "value"):
        return f"output{index}"
    return "output"


IGNORED_ATTRIBUTES = frozenset(
    {
        "workspace",
        "cudnn_tune",
        "cudnn_off",
        "cudnn_algo_verbose",
        "ctx",
        "num_args",
        "infer_range",
        "is_int",
        "__profiler_scope__",
    }
)
"""Attributes of MXNet's files that say how to run, not what to compute."""

HIDDEN_KEYS = ("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage")
"""Keys that files before 1.0 mix with the operator's attributes, plain or as `<argument>_<key>`."""

POSITIVE_ATTRIBUTES = frozenset(
    {
        "num_hidden",
        "num_filter",
        "num_group",
        "kernel",
        "stride",
        "dilate",
        "num_outputs",
        "input_dim",
        "output_dim",
        "depth",
    }
    | {"repeats", "num_args"}
)
"""Sizes: an integer below 1 or from 2^31 on cannot be meant."""
