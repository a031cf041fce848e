"""Checks of optimizers, Blocks and Symbols beside each other, and an iterator without end."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab import autograd, initializer, random
from hybrid_lab.data.io import DataBatch, DataIter
from hybrid_lab.gluon import HybridBlock
from hybrid_lab.ndarray import NDArray
from hybrid_lab.optimizer import Optimizer
from hybrid_lab.symbol import Symbol

from .comparing import assert_almost_equal
from .random_data import rand_ndarray

Shape = tuple[int, ...]
States = Any
"""An optimizer's state: None, an NDArray, or tuples of them."""


class DummyIter(DataIter):
    """The first batch of another iterator, again and again: for measuring speed."""

    def __init__(self, real_iter: Any) -> None:
        super().__init__(real_iter.batch_size)
        self.real_iter = real_iter
        self.provide_data, self.provide_label = real_iter.provide_data, real_iter.provide_label
        self.the_batch = next(real_iter)

    def next(self) -> DataBatch:
        """The batch."""
        return self.the_batch


def compare_ndarray_tuple(t1: States, t2: States, rtol: float | None = None, atol: float | None = None) -> None:
    """Raise AssertionError if two states of optimizers differ. None agrees with everything."""
    if t1 is None or t2 is None:
        return
    if isinstance(t1, tuple):
        for first, second in zip(t1, t2):
            compare_ndarray_tuple(first, second, rtol, atol)
    else:
        assert_almost_equal(t1, t2, rtol=rtol, atol=atol)


def compare_optimizer(
    opt1: Optimizer,
    opt2: Optimizer,
    shape: Shape | list[Shape],
    dtype: DTypeLike,
    w_stype: str = "default",
    g_stype: str = "default",
    rtol: float = 1e-4,
    atol: float = 1e-5,
    compare_states: bool = True,
    ntensors: int = 1,
) -> None:
    """Raise AssertionError if one step of two optimizers differs.

    shape : of the weight; or a list of shapes, of which opt2 updates `ntensors` at once and opt1 one by one
    w_stype, g_stype : the storage types of the weight and of the gradient of opt2; opt1's are dense
    """
    several = isinstance(shape, list)
    shapes = shape if isinstance(shape, list) else [shape]
    weights = [random.uniform(shape=each, dtype=dtype) for each in shapes]
    gradients = [random.uniform(shape=each, dtype=dtype) for each in shapes]
    other, other_gradients = deepcopy(weights), deepcopy(gradients)
    if (w_stype, g_stype) != ("default", "default"):
        other = [rand_ndarray(each, w_stype, 1.0, dtype) for each in shapes]
        other_gradients = [rand_ndarray(each, g_stype, None, dtype) for each in shapes]
        weights, gradients = ([each.tostype("default") for each in arrays] for arrays in (other, other_gradients))
    states = [opt2.create_state_multi_precision(index, weight) for index, weight in enumerate(other)]
    if several:
        indices: Any = list(range(ntensors))
        update: Any = opt2.update_multi_precision
        update(indices, tuple(other), tuple(other_gradients), states)
    else:
        opt2.update_multi_precision(0, other[0], other_gradients[0], states[0])
    for index, (weight, gradient) in enumerate(zip(weights, gradients)):
        state = opt1.create_state_multi_precision(index, weight)
        opt1.update_multi_precision(index, weight, gradient, state)
        if compare_states:
            compare_ndarray_tuple(state, states[index], rtol, atol)
        compare_ndarray_tuple(weight, other[index], rtol, atol)


def same_symbol_structure(sym1: Symbol, sym2: Symbol) -> bool:
    """Whether the graphs of two Symbols have the same operators in the same order."""
    first, second = ([node["op"] for node in json.loads(each.tojson())["nodes"]] for each in (sym1, sym2))
    return bool(first == second)


class _Saved(initializer.Initializer):
    """Fills parameters with arrays by name."""

    def __init__(self, values: dict[str, np.ndarray]) -> None:
        super().__init__()
        self._values = values

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[()] = self._values[name]


def check_gluon_hybridize_consistency(
    net_builder: Callable[..., HybridBlock],
    data_l: Sequence[NDArray],
    numpy_func: Callable[..., np.ndarray] | None = None,
    test_grad: bool = True,
    rtol: float = 1e-4,
    atol: float = 1e-4,
) -> None:
    """Raise AssertionError if a Block gives other outputs or input gradients hybridized than eagerly.

    net_builder : makes the Block; it is called with `prefix`
    numpy_func : of the same inputs as NumPy arrays, gives the expected output
    """
    values: dict[str, np.ndarray] | None = None
    results: list[list[np.ndarray]] = []
    for hybridize in (False, True):
        net = net_builder(prefix="net_")
        net.initialize(*(() if values is None else (_Saved(values),)))
        if hybridize:
            net.hybridize()
        inputs = [each.copy() for each in data_l]
        output: Any = net(*inputs)
        values = values or {name: each.data().asnumpy() for name, each in net.collect_params().items()}
        found = [output.asnumpy()]
        if test_grad:
            for each in inputs:
                each.attach_grad()
            with autograd.record():
                output = net(*inputs)
            output.backward(output)
            found += [output.asnumpy(), *(each.grad.asnumpy() for each in inputs if each.grad is not None)]
        results.append(found)
    for eager, hybrid in zip(*results):
        assert_almost_equal(eager, hybrid, rtol=rtol, atol=atol)
    if numpy_func is not None:
        expected = numpy_func(*[each.asnumpy() for each in data_l])
        assert_almost_equal(results[0][0], expected, rtol=rtol, atol=atol)
