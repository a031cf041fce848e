"""The simulated GPU refuses what a GPU would refuse or run wrongly: one launch of each kind, planted (faults.py)."""

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
    pytest.mark.skipif(ON_GPU, reason="it has no faults to spare"),
    pytest.mark.skipif(c_compiler() is None, reason="Triton builds its launchers with a C compiler"),
]

#: What is said of each fault; of all others nothing.
REFUSALS = {
    "unaligned": "multiples of 16",
    "of the host": "no memory of the device",
    "freed": "memory that was freed",
    "beyond the end": "loads 0 bytes behind the end of an argument's memory",
    "before the beginning": "loads 32 bytes before the beginning of an argument's memory",
    "overflowing offsets": "of an argument's memory",
    "many programs along y": "65536 programs along y",
    "many programs along z": "65536 programs along z",
    "more programs than 32 bits": "Triton's launcher starts none",
    "a number of more than 32 bits": "Triton's launcher cuts to 32 bits",
    "many threads": "out of resource: threads, Required: 2048, Hardware limit: 1024",
    "much shared memory": "out of resource: shared memory, Required: 262144",
    "for another chip": "doubled is a binary for",
    "on no stream": "there is no stream",
    "another stream": "does not wait for",
    "an arena on another stream": "does not wait for",
    "numbers read back in a capture": "not permitted when stream is capturing",
    "memory of the host in a capture": "not permitted when stream is capturing",
    "waiting in a capture": "not permitted when stream is capturing",
    "memory freed after a capture": "memory that was freed",
}
#: AMD's buffer instructions have offsets of 32 bits.
OF_AMD = {"beyond buffers": "offsets of 32 bits do not reach"}


@pytest.mark.parametrize("target", ["sm90", pytest.param("gfx942", marks=pytest.mark.long)])
def test_faults_are_refused_and_right_launches_are_not(target):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "HYBRID_LAB_"))}
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulated_gpu.faults", target],
        cwd=Path(__file__).parents[2],
        env=environment | {"HYBRID_LAB_CACHE": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    expected = REFUSALS | (OF_AMD if target.startswith("gfx") else {})
    assert set(expected) <= set(found)
    assert {name: said for name, said in found.items() if said and name not in expected} == {}
    assert {name: said for name, said in found.items() if expected.get(name, "") not in said} == {}
