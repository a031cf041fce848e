"""Good files with a few places changed, by a seed: every reader reads them or raises a typed error."""

from __future__ import annotations

import io
import json
import random

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, init, nd
from hybrid_lab.cli.archive import describe
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.formats.archive import Container, diff
from hybrid_lab.formats.archive.container import ContainerWriter
from hybrid_lab.gluon import nn
from hybrid_lab.lab.saving.archives import graphs_in

VALUES = [None, True, 0, 1, -1, 2**31, 2**63, 1e308, 0.5, "", "x", "1.p", "(1,2", "nan", [], [1], {}, {"a": 1}, [[0]]]
NUMBERS = [0, 1, -1, 2**7, 2**15, 2**31 - 1, 2**31, 2**62, 2**63 - 1]
ROUNDS = 80


def changed(document, chance):
    """The JSON document with another value in one or two of its places."""
    box = [json.loads(json.dumps(document))]
    places = []

    def walk(holder, key):
        places.append((holder, key))
        inner = holder[key]
        for step in inner if isinstance(inner, dict) else range(len(inner)) if isinstance(inner, list) else ():
            walk(inner, step)

    walk(box, 0)
    for _ in range(chance.choice((1, 1, 2))):
        holder, key = chance.choice(places)
        holder[key] = chance.choice(VALUES)
    return box[0]


def changed_bytes(data, chance):
    """The bytes with other whole numbers in one to three places, or cut off."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 2, 3))):
        width = chance.choice((1, 2, 4, 8))
        place = chance.randrange(len(found)) // width * width
        found[place : place + width] = (chance.choice(NUMBERS) % 2 ** (8 * width)).to_bytes(width, "little")
    return bytes(found[: chance.randrange(len(found))] if chance.random() < 0.1 else found)


def changed_header(data, chance):
    """A safetensors file with a changed header, or changed bytes."""
    if chance.random() < 0.4:
        return changed_bytes(data, chance)
    length = int.from_bytes(data[:8], "little")
    header = json.dumps(changed(json.loads(data[8 : 8 + length]), chance)).encode()
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model and a Trainer with what they write."""
    folder = tmp_path_factory.mktemp("files")
    net = nn.HybridSequential(prefix="net_")
    net.add(nn.Conv2D(2, 3, in_channels=1), nn.BatchNorm(in_channels=2), nn.Dense(3, in_units=18))
    net.initialize()
    net.hybridize(engine="numpy")
    trainer = gluon.Trainer(net.collect_params(), "adam")
    with autograd.record():
        loss = net(nd.ones((2, 1, 5, 5))).sum()
    loss.backward()
    trainer.step(2)
    net.export(str(folder / "net"))
    trainer.save_states(str(folder / "net.states"))
    mx.save_cached_graphs(net, folder / "net.hlab", trainer=trainer, aux={"a": [1, nd.ones(2)]})
    nd.save(str(folder / "arrays"), {"a": nd.ones((2, 3)), "b": nd.ones((4,), dtype="int32")})
    return folder, net, trainer


def read_all(reader, make, rounds=ROUNDS):
    """Read many changed files; some must be refused."""
    refused, chance = 0, random.Random(12)
    for _ in range(rounds):
        try:
            reader(make(chance))
        except HybridLabError as error:
            assert str(error)
            refused += 1
    assert refused > rounds // 4


@pytest.mark.filterwarnings("ignore")
def test_params(files, tmp_path):
    folder, net, _ = files
    good, path = (folder / "arrays").read_bytes(), tmp_path / "f.params"

    def read(data):
        nd.load_frombuffer(data)
        path.write_bytes(data)
        init.Load(str(path))
        net.load_parameters(path)

    read_all(read, lambda chance: changed_bytes(good, chance))


def test_safetensors():
    save = pytest.importorskip("safetensors.numpy").save
    good = save({"a": np.ones((2, 3), "float32"), "b": np.zeros((0, 4), "float16")})
    read_all(nd.load_frombuffer, lambda chance: changed_header(good, chance))


def test_trainer_states(files, tmp_path):
    folder, _, trainer = files
    good, path = (folder / "net.states").read_bytes(), tmp_path / "f.states"
    length = int.from_bytes(good[:8], "little")
    header = json.loads(good[8 : 8 + length])
    settings = json.loads(header["__metadata__"]["hybrid_lab.trainer"])

    def make(chance):
        if chance.random() < 0.5:
            return changed_header(good, chance)
        return with_settings(changed(settings, chance))

    def with_settings(value):
        text = json.dumps({**header, "__metadata__": {"hybrid_lab.trainer": json.dumps(value)}}).encode()
        return len(text).to_bytes(8, "little") + text + good[8 + length :]

    def read(data):
        path.write_bytes(data)
        trainer.load_states(str(path))

    read_all(read, make)
    for value in (None, 5, "x", [1]):
        with pytest.raises(HybridLabError, match="not a JSON object"):
            read(with_settings(value))


