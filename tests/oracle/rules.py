"""The differences that are explained: each rule says why, and checks its condition on the case and its answers.

docs/differences.md tells users of those that they may meet.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import factorial
from typing import TYPE_CHECKING, Any

import numpy as np

import hybrid_lab
from tests.oracle.derivative import is_derivative
from tests.oracle.execute import answer, array, heads

if TYPE_CHECKING:
    from tests.oracle.compare import Comparison, Difference

Condition = Callable[["Comparison", "Difference"], bool]


@dataclass(frozen=True)
class Rule:
    """name : in the table of a run; why : the reason; applies : whether it explains a difference"""

    name: str
    why: str
    applies: Condition


RULES: list[Rule] = []


def rule(why: str) -> Callable[[Condition], Condition]:
    """Add a function to the rules, under its name."""

    def add(applies: Condition) -> Condition:
        RULES.append(Rule(applies.__name__.replace("_", " "), why, applies))
        return applies

    return add


def explanation(item: Comparison, difference: Difference) -> str | None:
    """The name of the first rule that explains a difference."""
    return next((each.name for each in RULES if each.applies(item, difference)), None)


def _changed(case: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The case with changes in the descriptions of its floating and whole arrays."""
    return {**case, "arrays": {name: {**spec, **changes} for name, spec in case["arrays"].items()}}


def _in_float64(case: dict[str, Any]) -> dict[str, Any]:
    """The case with the same numbers as float64, whole ones too."""
    made = {name: array(spec, case) for name, spec in case["arrays"].items()}
    specs = {
        name: {"shape": value.shape, "dtype": "float64", "data": value.ravel().tolist()} for name, value in made.items()
    }
    return {**case, "arrays": specs}


def _has_nan(case: dict[str, Any], infinite: bool = False) -> bool:
    arrays = [array(spec, case).astype(np.float64) for spec in case["arrays"].values()]
    return any(bool((~np.isfinite(each) if infinite else np.isnan(each)).any()) for each in arrays)


def _is_float(value: np.ndarray) -> bool:
    return bool(value.dtype.kind == "f")


# -- MXNet's process, kernels and dtypes ---------------------------------------------------------------------------


@rule("MXNet's process ends, or does not answer: memory outside of arrays is read or written")
def MXNet_crashes(item: Comparison, difference: Difference) -> bool:
    return item.theirs.error in (("Crash",), ("Hang",))


@rule("MXNet says that it lacks a dtype")
def MXNet_names_the_dtype(item: Comparison, difference: Difference) -> bool:
    return difference.kind == "theirs raises" and "only support floating point types" in item.theirs.text


@rule("an attribute of MXNet takes a dtype from a list, which is shorter than that of the dtypes here")
def MXNet_lists_fewer_dtypes(item: Comparison, difference: Difference) -> bool:
    told = re.search(r"Invalid Input: '(\w+)', valid values are: \{.*'float32'", item.theirs.text)
    return difference.kind == "theirs raises" and told is not None and f"dtype='{told[1]}'" in item.case["text"]


@rule("MXNet raises for these dtypes on a CPU; with float32 in place of them it answers, and so do we, equally")
def MXNet_lacks_the_dtype(item: Comparison, difference: Difference) -> bool:
    dtypes = {spec["dtype"] for spec in item.case["arrays"].values()}
    case = {**_changed(item.case, dtype="float32"), "text": re.sub(r", dtype='\w+'", "", item.case["text"])}
    if difference.kind != "theirs raises" or (dtypes <= {"float32"} and case["text"] == item.case["text"]):
        return False
    again = item.oracle.answer({**case, "dtype": None})
    return not again.error or again.at == "backward"


@rule("MXNet has no such function, or only for GPUs, or no gradient of it")
def MXNet_lacks_the_function(item: Comparison, difference: Difference) -> bool:
    texts = "has no attribute|only implemented in GPU|didn't register FGradient|[Nn]ot impl?emented|not supported"
    return difference.kind == "theirs raises" and re.search(texts, item.theirs.text) is not None


@rule("arrays without elements or dimensions, which MXNet refuses")
def MXNet_refuses_empty_arrays(item: Comparison, difference: Difference) -> bool:
    arrays = [*item.ours.values.values()]
    empty = any(not value.size or not value.ndim for name, value in item.ours.values.items() if name.startswith("y"))
    empty |= any(0 in spec["shape"] or not spec["shape"] for spec in item.case["arrays"].values())
    return difference.kind == "theirs raises" and bool(arrays) and empty


