"""Values that the code reads beside its tensors change from call to call, as in annealing: hybrid calls give what eager
calls give.

Each way of reading a value, with a way of changing it, runs in Blocks of both styles, at the top and below another
Block, on `mx.nd` and `mx.np` arrays.
"""

import builtins
import contextlib
import decimal
import functools
import gc
import importlib
import linecache
import sys
import types
from typing import NamedTuple

import pytest

import hybrid_lab as mx
from hybrid_lab.gluon import HybridBlock
from hybrid_lab.ndarray import context
from tests import quick
from tests.failures import Failures
from tests.seeds import same_random_numbers

POW = pow


class Way(NamedTuple):
    """before : code of the module; init : of the constructor; reads : the expression that the forward multiplies by
    change : the statement between two calls, with `net`, the Block that reads, and `t`, a number that grows
    lines : of the forward, before its result
    """

    before: str
    init: str
    reads: str
    change: str
    lines: str = "pass"


SETTINGS = "class Settings:\n    k = 2\n    def __init__(self):\n        self.rate = 2\n        self.inner = {'t': [2]}"
SLOTS = "class Slots:\n    __slots__ = ('rate',)\n    def __init__(self):\n        self.rate = 2"
SCHEDULE = (
    "BASE = 1\nclass Schedule:\n    def __init__(self):\n        self.t = 2\n"
    "    def value(self):\n        return BASE + self.t"
)
TRIES = "def tried(x):\n    try:\n        return x.more\n    except AttributeError:\n        return 3\n"

