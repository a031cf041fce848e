"""A process that keeps freed memory touches no new pages for the next arrays of the same sizes."""

import platform
import subprocess
import sys

import pytest

from hybrid_lab.system.memory import keep_freed_memory

SCRIPT = """
import resource, sys
import numpy as np
from hybrid_lab.system.memory import keep_freed_memory

def arrays():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    several = [np.ones(20 << 20, "uint8") for _ in range(4)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if sys.argv[1] == "keep":
    assert keep_freed_memory({})
for _ in range(3):
    arrays()
print(arrays())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's setting")
def test_the_next_arrays_take_the_memory_of_the_last_ones():
    kept, given_back = (
        int(subprocess.run([sys.executable, "-c", SCRIPT, mode], capture_output=True, text=True, check=True).stdout)
        for mode in ("keep", "default")
    )
    assert kept < 10 <= given_back


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_the_users_setting_stays(name):
    assert not keep_freed_memory({name: "0"})
