"""Lists and dicts that a nested Block is called with: the same objects as its caller's, in a trace as eagerly."""

from __future__ import annotations

import copy
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics import HybridizeError, HybridLabError
from hybrid_lab.gluon import HybridBlock

Pair = namedtuple("Pair", "first second")


class Child(HybridBlock):
    """1.x style."""

    def __init__(self, code: Any):
        super().__init__()
        self.code = code

    def hybrid_forward(self, F, *args):
        return self.code(*args)


class Child2(HybridBlock):
    """2.x style."""

    def __init__(self, code: Any):
        super().__init__()
        self.code = code

    def forward(self, *args):
        return self.code(*args)


class Parent(HybridBlock):
    def __init__(self, child: HybridBlock, code: Any):
        super().__init__()
        self.child, self.code = child, code

    def hybrid_forward(self, F, x):
        return self.code(self.child, x)


class Parent2(Parent):
    def forward(self, x):
        return self.code(self.child, x)


#: What a child may do with its list, of [x, x + 1], and what its parent then reads there.
CHANGES = {
    "assign": (lambda y: y.__setitem__(0, y[0] * 2), lambda y: y[0]),
    "assign a slice": (lambda y: y.__setitem__(slice(0, 1), [y[1] * 2, y[0] * 3]), lambda y: y[0] + y[1] - y[2]),
    "append": (lambda y: y.append(y[0] * 3), lambda y: y[2]),
    "insert": (lambda y: y.insert(0, y[1] * 3), lambda y: y[0] - y[2]),
    "extend": (lambda y: y.extend([y[0] * 2, y[1] * 5]), lambda y: y[3]),
    "delete": (lambda y: y.__delitem__(0), lambda y: y[0]),
    "pop": (lambda y: y.pop(), lambda y: y[-1]),
    "remove": (lambda y: y.pop(y.index(y[0])), lambda y: y[0]),
    "reverse": (lambda y: y.reverse(), lambda y: y[0] - y[1] * 3),
    "sort": (lambda y: y.sort(key=id, reverse=y[0] is not None), lambda y: y[0] + y[1]),
    "clear and fill": (lambda y: y.__init__([y[1] * 4]), lambda y: y[0] * len(y)),
    "nothing": (lambda y: None, lambda y: y[0] * 2 - y[1]),
}


def results(code: Any, parent_code: Any) -> list[Any]:
    """The parent's result in all combinations of styles, eagerly and hybridized."""
    found = []
    for parent_kind in (Parent, Parent2):
        for child_kind in (Child, Child2):
            for active in (False, True):
                net = parent_kind(child_kind(code), parent_code)
                if active:
                    net.hybridize(engine="numpy")
                for _ in range(2):
                    y = net(nd.array([1.0, 2.0]))
                found.append(y.asnumpy().tolist())
    return found


def all_alike(found: list[Any]) -> Any:
    assert all(item == found[0] for item in found)
    return found[0]


@pytest.mark.parametrize("change", CHANGES)
def test_a_child_changes_its_callers_list(change):
    write, read = CHANGES[change]

    def child(y):
        first = y[0] * 1
        write(y)
        return first

    def parent(net, x):
        y = [x, x + 1]
        first = net(y)
        return read(y) + first * 100

    all_alike(results(child, parent))


def test_lists_inside_tuples_lists_and_dicts():
    def child(where):
        where[0][0] = where[1]["a"] * 2
        where[1]["b"] = where[0][0] + 1
        where[1]["c"].append(where[1].pop("a"))
        return where[0][0] * 1

    def parent(net, x):
        inner: Any = [x * 3]
        where = (inner, {"a": x, "c": inner and [x * 7]})
        net(where)
        return inner[0] + where[1]["b"] * 10 + where[1]["c"][1] * 100 + len(where[1])

    assert all_alike(results(child, parent)) == [134.0, 256.0]


def test_a_list_that_comes_twice_is_one_list():
    def child(one, two):
        one[0] = one[0] * 2
        return two[0] * 1

    assert all_alike(results(child, lambda net, x: (lambda y: net(y, y))([x, x + 1]))) == [2.0, 4.0]
    two = all_alike(results(child, lambda net, x: (lambda y, z: net(y, z))([x, x + 1], [x, x + 1])))
    assert two == [1.0, 2.0]


