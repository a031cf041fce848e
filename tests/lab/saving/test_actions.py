"""Save, reload, undo, open: what the panel's buttons do to models and files."""

import os
import shutil
import zipfile

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon
from hybrid_lab.gluon import nn
from tests.lab.conftest import Net, inputs, make_net, same, weights


def spoil(net):
    """Other weights everywhere."""
    for parameter in net.collect_params().values():
        parameter.set_data(parameter.data() + 1)


def graph_state(net):
    """What must not change when something fails: graphs, programs, flags, states of all Blocks."""
    return [
        (path, block._active, dict(block._flags), list(block._graphs.graphs()), dict(block._graph_calls.programs),
         block._last_outputs)
        for path, block in mx.insight.states.hybrid_blocks(net)
    ]  # fmt: skip


# -- save --------------------------------------------------------------------------------------------------------------


def test_save_writes_beside_the_notebook_and_says_what(page, namespace, tmp_path):
    net = namespace["net"] = make_net()
    body = page.ok("save", model="m1", file="", overwrite=False)
    assert body["path"] == str(tmp_path / "net.hlab") and os.path.getsize(body["path"]) == body["bytes"]
    assert {graph["path"] for graph in body["graphs"]} == {"", "body", "body.0", "body.0.act", "body.1", "head"}
    assert all(graph["operators"] > 0 for graph in body["graphs"])
    assert body["blocks"] == 6 and body["parameters"] == len(net.collect_params()) and body["note"] == ""
    assert page.ok("models")["models"][0]["file"] == "net.hlab"


def test_graphs_of_a_model_that_ran_eagerly_are_counted(page, namespace):
    net = namespace["net"] = Net()
    net.initialize()
    net(inputs())
    assert page.ok("save", model="m1", file="eager", overwrite=False)["graphs"]
    assert not net._graphs.graphs()


def test_a_file_of_another_model_is_asked_about(page, namespace):
    namespace["net"] = make_net()
    namespace["other"] = make_net()
    page.ok("save", model="m1", file="a", overwrite=False)
    page.ok("save", model="m1", file="a.hlab", overwrite=False)  # its own file: one click
    error = page.error("save", model="m2", file="a.hlab", overwrite=False)
    assert error["code"] == "exists" and "a.hlab" in error["message"]
    page.ok("save", model="m2", file="a.hlab", overwrite=True)


def test_what_is_no_archive_is_never_overwritten(page, namespace, tmp_path):
    namespace["net"] = make_net()
    (tmp_path / "notes.ipynb").write_text("{}")
    (tmp_path / "notes.hlab").write_text("{}")
    assert page.error("save", model="m1", file="notes", overwrite=True)["code"] == "bad-file-name"
    assert page.ok("save", model="m1", file="notes.ipynb", overwrite=True)["file"] == "notes.ipynb.hlab"
    assert (tmp_path / "notes.ipynb").read_text() == (tmp_path / "notes.hlab").read_text() == "{}"


def foreign_files(folder):
    """Files that are no intact archive, under names that look like one and others; name -> contents."""
    archive = (folder / "good.hlab").read_bytes()
    np.savez(folder / "data.npz", np.zeros(3))
    with zipfile.ZipFile(folder / "package.whl", "w") as file:
        file.writestr("mimetype", "application/zip")
    shutil.copy(folder / "package.whl", folder / "zipped.hlab")
    for name, content in {
        "empty": b"", "empty.hlab": b"", "text.hlab": b"my notes", "magic.docx": b"PK\3\4", "short.hlab": b"PK",
        "cut.hlab": archive[:-1], "longer.hlab": archive + b"\0",
        "flipped.hlab": archive[:-100] + bytes([archive[-100] ^ 1]) + archive[-99:],
        "manifest.hlab": archive.replace(b'"format":"hlab"', b'"format":"hlaB"'),
    }.items():  # fmt: skip
        (folder / name).write_bytes(content)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "good.hlab"}


def test_only_intact_archives_are_overwritten(page, namespace, tmp_path):
    namespace["net"] = make_net()
    page.ok("save", model="m1", file="good", overwrite=False)
    files = foreign_files(tmp_path)
    assert len(files) == 12
    for name in files:
        if name.endswith(".hlab"):  # else the panel appends it
            error = page.error("save", model="m1", file=name, overwrite=True)
            assert error["code"] == "bad-file-name" and error["next"], name
    assert {name: (tmp_path / name).read_bytes() for name in files} == files