#: Compared at each call.
WATCHED = {
    "global number": Way("RATE = 2", "pass", "RATE", "global RATE; RATE = t"),
    "global of a helper": Way("RATE = 2\ndef rate():\n    return RATE", "pass", "rate()", "global RATE; RATE = t"),
    "global deleted": Way("RATE = 2", "pass", "globals().get('RATE', 7)", "globals().pop('RATE', None)"),
    "entry of a global dict": Way("CONFIG = {'rate': 2}", "pass", "CONFIG['rate']", "CONFIG['rate'] = t"),
    "entry by get": Way("CONFIG = {}", "pass", "CONFIG.get('rate', 5)", "CONFIG['rate'] = t"),
    "nested entry": Way("C = {'a': {'b': [2]}}", "pass", "C['a']['b'][0]", "C['a']['b'][0] = t"),
    "nested dict replaced": Way("C = {'a': {'b': [2]}}", "pass", "C['a']['b'][0]", "C['a'] = {'b': [t]}"),
    "global dict updated": Way("CONFIG = dict(rate=2)", "pass", "CONFIG['rate']", "CONFIG.update(rate=t)"),
    "global dict replaced": Way(
        "CONFIG = dict(rate=2)", "pass", "CONFIG['rate']", "global CONFIG; CONFIG = dict(rate=t)"
    ),
    "defaultdict": Way("import collections\nC = collections.defaultdict(int, k=2)", "pass", "C['k']", "C['k'] = t"),
    "OrderedDict": Way("import collections\nC = collections.OrderedDict(k=2)", "pass", "C['k']", "C['k'] = t"),
    "Counter": Way("import collections\nC = collections.Counter(k=2)", "pass", "C['k']", "C['k'] += t"),
    "sum of values": Way("CONFIG = dict(a=2)", "pass", "sum(CONFIG.values())", "CONFIG[str(t)] = t"),
    "key of a dict": Way("CONFIG = {2: None}", "pass", "sum(CONFIG)", "CONFIG.clear(); CONFIG[t] = None"),
    "global list": Way("RATES = [2]", "pass", "RATES[0]", "RATES[0] = t"),
    "length of a list": Way("RATES = [2]", "pass", "len(RATES)", "RATES.append(t)"),
    "sum of a list": Way("RATES = [2, 3]", "pass", "sum(RATES)", "RATES[1] = t"),
    "last of a list": Way("RATES = [2, 3]", "pass", "RATES[-1]", "RATES.append(t)"),
    "list cut": Way("RATES = [2] * 9", "pass", "len(RATES)", "RATES.pop()"),
    "list in a tuple": Way("RATES = ([2], 3)", "pass", "RATES[0][0]", "RATES[0][0] = t"),
    "global set": Way("S = {2}", "pass", "sum(S)", "S.add(t)"),
    "length of a set": Way("S = {2}", "pass", "len(S)", "S.add(-t)"),
    "membership": Way("S = {2}", "pass", "(3 if 'on' in S else 4)", "(S.discard if t % 2 else S.add)('on')"),
    "deque": Way("import collections\nD = collections.deque([2])", "pass", "D[0]", "D[0] = t"),
    "bytearray": Way("B = bytearray([2])", "pass", "B[0]", "B[0] = t"),
    "array.array": Way("import array\nB = array.array('i', [2])", "pass", "B[0]", "B[0] = t"),
    "numpy array": Way("import numpy\nA = numpy.full((3,), 2.0)", "pass", "float(A[0])", "A[:] = t"),
    "numpy array of a megabyte": Way(
        "import numpy\nA = numpy.full((1 << 17,), 2.0)", "pass", "float(A[5])", "A[5] = t"
    ),
    "class attribute": Way("", "pass", "self.k", "type(net).k = t", ""),
    "class attribute of a base": Way("", "pass", "self.base_k", "type(net).base_k = t", ""),
    "class attribute by name": Way("", "pass", "Net.k", "Net.k = t", ""),
    "class attribute, a list": Way("", "pass", "self.ks[0]", "net.ks[0] = t", ""),
    "attribute": Way("", "self.rate = 2", "self.rate", "net.rate = t"),
    "attribute by getattr": Way("", "self.rate = 2", "getattr(self, 'ra' + 'te')", "net.rate = t"),
    "list": Way("", "self.rates = [2]", "self.rates[0]", "net.rates[0] = t"),
    "list of lists": Way("", "self.rates = [[2]]", "self.rates[0][0]", "net.rates[0][0] = t"),
    "dict": Way("", "self.config = {'rate': 2}", "self.config['rate']", "net.config['rate'] = t"),
    "dict with a list": Way("", "self.c = {'r': [1, 2]}", "self.c['r'][1]", "net.c['r'][1] = t"),
    "dict that grows": Way("", "self.c = {}", "len(self.c) + 1", "net.c[t] = t"),
    "numpy array on self": Way(
        "import numpy", "self.table = numpy.full((2,), 2.0)", "float(self.table[1])", "net.table[1] = t"
    ),
    "object": Way(SETTINGS, "self.cfg = Settings()", "self.cfg.rate", "net.cfg.rate = t"),
    "object's container": Way(SETTINGS, "self.cfg = Settings()", "self.cfg.inner['t'][0]", "net.cfg.inner['t'][0] = t"),
    "object's class": Way(SETTINGS, "self.cfg = Settings()", "self.cfg.k", "Settings.k = t"),
    "object's new attribute": Way(
        SETTINGS, "self.cfg = Settings()", "getattr(self.cfg, 'extra', 3)", "net.cfg.extra = t"
    ),
    "object with slots": Way(SLOTS, "self.cfg = Slots()", "self.cfg.rate", "net.cfg.rate = t"),
    "global object": Way(SETTINGS + "\nCFG = Settings()", "pass", "CFG.rate", "CFG.rate = t"),
    "global object replaced": Way(
        SETTINGS + "\nCFG = Settings()", "pass", "CFG.rate", "global CFG; CFG = Settings(); CFG.rate = t"
    ),
    "object in a list": Way(SETTINGS, "self.all = [Settings()]", "self.all[0].rate", "net.all[0].rate = t"),
    "object in a dict": Way(SETTINGS + "\nALL = {'a': Settings()}", "pass", "ALL['a'].rate", "ALL['a'].rate = t"),
    "object's method": Way(SCHEDULE, "self.s = Schedule()", "self.s.value()", "net.s.t = t"),
    "global of an object's method": Way(SCHEDULE, "self.s = Schedule()", "self.s.value()", "global BASE; BASE = t"),
    "class as a namespace": Way(SETTINGS, "pass", "Settings.k", "Settings.k = t"),
    "SimpleNamespace": Way(
        "import types", "self.cfg = types.SimpleNamespace(rate=2)", "self.cfg.rate", "net.cfg.rate = t"
    ),
    "argparse.Namespace": Way(
        "import argparse\nARGS = argparse.Namespace(rate=2)", "pass", "ARGS.rate", "ARGS.rate = t"
    ),
    "dataclass": Way(
        "import dataclasses\n@dataclasses.dataclass\nclass D:\n    rate: float = 2.0\nCFG = D()",
        "pass",
        "CFG.rate",
        "CFG.rate = t",
    ),
    "dict with attributes": Way(
        "class Attributes(dict):\n    __getattr__ = dict.__getitem__\n    __setattr__ = dict.__setitem__\n"
        "CFG = Attributes(rate=2)",
        "pass",
        "CFG.rate",
        "CFG.rate = t",
    ),
    "lr_scheduler": Way(
        "from hybrid_lab import lr_scheduler",
        "self.s = lr_scheduler.FactorScheduler(3, base_lr=2.0)",
        "self.s.base_lr",
        "net.s.base_lr = float(t)",
    ),
    "module": Way("import settings_of_test as cfg", "pass", "cfg.rate", "cfg.rate = t"),
    "dict of a module": Way("import settings_of_test as cfg", "pass", "cfg.table['rate']", "cfg.table['rate'] = t"),
    "module imported in the forward": Way(
        "", "pass", "cfg.rate", "import settings_of_test as cfg; cfg.rate = t", "import settings_of_test as cfg"
    ),
    "closure": Way("", "pass", "outer", "set_outer(t)", ""),
    "list in a closure": Way("", "pass", "outer_list[0]", "get_outer_list()[0] = t", ""),
    "function held by the Block": Way("RATE = 2", "self.f = lambda: RATE", "self.f()", "global RATE; RATE = t"),
    "closure of a function held": Way(
        "def made(c):\n    return lambda: c[0]", "self.c = [2]; self.f = made(self.c)", "self.f()", "net.c[0] = t"
    ),
    "code put into a function": Way(
        "def f():\n    return 2", "pass", "f()", "f.__code__ = eval(f'lambda: {t}').__code__"
    ),
    "code put into a method": Way(
        "", "pass", "self.base_rate()", "type(net).base_rate.__code__ = eval(f'lambda self: {t}').__code__"
    ),
    "function held in a dict": Way("C = {'f': lambda: 2}", "pass", "C['f']()", "C['f'] = lambda: t"),
    "global function replaced": Way("def f():\n    return 2", "pass", "f()", "global f\nf = lambda: t"),
    "function chosen by a global": Way(
        "def a(x):\n    return x * 2\ndef b(x):\n    return x * 3\nACT = a",
        "pass",
        "ACT(1)",
        "global ACT; ACT = b if t % 2 else a",
    ),
    "partial": Way(
        "import functools\nC = {'k': 2}\ndef f(c):\n    return c['k']\nP = functools.partial(f, C)",
        "pass",
        "P()",
        "C['k'] = t",
    ),
    "bound method": Way(SCHEDULE, "self.m = Schedule().value", "self.m()", "net.m.__self__.t = t"),
    "default of an argument": Way("def f(c=[2]):\n    return c[0]", "pass", "f()", "f.__defaults__[0][0] = t"),
    "attribute of a function": Way("def f():\n    return f.rate\nf.rate = 2", "pass", "f()", "f.rate = t"),
    "method": Way("RATE = 2", "pass", "self.rate()", "global RATE; RATE = t"),
    "property": Way("", "self._r = [2]", "self.prop", "net._r[0] = t", ""),
    "string": Way("MODE = 'a'", "pass", "{'a': 2, 'b': 3}[MODE]", "global MODE; MODE = 'b' if t % 2 else 'a'"),
    "branch": Way("ON = False", "pass", "(2 if ON else 3)", "global ON; ON = not ON"),
    "loop": Way("N = 1", "pass", "sum(2 for _ in range(N))", "global N; N = t"),
    "tuple": Way("P = (2, 3)", "pass", "P[1]", "global P; P = (2, t)"),
    "environment": Way(
        "import os", "pass", "int(os.environ.get('RATE_OF_TEST', 2))", "os.environ['RATE_OF_TEST'] = str(t)"
    ),
    "number of another type": Way(
        "RATE = 2", "pass", "(5 if isinstance(RATE, float) else 7)", "global RATE; RATE = [2.0, 2][t % 2]"
    ),
    "zero of another sign": Way(
        "RATE = 0.0", "pass", "(5 if str(RATE)[0] == '-' else 7)", "global RATE; RATE = [0.0, -0.0][t % 2]"
    ),
    "large list": Way("L = [2] * 200", "pass", "L[150]", "L[150] = t"),
    "enumeration": Way(
        "import enum\nclass E(enum.Enum):\n    A = 2\n    B = 5\nMODE = E.A",
        "pass",
        "MODE.value",
        "global MODE; MODE = E.B",
    ),
    "ContextVar": Way("import contextvars\nV = contextvars.ContextVar('v', default=2)", "pass", "V.get()", "V.set(t)"),
    "array's number": Way("", "self.a = mx.nd.ones((1,)) * 2", "self.a.asscalar()", "net.a[:] = t"),
    "array's number by float": Way("", "self.a = mx.np.ones((1,)) * 2", "float(self.a)", "net.a += t"),
    "array in a global list": Way("A = [mx.nd.ones((2,))]", "pass", "A[0].asnumpy()[1]", "A[0][1] = t"),
    "truth of an array": Way("A = mx.nd.ones((1,))", "pass", "(2 if A > 3 else 5)", "A[:] = t"),
    "thread-local object": Way("import threading\nL = threading.local()\nL.rate = 2", "pass", "L.rate", "L.rate = t"),
    "descriptor": Way(
        "RATE = 2\nclass Reads:\n    def __get__(self, owner, kind=None):\n        return RATE",
        "type(self).read = Reads()",
        "self.read",
        "global RATE; RATE = t",
    ),
    "decorator": Way(
        "import functools\nC = {'rate': 2}\ndef scaled(f):\n    @functools.wraps(f)\n    def g(self):\n"
        "        return f(self) * C['rate']\n    return g\nclass Scaled:\n    @scaled\n    def one(self):\n"
        "        return 1",
        "self.s = Scaled()",
        "self.s.one()",
        "C['rate'] = t",
    ),
    "name in builtins": Way(
        "import builtins\nbuiltins.RATE_OF_TEST = 2",
        "pass",
        "RATE_OF_TEST",
        "import builtins; builtins.RATE_OF_TEST = t",
    ),
    "dict in builtins": Way(
        "import builtins\nbuiltins.RATE_OF_TEST = [2]", "pass", "RATE_OF_TEST[0]", "RATE_OF_TEST[0] = t"
    ),
    "function in builtins": Way(
        "import builtins\nbuiltins.RATE_OF_TEST = lambda: 2",
        "pass",
        "RATE_OF_TEST()",
        "import builtins; builtins.RATE_OF_TEST = lambda: t",
    ),
    "builtin replaced": Way("", "pass", "pow(1, 2)", "import builtins; builtins.pow = lambda *_: t"),
    "global hides a builtin": Way("", "pass", "sum([1, 2])", "global sum; sum = lambda x: t"),
    "global appears": Way("", "pass", "globals().get('RATE_NOW', 7)", "global RATE_NOW; RATE_NOW = t"),
    "global appears that a try reads": Way(
        "def f():\n    try:\n        return RATE_NOW\n    except NameError:\n        return 4\n"
        "def g():\n    return len([1, 2])",
        "pass",
        "f() + g()",
        "global RATE_NOW; RATE_NOW = t",
    ),
    "decimal's precision": Way(
        "import decimal", "pass", "float(decimal.Decimal(1) / 3)", "import decimal; decimal.getcontext().prec = t"
    ),
    "precision of a Decimal by name": Way(
        "from decimal import Decimal",
        "pass",
        "float(Decimal(1) / 3)",
        "import decimal; decimal.setcontext(decimal.Context(prec=t))",
    ),
    "precision of a Decimal on self": Way(
        "from decimal import Decimal",
        "self.d = Decimal(1)",
        "float(self.d / 3)",
        "import decimal; decimal.getcontext().prec = t",
    ),
    "rounding of a global Decimal": Way(
        "import decimal\nD = decimal.Decimal('2.5')",
        "pass",
        "float(D.quantize(1))",
        "decimal.getcontext().rounding = [decimal.ROUND_UP, decimal.ROUND_DOWN][t % 2]",
    ),
    "attribute appears": Way("", "pass", "(self.more if hasattr(self, 'more') else 2)", "net.more = t"),
    "attribute appears that a helper looks for": Way(
        "def get(x, name):\n    return getattr(x, name, 2)", "pass", "get(self, 'more')", "vars(net)['more'] = t"
    ),
    "method by a made name": Way("RATE = 2", "pass", "getattr(self, f'ra{n}')()", "global RATE; RATE = t", "n = 'te'"),
    "method by a formatted name": Way(
        "RATE = 2", "pass", "getattr(self, 'ra%s' % n)()", "global RATE; RATE = t", "n = 'te'"
    ),
    "method by an attribute": Way("RATE = 2", "self.a = 'rate'", "getattr(self, self.a)()", "global RATE; RATE = t"),
    "method by an entry": Way("RATE = 2\nN = ['rate']", "pass", "getattr(self, N[-1])()", "global RATE; RATE = t"),
    "method of an object by a made name": Way(
        SCHEDULE, "self.s = Schedule()", "getattr(self.s, f'val{n}')()", "global BASE; BASE = t", "n = 'ue'"
    ),
    "class attribute by a made name": Way("", "pass", "getattr(self, f'{n}_k')", "type(net).base_k = t", "n = 'base'"),
    "class attribute hidden past setattr": Way("", "pass", "self.k", "vars(net)['k'] = t"),
    "class attribute by a made name hidden past setattr": Way(
        "", "pass", "getattr(self, f'{n}_k')", "net.__dict__.update(base_k=t)", "n = 'base'"
    ),
    "global by a helper": Way(
        "RATE = 2\ndef get(name):\n    return globals()[name]", "pass", "get('RATE')", "global RATE; RATE = t"
    ),
    "attribute appears past setattr": Way("", "pass", "getattr(self, 'more', 2)", "vars(net)['more'] = t"),
    "attribute appears that a try reads": Way(TRIES, "pass", "tried(self)", "net.more = t"),
    "order of a dict": Way(
        "O = {'a': 2, 'b': 3}", "pass", "[10 * a + b for a, b in [[*O.values()]]][0]", "k = [*O][0]; O[k] = O.pop(k)"
    ),
    "dict in another order": Way(
        "O = {'a': 2, 'b': 3}",
        "pass",
        "[10 * a + b for a, b in [[*O.values()]]][0]",
        "global O; O = dict(reversed(O.items()))",
    ),
    "float of a class": Way("class Deg(float):\n    pass\nR = Deg(2)", "pass", "R", "global R; R = Deg(t)"),
    "float of a class in an object": Way(
        SETTINGS + "\nclass Deg(float):\n    pass",
        "self.s = Settings(); self.s.r = Deg(2)",
        "self.s.r",
        "net.s.r = Deg(t)",
    ),
    "partial with another argument": Way(
        "import functools\ndef scale(r, y):\n    return r * y\nACT = functools.partial(scale, 2)",
        "pass",
        "ACT(1)",
        "global ACT; ACT = functools.partial(scale, t)",
    ),
    "partial in a dict with another keyword": Way(
        "import functools\ndef scale(r, y):\n    return r * y\nACT = {'f': functools.partial(scale, r=2)}",
        "pass",
        "ACT['f'](y=1)",
        "ACT['f'] = functools.partial(scale, r=t)",
    ),
    "class attribute hidden by a derived class": Way(
        "class Base:\n    rate = 2\nclass Derived(Base):\n    pass",
        "self.s = Derived()",
        "self.s.rate",
        "Derived.rate = t",
    ),
    "class attribute appears": Way("", "pass", "getattr(self, 'more', 3)", "type(net).more = t"),
    "class attribute of a base appears": Way("", "pass", "getattr(self, 'more', 3)", "type(net).__mro__[1].more = t"),
    "method appears": Way(
        "", "pass", "(self.more() if hasattr(self, 'more') else 2)", "type(net).more = lambda self: t"
    ),
    "attribute of an object's class appears": Way(
        SETTINGS, "self.cfg = Settings()", "getattr(self.cfg, 'more', 3)", "Settings.more = t"
    ),
    "attribute of an object appears that a try reads": Way(
        TRIES + SETTINGS, "self.cfg = Settings()", "tried(self.cfg)", "net.cfg.more = t"
    ),
    "attribute of a module appears": Way(
        "import settings_of_test as cfg", "pass", "getattr(cfg, 'more', 3)", "cfg.more = t"
    ),
    "attribute of a function appears": Way("def f():\n    return getattr(f, 'rate', 2)", "pass", "f()", "f.rate = t"),
    "slot appears": Way(
        "class Slots:\n    __slots__ = ('rate',)", "self.s = Slots()", "getattr(self.s, 'rate', 3)", "net.s.rate = t"
    ),
    "attrgetter": Way("import operator", "self.rate = 2", "operator.attrgetter('rate')(self)", "net.rate = t"),
    "global attrgetter of an object": Way(
        "import operator\nG = operator.attrgetter('cfg.rate')\n" + SETTINGS,
        "self.cfg = Settings()",
        "G(self)",
        "net.cfg.rate = t",
    ),
    "methodcaller": Way(
        "import operator\nM = operator.methodcaller('value')\n" + SCHEDULE,
        "self.s = Schedule()",
        "M(self.s)",
        "net.s.t = t",
    ),
    "object.__getattribute__": Way("", "self.rate = 2", "object.__getattribute__(self, 'rate')", "net.rate = t"),
    "eval": Way("RATE = 2", "pass", "eval('RATE')", "global RATE; RATE = t"),
    "eval of an attribute": Way("", "self.rate = [2]", "eval('self.rate[0]')", "net.rate[0] = t"),
    "import_module": Way(
        "import importlib",
        "pass",
        "importlib.import_module('settings_of_test').rate",
        "import settings_of_test as cfg; cfg.rate = t",
    ),
    "sys.modules": Way(
        "import sys",
        "pass",
        "sys.modules['settings_of_test'].rate",
        "import settings_of_test as cfg; cfg.rate = t",
    ),
    "NumPy semantics": Way("", "pass", "(2 if mx.util.is_np_shape() else 3)", "mx.util.set_np_shape(t % 2 == 0)"),
    "the context": Way(
        "CPUS = [mx.cpu(1)]",
        "pass",
        "(2 if mx.current_context() == mx.cpu(0) else 3)",
        "[cpu.__enter__() for cpu in CPUS]; CPUS.clear()",
    ),
    "number of parameters": Way("", "pass", "len(self.params) + 1", "net.params.get(f'w{t}', shape=(1,))"),
    "weak reference": Way(
        SETTINGS + "\nimport weakref\nCFG = Settings()\nR = weakref.ref(CFG)", "pass", "R().rate", "CFG.rate = t"
    ),
}

