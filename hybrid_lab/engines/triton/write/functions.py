# mypy: ignore-errors
"""Functions that kernels call in addition to Triton's own. The text of a kernel contains the functions that it calls.

This file is read as text and never imported: `syntax.FUNCTIONS` has the text of each function.
"""

import triton
import triton.language as tl


@triton.jit
def divide(a, b):
    """a / b, rounded correctly: NVIDIA's `/` of float32 is off by up to 2 units in the last place."""
    quotient = a / b
    if quotient.dtype == tl.float32:
        quotient = tl.div_rn(tl.cast(a, tl.float32), tl.cast(b, tl.float32))
    return quotient


@triton.jit
def square_root(x):
    """The square root, rounded correctly: NVIDIA's `tl.sqrt` of float32 is not."""
    if x.dtype == tl.float32:
        root = tl.sqrt_rn(x)
    else:
        root = tl.sqrt(x)
    return root


@triton.jit
def philox_word(seed, draw, element):
    """Word number `element` of a draw, by Philox4x32-10: see hybrid_lab.ops.kernels.philox."""
    key0, key1 = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    block = element // 4
    c0, c1 = block.to(tl.uint32), (block >> 32).to(tl.uint32)
    c2, c3 = draw.to(tl.uint32) + c0 * 0, (draw >> 32).to(tl.uint32) + c0 * 0
    for _ in tl.static_range(10):
        b0, b2 = c0, c2
        c0 = tl.umulhi(tl.full(b2.shape, 0xCD9E8D57, tl.uint32), b2) ^ c1 ^ key0
        c2 = tl.umulhi(tl.full(b0.shape, 0xD2511F53, tl.uint32), b0) ^ c3 ^ key1
        c1 = b2 * tl.full(b2.shape, 0xCD9E8D57, tl.uint32)
        c3 = b0 * tl.full(b0.shape, 0xD2511F53, tl.uint32)
        key0 = key0 + 0x9E3779B9
        key1 = key1 + 0xBB67AE85
    lane = element % 4
    return tl.where(lane == 0, c0, tl.where(lane == 1, c1, tl.where(lane == 2, c2, c3)))


