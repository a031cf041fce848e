"""Arguments of Blocks of every kind, eager, hybridized and in a hybridized parent; samples of every kind."""

import enum
import logging
import re
from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics.errors import DTypeError, HybridLabError, MissingGraphError, ShapeError
from hybrid_lab.hybridize.structure import flatten, from_json, to_json
from hybrid_lab.ops.framework.dtypes import DTYPES, dtype_of
from tests.ids import without_address

Pair = namedtuple("Pair", ["first", "second"])


class Color(enum.Enum):
    RED = 3


class Settings:
    factor = 3


def doubled(x):
    return x * 2


X = nd.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
PLAIN = [2, 2.5, True, None, "tanh", (1, 2), [1, 2], {"a": 2}, Pair(2, 3), [], (), {}, float("nan"), 10**20]
NUMPY = [np.float32(2), np.float64(2.5), np.int64(3), np.uint8(2), np.bool_(True), np.float16(0.5)]
DATA = [np.dtype("float16"), np.float16, mx.cpu(), mx.cpu(1), slice(0, 1), slice(None), range(1, 3), 1 + 2j, b"ab", ...]
NESTED = [{"a": [np.float32(2), slice(0, 1)]}, (np.int64(2), [np.dtype("float64")])]
CONSTANTS = [*PLAIN, *NUMPY, *DATA, *NESTED]
OBJECTS = [
    doubled,
    Settings(),
    Settings,
    Color.RED,
    {1, 2},
    frozenset([1]),
    np.array([1.0, 2.0]),
    gluon.nn.Activation("relu"),
]


def use(argument, x):
    """A computation that depends on the argument, whatever it is."""
    if argument is None:
        return x + 1
    if isinstance(argument, (bool, np.bool_)):
        return x + 1 if argument else x
    if isinstance(argument, (int, float, np.number)):
        return x * argument if abs(argument) < 1e9 else x
    if isinstance(argument, np.ndarray):
        return x * float(argument.ravel()[-1])
    if isinstance(argument, str):
        return getattr(x, argument)()
    if isinstance(argument, slice):
        return x[argument]
    if isinstance(argument, np.dtype) or (isinstance(argument, type) and issubclass(argument, np.generic)):
        return x.astype(argument)
    if isinstance(argument, Settings) or argument is Settings:
        return x * argument.factor
    if isinstance(argument, enum.Enum):
        return x * argument.value
    if isinstance(argument, dict):
        argument = list(argument.values())
    if isinstance(argument, (list, tuple, range)):
        for item in argument:
            x = use(item, x)
        return x
    return argument(x) if callable(argument) else x - 1


class Eager(gluon.Block):
    def forward(self, x, argument):
        return use(argument, x)


class Hybrid(gluon.HybridBlock):
    def hybrid_forward(self, F, x, argument):
        return use(argument, x)


class Parent(gluon.HybridBlock):
    def __init__(self, argument):
        super().__init__()
        self.argument = argument
        with self.name_scope():
            self.child = Hybrid()

    def hybrid_forward(self, F, x):
        return self.child(x, self.argument) + 1


def same(result, wanted):
    return result.dtype == wanted.dtype and np.array_equal(result.asnumpy(), wanted.asnumpy(), equal_nan=True)


@pytest.mark.parametrize("argument", [*CONSTANTS, *OBJECTS], ids=without_address)
def test_an_argument_of_every_kind(argument):
    wanted = Eager()(X, argument)
    net = Hybrid()
    assert same(net(X, argument), wanted)
    net.hybridize(engine="numpy")
    assert same(net(X, argument), wanted) and same(net(X, argument), wanted)
    for active in (False, True):
        parent = Parent(argument)
        parent.hybridize(active, engine="numpy")
        assert same(parent(X), wanted + 1)


@pytest.mark.parametrize("argument", CONSTANTS, ids=without_address)
def test_constants_are_part_of_the_signature_and_of_files(argument, tmp_path):
    net = Hybrid()
    net.hybridize(engine="numpy")
    wanted = net(X, argument)
    other = net(X, 7)
    assert same(net(X, argument), wanted) and same(net(X, 7), other)
    spec = flatten((X, argument))[1]
    assert from_json(to_json(spec))[1][1] == spec[1][1] or isinstance(argument, Pair)
    net.save(tmp_path / "net.hlab")
    loaded = gluon.load(tmp_path / "net.hlab")
    given = tuple(argument) if isinstance(argument, Pair) else argument
    assert same(loaded(X, given), wanted) and same(loaded(X, 7), other)


def test_constants_of_another_type_or_value_are_another_signature():
    different = [2, 2.0, True, np.float32(2), np.float64(2), np.int64(2), np.int32(2), np.float32(-0.0), np.float32(0)]
    different += [slice(0, 2), slice(0, 2, 1), range(2), range(0, 2, 2), np.dtype("float32"), np.float32, "float32"]
    different += [np.dtype(dtype_of(name)) for name in DTYPES if name not in ("bfloat16", "float32")]
    different += [mx.cpu(), mx.cpu(1), mx.gpu(0), b"a", "a", 1j, 2j, ..., None, [2], (2,)]
    specs = [flatten((X, item))[1] for item in different]
    assert len(set(specs)) == len(different)


