"""What the bytecode of a function says of it, whichever release of Python has compiled it."""

import argparse
import ast
import asyncio.base_events
import dataclasses
import email.message
import inspect
import sys
import textwrap
from types import FunctionType, ModuleType

import pytest

from hybrid_lab import nd
from hybrid_lab.gluon import HybridBlock
from hybrid_lab.hybridize.stale.code import facts_of

RATE = 2


class Rate:
    def __init__(self, value):
        self.value = value


def reads(x):
    return x.first + x.second + x.third + x.fourth


def calls(x):
    return x.first() + x.second.third() + x.fourth


def calls_with_a_list(x, parts):
    return x.first(*parts) + x.second[0].third(*parts, rate=x.fourth)


def calls_of_a_module(x):
    return argparse.Namespace(rate=x.rate)


def calls_with_a_choice(x, parts):
    return x.first(*(parts if x.second else [x.third, x.fourth])) + x.fourth


def calls_with_a_list_made_in_place(x, parts):
    return x.first(*[part.second for part in parts if part.third]) + x.fourth


def hands_on(numbers):
    return map(Rate, numbers), RATE.real


def asks(x):
    return isinstance(x, Rate)


def asks_with_a_call(x):
    return isinstance(x.first(1), RATE.second())


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (reads, set()),
        (calls, {"first", "third"}),
        (calls_with_a_list, {"first", "third"}),
        (calls_of_a_module, {"Namespace"}),
        (calls_with_a_choice, {"first"}),
        (calls_with_a_list_made_in_place, {"first"}),
        (hands_on, {"map", "Rate"}),
        (asks, {"isinstance"}),
        (asks_with_a_call, {"isinstance", "first", "second"}),
    ],
)
def test_names_that_are_called_or_handed_on(function, names):
    assert facts_of(function.__code__).called == names


def called_attributes(function):
    """The attributes that a function calls, and all that it reads, by its source."""
    body = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0].body
    parts = [part for statement in body for part in ast.walk(statement)]
    called = {part.func.attr for part in parts if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute)}
    return called, {part.attr for part in parts if isinstance(part, ast.Attribute)}


@pytest.mark.parametrize(
    "module", [argparse, asyncio.base_events, dataclasses, email.message], ids=lambda m: m.__name__
)
def test_called_attributes_are_those_of_the_source(module):
    kinds = [item for item in vars(module).values() if isinstance(item, type) and item.__module__ == module.__name__]
    items = [item for owner in (module, *kinds) for item in vars(owner).values() if isinstance(item, FunctionType)]
    functions = [each for each in items if each.__module__ == module.__name__ and not hasattr(each, "__wrapped__")]
    assert len(functions) > 20
    for function in functions:
        facts = facts_of(function.__code__)
        called, read = called_attributes(function)
        others = {*facts.globals, *function.__code__.co_freevars, *function.__code__.co_cellvars}
        assert facts.called & read - others == called - others, function.__qualname__


RATES = """
scale = 2

class Rate:
    def __init__(self, number):
        self.value = number * scale
"""


@pytest.mark.parametrize("before", ["x", "F.relu(x)", "F.abs(F.relu(x))"])
def test_a_class_of_a_module_called_with_a_list_is_followed(monkeypatch, before):
    """Wherever its name stands among those of the code."""
    module = ModuleType("rates_of_this_test")
    exec(RATES, vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    code = f"def hybrid_forward(self, F, x):\n    numbers = [3]\n    return {before} * rates.Rate(*numbers).value\n"
    names = {"rates": module, "__name__": "code_of_this_test"}
    exec(code, names)
    net = type("Net", (HybridBlock,), {"hybrid_forward": names["hybrid_forward"], "__module__": __name__})()
    net.hybridize(engine="numpy")
    assert net(nd.ones((1,))).asscalar() == 6
    module.scale = 5
    assert net(nd.ones((1,))).asscalar() == 15
