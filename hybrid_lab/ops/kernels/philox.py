"""Philox4x32-10, the counter-based random generator: the same words at (seed, draw, element) here, in a Triton kernel
and in every run.

Word number e of draw d is word e % 4 of the block with key (low, high half of seed) and counter (e // 4 low, e // 4
high, d low, d high).
With draw 0 and fewer than 2^34 elements this is `tl.randint4x(seed, e // 4)[e % 4]`; in general `tl.philox(seed, e //
4, 0, d, 0)[e % 4]`.

Numbers are made from a word w by shifts and one exact product, so that they are bit-equal everywhere:
float32 (w >> 8) * 2^-24, float64 w * 2^-32, float16 (w >> 21) * 2^-11, all in [0, 1).
A mask keeps element e with probability p where (w >> 8) < ceil(p * 2^24), which is the same as float32 uniform < p.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

import math
import sys

import numpy as np

from hybrid_lab.ops.framework.memory import like_of, overridable
from hybrid_lab.ops.framework.pointwise import printed
from hybrid_lab.ops.framework.protocols import Scratch

MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], np.uint64)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_MASK = 0xFFFFFFFF
_LOW, _HIGH = (0, 1) if sys.byteorder == "little" else (1, 0)
#: Blocks computed at a time: everything stays in the cache.
_PIECE = 16384
_NUMBERS = np.arange(_PIECE, dtype=np.uint32)


def generator(seed: int, draw: int) -> np.random.Generator:
    """NumPy's own generator numbered (seed, draw), for what never runs in a graph: initial values, shuffles."""
    # As an array: of a list with ints above 2^63 NumPy makes float64, which loses the lowest bits of the seed.
    return np.random.Generator(np.random.Philox(key=np.array([seed & 0xFFFFFFFFFFFFFFFF, draw], np.uint64)))


