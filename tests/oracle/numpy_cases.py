"""Random calls of mx.np functions, and of methods, operators and indices of NDArrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracle.gluon_cases import spec
from tests.random_programs.writing import Chance

# In the texts: a and b broadcast, c is like a, v is a vector, m and n are matrices that multiply, i holds whole
# numbers, p positive ones, u some in (-1, 1). {axis} is an axis or None, {one} an axis, {axes} an axis, several or
# None, {keep} a bool, {new} a place for an axis.
_UNARY = (
    "abs absolute negative sign exp expm1 sin cos tan arctan sinh cosh tanh arcsinh square cbrt degrees radians rint "
    "ceil floor trunc fix logical_not isnan isinf isfinite deg2rad rad2deg"
).split()
_POSITIVE = "log log2 log10 log1p sqrt reciprocal".split()
_INSIDE = "arcsin arccos arctanh".split()
_BINARY = (
    "add subtract multiply maximum minimum hypot arctan2 copysign equal not_equal greater greater_equal less "
    "less_equal logical_and logical_or logical_xor"
).split()
_REDUCE = "sum mean max min prod std var amax amin".split()

_SINGLE = """
F.np.arccosh(p + 1)
F.np.divide(a, p)
F.np.true_divide(a, p)
F.np.mod(a, p)
F.np.power(p, a)
F.np.fmod(a, p)
F.np.remainder(a, p)
F.np.var(a, axis={axes}, ddof={ddof})
F.np.std(a, ddof={ddof})
F.np.average(a, axis={axis})
F.np.argmax(a, axis={axis})
F.np.argmin(a, axis={axis})
F.np.cumsum(a, axis={axis})
F.np.any(a, axis={axes})
F.np.all(a, axis={axes})
F.np.sort(a, axis={one})
F.np.argsort(a, axis={one})
F.np.transpose(a)
F.np.expand_dims(a, {new})
F.np.squeeze(a)
F.np.ravel(a)
F.np.reshape(a, -1)
F.np.swapaxes(a, {one}, {other})
F.np.moveaxis(a, {one}, {other})
F.np.flip(a, {one})
F.np.flip(a)
F.np.roll(a, {shift}, {axis})
F.np.repeat(a, {times}, {axis})
F.np.tile(a, {reps})
F.np.rot90(m, {shift})
F.np.concatenate([a, c], axis={one})
F.np.stack([a, c], axis={new})
F.np.vstack([a, c])
F.np.hstack([a, c])
F.np.dstack([a, c])
F.np.column_stack([v, v])
F.np.split(a, {pieces}, axis={one})
F.np.array_split(a, {cuts}, axis={one})
F.np.where(a > 0, a, c)
F.np.clip(a, -0.5, {top})
F.np.clip(a, None, 0.5)
F.np.around(a, {decimals})
F.np.diff(a, n={times}, axis={one})
F.np.dot(m, n)
F.np.dot(v, v)
F.np.matmul(m, n)
F.np.inner(m, m)
F.np.outer(v, v)
F.np.vdot(v, v)
F.np.tensordot(m, n, axes=1)
F.np.tensordot(m, n, axes=([1], [0]))
F.np.kron(m, n)
F.np.cross(t, t2)
F.np.trace(m, offset={shift})
F.np.einsum('ij,jk->ik', m, n)
F.np.einsum('ij->j', m)
F.np.einsum('ij,ij->i', m, m)
F.np.einsum('ij->ji', m)
F.np.take(a, i, axis={axis}, mode={mode!r})
F.np.diag(v, k={shift})
F.np.diagonal(m)
F.np.tril(m, {shift})
F.np.triu(m, {shift})
F.np.diagflat(v, {shift})
F.np.eye({size}, {size2}, {shift})
F.np.zeros_like(a)
F.np.ones_like(a)
F.np.full_like(a, 2)
F.np.arange({size}, {more}, 2)
F.np.linspace(0, {size}, {more}, endpoint={keep})
F.np.logspace(0, 2, {size})
F.np.meshgrid(v, v)
F.np.atleast_2d(v)
F.np.broadcast_to(v, ({size}, v.shape[0]))
F.np.nan_to_num(a)
F.np.bincount(i)
F.np.unique(i)
F.np.histogram(v, bins={size})
F.np.pad(m, (({size}, 1), (0, 2)), mode={padding!r})
F.np.delete(v, 0)
F.np.insert(v, 1, 2.5)
F.np.append(a, c)
F.np.nonzero(a)
F.np.flipud(m)
F.np.fliplr(m)
F.np.median(a, axis={axis})
F.np.percentile(a, 30, axis={axis})
F.np.quantile(a, 0.4, axis={axis})
F.np.linalg.norm(m)
F.np.linalg.norm(a, axis={one}, keepdims={keep})
F.np.linalg.norm(v, ord={order})
F.np.polyval(v, a)
F.np.interp(v, t, t2)
F.np.ediff1d(a)
F.np.bitwise_and(i, 3)
F.np.bitwise_or(i, 3)
F.np.bitwise_xor(i, 3)
F.np.lcm(i, i)
F.np.invert(i)
F.np.ldexp(a, 2)
F.np.max(i)
F.np.sum(i, axis={axis2})
F.np.mean(i)
F.np.cumsum(i)
F.npx.relu(a)
F.npx.sigmoid(a)
F.npx.softmax(a, axis={one})
F.npx.log_softmax(a, axis={one})
F.npx.one_hot(i, {more})
F.npx.topk(a, k=1, axis={one})
F.npx.pick(m, k, axis=1)
F.npx.batch_dot(e, e, transpose_b=True)
F.npx.layer_norm(m, g, g, axis=-1)
F.npx.gamma(p)
F.npx.erf(a)
F.npx.smooth_l1(a, scalar=1.0)
F.npx.reshape_like(a, c)
a + b
a - b
a * b
a / p
a ** 2
a + {number}
{number} - a
a / {number}
{number} / p
-a
a > b
a == c
a % p
abs(a)
a @ a.T
a.sum(axis={axis})
a.mean()
a.max(axis={one})
a.argmax()
a.T
a.reshape(-1, 1)
a.astype({dtype!r})
a.flatten()
a.std()
a.transpose()
a.squeeze()
a.repeat(2)
a.clip(0, 1)
a[0]
a[-1]
a[None]
a[..., 0]
a[::2]
a[::-1]
a[..., {new0}:]
m[:, 0]
m[1:, :1]
m[i0]
m[i0, i0]
a[a > 0]
""".strip().splitlines()

_CALLS = [
    *[f"F.np.{name}(a)" for name in _UNARY],
    *[f"F.np.{name}(p)" for name in _POSITIVE],
    *[f"F.np.{name}(u)" for name in _INSIDE],
    *[f"F.np.{name}(a, b)" for name in _BINARY],
    *[f"F.np.{name}(a, axis={{axes}}, keepdims={{keep}})" for name in _REDUCE],
    *_SINGLE,
]

_ARRAY_CALLS = """
a + b
a - b
a * b
a / b
a ** 2
a ** b
a % b
-a
abs(a)
a + {number}
{number} - a
a * {number}
{number} / a
a > b
a >= b
a < b
a <= b
a == b
a != b
a > {number}
{number} % a
a % {number}
{number} ** a
a.sum(axis={axes}, keepdims={keep})
a.mean(axis={axes})
a.max(axis={axes})
a.min(axis={axes})
a.prod(axis={axes})
a.nansum(axis={axes})
a.norm()
a.argmax(axis={axis})
a.sum(axis={axes}, exclude=True)
a.mean(axis={axes}, exclude={keep})
a.argmin(axis={axis}, keepdims={keep})
a.reshape((-1,))
a.reshape((0, -1))
a.reshape((-2,))
a.reshape((-3, -2))
a.reshape((0, -4, 1, -1, -2))
a.reshape((-1, 0), reverse=True)
a.reshape(shape=(0, -1, 1))
a.flatten()
a.expand_dims({new})
a.squeeze()
a.transpose()
a.swapaxes({one0}, {other0})
a.flip({one0})
a.tile({reps})
a.repeat({times}, axis={one})
a.sort(axis={one}, is_ascend={keep})
a.argsort(axis={one}, is_ascend={keep})
a.topk(axis={one}, k={times}, ret_typ={ret!r}, is_ascend={keep})
a.clip(-0.5, 0.5)
a.slice_axis(axis={one}, begin=0, end=1)
a.split(1, axis={one0})
a.softmax(axis={one})
a.log_softmax(axis={one})
a.round()
a.rint()
a.fix()
a.floor()
a.ceil()
a.trunc()
a.sign()
a.square()
a.exp()
a.tanh()
a.sigmoid()
a.relu()
a.astype({dtype!r})
a.one_hot({more})
a.zeros_like()
a.ones_like()
a.diag({shift})
a.pick(k, axis=0)
a.take(i, axis={one}, mode={mode2!r})
a.broadcast_like(c)
a.shape_array()
a.size_array()
a.cumsum(axis={axis})
a.T
a.abs()
a.log1p()
a.cbrt()
a.rsqrt()
a[0]
a[-1]
a[0:1]
a[::2]
a[::-1]
a[..., 0]
a[:, ::-1]
a[None]
a[0:1, ..., -1:]
a[i0]
a[i0, i0]
a[-1:0:-1]
""".strip().splitlines()


def numpy_case(chance: Chance, seed: int) -> dict[str, Any]:
    """A call of an mx.np function."""
    case = _case(chance, seed, "numpy", chance.one_of(_CALLS))
    return case | {"front": "np"}


def array_case(chance: Chance, seed: int) -> dict[str, Any]:
    """An operator, a method or an index of an NDArray."""
    case = _case(chance, seed, "array", chance.one_of(_ARRAY_CALLS))
    return case | {"eager": "[" in case["text"] or case["text"].endswith(".T")}  # on Symbols an index chooses an output


def _case(chance: Chance, seed: int, kind: str, template: str) -> dict[str, Any]:
    lowest = 0 if kind == "numpy" and chance.often(0.1) else 1
    rank = chance.one_of([lowest, 1, 2, 2, 3, 4])
    shape = tuple(chance.one_of([1, 2, 2, 3, 4]) for _ in range(rank))
    if kind == "numpy" and rank and chance.often(0.03):
        shape = (0, *shape[1:])
    text = template.format(**_words(chance, rank, shape))
    dtype = chance.one_of(["float32"] * 8 + ["float64", "float64", "float16", "int32", "int64", "int8", "uint8"])
    arrays = _arrays(chance, shape, dtype, kind)
    names = set(compile(text, "<case>", "eval").co_names)
    used = {name: value for name, value in arrays.items() if name in names}
    grads = [name for name, value in used.items() if value["dtype"].startswith("float") and not value.get("exact")]
    return {"seed": seed, "kind": kind, "text": text, "arrays": used, "grads": grads}


def _words(chance: Chance, rank: int, shape: Sequence[int]) -> dict[str, Any]:
    def axis() -> int:
        return chance.randrange(-rank, rank) if rank else -1

    several = tuple(sorted(chance.sample(range(rank), chance.randrange(1, rank + 1)))) if rank else ()
    one, size = axis(), chance.one_of([1, 2, 3])
    return {
        "one": one,
        "other": axis(),
        "one0": one % max(rank, 1),
        "other0": axis() % max(rank, 1),
        "axis": chance.one_of([None, axis(), axis()]),
        "axis2": chance.one_of([None, 0, -1]),
        "axes": chance.one_of([None, axis(), several, several]),
        "keep": chance.often(0.5),
        "new": chance.randrange(-rank - 1, rank + 1),
        "new0": chance.one_of([0, 1, -1]),
        "shift": chance.one_of([-1, 0, 1, 2]),
        "times": chance.one_of([1, 2]),
        "reps": chance.one_of([2, (1, 2), (2, 1, 2)]),
        "pieces": chance.one_of([1, 2]),
        "cuts": chance.one_of([2, 3]),
        "top": chance.one_of([0.5, 1, None]),
        "decimals": chance.one_of([0, 1, 2]),
        "ddof": chance.one_of([0, 1]),
        "mode": chance.one_of(["clip", "wrap"]),
        "mode2": chance.one_of(["clip", "wrap"]),
        "size": size,
        "size2": chance.one_of([1, 2, 3]),
        "more": size + chance.one_of([1, 2, 3]),
        "ret": chance.one_of(["value", "indices", "mask", "both"]),
        "padding": chance.one_of(["constant", "edge", "reflect", "symmetric"]),
        "order": chance.one_of([None, 1, 2]),
        "number": chance.one_of([2, 0.5, -1.5, 3, 1]),
        "dtype": chance.one_of(["float32", "float64", "float16", "int32", "int64", "uint8", "int8"]),
    }


def _arrays(chance: Chance, shape: tuple[int, ...], dtype: str, kind: str) -> dict[str, dict[str, Any]]:
    values = chance.one_of(["plain"] * 6 + ["whole", "whole", "special"])
    other = (
        tuple(1 if chance.often(0.25) else size for size in shape) if chance.often(0.5) and kind == "numpy" else shape
    )
    rows, inner, columns = (chance.one_of([1, 2, 3]) for _ in range(3))
    index = {"values": "ints", "dtype": "int32", "exact": True}
    return {
        "a": spec(chance, shape, values, dtype=dtype),
        "b": spec(chance, other, values, dtype=dtype),
        "c": spec(chance, shape, dtype=dtype),
        "p": spec(chance, shape, low=0.2, high=3.0, dtype=dtype),
        "u": spec(chance, shape, low=-0.9, high=0.9, dtype=dtype),
        "v": spec(chance, (chance.one_of([2, 3, 5]),), dtype=dtype if dtype != "float16" else "float32"),
        "m": spec(chance, (2, inner), dtype=dtype),
        "n": spec(chance, (inner, columns), dtype=dtype),
        "t": spec(chance, (3,), dtype=dtype),
        "t2": spec(chance, (3,), dtype=dtype),
        "e": spec(chance, (2, rows, inner), dtype=dtype),
        "g": spec(chance, (inner,), dtype=dtype),
        "k": spec(chance, (2,) if kind == "numpy" else shape[1:] or (1,), low=0, high=1, **index),
        "i": spec(chance, (rows,), low=0, high=4, **index),
        "i0": spec(chance, (2,), low=0, high=1, **index),
    }  # fmt: skip
