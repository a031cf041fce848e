"""bfloat16: every sample of every record, by the kernels of NumPy and in the engines."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hybrid_lab.graph import Graph, input_node
from hybrid_lab.graph.builder import Builder, Expr
from hybrid_lab.ops.framework.dtypes import bfloat16, is_bfloat16
from hybrid_lab.ops.framework.run import run_kernel
from tests.engines.bfloat16_case import is_float32, narrowed
from tests.engines.test_samples import Wanted, compare
from tests.failures import Failures
from tests.ops.cases import RNG, Case, close, each_sample
from tests.triton_device import use_triton


@each_sample(is_float32)
def test_records(case: Case, monkeypatch):
    """The kernel; of the first sample the programs of NumPy and Triton's kernels, too."""
    narrow, failures = narrowed(case), Failures()
    with failures.of("the kernel"):
        check_kernel(case)
    if narrow is not None and case.number == 0:
        wanted = Wanted(narrow)
        with failures.of("numpy"):
            wanted.compare("numpy")
        with failures.of("triton"), monkeypatch.context() as patch:
            use_triton(patch)
            wanted.compare("triton")
    failures.raise_all()


def check_kernel(case: Case) -> None:
    """It computes in float32 and rounds once."""
    narrow = narrowed(case)
    assert (narrow is None) == (narrowed(case, "float16") is None), "it takes one of the two narrow types only"
    if narrow is None:
        return
    inputs = narrow.inputs()
    wide = [item.astype(np.float32) if isinstance(item, np.ndarray) and is_bfloat16(item.dtype) else item
            for item in inputs]  # fmt: skip
    with np.errstate(all="ignore"):
        outputs, wanted = run_kernel(case.op, inputs, rng=RNG), run_kernel(case.op, wide, rng=RNG)
        memory = tuple(np.zeros(y.shape, y.dtype) for y in outputs)
        run_kernel(case.op, inputs, out=memory, rng=RNG)
    assert [y.dtype for y in outputs] == list(narrow.inferred()[1])
    assert bfloat16() in [item.dtype for item in inputs if isinstance(item, np.ndarray)]
    for y, filled, expected in zip(outputs, memory, wanted, strict=True):
        assert np.array_equal(y.astype(np.float64), filled.astype(np.float64), equal_nan=True)
        if is_bfloat16(y.dtype):
            np.testing.assert_allclose(y.astype(np.float64), expected, rtol=2.0**-8, atol=1e-38)
        else:
            close(y, expected)


@pytest.mark.parametrize("engine", ["onnxruntime", "torch"])
@each_sample(lambda case: case.record.name in ("Convolution", "dot", "softmax", "Cast", "BatchNorm", "sum", "take"))
def test_other_engines_of_a_cpu_leave_it_to_numpy(case: Case, engine: str):
    narrow = narrowed(case)
    if narrow is not None and is_float32(case):
        assert all(program.report.fallbacks for program in compare(narrow, engine))


@pytest.mark.parametrize(
    "target, instruction",
    [
        ("gfx942", r"v_mfma_f32\w+bf16"),
        ("gfx1100", r"v_wmma_f32\w+bf16"),
        ("sm80", r"mma\.sync.*\.bf16\.bf16\.f32"),
    ],
)
def test_products_take_bfloat16_and_add_up_in_float32(target, instruction, monkeypatch):
    """Forward of a dense layer, its softmax and conversions, for chips that are not here: products on matrix units."""
    use_triton(monkeypatch)
    from hybrid_lab.engines.triton.build.compiling import compile_all
    from hybrid_lab.engines.triton.plan.other_batches import kernels_of

    builder = Builder()
    x, w, b = (
        Expr(builder, input_node(name, shape=shape, dtype="bfloat16"))
        for name, shape in (("x", (256, 128)), ("w", (256, 128)), ("b", (256,)))
    )
    y = builder.softmax(builder.FullyConnected(x, w, b, num_hidden=256))
    graph = Graph([x.value, w.value, b.value], [y.value, builder.Cast(y, dtype="float32").value])
    sources = kernels_of(graph)[2]
    assert {"product", "rows"} <= {source.kind for source in sources}
    assert {"*bf16", "*fp32"} <= {kind for source in sources for kind in source.signature.values()}
    binaries = compile_all(sources, target)
    (product,) = [made for made, source in zip(binaries, sources, strict=True) if source.kind == "product"]
    assert re.search(instruction, product.assembly)
