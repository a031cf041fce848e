"""Compiled kernels, loaded and launched by Triton's own launchers, on a GPU whose chip alone is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hybrid_lab.engines.triton.run.availability import c_compiler
from tests.triton_device import ON_GPU

pytest.importorskip("torch")
pytest.importorskip("triton")

pytestmark = [
    pytest.mark.skipif(ON_GPU, reason="this machine has one"),
    pytest.mark.skipif(c_compiler() is None, reason="Triton builds its launchers with a C compiler"),
]


@pytest.mark.parametrize("target", ["sm90", pytest.param("gfx942", marks=pytest.mark.long)])
def test_launches_arrive_as_the_binaries_take_them(target):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "HYBRID_LAB_"))}
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulated_gpu.session", target],
        cwd=Path(__file__).parents[2],
        env=environment | {"HYBRID_LAB_CACHE": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["problems"] == [] and found["default"] == "triton"
    assert found["away"] < 1e-4  # masks of dropout included: they are the same, bit by bit
    assert f"Triton on {target}" in found["report"]
    launches = found["launches"]
    assert launches["convolution_activation"] == launches["multi_adam_update"] == 2
    # Of four calls one is plain, one is captured and run once more to compare, and two are replayed.
    assert launches["fullyconnected_activation"] == 5 and "2 replays" in found["captured"]
    assert "not captured" not in found["captured"]
