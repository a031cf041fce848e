"""Values of the user's own in archives come back as what they were: every kind of data, in aux and in attributes."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import gc
import math
import pathlib
import random
import subprocess
import sys
import types
import typing
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, lr_scheduler, metric, nd
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.formats.archive import kinds, objects, values
from hybrid_lab.gluon import nn

Point = namedtuple("Point", "x y")


class Typed(typing.NamedTuple):
    name: str
    sizes: tuple[int, ...] = ()


class Named(Point):
    """A subclass of a named tuple."""


class Level(enum.IntEnum):
    LOW = 1


class Colour(enum.Enum):
    RED = "r"


@dataclasses.dataclass
class Config:
    lr: float = 0.1
    sizes: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    inner: Config
    path: pathlib.Path = pathlib.Path("x")


class NotDecorated(Config):
    """Its constructor may do anything: no dataclass of its own."""


UTC, BERLIN = datetime.UTC, zoneinfo.ZoneInfo("Europe/Berlin")
VALUES = {
    "None": None,
    "bool": True,
    "ints": [0, -1, 2**53, -(2**70), 10**5000],
    "floats": [0.5, -0.0, math.inf, -math.inf],
    "texts": ["", "ä€😀", "\n\0", "\udcff name of a file"],
    "bytes": [b"", b"\0\xff", b"x" * 5000],
    "bytearray": bytearray(b"ab"),
    "complex": [1j, complex(math.inf, -2.5)],
    "tuple": (1, (2, [3])),
    "set": {1, "a", (2, 3), None},
    "empty set": set(),
    "frozenset": frozenset({b"a", 2.5}),
    "set of sets": {frozenset({1}), frozenset()},
    "dict": {"b": 1, "a": 2, 3: None, 2.5: [], (1, 2): "t", None: 0, True: 1, b"k": 2, pathlib.Path("p"): 3},
    "OrderedDict": OrderedDict(z=1, a=OrderedDict()),
    "defaultdict": defaultdict(list, {"a": [1]}),
    "defaultdict without factory": defaultdict(None, {"a": 1}),
    "Counter": Counter("hello"),
    "deque": [deque([1, 2], maxlen=3), deque()],
    "range": range(2, 20, 3),
    "slice": [slice(None), slice(1, None, 2)],
    "Ellipsis": ...,
    "SimpleNamespace": types.SimpleNamespace(lr=0.1, sizes=[1, 2]),
    "Namespace": argparse.Namespace(lr=0.1, path=pathlib.Path("x")),
    "datetime": [datetime.datetime(2026, 11, 29, 3, 4, 5, 678, fold=1), datetime.datetime(2026, 1, 1, tzinfo=UTC)],
    "datetime with zone": datetime.datetime(2026, 7, 1, 12, tzinfo=BERLIN),
    "datetime with offset": datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=-3))),
    "date": datetime.date(2026, 2, 3),
    "time": datetime.time(23, 59, 1, tzinfo=UTC),
    "timedelta": datetime.timedelta(days=-1, microseconds=5),
    "zones": [UTC, BERLIN],
    "paths": [pathlib.Path("/a/b"), pathlib.PurePosixPath("c"), pathlib.PureWindowsPath("C:\\x")],
    "Decimal": [decimal.Decimal("0.10"), decimal.Decimal("-Infinity")],
    "Fraction": fractions.Fraction(-2, 3),
    "UUID": uuid.UUID(int=5),
    "namedtuples": [Point(1, [2]), Typed("a", (1, 2)), Named(3, 4)],
    "dataclasses": [Config(0.5, [1, 2]), Frozen(Config())],
    "enums": [Level.LOW, Colour.RED],
    "dtypes": [np.dtype("float16"), np.dtype("<U7"), np.dtype("datetime64[ns]"), np.dtype(bool)],
    "types": [np.float32, np.int8, float, type(None), dict],
    "numpy": [np.arange(6.0).reshape(2, 3), np.zeros((0, 2), "int8"), np.array(5), np.arange(3, dtype="i2")],
    "numpy scalars": [np.float32(0.5), np.int64(3), np.bool_(True), np.complex64(1j), np.str_("t"), np.bytes_(b"b")],
    "numpy moments": [np.datetime64("2026-01-02"), np.timedelta64(3, "s"), np.array(["2026-01-01", "NaT"], "M8[ns]")],
    "numpy complex": [np.array([[1 + 2j]], "complex64"), np.zeros((0, 3), complex), np.array(1j)],
    "numpy texts": [np.array(["a", "bcd", "ü"]), np.array([[b"x", b"yz"]]), np.array("0-d"), np.array([], "U3")],
    "numpy texts of the last code point": np.array(["\U0010ffff", "a"]),
    "numpy empty texts": np.array(["", ""]),
    "numpy objects": np.array([["a", None], [1, (2, 3)]], object),
    "numpy structured": np.array([(1, 2.5, "a")], [("n", "i4"), ("f", "f8"), ("t", "U2")]),
    "numpy nested fields": np.zeros(2, [("p", "f4", (2, 3))]),
    "numpy record": np.rec.array([(1, 2.0)], dtype=[("a", "i8"), ("b", "f8")]),
    "numpy masked": np.ma.MaskedArray([1.0, 2.0], [True, False], fill_value=9),
    "numpy matrix": np.asmatrix([[1, 2]]),
    "nd": [nd.array([1, 2], dtype="int8"), nd.ones((2, 2), dtype="bfloat16")],
    "mx.np": [mx.np.ones((2,)), mx.np.array(3.0)],
    "sparse": [
        nd.array([[0, 1], [2, 0]]).tostype("csr"),
        nd.array([[0, 0], [2, 0]]).tostype("row_sparse"),
        nd.sparse.zeros("csr", (3, 4)),
    ],
    "generators": [
        np.random.default_rng(3),
        np.random.Generator(np.random.MT19937(1)),
        np.random.RandomState(2),
        random.Random(4),
    ],
    "context": [mx.cpu(), mx.gpu(1)],
    "schedule": lr_scheduler.CosineScheduler(100, base_lr=0.3),
    "initializer": mx.init.Xavier(magnitude=3),
    "optimizer": mx.optimizer.create("adam", learning_rate=0.25, lr_scheduler=lr_scheduler.FactorScheduler(5, 0.5)),
}


def same(one, other):
    """Equal, and of the same types, throughout."""
    assert type(one) is type(other), (one, other)
    if isinstance(one, (list, tuple, deque)):
        assert len(one) == len(other)
        [same(a, b) for a, b in zip(one, other, strict=True)]
    elif isinstance(one, dict):
        same(list(one.items()), list(other.items()))
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype and one.shape == other.shape
        if isinstance(one, np.ma.MaskedArray):
            same((np.asarray(one.mask), one.fill_value), (np.asarray(other.mask), other.fill_value))
        assert np.array_equal(one, other, equal_nan=one.dtype.kind in "fcmM") or one.dtype.kind == "O"
        if one.dtype.kind == "O":
            same(one.ravel().tolist(), other.ravel().tolist())
    elif isinstance(one, (np.random.Generator, np.random.RandomState, random.Random)):
        draws = [
            [(each.integers(9**9) if hasattr(each, "integers") else each.randint(0, 9**9)) for _ in range(5)]
            for each in (copy.deepcopy(one), copy.deepcopy(other))
        ]
        assert draws[0] == draws[1]
    elif isinstance(one, nd.NDArray):
        assert one.dtype == other.dtype and one.stype == other.stype and np.array_equal(one.asnumpy(), other.asnumpy())
    elif dataclasses.is_dataclass(one) and not isinstance(one, type):
        for field in dataclasses.fields(one):
            same(getattr(one, field.name), getattr(other, field.name))
    elif hasattr(one, "__dict__") and not isinstance(one, (type, enum.Enum)):
        skipped = {"param_dict"}
        same(*({key: vars(each)[key] for key in sorted(vars(each)) if key not in skipped} for each in (one, other)))
    elif isinstance(one, (set, frozenset)):  # the order of a set depends on how it was filled, so its repr does too
        assert one == other and sorted(map(repr, one)) == sorted(map(repr, other))
    else:
        assert one == other and (isinstance(one, int) or repr(one) == repr(other))


@pytest.fixture
def net():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    return net


@pytest.mark.parametrize("name", VALUES)
def test_every_kind_comes_back(name, net, tmp_path):
    path = net.save(tmp_path / "m", aux={"value": VALUES[name], "inside": [{"deep": (VALUES[name],)}]})
    for aux in (net.load(path).aux, gluon.load(path, with_aux=True)[1], net.load_states(path)):
        same(aux, {"value": VALUES[name], "inside": [{"deep": (VALUES[name],)}]})


def test_every_kind_of_the_tables_has_an_example():
    def seen(data):
        if isinstance(data, list):
            return set().union(*map(seen, data))
        return set(data) | seen(list(data.values())) if isinstance(data, dict) else set()

    found = set().union(*(seen(values.encode(value, {})) for value in VALUES.values()))
    found |= {"metric", "spread"}  # below
    assert found >= kinds._BY_NAME.keys() | objects._BY_NAME.keys()


METRICS = [
    ("acc", {}),
    ("top_k_accuracy", {"top_k": 2}),
    ("f1", {}),
    ("mcc", {}),
    ("pcc", {}),
    ("perplexity", {"ignore_label": None}),
    ("mae", {}),
    ("mse", {}),
    ("rmse", {}),
    ("ce", {}),
    ("nll_loss", {}),
    ("pearsonr", {}),
    ("pearsonr", {"average": "micro"}),
    ("loss", {}),
]


@pytest.mark.parametrize("name, settings", METRICS)
def test_metrics_go_on(name, settings, net, tmp_path):
    def batch(one, number):
        generator = np.random.RandomState(number)
        scores = generator.rand(6, 2 if name != "top_k_accuracy" else 4).astype("float32")
        scores /= scores.sum(axis=1, keepdims=True)
        labels = generator.randint(0, 2, 6)
        if name in ("mae", "mse", "rmse", "pearsonr"):
            labels = generator.rand(6, 2)
        one.update([nd.array(labels)], [nd.array(scores)])

    live = metric.create(name, **settings)
    batch(live, 1)
    both = metric.CompositeEvalMetric([live, metric.Accuracy()])
    path = net.save(tmp_path / "m", aux={"metric": live, "both": both})
    aux = gluon.load(path, with_aux=True)[1]
    loaded = aux["metric"]
    assert type(loaded) is type(live) and loaded.get() == live.get() and loaded.get_config() == live.get_config()
    batch(live, 2)
    batch(loaded, 2)
    assert loaded.get() == live.get() and loaded.get_global() == live.get_global()
    assert type(aux["both"]) is metric.CompositeEvalMetric and type(aux["both"].metrics[0]) is type(live)


def test_a_metric_of_ones_own(net, tmp_path):
    class Mine(metric.EvalMetric):
        def measure(self, label, pred):
            return float((label == pred).sum()), 2

    mine = Mine("mine")
    mine.update(nd.ones((2,)), nd.ones((2,)))
    path = net.save(tmp_path / "m", aux={"m": mine})
    assert net.load(path).aux["m"].get() == ("mine", 1.0)
    del mine
    program = f"from hybrid_lab import gluon; m = gluon.load({path!r}, with_aux=True)[1]['m']; print(m, m.num_inst)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "<Mine [class missing]> 2.0" or done.stdout.strip() == "<Mine [class missing]> 2"


def test_a_named_tuple_of_an_unknown_class(net, tmp_path):
    path = net.save(tmp_path / "m", aux={"p": Point(1, 2), "q": [Point(3, 4)]})
    program = f"""