@pytest.mark.parametrize(
    "name",
    [
        "../net", "..", ".", "a/../b", "a//b", "a/./b", "a/", "a/.b", "a /b",
        "a\\b", "/tmp/net.hlab", "C:net", "C:\\net", ".hidden", ".hlab", "a\x00b", "a\nb",
        "a\u202eb", "\u200bnet", "x" * 241, "é" * 121, " ", " net", "net ", "net.", "~/net/x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["save", "reload", "open"])
def test_file_names_are_plain_names_below_the_folder(page, namespace, tmp_path, name, kind):
    namespace["net"] = make_net(called=False)
    body = {
        "save": {"model": "m1", "file": name, "overwrite": True},
        "reload": {"model": "m1", "file": name, "graphs": "code"},
        "open": {"file": name, "name": "opened", "replace": True},
    }[kind]
    error = page.error(kind, **body)
    assert error["code"] == "bad-file-name" and error["next"]
    assert not list(tmp_path.iterdir())


def test_links_folders_and_devices_are_refused(page, namespace, tmp_path):
    namespace["net"] = make_net()
    outside = tmp_path.parent / f"{tmp_path.name}-outside.hlab"
    (tmp_path / "out.hlab").symlink_to(outside)
    (tmp_path / "dangling.hlab").symlink_to(tmp_path / "nothing")
    (tmp_path / "folder.hlab").mkdir()
    os.mkfifo(tmp_path / "pipe.hlab")
    for name in ("out", "dangling", "folder", "pipe"):
        assert page.error("save", model="m1", file=name, overwrite=True)["code"] == "bad-file-name", name
        assert page.error("open", file=name, name="a", replace=True)["code"] == "bad-file-name", name
    assert not outside.exists()


def test_a_folder_that_cannot_be_written_is_a_sentence(page, namespace, monkeypatch):
    from hybrid_lab.formats import archive

    def refuse(*args, **options):
        raise PermissionError(13, "Permission denied", "net.hlab")

    namespace["net"] = make_net()
    monkeypatch.setattr(archive, "save_cached_graphs", refuse)
    error = page.error("save", model="m1", file="", overwrite=False)
    assert (error["code"], error["message"]) == ("failed", "Permission denied: net.hlab")


# -- reload and undo ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graphs", ["code", "file"])
def test_reload_and_undo_are_exact(page, namespace, graphs):
    net = namespace["net"] = make_net()
    with autograd.record():
        net(inputs())  # running statistics that are not round
    page.ok("save", model="m1", file="", overwrite=False)
    saved, outputs = weights(net), net(inputs()).asnumpy()
    spoil(net)
    net.head.weight.set_data(np.full((3, 8), -0.0, "float32"))
    changed, after = weights(net), net(inputs()).asnumpy()

    of_save = page.ok("models")["models"][0]["undo"]
    body = page.ok("reload", model="m1", file="", graphs=graphs)
    assert same(weights(net), saved) and np.array_equal(net(inputs()).asnumpy(), outputs)
    assert len(body["diff"]) == len(saved) and "largest change" in body["diff"][0]
    assert page.ok("models")["models"][0]["undo"] == body["undo"]
    assert bool(net._graphs.pinned) == (graphs == "file")

    assert page.ok("undo", model="m1", undo=body["undo"])["summary"] == f"{len(saved)} parameters restored"
    assert same(weights(net), changed) and np.array_equal(net(inputs()).asnumpy(), after)
    assert not net._graphs.pinned
    assert page.ok("models")["models"][0]["undo"] == of_save


def test_undo_is_of_the_last_reload_only(page, namespace):
    net = namespace["net"] = make_net()
    assert page.error("undo", model="m1", undo="")["code"] == "nothing-to-undo"
    page.ok("save", model="m1", file="", overwrite=False)
    spoil(net)
    first = page.ok("reload", model="m1", file="", graphs="code")["undo"]
    second = page.ok("reload", model="m1", file="", graphs="code")
    assert second["diff"] == [] and "no parameter changed" in second["summary"]
    assert page.error("undo", model="m1", undo=first)["code"] == "nothing-to-undo"
    page.ok("undo", model="m1", undo=second["undo"])
    assert page.error("undo", model="m1", undo=second["undo"])["code"] == "nothing-to-undo"


class Plain(gluon.Block):
    """A plain top over a HybridBlock."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = nn.Dense(3)

    def forward(self, x):
        return self.inner(x)


def test_undo_of_a_reload_takes_back_the_picture_of_the_files_calls(page, namespace):
    """What a plain Block shows of the calls before a save comes with the file, and goes with it."""

    def picture():
        return page.ok("graph", model=page.ok("models")["models"][0]["id"], path="", program="")

    def reload(file):
        (model,) = page.ok("models")["models"]
        page.ok("reload", model=model["id"], file=file, graphs="code")
        return page.ok("models")["models"][0]

    def undo(model):
        page.ok("undo", model=model["id"], undo=model["undo"])

    net = namespace["net"] = Plain()
    net.initialize()
    net(inputs(4))
    page.ok("save", model=page.ok("models")["models"][0]["id"], file="four", overwrite=False)
    net(inputs(2))
    page.ok("save", model=page.ok("models")["models"][0]["id"], file="two", overwrite=False)
    net = namespace["net"] = Plain()
    net.initialize()
    net(inputs(4))
    net.__dict__.pop("_calls_noted")  # as one that was never called, with the same parameters
    empty = picture()
    reload("four.hlab")
    assert "last call before the save" in (of_four := str(picture())) and of_four != str(empty)
    two = reload("two.hlab")
    assert str(picture()) != of_four
    undo(two)
    assert str(picture()) == of_four
    net = namespace["net"] = Plain()
    net.initialize()
    net(inputs(4))
    net.__dict__.pop("_calls_noted")
    undo(reload("four.hlab"))
    assert picture()["nodes"] == empty["nodes"] and "before the save" not in str(picture())
    model = reload("four.hlab")
    net(inputs(3))
    undo(model)
    assert "before the save" not in str(picture()) and picture()["nodes"], "a call since the reload stays"


def test_undo_gives_back_the_unfinished_initialization(page, namespace):
    namespace["net"] = make_net()
    page.ok("save", model="m1", file="", overwrite=False)
    fresh = namespace["net"] = make_net(called=False)
    model = page.ok("models")["models"][0]["id"]
    body = page.ok("reload", model=model, file="net.hlab", graphs="code")
    assert "body.0.weight: 40 numbers, not initialized before" in body["diff"]
    page.ok("undo", model=model, undo=body["undo"])
    assert fresh.head.weight.shape == (3, 0)
    with pytest.raises(gluon.DeferredInitializationError):
        fresh.head.weight.data()
    assert fresh(mx.nd.ones((2, 7))).shape == (2, 3)  # and may still take another input size


def test_a_reload_that_does_not_fit_leaves_everything(page, namespace):
    class Other(Net):
        def hybrid_forward(self, F, x):
            return F.relu(super().hybrid_forward(F, x))

    namespace["net"] = make_net()
    page.ok("save", model="m1", file="a", overwrite=False)
    for called in (True, False):
        other = namespace["net"] = make_net(Other)
        if not called:
            other.hybridize()  # drops the graphs: a failed comparison must not leave new ones
        model = page.ok("models")["models"][0]["id"]
        before, graphs = weights(other), graph_state(other)
        error = page.error("reload", model=model, file="a", graphs="code")
        assert error["code"] == "differs" and len(error["details"]) >= 1
        assert same(weights(other), before) and graph_state(other) == graphs
        assert page.error("undo", model=model, undo="")["code"] == "nothing-to-undo"


def test_all_differences_at_once(page, namespace):
    namespace["net"] = make_net()
    page.ok("save", model="m1", file="a", overwrite=False)
    other = namespace["net"] = make_net()
    other.head = nn.Dense(4)
    other.head.initialize()
    other.more = nn.Dense(2)
    model = page.ok("models")["models"][0]["id"]
    details = page.error("reload", model=model, file="a", graphs="code")["details"]
    assert any("head" in line for line in details) and any("more" in line for line in details)


def test_an_interrupted_reload_is_rolled_back(page, namespace, monkeypatch):
    from hybrid_lab.gluon.parameter import Parameter
    from hybrid_lab.lab.saving import actions

    net = namespace["net"] = make_net()
    page.ok("save", model="m1", file="", overwrite=False)
    spoil(net)
    before, count = weights(net), 0
    real = Parameter._load_init

    def load(self, *args):
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        real(self, *args)

    monkeypatch.setattr(Parameter, "_load_init", load)
    entry = page.session.registry.get("m1")
    with pytest.raises(KeyboardInterrupt):
        actions.reload(entry, "", "code")
    assert same(weights(net), before) and entry.undo.kind == "save"


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "text"])
def test_a_damaged_file_changes_nothing(page, namespace, tmp_path, damage):
    net = namespace["net"] = make_net()
    page.ok("save", model="m1", file="", overwrite=False)
    content = bytearray((tmp_path / "net.hlab").read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
    broken = {"truncated": content[:-100], "flipped": content, "empty": b"", "text": b"hello"}[damage]
    (tmp_path / "net.hlab").write_bytes(bytes(broken))
    before, graphs = weights(net), graph_state(net)
    assert page.error("reload", model="m1", file="", graphs="code")["code"] == "corrupt"
    assert same(weights(net), before) and graph_state(net) == graphs
    assert page.error("open", file="net", name="opened", replace=False)["code"] == "corrupt"
    assert "opened" not in namespace


def test_a_missing_file(page, namespace):
    namespace["net"] = make_net()
    assert page.error("reload", model="m1", file="", graphs="code")["code"] == "not-found"
    assert page.error("open", file="nothing", name="opened", replace=False)["code"] == "not-found"


def test_a_trainer_goes_on_after_a_reload(page, namespace):
    net = namespace["net"] = make_net()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    page.ok("save", model="m1", file="", overwrite=False)
    spoil(net)
    page.ok("reload", model="m1", file="", graphs="code")
    before = weights(net)
    with autograd.record():
        loss = net(inputs()).sum()
    loss.backward()
    trainer.step(1)
    assert not np.array_equal(weights(net)["head.weight"], before["head.weight"])


# -- open without code -------------------------------------------------------------------------------------------------


def test_open_binds_a_variable(page, namespace):
    net = namespace["net"] = make_net()
    page.ok("save", model="m1", file="", overwrite=False)
    body = page.ok("open", file="net.hlab", name="opened", replace=False)
    assert body["model"]["name"] == "opened" and body["model"]["class"] == "Net" and "opened" in body["summary"]
    np.testing.assert_allclose(namespace["opened"](inputs()).asnumpy(), net(inputs()).asnumpy(), rtol=1e-5)
    root = page.ok("tree", model=body["model"]["id"])["root"]
    assert root["state"] == "file" and [child["attr"] for child in root["children"]] == ["body", "head"]


@pytest.mark.parametrize(
    "name",
    [
        "1a", "a b", "class", "a.b", "", "_", "_hidden", "__name__", "a;b", "None", "print", "list", "ValueError", "In",
        "Out", "get_ipython", "exit", "ｎｅｔ",
    ],
)  # fmt: skip
@pytest.mark.parametrize("replace", [True, False])
def test_open_takes_variable_names_only(page, namespace, name, replace):
    namespace["net"] = make_net()
    page.ok("save", model="m1", file="", overwrite=False)
    before = dict(namespace)
    error = page.error("open", file="net", name=name, replace=replace)
    assert error["code"] == "bad-request" and (not name or name in error["message"] or repr(name) in error["message"])
    assert namespace == before


def test_open_asks_before_it_replaces(page, namespace):
    namespace["net"] = make_net()
    page.ok("save", model="m1", file="", overwrite=False)
    assert page.error("open", file="net", name="net", replace=False)["code"] == "name-taken"
    page.ok("open", file="net", name="net", replace=True)
    assert type(namespace["net"]).__name__ == "ArchivedBlock"


# -- archives ----------------------------------------------------------------------------------------------------------


def test_archives_are_listed_newest_first_with_what_is_wrong(page, namespace, tmp_path):
    namespace["net"] = make_net()
    page.ok("save", model="m1", file="old", overwrite=False)
    page.ok("save", model="m1", file="new", overwrite=False)
    os.utime(tmp_path / "old.hlab", (1, 1))
    (tmp_path / "broken.hlab").write_bytes((tmp_path / "new.hlab").read_bytes()[:-50])
    (tmp_path / "empty.hlab").write_bytes(b"")
    (tmp_path / "link.hlab").symlink_to(tmp_path / "new.hlab")
    (tmp_path / "folder.hlab").mkdir()
    (tmp_path / "other.txt").write_text("")
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "deep.hlab").write_bytes((tmp_path / "new.hlab").read_bytes())
    deep = page.ok("archives", path="runs/a/")
    assert [(row["file"], row["variable"]) for row in deep["archives"]] == [("runs/a/deep.hlab", "deep")]
    assert page.ok("archives", path="runs")["folders"] == ["a"]
    assert page.ok("archives", path="nowhere")["archives"] == []
    assert page.error("archives", path="../x")["code"] == "bad-file-name"
    opened = page.ok("open", file="runs/a/deep.hlab", name="deep", replace=False)
    assert opened["path"] == str(tmp_path / "runs" / "a" / "deep.hlab")
    body = page.ok("archives")
    rows = {row["file"]: row for row in body["archives"]}
    assert set(rows) == {"old.hlab", "new.hlab", "broken.hlab", "empty.hlab"}
    assert body["archives"][-1]["file"] == "old.hlab" and body["folder"] == str(tmp_path)
    assert (rows["new.hlab"]["class"], rows["new.hlab"]["blocks"], rows["new.hlab"]["graphs"]) == ("Net", 6, 6)
    assert rows["new.hlab"]["problem"] == ""
    for name in ("broken.hlab", "empty.hlab"):
        assert rows[name]["problem"] and "\n" not in rows[name]["problem"]
