"""Operators inside the bodies of loops and branches: a hybridized Block gives what an eager one gives.

Records that wait for shapes before they are written in others are tried with all their samples, and in an archive, an
export and another batch size; of the other records the first sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab import np as hnp
from hybrid_lab.gluon import HybridBlock
from hybrid_lab.ndarray.invoke import invoke
from hybrid_lab.ops.framework.dtypes import is_floating
from tests.ops.cases import Case, close, each_sample, same_random_numbers

PLACES = "foreach", "while_loop", "cond"


def inside(place: str, flag: Any, call: Any) -> Any:
    """What `call` gives, a list, from a body. flag : (2, 1), ones"""
    if place == "cond":
        return nd.contrib.cond(nd.sum(flag) > 0, call, call)
    if place == "foreach":
        return nd.contrib.foreach(lambda entry, state: (call(), state + entry), flag, nd.zeros((1,)))[0]
    return nd.contrib.while_loop(lambda n: n < 2, lambda n: (call(), n + 1), nd.zeros((1,)), max_iterations=2)[0]


class OneRecord(HybridBlock):
    """A sample's call in a body."""

    def __init__(self, case: Case, place: str) -> None:
        super().__init__()
        self.op, self.given, self.place = case.record.bind(**case.sample.attributes), case.inputs(), place

    def forward(self, flag: Any, *arrays: Any) -> Any:
        def call() -> Any:
            following = iter(arrays)
            made = invoke(self.op, [next(following) if isinstance(item, np.ndarray) else item for item in self.given])
            return made if isinstance(made, list) else [made]

        return inside(self.place, flag, call)


def results(case: Case, place: str, active: bool) -> list[np.ndarray]:
    """The outputs, and the gradients of the floating inputs where there are some."""
    same_random_numbers()
    mx.random.seed(3)
    net = OneRecord(case, place)
    net.hybridize(active, engine="numpy")
    arrays = [nd.array(item, dtype=item.dtype) for item in case.inputs() if isinstance(item, np.ndarray)]
    floating = [array for array in arrays if is_floating(np.dtype(array.dtype))]
    for array in floating:
        array.attach_grad()
        array.grad[:] = 7
    if not (case.record.differentiable and case.sample.gradient and floating):
        return [each.asnumpy() for each in net(nd.ones((2, 1)), *arrays)]
    with autograd.record():
        outputs = net(nd.ones((2, 1)), *arrays)
    autograd.backward([each for each in outputs if is_floating(np.dtype(each.dtype))])
    return [each.asnumpy() for each in (*outputs, *(array.grad for array in floating))]


def equal(case: Case, place: str) -> None:
    eager, hybrid = (results(case, place, active) for active in (False, True))
    assert len(eager) == len(hybrid)
    for found, wanted in zip(hybrid, eager, strict=True):
        assert found.dtype == wanted.dtype
        close(found, wanted, 1e-4)


def has_arrays(case: Case) -> bool:
    return any(isinstance(item, np.ndarray) for item in case.inputs())


@pytest.mark.parametrize("place", PLACES)
@each_sample(lambda case: case.record.by_shapes)
def test_what_waits_for_shapes(case: Case, place: str):
    equal(case, place)


@each_sample(lambda case: case.number == 0 and has_arrays(case))
def test_the_first_sample_of_every_record(case: Case):
    equal(case, "cond")
    equal(case, "foreach")


#: What users write, on a : (n, 3) and w : (2, 3).
WRITTEN = {
    "a list": lambda a, w: a[:, [0, 2]] * w[:1, [0, 1]],
    "a list and a step": lambda a, w: a[::-1, [1]],
    "matmul": lambda a, w: hnp.matmul(a.as_np_ndarray(), w.as_np_ndarray().T).as_nd_ndarray(),
    "tensordot": lambda a, w: hnp.tensordot(a.as_np_ndarray(), w.as_np_ndarray(), ([1], [1])).as_nd_ndarray(),
}


class Written(HybridBlock):
    def __init__(self, name: str, place: str) -> None:
        super().__init__()
        self.name_, self.place = name, place

    def forward(self, flag: Any, a: Any, w: Any) -> Any:
        return inside(self.place, flag, lambda: [WRITTEN[self.name_](a, w)])[0]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", WRITTEN)
def test_other_batches_second_gradients_and_archives(name: str, place: str, tmp_path):
    found = {}
    for active in (False, True):
        net = Written(name, place)
        net.hybridize(active, engine="numpy")
        for size in (2, 5, 1):
            a, w = nd.arange(size * 3).reshape((size, 3)) / 4, nd.ones((2, 3)) / 2
            for array in (a, w):
                array.attach_grad()
            with autograd.record():
                y = net(nd.ones((2, 1)), a, w)
                (first,) = autograd.grad((y * y).sum(), [a], create_graph=True)
                loss = (first * first).sum()
            loss.backward()
            now = [y.asnumpy(), first.asnumpy(), a.grad.asnumpy(), w.grad.asnumpy()]
            if not active:
                found[size] = now
            for one, other in zip(now, found[size], strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4)
    arrays = {"data0": nd.ones((2, 1)), "data1": nd.arange(3).reshape((1, 3)) / 4, "data2": nd.ones((2, 3)) / 2}
    net.save(str(tmp_path / "net.hlab"))
    nets = [(gluon.load(str(tmp_path / "net.hlab")), [*arrays])]
    if name.startswith("a list"):  # the files have no operators of mx.np
        symbol, parameters = net.export(str(tmp_path / "net"))
        read = [each for each in arrays if each in mx.sym.load(symbol).list_inputs()]
        nets.append((gluon.SymbolBlock.imports(symbol, read, parameters), read))
    for opened, names in nets:
        for active in (False, True):
            opened.hybridize(active)
            y = opened(*[arrays[each] for each in names])
            np.testing.assert_allclose(y.asnumpy(), found[1][0], rtol=1e-5)