METHODS = (
    "import functools\nRATE = 2\nclass Methods:\n    def scaled(self, c):\n        return RATE * c\n"
    "    twice = functools.partialmethod(scaled, 2)\n    @functools.singledispatchmethod\n"
    "    def chosen(self, c):\n        return 1\n"
    "    @chosen.register(int)\n    def _(self, c):\n        return RATE + c"
)
DESCRIPTOR = (
    "class Reads:\n    rate = 2\n    def __get__(self, owner, kind=None):\n        return self.rate\n"
    "class Holder:\n    read = Reads()"
)
DISPATCH = (
    "import functools\nRATE = 2\n@functools.singledispatch\ndef rate(c):\n    return 1\n"
    "@rate.register(int)\ndef _(c):\n    return RATE"
)

#: Objects that are replaced by another one of the same class, or hold code in another way than a class of the user's.
WATCHED |= {
    "function of Python under its name": Way(
        "from math import sqrt", "pass", "sqrt(4)", "global sqrt; sqrt = lambda _: t"
    ),
    "function of NumPy replaced": Way(
        "import numpy\nG = numpy.mean", "pass", "float(G([1, 2, 6]))", "global G; G = (numpy.sum, numpy.max)[t % 2]"
    ),
    "universal function replaced": Way(
        "import numpy\nfrom numpy import exp",
        "pass",
        "float(exp(4))",
        "global exp; exp = (numpy.sqrt, numpy.square)[t % 2]",
    ),
    "polynomial replaced": Way(
        "import numpy\nP = numpy.poly1d([2])", "pass", "float(P(1))", "global P; P = numpy.poly1d([t])"
    ),
    "polynomial changed": Way("import numpy\nP = numpy.poly1d([2])", "pass", "float(P(1))", "P.coeffs[0] = t"),
    "vectorized function": Way(
        "import numpy\nRATE = 2\nV = numpy.vectorize(lambda c: RATE * c)", "pass", "int(V(3))", "global RATE; RATE = t"
    ),
    "exception replaced": Way("E = ValueError(2)", "pass", "E.args[0]", "global E; E = ValueError(t)"),
    "duration of a derived class": Way(
        "import datetime\nclass Days(datetime.timedelta):\n    pass\nD = Days(2)",
        "pass",
        "D.days",
        "global D; D = Days(t)",
    ),
    "registered function": Way(DISPATCH, "pass", "rate(1)", "rate.register(int, lambda _: t)"),
    "global of a registered function": Way(DISPATCH, "pass", "rate(1)", "global RATE; RATE = t"),
    "global of a partialmethod": Way(METHODS, "self.m = Methods()", "self.m.twice()", "global RATE; RATE = t"),
    "partialmethod replaced": Way(
        METHODS, "self.m = Methods()", "self.m.twice()", "Methods.twice = functools.partialmethod(Methods.scaled, t)"
    ),
    "partialmethod of the Block": Way(
        "import functools\ndef scaled(self, c):\n    return 2 * c",
        "type(self).twice = functools.partialmethod(scaled, 2)",
        "self.twice()",
        "type(net).twice = functools.partialmethod(scaled, t)",
    ),
    "global of a singledispatchmethod": Way(METHODS, "self.m = Methods()", "self.m.chosen(1)", "global RATE; RATE = t"),
    "descriptor changed": Way(DESCRIPTOR, "self.h = Holder()", "self.h.read", "vars(Holder)['read'].rate = t"),
    "descriptor replaced": Way(
        DESCRIPTOR, "self.h = Holder()", "self.h.read", "Holder.read = type('Other', (Reads,), {'rate': t})()"
    ),
    "descriptor of the Block": Way(
        DESCRIPTOR, "type(self).read = Reads()", "self.read", "type(net).read = type('Other', (Reads,), {'rate': t})()"
    ),
    "object's class replaced": Way(
        SCHEDULE,
        "self.s = Schedule()",
        "self.s.value()",
        "net.s.__class__ = type('Other', (Schedule,), {'value': lambda self: t})",
    ),
    "module replaced": Way(
        "import sys\nimport types",
        "pass",
        "cfg.rate",
        "sys.modules['settings_of_test'] = types.SimpleNamespace(rate=t)",
        "import settings_of_test as cfg",
    ),
}

HELPER = (
    "import numpy\nclass Helper:\n    def __init__(self):\n        self.table = numpy.full((2,), 2.0)\n"
    "    def value(self):\n        return float(self.table[0])"
)
TORCH = "import torch\nT = torch.ones(2)"

