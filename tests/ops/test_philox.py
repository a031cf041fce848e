"""Random words: equal to Triton's and to the published test vectors; numbers and masks made from them."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from hybrid_lab.ops import F, get
from hybrid_lab.ops.framework.run import run_kernel
from hybrid_lab.ops.kernels import philox


def test_matches_the_published_vectors():
    # Random123, kat_vectors: philox4x32 10, counter and key all zero; all ones.
    assert [f"{w:08x}" for w in philox.words(0, 0, 4)] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]


def test_words_do_not_depend_on_how_many_are_taken():
    many = philox.words(5, 9, 70_001)
    for count in (0, 1, 3, 4, 5, 32_768, 32_769):
        np.testing.assert_array_equal(philox.words(5, 9, count), many[:count])


def test_draws_and_seeds_differ():
    streams = [philox.words(seed, draw, 8) for seed in (1, 2, 2**33 + 1) for draw in (0, 1, 2**32)]
    assert len({stream.tobytes() for stream in streams}) == 9


@pytest.fixture(scope="module")
def triton_words(tmp_path_factory):
    """Words of Triton's interpreter: {(seed, draw): array}."""
    pytest.importorskip("triton")
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("triton")
    script = folder / "words.py"
    script.write_text(
        """
import sys
import numpy as np, torch, triton, triton.language as tl

@triton.jit
def plain(out, seed, SIZE: tl.constexpr):
    block = tl.arange(0, SIZE)
    a, b, c, d = tl.randint4x(seed, block)
    tl.store(out + block * 4, a); tl.store(out + block * 4 + 1, b)
    tl.store(out + block * 4 + 2, c); tl.store(out + block * 4 + 3, d)

@triton.jit
def drawn(out, seed, draw, SIZE: tl.constexpr):
    block = tl.arange(0, SIZE)
    zero = block * 0
    a, b, c, d = tl.philox(seed, block, zero, zero + draw, zero)
    tl.store(out + block * 4, a); tl.store(out + block * 4 + 1, b)
    tl.store(out + block * 4 + 2, c); tl.store(out + block * 4 + 3, d)

found = {}
for seed in (0, 42, 2**31 + 5, 2**40 + 3):
    memory = torch.empty(4096, dtype=torch.int32)
    plain[(1,)](memory, seed, SIZE=1024)
    found[f"{seed},0"] = memory.numpy().view(np.uint32).copy()
    drawn[(1,)](memory, seed, 7, SIZE=1024)
    found[f"{seed},7"] = memory.numpy().view(np.uint32).copy()
np.savez(sys.argv[1], **found)
"""
    )
    target = folder / "words.npz"
    subprocess.run(
        [sys.executable, str(script), str(target)], env={**os.environ, "TRITON_INTERPRET": "1"}, check=True, timeout=300
    )
    with np.load(target) as file:
        return {tuple(map(int, key.split(","))): value for key, value in file.items()}


def test_words_are_tritons(triton_words):
    for (seed, draw), expected in triton_words.items():
        np.testing.assert_array_equal(philox.words(seed, draw, len(expected)), expected)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_uniform_numbers_fill_the_interval(dtype):
    numbers = philox.uniform(3, 1, 100_000, dtype)
    assert numbers.dtype == dtype and numbers.min() >= 0 and numbers.max() < 1
    assert abs(numbers.astype(float).mean() - 0.5) < 0.01


def test_normal_numbers_are_normal():
    numbers = philox.normal(3, 1, 100_001, "float64")
    assert len(numbers) == 100_001 and np.isfinite(numbers).all()
    assert abs(numbers.mean()) < 0.02 and abs(numbers.std() - 1) < 0.01
    assert abs(np.mean(numbers**3)) < 0.05 and abs(np.mean(numbers**4) - 3) < 0.1


@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.9999999, 1.0])
def test_masks_keep_what_the_uniform_numbers_say(keep):
    mask = philox.keep_mask(11, 4, 50_000, keep)
    np.testing.assert_array_equal(mask, philox.uniform(11, 4, 50_000).astype(float) < keep)
    assert abs(mask.mean() - keep) < 0.01


def test_dropout_uses_its_draw_and_its_lowering_agrees():
    x = np.ones((64, 65), np.float32)
    op = get("Dropout").bind(p=0.25).bind_mode(True)
    y, mask = run_kernel(op, [x], rng=(5, 17))
    np.testing.assert_array_equal(mask.reshape(-1), philox.keep_mask(5, 17, x.size, 0.75))
    np.testing.assert_array_equal(y, np.where(mask, np.float32(1 / 0.75), 0))
    np.testing.assert_array_equal(F._masked_scale(x, mask, scale=op.scale), y)


def test_dropout_in_prediction_is_the_identity():
    assert get("Dropout").bind(p=0.5).bind_mode(False) is get("identity").bind()
    assert get("Dropout").bind(p=0.5, mode="always").bind_mode(False).name == "Dropout"