@rule("MXNet adds up in the narrow dtype: in float64 both agree, and ours is nearer to that")
def MXNet_rounds_more(item: Comparison, difference: Difference) -> bool:
    from tests.oracle.compare import apart

    name = difference.name
    if difference.kind != "value" or not _is_float(item.ours.values[name]):
        return False
    if any(name not in each.values for each in (item.wide, item.their_wide)):
        return False
    wide, their_wide = item.wide.values[name], item.their_wide.values[name]
    dtype = item.ours.values[name].dtype if item.ours.values[name].dtype.itemsize < 8 else np.dtype(np.float32)
    if wide.shape != their_wide.shape or apart(wide.astype(dtype), their_wide.astype(dtype)).any():
        return False
    ours, theirs = (each.values[name].astype(np.float64) for each in (item.ours, item.theirs))
    where = apart(item.ours.values[name], item.theirs.values[name], item.uncertainty(name))
    with np.errstate(invalid="ignore"):
        nearer = (np.abs(ours - wide) <= np.abs(theirs - wide)) | (ours == wide) | ~np.isfinite(theirs)
    return bool(nearer[where].all())


@rule("MXNet's numbers in attributes, and parts of its float64 kernels, are float32: both agree as float32")
def MXNet_computes_float64_in_float32(item: Comparison, difference: Difference) -> bool:
    from tests.oracle.compare import apart

    if difference.kind != "value" or item.ours.values[difference.name].dtype != np.float64:
        return False
    ours, theirs = item.ours.values[difference.name], item.theirs.values[difference.name]
    with np.errstate(over="ignore"):
        return not apart(ours.astype(np.float32), theirs.astype(np.float32), 1e-7 * _largest(item.case)).any()


def _largest(case: dict[str, Any]) -> float:
    found = [np.abs(array(spec, case).astype(np.float64)) for spec in case["arrays"].values()]
    return max([float(value[np.isfinite(value)].max(initial=0.0)) for value in found], default=0.0)


# -- gradients -----------------------------------------------------------------------------------------------------

#: Operators and functions whose gradient is wrong in MXNet. The rule proves it, case by case.
WRONG_GRADIENTS = (
    "Convolution_v1",
    "SELU",
    "selu",
    "rot90",
    "SoftmaxActivation",
    "image.flip",
    "F.np.where",
    "F.np.var",
    "F.np.std",
    "a.std",
    "a.var",
    "CTCLoss",
    "atleast_2d",
    "SequenceLast",
)


@rule("MXNet's gradient is not that of its own results, which ours is: shown by differences in float64")
def MXNet_has_a_wrong_gradient(item: Comparison, difference: Difference) -> bool:
    from tests.oracle.compare import apart

    text = item.case.get("net", "") + item.case["text"]
    if (
        difference.kind != "value"
        or not difference.name.startswith("d")
        or not any(name in text for name in WRONG_GRADIENTS)
    ):
        return False
    wrong = apart(item.ours.values[difference.name], item.theirs.values[difference.name])
    return is_derivative(item.case, difference.name, np.flatnonzero(wrong))


#: What MXNet refuses with these words, and Hybrid Lab supports: (in the call, in MXNet's error).
MORE = (
    ("Conv3DTranspose", "Only 1D or 2D Deconvolution"),
    ("Deconvolution", "Only 1D or 2D Deconvolution"),
    ("Pad", "expects padding on the first two axes to be zero"),
    ("Pooling", "index = 1 must be in range [0, 1)"),
    ("broadcast_like", "cannot be broadcasted to"),
    ("slice_axis", "Invalid end for"),
    ("slice_axis", "Required parameter end"),
    ("MultiBoxTarget", "temp.size() >= num_negative"),
    ("Pooling", "Currently 'same' supports Max Pooling 1-D"),
    ("argmax_channel", "exceeds the input dimension of 1"),
    ("GroupNorm", "dshape.ndim() >= 3U"),
    ("image.resize", "cn <= 4"),
    ("prelu", "Cannot broadcast gamma to data"),
    ("Deconvolution", "adj(y) must be"),
    ("Pooling_v1", "Cannot find argument"),
    ("random_normal", "scale parameter in gaussian has to be positive"),
    ("Pooling_v1", "Cannot find argument"),
    ("norm(", "Cannot find argument 'exclude'"),
    ("CTCLoss", "max number of labels cannot exceed"),
    ("UpSampling", "Non compatible matrix dimensions"),
    ("'lp'", "param.p_value.has_value()"),
    ("Reshape", "from.Size() == to.Size()"),
    ("Pooling", "Same pooling convention disables"),
    ("Pooling", "Unsupported layout"),
    ("LRN", "data type do not match"),
    ("out_dtype=", "data type do not match"),
    ("F.sort(", "This operation does not support float16"),
    ("LRN", "local size must be smaller than nchannels"),
    ("slice_axis", "Invalid begin for"),
    ("sort", "Invalid Parameter format for axis"),
    ("sparse_grad=True", "Cannot use sparse_grad"),
    ("Orthogonal", "Invalid Parameter format for shape"),
    ("dcasgd", "truth value of an NDArray"),
    ("DTranspose", "input num_filter must divide group size"),
    ("Deconvolution", "adj(x) must be"),
    ("F.dot(", "Cannot transpose vectors"),
    ("SparseEmbedding", "Cannot find argument 'sparse_grad'"),
    ("use_length=True, axis=-", "must be in range"),
)