#: Methods and functions that are replaced, values that change past `__setattr__`, and memory behind other objects.
WATCHED |= {
    "method replaced on the class": Way(
        "", "type(self).rate2 = lambda s: 2", "self.rate2()", "type(net).rate2 = lambda self: t"
    ),
    "method of base": Way(
        "RATE=2", "pass", "self.rate()", "type(net).__mro__[1].rate = type(net).rate = lambda self: t"
    ),
    "method added below a base's": Way("RATE=2", "pass", "self.base_rate()", "type(net).base_rate = lambda self: t"),
    "base's method": Way("RATE=2", "pass", "self.base_rate()", "type(net).__mro__[1].base_rate = lambda self: t"),
    "property replaced": Way("", "self._r=[2]", "self.prop", "type(net).prop = property(lambda self: t)"),
    "property replaced by value": Way("", "self._r=[2]", "self.prop", "type(net).prop = t"),
    "static method replaced": Way("", "pass", "self.stat()", "type(net).stat = staticmethod(lambda: t)"),
    "class method replaced": Way("", "pass", "self.clsm()", "type(net).clsm = classmethod(lambda c: t)"),
    "method of helper class": Way(HELPER, "self.h=Helper()", "self.h.value()", "Helper.value = lambda self: t"),
    "defaults replaced": Way("def f(c=2):\n    return c", "pass", "f()", "f.__defaults__ = (t,)"),
    "kwdefaults replaced": Way("def f(*, c=2):\n    return c", "pass", "f()", "f.__kwdefaults__ = {'c': t}"),
    "kwdefaults changed": Way("def f(*, c=2):\n    return c", "pass", "f()", "f.__kwdefaults__['c'] = t"),
    "numpy in helper": Way(HELPER, "self.h=Helper()", "self.h.value()", "net.h.table[0] = t"),
    "numpy in helper of helper": Way(
        HELPER, "self.h=Helper(); self.h.h = Helper()", "self.h.h.value()", "net.h.h.table[0] = t"
    ),
    "attribute by object.__setattr__": Way("", "self.rate3=2", "self.rate3", "object.__setattr__(net, 'rate3', t)"),
    "attribute by __dict__": Way("", "self.rate3=2", "self.rate3", "net.__dict__['rate3'] = t"),
    "attribute by vars().update": Way("", "self.rate3=2", "self.rate3", "vars(net).update(rate3=t)"),
    "list replaced by __dict__": Way("", "self.rate3=[2]", "self.rate3[0]", "net.__dict__['rate3'] = [t]"),
    "class of the Block": Way("", "self.k3=2", "self.k", "net.__class__ = type('Other', (type(net),), {'k': t})"),
    "wd_mult of a Parameter": Way(
        "", "self.ps = [mx.gluon.Parameter('w', shape=(1,), wd_mult=2)]", "self.ps[0].wd_mult", "net.ps[0].wd_mult = t"
    ),
    "grad_req of a Parameter": Way(
        "",
        "self.ps = [mx.gluon.Parameter('w', shape=(1,), wd_mult=2)]",
        "(2 if self.ps[0].grad_req=='write' else 3)",
        "net.ps[0].grad_req = 'null' if t%2 else 'write'",
    ),
    "lr_mult of a child's Parameter": Way(
        "", "self.d = mx.gluon.nn.Dense(1)", "self.d.weight.lr_mult", "net.d.weight.lr_mult = t"
    ),
    "lr_mult by collect_params": Way(
        "",
        "self.d = mx.gluon.nn.Dense(1)",
        "list(self.collect_params().values())[0].lr_mult",
        "net.d.weight.lr_mult = net.d.bias.lr_mult = t",
    ),
    "torch tensor": Way(TORCH, "pass", "float(T[0])", "T[0] = t"),
    "torch tensor data": Way(TORCH, "pass", "float(T[0])", "T.data[0] = t"),
    "torch on self": Way("import torch", "self.t = torch.ones(2)", "float(self.t[0])", "net.t.fill_(t)"),
    "torch in list": Way("import torch", "self.t = [torch.ones(2)]", "float(self.t[0][1])", "net.t[0].mul_(t)"),
    "torch set": Way(
        "import torch", "self.t = torch.ones(2)", "float(self.t[0])", "net.t.data = torch.full((2,), float(t))"
    ),
    "torch numpy": Way(TORCH, "pass", "float(T[0])", "T.numpy()[0] = t"),
    "torch parameter": Way(
        "import torch\nT = torch.nn.Parameter(torch.ones(2))", "pass", "float(T[0])", "T.data[0] = t"
    ),
    "torch module": Way(
        "import torch\nT = torch.nn.Linear(1,1)\nT.weight.data[0]=2",
        "pass",
        "float(T.weight[0])",
        "T.weight.data[0] = t",
    ),
    "torch module state": Way(
        "import torch\nT = torch.nn.Linear(1,1)\nT.weight.data[0]=2",
        "pass",
        "float(T.state_dict()['weight'][0])",
        "T.weight.data[0] = t",
    ),
    "torch module attr": Way("import torch\nT = torch.nn.Dropout(0.5)", "pass", "T.p", "T.p = t/10"),
    "torch in helper": Way(
        "import torch\nclass H:\n    def __init__(self):\n        self.t = torch.ones(2)\n"
        "    def v(self):\n        return float(self.t.sum())",
        "self.h=H()",
        "self.h.v()",
        "net.h.t[0]=t",
    ),
    "scipy sparse": Way(
        "import scipy.sparse, numpy\nS = scipy.sparse.csr_matrix(numpy.eye(2)*2)",
        "pass",
        "float(S.toarray()[0,0])",
        "S.data[:] = t",
    ),
    "masked array": Way(
        "import numpy\nS = numpy.ma.array([2.,3.], mask=[0,0])",
        "pass",
        "float(S.sum())",
        "S.mask[0] = t%2==0 or S.mask[0]; S[1]=t",
    ),
    "memoryview": Way("B=bytearray([2])\nV = memoryview(B)", "pass", "V[0]", "B[0]=t"),
    "memory map": Way("import mmap\nM = mmap.mmap(-1, 8)\nM[0]=2", "pass", "M[0]", "M[0]=t"),
    "ctypes": Way("import ctypes\nM = ctypes.c_int(2)", "pass", "M.value", "M.value=t"),
    "ctypes array": Way("import ctypes\nM = (ctypes.c_int*2)(2,3)", "pass", "M[0]", "M[0]=t"),
    "multiprocessing Value": Way(
        "import multiprocessing\nM = multiprocessing.Value('i', 2)", "pass", "M.value", "M.value=t"
    ),
    "multiprocessing raw": Way(
        "import multiprocessing.sharedctypes as s\nM = s.RawValue('i', 2)", "pass", "M.value", "M.value=t"
    ),
    "ChainMap": Way("import collections\nM = collections.ChainMap({'a':2},{'b':3})", "pass", "M['a']", "M['a']=t"),
    "UserDict": Way("import collections\nM = collections.UserDict({'a':2})", "pass", "M['a']", "M['a']=t"),
    "UserList": Way("import collections\nM = collections.UserList([2])", "pass", "M[0]", "M[0]=t"),
    "MappingProxy": Way("import types\nD={'a':2}\nM = types.MappingProxyType(D)", "pass", "M['a']", "D['a']=t"),
    "dict view": Way("D={'a':2}\nM = D.values()", "pass", "sum(M)", "D['a']=t"),
    "metaclass attr": Way(
        "class Meta(type):\n    k = 2\nclass Z(metaclass=Meta):\n    pass", "pass", "Z.k", "Meta.k=t"
    ),
    "metaclass prop": Way(
        "G=[2]\nclass Meta(type):\n    @property\n    def k(cls):\n        return G[0]\n"
        "class Z(metaclass=Meta):\n    pass",
        "pass",
        "Z.k",
        "G[0]=t",
    ),
    "metaclass getattr": Way(
        "G={'k':2}\nclass Meta(type):\n    def __getattr__(cls, n):\n        return G[n]\n"
        "class Z(metaclass=Meta):\n    pass",
        "pass",
        "Z.k",
        "G['k']=t",
    ),
    "enum member attr": Way("import enum\nclass E(enum.Enum):\n    A=2\nE.A.rate=2", "pass", "E.A.rate", "E.A.rate=t"),
    "settings of a layer": Way(
        "", "self.d = mx.gluon.nn.Embedding(9, 2)", "self.d._kwargs['input_dim']", "net.d._kwargs['input_dim'] = t"
    ),
    "str subclass attr": Way("class S(str):\n    pass\nM=S('a')\nM.rate=2", "pass", "M.rate", "M.rate=t"),
    "int subclass attr": Way("class S(int):\n    pass\nM=S(3)\nM.rate=2", "pass", "M.rate", "M.rate=t"),
    "ndarray subclass attr": Way(
        "import numpy\nclass S(numpy.ndarray):\n    pass\nM=numpy.ones(2).view(S)\nM.rate=2",
        "pass",
        "M.rate",
        "M.rate=t",
    ),
    "ndarray subclass of self": Way(
        "import numpy\nclass S(numpy.ndarray):\n    pass",
        "self.m=numpy.ones(2).view(S); self.m.rate=2",
        "self.m.rate",
        "net.m.rate=t",
    ),
    "tuple subclass attr": Way("class S(tuple):\n    pass\nM=S((3,))\nM.rate=2", "pass", "M.rate", "M.rate=t"),
    "frozen dataclass": Way(
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass D:\n    r: int\nM=D(2)",
        "pass",
        "M.r",
        "object.__setattr__(M,'r',t)",
    ),
    "cached_property": Way(
        "import functools\nR=[2]\nclass D:\n"
        "    @functools.cached_property\n    def r(self):\n        return R[0]\nM=D()",
        "pass",
        "M.r",
        "R[0]=t; M.__dict__.pop('r',None)",
    ),
    "lru_cache cleared": Way(
        "import functools\nR=[2]\n@functools.lru_cache\ndef f():\n    return R[0]",
        "pass",
        "f()",
        "R[0]=t; f.cache_clear()",
    ),
    "attribute put on a module of Python": Way("import sys\nsys.argv_t=2", "pass", "sys.argv_t", "sys.argv_t=t"),
    "os.environ item": Way("import os", "pass", "int(os.environ['RATE_OF_TEST'])", "os.environ['RATE_OF_TEST']=str(t)"),
    "array setitem on nd held in obj": Way(
        "class H:\n    pass", "self.h=H(); self.h.a=mx.nd.ones((1,))", "self.h.a.asscalar()", "net.h.a[:]=t"
    ),
    "numpy recarray": Way(
        "import numpy\nA=numpy.zeros(2,dtype=[('a','f4')])", "pass", "float(A['a'][0])", "A['a'][0]=t"
    ),
    "numpy str array": Way("import numpy\nA=numpy.array(['2'])", "pass", "int(A[0])", "A[0]=str(t)"),
    "numpy view of big": Way("import numpy\nB=numpy.full(1<<20,2.0)\nA=B[:4]", "pass", "float(A[0])", "B[0]=t"),
    "numpy strided": Way("import numpy\nB=numpy.full(100,2.0)\nA=B[::10]", "pass", "float(A[1])", "B[10]=t"),
    "hybrid_forward of the class": Way(
        "",
        "pass",
        "2",
        "type(net).hybrid_forward = lambda self, F, x: x * t\ntype(net).forward = lambda self, x: x * t",
    ),
}

BARE = "class Bare:\n    pass"
MADE = "GIVEN = 2\nclass Made:\n    def __init__(self, more=0):\n        self.given = GIVEN + more"
NEW = "GIVEN = 2\nclass Made:\n    def __new__(cls):\n        made = object.__new__(cls)\n"
DATA = "import dataclasses\nGIVEN = 2\n@dataclasses.dataclass\nclass Made:\n    "
SHOWN = "TEXT = '2'\nclass Shown:\n    def __str__(self):\n        return TEXT"
REFERRED = SETTINGS + "\nimport weakref\nHELD = [Settings()]\nSettings.method = lambda self: self.rate"
UNHASHABLE = """import dataclasses, weakref
@dataclasses.dataclass
class Settings:
    rate: float = 2
    def method(self):
        return self.rate
HELD = [Settings()]"""