@triton.jit
def philox_normal(seed, draw, element, dtype: tl.constexpr):
    """Standard normal number `element` of a draw: words 2k and 2k + 1 make two, by Box and Muller's transform."""
    first = philox_word(seed, draw, element // 2 * 2)
    angle = philox_word(seed, draw, element // 2 * 2 + 1).to(dtype) * 1.4629180792671596e-09
    below = (first ^ tl.full(first.shape, 0xFFFFFFFF, tl.uint32)).to(dtype) * 2.3283064365386963e-10
    slight = below * (1.0 + below * (0.5 + below * (0.3333333333333333 + below * 0.25)))
    logarithm = tl.where(below < 0.001, slight, -tl.log((first.to(dtype) + 1.0) * 2.3283064365386963e-10))
    radius = square_root(2.0 * logarithm)
    return tl.where(element % 2 == 0, radius * tl.cos(angle), radius * tl.sin(angle))


@triton.jit
def multiplied(left, right):
    """What products over rows are put together with."""
    return left * right


@triton.jit
def arc_tangent(x):
    """The angle of a slope (Cephes): far from 0 from the inverse slope, around 1 as the difference from 45 degrees."""
    slope = tl.abs(x)
    far, near = slope > 2.414213562373095, slope <= 0.66
    y = tl.where(near, slope, tl.where(far, divide(-1.0, tl.maximum(slope, 1.0)), divide(slope - 1.0, slope + 1.0)))
    s = y * y
    above = (((-0.8750608600031904 * s - 16.157537187333652) * s - 75.00855792314705) * s - 122.88666844901361) * s
    below = ((((s + 24.858464901423062) * s + 165.02700983169885) * s + 432.88106049129027) * s + 485.3903996359137) * s
    y = divide(y * s * (above - 64.85021904942025), below + 194.5506571482614) + y
    y += tl.where(near, 0.0, tl.where(far, 2.0, 1.0)).to(x.dtype) * 0.7853981633974483
    return tl.where(x < 0, -y, tl.where(x == 0, x, y))


# A quotient that is rounded before it is cut, as in a - floor(a / b) * b and in a GPU's own remainder, is not exact.
# Digits below 2^28 times a divisor of 24 bits are exact in float64; ten of them reach over all of float32. A divisor of
# float64 is two halves; digits below 2^26 have exact products with a half; 84 digits cover the whole range.
@triton.jit
def rest_of_division(left, size):
    """The remainder of a number not below 0 after division by another, in float64."""
    for part in tl.static_range(4):
        factor = tl.full([], 2.0**520, tl.float64)
        for _ in range(21):
            step = size * (2.0 ** (273 * (3 - part))) * (2.0 ** (273 * (3 - part))) * factor
            high = (step.to(tl.int64, bitcast=True) & -134217728).to(tl.float64, bitcast=True)
            digit = tl.floor(left / step)
            taken = digit * high
            rest = left - taken
            lost = (left - (rest - (rest - left))) - (taken + (rest - left))
            rest = (rest - digit * (step - high)) + lost
            left = tl.where(step > left, left, tl.where(rest < 0, rest + step, rest))
            factor *= 2.0**-26
    return left


@triton.jit
def modulo(a, b):
    """a modulo b with the sign of b, 0 if b is 0: long division, with digits of 28 bits for floating numbers."""
    a, b = tl.broadcast(a, b)
    if a.dtype.is_int():
        divisor = tl.where(b == 0, 1, b)
        rest = a % divisor
        rest = tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + divisor, rest)
        return tl.where(b == 0, 0, rest)
    else:
        left, size = tl.abs(a).to(tl.float64), tl.abs(b).to(tl.float64)
        if a.dtype == tl.float64:
            left = rest_of_division(left, size)
        else:
            for place in tl.static_range(10):
                step = size * (2.0 ** (252 - 28 * place))
                rest = tl.fma(-tl.floor(left / step), step, left)
                left = tl.where(step > left, left, tl.where(rest < 0, rest + step, rest))
        rest = left.to(a.dtype)
        rest = tl.where(((a < 0) == (b < 0)) | (rest == 0), rest, tl.abs(b) - rest)
        return tl.where(b == 0, 0.0, tl.where(b < 0, -rest, rest))


@triton.jit
def whole_quotient(a, b):
    """a / b of whole numbers, towards zero; 0 if b is 0."""
    return tl.where(b == 0, 0, a // tl.where(b == 0, 1, b))


@triton.jit
def hypotenuse(a, b):
    """sqrt(a^2 + b^2) without squares that overflow; infinite if a or b is."""
    endless = (a == float("inf")) | (a == -float("inf")) | (b == float("inf")) | (b == -float("inf"))
    a, b = tl.broadcast(a, b)
    if a.dtype.is_int():
        longer, shorter = tl.abs(a.to(tl.float64)), tl.abs(b.to(tl.float64))
    else:
        longer, shorter = tl.abs(a), tl.abs(b)
    longer, shorter = tl.where(longer < shorter, shorter, longer), tl.where(longer < shorter, longer, shorter)
    slope = divide(shorter, tl.where(longer == 0, 1.0, longer))
    return tl.where(endless, float("inf"), longer * square_root(1.0 + slope * slope))


# float32 has too few digits for a logarithm that is multiplied by a large exponent.
@triton.jit
def raised(a, b):
    """a to the power of b, in float64; zeros, infinities and NaN as C's pow has them."""
    size = tl.exp2(b.to(tl.float64) * tl.log2(tl.abs(a).to(tl.float64))).to(a.dtype)
    whole, half = tl.floor(b) == b, b * 0.5
    odd = whole & (tl.floor(half) != half)
    below = (a < 0) | ((a == 0) & (divide(1.0, a) < 0))
    broken = (a < 0) & (a > -float("inf")) & (whole == 0)
    size = tl.where(broken, float("nan"), tl.where(below & odd, -size, size))
    return tl.where((b == 0) | (a == 1) | ((a == -1) & (tl.abs(b) == float("inf"))), 1.0, size)


@triton.jit
def log_plus_one(x):
    """log(1 + x); the quotient of x and u - 1 makes up for the digits of x lost in the sum u."""
    u = 1.0 + x
    kept = u - 1.0
    return tl.where(u == x, tl.log(u), tl.where(kept == 0, x, tl.log(u) * divide(x, tl.where(kept == 0, 1.0, kept))))


@triton.jit
def half_away(x):
    """The nearest whole number; halves go away from zero."""
    whole = tl.where(x < 0, tl.ceil(x), tl.floor(x))
    return tl.where(tl.abs(x - whole) >= 0.5, whole + tl.where(x < 0, -1.0, 1.0), whole)


@triton.jit
def cube_root(x):
    """The cube root, with a step of Newton's, so that it is 10 of 1000."""
    size = tl.abs(x)
    y = tl.exp2(tl.log2(size) * 0.3333333333333333)
    y -= (y - divide(size, y * y)) * 0.3333333333333333
    return tl.where((size == 0) | (size == float("inf")), x, tl.where(x < 0, -y, y))


@triton.jit
def hyperbolic_sine(x, half):
    """sinh(x), by its series if exponentials would cancel. half : exp(x / 2), which overflows later than exp(x)"""
    square = x * x
    series = square * (1.0 / 380.0)
    for k in tl.static_range(8, 0, -1):
        series = (series + 1.0) * square * (1.0 / (2 * k * (2 * k + 1)))
    return tl.where(square < 1.0, x + x * series, 0.5 * half * half - divide(divide(0.5, half), half))


@triton.jit
def hyperbolic_cosine(half):
    """cosh(x). half : exp(x / 2), which overflows later than exp(x)"""
    return 0.5 * half * half + divide(divide(0.5, half), half)


@triton.jit
def area_tangent(slope, far):
    """The inverse hyperbolic tangent of a slope below 0.25 by its series, if logarithms would cancel; else `far`."""
    square = slope * slope
    series = square * (1.0 / 25.0)
    for k in tl.static_range(11, 0, -1):
        series = (series + 1.0 / (2 * k + 1)) * square
    return tl.where(square < 0.0625, slope + slope * series, far)


@triton.jit
def array_at(place_ptr, dtype: tl.constexpr, whole: tl.constexpr):
    """The array whose address lies there."""
    array_ptr = tl.load(place_ptr).to(tl.pointer_type(dtype))
    if whole:
        array_ptr = tl.multiple_of(array_ptr, 16)
    return array_ptr
