"""Model files as documents: read by the server in a process of their own, confined to its folder, running nothing."""

import json
import os
import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab.formats.safetensors import write_safetensors
from hybrid_lab.gluon import nn
from hybrid_lab.lab.documents import pool
from hybrid_lab.lab.documents.contents import Document, figures
from hybrid_lab.lab.documents.pool import Worker, Workers
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.kernel.comm import finite
from hybrid_lab.lab.messages.graphs import GraphRequest
from hybrid_lab.lab.messages.models import BlockNode


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small model in every kind of file."""
    home = tmp_path_factory.mktemp("documents")
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, activation="relu"), nn.Flatten(), nn.Dense(2))
    net.initialize()
    net.hybridize()
    net(mx.nd.ones((1, 1, 6, 6)))
    net.save(home / "net.hlab")
    net.export(str(home / "exported"), epoch=3)
    net.save_parameters(str(home / "net.params"))
    net.save_parameters(str(home / "net.safetensors"))
    net[0].weight.set_data(net[0].weight.data() * 2)
    net.save(home / "other.hlab")
    return home


def asked(path, kind, **body):
    return Document(str(path)).answer(kind, body)


def parts(path):
    """All parts of a file."""
    document, found, start = Document(str(path)), [], 0
    while start >= 0:
        reply = document.answer("contents", {"start": start})
        found += reply["parts"]
        start = reply["next"]
    return found


# -- the kinds of files ------------------------------------------------------------------------------------------------

KINDS = {
    "net.hlab": ("archive", True, "mx.gluon.load(FILE)"),
    "exported-symbol.json": ("symbol", True, "mx.gluon.SymbolBlock.imports(FILE, ['data'], BESIDE)"),
    "net.params": ("arrays", False, "mx.nd.load(FILE)"),
    "net.safetensors": ("arrays", False, "mx.nd.load(FILE)"),
}


@pytest.mark.parametrize("name", KINDS)
def test_what_a_file_is(folder, name):
    reply = asked(folder / name, "document")
    assert (reply["kind"], reply["has_model"], reply["code"]) == KINDS[name]
    assert reply["problem"] == "" and reply["bytes"] == (folder / name).stat().st_size
    assert reply["parts"] == len(parts(folder / name)) and reply["facts"]


@pytest.mark.parametrize("name", KINDS)
def test_the_code_loads_the_file(folder, name):
    reply = asked(folder / name, "document")
    code = reply["code"].replace("FILE", repr(str(folder / name)), 1)
    code = code.replace("BESIDE)", f"{str(folder / reply['beside'])!r})")
    loaded = eval(code, {"mx": mx})  # noqa: S307 - what the page inserts into a cell
    assert len(loaded if isinstance(loaded, dict) else loaded.collect_params()) == 4


@pytest.mark.parametrize("name", [name for name, (_, has_model, _) in KINDS.items() if has_model])
def test_tree_and_graph_are_those_of_a_model_in_a_kernel(folder, name):
    document = Document(str(folder / name))
    (model,) = document.answer("models", {})["models"]
    root = document.answer("tree", {"model": model["id"]})["root"]
    assert root["state"] == "file" and model["parameters"] == 4 * 9 + 4 + 64 * 2 + 2
    request = dict.fromkeys(GraphRequest.__annotations__, "") | {"model": model["id"]}
    graph = document.answer("graph", request | ({"form": "neutral"} if "form" in request else {}))
    assert graph["nodes"] and "Convolution" in graph["text"] and "FullyConnected" in graph["text"]
    if name == "net.hlab":  # which keeps the shapes of the call
        assert [1, 2] in [output["shape"] for node in graph["nodes"] for output in node["outputs"]]
    assert document.answer("findings", {"model": model["id"]}) == {"findings": []}
    assert document.answer("explain", {"model": model["id"]})["text"]


def test_a_large_archive_is_shown_without_its_weights(folder, monkeypatch):
    from hybrid_lab.formats.safetensors import SafetensorsFile

    monkeypatch.setattr(SafetensorsFile, "read", lambda self, name: pytest.fail(f"{name} was read"))
    document = Document(str(folder / "net.hlab"))
    (model,) = document.answer("models", {})["models"]
    assert document.answer("tree", {"model": model["id"]})["root"]["parameter_count"] == model["parameters"]


def test_tensors_and_digests(folder):
    rows = {row["name"]: row for row in parts(folder / "net.hlab")}
    weight = rows["0.weight"]
    assert weight["shape"] == [4, 1, 3, 3] and weight["dtype"] == "float32" and weight["bytes"] == 144
    assert weight["state"] == "verified" and len(weight["digest"]) == 64
    assert weight["minimum"] <= weight["mean"] <= weight["maximum"]
    assert rows["tree.json"]["kind"] == "member" and rows["tree.json"]["state"] == "verified"
    assert {row["state"] for row in parts(folder / "net.safetensors")} == {"read"}


def test_a_reply_ends_when_its_time_is_up(folder, monkeypatch):
    monkeypatch.setattr("hybrid_lab.lab.documents.contents.BUDGET", -1.0)
    reply = asked(folder / "net.hlab", "contents", start=0)
    assert len(reply["parts"]) == 1 and reply["next"] == 1
    assert len(parts(folder / "net.hlab")) == asked(folder / "net.hlab", "document")["parts"]


@pytest.mark.parametrize("start", [10**9, -5])
def test_a_start_outside_of_the_file(folder, start):
    reply = asked(folder / "net.hlab", "contents", start=start)
    assert bool(reply["parts"]) == (start < 0) and reply["next"] == -1


@pytest.mark.parametrize("one", KINDS)
@pytest.mark.parametrize("two", KINDS)
def test_every_kind_compares_with_every_kind(folder, one, two):
    reply = asked(folder / one, "difference", other=str(folder / two))
    same_names = "exported-symbol.json" not in (one, two)
    assert (reply["count"] == 0) == (one == two or same_names)
    assert reply["other"] == two and len(reply["lines"]) == reply["count"]


def test_difference_of_two_archives(folder):
    reply = asked(folder / "net.hlab", "difference", other=str(folder / "other.hlab"))
    assert "0.weight" in [line["name"] for line in reply["lines"] if line["what"] == "tensor"]


def test_many_differences_are_counted(tmp_path):
    for name, value in (("a", 0), ("b", 1)):
        write_safetensors(tmp_path / f"{name}.safetensors", {str(n): np.full(1, value) for n in range(700)})
    reply = asked(tmp_path / "a.safetensors", "difference", other=str(tmp_path / "b.safetensors"))
    assert reply["count"] == 700 and len(reply["lines"]) == 500


# -- ONNX --------------------------------------------------------------------------------------------------------------


def onnx_file(path, layers):
    """A chain of additions of a weight, with one weight that all read."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    names = ["x", *(f"y{number}" for number in range(layers))]
    nodes = [
        helper.make_node("Sum", [names[n], f"w{n}", "shared"], [names[n + 1]], name=f"/body/{n}/Sum")
        for n in range(layers)
    ]
    weights = [numpy_helper.from_array(np.ones(3, np.float32), name) for name in [f"w{n}" for n in range(layers)]]
    weights.append(numpy_helper.from_array(np.ones(3, np.float32), "shared"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in ("x", names[-1])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)), str(path))