# -- documented differences ----------------------------------------------------------------------------------------


@rule("NaN in maxima over windows and in sorts: kept, and sorted as the largest")
def NaN_in_windows_and_sorts(item: Comparison, difference: Difference) -> bool:
    text = item.case.get("net", "") + item.case["text"]
    names = (
        "relu",
        "MAERegression",
        "quantize",
        "norm",
        "abs",
        "clip",
        "Pool",
        "sort",
        "topk",
        "bipartite_matching",
        "box_nms",
        "ROIAlign",
        "sign",
        "median",
        "percentile",
        "quantile",
    )
    return difference.kind == "value" and any(name in text for name in names) and _has_nan(item.case)


@rule("windows of average pooling that lie outside of the input")
def windows_outside(item: Comparison, difference: Difference) -> bool:
    text = item.case.get("net", "") + item.case["text"]
    return difference.kind == "value" and ("ceil_mode=True" in text or "'full'" in text)


@rule("a pad that is not smaller than the kernel: whole windows of padding")
def pooling_of_padding(item: Comparison, difference: Difference) -> bool:
    return difference.kind == "ours raises" and "must be smaller than kernel" in item.ours.text


#: What MXNet accepts and computes from memory of others, or not at all: (in the call, in our error).
NONSENSE = (
    ("BatchNorm", "has shape"),
    ("linalg.gemm", "axis="),
    ("init_output=False", "init_output=False is not supported"),
    ("interleaved_matmul", "is needed"),
    ("SoftmaxOutput", "has classes along one of several axes"),
    ("Deconvolution", "removes the whole output"),
    ("LeakyReLU", "gamma has shape"),
    ("Pooling", "needs one number for each axis of kernel"),
    ("BilinearResize2D", "must be given together"),
    ("diag", "has no diagonal"),
    ("CTCLoss", "a label outside of"),
    ("GridGenerator", "needs a height and a width of at least 2"),
    ("SpatialTransformer", "needs a height and a width of at least 2"),
    ("CTCLoss", "lengths outside of data"),
    ("gelqf", "singular matrix"),
    ("softmax", "floating numbers are needed"),
    ("div_sqrt_dim", "floating numbers are needed"),
    ("image.random", "must be at least 0 and at most"),
    ("split_v2", "cannot be cut into"),
    ("Transpose", "Deconvolution"),
    ("image.normalize", "floating numbers are needed"),
    ("randint", "by 2^32 at most"),
    ("AdaptiveAvgPooling2D", "positive numbers are needed"),
    ("box_encode", "need the first dimensions of anchors"),
    ("image.random_lighting", "must be at least 0"),
    ("image.random_color_jitter", "must be at least 0"),
    ("MultiBoxTarget", "cls_pred"),
    ("onvolution", "needs one number for each axis of kernel"),
    ("softm", "temperature must not be 0"),
    ("negative_binomial", "k > 0 and 0 < p <= 1 is needed"),
    ("_eye", "a shape cannot have negative sizes"),
    ("arange_like", "at least 1 is needed"),
    ("amp_cast", "a floating dtype is needed"),
    ("quantize_v2", "data must be float32 or"),
    ("Proposal", "must be at least 1"),
    ("_arange", "infer_range is not supported"),
    ("RROIAlign", "spatial_scale="),
    ("Correlation", "must be an odd number"),
    ("image.random_flip", "must be a probability"),
    ("_scatter_set_nd", "do not fit shape="),
    ("BilinearResize2D", "nothing is left of"),
    ("BilinearResize2D", "their scales must be positive"),
    ("GridGenerator", "h and w at least 2"),
    ("Correlation", "max_displacement and pad_size at least 0"),
    ("_index", "positive sizes are needed"),
    ("random_randint", "does not fit int32"),
    ("_histogram", "a positive number and (low, high) are needed"),
    ("moments", "floating numbers are needed"),
)


@rule("MXNet accepts parameters that do not fit")
def parameters_that_do_not_fit(item: Comparison, difference: Difference) -> bool:
    text = item.case.get("net", "") + item.case["text"]
    return difference.kind == "ours raises" and any(name in text and said in item.ours.text for name, said in NONSENSE)


@rule("functions that run in NumPy raise AutogradError where a gradient would be lost")
def gradient_would_be_lost(item: Comparison, difference: Difference) -> bool:
    return difference.kind == "ours raises" and "runs in NumPy and has no gradient" in item.ours.text