@pytest.mark.parametrize(
    "data",
    [["scalar", "float32", "00"], ["scalar", "object", ""], ["dtype", "nothing"], ["type", 3], ["context", "disk", 0],
     ["slice", 1], ["range", 1, 2, 0], ["complex", "a", "b"], ["bytes", "xyz"], ["pickle", "00"], [], {},
     "ellipsis", None],
)  # fmt: skip
def test_damaged_constants_in_files_are_typed_errors(data):
    with pytest.raises(HybridLabError, match="is not a constant of a call"):
        from_json({"constant": data})


@pytest.mark.parametrize("argument", OBJECTS, ids=without_address)
def test_calls_with_objects_run_eagerly_and_say_so(argument, caplog):
    net = Hybrid()
    net.hybridize(engine="numpy")
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        net(X, argument)
        net(X, argument)
    assert caplog.text.count("such calls run eagerly") == 1
    net.hybridize(engine="numpy", strict=True)
    with pytest.raises(HybridLabError, match="which a graph does not take"):
        net(X, argument)


# -- samples in a DataLoader -----------------------------------------------------------------------------------------


def row(index):
    return np.full((2,), index, "float32")


SAMPLES = {
    "dict": (lambda i: {"x": row(i), "y": i}, {"x": (2, 2), "y": (2,)}),
    "dict of NDArrays": (lambda i: {"x": nd.array(row(i)), "y": float(i)}, {"x": (2, 2), "y": (2,)}),
    "OrderedDict": (lambda i: OrderedDict(x=row(i), y=i), {"x": (2, 2), "y": (2,)}),
    "dict with texts": (lambda i: {"x": row(i), "name": f"n{i}"}, {"x": (2, 2), "name": ["n0", "n1"]}),
    "nested": (lambda i: (row(i), {"b": (i, [row(i), row(i)])}), [(2, 2), {"b": [(2,), (2, 2, 2)]}]),
    "namedtuple": (lambda i: Pair(row(i), i), [(2, 2), (2,)]),
    "tuple": (lambda i: (nd.array(row(i)), i), [(2, 2), (2,)]),
    "texts": (lambda i: f"n{i}", ["n0", "n1"]),
    "tuple with texts": (lambda i: (row(i), f"n{i}", b"b"), [(2, 2), ["n0", "n1"], [b"b", b"b"]]),
    "numbers": (lambda i: i, (2,)),
    "bools": (lambda i: i > 0, (2,)),
    "NumPy scalars": (lambda i: np.int64(i), (2,)),
    "mx.np": (lambda i: mx.np.array(row(i)), (2, 2)),
}


def shapes(batch):
    if isinstance(batch, dict):
        return {key: shapes(part) for key, part in batch.items()}
    if isinstance(batch, list):
        return [shapes(part) for part in batch]
    return batch.shape if isinstance(batch, nd.NDArray) else batch


class Level(enum.IntEnum):
    LOW = 2


class Name(enum.StrEnum):
    TANH = "tanh"


class Share(float):
    pass


@pytest.mark.parametrize("argument", [Level.LOW, Name.TANH, Share(0.5), [Level.LOW]], ids=repr)
def test_files_hold_the_plain_value_of_a_number_or_text_of_another_class(argument, tmp_path):
    net = Hybrid()
    wanted = net(X, argument)
    net.save(tmp_path / "net")
    assert same(gluon.load(tmp_path / "net.hlab")(X, argument), wanted)
    assert net.load(tmp_path / "net").graphs


@pytest.mark.parametrize("call", [lambda net: net(X, doubled), lambda net: net(X, {1, 2})])
def test_the_cause_is_named_where_no_graph_takes_the_arguments(call, tmp_path, caplog):
    net = Hybrid()
    call(net)
    said = "none of hybrid.*, which was called with an object that is neither.*; no graph takes such arguments"
    net.save(tmp_path / "net")
    assert re.search(said, caplog.text) and "never called" not in caplog.text
    for export in (lambda: net.export(str(tmp_path / "net")), lambda: mx.onnx.export(net, tmp_path / "net.onnx")):
        with pytest.raises(MissingGraphError, match="which was called with an object"):
            export()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("sample", "wanted"), SAMPLES.values(), ids=SAMPLES)
def test_batches_of_samples_of_every_kind(sample, wanted, workers):
    samples = gluon.data.SimpleDataset([sample(index) for index in range(4)])
    first, second = gluon.data.DataLoader(samples, 2, num_workers=workers)
    assert shapes(first) == wanted and type(first) is type(second)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("samples", "error", "text"),
    [
        ([None, None], DTypeError, "holds None of type NoneType"),
        ([object(), object()], DTypeError, "which is no array, number or text"),
        ([{"a": 1}, {"b": 1}], ShapeError, "dicts with different keys"),
        ([(1, 2), (1,)], ShapeError, "tuples of different lengths"),
        ([(row(0), None), (row(1), None)], DTypeError, "batchify_fn"),
        ([1, "a"], DTypeError, "holds 'a' of type str"),
        ([np.ones(1), np.ones(2)], ShapeError, "different shapes"),
    ],
)
def test_samples_that_make_no_batch_are_typed_errors(samples, error, text, workers):
    with pytest.raises(error, match=text):
        next(iter(gluon.data.DataLoader(gluon.data.SimpleDataset(samples), 2, num_workers=workers)))
