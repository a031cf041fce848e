"""Every way in which hybrid code changes, or reads on, what outlives the call is marked; and the methods around
hybrid_forward, which are traced with it, are checked as it is.
"""

from __future__ import annotations

import textwrap

import pytest

import hybrid_lab as mx
from hybrid_lab import lint
from hybrid_lab.diagnostics import HybridizeError

from .test_agreement import first_call

HEAD = """\
import collections, itertools, os
import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import nn

SEEN, SETTINGS, NUMBERS, COUNT = [], {}, itertools.count(), 0
QUEUE = collections.deque()

class Square(autograd.Function):
    def forward(self, x):
        return x * x

    def backward(self, dy):
        return dy

"""
NET = """\
class Net(gluon.HybridBlock):
    shared = []

    def __init__(self):
        super().__init__()
        self.seen, self.settings, self.names = [], {{}}, set()
        self.numbers = iter(range(100))
        self.queue = collections.deque()
        self.count = 1
        self.square = Square()

    def hybrid_forward(self, F, x):
{body}
        return x * 2
"""

ON_SELF = [
    *(
        f"self.seen.{change}"
        for change in ("append(1)", "extend([1])", "insert(0, 1)", "clear()", "sort()", "reverse()")
    ),
    *("self.seen.pop()", "self.seen.remove(1)", "self.seen += [1]", "self.seen[0] = 1", "self.seen[0] += 1"),
    *("del self.seen[0]", "del self.count", "self.shared.append(1)", "self.settings.update(a=1)"),
    *("self.settings['a'] = 1", "self.settings.setdefault('a', 1)", "self.settings.popitem()", "self.names.add(1)"),
    *("self.names.discard(1)", "self.queue.append(1)", "self.queue.appendleft(1)", "self.queue.popleft()"),
    *(
        "self.count += 1",
        "self.count = x.sum()",
        "setattr(self, 'count', self.count + 1)",
        "type(self).count = self.count + 1",
    ),
    *("self.__class__.count = self.count + 1", "self.count, y = self.count + 1, 1"),
]

OUTSIDE = [
    *("SEEN.append(1)", "SEEN.extend([1])", "SEEN[0] = 1", "SEEN.clear()", "del SEEN[0]"),
    *("SETTINGS['a'] = 1", "SETTINGS['a'] += 1", "SETTINGS.update(a=1)", "SETTINGS.pop('a', 0)", "del SETTINGS['a']"),
    *(
        "QUEUE.append(1)",
        "QUEUE.popleft()",
        "Net.count = 2",
        "Net.count += 1",
        "nd.count = 1",
        "global COUNT\nCOUNT += 1",
    ),
    *("next(self.numbers)", "next(NUMBERS)", "os.environ['A']", "os.getenv('A')", "os.environ['A'] = '1'"),
]

LOCAL = [
    "seen = []\nseen.append(1)\nseen.append(x)",
    "settings = {}\nsettings['a'] = x\nsettings.update(b=1)",
    "numbers = iter((1, 2))\nnext(numbers)",
    "def grow(items):\n    items.append(1)\n    return items\ngrow([])",
    "items = list(self.seen)\nitems.append(1)",
    "count = 0\ndef more():\n    nonlocal count\n    count += 1\nmore()",
    "SEEN = []\nSEEN.append(1)",
    "y = SETTINGS.get('a', 1) + len(SEEN) + self.count + COUNT",
    "y = [t for t in self.seen]",
]


def codes(body: str) -> list[str]:
    return [finding.code for finding in lint.check(HEAD + NET.format(body=textwrap.indent(body, " " * 8)))]


@pytest.mark.parametrize("statement", ON_SELF)
def test_a_change_of_what_self_holds(statement):
    assert "HL173" in codes(statement)


@pytest.mark.parametrize("statement", OUTSIDE)
def test_a_change_of_what_the_module_holds(statement):
    assert codes(statement) == ["HL178"]


@pytest.mark.parametrize("statements", LOCAL)
def test_what_belongs_to_the_call_is_not_marked(statements):
    assert codes(statements) == []


def test_names_of_a_function_around_the_class():
    body = "nonlocal count\ncount += 1\nseen.append(1)\nhere = []\nhere.append(1)"
    net = textwrap.indent(NET.format(body=textwrap.indent(body, " " * 8)), "    ")
    findings = lint.check(HEAD + "def make():\n    count, seen = 0, []\n" + net + "    return Net\n")
    assert [(item.code, item.message.split("`")[1]) for item in findings] == [
        ("HL178", "nonlocal count"),
        ("HL178", "seen"),
    ]


@pytest.mark.parametrize("call", ["Square()(x)", "self.square(x)", "autograd.set_training(True)"])
def test_what_no_graph_can_contain_of_autograd(call):
    source = HEAD + NET.format(body=f"        {call}")
    (finding,) = lint.check(source)
    assert (finding.code, finding.severity) == ("HL175", "error")
    with pytest.raises(HybridizeError) as raised:
        first_call(source)(mx.nd.ones((2, 2)))
    assert (raised.value.code, raised.value.rewrite) == ("HL175", finding.rewrite)


AROUND = """\
class Net(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x * 2

    def {method}(self, x):
        {statement}
        return super().{method}(x)
"""
REFUSED = {"x.asnumpy()": "HL111", "assert x.sum() > 0": "HL121", "x[0] = 1": "HL141", "self.last = x": "HL173"}


@pytest.mark.parametrize("method", ["forward", "__call__"])
@pytest.mark.parametrize("statement", REFUSED)
def test_a_method_around_hybrid_forward_is_checked_as_it_is(method, statement):
    source = HEAD + AROUND.format(method=method, statement=statement)
    assert [finding.code for finding in lint.check(source)] == [REFUSED[statement]]


@pytest.mark.parametrize("method", ["forward", "__call__"])
def test_a_method_around_hybrid_forward_may_do_what_2_x_code_may(method):
    source = HEAD + AROUND.format(method=method, statement="x = nd.relu(x).T")
    assert lint.check(source) == []
    first_call(source)(mx.nd.ones((2, 2)))