def rewritten(archive, edit):
    """The bytes of an archive whose members went through `edit(name, content)`, with digests that are right."""
    file = io.BytesIO()
    writer = ContainerWriter(file)
    for name in archive.names:
        if archive.holds_tensors(name):
            writer.add_tensors(name, archive.read_tensors(name))
        else:
            writer.add_json(name, edit(name, archive.read_json(name)))
    writer.finish({})
    return file.getvalue()


def changed_graph(document, chance):
    """A graph with another value in one of its places, or in the structure that it holds as text."""
    if chance.random() < 0.5:
        return changed(document, chance)
    kind, text = document["attrs"]["hybrid_lab"]
    attrs = {**document["attrs"], "hybrid_lab": [kind, json.dumps(changed(json.loads(text), chance))]}
    return {**document, "attrs": attrs}


@pytest.mark.filterwarnings("ignore")
def test_archives(files, tmp_path):
    """Changed documents in archives that are intact as files: every reader of archives, loading and listing."""
    folder, net, trainer = files
    good, path = Container.open(folder / "net.hlab"), tmp_path / "f.hlab"
    readers = [
        lambda: net.load(path),
        lambda: net.load(path, graphs="file"),
        lambda: mx.load_cached_graphs(net, path, trainer=trainer),
        lambda: gluon.load(path)(nd.ones((2, 1, 5, 5))),
        lambda: list(describe(Container.open(path), with_tensors=True)),
        lambda: graphs_in(path),
        lambda: diff(good, Container.open(path)),
    ]

    def make(chance):
        wanted = chance.choice([name for name in good.names if not good.holds_tensors(name)])
        change = changed_graph if wanted.startswith("graphs/") else changed
        return rewritten(good, lambda name, content: change(content, chance) if name == wanted else content)

    def read(data):
        path.write_bytes(data)
        problems = []
        for reader in readers:
            try:
                reader()
            except HybridLabError as error:
                problems.append(error)
        for problem in problems:
            raise problem

    read_all(read, make, rounds=ROUNDS // 2)


def test_lists_of_nodes_and_owners_of_another_kind(files, tmp_path):
    """Documents in archives that ended in a TypeError or AttributeError."""
    folder, net, _ = files
    good = Container.open(folder / "net.hlab")
    root, path = "graphs/__root__.json", tmp_path / "f.hlab"
    for value in (5, [], {"nodes": 5}, {"nodes": [True]}, {}):
        path.write_bytes(rewritten(good, lambda name, content, value=value: value if name == root else content))
        for reader in (lambda: list(describe(Container.open(path))), lambda: graphs_in(path)):
            with pytest.raises(HybridLabError, match="no list of nodes"):
                reader()
    document = good.read_json(root)
    structure = json.loads(document["attrs"]["hybrid_lab"][1])
    structure["parameters"] = {name: [owner] for name, owner in structure["parameters"].items()}
    document["attrs"]["hybrid_lab"][1] = json.dumps(structure)
    path.write_bytes(rewritten(good, lambda name, content: document if name == root else content))
    with pytest.raises(HybridLabError, match="structure does not fit"):
        net.load(path)


DAMAGED = {
    "parameters": [None, 5, "x", {"a": 1}, [1], [{}], [{"shape": 5}]],
    "counts": [None, 5, "x", [1], {"x": 1}, {"0": "x"}, {"0": -1}],
    "hyperparameters": [None, 5, "x", [1]],
    "scheduler": [5, "x", [1]],
    "num_update": [None, "x", [1], -1, 0.5],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_settings_of_a_trainer(files, name):
    _, _, trainer = files
    data, arrays = trainer.get_states()
    for value in DAMAGED[name]:
        with pytest.raises(HybridLabError):
            trainer.set_states({**data, name: value}, arrays)


def test_symbols(files, tmp_path):
    folder, _, _ = files
    good, path = json.loads((folder / "net-symbol.json").read_text()), tmp_path / "f-symbol.json"

    def read(document):
        path.write_text(json.dumps(document))
        gluon.SymbolBlock.imports(str(path), ["data"], str(folder / "net-0000.params"))(nd.ones((2, 1, 5, 5)))

    read_all(read, lambda chance: changed(good, chance))
    for node in good["nodes"]:
        if node["name"].endswith("weight"):
            node.setdefault("attrs", {})["__lr_mult__"] = "1.p"
    with pytest.raises(HybridLabError, match="__lr_mult__='1.p' is not a number"):
        read(good)
