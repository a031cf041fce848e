"""Brackets on a tensor: every kind of key gives the same eagerly, in a graph and in files, or is a typed error."""

import itertools

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics.errors import ArrayIndexError, HybridLabError, Unmappable
from hybrid_lab.diagnostics.hybridize_error import HybridizeError
from tests.ids import without_address

S = slice
SHAPES = [(3,), (3, 4), (2, 3, 4, 2)]
NUMBERS = [0, -1, 1, 5, -5, np.int64(1), np.array(1), True, np.False_]
RANGES = [S(a, b, c) for a, b, c in itertools.product((None, -2), (None, 2, 9), (None, 2, -1))]
ADDED = [None, ..., (..., None), (None, ...), (..., None, S(None)), (0, None), (None, 0, ..., None), (..., 0, None)]
POSITIONS = [
    [0, 2], [0, -1, 0], [], [[0, 1], [1, 0]], (0, 1), ((0, 1),), range(2), np.array([1, 0]), np.array([1.0, 0.0]),
    np.array([[1], [0]], "uint8"), [9], [-9],
]  # fmt: skip
MASKS = [[True, False, True], [True, False], np.array([True, True, False]), np.eye(3, 4, dtype=bool)]
NO_KEYS = ["a", 1.5, object(), S(0.5, 2), S(None, None, 0), (..., ...), ([0, 1], [0, 1, 2]), {"a": 1}, [None], ["a"]]
MIXED = [
    (S(None), [0, 2]), ([0, 1], S(None), [1, 0]), (S(None), [0, 1], [1, 0]), ([0, 1], 1), (0, S(None), [1, 0]),
    ([[0], [1]], [0, 1]), (..., [0, 1]), ([0, 1], None, [1, 0]), ([0], ..., [0]),
    (S(None, None, -1), [1, 0], S(1, None)),
    ([True, False, True], 0), ([True, False, True], [0, 1]), (S(None), [True, False, True]), (True, [0, 1]), (0, 0),
    (0, ..., 0), (S(1, None), ..., S(1, None)), (S(None, None, 2), ..., S(None, None, -1)), (..., S(1, None, 2), None),
    (S(None), S(None)), (S(None), None, S(None)), (0, 0, 0, 0, 0), (1, ..., [0, 1], None), (np.int32(1), np.int64(0)),
]  # fmt: skip
KEYS = [*NUMBERS, *RANGES, *ADDED, *POSITIONS, *MASKS, *MIXED, *((..., part) for part in RANGES), *NO_KEYS]


def random_keys(count):
    random = np.random.RandomState(3)
    parts = [0, -1, None, ..., [0, 1], [1, -1], [[0, 1], [1, 0]], [True, False, True], *RANGES[::5]]
    return [tuple(parts[i] for i in random.randint(len(parts), size=random.randint(1, 5))) for _ in range(count)]


class Indexed(gluon.HybridBlock):
    def __init__(self, key):
        super().__init__()
        self.key = key

    def hybrid_forward(self, F, x):
        return (x * 1)[self.key]


class IndexedArray(Indexed):
    def forward(self, x):
        return (x * 1)[self.key]


def array(front, shape, first=1):
    values = np.arange(first, first + np.prod(shape), dtype="float32").reshape(shape)
    return getattr(mx, front).array(values)


def run(net, x):
    """Output and gradient, or the HybridLabError that says why there is none."""
    x.attach_grad()
    try:
        with autograd.record():
            y = net(x)
            squared = y * y
        squared.backward()
    except HybridLabError as error:
        return error
    return y.asnumpy(), x.grad.asnumpy()


def assert_same(result, wanted, key):
    if isinstance(wanted, HybridLabError):
        assert isinstance(result, HybridLabError), (key, wanted)
        return
    assert not isinstance(result, HybridLabError), (key, result)
    for ours, reference in zip(result, wanted, strict=True):
        assert ours.shape == reference.shape, key
        np.testing.assert_array_equal(ours, reference, err_msg=repr(key))


@pytest.mark.each_value
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("front", ["nd", "np"])
def test_every_key_gives_the_same_in_a_graph(front, shape):
    accepted = 0
    for key in [*KEYS, *random_keys(120)]:
        wanted = run(Indexed(key), array(front, shape))
        accepted += not isinstance(wanted, HybridLabError)
        net = Indexed(key)
        net.hybridize(engine="numpy")
        assert_same(run(net, array(front, shape)), wanted, key)
    assert accepted > 100


@pytest.mark.parametrize("front", ["nd", "np"])
def test_every_key_in_code_that_sees_arrays_and_with_another_batch(front):
    for key in [*KEYS, *random_keys(20)]:
        net = IndexedArray(key)
        net.hybridize(engine="numpy")
        for shape in ((3, 4), (6, 4), (2, 4)):
            assert_same(run(net, array(front, shape)), run(Indexed(key), array(front, shape)), key)


