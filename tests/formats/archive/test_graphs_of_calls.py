"""Which of a Block's calls have graphs in files: none is lost without a word, and no error of the code stops a save."""

from __future__ import annotations

import collections
import copy
import enum
import logging
import pickle

import numpy
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics.errors import FewerGraphsError, HybridLabError, LoadMismatchError, MissingGraphError
from hybrid_lab.gluon import nn
from hybrid_lab.hybridize.known_calls import MAX_CALLS

X = nd.array(numpy.arange(8, dtype="float32").reshape(2, 4))
MASK = nd.array([[0, 1, 2], [3, 4, 5]])


class Scaled(gluon.HybridBlock):
    """Dense, times an optional second argument."""

    error: BaseException | None = None
    reads_mask = False

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(3)

    def hybrid_forward(self, F, x, factor=None):
        if self.error is not None:
            raise self.error
        y = self.dense(x)
        if factor is None:
            return y
        if self.reads_mask and factor.sum().asscalar() > 0:
            y = y + 1
        return y * factor


class OfShapes(gluon.HybridBlock):
    """Each number of rows has a graph of its own."""

    def __init__(self):
        super().__init__()
        self.small, self.large = nn.Dense(3), nn.Dense(3)

    def forward(self, x, factor=1.0):
        return (self.small if x.shape[0] < 5 else self.large)(x) * factor * x.shape[0]


def made(kind, **attributes):
    net = kind()
    for name, value in attributes.items():
        setattr(net, name, value)
    net.initialize()
    return net


def rows(count):
    return nd.ones((count, 4))


MANY = {
    "shapes": lambda net, number: net(rows(number + 1)),
    "floats": lambda net, number: net(X, number / 2),
    "numbers": lambda net, number: net(X, number),
    "training": lambda net, number: recorded(net, rows(number + 1)),
}


def recorded(net, *args):
    with autograd.record():
        return net(*args)


@pytest.mark.each_value
@pytest.mark.parametrize("hybridize", [False, True], ids=["eager", "hybridized"])
@pytest.mark.parametrize("many", MANY)
@pytest.mark.parametrize("kind", [Scaled, OfShapes])
def test_many_calls_of_one_form_push_out_no_other(kind, many, hybridize, tmp_path):
    net = made(kind)
    if hybridize:
        net(X)
        net.hybridize()
    factor = MASK if kind is Scaled else nd.array([2.0])
    once = net(X, factor)
    for number in range(2 * MAX_CALLS):
        MANY[many](net, number)
    opened = gluon.load(net.save(tmp_path / "net"))
    assert numpy.allclose(opened(X, factor).asnumpy(), once.asnumpy())


@pytest.mark.parametrize("hybridize", [False, True], ids=["eager", "hybridized"])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_has_the_calls(copied, hybridize, tmp_path):
    net = made(Scaled)
    net.hybridize(hybridize)
    y = net(X)
    assert numpy.array_equal(gluon.load(copied(net).save(tmp_path / "net"))(X).asnumpy(), y.asnumpy())


class Own(Exception):
    """An error of the user's."""


ERRORS = [
    RuntimeError("no"), AssertionError("no"), NameError("no"), NotImplementedError("no"), OSError("no"), Own("no"),
    ValueError("no"), KeyError("no"), ZeroDivisionError("no"), StopIteration("no"), NotImplementedError(),
]  # fmt: skip