def test_one_tensor_at_two_places():
    def child(y):
        y[0] = y[0] * 2
        return y[1] * 1

    assert all_alike(results(child, lambda net, x: (lambda y: (net(y), y[0] * 10 + y[1])[1])([x, x]))) == [21.0, 42.0]


def test_what_is_returned_is_what_came_in():
    said: list[bool] = []

    def parent(net, x):
        y = [x, x + 1]
        z = net(y)
        said.append(z is y and y[0] is x)
        z.append(x * 5)
        return y[2] + z[1]

    all_alike(results(lambda y: y, parent))
    assert all(said)


def test_tuples_and_namedtuples_that_come_back():
    def child(pair):
        pair.second.append(pair.first * 2)
        return pair

    def parent(net, x):
        pair = net(Pair(x, [x]))
        return pair.second[1] + pair.first

    assert all_alike(results(child, parent)) == [3.0, 6.0]


def test_a_list_that_the_callee_keeps():
    kept: list[Any] = []

    def child(y):
        kept.append(y)
        return y[0] * 1

    def parent(net, x):
        kept.clear()
        y = [x]
        net(y)
        y.append(x * 9)
        return kept[0][1] * 1

    assert all_alike(results(child, parent)) == [9.0, 18.0]


def test_through_several_blocks():
    def inner(y):
        y.append(y[0] * 2)
        return y[0] * 1

    for middle_kind in (Parent, Parent2):
        for inner_kind in (Child, Child2):

            def middle(net, y):
                net(y)
                y[0] = y[1] + 1
                return y[0] * 1

            values = []
            for active in (False, True):
                chain = middle_kind(inner_kind(inner), middle)
                net = Parent(chain, lambda net, x: (lambda y: (net(y), y[0] * y[1])[1])([x]))
                if active:
                    net.hybridize(engine="numpy")
                values.append(net(nd.array([1.0, 2.0])).asnumpy().tolist())
            assert values[0] == values[1] == [6.0, 20.0]


def test_after_an_error_the_caller_goes_on_with_its_own_tensors():
    def child(y):
        raise KeyError("no")

    def parent(net, x):
        y = [x]
        try:
            net(y)
        except KeyError:
            pass
        assert y[0] is x
        return y[0] * 2

    assert all_alike(results(child, parent)) == [2.0, 4.0]


def test_hooks_see_the_lists_of_the_call():
    seen: list[Any] = []

    def parent(net, x):
        y = [x]
        net(y)
        assert seen[-1] is y
        return y[1] * 1

    for active in (False, True):
        net = Parent(Child(lambda y: (y.append(y[0] * 2), y[0] * 1)[1]), parent)
        net.child.register_forward_hook(lambda block, inputs, output: seen.append(inputs[0]))
        if active:
            net.hybridize(engine="numpy")
        assert net(nd.array([1.0])).asscalar() == 2.0


@pytest.mark.parametrize("kind", [Child, Child2])
@pytest.mark.parametrize("change", [name for name in CHANGES if name not in ("sort", "nothing")])
def test_the_outermost_call_runs_eagerly_if_it_changes_its_list(kind, change, caplog):
    def code(y):
        first = y[0] * 1
        CHANGES[change][0](y)
        return first

    def called(net):
        given = [nd.ones(2), nd.ones(2) * 3]
        return [net(given).asnumpy().tolist(), *(item.asnumpy().tolist() for item in given)]

    net = kind(code)
    eager = called(net)
    net.hybridize(engine="numpy")
    assert called(net) == eager == called(net)
    said = [record.getMessage() for record in caplog.records if "HL142" in record.getMessage()]
    assert len(said) == 1 and "changes a list or dict that it was called with" in said[0] and "run eagerly" in said[0]
    net.hybridize(engine="numpy", strict=True)
    given = [nd.ones(2), nd.ones(2) * 3]
    before = list(given)
    with pytest.raises(HybridizeError, match=r"HL142.*changes a list or dict that it was called with"):
        net(given)
    assert len(given) == 2 and all(one is other for one, other in zip(given, before, strict=True))


