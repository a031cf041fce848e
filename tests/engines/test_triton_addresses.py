"""Kernels are compiled for addresses that are multiples of 16 bytes only where addresses are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hybrid_lab.engines.triton.run.availability import c_compiler
from hybrid_lab.graph import input_node
from hybrid_lab.graph.builder import make_node
from hybrid_lab.ops.framework.operator import get
from tests.triton_device import ON_GPU

pytest.importorskip("torch")
pytest.importorskip("triton")

from hybrid_lab.engines.triton.build.compiling import compile_all, divisible
from hybrid_lab.engines.triton.run.addresses import bytes_before, is_aligned
from tests.engines.test_triton_compiling import source

#: All dtypes where there is time for many graphs (make test-graphs), else one of each size but for the largest.
DTYPES = [] if int(os.environ.get("HYBRID_LAB_GRAPHS", "0")) > 400 else ["bfloat16", "float32", "uint8"]


@pytest.mark.long
@pytest.mark.skipif(ON_GPU, reason="this machine has one")
@pytest.mark.skipif(c_compiler() is None, reason="Triton builds its launchers with a C compiler")
def test_every_way_to_a_kernel_may_be_an_odd_address():
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "HYBRID_LAB_"))}
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulated_gpu.addresses", "sm90", *DTYPES],
        cwd=Path(__file__).parents[2],
        env=environment | {"HYBRID_LAB_CACHE": "", "HYBRID_LAB_CPU": "numpy"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {title: problem for title, problem in found["cases"].items() if problem} == {}
    assert len(found["cases"]) > 50
    assert {"4", "8", "12", "2", "14", "1", "15"} <= found["odd"].keys(), "kernels have read at odd addresses"


def view(name, data, **attributes):
    return make_node(get(name).bind(**attributes), [data]).outputs[0]


@pytest.mark.parametrize("dtype, whole", [("float32", 4), ("float16", 8), ("uint8", 16), ("float64", 2)])
def test_where_a_view_begins_follows_from_the_graph(dtype, whole):
    x = input_node("x", shape=(64, 5), dtype=np.dtype(dtype))
    flat = view("Reshape", x, shape=(-1,))
    size = np.dtype(dtype).itemsize
    first = view("slice_axis", x, axis=0, begin=1, end=9)
    assert bytes_before(first) == 5 * size and not is_aligned(first)
    assert is_aligned(view("slice_axis", flat, axis=0, begin=whole, end=None))
    assert not is_aligned(view("slice_axis", flat, axis=0, begin=whole - 1, end=None))
    both = view("slice_axis", view("slice_axis", flat, axis=0, begin=1, end=None), axis=0, begin=whole - 1, end=None)
    assert bytes_before(both) == 16 and is_aligned(both)
    assert bytes_before(view("slice_axis", x, axis=1, begin=1, end=None)) == 0, "it is copied"
    assert bytes_before(view("transpose", first)) == 0, "it is copied"


@pytest.mark.parametrize("target, wide", [("gfx942", "dwordx4"), ("sm90", ".v4.b32")])
def test_a_kernel_without_the_promise_does_not_load_sixteen_bytes(target, wide):
    aligned = source(n=1 << 20)
    anywhere = replace(aligned, anywhere=(0,))
    assert dict(divisible(aligned))[0] == 16 and 0 not in dict(divisible(anywhere)) and 1 in dict(divisible(anywhere))
    first, second = compile_all([aligned, anywhere], target)
    assert first.key != second.key
    loads = ["load", "ld.global"]
    count = [sum(wide in line and any(map(line.__contains__, loads)) for line in item.assembly.splitlines())
             for item in (first, second)]  # fmt: skip
    assert count[0] > 0 == count[1]