@rule("rrelu crashes or gives two arrays in MXNet")
def rrelu(item: Comparison, difference: Difference) -> bool:
    return "rrelu" in item.case["text"]


@rule("MXNet gives zeros for the gradients of variances")
def no_gradient_of_variances(item: Comparison, difference: Difference) -> bool:
    variance = re.search(r"\b(std|var)\(", item.case["text"]) is not None
    return variance and difference.name == "da" and not item.theirs.values["da"].any()


@rule("lengths of sequences beyond the steps: MXNet reads outside of the array")
def lengths_beyond_the_steps(item: Comparison, difference: Difference) -> bool:
    text = item.case["text"]
    if not text.startswith(("F.Sequence", "F.softmax")) or "b" not in item.case["arrays"]:
        return False
    found = re.search(r"axis=(-?\d)", text)
    axis = int(found[1]) if found else -1 if "softmax" in text else 0
    return bool(array(item.case["arrays"]["b"], item.case).max(initial=0) > item.case["arrays"]["a"]["shape"][axis])


@rule("the base rate of a schedule is used, which the default rate of some optimizers replaces in MXNet")
def base_rate_of_schedules(item: Comparison, difference: Difference) -> bool:
    text = item.case["text"]
    named = re.search("'(adam|adamax|rmsprop|signum|nadam|ftrl|lamb)'", text) is not None
    return named and "lr_scheduler=" in text and "learning_rate=" not in text


@rule("numbers of images or elements outside of the array: an error here, memory of others in MXNet")
def index_outside(item: Comparison, difference: Difference) -> bool:
    outside = item.ours.error[:1] == ("ArrayIndexError",) or "is outside of an axis" in item.ours.text
    return difference.kind == "ours raises" and outside


@rule("labels longer than the steps: infinity here")
def CTC_labels_too_long(item: Comparison, difference: Difference) -> bool:
    if "CTCLoss" not in item.case.get("net", "") + item.case["text"] or "y0" not in item.ours.values:
        return False
    return difference.kind == "value" and bool(np.isinf(item.ours.values["y0"]).any())


@rule("mx.np gives floating results of whole numbers, where MXNet cuts the fraction off")
def whole_numbers_become_floating(item: Comparison, difference: Difference) -> bool:
    if item.case.get("front") != "np" or difference.kind != "dtype":
        return False
    ours, theirs = item.ours.values[difference.name], item.theirs.values[difference.name]
    return _is_float(ours) and theirs.dtype.kind in "iub"


@rule("AdamW writes the rescaled gradient over the gradient")
def AdamW_writes_to_the_gradient(item: Comparison, difference: Difference) -> bool:
    return "adamw_update" in item.case["text"] and difference.name == "after b"


@rule("mp_lamb_update_phase2 leaves weight32 as it was in MXNet")
def LAMB_leaves_weight32(item: Comparison, difference: Difference) -> bool:
    return "mp_lamb_update_phase2" in item.case["text"] and difference.name == "after e"


@rule("image operators take any number of channels")
def image_channels(item: Comparison, difference: Difference) -> bool:
    return difference.kind == "theirs raises" and ".image." in item.case["text"] and "hannel" in item.theirs.text


@rule("negative axes count from the end, where MXNet refuses them")
def negative_axes(item: Comparison, difference: Difference) -> bool:
    return difference.kind == "theirs raises" and "i >= 0 && i < ndim(): index = -" in item.theirs.text


@rule("MXNet raises where Hybrid Lab does more: its error says so")
def MXNet_refuses_what_is_supported(item: Comparison, difference: Difference) -> bool:
    text = item.case.get("net", "") + item.case["text"]
    return difference.kind == "theirs raises" and any(name in text and said in item.theirs.text for name, said in MORE)


@rule("zeros_like and ones_like have the dtype that is asked for")
def like_with_dtype(item: Comparison, difference: Difference) -> bool:
    return re.search(r"(zeros|ones)_like\(a, .*dtype=", item.case["text"]) is not None


@rule("transposed convolutions with stride and dilation above 1, which MXNet does not compute without oneDNN")
def dilated_deconvolution(item: Comparison, difference: Difference) -> bool:
    text = item.case.get("net", "") + item.case["text"]
    above = [re.search(rf"{name}=\(?[\d, ]*[2-9]", text) for name in ("strides?", "dilat(?:e|ion)")]
    return difference.kind == "value" and ("Transpose" in text or "Deconvolution" in text) and all(above)


@rule("histogram of whole numbers with edges that are no whole numbers, which MXNet cuts off")
def histogram_of_whole_numbers(item: Comparison, difference: Difference) -> bool:
    return (
        difference.kind == "value"
        and "_histogram" in item.case["text"]
        and item.case["arrays"]["a"]["dtype"][0] in "iu"
    )


