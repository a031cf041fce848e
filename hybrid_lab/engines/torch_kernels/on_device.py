"""Operators that a GPU runs by their record's NumPy kernel on `DeviceArray`s: they have no Triton kernel, or none for
some attributes, and the table of torch calls has no entry for them.

`OPERATORS` names them, and tests run each on every sample of its record. An engine of the CPU does not look here: it
has NumPy itself. Like NumPy's own, these kernels may read numbers back, a length or a condition, so that a captured
program cannot hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.engines.memory import torch_dtype
from hybrid_lab.graph.node import Constant, Node, Value
from hybrid_lab.ops.framework.contract import read_outputs
from hybrid_lab.ops.framework.run import InFloat32, computes_in_float32

if TYPE_CHECKING:
    import torch
    from numpy.typing import DTypeLike

#: Family of records -> names.
FAMILIES: dict[str, tuple[str, ...]] = {
    "arithmetic": ("_npi_arctan2", "broadcast_power", "ceil", "exp", "fix", "floor", "rint", "round", "trunc"),
    "boxes": (
        "_contrib_MultiBoxDetection", "_contrib_MultiBoxTarget", "_contrib_MultiProposal", "_contrib_Proposal",
        "_contrib_bipartite_matching", "_contrib_box_encode", "_contrib_box_nms", "_rows_by_record",
    ),
    "choices": ("_contrib_allclose", "_present", "_sparse_retain", "fill_element_0index", "take", "where"),
    "distributions": (
        "_random_gamma_like", "_random_generalized_negative_binomial_like", "_random_negative_binomial_like",
        "_random_poisson_like", "_sample_exponential", "_sample_gamma", "_sample_generalized_negative_binomial",
        "_sample_multinomial", "_sample_negative_binomial", "_sample_normal", "_sample_poisson", "random_gamma",
        "random_generalized_negative_binomial", "random_negative_binomial", "random_poisson",
    ),
    "images": (
        "_image_adjust_lighting", "_image_normalize", "_image_random_brightness", "_image_random_contrast",
        "_image_random_flip_left_right", "_image_random_flip_top_bottom",
        "_image_random_lighting", "_image_random_saturation",
    ),
    "layers": (
        "CTCLoss", "Correlation", "_contrib_hawkesll", "_correlation_grad", "_hawkesll_grad", "_max_pool_pick",
        "_recurrence", "_recurrence_grad",
    ),
    "linear algebra": (
        "_eigh", "_linalg_det", "_linalg_extracttrian", "_linalg_gelqf", "_linalg_inverse", "_linalg_maketrian",
        "_linalg_potrf", "_linalg_potri", "_linalg_slogdet", "_linalg_syevd", "_linalg_trsm", "_np_det", "_svd",
    ),
    "order and sums": (
        "_block_sum", "_contrib_count_sketch", "_contrib_fft", "_contrib_ifft", "_histogram", "_multinomial_grad",
        "_shuffle", "argsort", "cumsum", "norm", "sort", "topk",
    ),
    "places in images": (
        "BilinearSampler", "GridGenerator", "ROIPooling", "_contrib_DeformablePSROIPooling",
        "_contrib_PSROIPooling", "_contrib_ROIAlign", "_contrib_RROIAlign", "_deformable_psroi_pooling_grad",
        "_deformed_patches", "_deformed_patches_data_grad", "_deformed_patches_offset_grad", "_grid_generator_grad",
        "_masked_patches", "_masked_patches_data_grad", "_masked_patches_offset_grad", "_psroi_pooling_grad",
        "_roi_align_grad", "_roi_pooling_grad", "_roi_pooling_pick", "_sampler_data_grad", "_sampler_grid_grad",
        "_sampler_slope", "_sampler_slope_data_grad", "_sampler_twist",
    ),
    "quantized": (
        "_contrib_calibrate_entropy", "_contrib_dequantize", "_contrib_quantize", "_contrib_quantize_v2",
        "_contrib_quantized_pooling", "_contrib_requantize", "_sg_mkldnn_conv",
    ),
    "special functions": ("_digamma", "_polygamma", "_trigamma", "erfinv", "gamma", "gammaln"),
}  # fmt: skip
OPERATORS = frozenset(name for names in FAMILIES.values() for name in names)

#: Operators of images that OpenCV computes, which has no form for tensors.
BY_OPENCV = frozenset({"_image_random_color_jitter", "_image_random_hue", "_image_resize"})

_DTYPES = frozenset({"bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"})


def refusal(node: Node) -> str | None:
    """Why the operator's NumPy kernel does not run on a device, or None if it does."""
    if node.op.name not in OPERATORS:
        if node.op.name in BY_OPENCV:
            return "OpenCV computes it on the host"
        return "its NumPy kernel has no form for a device"
    values = (*node.values_in, *node.outputs)
    if any(0 in value.shape for value in values):
        return "arrays without elements"
    others = {value.dtype.name for value in values} - _DTYPES
    return f"torch does not compute with {', '.join(sorted(others))}" if others else None