@pytest.mark.parametrize("layers", [2, 400])
def test_the_structure_of_an_onnx_file(tmp_path, layers):
    onnx_file(tmp_path / "m.onnx", layers)
    document = Document(str(tmp_path / "m.onnx"))
    assert document.answer("document", {})["problem"] == "" and document.answer("models", {})["models"][0]["id"] == "m1"
    graph = document.answer("graph", {"model": "m1", "path": "", "program": ""})
    operators = [node for node in graph["nodes"] if node["kind"] == "operator"]
    assert len(operators) == layers and operators[1]["badges"][0]["name"] == "w1"
    assert [read["node"] for read in operators[1]["inputs"]][0] == operators[0]["id"]
    members = {}
    for item in [*graph["boxes"], *graph["nodes"]]:
        members.setdefault(item.get("parent", item.get("box")), []).append(item)
    assert max(map(len, members.values())) <= 150 and (len(graph["boxes"]) > 0) == (layers > 150)
    root = document.answer("tree", {"model": "m1"})["root"]
    assert set(root) == set(BlockNode.__annotations__) | {"class"}


def test_onnx_files_that_cannot_be_read(tmp_path, monkeypatch):
    (tmp_path / "broken.onnx").write_bytes(b"\xff" * 50)
    pytest.importorskip("onnx")
    assert "not a readable ONNX file" in asked(tmp_path / "broken.onnx", "document")["problem"]
    monkeypatch.setitem(sys.modules, "onnx", None)
    reply = asked(tmp_path / "broken.onnx", "document")
    assert "not installed" in reply["problem"] and "pip install onnx" in reply["next"]


