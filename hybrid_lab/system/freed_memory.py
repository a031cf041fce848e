"""How much freed memory glibc keeps for the next arrays.

By default glibc gives freed memory at the end of its heap back to the system, and the next large array touches new
pages, which the system clears first: 150 MB of them in a training step of ResNet-18 with 8 images. With 256 MiB kept,
such a step takes 345 ms in place of 380, and one of GELU, LayerNorm and softmax over 4 million elements 12 ms in place
of 18.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

#: Bytes that the process keeps at most, and the size from which an array is mapped by itself and given back at once.
#: glibc allows no larger size.
KEPT, MAPPED = 256 << 20, 32 << 20
#: glibc's numbers of the two settings.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
#: Where these variables are set, the user has decided.
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


def keep_freed_memory(environment: Mapping[str, str] = os.environ) -> bool:
    """Let this process keep up to 256 MiB of freed memory. False, and nothing changes, where the C library is another
    one or the environment sets it.
    """
    if os.name != "posix" or any(name in environment for name in _VARIABLES):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_MMAP_THRESHOLD, MAPPED)) and bool(mallopt(_TRIM_THRESHOLD, KEPT))
