"""Where tests run Triton's kernels: in its interpreter, or on the GPU of `make test-gpu`."""

import functools
import itertools
import os
import random

import pytest

#: Set by `make test-gpu`.
ON_GPU = os.environ.get("HYBRID_LAB_TEST_GPU") == "1"
#: Whether that GPU is simulated (tests/simulated_gpu).
SIMULATED = "SIMULATED_GPU" in os.environ


def use_triton(monkeypatch):
    """Make the Triton engine usable for the rest of a test."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    if not ON_GPU:
        monkeypatch.setenv("HYBRID_LAB_TRITON", "interpret")
        in_an_order_of_chance()


@functools.cache
def in_an_order_of_chance():
    """Let the interpreter run the programs of a kernel in an order of chance, for a GPU promises none.

    So a kernel that writes what another of its programs still reads gives wrong numbers here too.
    """
    from triton.runtime.interpreter import InterpreterBuilder

    plain, order, waiting = InterpreterBuilder.set_grid_idx, random.Random(0), []

    def set_grid_idx(builder, x, y, z):
        if x == y == z == 0:
            waiting[:] = itertools.product(*map(range, builder.grid_dim))
            order.shuffle(waiting)
        plain(builder, *waiting.pop())

    InterpreterBuilder.set_grid_idx = set_grid_idx