#: Names that are made at run time, methods that Python runs without their names in the code, classes that the code
#: calls, weak references, and settings of Python and NumPy.
WATCHED |= {
    "global by a made name": Way(
        "RATE_a = 2", "self.n = 'a'", "globals()['RATE_' + self.n]", "global RATE_a; RATE_a = t"
    ),
    "global by an attribute": Way("RATE = 2", "self.n = 'RATE'", "globals().get(self.n)", "global RATE; RATE = t"),
    "global that a made text reads": Way("RATE = 2", "self.n = 'TE'", "eval('RA' + self.n)", "global RATE; RATE = t"),
    "global of a function": Way("RATE = 2\ndef f(): pass", "pass", "f.__globals__['RATE']", "global RATE; RATE = t"),
    "entry by a made name": Way("C = {'rate_a': 2}", "self.n = 'a'", "C.get('rate_' + self.n)", "C['rate_a'] = t"),
    "environment by a made name": Way(
        "import os", "self.n = 'TEST'", "int(os.getenv('RATE_OF_' + self.n))", "os.environ['RATE_OF_TEST'] = str(t)"
    ),
    "environment in a loop": Way(
        "import os",
        "pass",
        "sum(int(v) for k, v in os.environ.items() if k == 'RATE_OF_TEST')",
        "os.environ['RATE_OF_TEST'] = str(t)",
    ),
    "environment by another name": Way(
        "from os import environ as env", "pass", "int(env['RATE_OF_TEST'])", "env['RATE_OF_TEST'] = str(t)"
    ),
    "variable of the environment appears": Way(
        "import os\nos.environ.pop('rate_of_test', 0)",
        "pass",
        "int(os.getenv('rate_of_test', '2'))",
        "os.environ['rate_of_test'] = str(t)",
    ),
    "truth of an object of a class with as many attributes": Way(
        BARE,
        "self.o = Bare(); Bare.unused = 1",
        "(2 if self.o else 3)",
        "Bare.__bool__ = lambda s: t % 2 == 0\nif t == 3: del Bare.unused",
    ),
    "attribute of an object with as many attributes": Way(
        "class Rated:\n    rate = 2",
        "self.o = Rated(); self.o.unused = 1",
        "self.o.rate",
        "net.o.rate = t; vars(net.o).pop('unused', None)",
    ),
    "class that code with isinstance hands on": Way(
        "MORE = 2\nclass Made:\n    def __init__(self, n):\n        self.n = n + MORE",
        "pass",
        "(isinstance(x, (int, Made)) or sum(made.n for made in map(Made, [0])))",
        "global MORE; MORE = t",
    ),
    "truth of an object": Way(BARE, "self.o = Bare()", "(2 if self.o else 3)", "Bare.__bool__ = lambda s: t % 2 == 0"),
    "equality of an object": Way(
        BARE, "self.o = Bare()", "(2 if self.o == 1 else 3)", "Bare.__eq__ = lambda s, o: t > 4"
    ),
    "call of an object": Way(
        BARE, "self.o = Bare()", "(self.o() if callable(self.o) else 2)", "Bare.__call__ = lambda s: t"
    ),
    "missing attribute of an object": Way(
        BARE, "self.o = Bare()", "getattr(self.o, 'rate', 2)", "Bare.__getattr__ = lambda s, n: t"
    ),
    "special method of a base": Way(
        BARE + "\nclass Below(Bare): pass", "self.o = Below()", "(2 if self.o else 3)", "Bare.__len__ = lambda s: t % 2"
    ),
    "object made in the forward": Way(MADE, "pass", "Made().given", "global GIVEN; GIVEN = t"),
    "constructor replaced": Way(MADE, "pass", "Made().given", "Made.__init__ = lambda s: setattr(s, 'given', t)"),
    "default of a constructor": Way(MADE, "pass", "Made().given", "Made.__init__.__defaults__ = (t,)"),
    "object of a module made in the forward": Way(
        MADE + "\nimport settings_of_test as cfg\ncfg.Made = Made",
        "pass",
        "cfg.Made().given",
        "global GIVEN; GIVEN = t",
    ),
    "object made by a function of Python": Way(
        MADE, "pass", "[made.given for made in map(Made, [0])][0]", "global GIVEN; GIVEN = t"
    ),
    "object made by an entry": Way(
        MADE + "\nKINDS = {'a': Made}", "pass", "KINDS['a']().given", "global GIVEN; GIVEN = t"
    ),
    "object made by a class method": Way(
        MADE + "\nMade.make = classmethod(lambda cls: cls())", "pass", "Made.make().given", "global GIVEN; GIVEN = t"
    ),
    "__new__": Way(
        NEW + "        made.given = GIVEN\n        return made", "pass", "Made().given", "global GIVEN; GIVEN = t"
    ),
    "dataclass made in the forward": Way(
        DATA + "given: int = dataclasses.field(default_factory=lambda: GIVEN)",
        "pass",
        "Made().given",
        "global GIVEN; GIVEN = t",
    ),
    "text of an object": Way(SHOWN, "self.o = Shown()", "int(f'{self.o}')", "global TEXT; TEXT = str(t)"),
    "subscript of a class": Way(
        "RATE = 2\nclass C:\n    def __class_getitem__(cls, n):\n        return RATE",
        "pass",
        "C[1]",
        "global RATE; RATE = t",
    ),
    "attribute of HybridBlock": Way(
        "mx.gluon.HybridBlock.rate_of_test = 2", "pass", "self.rate_of_test", "mx.gluon.HybridBlock.rate_of_test = t"
    ),
    "attribute of HybridBlock by its name": Way(
        "from hybrid_lab import gluon\ngluon.HybridBlock.rate_of_test = 2",
        "pass",
        "gluon.HybridBlock.rate_of_test",
        "gluon.HybridBlock.rate_of_test = t",
    ),
    "attribute of Block appears": Way(
        "vars(mx.gluon.Block).get('late_rate') and delattr(mx.gluon.Block, 'late_rate')",
        "pass",
        "getattr(self, 'late_rate', 2)",
        "mx.gluon.Block.late_rate = t",
    ),
    "method of HybridBlock": Way(
        "mx.gluon.HybridBlock.method_of_test = lambda s: 2",
        "pass",
        "self.method_of_test()",
        "mx.gluon.HybridBlock.method_of_test = lambda s: t",
    ),
    "attribute by a weak reference": Way(
        REFERRED, "self.w = weakref.ref(HELD[0])", "self.w().rate", "HELD[0].rate = t"
    ),
    "class attribute by a weak reference": Way(
        REFERRED, "self.w = weakref.ref(HELD[0])", "self.w().k", "HELD[0].k = t"
    ),
    "object of a weak reference is gone": Way(
        REFERRED, "self.w = weakref.ref(HELD[0])", "(2 if self.w() else 3)", "HELD.clear()"
    ),
    "weak reference to a method": Way(
        REFERRED, "self.w = weakref.WeakMethod(HELD[0].method)", "self.w()()", "HELD[0].rate = t"
    ),
    "attribute of an object without a hash, by a weak reference": Way(
        UNHASHABLE, "self.w = weakref.ref(HELD[0])", "self.w().rate", "HELD[0].rate = t"
    ),
    "weak reference to a method of an object without a hash": Way(
        UNHASHABLE, "self.w = weakref.WeakMethod(HELD[0].method)", "self.w()()", "HELD[0].rate = t"
    ),
    "missing attribute by a weak reference": Way(
        REFERRED, "self.w = weakref.ref(HELD[0])", "getattr(self.w(), 'late', 2)", "HELD[0].late = t"
    ),
    "class by a weak reference": Way(
        REFERRED + "\nclass Other:\n    method = lambda self: 7",
        "self.w = weakref.ref(HELD[0])",
        "self.w().method()",
        "HELD[0].__class__ = Other",
    ),
    "slot by a weak reference": Way(
        "import weakref\nclass Slots:\n    __slots__ = ('rate', '__weakref__')\nHELD = [Slots()]\nHELD[0].rate = 2",
        "self.w = weakref.ref(HELD[0])",
        "self.w().rate",
        "HELD[0].rate = t",
    ),
    "dict by a weak reference": Way(
        "import weakref\nclass Entries(dict): pass\nHELD = [Entries(rate=2)]",
        "self.w = weakref.ref(HELD[0])",
        "self.w()['rate']",
        "HELD[0]['rate'] = t",
    ),
    "array by a weak reference": Way(
        "import weakref\nHELD = [mx.nd.full((1,), 2)]",
        "self.w = weakref.ref(HELD[0])",
        "self.w().asscalar()",
        "HELD[0][:] = t",
    ),
    "attribute of a parameter by a weak reference": Way(
        "import weakref\nHELD = [mx.gluon.Parameter('p', shape=(1,))]\nHELD[0].rate = 2",
        "self.w = weakref.ref(HELD[0])",
        "self.w().rate",
        "HELD[0].rate = t",
    ),
    "object in a set": Way(SETTINGS, "self.s = {Settings()}", "sum(o.rate for o in self.s)", "list(net.s)[0].rate = t"),
    "function of a module of Python": Way(
        "import math\nmath.rate_of_test = lambda: 2", "pass", "math.rate_of_test()", "math.rate_of_test = lambda: t"
    ),
    "__getattr__ of a module": Way(
        "import settings_of_test as cfg\nRATES = [2]\ncfg.__getattr__ = lambda name: RATES[0]",
        "pass",
        "cfg.made",
        "RATES[0] = t",
    ),
    "NumPy's error state": Way(
        "import numpy\nnumpy.seterr(divide='warn')",
        "pass",
        "len(numpy.geterr()['divide'])",
        "numpy.seterr(divide=['warn', 'ignore'][t % 2])",
    ),
}

