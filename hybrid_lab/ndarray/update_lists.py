"""Functions of `nd.contrib` that update several weights: one call of the update operator for each weight.

weights, grads, mean, var, weights32 : lists of as many arrays; weights32 are the float32 copies of narrower weights
lrs, wds, etas, step_count : a number for each weight
out : a list of arrays for the new weights; size, num_tensors : how many weights the lists have, by default all
Moments and float32 copies change in place. Returns the new weights. Raises ShapeError for lists of different lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.ndarray import namespace
from hybrid_lab.ndarray.ndarray import NDArray

Arrays: TypeAlias = Sequence[NDArray]
Numbers: TypeAlias = Sequence[float]


def multi_adamw_update(
    weights: Arrays, grads: Arrays, mean: Arrays, var: Arrays, rescale_grad: NDArray | float, lrs: Numbers,
    wds: Numbers, etas: Numbers, out: Arrays | None = None, size: int = 0, **attributes: object,
) -> list[NDArray]:  # fmt: skip
    """`contrib.adamw_update` of each weight; attributes as there."""
    made = []
    lists = {"weights": weights, "grads": grads, "mean": mean, "var": var, "lrs": lrs, "wds": wds, "etas": etas}
    for weight, grad, m, v, lr, wd, eta, target in _each("multi_adamw_update", size, out, **lists):
        one = _update("_adamw_update", target, weight, grad, m, v, rescale_grad, lr=lr, wd=wd, eta=eta, **attributes)
        made.append(one)
    return made


def multi_mp_adamw_update(
    weights: Arrays, grads: Arrays, mean: Arrays, var: Arrays, weights32: Arrays, rescale_grad: NDArray | float,
    lrs: Numbers, wds: Numbers, etas: Numbers, out: Arrays | None = None, size: int = 0, **attributes: object,
) -> list[NDArray]:  # fmt: skip
    """`contrib.mp_adamw_update` of each weight; attributes as there."""
    made = []
    lists = {"weights": weights, "grads": grads, "mean": mean, "var": var, "weights32": weights32}
    rows = _each("multi_mp_adamw_update", size, out, **lists, lrs=lrs, wds=wds, etas=etas)
    for weight, grad, m, v, wide, lr, wd, eta, target in rows:
        rates = {"lr": lr, "wd": wd, "eta": eta}
        made.append(_update("_mp_adamw_update", target, weight, grad, m, v, wide, rescale_grad, **rates, **attributes))
    return made


def multi_lamb_update(
    weights: Arrays, grads: Arrays, mean: Arrays, var: Arrays, step_count: Sequence[int], lrs: Numbers, wds: Numbers,
    out: Arrays | None = None, num_tensors: int = 0, lower_bound: float = -1.0, upper_bound: float = -1.0,
    **attributes: object,
) -> list[NDArray]:  # fmt: skip
    """`lamb_update_phase1` and `lamb_update_phase2` of each weight; attributes as there."""
    made = []
    lists = {"weights": weights, "grads": grads, "mean": mean, "var": var, "step_count": step_count}
    for weight, grad, m, v, t, lr, wd, target in _each(
        "multi_lamb_update", num_tensors, out, **lists, lrs=lrs, wds=wds
    ):
        direction = _update("lamb_update_phase1", None, weight, grad, m, v, t=t, wd=wd, **attributes)
        norms = _norm(weight), _norm(direction)
        bounds = {"lower_bound": lower_bound, "upper_bound": upper_bound}
        made.append(_update("lamb_update_phase2", target, weight, direction, *norms, lr=lr, **bounds))
    return made


def multi_mp_lamb_update(
    weights: Arrays, grads: Arrays, mean: Arrays, var: Arrays, weights32: Arrays, step_count: Sequence[int],
    lrs: Numbers, wds: Numbers, out: Arrays | None = None, num_tensors: int = 0, lower_bound: float = -1.0,
    upper_bound: float = -1.0, **attributes: object,
) -> list[NDArray]:  # fmt: skip
    """`mp_lamb_update_phase1` and `mp_lamb_update_phase2` of each weight; attributes as there."""
    made = []
    lists = {"weights": weights, "grads": grads, "mean": mean, "var": var, "weights32": weights32}
    rows = _each("multi_mp_lamb_update", num_tensors, out, **lists, step_count=step_count, lrs=lrs, wds=wds)
    for weight, grad, m, v, wide, t, lr, wd, target in rows:
        direction = _update("mp_lamb_update_phase1", None, weight, grad, m, v, wide, t=t, wd=wd, **attributes)
        norms = _norm(wide), _norm(direction)
        bounds = {"lower_bound": lower_bound, "upper_bound": upper_bound}
        made.append(_update("mp_lamb_update_phase2", target, weight, direction, *norms, wide, lr=lr, **bounds))
    return made


def _each(function: str, size: int, out: Arrays | None, **lists: Sequence[object]) -> Iterator[tuple[object, ...]]:
    """For each weight its entry of all lists, and last the array for the new weight, or None.

    size : the length of the lists, 0 for the first list's
    """
    count = size or len(next(iter(lists.values())))
    for name, items in {**lists, **({} if out is None else {"out": out})}.items():
        if len(items) != count:
            raise ShapeError(f"{function}: {name} has {len(items)} entries for {count} weights")
    yield from zip(*lists.values(), [None] * count if out is None else out, strict=True)


def _update(name: str, out: object, *inputs: object, **attributes: object) -> NDArray:
    function = namespace.find_function(name)
    assert function is not None
    made: NDArray = function(*inputs, out=out, **attributes)
    return made


def _norm(array: object) -> NDArray:
    return _update("norm", None, array)
