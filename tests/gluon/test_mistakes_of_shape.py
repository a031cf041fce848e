"""An input of a wrong shape is the same error in an eager and in a hybridized call: every layer of the random programs
with some of its settings, called with every axis of its input cut off, too short and too long, and with other ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics import ArrayIndexError, ShapeError
from hybrid_lab.gluon import HybridBlock, nn, rnn
from tests import quick
from tests.random_programs.layers import LAYERS, Layer
from tests.random_programs.writing import Chance

NAMES = {"mx": mx, "nd": nd, "gluon": gluon, "nn": nn, "rnn": rnn}
SHAPES = {2: (2, 4), 3: (2, 4, 6), 4: (2, 4, 4, 2), 5: (2, 2, 4, 2, 2)}
Shape = tuple[int, ...]


class Net(HybridBlock):
    def __init__(self, child: str, call: str):
        super().__init__()
        self.child = eval(child, NAMES)
        self.call = call

    def hybrid_forward(self, F, x):
        return eval(self.call, {"child": self.child, "x": x})


def _wrong(shape: Shape) -> Iterator[Shape]:
    for axis, size in enumerate(shape):
        for other in (0, 1, size + 1):
            yield (*shape[:axis], other, *shape[axis + 1 :])
    yield from ((3,), shape[1:], (*shape, 1), (1, *shape))


def _written(layer: Layer, number: int) -> tuple[str, str]:
    """Its constructor with some settings, and a call."""
    chance = Chance(number)
    call = chance.one_of(layer.calls).partition(" = ")[2] or layer.calls[0]
    call = re.sub(r"\$\{([^}]*)\}", lambda options: chance.one_of(options[1].split("|")), call)
    return layer.construct(chance), re.sub(r"\$[xi]3?\b", "x", call.replace("$child", "child"))


def _answer(layer: Layer, text: tuple[str, str], shape: Shape, record: bool, hybrid: bool) -> Any:
    """The shapes of what a call gives, or the type of its error."""
    net = Net(*text)
    net.initialize()
    if hybrid:
        net.hybridize(engine="numpy")
    x = nd.ones(shape, dtype="int32" if layer.whole else "float32")
    try:
        with autograd.record() if record else autograd.pause():
            return _shapes(net(x))
    except mx.MXNetError as error:
        return type(error)


def _shapes(item: Any) -> Any:
    return item.shape if isinstance(item, nd.NDArray) else [_shapes(part) for part in item]


@pytest.mark.parametrize("number", range(len(LAYERS)), ids=lambda number: f"{LAYERS[number].name}-{number}")
def test_wrong_shapes_are_the_same_errors(number: int):
    layer = LAYERS[number]
    text = _written(layer, number)
    try:
        Net(*text)
    except ShapeError:  # settings that contradict one another
        return
    for place, shape in enumerate((*_wrong(SHAPES[layer.ranks[0]]), SHAPES[layer.ranks[0]])):
        # A shape is recorded in every other layer, and a layer in every other shape.
        for record in (False, True) if quick.ALL else ((number + place) % 2 == 0,):
            eager, hybrid = (_answer(layer, text, shape, record, mode) for mode in (False, True))
            assert eager == hybrid, (text, shape, record)


class Pick(HybridBlock):
    def __init__(self, key: Any):
        super().__init__()
        self.key = key

    def hybrid_forward(self, F, x):
        return x[self.key]


@pytest.mark.parametrize("key", [5, -5, (slice(None), 4), (slice(None), -4), (..., 3)], ids=str)
@pytest.mark.parametrize("hybrid", [False, True])
def test_an_index_past_the_end_is_an_index_error(key: Any, hybrid: bool):
    net = Pick(key)
    if hybrid:
        net.hybridize()
    with pytest.raises(ArrayIndexError) as caught:
        net(nd.ones((2, 3)))
    assert isinstance(caught.value, IndexError)


def test_a_sequence_without_steps_has_a_state_for_each_of_the_batch():
    for hybrid in (False, True):
        net = rnn.GRU(3)
        net.initialize()
        if hybrid:
            net.hybridize()
        output, states = net(nd.ones((0, 4, 6)), net.begin_state(4))
        assert net(nd.ones((0, 4, 6))).shape == output.shape == (0, 4, 3)
        assert states[0].shape == (1, 4, 3)