#: The code itself changes what it reads: such a Block runs eagerly.
STATEFUL = {
    "__next__ of an iterator": Way("", "self.next = iter(range(2, 99)).__next__", "self.next()", "pass"),
    "objects that __new__ counts": Way(
        NEW.replace("GIVEN", "N") + "        global N\n        N += 1\n        made.n = N\n        return made",
        "pass",
        "Made().n",
        "pass",
    ),
    "objects that __init__ counts": Way(
        "class Made:\n    n = 1\n    def __init__(self):\n        Made.n += 1", "pass", "Made().n", "pass"
    ),
    "dataclass that counts": Way(
        "import itertools\nN = itertools.count(2)\n" + DATA + "n: int = dataclasses.field(default_factory=N.__next__)",
        "pass",
        "Made().n",
        "pass",
    ),
    "iterator": Way("", "self.it = iter(range(2, 99))", "next(self.it)", "pass"),
    "generator": Way("", "self.it = (n for n in range(2, 99))", "next(self.it)", "pass"),
    "global iterator": Way("import itertools\nIT = itertools.count(2)", "pass", "next(IT)", "pass"),
    "iterator in a dict": Way("", "self.c = {'it': iter(range(2, 99))}", "next(self.c['it'])", "pass"),
    "iterator of an object": Way(
        SETTINGS, "self.c = Settings(); self.c.it = iter(range(2, 99))", "next(self.c.it)", "pass"
    ),
    "iterator of a closure": Way("", "pass", "next(outer_it)", "pass", ""),
    "loop over an iterator": Way("", "self.it = iter(range(2, 99))", "[n for n, _ in zip(self.it, 'a')][0]", "pass"),
    "counter": Way("", "self.n = 1", "self.n", "pass", "self.n += 1"),
    "global counter": Way("N = 1", "pass", "N", "pass", "global N; N += 1"),
    "counter in a dict": Way("C = {'n': 1}", "pass", "C['n']", "pass", "C['n'] += 1"),
    "counter two levels down": Way("C = {'a': {'n': 1}}", "pass", "C['a']['n']", "pass", "C['a']['n'] += 1"),
    "counter of an object": Way(SETTINGS, "self.cfg = Settings()", "self.cfg.rate", "pass", "self.cfg.rate += 1"),
    "counter of an object in a list": Way(
        SETTINGS, "self.l = [Settings()]", "self.l[0].rate", "pass", "self.l[0].rate += 1"
    ),
    "counter of a class": Way("", "pass", "self.k", "pass", "type(self).k += 1"),
    "list that grows": Way("", "self.seen = []", "len(self.seen)", "pass", "self.seen.append(1)"),
    "list that is emptied": Way("", "self.todo = list(range(30))", "self.todo.pop()", "pass"),
    "set that grows": Way("S = set()", "pass", "len(S)", "pass", "S.add(len(S))"),
    "dict that grows": Way("D = {}", "pass", "len(D)", "pass", "D[len(D)] = 1"),
    "deque that turns": Way("import collections\nD = collections.deque([2, 3])", "pass", "D[0]", "pass", "D.rotate()"),
    "numpy counter": Way("import numpy\nA = numpy.zeros(1)", "pass", "float(A[0])", "pass", "A[0] += 1"),
    "counter in an array": Way("", "self.a = mx.nd.zeros((1,))", "self.a.asscalar()", "pass", "self.a += 1"),
    "counter in a part of an array": Way("A = mx.nd.ones((2,))", "pass", "A[1].asscalar()", "pass", "A[1] = A[1] * 2"),
    "closure counter": Way("", "pass", "count_outer()", "pass", ""),
    "memo": Way("def f(c=[1]):\n    c[0] += 1\n    return c[0]", "pass", "f()", "pass"),
    "slots counter": Way(SLOTS, "self.cfg = Slots()", "self.cfg.rate", "pass", "self.cfg.rate += 1"),
    "first call": Way(
        "", "self.ready = False", "(2 if first else 3)", "pass", "first = not self.ready; self.ready = True"
    ),
    "cache": Way(
        "import functools\nN = []\n@functools.lru_cache\ndef f():\n    N.append(1)\n    return len(N)",
        "pass",
        "f() + len(N)",
        "N.append(1)",
    ),
    "file": Way("import io", "self.f = io.StringIO('\\n'.join(map(str, range(30))))", "int(self.f.readline())", "pass"),
}

MODULE = """
{before}
def make(Base, outer=2):
    outer_list, outer_it, counts = [2], iter(range(2, 99)), [1]
    number = 1
    def count_outer():
        nonlocal number
        number += 1
        return number
    def set_outer(t):
        nonlocal outer
        outer = t
    class Under(Base):
        base_k = 2
        def base_rate(self):
            return 2
        @staticmethod
        def stat():
            return 2
        @classmethod
        def clsm(cls):
            return 2
    class Net(Under):
        k = 2
        ks = [2]
        def __init__(self):
            super().__init__()
            {init}
        def rate(self):
            return globals_of_test()['RATE'] if False else RATE
        @property
        def prop(self):
            return self._r[0]
        def {signature}:
            {lines}
            return x * ({reads})
    globals().update(Net=Net, set_outer=set_outer, get_outer_list=lambda: outer_list)
    return Net
def change(net, t):
    {change}
"""


class Around(HybridBlock):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def hybrid_forward(self, F, x):
        return self.inner(x) + 1


def _indented(code, spaces):
    return code.replace("\n", "\n" + " " * spaces)


def _module(way, style):
    signature = "hybrid_forward(self, F, x)" if style == "1.x" else "forward(self, x)"
    text = MODULE.format(
        before=way.before,
        init=way.init,
        signature=signature,
        lines=way.lines or "pass",
        reads=way.reads,
        change=_indented(way.change, 4),
    )
    name = f"<way {abs(hash((text, style)))}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    module = types.ModuleType("module_of_a_way")
    module.mx = mx
    exec(compile(text, name, "exec"), vars(module))
    return module


@pytest.fixture(autouse=True)
def _settings(monkeypatch):
    with _clean(monkeypatch):
        yield


@contextlib.contextmanager
def _clean(monkeypatch):
    """What the ways change is as it was, and not changed afterwards."""
    monkeypatch.setitem(sys.modules, "settings_of_test", types.ModuleType("settings_of_test"))
    monkeypatch.setenv("RATE_OF_TEST", "2")
    monkeypatch.setattr(builtins, "RATE_OF_TEST", 2, raising=False)
    monkeypatch.setattr(builtins, "pow", pow)
    contexts = list(context._state.stack)
    try:
        yield
    finally:
        context._state.stack[:] = contexts  # one way enters a context and stays in it


def _results(way, style, nested, arrays, hybrid):
    builtins.pow = POW
    with decimal.localcontext(decimal.Context()), mx.util.np_shape(False), mx.cpu(0):
        return _results_in(way, style, nested, arrays, hybrid)


def _results_in(way, style, nested, arrays, hybrid):
    import os

    os.environ["RATE_OF_TEST"] = "2"
    settings = sys.modules["settings_of_test"]
    vars(settings).pop("more", None)
    settings.rate, settings.table = 2, {"rate": 2}
    module = _module(way, style)
    inner = module.make(HybridBlock)()
    net = Around(inner) if nested else inner
    if hybrid:
        net.hybridize(engine="numpy")
    with mx.util.np_array(arrays == "np"):
        x = mx.np.ones((2,)) if arrays == "np" else mx.nd.ones((2,))
        made = []
        for t in range(3, 7):
            made += [net(x).asnumpy().tolist(), net(x).asnumpy().tolist()]
            module.change(inner, t)
        made.append(net(x).asnumpy().tolist())
    return made


@pytest.mark.parametrize(
    "way", [*WATCHED.values(), *STATEFUL.values()], ids=[*WATCHED, *(f"stateful {name}" for name in STATEFUL)]
)
def test_hybrid_calls_follow_the_values(way, request):
    for package in ("torch", "scipy"):
        if f"import {package}" in way.before:
            pytest.importorskip(package)
    failures = Failures()
    for style, nested, arrays in quick.each_value(
        request.node.name, style=["1.x", "2.x"], nested=[False, True], arrays=["nd", "np"]
    ):
        with failures.of(f"{style}, {'below another Block' if nested else 'at the top'}, mx.{arrays}"):
            same_random_numbers()
            with pytest.MonkeyPatch.context() as patch, _clean(patch):
                hybrid = _results(way, style, nested, arrays, True)
                assert hybrid == _results(way, style, nested, arrays, False)
    failures.raise_all()


@pytest.mark.parametrize("statement", [
    "from rates_of_test import RATE", "from rates_of_test.inner import RATE", "from .inner import RATE",
    "from . import inner; RATE = inner.RATE", "from rates_of_test import inner; RATE = inner.RATE",
    "import rates_of_test.inner; RATE = rates_of_test.RATE",
    "import importlib; RATE = importlib.import_module('rates_of_test.inner').RATE",
])  # fmt: skip
def test_values_of_a_module_that_the_first_call_imports(statement, tmp_path, monkeypatch):
    package = tmp_path / "rates_of_test"
    package.mkdir()
    for name in "__init__", "inner":
        (package / f"{name}.py").write_text("RATE = 2")
    (package / "net.py").write_text(
        "from hybrid_lab.gluon import HybridBlock\n"
        f"class Net(HybridBlock):\n    def hybrid_forward(self, F, x):\n        {statement}\n        return x * RATE\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        net, x = importlib.import_module("rates_of_test.net").Net(), mx.nd.ones((1,))
        net.hybridize(strict=True)
        assert [net(x).asscalar(), net(x).asscalar()] == [2, 2]
        for rate in 3, 4:
            for name, module in list(sys.modules.items()):
                if name in ("rates_of_test", "rates_of_test.inner"):
                    module.RATE = rate
            assert net(x).asscalar() == rate
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "rates_of_test"]:
            del sys.modules[name]


def test_functions_of_the_package_that_are_of_one_code_are_told_apart():
    module = types.ModuleType("module_with_an_activation")
    module.mx, module.act = mx, mx.npx.relu
    exec("class Net(mx.gluon.HybridBlock):\n    def forward(self, x):\n        return act(x)", vars(module))
    net, x = module.Net(), mx.np.array([-1.0, 1.0])
    net.hybridize(strict=True)
    assert mx.npx.relu.__code__ is mx.npx.sigmoid.__code__
    for module.act in mx.npx.relu, mx.npx.sigmoid, mx.npx.relu:
        assert net(x).asnumpy().tolist() == module.act(x).asnumpy().tolist()


