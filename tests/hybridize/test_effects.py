"""Which code has an effect beside its result: around its trace the state is remembered and compared."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest

from hybrid_lab import nd
from hybrid_lab.diagnostics import HybridizeError
from hybrid_lab.gluon import HybridBlock, Parameter, nn
from hybrid_lab.hybridize.block import tree_of
from hybrid_lab.hybridize.stale.effects import has_no_effect
from hybrid_lab.hybridize.stale.user_state import UserState

RATE = 2.0
TABLE = [1.0]
calls = 0


def scaled(x):
    return x * RATE


def counted(x):
    global calls
    calls += 1
    return x


class Counter:
    count = 0

    def mean(self, x):
        self.count += 1
        return x


COUNTER = Counter()


class Base(HybridBlock):
    def __init__(self):
        super().__init__()
        self.child = nn.Dense(2)
        self.rate, self.seen, self.counter = 2.0, [], Counter()
        self.weight = Parameter("weight", shape=(1,))
        self.log, self.ctx = [], COUNTER

    def helper(self, x):
        return self.child(x)


class Plain(Base):
    def hybrid_forward(self, F, x, scale=1.0):
        print(F.__name__, len(x.shape) if False else x)
        for number in range(2):
            x = F.relu(self.helper(x)) * self.rate * scale + number
        return scaled(x).sum(axis=1)


class InSuper(Plain):
    def hybrid_forward(self, F, x):
        return super().hybrid_forward(F, x) + sum([1, 2])


class OnStack(Base):
    def hybrid_forward(self, F, x):
        results = [F.tanh(x) for _ in range(x.shape[0])]
        return F.concat(*results, self.weight.data(), dim=0)


WITHOUT = [Plain, InSuper, OnStack]


def block(function):
    return type(function.__name__, (Base,), {"hybrid_forward": function})


def stores_an_attribute(self, F, x):
    self.last = 1
    return x


def stores_an_item(self, F, x):
    self.seen[:] = [1]
    return x


def appends(self, F, x):
    self.seen.append(1)
    return x


def pops(self, F, x):
    self.seen.pop()
    return x


def sorts(self, F, x):
    self.seen.sort()
    return x


def reverses(self, F, x):
    self.seen.reverse()
    return x


def counts_in_an_object(self, F, x):
    return self.counter.mean(x)


def counts_in_a_global_object(self, F, x):
    return COUNTER.mean(x)


def calls_a_function_that_counts(self, F, x):
    return counted(x)


def writes_a_global(self, F, x):
    global calls
    calls = 2
    return x


def draws(self, F, x):
    return x * random.random()


def draws_in_numpy(self, F, x):
    return x * float(np.random.rand())


def imports(self, F, x):
    import time

    return x * time.time()


def asks_for_the_class(self, F, x):
    return x if isinstance(x, nd.NDArray) else x * 2


def compares_the_name(self, F, x):
    return x if F.__name__ == "hybrid_lab.ndarray" else x * 2


def compares_the_identity(self, F, x):
    return x if F is nd else x * 2


def casts_itself(self, F, x):
    self.cast("float16")
    return x


def sets_by_name(self, F, x):
    setattr(self, "rate", 3.0)  # noqa: B010
    return x


def sets_past_python(self, F, x):
    object.__setattr__(self, "rate", 3.0)
    return x


def reads_a_list(self, F, x):
    return x * TABLE[0]


def has_a_list_as_default(self, F, x, seen=[]):  # noqa: B006
    return x


def calls_an_operator_of_the_users(self, F, x):
    return F.Custom(x, op_type="users")


def around():
    seen = []

    def reads_a_variable_around(self, F, x):
        return x * len(seen)

    return reads_a_variable_around


def wrapped():
    @functools.wraps(appends)
    def has_a_decorator(self, F, x):
        return appends(self, F, x)

    return has_a_decorator


def with_a_count():
    count = 0

    def counts_in_a_variable_around(self, F, x):
        nonlocal count
        count += 1
        return x

    return counts_in_a_variable_around


def with_a_class():
    class Noise(float):
        def __new__(cls):
            return float.__new__(cls, random.random())

    def makes_an_object_of_a_class_around(self, F, x):
        return x * float(Noise())

    return makes_an_object_of_a_class_around


def asks_for_a_part_of_the_name(self, F, x):
    return x if "ndarray" in F.__name__ else x * 2


def extends_a_list_named_as_an_operator(self, F, x):
    seen = self.log
    seen += [1]
    return x


def enters_an_object_named_as_an_attribute_of_arrays(self, F, x):
    with self.ctx:
        return x


WITH = [
    stores_an_attribute, stores_an_item, appends, pops, sorts, reverses, counts_in_an_object, counts_in_a_global_object,
    calls_a_function_that_counts, writes_a_global, draws, draws_in_numpy, imports, asks_for_the_class,
    compares_the_name, compares_the_identity, casts_itself, sets_by_name, sets_past_python, reads_a_list,
    has_a_list_as_default, calls_an_operator_of_the_users, around(), wrapped(), with_a_count(), with_a_class(),
    asks_for_a_part_of_the_name, extends_a_list_named_as_an_operator, enters_an_object_named_as_an_attribute_of_arrays,
]  # fmt: skip


@pytest.mark.parametrize("kind", WITHOUT, ids=lambda kind: kind.__name__)
def test_operators_children_and_methods_have_none(kind):
    assert has_no_effect(tree_of(kind()))


@pytest.mark.parametrize("function", WITH, ids=lambda function: function.__name__)
def test_what_may_change_or_keep_something_has_one(function):
    assert not has_no_effect(tree_of(block(function)()))


def test_code_of_a_block_below_counts():
    outer = nn.HybridSequential()
    outer.add(nn.Dense(2), block(appends)())
    assert not has_no_effect(tree_of(outer))


class Scaled(Parameter):
    def data(self, ctx=None):
        return super().data(ctx) * 2


def of_a_lambda(net):
    net.other = nn.HybridLambda(lambda F, x: counted(x))


def of_a_hook(net):
    net.child.register_forward_hook(lambda *_: None)


def of_the_instance(net):
    net.hybrid_forward = lambda F, x: counted(x)


def of_a_parameter(net):
    net.further = Scaled("further", shape=(1,))


@pytest.mark.parametrize("change", [of_a_lambda, of_a_hook, of_the_instance, of_a_parameter])
def test_other_code_that_a_call_runs_counts(change):
    net = Plain()
    assert has_no_effect(tree_of(net))
    change(net)
    assert not has_no_effect(tree_of(net))


def test_a_class_of_classes_of_the_users_counts():
    class Meta(type):
        pass

    assert not has_no_effect(tree_of(Meta("Net", (Plain,), {})()))


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


def of_a_method_that_is_an_object():
    return type("Net", (Plain,), {"helper": Act()})


def of_a_property_of_the_users():
    rate = CountedProperty(lambda self: 2.0)
    return type("Net", (Base,), {"scale": rate, "hybrid_forward": lambda self, F, x: x * self.scale})


def of_forward_as_an_object():
    return type("Net", (Base,), {"hybrid_forward": Act()})


def of_setattr():
    class Net(Base):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)

        def hybrid_forward(self, F, x):
            self.__setattr__("rate", self.rate + 1)
            return x * self.rate

    return Net


@pytest.mark.parametrize(
    "kind", [of_a_method_that_is_an_object, of_a_property_of_the_users, of_forward_as_an_object, of_setattr]
)
def test_objects_that_a_class_has_as_code_count(kind):
    assert not has_no_effect(tree_of(kind()()))


def test_a_list_of_a_block_below_counts():
    class Net(HybridBlock):
        def __init__(self):
            super().__init__()
            self.below = Plain()

        def hybrid_forward(self, F, x):
            seen = self.below.log
            seen += [1]
            return x

    assert not has_no_effect(tree_of(Net()))


def test_a_method_of_the_package_named_as_an_own_one_counts():
    class Net(Base):
        def cast(self, dtype):
            self.child.cast(dtype)

        def hybrid_forward(self, F, x):
            return self.child(x)

    assert not has_no_effect(tree_of(Net()))


def test_an_object_of_a_class_below_named_as_an_own_method_counts():
    class Below(Plain):
        scale = Act()

    class Net(HybridBlock):
        def __init__(self):
            super().__init__()
            self.below = Below()

        def scale(self, x):
            return x

        def hybrid_forward(self, F, x):
            return self.below.scale(x)

    assert not has_no_effect(tree_of(Net()))


def test_a_block_that_is_no_child_counts():
    net = Plain()
    vars(net)["rate"] = block(appends)()
    assert not has_no_effect(tree_of(net))


def test_an_assigned_forward_of_a_layer_counts(monkeypatch):
    def forward(self, F, x):
        return counted(x)

    layer = nn.Activation("relu")
    assert has_no_effect(tree_of(layer))
    monkeypatch.setattr(nn.Activation, "hybrid_forward", forward)
    assert not has_no_effect(tree_of(layer))


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
