"""Triton's interpreter, as the Triton engine sets it up."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch

from hybrid_lab.engines.triton.build import internals
from hybrid_lab.engines.triton.run.availability import device
from tests.engines.test_triton import interpreter  # noqa: F401
from tests.triton_device import ON_GPU

pytestmark = pytest.mark.skipif(ON_GPU, reason="kernels run on the GPU")


@pytest.fixture(autouse=True)
def ready(interpreter):  # noqa: F811
    device()


def test_nothing_is_computed_for_checks_that_nobody_reads():
    """Triton would compute each sum and product of whole numbers again in 64 bits. Both wrap around, as on a GPU."""
    from triton.runtime import interpreter as triton_interpreter

    source = "import triton\nimport triton.language as tl\n\n"
    source += "@triton.jit\ndef add(x):\n    tl.store(x, tl.load(x) + 1)\n"
    most = torch.tensor([2**31 - 1], dtype=torch.int32)
    internals.function_of("add", source, "add.py")[(1,)](most)
    assert most.tolist() == [-(2**31)]
    options = getattr(triton_interpreter.interpreter_builder, "options", None)
    assert not getattr(options, "sanitize_overflow", False)
