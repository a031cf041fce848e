"""Every way in which hybrid code changes, or reads on, what outlives the call is marked; and the methods around
hybrid_forward, which are traced with it, are checked as it is.
"""

from __future__ import annotations

import textwrap

import pytest

import hybrid_lab as mx
from hybrid_lab import lint
from hybrid_lab.diagnostics import HybridizeError

from .test_lint_agrees_with_trace import first_call

HEAD = """\
import bisect, collections, contextlib, copy, heapq, itertools, os, random
import numpy as np
import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import nn

SEEN, SETTINGS, NUMBERS, COUNT = [], {}, itertools.count(), 0
QUEUE = collections.deque()
RNG, RAND, ARR = np.random.default_rng(0), random.Random(0), np.zeros(3)

class Config:
    pass

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
        self.it, self.gen = iter([1]), (i for i in "abc")
        self.rng, self.rs, self.rand = np.random.default_rng(0), np.random.RandomState(0), random.Random(0)
        self.q, self.d, self.ctr, self.t = [], {{}}, collections.Counter(), (1, 2)
        self.cyc, self.cfg, self.file = itertools.cycle([1, 2]), Config(), open(os.devnull)
        self.arr, self.buf = np.zeros(3), mx.nd.zeros((3,))

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

#: Other names of what self or the module holds, iterators and generators that each call reads on, methods by function.
UNDER_OTHER_NAMES = [
    "for v in self.it:\n    x = x * v",
    "self.it.__next__()",
    "x = x * self.it.__next__()",
    "s = self.seen\ns.append(1)",
    "s = self.seen\ns.append(x)",
    "self.rng.random()",
    "x = x * self.rng.random()",
    "x = x * self.rng.normal()",
    "x = x*self.rs.rand()",
    "x=x*self.rand.random()",
    "x=x*self.rand.choice([1,2])",
    "self.rand.shuffle(self.seen)",
    "heapq.heappush(self.q, 1)",
    "heapq.heappop(self.q)",
    "heapq.heapify(self.q)",
    "bisect.insort(self.q, 1)",
    "bisect.insort_left(self.q, 1)",
    "self.d.update(a=1)",
    "self.d.setdefault('a',1)",
    "self.d.pop('a',0)",
    "del self.d['k']",
    "self.q.popleft()",
    "setattr(self,'n', getattr(self,'n',0)+1)",
    "match (x, 1):\n    case (1, y):\n        pass",
    "x = x * next(self.cyc)",
    "x = x*next(iter(self.it))",
    "x = x*next(self.it, 0)",
    "for i, v in enumerate(self.it):\n    x = x*v",
    "for v, w in zip(self.it, [1]):\n    x = x*v",
    "x = x*[v for v in self.it][0]",
    "x=x*sum(self.gen)",
    "x=x*list(self.gen)[0]",
    "x=x*max(self.gen)",
    "a, *b = self.it",
    "x=x*next(self.gen)",
    "x=x*self.gen.send(None)",
    "object.__setattr__(self,'n',1+self.count)",
    "self.__dict__['n'] = self.count+1",
    "vars(self)['n'] = self.count + 1",
    "self.__dict__.update(n=self.count+1)",
    "self.arr[0] += 1",
    "self.arr += 1",
    "self.arr.fill(2)",
    "np.add(self.arr, 1, out=self.arr)",
    "s = self.seen\ns[0] = 1",
    "s = self.d\ns['a'] = self.count",
    "s, t = self.seen, 1\ns.append(t)",
    "s = self.d['a']\ns.append(1)",
    "s = self.d.get('a')\ns.append(1)",
    "s = self.d.setdefault('a', [])\ns.append(1)",
    "for s in self.seen:\n    s.append(1)",
    "s = self.cfg\ns.n = 2 + self.count",
    "s = self\ns.n = self.count+1",
    "with contextlib.suppress(Exception):\n    self.seen.append(1)",
    "self.ctr.update([1])",
    "self.ctr['a'] += 1",
    "self.ctr.subtract([1])",
    "self.cfg.n = self.count",
    "self.cfg.n += 1",
    "collections.deque.append(self.queue, 1)",
    "list.append(self.seen, 1)",
    "dict.update(self.d, a=1)",
    "self.seen.__setitem__(0, 1)",
    "self.d.__setitem__('a', 1)",
    "self.d |= {'a': 1}",
    "self.names |= {1}",
    "self.names ^= {1}",
    "self.names.symmetric_difference_update({1})",
    "self.seen.__iadd__([1])",
    "x = x * RNG.random()",
    "x=x*RAND.random()",
    "ARR[0] += 1",
    "x=x*np.random.rand()",
    "x = x*random.random()",
    "random.shuffle(self.seen)",
    "np.random.shuffle(self.arr)",
    "line = self.file.readline()",
    "line = next(self.file)",
    "self.buf[:] = 1",
    "self.buf[0] += 1",
    "self.buf += 1",
    "self.seen[:] = [1]",
    "del self.seen[:]",
    "self.n = self.count = self.count + 1",
    "(self.n, self.m) = (self.count, 1)",
    "with open('a') as self.f:\n    pass",
    "[self.seen.append(i) for i in range(2)]",
    "(lambda: self.seen.append(1))()",
    "getattr(self, 'seen').append(1)",
    "self.seen.append(1) if self.count else None",
    "self.count or self.seen.append(1)",
    "s = self.seen or []\ns.append(1)",
    "s = self.seen if self.count else []\ns.append(1)",
    "list(map(self.seen.append, [1]))",
    "push = self.seen.append\npush(1)",
    "match x:\n    case [a, b]:\n        pass",
    "match [x, x]:\n    case [a, 1]:\n        pass",
    "match {'a': x}:\n    case {'a': 1}:\n        pass",
]

COPIES = [
    "s = list(self.seen)\ns.append(1)",
    "s = self.seen[:]\ns.append(1)",
    "s = dict(self.d)\ns['a']=1",
    "s = self.seen.copy()\ns.append(1)",
    "for v in self.seen:\n    x = x*v",
    "for v in self.t:\n    x=x*v",
    "s = sorted(self.seen)\ns.append(1)",
    "s = self.seen + [1]\ns.append(2)",
    "s = [*self.seen]\ns.append(1)",
    "s = {**self.d}\ns['a']=1",
    "s = copy.copy(self.seen)\ns.append(1)",
    "s = copy.deepcopy(self.d)\ns['a']=1",
    "s = self.d.get('a', 1)\ny = s + 1",
    "for k, v in self.d.items():\n    x = x * v",
    "h = []\nheapq.heappush(h, 1)",
    "s=[]\nbisect.insort(s,1)",
    "s = self.seen\ny = s[0]\nx = x*len(s)",
    "match self.count:\n    case 1:\n        x = x*2\n    case _:\n        pass",
    "match (x, self.count):\n    case (y, _):\n        x = y",
    "outs = []\nfor s in self.seen:\n    outs.append(s)",
    "f = self.square\n",
    "s = self.t\nx = x*s[0]",
    "it = iter(self.seen)\nx = x*next(it)",
    "s = [v for v in self.seen]\ns.append(1)",
    "s = tuple(self.seen)",
    "d = self.d\ny = d.get('a')",
    "s = []\ns = s + self.seen\ns.append(1)",
    "y = self.rng",
    "match (x, 1):\n    case (y, 1):\n        x = y",
    "items = self.make()\nitems.append(x)",
    "states = self.begin()\nstates.append(x)",
    "match (x, self.count):\n    case (_, 1):\n        x = x * 2",
    "y = {}\ny['a'] = self.seen",
    "net = Config()\nnet.a = self.seen",
    "s = self.seen\ns = []\ns.append(1)",
]


def codes(body: str) -> list[str]:
    return [finding.code for finding in lint.check(HEAD + NET.format(body=textwrap.indent(body, " " * 8)))]


@pytest.mark.parametrize("statement", ON_SELF)
def test_a_change_of_what_self_holds(statement):
    assert "HL173" in codes(statement)


@pytest.mark.parametrize("statement", OUTSIDE)
def test_a_change_of_what_the_module_holds(statement):
    assert codes(statement) == ["HL178"]


@pytest.mark.parametrize("statements", UNDER_OTHER_NAMES)
def test_a_change_under_another_name(statements):
    assert codes(statements)


@pytest.mark.parametrize("statements", [*LOCAL, *COPIES])
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