@pytest.mark.parametrize("hybridize", [False, True], ids=["eager", "hybridized"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_code_that_fails_now_stops_no_save(error, hybridize, tmp_path, caplog):
    net = made(Scaled)
    net.hybridize(hybridize)
    net(X)
    net.error = error
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        path = net.save(tmp_path / "net")
    assert type(error).__name__ in caplog.text and "no graph" in caplog.text
    assert gluon.load(path).dense(X).shape == (2, 3)  # what ran before
    with pytest.raises(MissingGraphError, match=type(error).__name__):
        net.export(str(tmp_path / "one"))


def test_a_save_names_each_form_of_calls_that_has_no_graph(tmp_path, caplog):
    net = made(Scaled, reads_mask=True)
    net(X, MASK)
    net(X)  # the latest call has one
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        net.save(tmp_path / "net")
    assert "no graph was saved of the calls (tensor, tensor) of scaled" in caplog.text and "HL111" in caplog.text


def test_export_of_an_earlier_call_says_so(tmp_path, caplog):
    net = made(Scaled, reads_mask=True)
    net(X)
    net(X, MASK)
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        net.export(str(tmp_path / "net"))
    assert "no graph of the latest call of scaled" in caplog.text and "the call (tensor,) is taken" in caplog.text


class ByKeyword(Scaled):
    def __call__(self, x, *, factor):
        return super().__call__(x, factor)


class OfObjects(Scaled):
    def forward(self, x, given):
        return self.dense(x) * given.factor


class Given:
    factor = 2


@pytest.mark.parametrize("hybridize", [False, True], ids=["eager", "hybridized"])
@pytest.mark.parametrize("kind", [ByKeyword, OfObjects])
def test_a_save_names_a_block_whose_calls_no_graph_takes(kind, hybridize, tmp_path, caplog):
    net = made(kind)
    net.hybridize(hybridize)
    net(X, factor=MASK) if kind is ByKeyword else net(X, Given())
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        net.save(tmp_path / "net")
    assert f"no graph was saved of {net.name}, which was called with" in caplog.text


def test_graphs_of_one_block_do_not_stand_for_those_of_another(tmp_path):
    net = made(OfShapes)
    net(rows(2)), net(rows(9))
    path = net.save(tmp_path / "net")
    again = made(OfShapes)
    for count in (5, 6, 7, 8):
        again(rows(count))
    with pytest.raises(FewerGraphsError) as raised:
        again.save(path)
    assert raised.value.lost == ["small"]
    with pytest.raises(HybridLabError, match="overwrite must be 'fewer graphs', not True"):
        again.save(path, overwrite=True)
    assert again.save(path, overwrite="fewer graphs") == path


def test_a_checkpoint_replaces_one_of_its_step(tmp_path):
    net = made(OfShapes)
    manager = mx.checkpoint.Manager(tmp_path, net)
    net(X)
    manager.save(1)
    for count in (3, 4):
        net(rows(count))
    manager.save(2)
    again = made(OfShapes)
    manager = mx.checkpoint.Manager(tmp_path, again)
    assert manager.restore(1).step == 1
    manager.save(2)
    assert manager.restore().step == 2


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_load_names_the_error_of_code_that_cannot_be_compared(error, tmp_path):
    net = made(Scaled)
    net(X)
    path = net.save(tmp_path / "net")
    again = made(Scaled, error=error)
    before = again.dense.weight
    with pytest.raises(LoadMismatchError, match="nothing was loaded") as raised:
        again.load(path)
    assert type(error).__name__ in raised.value.differences[0] and again.dense.weight is before


Pair = collections.namedtuple("Pair", "x factor")


class OfPairs(Scaled):
    def forward(self, pair):
        return self.dense(pair.x) * pair.factor


def test_a_save_after_a_load_names_calls_whose_classes_the_file_has_not(tmp_path, caplog):
    net = made(OfPairs)
    y = net(Pair(X, MASK))
    again = made(OfPairs)
    again.load(net.save(tmp_path / "net"))
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        again.save(tmp_path / "again")
    assert f"no graph was saved of {again.name}: AttributeError" in caplog.text
    caplog.clear()
    again(Pair(X, MASK))
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        opened = gluon.load(again.save(tmp_path / "again"))
    assert not caplog.text
    assert numpy.array_equal(opened((X, MASK)).asnumpy(), y.asnumpy())


class Word(str, enum.Enum):  # noqa: UP042 - the older form, whose str() is not the value
    HALF = "half"


class Number(enum.IntEnum):
    TWO = 2


class Chosen(Scaled):
    def hybrid_forward(self, F, x, choice):
        y = self.dense(x)
        return y / 2 if choice == Word.HALF else y * choice


MEMBERS = [Word.HALF, Number.TWO]


@pytest.mark.parametrize("hybridize", [False, True], ids=["eager", "hybridized"])
@pytest.mark.parametrize("member", MEMBERS, ids=repr)
@pytest.mark.parametrize("again", ["new", "pickled", "copied", "loaded", "opened"])
def test_members_of_an_enum_choose_a_graph(again, member, hybridize, tmp_path):
    net = made(Chosen)
    net.hybridize(hybridize)
    y = net(X, member).asnumpy()
    if again == "pickled":
        net = pickle.loads(pickle.dumps(net))
    elif again == "copied":
        net = copy.deepcopy(net)
    elif again == "loaded":
        path, net = net.save(tmp_path / "before"), made(Chosen)
        net.load(path)
    elif again == "opened":
        net = gluon.load(net.save(tmp_path / "before"))
    opened = gluon.load(net.save(tmp_path / "net"))
    for active in (False, True):
        opened.hybridize(active)
        for choice in (member, member.value):
            assert numpy.allclose(opened(X, choice).asnumpy(), y)


@pytest.mark.parametrize("hybridize", [False, True], ids=["eager", "hybridized"])
def test_an_opened_model_exports_the_graph_of_its_latest_call(hybridize, tmp_path):
    net = made(Scaled)
    plain, scaled = net(X), net(X, MASK)
    opened = gluon.load(net.save(tmp_path / "net"))
    opened.hybridize(hybridize)
    opened(X, MASK)
    opened(X, None)  # of the graph of net(x)
    for call, y in (((X, None), plain), ((X, MASK), scaled)):
        opened(*call)
        symbol, _ = opened.export(str(tmp_path / "one"))
        names = [name for name in mx.sym.load(symbol).list_arguments() if "dense" not in name]
        given = [item for item in call if item is not None]
        assert len(names) == len(given)
        block = gluon.SymbolBlock.imports(symbol, names, str(tmp_path / "one-0000.params"))
        assert numpy.allclose(block(*given).asnumpy(), y.asnumpy())


def test_a_pickle_keeps_calls_with_named_tuples(tmp_path):
    net = made(OfPairs)
    y = net(Pair(X, MASK))
    opened = gluon.load(pickle.loads(pickle.dumps(net)).save(tmp_path / "net"))
    assert numpy.array_equal(opened((X, MASK)).asnumpy(), y.asnumpy())


def test_a_pickle_without_a_call_says_so_at_the_save(tmp_path, caplog):
    net = made(OfPairs)
    net(collections.namedtuple("Local", "x factor")(X, MASK))
    again = pickle.loads(pickle.dumps(net))
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        again.save(tmp_path / "net")
    assert f"no graph was saved of {again.name}" in caplog.text


def test_messages_name_a_block_without_a_name(tmp_path, caplog):
    net = made(lambda: gluon.rnn.BidirectionalCell(gluon.rnn.RNNCell(3), gluon.rnn.RNNCell(3)))
    net.unroll(2, nd.ones((1, 2, 4)))
    net.note = object()
    with caplog.at_level(logging.INFO, "hybrid_lab"):
        net.save(tmp_path / "net")
    assert all(message.startswith("BidirectionalCell: ") for message in caplog.messages)
    assert "because they were never called: BidirectionalCell" in caplog.text


@pytest.mark.parametrize("many", MANY)
@pytest.mark.parametrize("kind", [Scaled, OfShapes])
def test_a_save_names_calls_that_were_too_many(kind, many, tmp_path, caplog):
    net = made(kind)
    for number in range(2 * MAX_CALLS):
        MANY[many](net, number)
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        opened = gluon.load(net.save(tmp_path / "net"))
    with autograd.train_mode() if many == "training" else autograd.predict_mode():
        try:
            MANY[many](opened, 0)
            lost = False
        except MissingGraphError:
            lost = True
    assert lost is (f"no graph was saved of earlier calls of {net.name}" in caplog.text)


def test_texts_that_utf_8_has_not_are_arguments_of_files(tmp_path):
    class Length(Scaled):
        def hybrid_forward(self, F, x, text):
            return self.dense(x) * len(text)

    net = made(Length)
    y = net(X, "a\ud800")
    opened = gluon.load(net.save(tmp_path / "net"))
    assert numpy.array_equal(opened(X, "a\ud800").asnumpy(), y.asnumpy())