# -- figures of odd values ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([1.0, np.nan, 3.0, np.inf, -np.inf]), (1.0, 3.0, 2.0, 1, 2)),
        (np.full(3, np.nan, np.float32), (None, None, None, 3, 0)),
        (np.zeros((0, 4)), (None, None, None, 0, 0)),
        (np.array(7, np.int8), (7.0, 7.0, 7.0, 0, 0)),
        (np.array([True, False]), (0.0, 1.0, 0.5, 0, 0)),
        (np.array([2**64 - 1, 0], np.uint64), (0.0, 2.0**64, 2.0**63, 0, 0)),
        (np.full(4, 6e4, np.float16), (6e4, 6e4, 6e4, 0, 0)),
    ],
)
def test_figures(values, expected):
    assert tuple(figures(values).values()) == expected


def test_numbers_that_no_json_has_become_null(tmp_path):
    """The mean of these is larger than any float64."""
    path = tmp_path / "huge.safetensors"
    write_safetensors(path, {"w": np.full(4, np.finfo(np.float64).max)})
    (row,) = finite(asked(path, "contents", start=0))["parts"]
    assert row["mean"] is None and row["maximum"] == np.finfo(np.float64).max


# -- damaged files -----------------------------------------------------------------------------------------------------


def damaged(path, at, change=0xFF):
    content = bytearray(path.read_bytes())
    content[at] ^= change
    path.write_bytes(content)


def test_a_damaged_tensor_is_named_and_the_others_are_read(folder, tmp_path):
    path = tmp_path / "net.hlab"
    shutil.copy(folder / "net.hlab", path)
    weight = mx.gluon.load(path)[2].weight.data().asnumpy().tobytes()
    damaged(path, path.read_bytes().index(weight))
    assert asked(path, "document")["problem"] == ""
    states = {row["name"]: row["state"] for row in parts(path)}
    assert [name for name, state in states.items() if state == "damaged"] == ["2.weight"]


@pytest.mark.parametrize("name", KINDS)
def test_no_truncation_and_no_changed_byte_gets_further_than_an_error(folder, tmp_path, name):
    """Every request about a damaged file is answered, or refused with one of the protocol's errors."""
    whole, path = (folder / name).read_bytes(), tmp_path / name
    variants = [whole[:cut] for cut in (0, 1, 8, 100, len(whole) // 2, len(whole) - 1)]
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 25):
        changed = bytearray(whole)
        changed[place] ^= 1 << int(rng.integers(8))
        variants.append(bytes(changed))
    for content in variants:
        path.write_bytes(content)
        document = Document(str(path))
        for kind, body in (("document", {}), ("models", {}), ("tree", {"model": "m1"}), ("contents", {"start": 0})):
            try:
                json.dumps(document.answer(kind, body))
            except RequestError as error:
                assert error.message


EMPTY = b'{"w":{"dtype":"F64","shape":[0,%d],"data_offsets":[0,0]}}'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.params", struct.pack("<QQQ", 0x112, 0, 2**62)),
        ("b.params", struct.pack("<QQQIii3q", 0x112, 0, 1, 0xF993FAC9, 0, 3, 2**40, 2**40, 2**40)),
        ("c.safetensors", (2**60).to_bytes(8, "little") + b"{}"),
        ("d.safetensors", (70).to_bytes(8, "little") + EMPTY % 2**62),
        ("e-symbol.json", b"[" * 200_000),
        ("f-symbol.json", b'{"nodes": %s}' % (b"[" * 5000 + b"]" * 5000)),
        ("g.hlab", b"PK\3\4" + b"\xff" * 500),
        ("h.hlab", b""),
        ("i.txt", b"text"),
    ],
)
def test_hostile_headers(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    reply = asked(path, "document")
    assert reply["problem"] and not reply["has_model"] and "SymbolBlock" not in reply["code"]


# -- the process -------------------------------------------------------------------------------------------------------


def test_a_process_answers_as_the_document_does(folder):
    workers = Workers()
    try:
        path = str(folder / "net.hlab")
        assert workers.ask(path, "document", {}) == json.loads(json.dumps(asked(path, "document")))
        with pytest.raises(RequestError) as error:
            workers.ask(path, "save", {})
        assert error.value.code == "bad-request"
        assert workers.ask(path, "models", {})["models"][0]["name"] == "net"
    finally:
        workers.end()


def test_a_process_that_takes_too_long_or_dies_is_a_clear_error(folder, monkeypatch):
    path = str(folder / "net.hlab")
    monkeypatch.setattr(pool, "PATIENCE", 0.01)
    with pytest.raises(RequestError, match="more than"):
        Worker(path).ask("document", {})
    worker = Worker(path)
    worker.end()
    with pytest.raises(RequestError, match="ended"):
        worker.ask("document", {})


def test_a_file_that_needs_too_much_memory(tmp_path):
    """A sparse file of 20 GiB: one tensor larger than what the process may use."""
    path, size = tmp_path / "huge.safetensors", 20 << 30
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)
    if path.stat().st_blocks * 512 > 1 << 20:
        pytest.skip("the file system has no sparse files")
    worker = Worker(str(path))
    try:
        assert worker.ask("document", {})["problem"] == ""
        with pytest.raises(RequestError, match="GiB of memory") as error:
            worker.ask("contents", {"start": 0})
        assert error.value.code == "too-large"
        assert worker.ask("document", {})["bytes"] == path.stat().st_size
    finally:
        worker.end()