@rule("MXNet computes 1 - beta2 in float32, which is 0.00005 off for 0.999")
def MXNet_rounds_beta2(item: Comparison, difference: Difference) -> bool:
    from tests.oracle.compare import apart

    if difference.kind != "value" or not re.search("adam|ftml|lamb", item.case["text"]):
        return False
    ours, theirs = item.ours.values[difference.name], item.theirs.values[difference.name]
    return _is_float(ours) and not apart(ours, theirs, 1e-5 * (1.0 + _largest(item.case))).any()


@rule(
    "reductions over no elements: sums 0, means, variances and deviations 0, products 1; MXNet leaves memory as it is"
)
def reductions_of_nothing(item: Comparison, difference: Difference) -> bool:
    empty = any(0 in spec["shape"] for spec in item.case["arrays"].values())
    return empty and (difference.kind == "value" or "nothing to choose from" in item.ours.text)


@rule("the gradient of copysign where the number is 0: 0 here, the sign in MXNet")
def copysign_of_zero(item: Comparison, difference: Difference) -> bool:
    from tests.oracle.compare import apart

    if "copysign" not in item.case["text"] or difference.name != "da":
        return False
    wrong = apart(item.ours.values["da"], item.theirs.values["da"])
    return not array(item.case["arrays"]["a"], item.case)[wrong].any()


@rule("names of running statistics have a rule for InitDesc, too")
def initializer_of_running_statistics(item: Comparison, difference: Difference) -> bool:
    return (
        difference.kind == "theirs raises"
        and "running_" in item.case.get("name", "")
        and "Unknown initialization" in item.theirs.text
    )


@rule("BatchNorm with a fixed gamma writes 1 over the gamma that it does not read, in MXNet")
def fixed_gamma_becomes_one(item: Comparison, difference: Difference) -> bool:
    if difference.kind != "value" or not difference.name.startswith("p") or "gamma" not in difference.name:
        return False
    return "scale=False" in item.case["net"] and bool((item.theirs.values[difference.name] == 1).all())


@rule("BatchNorm updates running statistics in the forward pass here, in backward in MXNet")
def statistics_without_backward(item: Comparison, difference: Difference) -> bool:
    backward = any(name.startswith("d") for name in item.theirs.values)
    return "BatchNorm" in item.case["text"] and difference.name.startswith("after") and not backward


@rule("NaN and infinities in factorizations of matrices")
def NaN_in_factorizations(item: Comparison, difference: Difference) -> bool:
    return difference.kind == "value" and "linalg." in item.case["text"] and _has_nan(item.case, infinite=True)


@rule("adamax leaves a weight as it is until its first gradient; MXNet makes it NaN")
def adamax_without_gradient(item: Comparison, difference: Difference) -> bool:
    if difference.kind != "value" or "adamax" not in item.case["text"]:
        return False
    return bool(
        np.isnan(item.theirs.values[difference.name]).any() and np.isfinite(item.ours.values[difference.name]).all()
    )


@rule("the norm of whole numbers is that of NumPy, cut off; MXNet divides whole numbers on the way")
def norm_of_whole_numbers(item: Comparison, difference: Difference) -> bool:
    return difference.kind == "value" and "norm(" in item.case["text"] and item.case["arrays"]["a"]["dtype"][0] in "iu"


@rule("counts of mx.np functions are int64, as NumPy's")
def counts_are_int64(item: Comparison, difference: Difference) -> bool:
    return difference.kind == "dtype" and "bincount" in item.case["text"]


@rule("Dropout(p=1) gives zeros; MXNet divides by 0")
def dropout_of_everything(item: Comparison, difference: Difference) -> bool:
    return difference.kind == "value" and "Dropout" in item.case["text"] and "p=1.0" in item.case["text"]


@rule("a resized side of 1 is the mean of the middle, as in torch; MXNet takes the first pixels")
def resized_to_one_pixel(item: Comparison, difference: Difference) -> bool:
    if difference.kind != "value" or "BilinearResize2D" not in item.case["text"]:
        return False
    return 1 in item.ours.values["y0"].shape[2:] and "align_corners=False" in item.case["text"]


@rule("NaN and infinities in sums with weights of 0")
def NaN_times_zero(item: Comparison, difference: Difference) -> bool:
    text = item.case.get("net", "") + item.case["text"]
    names = (
        "onvolution",
        "esize",
        "Sampl",
        "Spatial",
        "LRN",
        "im2col",
        "col2im",
        "Norm",
        "SoftmaxActivation",
        "Pooling2D",
        "_update",
    )
    return difference.kind == "value" and any(name in text for name in names) and _has_nan(item.case, infinite=True)


