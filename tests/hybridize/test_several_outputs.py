"""An operator with several outputs gives a list, in a hybridized Block as in an eager one, in both styles of code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import nd
from hybrid_lab.gluon import HybridBlock


class Sum(HybridBlock):
    def forward(self, parts: Any) -> Any:
        return parts[0] + parts[1] * 2


class Twice(HybridBlock):
    def hybrid_forward(self, F: Any, parts: Any) -> Any:
        return [part * 2 for part in parts]


#: What is done with the parts p of x. F : nd or sym; sum_, twice : Blocks
USES = {
    "returned": lambda F, net, p, x: p,
    "in a tuple": lambda F, net, p, x: (p, x),
    "in a dict": lambda F, net, p, x: {"parts": p},
    "to a Block": lambda F, net, p, x: net.sum_(p),
    "to a Block that gives a list": lambda F, net, p, x: net.twice(p),
    "its length": lambda F, net, p, x: p[0] * len(p),
    "the last": lambda F, net, p, x: p[-1],
    "a slice": lambda F, net, p, x: p[:1],
    "reversed": lambda F, net, p, x: p[::-1],
    "a loop": lambda F, net, p, x: [part * index for index, part in enumerate(p)],
    "and another": lambda F, net, p, x: p + [x],
    "after another": lambda F, net, p, x: [x] + p,
    "repeated": lambda F, net, p, x: p * 2,
    "appended to": lambda F, net, p, x: (p.append(x), p)[1],
    "inserted into": lambda F, net, p, x: (p.insert(0, x), p)[1],
    "replaced": lambda F, net, p, x: (p.__setitem__(0, x), p)[1],
    "taken from": lambda F, net, p, x: p.pop(),
    "asked for": lambda F, net, p, x: x if p else x * 2,
    "its type": lambda F, net, p, x: p[0] if isinstance(p, (list, tuple)) else p[1],
    "arguments": lambda F, net, p, x: F.concat(*p, dim=1),
    "an argument": lambda F, net, p, x: F.stack(*p),
    "added up": lambda F, net, p, x: sum(p),
    "data of a loop": lambda F, net, p, x: F.contrib.foreach(lambda a, s: (a[0] + a[1], s), p, F.zeros((1,))),
    "states of a loop": lambda F, net, p, x: F.contrib.foreach(lambda a, s: (a, [each + 1 for each in s]), x, p),
    "loop variables": lambda F, net, p, x: F.contrib.while_loop(
        lambda a, b: F.sum(a) < 99, lambda a, b: (a, (a * 9, b)), p, max_iterations=3
    ),
    "outputs of a loop": lambda F, net, p, x: F.contrib.foreach(
        lambda a, s: (F.split(a, num_outputs=2, axis=0), s), x, F.zeros((1,))
    ),
    "new states of a loop": lambda F, net, p, x: F.contrib.foreach(
        lambda a, s: (a, F.split(a, num_outputs=2, axis=0)), x, [F.zeros((1,)), F.zeros((1,))]
    ),
    "results of a branch": lambda F, net, p, x: F.contrib.cond(
        F.sum(x) > 0, lambda: p, lambda: F.split(x * 2, num_outputs=2, axis=1)
    ),
}

#: Calls that give several outputs.
CALLS = {
    "split": lambda F, x: F.split(x, num_outputs=2, axis=1),
    "x.split": lambda F, x: x.split(num_outputs=2, axis=1),
    "split_v2": lambda F, x: F.split_v2(x, 2, axis=1),
    "x.split_v2": lambda F, x: x.split_v2(2, axis=1),
    "topk": lambda F, x: F.topk(x, k=1, axis=1, ret_typ="both"),
    "moments": lambda F, x: F.moments(x, axes=(1,), keepdims=True),
    "BatchNorm": lambda F, x: F.BatchNorm(x, *[F.ones((2,)) for _ in range(4)], output_mean_var=True, fix_gamma=False),
    "Custom": lambda F, x: F.Custom(x, op_type="halves_of_rows"),
}


class New(HybridBlock):
    def __init__(self, call: Any, use: Any) -> None:
        super().__init__()
        self.call, self.use, self.sum_, self.twice = call, use, Sum(), Twice()

    def forward(self, x: Any) -> Any:
        return self.use(nd, self, self.call(nd, x), x)


class Old(New):
    forward = HybridBlock.forward

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.use(F, self, self.call(F, x), x)


class Halves(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        for number, part in enumerate(out_data):
            self.assign(part, req[number], in_data[0][:, number : number + 1])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        raise NotImplementedError


@mx.operator.register("halves_of_rows")
class HalvesProp(mx.operator.CustomOpProp):
    def list_outputs(self):
        return ["left", "right"]

    def infer_shape(self, in_shape):
        half = (in_shape[0][0], 1)
        return in_shape, [half, half], []

    def create_operator(self, ctx, shapes, dtypes):
        return Halves()


def plain(item: Any) -> Any:
    """The result with lists of numbers for arrays."""
    if isinstance(item, dict):
        return {key: plain(part) for key, part in item.items()}
    if isinstance(item, (list, tuple)):
        return type(item)([plain(part) for part in item])
    return np.round(item.asnumpy(), 5).tolist()


def same(call: Any, use: Any, style: type[New]) -> None:
    results = []
    for active in (False, True):
        net = style(call, use)
        net.hybridize(active, engine="numpy", strict=active)
        results.append(plain(net(nd.array([[1.0, 2.0], [3.0, 4.0]]))))
    assert results[0] == results[1]


@pytest.mark.parametrize("style", [New, Old])
@pytest.mark.parametrize("use", USES)
def test_what_is_done_with_the_parts(use, style):
    same(CALLS["split"], USES[use], style)


@pytest.mark.parametrize("style", [New, Old])
@pytest.mark.parametrize("call", CALLS)
def test_every_call_gives_a_list(call, style):
    def use(F: Any, net: Any, p: Any, x: Any) -> Any:
        assert type(p) is list
        return p[:1] + p

    same(CALLS[call], use, style)


def test_a_symbol_of_several_outputs_is_data_of_a_loop():
    """Outside of Blocks a call gives one Symbol with its outputs, as in MXNet."""
    parts = mx.sym.split(mx.sym.var("x"), num_outputs=2, axis=1)
    assert len(parts.list_outputs()) == 2
    total, _ = mx.sym.contrib.foreach(lambda a, s: (a[0] + a[1], s), parts, mx.sym.zeros((1,)))
    net = mx.gluon.SymbolBlock(total, mx.sym.var("x"))
    assert net(nd.array([[1.0, 2.0], [3.0, 4.0]])).asnumpy().tolist() == [[3.0], [7.0]]