class Appending(gluon.HybridBlock):
    """Changes a list, and has a parameter whose shape follows from the input."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.weight = self.params.get("weight", shape=(4, 0), init="ones", allow_deferred_init=True)

    def hybrid_forward(self, F, x, states, weight):
        states.append(F.FullyConnected(x, weight, no_bias=True, num_hidden=4))
        return F.add_n(*states)


def test_a_list_that_grows_with_every_call_is_told_of_once(caplog):
    for active in (False, True):
        net, states = Appending(), []
        net.initialize()
        net.hybridize(active)
        for number in range(1, 70):
            assert net(nd.ones((2, 3)), states).asnumpy().tolist() == [[3.0 * number] * 4] * 2
            assert len(states) == number
    assert len([record for record in caplog.records if "HL142" in record.getMessage()]) == 1
    assert len(net._graph_calls.failures.eager) == 64


class Counting(gluon.HybridBlock):
    calls = 0

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.counter = SimpleNamespace(calls=0, seen=[])

    def hybrid_forward(self, F, x, states):
        Counting.calls += 1
        self.counter.calls += 1
        self.counter.seen.append(self.counter.calls)
        type(self).own = getattr(type(self), "own", 0) + 1
        states.append(x)
        return x * Counting.calls + 10 * type(self).own


class CountingToo(Counting):
    pass


def test_what_a_refused_trace_changed_in_classes_and_objects_is_undone_where_it_was():
    net = CountingToo()
    net.hybridize()
    assert [net(nd.ones(1), []).asscalar() for _ in range(3)] == [11.0, 22.0, 33.0]
    assert (Counting.calls, CountingToo.own) == (3, 3)
    assert (net.counter.calls, net.counter.seen) == (3, [1, 2, 3])
    assert not {"own"} & vars(Counting).keys() and not {"calls"} & vars(CountingToo).keys()


@pytest.mark.parametrize("kind", [Child, Child2])
def test_a_list_that_is_read_and_copied_is_fine(kind):
    def code(y):
        y = list(y)
        y.append(y[0] * 2)
        return y[2] + y[1]

    net = kind(code)
    net.hybridize(engine="numpy")
    assert net([nd.ones(1), nd.ones(1) * 5]).asscalar() == 7.0


def test_the_childs_own_graph_is_not_silently_another(tmp_path):
    """A graph cannot change a list, so a child that does has none; its parent's graph has the change in it."""
    child = Child(lambda y: (y.__setitem__(0, y[0] * 2), y[1] * 1)[1])
    net = Parent(child, lambda net, x: (lambda y: net(y) + y[0])([x, x]))
    net.hybridize(engine="numpy")
    x = nd.array([1.0, 2.0])
    expected = net(x).asnumpy()
    assert expected.tolist() == [3.0, 6.0]
    assert not net.child._graphs.graphs()
    path = tmp_path / "m.hlab"
    mx.save_cached_graphs(net, path)
    loaded = gluon.load(path)
    np.testing.assert_array_equal(loaded(x).asnumpy(), expected)
    with pytest.raises(HybridLabError):
        loaded.child([x, x])


def test_one_tensor_twice_leaves_two_inputs_in_the_childs_graph():
    net = Parent(Child(lambda y: y[0] - y[1] * 2), lambda net, x: net([x, x]))
    net.hybridize(engine="numpy")
    assert net(nd.ones(1)).asscalar() == -1.0
    net.child.hybridize(engine="numpy")
    assert net.child([nd.ones(1) * 5, nd.ones(1)]).asscalar() == 3.0


def test_a_copied_tensor_knows_its_shape_in_code_that_may_ask():
    net = Child2(lambda y: (lambda z: z.reshape((z.shape[0], -1)) * len(z))(copy.copy(y)))
    x = nd.ones((2, 3, 4))
    expected = net(x).asnumpy()
    net.hybridize(engine="numpy")
    np.testing.assert_array_equal(net(x).asnumpy(), expected)
    other = Child(net.code)
    other.hybridize(engine="numpy")
    with pytest.raises(HybridizeError, match="HL101"):
        other(x)
