"""One name for one Block: in a notebook messages call it by the variable that leads to it, as the panel does."""

import logging
import re

import pytest

from hybrid_lab.diagnostics import formatting
from hybrid_lab.lab.kernel.hooks import lab_of
from tests.lab.conftest import IMPORTS

CLASSES = """class Head(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        if x.sum() > 0:
            return x
        return -x

class Log(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.log(x - 100)

class Wrong(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        raise ValueError("wrong")

class Outer(gluon.HybridBlock):
    def __init__(self, inner):
        super().__init__()
        self.head = inner

    def hybrid_forward(self, F, x):
        return self.head(x)

class Pair:
    def __init__(self, body):
        self.body = body

def chain(*blocks, kind=nn.HybridSequential):
    net = kind()
    net.add(*blocks)
    net.initialize()
    net.hybridize()
    return net
"""

#: code that makes a model around INNER, and the name of the inner Block
PLACES = {
    "net = chain(nn.Dense(3), INNER)": "net[1]",
    "net = chain(nn.Dense(3), Outer(INNER))": "net[1].head",
    "net = chain(nn.Dense(3), INNER, kind=nn.Sequential)": "net[1]",
    "net = chain(nn.Dense(3), Outer(INNER), kind=nn.Sequential)": "net[1].head",
    "net = INNER; net.initialize(); net.hybridize()": "net",
    "nets = [chain(nn.Dense(3)), chain(INNER)]; net = None": "nets[1][0]",
    "gan = {'gen': chain(nn.Dense(3)), 'dis': chain(INNER)}; net = None": 'gan["dis"][0]',
    "pair = Pair(chain(nn.Dense(3), INNER)); net = None": "pair.body[1]",
}
CALLS = {"nets": "nets[1](x)", "gan": "gan['dis'](x)", "pair": "pair.body(x)"}


def call_of(code):
    return CALLS.get(code.partition(" ")[0], "net(x)")


@pytest.mark.parametrize(("code", "name"), PLACES.items())
def test_an_error_names_the_block_as_the_panel_does(run, shell, code, name):
    run(IMPORTS, CLASSES, code.replace("INNER", "Head()"))
    with pytest.raises(TypeError, match=re.escape(f"(block {name})")) as raised:
        run(call_of(code))
    run(code.replace("INNER", "Wrong()"))
    with pytest.raises(ValueError, match="wrong") as noted:
        run(call_of(code))
    assert noted.value.__notes__ == [f"in block {name} (Wrong)"]
    # The links below the error and the banner: the same name.
    from hybrid_lab.lab.kernel.tracebacks import error_data, own_lines

    registry = lab_of(shell)._registry_of_models()
    lines, hidden = own_lines(noted.value.__traceback__)
    assert error_data(noted.value, lines, hidden, registry)["name"] == name
    failed = [model.facts.shown["failed"] for model in registry.refresh()]
    assert name in [found["code"] for found in failed if found]
    assert raised.value.block is not None, "its own path is there for code"


@pytest.mark.parametrize(("code", "name"), PLACES.items())
def test_a_nan_is_in_the_block_of_this_name(run, code, name):
    run(IMPORTS, CLASSES, code.replace("INNER", "Log()"))
    call = call_of(code)
    with pytest.raises(FloatingPointError, match=re.escape(f"forward of {name} (Log)")):
        run(f"with mx.watch_nan({call.removesuffix('(x)')}):\n    {call}")


def test_warnings_and_saves_use_the_name(run, caplog, tmp_path):
    keeps = """class Keeps(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        self.last = x
        return x
"""
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        run(IMPORTS, CLASSES, keeps, "net = chain(nn.Dense(3), Keeps()); net(x)")
    said = [record.getMessage() for record in caplog.records]
    assert any(text.startswith("net[1]: ") for text in said), said
    assert not any("keeps0" in text.split(":")[0] for text in said), said
    caplog.clear()
    with caplog.at_level(logging.INFO, "hybrid_lab"):
        run("top = chain(nn.Dense(3), kind=nn.Sequential)\ntop(x); top.save('top'); top.load('top')")
    said = [record.getMessage() for record in caplog.records]
    assert [text.partition(":")[0] for text in said] == ["top[0]", "top", "top"], said


def test_a_block_without_a_variable_has_its_own_name(run, shell):
    run(IMPORTS, CLASSES)
    with pytest.raises(TypeError, match=r"\(block head\d+\)"):
        run("chain(nn.Dense(3), Head(), kind=nn.Sequential)(x)")
    hooks_name = formatting.known_as
    formatting.set_known_as(lambda block, path: 1 / 0)
    try:
        assert formatting.called(shell.user_ns["nn"].Dense(2, prefix="own_")) == "own"
    finally:
        formatting.set_known_as(hooks_name)
