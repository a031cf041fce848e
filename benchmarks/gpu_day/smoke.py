"""smoke: every kind of kernel at three sizes, forward and gradients, against eager runs in float64.

Memory that kernels write to is filled with bytes of 255 first - NaN, -1 - so that an element nobody wrote is seen.
Besides: a training, dropout's masks, captured launches, and copies between host and device.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from gpu_day import layers
from gpu_day.cases import CASES, SIZES, Case, of, quotients_and_roots, table
from gpu_day.options import Item, Options

JOBS = 4
LIMIT = 100.0
#: precision -> how far results may be from float64's, forward and gradients, relative to the largest.
TOLERANCES = {"float32": (2e-5, 2e-4), "tf32": (1e-2, 2e-2), "float16": (1e-2, 3e-2)}
#: What is checked beside the cases.
OTHERS = ("training by sgd", "training by adam", "dropout", "captured prediction", "captured training", "copies")
#: What `right` and `fast` run before anything else.
FIRST = "first kernel"
#: Cases that have products, which alone are different with tf32.
_PRODUCTS = ("dense", "batched product", "convolution", "1 x 1 convolution", "attention", "LSTM")


def items(options: Options) -> list[Item]:
    """Small sizes of everything first, then the rest, then the other precisions."""
    sizes = SIZES[:1] if options.small else SIZES
    names = [f"{case}, {size}, float32" for size in sizes[:1] for case in CASES]
    names += OTHERS
    names += [f"{case}, {size}, float32" for size in sizes[1:] for case in CASES]
    names += [f"{case}, {size}, tf32" for size in sizes for case in _PRODUCTS]
    names += [f"{case}, {size}, float16" for size in sizes for case in CASES]
    return [Item(name, LIMIT) for name in names]


def run(name: str, options: Options) -> dict[str, Any]:
    """The errors and the kinds of kernels of one item. Raises AssertionError for a wrong result."""
    if name in OTHERS:
        from gpu_day import trainings

        return trainings.check(name)
    case, size, precision = name.split(", ")
    return check(CASES[case], size, precision)


def graphs(name: str, rule: Any = None, small: bool = False) -> dict[str, Any]:
    """The graphs of an item or of FIRST; {} for copies. Nothing runs.

    rule : which products the GPU's own library computes
    """
    if name in OTHERS:
        from gpu_day import trainings

        return trainings.graphs(name)
    if name == FIRST:
        rows, columns = table(small)
        return layers.graphs_of(of(quotients_and_roots), [((rows - 1) * (columns - 1),)] * 2)
    case, size, precision = name.split(", ")
    dtype = "float16" if precision == "float16" else "float32"
    shapes = list(CASES[case].shapes[SIZES.index(size)])
    found = layers.graphs_of(CASES[case].block, shapes, dtype, "every", rule, bool(CASES[case].numbers))
    return {part: graph for part, graph in found.items() if not part.startswith("update")}


def check(case: Case, size: str, precision: str) -> dict[str, Any]:
    """Two calls with different inputs: the second one finds the first one's numbers in memory that is used again."""
    import hybrid_lab as mx
    from hybrid_lab import autograd
    from hybrid_lab.engines.triton.run.arena import POOL

    dtype = "float16" if precision == "float16" else "float32"
    mx.random.seed(1)
    net, exact = case.block(), case.block()
    for block in (net, exact):
        block.initialize(mx.init.Xavier())
    first = case.inputs(size, 0)
    for block in (net, exact):
        with autograd.pause():
            block(*(mx.nd.array(array) for array in first))
    net.cast(dtype)
    exact.cast("float64")
    net.collect_params().reset_ctx(mx.gpu(0))
    for mine, other in zip(net.collect_params().values(), exact.collect_params().values(), strict=True):
        other.set_data(mx.nd.array(mine.data(mx.gpu(0)).asnumpy().astype("float64"), dtype="float64"))
    net.hybridize(engine="triton", tf32=precision == "tf32")
    allowed, kinds = TOLERANCES[precision], Counter[str]()
    errors = {"forward": 0.0, "gradients": 0.0}
    POOL.clear()
    with poisoned(), kernels_counted(kinds):
        for seed in (0, 1):
            arrays = [array.astype(dtype) for array in case.inputs(size, seed)]
            found = results(net, arrays, dtype, mx.gpu(0), bool(case.numbers))
            expected = results(exact, arrays, "float64", mx.cpu(), bool(case.numbers))
            for part, most in zip(errors, allowed, strict=True):
                for index, (one, other) in enumerate(zip(found[part], expected[part], strict=True)):
                    away = difference(one, other)
                    assert away <= most, f"{part} {index} is {away:.3g} away from float64, {most:g} is allowed"
                    errors[part] = max(errors[part], away)
    return {"errors": errors, "kinds": dict(kinds)}


def results(net: Any, arrays: list[np.ndarray], dtype: str, ctx: Any, whole: bool) -> dict[str, list[np.ndarray]]:
    """Outputs, and gradients of inputs and parameters for random heads."""
    from hybrid_lab import autograd, nd

    inputs = [nd.array(array.astype(dtype), dtype=dtype, ctx=ctx) for array in arrays]
    for array in inputs[whole:]:
        array.attach_grad()
    with autograd.record():
        made = net(*inputs)
        made = list(made) if isinstance(made, (list, tuple)) else [made]
    random = np.random.default_rng(5)
    heads = [nd.array(random.uniform(-1, 1, each.shape).astype("float16"), dtype=dtype, ctx=ctx) for each in made]
    autograd.backward(made, heads)
    trained = [each for each in net.collect_params().values() if each.grad_req != "null"]
    gradients = [array.grad for array in inputs[whole:]] + [each.grad(ctx) for each in trained]
    return {
        "forward": [each.asnumpy() for each in made],
        "gradients": [each.asnumpy() for each in gradients],
    }


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference relative to the largest expected number; infinite where NaN or another shape is.

    Half of the smallest number of the dtype is no difference: results that small are rounded to it, or to 0.
    """
    if found.shape != expected.shape or not np.isfinite(found).all():
        return float("inf")
    scale = float(np.abs(expected).max(initial=0)) or 1.0
    away = float(np.abs(found.astype(np.float64) - expected).max(initial=0))
    rounding = float(np.finfo(found.dtype).smallest_subnormal) / 2 if found.dtype.kind == "f" else 0.0
    return max(away - rounding, 0.0) / scale


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """Memory that the engine asks for on the device is full of bytes of 255."""
    import torch

    from hybrid_lab.engines import memory

    empty = memory.empty

    def filled(shape: Any, dtype: Any, device: Any) -> Any:
        tensor = empty(shape, dtype, device)
        if tensor.numel():
            tensor.view(-1).view(torch.uint8).fill_(255)
        return tensor

    memory.empty = filled
    try:
        yield
    finally:
        memory.empty = empty


@contextlib.contextmanager
def kernels_counted(kinds: Counter[str]) -> Iterator[None]:
    """Count the kinds of kernels that are made ready meanwhile."""
    from hybrid_lab.engines.triton.run import kernel

    init = kernel.Kernel.__init__

    def counting(self: Any, source: Any) -> None:
        kinds[source.kind] += 1
        init(self, source)

    kernel.Kernel.__init__ = counting  # type: ignore[method-assign]
    try:
        yield
    finally:
        kernel.Kernel.__init__ = init  # type: ignore[method-assign]