@rule("MAERegressionOutput has the gradient 0 where data is the label; MXNet's is that of data below it")
def MAE_of_equal_numbers(item: Comparison, difference: Difference) -> bool:
    from tests.oracle.compare import apart

    if "MAERegressionOutput" not in item.case["text"] or difference.name not in ("da", "db"):
        return False
    first, second = (array(item.case["arrays"][name], item.case).ravel() for name in "ab")
    # MXNet divides by the number of elements in float32, also for float64.
    ours, theirs = (each.values[difference.name].astype(np.float32) for each in (item.ours, item.theirs))
    wrong = apart(ours, theirs).ravel()
    return bool((first[wrong] == second[wrong]).all())


@rule("the gradient of Pooling_v1 goes to the first of equal maxima, as Pooling's; in MXNet to all of them")
def first_of_equal_maxima(item: Comparison, difference: Difference) -> bool:
    return "Pooling_v1" in item.case["text"] and "'max'" in item.case["text"] and difference.name == "da"


@rule("the mean of numbers with an infinity is infinite; MXNet subtracts it from itself")
def infinity_in_means(item: Comparison, difference: Difference) -> bool:
    from tests.oracle.compare import apart

    if difference.kind != "value" or not re.search("mean|average|norm|moments|sum", item.case["text"]):
        return False
    wrong = apart(item.ours.values[difference.name], item.theirs.values[difference.name])
    return bool(np.isnan(item.theirs.values[difference.name][wrong]).all()) and _has_nan(item.case, infinite=True)


@rule("SoftmaxOutput with multi_output smooths the labels, where MXNet ignores smooth_alpha")
def smoothed_labels(item: Comparison, difference: Difference) -> bool:
    text = item.case["text"]
    return (
        "SoftmaxOutput" in text and "multi_output=True" in text and "smooth_alpha" in text and difference.name == "da"
    )


@rule("SoftmaxOutput(out_grad=True) multiplies with the head gradient, MXNet with its output")
def softmax_output_with_heads(item: Comparison, difference: Difference) -> bool:
    return "SoftmaxOutput" in item.case["text"] and "out_grad=True" in item.case["text"] and difference.name == "da"


@rule("infinity and NaN as whole numbers: which number they become is the processor's choice")
def infinity_as_a_whole_number(item: Comparison, difference: Difference) -> bool:
    if difference.kind != "value" or item.ours.values[difference.name].dtype.kind not in "iu":
        return False
    wrong = item.ours.values[difference.name] != item.theirs.values[difference.name]
    floating = answer(hybrid_lab, _in_float64(item.case)).values.get(difference.name)
    if floating is not None and _is_float(floating) and floating.shape == wrong.shape:
        return not np.isfinite(floating[wrong]).any()
    return _has_nan(item.case, infinite=True)


@rule("softmax of another dtype computes in float32 and rounds once; MXNet computes in that dtype")
def softmax_of_another_dtype(item: Comparison, difference: Difference) -> bool:
    from tests.oracle.compare import apart

    if difference.kind != "value" or not re.search(r"softm.*dtype='float16'", item.case["text"]):
        return False
    ours, theirs = item.ours.values[difference.name], item.theirs.values[difference.name]
    # A gradient is a probability times a difference of two head gradients, each of which is 2 at most.
    rounding = 2 * float(np.finfo(np.float16).eps) / 10 if difference.name == "da" else 0.0
    return not apart(ours.astype(np.float16), theirs.astype(np.float16), rounding).any()


@rule("factorials of whole numbers are exact; MXNet computes them in floating point and cuts off what is just below")
def exact_factorials(item: Comparison, difference: Difference) -> bool:
    spec = item.case["arrays"].get("a", {"dtype": "float32"})
    called = re.match(r"F\.(npx\.)?gamma\(", item.case["text"]) is not None
    if difference.kind != "value" or not called or spec["dtype"][0] not in "iu":
        return False
    ours, theirs = (each.values[difference.name].ravel().tolist() for each in (item.ours, item.theirs))
    points, bits = array(spec, item.case).ravel().tolist(), 8 * np.dtype(spec["dtype"]).itemsize
    return all(
        1 <= point <= 21 and (mine - factorial(point - 1)) % 2**bits == 0
        for point, mine, other in zip(points, ours, theirs, strict=True)
        if mine != other
    )


@rule("the slope of log gamma is infinite at its poles; MXNet's in float64 is the largest number, and 0 times it is 0")
def slope_at_poles_of_gamma(item: Comparison, difference: Difference) -> bool:
    from tests.oracle.compare import apart

    spec = item.case["arrays"].get("a", {"dtype": "float32"})
    called = re.match(r"F\.(npx\.)?gamma(ln)?\(", item.case["text"]) is not None
    if difference.name != "da" or difference.kind != "value" or not called or spec["dtype"] != "float64":
        return False
    wrong = apart(item.ours.values["da"], item.theirs.values["da"])
    points = array(spec, item.case)[wrong]
    return bool(((points <= 0) & (points == np.floor(points))).all())


