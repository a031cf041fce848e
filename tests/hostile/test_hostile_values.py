"""Hostile values in every place of every kind of file: a typed error in bounded time, or a file that is read; a load
that is refused changes nothing. `HYBRID_LAB_HOSTILE=n` tries n values for each document instead of a few.
"""

# ruff: noqa: B023 - each function is called before the loop goes on

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import json
import os
import random
import signal

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.formats.archive import inspect as inspect_archive
from hybrid_lab.formats.archive import open as opening
from hybrid_lab.formats.archive.container import MANIFEST, Container, ContainerWriter
from hybrid_lab.formats.archive.zip_layout import directory
from hybrid_lab.gluon import budget, nn, rnn
from hybrid_lab.gluon.nn import registry
from hybrid_lab.ndarray.random_state import all_states, set_all_states
from hybrid_lab.ops.framework.operator import records
from tests.hostile import hostile_values

COUNT = int(os.environ.get("HYBRID_LAB_HOSTILE", "16"))
LONGEST = 300.0
"""Seconds that one read may take on a busy machine."""
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="a read is stopped by a signal"),
]


class TooSlow(BaseException):
    """A read took too long."""


@contextlib.contextmanager
def in_time(what: str):
    def stop(*_):
        raise TooSlow(what)

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def is_read(what, read):
    """Whether `read()` succeeds; a typed error is one that says something. Others, and long reads, fail the test."""
    with in_time(what):
        try:
            read()
        except HybridLabError as error:
            assert str(error), what
            return False
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
    return True


# -- a model with one of everything ------------------------------------------------------------------------------------


