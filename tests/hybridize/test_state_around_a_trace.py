"""State around a trace: a trace that is refused leaves everything as it was, so that eager calls go on from there."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest

from hybrid_lab import nd
from hybrid_lab.diagnostics import HybridizeError
from hybrid_lab.gluon import HybridBlock
from hybrid_lab.hybridize.stale.user_state import UserState


class Act:
    """A method of a class of the user's own, which counts its calls."""

    count = 0

    def __init__(self, function=None):
        self.function = function

    def __get__(self, block, kind=None):
        return self if block is None else functools.partial(self, block)

    def __call__(self, block, *inputs):
        self.count += 1
        return inputs[-1] * self.count


class CountedProperty(property):
    count = 0

    def __get__(self, block, kind=None):
        if block is None:
            return self
        self.count += 1
        return super().__get__(block, kind) * self.count


@pytest.mark.parametrize("named", ["helper", "scale"])
def test_refused_code_leaves_objects_of_its_class_as_they_were(named):
    def net(hybrid):
        code = Act() if named == "helper" else CountedProperty(lambda self: 2.0)

        class Net(HybridBlock):
            def hybrid_forward(self, F, x):
                return self.helper(x) if named == "helper" else x * self.scale

        setattr(Net, named, code)
        made = Net()
        if hybrid:
            made.hybridize()
        return made

    x = nd.ones((2,))
    eager, hybrid = net(False), net(True)
    for _ in range(3):
        np.testing.assert_array_equal(hybrid(x).asnumpy(), eager(x).asnumpy())


def test_refused_code_leaves_a_count_of_a_class_as_it_was():
    class Numbered:
        count = 0

        def __float__(self):
            Numbered.count += 1
            return float(Numbered.count)

    class Net(HybridBlock):
        def __init__(self):
            super().__init__()
            self.numbered = Numbered()

        def hybrid_forward(self, F, x):
            return x * float(self.numbered)

    net = Net()
    net.hybridize()
    for number in range(1, 4):
        assert net(nd.ones((1,))).asscalar() == number
    assert "count" not in vars(net.numbered)


def module_with_a_count(name, code, **names):
    """The globals of a module in which `hybrid_forward` counts its calls in COUNT."""
    module = {"__name__": name, "COUNT": 0, **names}
    exec(f"def hybrid_forward(self, F, x):\n    global COUNT\n    COUNT += 1\n    {code}", module)
    return module


def test_globals_of_one_name_in_two_modules_are_told_apart():
    inner = module_with_a_count("inner", "return x")
    outer = module_with_a_count("outer", "return helper(self, F, x)", helper=inner["hybrid_forward"])
    inner["COUNT"] = 5
    net = type("Net", (HybridBlock,), {"hybrid_forward": outer["hybrid_forward"]})()
    state = UserState([net])
    net.hybrid_forward(nd, nd.ones((1,)))
    assert [str(name) for name in state.changed()] == ["COUNT", "COUNT"]
    state.restore()
    assert (outer["COUNT"], inner["COUNT"]) == (0, 5)


def test_a_global_that_refused_code_deletes_is_there_again():
    module = module_with_a_count("deletes", "del COUNT\n    return x")
    state = UserState([type("Net", (HybridBlock,), {"hybrid_forward": module["hybrid_forward"]})()])
    module["hybrid_forward"](None, nd, nd.ones((1,)))
    assert "COUNT" not in module
    state.restore()
    assert module["COUNT"] == 0


def test_a_global_that_refused_code_makes_is_gone_again():
    lines = "global TOTAL", "TOTAL = names().get('TOTAL', 0) + 1", "return x * TOTAL"
    code = "\n    ".join(("def hybrid_forward(self, F, x):", *lines))
    module = {"__name__": "makes"}
    module["names"] = lambda: module
    exec(code, module)
    net = type("Net", (HybridBlock,), {"__module__": "makes", "hybrid_forward": module["hybrid_forward"]})()
    net.hybridize()
    assert [net(nd.ones((1,))).asscalar() for _ in range(3)] == [1, 2, 3]


def test_both_generators_of_random_numbers_get_their_states_again():
    state = UserState([])
    drawn = random.random(), np.random.rand()
    state.restore_random()
    assert (random.random(), np.random.rand()) == drawn


def test_a_call_that_cannot_be_traced_is_known():
    class ReadsValues(HybridBlock):
        def hybrid_forward(self, F, x):
            return F.array(x.asnumpy())

    net = ReadsValues()
    net.hybridize()
    with pytest.raises(HybridizeError):
        net(nd.ones((2,)))
    assert [call.types for call in net._graphs.calls] == [(((2,), "float32"),)]