@rule("zeros in a range from 0 to 0 are quantized to 0; MXNet multiplies 0 by infinity, and takes NaN for 127")
def quantized_range_of_nothing(item: Comparison, difference: Difference) -> bool:
    if difference.kind != "value" or "quantize" not in item.case["text"] or difference.name != "y0":
        return False
    ours, theirs = item.ours.values["y0"], item.theirs.values["y0"]
    ends = [item.theirs.values.get(name, np.ones(1)) for name in ("y1", "y2")]
    wrong = ours != theirs
    return not any(end.any() for end in ends) and not ours[wrong].any() and bool((theirs[wrong] == 127).all())


@rule("repeat with repeats=0 gives an axis of size 0, as NumPy does; MXNet's result has no other axes")
def repeated_no_times(item: Comparison, difference: Difference) -> bool:
    none = difference.kind == "shape" and item.case["text"].startswith("F.repeat(") and "repeats=0" in item.case["text"]
    return none and item.theirs.values[difference.name].shape == (0,) and not item.ours.values[difference.name].size


@rule("cumsum with dtype='float16' adds up without rounding and is nearer to the exact sums; MXNet adds up in float16")
def cumsum_in_float16(item: Comparison, difference: Difference) -> bool:
    from tests.oracle.compare import apart

    text = item.case["text"]
    if difference.kind != "value" or difference.name != "y0" or not re.match(r"F\.cumsum\(.*dtype='float16'", text):
        return False
    exact = answer(hybrid_lab, {**item.case, "text": text.replace("float16", "float64")}).values["y0"]
    ours, theirs = (each.values["y0"] for each in (item.ours, item.theirs))
    wrong = apart(ours, theirs, item.uncertainty("y0"))
    return bool((np.abs(ours - exact) <= np.abs(theirs - exact))[wrong].all())


@rule("arange of float16 with a fraction as its step: MXNet cuts the step off")
def arange_of_float16(item: Comparison, difference: Difference) -> bool:
    found = re.search(r"_arange'\)\(.*step=(-?[\d.]+)", item.case["text"])
    if difference.kind != "value" or found is None or "dtype='float16'" not in item.case["text"]:
        return False
    return not float(found[1]).is_integer()


@rule("adjust_lighting leaves images of one channel as they are; MXNet gives memory that nobody wrote")
def lighting_of_one_channel(item: Comparison, difference: Difference) -> bool:
    image = item.case["arrays"].get("a", {"shape": [0]})
    if difference.kind != "value" or "image.adjust_lighting" not in item.case["text"] or image["shape"][-1] != 1:
        return False
    return bool(np.array_equal(item.ours.values["y0"], array(image, item.case), equal_nan=image["dtype"][0] == "f"))


@rule("the order of equal elements: theirs is not stable")
def order_of_equal_elements(item: Comparison, difference: Difference) -> bool:
    from tests.oracle.compare import apart

    if difference.kind != "value":
        return False
    if re.search("argsort|topk", item.case["text"]):
        values = array(item.case["arrays"]["a"], item.case)
        return len(np.unique(values)) < values.size
    if "sort(" not in item.case["text"] or difference.name != "da":
        return False
    values = array(item.case["arrays"]["a"], item.case)
    wrong = apart(item.ours.values["da"], item.theirs.values["da"])
    return all(int((values == value).sum()) > 1 for value in values[wrong])


@rule("clip to a range that ends before it begins: the upper end here")
def clip_to_no_range(item: Comparison, difference: Difference) -> bool:
    ends = re.search(r"clip\(a, a_min=([-.\de]+), a_max=([-.\de]+)", item.case["text"])
    return ends is not None and float(ends[1]) > float(ends[2])


@rule("amp_multicast converts float64, too; in MXNet the order of the inputs decides")
def amp_multicast_of_float64(item: Comparison, difference: Difference) -> bool:
    wide = any(spec["dtype"] == "float64" for spec in item.case["arrays"].values())
    return "amp_multicast" in item.case["text"] and wide and difference.kind == "dtype"


@rule("labels that are the blank, within their lengths")
def labels_that_are_the_blank(item: Comparison, difference: Difference) -> bool:
    text = item.case["text"]
    if not text.startswith("F.CTCLoss"):
        return False
    classes = item.case["arrays"]["a"]["shape"][-1]
    blank = classes - 1 if "blank_label='last'" in text else 0
    return bool((array(item.case["arrays"]["b"], item.case) == blank).any())


@rule("BidirectionalCell with valid_length and layout NTC reverses along the steps; MXNet along the batch")
def reversed_along_the_steps(item: Comparison, difference: Difference) -> bool:
    text = item.case["text"]
    return "Bidirectional" in item.case.get("net", "") and "valid_length" in text and "'NTC'" in text