from hybrid_lab import gluon
aux = gluon.load({path!r}, with_aux=True)[1]
assert type(aux["p"]) is type(aux["q"][0]) and aux["p"]._fields == ("x", "y")
print(aux["p"], aux["p"]._replace(x=5).x)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Point(x=1, y=2) 5"


def test_equal_sets_give_equal_files(net, tmp_path):
    """Whatever the order in which a process goes through a set of texts."""
    program = """
from hybrid_lab.formats.archive import values
import sys
sys.stdout.write(repr(values.encode({"b", "a", "c", "dd"}, {})))
"""
    texts = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in "123"
    }
    assert len(texts) == 1


class Odd(np.ndarray):
    """A subclass of NumPy's array that no file can give back."""


cyclic: list = []
cyclic.append(cyclic)
NO_DATA = {
    "function": (len, "builtin_function_or_method"),
    "lambda": (lambda: 0, "function"),
    "module": (math, "module"),
    "class": (Point, "type"),
    "object": (object(), "object"),
    "file": (sys.stderr, type(sys.stderr).__name__),
    "generator": ((each for each in ()), "generator"),
    "block": (nn.Dense(2), "Dense"),
    "longdouble": (np.zeros(2, "longdouble"), "longdouble|float"),
    "array class": (np.zeros(2).view(Odd), "Odd"),
    "subclass of a dataclass": (NotDecorated(), "NotDecorated"),
    "cycle": (cyclic, "nested more than"),
    "metric of a function": (metric.np(lambda label, pred: 0), "function"),
    "defaultdict": (defaultdict(lambda: 0), "defaultdict"),
    "key": ({nd.ones((1,)): 2}, "array among its keys"),
}