class Reader(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embedding = nn.Embedding(5, 4)
            self.lstm = rnn.LSTM(3, input_size=4)
            self.scale = self.params.get_constant("scale", nd.ones((1,)))
            self.out = nn.Dense(2, in_units=3, flatten=False)

    def hybrid_forward(self, F, x, scale):
        return self.out(self.lstm(self.embedding(x))) * scale


class Model(gluon.Block):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.reader, self.images = Reader(), nn.HybridSequential()
            with self.images.name_scope():
                self.images.add(
                    nn.Conv2D(2, 3, in_channels=1), nn.BatchNorm(in_channels=2), nn.Dense(3), nn.Dropout(0.5)
                )
            self.later = nn.Dense(3)
        self.step, self.settings, self.array = 3, {"a": [1, 2.5]}, np.ones(3)

    def forward(self, x, y):
        return self.reader(x), self.images(y)


X, Y = (2, 3), (2, 1, 5, 5)


def made():
    """The model with values, and a Trainer that has done a step."""
    net = Model(prefix="model_")
    net.initialize()
    net.hybridize(engine="numpy")
    trainer = gluon.Trainer(net.collect_params(), "adam", {"lr_scheduler": mx.lr_scheduler.FactorScheduler(10)})
    with autograd.record():
        first, second = net(nd.zeros(X), nd.ones(Y))
        loss = first.sum() + second.sum()
    loss.backward()
    trainer.step(2, ignore_stale_grad=True)
    net(nd.zeros(X), nd.ones(Y))
    return net, trainer


def state(net, trainer):
    """What a failed load must leave as it was."""
    values = {name: each.data().asnumpy().tobytes() for name, each in net.collect_params().items() if each._data}
    settings, arrays = trainer.get_states()
    states = {name: array.tobytes() for name, array in arrays.items()}
    return values, json.dumps(settings, default=str), states, net.step, json.dumps(net.settings), str(all_states())


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archives")
    net, trainer = made()
    aux = {"a": [1, nd.ones(2), (1, 2)], "t": np.arange(3), "s": "x", "d": np.dtype("int8")}
    inputs = (nd.zeros(X), nd.ones(Y))
    mx.save_cached_graphs(net, folder / "model.hlab", trainer=trainer, inputs=inputs, aux=aux)
    mx.checkpoint.Manager(folder / "run", net, trainer).save(1, aux={"k": 1})
    return Container.open(folder / "model.hlab"), Container.open(folder / "run" / "step-00000001.hlab")


def rewritten(archive, member, document):
    """The archive with another document as one of its members, and digests that are right."""
    file = io.BytesIO()
    writer = ContainerWriter(file)
    for name in archive.names:
        if archive.holds_tensors(name):
            writer.add_tensors(name, archive.read_tensors(name), archive.tensors(name).metadata)
        else:
            writer.add(name, hostile_values.text_of(document) if name == member else archive.read(name))
    if member == MANIFEST:
        content = hostile_values.text_of(document)
        writer._write(MANIFEST, content)
        comment = f"hlab sha256 {hashlib.sha256(content).hexdigest()}".encode()
        file.write(directory(writer._entries, archive_comment(archive, comment)))
    else:
        writer.finish({})
    return file.getvalue()


def archive_comment(archive, comment):
    """The comment of a zip that is an archive: the prefix that this version writes, and the manifest's digest."""
    from hybrid_lab.formats.archive import container

    return container._COMMENT + comment.rpartition(b" ")[2]


MEMBERS = [
    *(MANIFEST, "tree.json", "graphs/reader.json", "graphs/reader.lstm.json", "graphs/images.json"),
    *("train/trainer.json", "train/random.json", "train/aux.json"),
]


@pytest.mark.parametrize("member", MEMBERS)
def test_archives(archives, member, tmp_path):
    source, path, good = archives[0], str(tmp_path / "m.hlab"), str(archives[0].path)
    document = source.manifest if member == MANIFEST else json.loads(source.read(member))
    net, trainer = made()
    refused = 0
    for what, changed in hostile_values.changed(document, COUNT):
        with open(path, "wb") as file:
            file.write(rewritten(source, member, changed))
        what = f"{member}: {what}"
        is_read(what, lambda: gluon.load(path, with_aux=True))
        is_read(what, lambda: inspect_archive(path))
        is_read(what, lambda: mx.diff(path, good))
        before = state(net, trainer)
        loaded = is_read(what, lambda: mx.load_cached_graphs(net, path, trainer=trainer))
        if not loaded:
            refused += 1
            assert state(net, trainer) == before, what
        else:  # what was accepted is good for a step
            with autograd.record():
                loss = net(nd.zeros(X), nd.ones(Y))[0].sum()
            loss.backward()
            is_read(what, lambda: trainer.step(2, ignore_stale_grad=True))
            net, trainer = made()
    assert refused


def test_checkpoints(archives, tmp_path):
    source = archives[1]
    (tmp_path / "run").mkdir()
    net, trainer = made()
    manager, refused = mx.checkpoint.Manager(tmp_path / "run", net, trainer), 0
    for member in ("train/checkpoint.json", "train/random.json", "tree.json"):
        if member not in source.names:
            continue
        for what, changed in hostile_values.changed(json.loads(source.read(member)), COUNT):
            (tmp_path / "run" / "step-00000001.hlab").write_bytes(rewritten(source, member, changed))
            assert is_read(what, manager.list)
            before = state(net, trainer)
            if is_read(what, manager.restore):
                net, trainer = made()
                manager = mx.checkpoint.Manager(tmp_path / "run", net, trainer)
            else:
                refused += 1
                assert state(net, trainer) == before, what
    assert refused


# -- settings of a Trainer ---------------------------------------------------------------------------------------------

OPTIMIZERS = [
    "sgd",
    "nag",
    "adam",
    "adagrad",
    "rmsprop",
    "ftrl",
    "adadelta",
    "adamax",
    "nadam",
    "signum",
    "lamb",
    "lars",
]
SCHEDULES = [
    *(None, mx.lr_scheduler.FactorScheduler(10), mx.lr_scheduler.MultiFactorScheduler([5, 10], 0.5)),
    *(mx.lr_scheduler.PolyScheduler(100), mx.lr_scheduler.CosineScheduler(100)),
]


def trained(optimizer, schedule):
    net = nn.Dense(2, in_units=2)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), optimizer, {"lr_scheduler": schedule} if schedule else {})
    step(net, trainer)
    return net, trainer