@pytest.mark.parametrize("array", [
    mx.nd.ones((2, 2)).tostype("csr"), mx.nd.ones((2, 2)).tostype("row_sparse"), mx.nd.zeros((0, 2)),
    mx.np.array(2.0), mx.nd.ones((1,)).astype("float16"), mx.nd.ones((1 << 19,)),
], ids=["csr", "row_sparse", "empty", "scalar", "float16", "large"])  # fmt: skip
def test_arrays_of_every_kind_may_be_read(array):
    class Reading(HybridBlock):
        def __init__(self):
            super().__init__()
            self.arrays = [array]

        def hybrid_forward(self, F, x):
            return x * (1 + len(self.arrays[0].shape))

    net = Reading()
    net.hybridize(strict=True)
    for _ in range(2):
        assert net(mx.nd.ones((1,))).asscalar() == 1 + len(array.shape)


def test_functions_in_layers_of_the_package():
    held = {"rate": 2}

    class Call:
        def __call__(self, F, x):
            return x * held["rate"]

    def net_of(function):
        net = mx.gluon.nn.HybridSequential()
        net.add(mx.gluon.nn.HybridLambda(function))
        return net

    for function in (lambda F, x: x * held["rate"], Call(), functools.partial(lambda c, F, x: x * c["rate"], held)):
        for net in net_of(function), mx.gluon.nn.HybridLambda(function):
            net.hybridize(engine="numpy")
            for rate in range(2, 5):
                held["rate"] = rate
                assert net(mx.nd.ones((1,))).asscalar() == rate


class Inner(HybridBlock):
    def __init__(self):
        super().__init__()
        self.k, self.ks = 2, [2]

    def hybrid_forward(self, F, x):
        return x


class Reading(HybridBlock):
    """Reads what other Blocks have: a child, a layer of the package, a Block that is no child."""

    def __init__(self):
        super().__init__()
        self.inner, self.layer, self.others = Inner(), mx.gluon.nn.Dense(1, in_units=1), (Inner(),)
        self.layer.extra = 2

    def hybrid_forward(self, F, x):
        other = self.others[0]
        return other(x) * self.inner.k * self.inner.ks[0] * self.layer.extra * other.k * other.ks[0]


@pytest.mark.filterwarnings("ignore:HL182")
@pytest.mark.parametrize("change", [
    lambda net: setattr(net.inner, "k", 3), lambda net: net.inner.ks.__setitem__(0, 3),
    lambda net: setattr(net.layer, "extra", 3), lambda net: setattr(net.others[0], "k", 3),
    lambda net: net.others[0].ks.__setitem__(0, 3),
])  # fmt: skip
def test_attributes_that_another_block_reads(change):
    net, x = Reading(), mx.nd.ones((1,))
    net.hybridize(engine="numpy")
    assert net(x).asscalar() == 32
    change(net)
    assert net(x).asscalar() == 48


RATE = {"rate": 0.0, "unread": 0}


class Annealed(HybridBlock):
    def hybrid_forward(self, F, x, *others):
        return sum((x, *others)) * RATE["rate"]


class Attribute(HybridBlock):
    rate = 0.0

    def hybrid_forward(self, F, x):
        return x * self.rate


def test_explain_says_why_and_one_warning_what_helps(monkeypatch, caplog):
    monkeypatch.setitem(RATE, "rate", 0.0)
    net, other, x = Annealed(), Attribute(), mx.nd.ones((1,))
    for each in net, other:
        each.hybridize(engine="numpy")
    for step in range(12):
        RATE["rate"] = other.rate = step / 2
        RATE["unread"] = step
        assert net(x).asscalar() == other(x).asscalar() == step / 2
    assert "another value of RATE['rate']: 0.5 instead of 0.0, called at" in str(mx.explain(net))
    assert f"another value of {other.name}.rate: 0.5 instead of 0.0" in str(mx.explain(other))
    said = [each.getMessage() for each in caplog.records if "was compiled again 8 times" in each.getMessage()]
    assert len(said) == 2 and all("pass what changes as an argument" in each for each in said)
    assert sum("compiled in" in each.getMessage() for each in caplog.records) == 2


def test_every_kind_of_call_follows(monkeypatch):
    monkeypatch.setitem(RATE, "rate", 2.0)
    net, x = Annealed(), mx.nd.ones((2,))
    net.hybridize(engine="numpy")
    x.attach_grad()
    for rate in 2.0, 3.0, 4.0:
        RATE["rate"] = rate
        assert net(x).asnumpy().tolist() == [rate] * 2
        assert net(x, x).asnumpy().tolist() == [2 * rate] * 2
        assert net(x, *[x, x]).asnumpy().tolist() == [3 * rate] * 2
        with mx.autograd.record():
            y = net(x)
        y.backward()
        assert x.grad.asnumpy().tolist() == [rate] * 2
        assert net(mx.nd.ones((3,))).asnumpy().tolist() == [rate] * 3


def test_equal_values_and_what_the_code_does_not_read_keep_the_graph(monkeypatch):
    monkeypatch.setitem(RATE, "rate", 2.5)
    net, x = Annealed(), mx.nd.ones((2,))
    net.hybridize(engine="numpy")
    net(x)
    kept = net._graphs.first()
    for text in "2.5", "25e-1":
        monkeypatch.setitem(globals(), "RATE", {"rate": float(text), "unread": 0})
        net(x)
        RATE["rate"] = float(text)
        net(x)
    assert net._graphs.first() is kept


def test_blocks_whose_code_reads_nothing_of_the_kind_compare_their_code_and_attributes_alone():
    class Usual(HybridBlock):
        def __init__(self):
            super().__init__()
            self.body, self.rate, self.sizes = mx.gluon.nn.Dense(3), 0.5, (2, 3)

        def hybrid_forward(self, F, x):
            return F.relu(self.body(x)) * self.rate * self.sizes[0]

        def fit(self):
            self.history.append(RATE)

    for net in Usual(), mx.gluon.nn.Dense(3), mx.gluon.model_zoo.vision.get_model("resnet18_v1"):
        net.initialize()
        net.hybridize(engine="numpy")
        net(mx.nd.ones((1, 3, 64, 64)))
        entries, attributes, *others = net._graphs.guard._groups
        assert all(owner is vars(net) for owner, *_ in entries)
        assert {what for _, what, *_ in attributes} <= {"__call__", "__code__", "forward", "hybrid_forward"}
        calls, *others = others
        assert not any(others) and all("._kwargs" in name for *_, name, _ in calls)


@pytest.mark.parametrize("way", [STATEFUL["iterator"], STATEFUL["counter"]])
def test_code_that_changes_what_it_computes_with_is_an_error_where_a_graph_is_asked_for(way):
    net = _module(way, "1.x").make(HybridBlock)()
    net.hybridize(strict=True)
    with pytest.raises(mx.HybridizeError, match="HL17[38].*(self.it.* is an iterator|changes `self.n` and computes)"):
        net(mx.nd.ones((2,)))
    if hasattr(net, "n"):
        assert net.n == 1


def test_code_that_changes_what_it_does_not_compute_with_keeps_its_graph():
    class Counting(HybridBlock):
        def __init__(self):
            super().__init__()
            self.calls, self.seen = 0, []

        def hybrid_forward(self, F, x):
            self.calls += 1
            self.seen.append(len(self.seen))
            return x * 2

    net, x = Counting(), mx.nd.ones((2,))
    net.hybridize(engine="numpy")
    for _ in range(3):
        net(x)
    assert net.calls == 1 and net.seen == [0] and len(net._graph_calls.compilations) == 1
    net.seen.clear()
    net(x)
    assert len(net._graph_calls.compilations) == 1


def test_what_cannot_be_compared_is_named_once_with_its_line(caplog):
    way = Way(
        "import numpy\nimport random\nA = numpy.ones(1 << 18)\nR = random.Random(0)",
        "pass",
        "A[0] * R.random()",
        "pass",
    )
    for _ in range(2):
        net = _module(way, "1.x").make(HybridBlock)()
        net.hybridize(engine="numpy")
        net(mx.nd.ones((2,)))
        net(mx.nd.ones((2,)))
        (said,) = [
            each.getMessage() for each in caplog.records if "the graph keeps what the code reads" in each.getMessage()
        ]
        assert "`A` (it has 2.0 MiB" in said and "`R` (it is a Random; <way" in said and "in Net.hybrid_forward" in said
        caplog.clear()


def test_a_large_array_that_is_read_only_is_not_named(caplog):
    way = Way("import numpy\nA = numpy.ones(1 << 18)\nA.setflags(write=False)", "pass", "A[0]", "pass")
    net = _module(way, "1.x").make(HybridBlock)()
    net.hybridize(engine="numpy")
    net(mx.nd.ones((2,)))
    assert "the graph keeps" not in caplog.text


def _archive(net, path):
    net.save(f"{path}.hlab")
    return mx.gluon.load(f"{path}.hlab")


def _exported(net, path):
    symbol, _ = net.export(str(path))
    return mx.gluon.SymbolBlock.imports(symbol, ["data"], None)


def _onnx(net, path):
    pytest.importorskip("onnx")
    mx.onnx.export(net, f"{path}.onnx")
    return mx.onnx.imports(f"{path}.onnx")


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("door", [_archive, _exported, _onnx])
def test_files_have_the_values_of_now(door, hybrid, tmp_path, monkeypatch):
    monkeypatch.setitem(RATE, "rate", 2.0)
    net, x = Annealed(), mx.nd.ones((2,))
    net.hybridize(hybrid, **({"engine": "numpy"} if hybrid else {}))
    net(x)
    RATE["rate"] = 3.0
    assert door(net, tmp_path / "m")(x).asnumpy().tolist() == [3.0, 3.0]


@pytest.mark.parametrize("hybrid", [False, True])
def test_saving_code_that_reads_on_from_an_iterator_reads_nothing(hybrid, tmp_path, caplog):
    net, x = _module(STATEFUL["iterator"], "1.x").make(HybridBlock)(), mx.nd.ones((1,))
    net.hybridize(hybrid)
    assert net(x).asscalar() == 2
    net.save(str(tmp_path / "m.hlab"))
    assert "`self.it` is an iterator" in caplog.text
    assert net(x).asscalar() == 3