@rule("division of whole numbers by 0 is 0")
def whole_numbers_divided_by_zero(item: Comparison, difference: Difference) -> bool:
    divided = difference.kind == "value" and ("/" in item.case["text"] or "%" in item.case["text"])
    return divided and item.ours.values[difference.name].dtype.kind in "iu"


@rule("pooling with an odd p adds up absolute values, as a norm does; MXNet adds up with signs")
def odd_norms_in_pooling(item: Comparison, difference: Difference) -> bool:
    text = item.case["text"]
    return difference.kind == "value" and "'lp'" in text and re.search("p_value=[13]", text) is not None


@rule("means of whole numbers are cut once; MXNet adds up in their dtype, which overflows")
def means_of_whole_numbers(item: Comparison, difference: Difference) -> bool:
    spec = item.case["arrays"].get("a", {"dtype": "float32"})
    return difference.kind == "value" and "mean" in item.case["text"] and spec["dtype"][0] in "iu"


@rule("the gradient of a product by 0: 0; MXNet divides by alpha")
def triangular_solve_times_zero(item: Comparison, difference: Difference) -> bool:
    return "linalg.trsm" in item.case["text"] and "alpha=0.0" in item.case["text"] and difference.name == "da"


@rule("the cosine of one number does not change; MXNet's gradient is rounding")
def cosine_of_one_number(item: Comparison, difference: Difference) -> bool:
    if "CosineEmbeddingLoss" not in item.case.get("net", "") or difference.name not in ("da", "db"):
        return False
    from tests.oracle.compare import apart

    ours, theirs = (each.values[difference.name] for each in (item.ours, item.theirs))
    wrong, one = apart(ours, theirs), item.case["arrays"]["a"]["shape"][-1] == 1
    return one and not ours[wrong].any() and bool((np.abs(theirs[wrong]) < 1e-3).all())


@rule("the gradient of a product of stacks of matrices; MXNet's is wrong where the second stack axis is broadcast")
def broadcast_stacks(item: Comparison, difference: Difference) -> bool:
    if difference.kind != "value" or difference.name not in ("da", "db") or "@" not in item.case["text"]:
        return False
    return 1 in item.case["arrays"][difference.name[1]]["shape"][1:-2]


@rule("softmax with a negative temperature is exact for large numbers and infinities; MXNet overflows")
def softmax_with_negative_temperature(item: Comparison, difference: Difference) -> bool:
    if difference.kind != "value" or "softmax(a" not in item.case["text"] or "temperature=-" not in item.case["text"]:
        return False
    return not bool(np.all(np.abs(array(item.case["arrays"]["a"], item.case)) < 10))


@rule("images of int8 and int64 are resized as numbers; MXNet takes their bytes for numbers of another type")
def resized_whole_numbers(item: Comparison, difference: Difference) -> bool:
    return "image.resize" in item.case["text"] and item.case["arrays"]["a"]["dtype"] in ("int8", "int64")


@rule("LARS corrects the momentum of every weight when a schedule changes the rate; MXNet only of the first weight")
def momentum_of_lars(item: Comparison, difference: Difference) -> bool:
    second = difference.name.startswith("y") and difference.name.endswith(".1")
    return "'lars'" in item.case["text"] and "lr_scheduler" in item.case["text"] and second


@rule("a negative lamda1 of ftrl, which means nothing")
def ftrl_with_negative_lamda1(item: Comparison, difference: Difference) -> bool:
    return difference.kind == "value" and "ftrl_update" in item.case["text"] and "lamda1=-" in item.case["text"]


@rule("flipped images are those of NumPy here; MXNet gives memory that nobody wrote")
def flipped_images(item: Comparison, difference: Difference) -> bool:
    found = re.match(r"F\.image\.flip_(left_right|top_bottom)", item.case["text"])
    if found is None or difference.name not in ("y0", "da"):
        return False
    axis = -2 if found[1] == "left_right" else -3
    if difference.name == "da":
        flipped = np.flip(heads(item.ours.values["y0"], item.case, 0), axis)
        return bool(np.array_equal(item.ours.values["da"], flipped))
    return bool(
        np.array_equal(
            item.ours.values["y0"], np.flip(array(item.case["arrays"]["a"], item.case), axis), equal_nan=True
        )
    )


@rule("MXNet's answer is another one in another process: it reads memory that nobody wrote")
def MXNet_reads_unwritten_memory(item: Comparison, difference: Difference) -> bool:
    if difference.kind != "value":
        return False
    for _ in range(2):
        again = item.oracle.answer(item.case, fresh=True)
        if difference.name in again.values:
            first, second = item.theirs.values[difference.name], again.values[difference.name]
            if not np.array_equal(first, second, equal_nan=_is_float(first)):
                return True
    return False