def step(net, trainer):
    with autograd.record():
        loss = net(nd.ones((1, 2))).sum()
    loss.backward()
    trainer.step(1)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_settings_of_a_trainer_are_checked_before_any_is_taken_over(optimizer):
    """A Trainer that took over settings makes a step with them; one that refused them is as it was."""
    for schedule in SCHEDULES:
        net, trainer = trained(optimizer, schedule)
        settings, arrays = trainer.get_states()
        for what, changed in hostile_values.changed(settings, COUNT // 2, seed=3):
            what = f"{optimizer}, {type(schedule).__name__}: {what}"
            before = json.dumps(trainer.get_states()[0])
            if not isinstance(changed, dict):
                continue
            if is_read(what, lambda: trainer.set_states(changed, arrays)):
                is_read(what, lambda: step(net, trainer))
                rate = trainer.learning_rate
                assert isinstance(rate, (int, float)) and np.isfinite(rate), what
                net, trainer = trained(optimizer, schedule)
            else:
                assert json.dumps(trainer.get_states()[0]) == before, what


@pytest.mark.parametrize("schedule", SCHEDULES[1:], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("update", [0, 1, 10**6, 2**52])
def test_schedules_answer_at_once(schedule, update):
    for factor in (1.0, 1 - 1e-12, 0.5):
        schedule.factor = factor
        with in_time(f"{schedule} at {update}"):
            assert np.isfinite(schedule(update))


RANDOM = {
    "numpy": [("state", "pos", value) for value in (-1, 625, 2**31, 2**63, 0.5, "1", None, True)]
    + [("has_gauss", None, value) for value in (2, -1, "x", None)]
    + [("state", "key", value) for value in ([1] * 623, [-1] * 624, "x", np.zeros(624), np.zeros((624, 1), "uint32"))],
    "mx": [
        (key, None, value)
        for key in ("draws", "initializer_draws", "epochs")
        for value in (-1, 2**62, 2**64, "x", None)
    ]
    + [("seed", None, value) for value in (-1, 2**64, "x", None)],
}


@pytest.mark.parametrize("part", RANDOM)
def test_random_states_are_all_taken_over_or_none(part):
    before = str(all_states())
    for key, inner, value in RANDOM[part]:
        saved = all_states()
        if inner is None:
            saved[part] = {**saved[part], key: value}
        else:
            saved[part] = {**saved[part], key: {**saved[part][key], inner: value}}
        with pytest.raises(HybridLabError):
            set_all_states(saved)
        assert str(all_states()) == before, (key, inner, value)


# -- counts ------------------------------------------------------------------------------------------------------------


def with_layers(path, number):
    """A file whose tree asks for so many layers of an LSTM."""
    net = rnn.LSTM(3, input_size=2)
    net.initialize()
    net.hybridize(engine="numpy")
    net(nd.ones((1, 1, 2)))
    net.save(path)
    source = Container.open(path)
    document = json.loads(source.read("tree.json"))
    document["blocks"][0]["config"]["num_layers"] = number
    return rewritten(source, "tree.json", document)


@pytest.mark.parametrize("number", [10**5, 10**8, 2**63])
def test_a_file_makes_no_more_blocks_than_it_lists(tmp_path, number, monkeypatch):
    blocks, init = [], gluon.Block.__init__

    def counted(block, *args, **options):
        blocks.append(type(block).__name__)
        assert len(blocks) <= 1000
        init(block, *args, **options)

    monkeypatch.setattr(gluon.Block, "__init__", counted)
    path = tmp_path / "m.hlab"
    path.write_bytes(with_layers(path, number))
    for read in (gluon.load, opening.structure):
        blocks.clear()
        with pytest.raises(HybridLabError, match="more Blocks and parameters than the file lists"):
            read(path)
        assert len(blocks) <= 100


def test_a_class_of_the_users_makes_no_more_blocks_than_the_file_lists(tmp_path):
    @gluon.register
    class Tower(gluon.HybridBlock):
        def __init__(self, floors=2, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.floors = nn.HybridSequential()
                for _ in range(floors):
                    self.floors.add(nn.Dense(2, in_units=2))

        def hybrid_forward(self, F, x):
            return self.floors(x)

    path = tmp_path / "m.hlab"
    net = Tower()
    net.initialize()
    net.save(path)
    assert len(gluon.load(path).floors) == len(Tower(str(path)).floors) == 2
    source = Container.open(path)
    document = json.loads(source.read("tree.json"))
    document["blocks"][0]["config"] = {"floors": 10**9}
    path.write_bytes(rewritten(source, "tree.json", document))
    for read in (lambda: gluon.load(path), lambda: Tower(str(path))):
        with in_time("Tower"), pytest.raises(HybridLabError, match="more Blocks and parameters"):
            read()


class Widened(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.sum(F.one_hot(x, 7))


class Repeated(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        _, (last,) = F.contrib.while_loop(lambda i: i.sum() < 3, lambda i: (i, (i + 1,)), (x,), max_iterations=5)
        return last


@pytest.mark.parametrize(
    "block, name, given, huge",
    [(Widened, "depth", "7", "2000000000"), (Repeated, "max_iterations", "5", "999999999")],
)
def test_an_example_that_would_run_for_hours_is_refused(block, name, given, huge, tmp_path):
    path, net = str(tmp_path / "m.hlab"), block(prefix="net_")
    net.hybridize(engine="numpy")
    net(nd.zeros((1,)))
    net.save(path)
    gluon.load(path)
    source = Container.open(path)
    document = json.loads(source.read("graphs/__root__.json"))
    found = [node for node in document["nodes"] if node.get("attrs", {}).get(name) == given]
    for node in found:
        node["attrs"][name] = huge
    assert found
    data = rewritten(source, "graphs/__root__.json", document)
    with open(path, "wb") as file:
        file.write(data)
    with in_time(name), pytest.raises(HybridLabError, match="GiB for one array|loop of up to"):
        gluon.load(path)


BIG = [10**9, 10**18, -1, 0, 2**63 - 1, 1e308, "x" * 3000, [10**9] * 2, [2] * 100_000, [[1] * 1000] * 100, None, "O"]


def arguments_of(cls):
    """Arguments with which a layer can be made, as far as they are easily found."""
    parameters = inspect.signature(cls.__init__).parameters
    needed = [
        name
        for name, each in parameters.items()
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    for value in (2, (2, 2), "relu", 0.5, [2, 2], [[2, 2]], rnn.LSTMCell(2)):
        with contextlib.suppress(Exception):
            arguments = dict.fromkeys(needed[1:], value)
            cls(**arguments)
            return arguments
    return {"input_shape": (2, 8, 8), "hidden_channels": 2, "i2h_kernel": 3, "h2h_kernel": 3}


@pytest.mark.long
def test_layers_are_made_or_refused_at_once_whatever_a_file_gives_them():
    opening.load_layers()
    layers = {name: cls for name, cls in registry.classes().items() if cls.__module__.startswith("hybrid_lab.")}
    assert len(layers) > 80
    tried = 0
    for name, cls in sorted(layers.items()):
        arguments = arguments_of(cls)
        for argument in sorted(registry._arguments_of(cls)):
            for value in BIG:
                tried += 1
                with in_time(f"{name}({argument}={str(value)[:20]})"), contextlib.suppress(*opening._FAILURES):
                    with budget.at_most(1000):
                        cls(**{**arguments, argument: value})
    assert tried > 5000


# -- symbol JSON -------------------------------------------------------------------------------------------------------


def test_attributes_of_every_operator():
    """Each record's own attributes, one after the other, as texts in a symbol file: its shapes follow, or it is
    refused.
    """
    texts = [*hostile_values.TEXTS, *hostile_values.ATTRIBUTES, *hostile_values.DTYPES]
    chance, tried, covered = random.Random(5), 0, 0
    for record in records():
        made_of = _symbol_of(record)
        if made_of is None:
            continue
        covered += 1
        symbol, shapes = made_of
        text = symbol.tojson()
        document = json.loads(text)
        last = max(head[0] for head in document["heads"])
        names = sorted({*document["nodes"][last].get("attrs", {}), *record.fields})
        pairs = [(name, value) for name in names if not name.startswith("_") for value in texts]
        for name, value in chance.sample(pairs, min(len(pairs), max(8, COUNT // 2))):
            changed = json.loads(text)
            changed["nodes"][last].setdefault("attrs", {})[name] = value
            tried += 1

            def read(changed=changed, shapes=shapes):
                loaded = mx.sym.load_json(json.dumps(changed))
                loaded.infer_shape(**shapes)
                loaded.infer_type()

            is_read(f"{record.name}: {name}={value[:40]!r}", read)
    assert covered > 300 and tried > 5 * covered


def _symbol_of(record):
    """A Symbol of the record's first sample that can be written, and the shapes of its variables."""
    for sample in record.samples:
        with contextlib.suppress(Exception):
            arrays = sample.arrays(record.name)
            inputs = [item if np.isscalar(item) else mx.sym.var(f"v{index}") for index, item in enumerate(arrays)]
            function = getattr(mx.sym, record.name, None) or getattr(mx.sym._internal, record.name)
            symbol = function(*inputs, **sample.attributes)
            symbol.tojson()
            return symbol, {f"v{index}": np.shape(item) for index, item in enumerate(arrays) if not np.isscalar(item)}
    return None


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(2, 3, in_channels=1), nn.BatchNorm(in_channels=2), nn.MaxPool2D(1), nn.Dense(3, in_units=18))
    net.initialize()
    net.hybridize(engine="numpy")
    net(nd.ones(Y))
    net.export(str(folder / "net"))
    return folder


def test_symbol_files(exported, tmp_path):
    document, path = json.loads((exported / "net-symbol.json").read_text()), str(tmp_path / "m-symbol.json")
    refused = 0
    for what, changed in hostile_values.changed(document, 8 * COUNT):
        with open(path, "wb") as file:
            file.write(hostile_values.text_of(changed))
        refused += not is_read(
            what, lambda: gluon.SymbolBlock.imports(path, ["data"], str(exported / "net-0000.params"))
        )
        is_read(what, lambda: mx.sym.load(path).infer_shape(data=Y))
    assert refused > COUNT


def test_headers_of_safetensors(tmp_path):
    path, net = str(tmp_path / "m.safetensors"), nn.Dense(2, in_units=3)
    net.initialize()
    net.save_parameters(path)
    data = open(path, "rb").read()
    length = int.from_bytes(data[:8], "little")
    before = net.weight.data().asnumpy()
    for what, changed in hostile_values.changed(json.loads(data[8 : 8 + length]), 8 * COUNT):
        header = hostile_values.text_of(changed)
        with open(path, "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header + data[8 + length :])
        if not is_read(what, lambda: net.load_parameters(path)):
            assert (net.weight.data().asnumpy() == before).all()
        is_read(what, lambda: nd.load(path))