def words(seed: int, draw: int, count: int, scratch: Scratch = np.empty, like: np.ndarray | None = None) -> np.ndarray:
    """The first `count` words of a draw, uint32.

    scratch(shape, dtype) gives the memory, also for the result; like : an array of the device that computes them
    """
    blocks = -(-count // 4)
    if like is not None and not isinstance(like, np.ndarray):
        return words_at(seed, draw, np.arange(blocks, like=like)).reshape(-1)[:count]
    result = scratch((blocks, 4), np.uint32)
    size = min(_PIECE, blocks)
    even = scratch((2, size), np.uint32)
    products = scratch((2, 2, size), np.uint64)
    keys = round_keys(seed)
    for start in range(0, blocks, _PIECE):
        length = min(_PIECE, blocks - start)
        _fill(result[start : start + length], start, draw, keys, even[:, :length], products[..., :length])
    return result.reshape(-1)[:count]


@overridable
def words_at(seed: int, draw: int, blocks: np.ndarray) -> np.ndarray:
    """The words of some blocks of a draw, by their numbers (whole, any dtype): (n, 4) uint32.

    On a device they are int64, for torch has few functions of uint32.
    """
    blocks = blocks.astype(np.uint64, copy=False)
    if len(blocks) > _PIECE:
        pieces = [words_at(seed, draw, blocks[at : at + _PIECE]) for at in range(0, len(blocks), _PIECE)]
        return np.concatenate(pieces)
    low, half = np.uint64(_MASK), np.uint64(32)
    c0, c1 = blocks & low, blocks >> half
    c2, c3 = (np.full(len(blocks), part & _MASK, np.uint64) for part in (draw, draw >> 32))
    m0, m1 = MULTIPLIERS[:, 0]
    for key in round_keys(seed):
        first, second = c0 * m0, c2 * m1
        c0, c1 = (second >> half) ^ c1 ^ np.uint64(key[0, 0]), second & low
        c2, c3 = (first >> half) ^ c3 ^ np.uint64(key[1, 0]), first & low
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def round_keys(seed: int) -> list[np.ndarray]:
    """The keys of the ten rounds, (2, 1) uint32 each."""
    k0, k1 = seed & _MASK, (seed >> 32) & _MASK
    keys = []
    for _ in range(10):
        keys.append(np.array([[k0], [k1]], np.uint32))
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return keys


def _fill(
    out: np.ndarray, start: int, draw: int, keys: list[np.ndarray], even: np.ndarray, products: np.ndarray
) -> None:
    """Ten rounds on the blocks from number `start`, a word a row: `even` holds counters 0 and 2, `odd` 1 and 3."""
    length = len(out)
    np.add(_NUMBERS[:length], np.uint32(start & _MASK), out=even[0])
    even[1] = draw & _MASK
    odd: np.ndarray = np.array([[start >> 32], [(draw >> 32) & _MASK]], np.uint32)
    for number, key in enumerate(keys):
        product = products[number % 2]
        np.multiply(even, MULTIPLIERS, out=product)
        # Counter 0 goes on with the product of counter 2 and the other way round: high halves mix, low halves follow.
        halves = product.view(np.uint32)[::-1]
        np.bitwise_xor(halves[:, _HIGH::2], odd, out=even)
        even ^= key
        odd = halves[:, _LOW::2]
    out[:, 0], out[:, 1], out[:, 2], out[:, 3] = even[0], odd[0], even[1], odd[1]


def uniform(
    seed: int, draw: int, count: int, dtype: np.dtype | str = "float32", like: np.ndarray | None = None
) -> np.ndarray:
    """`count` numbers in [0, 1) of a floating dtype. like : an array of the device that computes them, in float64."""
    bits = words(seed, draw, count, like=like)
    kind = np.dtype(dtype)
    if kind == np.float64:
        return bits * 2.0**-32
    if kind == np.float16:
        return ((bits >> np.uint32(21)).astype(np.float32) * np.float32(2.0**-11)).astype(np.float16)
    bits >>= np.uint32(8)
    made = bits.astype(np.float32)
    made *= np.float32(2.0**-24)
    return made


def uniform_text(dtype: np.dtype, wide: bool = False) -> str:
    """`uniform` as an expression of Triton over {seed}, {draw} and {element}. wide : of all 32 bits in any dtype"""
    word = "philox_word({seed}, {draw}, {element})"
    if dtype == np.float64 or wide:
        kind = "float64" if dtype == np.float64 else "float32"
        return f"{word}.to(tl.{kind}) * {2.0**-32!r}"
    bits = 11 if dtype == np.float16 else 24
    return f"({word} >> {32 - bits}).to(tl.float32) * {2.0**-bits!r}"


def normal_text(dtype: np.dtype) -> str:
    """`normal` likewise."""
    kind = "float64" if dtype == np.float64 else "float32"
    return f"philox_normal({{seed}}, {{draw}}, {{element}}, tl.{kind})"


def moved(numbers: np.ndarray, factor: float, start: float, dtype: np.dtype) -> np.ndarray:
    """numbers * factor + start, rounded to a dtype once; the numbers, of float32 or float64, are written over."""
    if (factor, start) != (1.0, 0.0):
        numbers *= numbers.dtype.type(factor)
        numbers += numbers.dtype.type(start)
    return numbers.astype(dtype, copy=False)


def moved_text(text: str, factor: float, start: float) -> str:
    """`moved` as an expression of Triton."""
    text = text if factor == 1 else f"({text}) * {printed(factor, np.dtype('float64'))}"
    return text if start == 0 else f"{text} + {printed(start, np.dtype('float64'))}"


def keep_threshold(probability: float) -> int:
    """A word w keeps its element where (w >> 8) < this."""
    return min(max(math.ceil(probability * 2**24), 0), 2**24)


def keep_mask(
    seed: int, draw: int, count: int, probability: float, out: np.ndarray | None = None, scratch: Scratch = np.empty
) -> np.ndarray:
    """`count` bools, True with that probability. out : bool memory to fill, (count,)."""
    bits = words(seed, draw, count, scratch)
    bits >>= np.uint32(8)
    return np.less(bits, np.uint32(keep_threshold(probability)), out=out)


def normal(
    seed: int, draw: int, count: int, dtype: np.dtype | str = "float32", like: np.ndarray | None = None
) -> np.ndarray:
    """`count` standard normal numbers by Box and Muller's transform. like : an array of the device that computes them.

    Words 2k and 2k + 1 make the elements 2k (cosine) and 2k + 1 (sine).
    """
    bits = words(seed, draw, count + count % 2, like=like).reshape(-1, 2)
    # The radius takes (w + 1) * 2^-32 in (0, 1], so that its logarithm is finite.
    radius = np.sqrt(-2.0 * np.log((bits[:, 0] + 1.0) * 2.0**-32))
    angle = bits[:, 1] * (2.0 * math.pi * 2.0**-32)
    made = np.empty((len(bits), 2), like=like_of(bits))
    np.multiply(radius, np.cos(angle), out=made[:, 0])
    np.multiply(radius, np.sin(angle), out=made[:, 1])
    return made.reshape(-1)[:count].astype(dtype)


def substream(seed: int, draw: int) -> int:
    """The seed of a stream of its own inside one draw: splitmix64 of both (Steele, Lea, Flood, OOPSLA 2014)."""
    mixed = (seed + (draw + 1) * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return mixed ^ (mixed >> 31)