def kernel_of(node: Node, needs: tuple[bool, ...], device: torch.device) -> Callable[..., tuple[Any, ...]]:
    """What runs the node: a function of the generator's (seed, draw) and of tensors and numbers that returns tensors,
    None for outputs that `needs` leaves out.
    """
    import torch

    from hybrid_lab.engines.torch_kernels import device_functions  # noqa: F401
    from hybrid_lab.engines.torch_kernels.device_array import DeviceArray, Operand, as_tensor

    op: Any = node.op
    dtypes = [value.dtype for value in node.outputs]
    types_in = [item.dtype if isinstance(item, Value) else None for item in node.inputs]
    half = computes_in_float32(op, types_in)
    if half:
        op = InFloat32(op, dtypes).op
    narrow = {torch.bfloat16, *([torch.float16] if op.half_in_float32 else [])} if half else set()
    known: dict[int, DeviceArray] = {}
    for index, item in enumerate(node.inputs):
        if isinstance(item, Value) and isinstance(item.node.op, Constant):
            known[index] = DeviceArray(as_tensor(np.array(item.node.op.array), device))
        elif isinstance(item, Value) and not node.op.reads_values(index):
            shape_only = torch.zeros((), dtype=torch_dtype(item.dtype), device=device)
            known[index] = DeviceArray(shape_only.expand(item.shape))

    def operand(index: int, item: Operand) -> Operand:
        found = known.get(index)
        if found is None:
            if not isinstance(item, torch.Tensor):
                return item
            found = DeviceArray(item)
        return DeviceArray(found.tensor.float()) if found.tensor.dtype in narrow else found

    def scratch(shape: Sequence[int], dtype: DTypeLike) -> DeviceArray:
        return DeviceArray(torch.empty(shape, dtype=torch_dtype(np.dtype(dtype)), device=device))

    constants = {array.tensor.untyped_storage().data_ptr() for array in known.values()}
    fixed: dict[str, Any] = {"need": needs, "scratch": scratch}
    fixed = {name: value for name, value in fixed.items() if name in op.run_keywords}

    def run(rng: tuple[int, int], *inputs: Any) -> tuple[Any, ...]:
        keywords = {**fixed, "rng": (rng[0], rng[1] + (node.draw or 0))} if "rng" in op.run_keywords else fixed
        made = read_outputs(op, op.numpy(*(operand(index, item) for index, item in enumerate(inputs)), **keywords))
        memory = constants | {item.untyped_storage().data_ptr() for item in inputs if isinstance(item, torch.Tensor)}
        results: list[Any] = []
        for item, dtype, need in zip(made, dtypes, needs, strict=True):
            if item is None or not need:
                results.append(None)
                continue
            tensor = as_tensor(item, device, torch_dtype(dtype)).contiguous()
            results.append(tensor.clone() if tensor.untyped_storage().data_ptr() in memory else tensor)
        return tuple(results)

    return run