def test_a_file_that_is_only_written_to_is_no_iterator(tmp_path):
    with open(tmp_path / "log", "w") as file:

        class Logging(HybridBlock):
            def hybrid_forward(self, F, x):
                print("traced", file=file)
                return x * 2

        net = Logging()
        net.hybridize(engine="numpy")
        assert net(mx.nd.ones((1,))).asscalar() == net(mx.nd.ones((1,))).asscalar() == 2
    assert (tmp_path / "log").read_text() == "traced\n"


class Scaling:
    def scale(self):
        return 2


class Scaled(Scaling, HybridBlock):
    def __init__(self):
        super().__init__()
        self.body = mx.gluon.nn.Dense(2, in_units=2)

    def hybrid_forward(self, F, x):
        return self.body(x) * self.scale()


def _times_seven(self, F, x, weight, bias=None):
    return F.dot(x, weight) * 7


#: What is replaced: (owner, name, value) for a Block.
REPLACED = {
    "a method of a mixin": lambda net: (Scaling, "scale", lambda self: 5),
    "the class of a Block": lambda net: (net, "__class__", type("Below", (Scaled,), {"scale": lambda self: 9})),
    "hybrid_forward": lambda net: (Scaled, "hybrid_forward", lambda self, F, x: self.body(x) - 1),
    "a forward where there was none": lambda net: (Scaled, "forward", lambda self, x: self.body(x) + 10),
    "the code of a layer": lambda net: (mx.gluon.nn.Dense, "hybrid_forward", _times_seven),
    "a forward of a layer": lambda net: (
        mx.gluon.nn.Dense,
        "forward",
        lambda self, x: HybridBlock.forward(self, x) * 5,
    ),
    "a __call__ of a layer": lambda net: (
        mx.gluon.nn.Dense,
        "__call__",
        lambda self, x: HybridBlock.__call__(self, x) * 5,
    ),
}


@pytest.mark.parametrize("replaced", REPLACED)
def test_code_that_is_replaced_between_two_calls(replaced, monkeypatch):
    net, x = Scaled(), mx.nd.ones((1, 2))
    net.initialize()
    net.hybridize(engine="numpy")
    before = net(x).asnumpy()
    owner, name, value = REPLACED[replaced](net)
    monkeypatch.setattr(owner, name, value, raising=False)
    after = net(x).asnumpy()
    net.hybridize(False)
    assert (after == net(x).asnumpy()).all() and (after != before).any()


class Scale(mx.gluon.Parameter):
    rate = 2

    def value(self):
        return self.rate


class OfParameter(HybridBlock):
    def __init__(self, read):
        super().__init__()
        self.read, self.w = read, Scale("w", shape=(1,))
        self.w.own = [2]

    def hybrid_forward(self, F, x, w):
        return x * self.read(self.w)


#: What code reads of a Parameter, and how it changes.
PARAMETERS = {
    "attribute": (lambda w: w.own[0], lambda w, t: setattr(w, "own", [t])),
    "list": (lambda w: w.own[0], lambda w, t: w.own.append(w.own.pop() + t)),
    "attribute appears": (lambda w: getattr(w, "more", 3), lambda w, t: setattr(w, "more", t)),
    "attribute appears by hasattr": (lambda w: w.more if hasattr(w, "more") else 3, lambda w, t: setattr(w, "more", t)),
    "class attribute": (lambda w: w.rate, lambda w, t: setattr(Scale, "rate", t)),
    "method": (lambda w: w.value(), lambda w, t: setattr(Scale, "rate", t)),
    "method replaced": (lambda w: w.value(), lambda w, t: setattr(Scale, "value", lambda self: t)),
    "grad_req": (lambda w: len(w.grad_req), lambda w, t: setattr(w, "grad_req", ["write", "add"][t % 2])),
    "lr_mult": (lambda w: w.lr_mult, lambda w, t: setattr(w, "lr_mult", t)),
}


@pytest.mark.parametrize("nested", [False, True], ids=["top", "below"])
@pytest.mark.parametrize("way", PARAMETERS)
def test_what_code_reads_of_a_parameter_is_followed(way, nested, monkeypatch):
    read, change = PARAMETERS[way]
    monkeypatch.setattr(Scale, "rate", 2)
    monkeypatch.setattr(Scale, "value", Scale.value)
    inner, x = OfParameter(read), mx.nd.ones((2,))
    net = Around(inner) if nested else inner
    net.initialize()
    net.hybridize(engine="numpy")
    for t in range(3, 7):
        wanted = float(read(inner.w)) + nested
        assert net(x).asnumpy().tolist() == net(x).asnumpy().tolist() == [wanted] * 2
        change(inner.w, t)
    assert net(x).asnumpy().tolist() == [float(read(inner.w)) + nested] * 2


def test_the_settings_of_a_layer_are_compared():
    net, x = mx.gluon.nn.HybridSequential(), mx.nd.ones((1, 1, 6))
    net.add(mx.gluon.nn.MaxPool1D(2))
    net.hybridize(engine="numpy")
    assert net(x).shape == (1, 1, 3)
    net[0]._kwargs["stride"] = (1,)
    assert net(x).shape == (1, 1, 5)


@pytest.mark.parametrize("reads, names", [
    ("globals()[self.n]", "`globals` (it reads names that are made at run time"),
    ("eval(self.n)", "`eval` (it reads names that are made at run time"),
    ("float(open(PATH).read())", "`open` (it reads files"),
    ("float(pathlib.Path(PATH).read_text())", "`read_text` (it reads files"),
    ("float(pathlib.Path(PATH).open().read())", "`open` (it reads files"),
    ("float(open(PATH[:-1] + 'e', 'r+').read())", "`open` (it reads files"),
    ("float(io.open(PATH).read())", "`io.open` (it reads files"),
    ("float(FILE.read_bytes())", "`FILE.read_bytes` (it reads files"),
    ("float(self.file.open('r').read())", "`open` (it reads files"),
    ("float(numpy.loadtxt(PATH))", "`numpy.loadtxt` (it reads files"),
    ("float(genfromtxt(PATH))", "`genfromtxt` (it reads files"),
    ("2 * len(mx.nd.load(PATH + 's'))", "`mx.nd.load` (it reads files"),
    ("2 * os.path.exists(PATH)", "`os.path.exists` (it reads files"),
    ("2 * (os.stat(PATH).st_size == 1)", "`os.stat` (it reads files"),
    ("2 * len(glob.glob(PATH))", "`glob.glob` (it reads files"),
    ("2 * len(PARSER.read(PATH + '.ini'))", "`PARSER.read` (it reads files"),
])  # fmt: skip
def test_one_warning_names_what_no_call_can_compare(reads, names, tmp_path, caplog):
    (tmp_path / "rate").write_text("2")
    (tmp_path / "rate.ini").write_text("[a]")
    mx.nd.save(str(tmp_path / "rates"), [mx.nd.ones((1,))])
    before = (
        "import configparser, glob, io, numpy, os, pathlib\nimport hybrid_lab as mx\nfrom numpy import genfromtxt\n"
        f"RATE = 2\nPATH = {str(tmp_path / 'rate')!r}\nFILE = pathlib.Path(PATH)\nPARSER = configparser.ConfigParser()"
    )
    way = Way(before, "self.n, self.file = 'RATE', FILE", reads, "pass")
    net, x = _module(way, "1.x").make(HybridBlock)(), mx.nd.ones((1,))
    net.hybridize(engine="numpy")
    assert net(x).asscalar() == net(x).asscalar() == 2
    said = [each.getMessage() for each in caplog.records if "Calls do not notice a change" in each.getMessage()]
    assert len(said) == 1 and names in said[0]


@pytest.mark.parametrize("before, reads", [
    (f"import os\ndef log():\n    with open(os.devnull, {mode}) as f:\n        f.write('x')\n    return 2", "log()")
    for mode in ("'a'", "'w', encoding='utf8'", "mode='wb' if False else 'w'", "'x' if False else 'a'")
] + [
    ("import os, pathlib\ndef log():\n    pathlib.Path(os.devnull).open('a').close()\n    return 2", "log()"),
    ("class Own:\n    def read_text(self):\n        return 2\n    def open(self):\n        return 1",
     "Own().read_text() * OWN.open()"),
    ("RATE = 2\nd = {}\ndef run():\n    exec('v = RATE', globals(), d)\n    return d['v']", "run()"),
    ("from typing import NamedTuple\nclass P(NamedTuple):\n    x: int\nPOINT = P(2)", "POINT.x"),
    ("import collections\nP = collections.namedtuple('P', 'x')\nPOINT = P(2)", "POINT.x"),
])  # fmt: skip
def test_what_reads_no_files_and_no_unknown_names_is_not_named(before, reads, caplog):
    before += "\nOWN = Own()" if "class Own" in before else ""
    net, x = _module(Way(before, "pass", reads, "pass"), "1.x").make(HybridBlock)(), mx.nd.ones((1,))
    net.hybridize(engine="numpy")
    assert net(x).asscalar() == 2
    assert not [each for each in caplog.records if "Calls do not notice" in each.getMessage()]


def test_constant_names_are_compared_without_a_warning(caplog):
    way = Way("import os\nRATE = 2", "pass", "globals()['RATE'] * int(os.getenv('RATE_OF_TEST', '1'))", "pass")
    net, x = _module(way, "1.x").make(HybridBlock)(), mx.nd.ones((1,))
    net.hybridize(engine="numpy")
    assert net(x).asscalar() == 4
    assert not [each for each in caplog.records if "Calls do not notice" in each.getMessage()]
    calls = net._graphs.guard._groups[2]
    assert [name for *_, name, _ in calls if "environ" in name] == ["os.environ['RATE_OF_TEST']"]


def test_a_call_does_not_keep_the_object_of_a_weak_reference_alive():
    module = _module(Way(REFERRED, "self.w = weakref.ref(HELD[0])", "self.w().rate", "pass"), "1.x")
    net = module.make(HybridBlock)()
    net.hybridize(engine="numpy")
    assert net(mx.nd.ones((1,))).asscalar() == 2
    module.HELD.clear()
    gc.collect()
    assert net.w() is None