@pytest.mark.parametrize("engine", ["onnxruntime", "torch"])
def test_other_engines(engine):
    pytest.importorskip(engine)
    for key in [[0, -1, 0], MASKS[-1], *MIXED[:8]]:
        net = Indexed(key)
        net.hybridize(engine=engine)
        assert_same(run(net, array("np", (3, 3, 4))), run(Indexed(key), array("np", (3, 3, 4))), key)


@pytest.mark.parametrize("front", ["nd", "np"])
def test_archives(front, tmp_path):
    for key in [*NUMBERS, *RANGES[::5], *ADDED, *POSITIONS, *MASKS, *MIXED]:
        wanted = run(Indexed(key), array(front, (3, 3, 4)))
        if isinstance(wanted, HybridLabError):
            continue
        net = Indexed(key)
        net.hybridize(engine="numpy")
        net(array(front, (3, 3, 4)))
        net.save(tmp_path / "net.hlab")
        assert_same(run(gluon.load(tmp_path / "net.hlab"), array(front, (3, 3, 4))), wanted, key)


@pytest.mark.parametrize("front", ["nd", "np"])
def test_histories_and_symbols(front):
    for key in [*NUMBERS, *RANGES[::3], *ADDED, *MIXED]:
        x = array(front, (3, 3, 4))
        wanted = run(Indexed(key), x)
        if isinstance(wanted, HybridLabError):
            continue
        variable = mx.sym.var("x")
        symbols = [(variable.as_np_ndarray() if front == "np" else variable)[key]]
        with autograd.record():
            y = x[key]
        parts = key if isinstance(key, tuple) else [key]
        if not any(isinstance(part, (list, bool, np.ndarray, np.bool_)) for part in parts):
            symbols.append(autograd.get_symbol(y))
        for symbol in symbols:
            assert_same(symbol.eval(**{symbol.list_arguments()[0]: x})[0].asnumpy(), wanted[0], key)


@pytest.mark.parametrize("key", [(..., None), (..., None, S(None)), (0, ..., None), (S(1, None), ..., 0), (0, None)])
def test_keys_that_mxnet_can_express_are_exported(key, tmp_path):
    net = Indexed(key)
    net.hybridize(engine="numpy")
    wanted = net(array("nd", (2, 3, 4))).asnumpy()
    net.export(tmp_path / "net")
    loaded = gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), ["data"])
    np.testing.assert_array_equal(loaded(array("nd", (2, 3, 4))).asnumpy(), wanted)


@pytest.mark.parametrize("front", ["nd", "np"])
def test_mxnets_files_have_a_key_as_several_operators_or_refuse_it(front, tmp_path):
    refused = []
    for key in [*NUMBERS, *RANGES, *ADDED, *POSITIONS, *MASKS, *MIXED, *((..., part) for part in RANGES)]:
        wanted = run(Indexed(key), array(front, (3, 3, 4)))
        if isinstance(wanted, HybridLabError):
            continue
        net = Indexed(key)
        net.hybridize(engine="numpy")
        net(array(front, (3, 3, 4)))
        try:
            net.export(tmp_path / "net")
        except Unmappable as error:
            assert "MXNet's files have no operator _index" in str(error)
            refused.append(repr(key))
            continue
        files = [str(tmp_path / name) for name in ("net-symbol.json", "net-0000.params")]
        loaded = gluon.SymbolBlock.imports(files[0], ["data"], files[1])
        assert_same(run(loaded, array(front, (3, 3, 4))), wanted, key)
    assert repr(([0, 1], S(None), [1, 0])) in refused and len(refused) < 25, refused


def test_other_positions_make_another_graph():
    net = Indexed((S(None), [0, 2]))
    net.hybridize(engine="numpy")
    assert net(array("nd", (1, 3))).asnumpy().tolist() == [[1, 3]]
    net.key = (S(None), [1, 2])
    assert net(array("nd", (1, 3))).asnumpy().tolist() == [[2, 3]]


@pytest.mark.parametrize("index", [nd.array([0, 1]), mx.np.array([0, 1])], ids=["nd", "np"])
def test_a_tensor_as_an_index_is_a_clear_error(index):
    net = Indexed(index)
    net.hybridize()
    with pytest.raises(HybridizeError, match="HL133"):
        net(array("nd", (3, 4)))


@pytest.mark.parametrize("front", ["nd", "np"])
@pytest.mark.parametrize("key", NO_KEYS, ids=without_address)
def test_what_is_no_key_is_a_typed_error(key, front):
    x = array(front, (3, 4))
    with pytest.raises(ArrayIndexError):
        x[key]
    with pytest.raises(ArrayIndexError):
        x[key] = 1