@pytest.mark.parametrize("name", NO_DATA)
def test_what_is_no_data_is_named(name, net, tmp_path):
    value, kind = NO_DATA[name]
    with pytest.raises(HybridLabError, match=rf"aux\['a'\]\[1\](.|\n)*({kind})"):
        net.save(tmp_path / "m", aux={"a": [1, value]})
    assert not (tmp_path / "m.hlab").exists()


def test_subclasses_of_numbers_and_texts_come_back_as_these():
    class Text(str):
        pass

    found = values.decode(values.encode(Text("a"), {}), {})
    assert type(found) is str and found == "a"


def test_dataclasses_and_enums_of_an_unknown_class(net, tmp_path):
    path = net.save(tmp_path / "m", aux={"config": Frozen(Config(0.5)), "level": Level.LOW, "colour": Colour.RED})
    program = f"""
from hybrid_lab import gluon
aux = gluon.load({path!r}, with_aux=True)[1]
print(aux["config"], aux["config"].inner.lr, aux["level"], aux["colour"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "<Frozen [class missing]> 0.5 1 r"


DAMAGED = [
    {"set": {"list": [{"list": []}]}},
    {"bytes": "7"},
    {"bytes": {"numpy": "0"}},
    {"complex": {"tuple": ["a", 1]}},
    {"datetime": {"tuple": ["2026-13-01", 0, None]}},
    {"date": 5},
    {"ZoneInfo": "../../etc/passwd"},
    {"timedelta": {"tuple": [10**15, 0, 0]}},
    {"Decimal": "x"},
    {"Fraction": {"tuple": [1, 0]}},
    {"UUID": "zz"},
    {"range": {"tuple": ["a"]}},
    {"deque": {"tuple": [{"list": []}, -1]}},
    {"namedtuple": {"tuple": ["m", "P", {"list": ["x", "x"]}, {"list": [1, 2]}]}},
    {"namedtuple": {"tuple": ["m", "P", {"list": ["import os"]}, {"list": [1]}]}},
    {"namedtuple": {"tuple": ["m", "P", {"list": ["x"]}, {"list": [1, 2]}]}},
    {"namedtuple": 3},
    {"dtype": "O"},
    {"dtype": "nonsense"},
    {"type": "eval"},
    {"scalar_type": "float32"},
    {"texts": {"tuple": [{"tuple": [2]}, "U", 1, {"numpy": "0"}]}},
    {"texts": {"tuple": [{"tuple": [10**12]}, "U", 0, {"numpy": "0"}]}},
    {"moments": {"tuple": ["M8[ns]", {"numpy": "0"}]}},
    {"objects": {"tuple": [{"tuple": [10**9]}, {"list": []}]}},
    {"structured": {"tuple": [{"tuple": [2]}, {"list": [{"tuple": ["a", {"numpy": "0"}]}]}]}},
    {"complex_array": {"tuple": [{"tuple": [9]}, {"numpy": "0"}]}},
    {"masked": {"tuple": [1]}},
    {"sparse": {"tuple": [{"tuple": [2, 2]}, {"numpy": "0"}, {"numpy": "0"}, None]}},
    {"context": {"tuple": ["tpu", 0]}},
    {"metric": {"tuple": ["hybrid_lab.metric.classification", "Accuracy", {"dict": [["update", 1]]}]}},
    {"metric": {"tuple": ["hybrid_lab.metric.classification", "Accuracy", 5]}},
    {
        "optimizer": {
            "tuple": ["hybrid_lab.optimizer.sgd", "SGD", {"dict": [["_all_index_update_counts", {"dict": []}]]}]
        }
    },
    {"trainer": {"dict": []}},
    {"trainer": 5},
    {"block": []},
    {"surrogates": "x"},
    {"bytearray": 2**40},
    {"matrix": "1 2"},
    {"set": "ab"},
    {"masked": {"tuple": [{"numpy": "0"}, {"list": [True, False]}, 0]}},
    {"RandomState": {"dict": [["bit_generator", "MT19937"], ["state", {"dict": [["pos", 10**6]]}]]}},
    {"hex": 5},
    {"dict": [[{"list": []}, 1]]},
    {"dict": [[1]]},
    {"nonsense": 1},
    {"list": [], "tuple": []},
    {},
    [],
]


@pytest.mark.parametrize("data", DAMAGED, ids=lambda data: str(data)[:60])
def test_damaged_values_are_refused(data):
    with pytest.raises(ValueError, match="is not a value"):
        values.decode(data, {"0": np.zeros(4, "float32")})


def test_metrics_restored_do_not_run_code(net, tmp_path):
    class Loud(metric.EvalMetric):
        made = 0

        def __init__(self, name="loud"):
            Loud.made += 1
            super().__init__(name)

    path = net.save(tmp_path / "m", aux={"m": Loud()})
    assert type(net.load(path).aux["m"]) is Loud and Loud.made == 1


def scrambled(data, generator):
    """JSON data with one random change: a part is dropped, doubled, replaced by another part or by nonsense."""
    places = []

    def collect(item, path):
        places.append(path)
        if isinstance(item, dict):
            [collect(inner, (*path, key)) for key, inner in item.items()]
        elif isinstance(item, list):
            [collect(inner, (*path, index)) for index, inner in enumerate(item)]

    collect(data, ())

    def at(path):
        item = data
        for key in path:
            item = item[key]
        return item

    target = generator.choice(places)
    nonsense = [
        None,
        True,
        -1,
        2**60,
        0.5,
        "",
        "x",
        [],
        {},
        {"tuple": []},
        {"numpy": "0"},
        at(generator.choice(places)),
    ]
    value = copy.deepcopy(generator.choice(nonsense))
    if not target:
        return value
    parent = at(target[:-1])
    change = generator.randrange(3)
    if change == 0 or isinstance(parent, dict) and change == 1:
        parent[target[-1]] = value
    elif isinstance(parent, dict):
        kind = generator.choice([*kinds._BY_NAME, *objects._BY_NAME, "trainer", "block", "int", "hex", "dict", "nd"])
        parent[kind] = parent.pop(target[-1])
    elif change == 1:
        del parent[target[-1]]
    else:
        parent.insert(target[-1], value)
    return data


@pytest.mark.parametrize("name", VALUES)
def test_scrambled_values_are_a_value_or_refused(name):
    """Whatever a hostile file says: a value, or a ValueError, from the kinds of this table only."""
    generator, refused = random.Random(name), 0
    tensors = {}
    data = values.encode(VALUES[name], tensors)
    for _ in range(150):
        changed = scrambled(copy.deepcopy(data), generator)
        try:
            values.decode(changed, tensors)
        except ValueError:
            refused += 1
    assert refused or data is None or isinstance(data, bool)


def leaf(generator):
    return copy.deepcopy(
        generator.choice(generator.choice([each for each in VALUES.values() if isinstance(each, list)]))
    )


def nested(generator, depth=0):
    size = generator.randrange(4)
    if depth > 3 or generator.random() < 0.3:
        return leaf(generator)
    items = [nested(generator, depth + 1) for _ in range(size)]
    keys = [generator.choice([number, f"k{number}", (number,), float(number) + 0.5]) for number in range(size)]
    made = dict(zip(keys, items, strict=True))
    kind = generator.randrange(6)
    return [items, tuple(items), made, OrderedDict(made), deque(items), Point(items, made)][kind]


def test_random_values_come_back():
    generator = random.Random(5)
    for _ in range(300):
        value, tensors = nested(generator), {}
        found = values.decode(values.encode(value, tensors), tensors)
        same(found, value)


@dataclasses.dataclass
class Cleaner:
    """What a hostile file would name: freeing an object of it does what its attributes say."""

    path: str
    freed: typing.ClassVar[list] = []

    def __del__(self):
        Cleaner.freed.append(self.path)


def test_no_object_is_made_that_runs_code_when_it_is_freed():
    data = values.encode(Cleaner("mine"), {})
    Cleaner.freed.clear()
    found = values.decode(data, {})
    assert type(found) is kinds.MissingObject and found.path == "mine"
    del found
    gc.collect()
    assert Cleaner.freed == []


def test_the_newest_of_classes_of_one_name():
    """As where a cell was run again."""

    def define():
        @dataclasses.dataclass
        class Settings:
            lr: float = 0.1

        return Settings, namedtuple("Pair", "a b")

    old, new = define(), define()
    for one, other in zip(old, new, strict=True):
        found = values.decode(values.encode(one(1) if one.__name__ == "Settings" else one(1, 2), {}), {})
        assert type(found) is other