def test_a_module_beside_the_files_is_not_imported(folder, tmp_path):
    shutil.copy(folder / "net.hlab", tmp_path)
    for name in ("json", "numpy", "hybrid_lab"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')")
    ask = f"Worker({str(tmp_path / 'net.hlab')!r}).ask('document', {{}})"
    code = f"from hybrid_lab.lab.documents.pool import Worker; {ask}"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, env=environment, check=True, timeout=120)
    assert not (tmp_path / "ran").exists()


def test_only_so_many_processes_run(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "MOST", 1)
    workers = Workers()
    try:
        workers.ask(str(folder / "net.params"), "document", {})
        (first,) = workers._workers.values()
        workers.ask(str(folder / "net.safetensors"), "document", {})
        assert not first.is_alive and len(workers._workers) == 1
    finally:
        workers.end()


def test_a_file_that_changed_is_read_again(folder, tmp_path):
    path = tmp_path / "net.safetensors"
    write_safetensors(path, {"a": np.zeros(1)})
    workers = Workers()
    try:
        assert workers.ask(str(path), "document", {})["parts"] == 1
        write_safetensors(path, {"a": np.zeros(1), "b": np.zeros(1)})
        assert workers.ask(str(path), "document", {})["parts"] == 2
    finally:
        workers.end()


# -- the server --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(server, folder):
    """The files in the folder of a Jupyter server, with links and a secret outside."""
    home = server.folder
    (home / "models").mkdir()
    for item in folder.iterdir():
        shutil.copy(item, home / "models")
    outside = home.parent / "outside"
    outside.mkdir()
    shutil.copy(folder / "net.hlab", outside / "secret.hlab")
    (home / "link.hlab").symlink_to(outside / "secret.hlab")
    (home / "linked").symlink_to(outside)
    (home / "inside.hlab").symlink_to(home / "models" / "net.hlab")
    (home / ".hidden.hlab").write_bytes((folder / "net.hlab").read_bytes())
    os.mkfifo(home / "pipe.hlab")
    return server


def ask(server, file, kind="document", body=None, token=True):
    from tests.lab.jupyter_server import post

    request = {"file": file, "type": kind, "body": {} if body is None else body}
    return post(server, request, token, "document")


def test_a_file_is_served_without_a_kernel(served):
    status, reply = ask(served, "models/net.hlab")
    assert status == 200 and reply["file"] == "net.hlab" and reply["kind"] == "archive"
    status, reply = ask(served, "models/net.hlab", "difference", {"other": "models/other.hlab"})
    assert status == 200 and reply["count"] > 0
    assert ask(served, "inside.hlab")[0] == 200


def test_nobody_is_answered_without_the_token(served):
    assert ask(served, "models/net.hlab", token=False)[0] == 403


FORBIDDEN = [
    *("../outside/secret.hlab", "models/../../outside/secret.hlab", "models\\..\\..\\outside\\secret.hlab"),
    *("/etc/passwd", "link.hlab", "linked/secret.hlab", ".hidden.hlab", "pipe.hlab", "models", "", "no.hlab", "a\0b"),
]


@pytest.mark.parametrize("file", FORBIDDEN)
def test_nothing_else_is_read(served, file):
    """Traversal, links that lead out, hidden files, a pipe, folders, and names that no file has."""
    for body in ((file, "document", {}), ("models/net.hlab", "difference", {"other": file})):
        status, reply = ask(served, *body)
        assert status in (400, 404) and reply["code"] in ("not-found", "bad-file-name"), reply
        assert "root" not in reply["message"]


@pytest.mark.parametrize(
    "body", [{}, {"file": 1, "type": "document", "body": {}}, {"file": "a", "type": "document", "body": []}, [], b"{"]
)
def test_what_is_no_request(served, body):
    from tests.lab.jupyter_server import post

    status, reply = post(served, body, True, "document")
    assert status == 400 and reply["code"] == "bad-request"


@pytest.mark.parametrize(
    ("kind", "body"),
    [("save", {}), ("__class__", {}), ("document", {"more": 1}), ("contents", {"start": "0"}), ("tree", {})],
)
def test_requests_of_other_channels_and_bad_fields(served, kind, body):
    status, reply = ask(served, "models/net.hlab", kind, body)
    assert status == 400 and reply["code"] == "bad-request"
