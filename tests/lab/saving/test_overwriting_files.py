"""One click: a save asks only where something would be lost or the file is somebody else's; and what undoes it."""

import os
import re

import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn
from hybrid_lab.lab.kernel.session import Session
from hybrid_lab.lab.saving import history
from hybrid_lab.lab.training.current import runs
from tests.lab.conftest import Net, Page, inputs, make_net, same, weights
from tests.lab.saving.test_actions import spoil
from tests.lab.saving.test_saving import files_in


class Other(gluon.HybridBlock):
    """A model of another class, with as many graphs."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first, self.second, self.third = nn.Dense(3), nn.Dense(3), nn.Dense(3)
        self.fourth, self.fifth = nn.Dense(3), nn.Dense(3)

    def hybrid_forward(self, F, x):
        return self.fifth(self.fourth(self.third(self.second(self.first(x)))))


@pytest.fixture
def theirs(tmp_path):
    """Saves a model as another kernel does."""

    def write(name="net.hlab", kind=Net):
        make_net(kind).save(tmp_path / "theirs.hlab")
        os.replace(tmp_path / "theirs.hlab", tmp_path / name)

    return write


def save(page, model="m1", file="", **more):
    return page.ok("save", model=model, file=file, overwrite=False, **more)


def asked(page, code, model="m1", file=""):
    """The question; nothing is written, and an answer saves."""
    folder = history.Path.cwd()
    before = files_in(folder)
    error = page.error("save", model=model, file=file, overwrite=False)
    assert error["code"] == code and files_in(folder) == before
    version = page.ok("targets", files=[file or "net.hlab"])["targets"][0]["version"]
    page.ok("save", model=model, file=file, overwrite=True, replaces=version)
    save(page, model, file)  # its own file now
    return error


# -- no question -------------------------------------------------------------------------------------------------------


def test_saves_of_the_same_model_are_never_asked_about(page, namespace, tmp_path):
    net = namespace["net"] = make_net()
    for _ in range(3):
        spoil(net)
        save(page)
    assert len(page.ok("history", model="m1", file="")["saves"]) == 2
    (tmp_path / "x").mkdir()


def by_load(net):
    mx.load_cached_graphs(net, "net.hlab")


def by_method(net):
    net.load("net.hlab")


def by_saving(net):
    net.save("net.hlab")


@pytest.mark.parametrize("know", [by_load, by_method, by_saving])
def test_a_file_that_code_loaded_or_saved_is_the_model_s_own(page, namespace, know):
    make_net().save("net.hlab")
    net = namespace["net"] = make_net()
    know(net)
    save(page)


def test_a_file_that_the_panel_loaded_or_opened_is_the_model_s_own(page, namespace):
    make_net().save("net.hlab")
    namespace["net"] = make_net()
    page.ok("reload", model="m1", file="net.hlab", graphs="code")
    save(page)
    opened = page.ok("open", file="net.hlab", name="opened", replace=False)["model"]
    save(page, opened["id"], "net.hlab")


def test_a_cell_that_made_the_model_again_is_no_reason_to_ask(page, namespace):
    """The file is of this kernel, and of a model that this one has taken the place of."""
    namespace["net"] = first = make_net()
    save(page)
    namespace["net"] = make_net()
    save(page, page.ok("models")["models"][0]["id"], "net.hlab")
    namespace["first"] = first  # kept after all: then it is another model
    model = next(each["id"] for each in page.ok("models")["models"] if each["name"] == "first")
    error = page.error("save", model=model, file="net.hlab", overwrite=False)
    assert "another model of this kernel" in error["message"]


# -- questions ---------------------------------------------------------------------------------------------------------


def test_a_file_of_another_kernel(page, namespace, theirs):
    theirs()
    namespace["net"] = make_net()
    assert "another kernel" in asked(page, "exists")["message"]


def test_a_file_that_changed_after_the_save(page, namespace, theirs):
    namespace["net"] = make_net()
    save(page)
    theirs()
    assert "changed by somebody else" in asked(page, "exists")["message"]


def test_a_file_of_another_model_of_this_kernel(page, namespace):
    namespace["net"], namespace["big"] = make_net(), make_net()
    save(page, "m2", "net.hlab")
    assert "another model of this kernel" in asked(page, "exists")["message"]


def test_a_file_of_another_class(page, namespace, theirs):
    theirs(kind=Other)
    namespace["net"] = make_net()
    assert "holds another model: Other, not Net" in asked(page, "exists")["message"]


def test_graphs_that_would_be_lost(page, namespace):
    net = namespace["net"] = make_net()
    save(page)
    net.hybridize(False)
    net._clear_cached_op()
    fresh = namespace["net"] = Net()
    fresh.initialize()
    model = page.ok("models")["models"][0]["id"]
    error = page.error("save", model=model, file="net.hlab", overwrite=False)
    assert "the graph of body" in error["details"] and "the values of head.weight" in error["details"]


def test_values_that_would_be_lost(page, namespace, tmp_path):
    """A plain model has no graphs: its weights are all that a save may lose."""

    def plain():
        net = nn.Sequential()
        net.add(nn.Dense(3, in_units=2), nn.Dense(1, in_units=3))
        return net

    first = plain()
    first.initialize()
    first.save("net.hlab")
    again = namespace["net"] = plain()
    again.load("net.hlab")
    again[1].weight.initialize(force_reinit=True)
    save(page)
    again[1].weight._data = None
    error = asked(page, "would-lose")
    assert error["details"] == ["the values of 1.weight"]


def test_states_of_a_trainer_and_own_values_that_would_be_lost(page, namespace):
    net = namespace["net"] = make_net()
    trainer = gluon.Trainer(net.collect_params(), "adam")
    mx.save_cached_graphs(net, "net.hlab", trainer=trainer, aux={"epoch": 3})
    details = asked(page, "would-lose")["details"]
    assert details == ["the states of the Trainer", "your own values, saved with aux="]


def test_all_is_asked_at_once(page, namespace, theirs):
    """Somebody else's file with more graphs: one question."""
    theirs()
    namespace["net"] = make_net(called=False)
    error = asked(page, "exists")
    assert "another kernel" in error["message"] and "the graph of head" in error["details"]


def test_what_is_no_archive_is_refused_without_a_question(page, namespace, tmp_path):
    (tmp_path / "net.hlab").write_text("my notes")
    namespace["net"] = make_net()
    for overwrite in (False, True):
        assert page.error("save", model="m1", file="", overwrite=overwrite)["code"] == "bad-file-name"
    assert (tmp_path / "net.hlab").read_text() == "my notes"


# -- undo of a save ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("links", [True, False])
def test_undo_brings_the_earlier_file_back(page, namespace, tmp_path, monkeypatch, links):
    if not links:
        monkeypatch.setattr(os, "link", lambda *arguments: (_ for _ in ()).throw(OSError(1, "no links")))
    net = namespace["net"] = make_net()
    contents, tokens = [b""], []
    for _ in range(3):
        spoil(net)
        tokens.append(save(page)["undo"])
        contents.append((tmp_path / "net.hlab").read_bytes())
    model = page.ok("models")["models"][0]
    assert (model["undo"], model["undoes"]) == (tokens[-1], "the save to net.hlab")
    for token in reversed(tokens):
        assert page.ok("models")["models"][0]["undo"] == token
        contents.pop()
        summary = page.ok("undo", model="m1", undo=token)["summary"]
        if contents[-1]:
            assert (tmp_path / "net.hlab").read_bytes() == contents[-1] and "as it was before the save" in summary
        else:
            assert not (tmp_path / "net.hlab").exists() and "net.hlab is gone" in summary
    assert page.error("undo", model="m1", undo=tokens[0])["code"] == "nothing-to-undo"
    assert page.ok("models")["models"][0]["undo"] == ""
    save(page)


def test_after_an_undo_the_file_is_as_much_the_model_s_as_before(page, namespace, theirs):
    theirs()
    namespace["net"] = make_net()
    first = page.ok("save", model="m1", file="", overwrite=True)["undo"]
    second = save(page)["undo"]
    page.ok("undo", model="m1", undo=second)
    save(page)
    page.ok("undo", model="m1", undo=page.ok("models")["models"][0]["undo"])
    page.ok("undo", model="m1", undo=first)
    assert "another kernel" in page.error("save", model="m1", file="", overwrite=False)["message"]


def test_a_file_that_changed_since_the_save_stays(page, namespace, tmp_path, theirs):
    namespace["net"] = make_net()
    token = save(page)["undo"]
    theirs()
    before = files_in(tmp_path)
    assert page.error("undo", model="m1", undo=token)["code"] == "nothing-to-undo"
    assert files_in(tmp_path) == before


def test_what_an_undo_takes_away_is_an_earlier_save(page, namespace, tmp_path):
    net = namespace["net"] = make_net()
    first = save(page)["undo"]
    content = (tmp_path / "net.hlab").read_bytes()
    page.ok("undo", model="m1", undo=first)
    reply = page.ok("history", model="m1", file="net.hlab")
    assert reply["current"] is None and [(tmp_path / each["file"]).read_bytes() for each in reply["saves"]] == [content]
    spoil(net)
    page.ok("reload", model="m1", file=reply["saves"][0]["file"], graphs="code")


def test_saves_and_the_last_reload_are_undone_in_turn(page, namespace):
    net = namespace["net"] = make_net()
    save(page)
    spoil(net)
    changed = weights(net)
    page.ok("reload", model="m1", file="", graphs="code")
    save(page)
    texts = []
    while token := page.ok("models")["models"][0]["undo"]:
        texts.append(page.ok("models")["models"][0]["undoes"])
        page.ok("undo", model="m1", undo=token)
    assert texts == ["the save to net.hlab", "the reload of net.hlab", "the save to net.hlab"]
    assert same(weights(net), changed)


def test_models_without_a_plain_name_have_plain_files(page, namespace, tmp_path):
    namespace["first"], namespace["second"] = {"a/b": make_net()}, {"../c": make_net()}
    files = {model["name"]: model["file"] for model in page.ok("models")["models"]}
    assert len(set(files.values())) == 2 and all(re.fullmatch(r"[\w.]+", file) for file in files.values())
    for model in page.ok("models")["models"]:
        save(page, model["id"], "")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files.values())


def test_after_an_undo_the_model_has_no_last_save(page, namespace):
    from hybrid_lab.gluon.files.saved import last_file

    net = namespace["net"] = make_net()
    page.ok("undo", model="m1", undo=save(page)["undo"])
    assert last_file(net) is None


# -- folders -----------------------------------------------------------------------------------------------------------


def test_folders_are_created_and_listed(page, namespace, tmp_path):
    namespace["net"] = make_net()
    reply = save(page, file="runs/a/net")
    assert reply["file"] == "runs/a/net.hlab" and reply["path"] == str(tmp_path / "runs" / "a" / "net.hlab")
    assert page.ok("models")["models"][0]["file"] == "runs/a/net.hlab"
    kept = save(page)["kept"]
    assert kept.startswith("runs/a/.hybrid_lab_history/net.")
    assert [each["file"] for each in page.ok("history", model="m1", file="")["saves"]] == [kept]
    assert page.ok("compare", model="m1", file=kept)["difference"]["equal"]
    (tmp_path / "a.ipynb").write_text("{}")
    listed = page.ok("folder", notebook="sub/a.ipynb", path="")
    assert (listed["folders"], listed["archives"], listed["beside"]) == (["runs"], [], True)
    listed = page.ok("folder", notebook="sub/b.ipynb", path="runs/a")
    assert (listed["folders"], listed["archives"], listed["beside"]) == ([], ["net.hlab"], False)
    assert page.ok("folder", notebook="", path="nothing/there")["folders"] == []


def test_a_failed_save_removes_the_folders_that_it_created(page, namespace, tmp_path, monkeypatch):
    from hybrid_lab.formats import archive

    namespace["net"] = make_net()
    (tmp_path / "runs").mkdir()
    monkeypatch.setattr(archive, "save_cached_graphs", lambda *a, **k: (_ for _ in ()).throw(OSError(28, "full")))
    assert page.error("save", model="m1", file="runs/a/b/net", overwrite=False)["code"] == "failed"
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["runs"]


@pytest.mark.parametrize("name", ["out/net", "out/deeper/net", "dangling/net", "file.txt/net", "in/../../net"])
def test_folders_that_lead_out_are_refused(page, namespace, tmp_path, name):
    outside = tmp_path.parent / f"{tmp_path.name}-out"
    outside.mkdir()
    (tmp_path / "out").symlink_to(outside)
    (tmp_path / "dangling").symlink_to(outside / "nothing")
    (tmp_path / "file.txt").write_text("")
    namespace["net"] = make_net()
    for kind, more in (("save", {"overwrite": True}), ("reload", {"graphs": "code"}), ("compare", {})):
        assert page.error(kind, model="m1", file=name, **more)["code"] == "bad-file-name"
    assert page.error("folder", notebook="", path="out")["code"] == "bad-file-name"
    assert not list(outside.iterdir())


# -- autosave ----------------------------------------------------------------------------------------------------------


def test_an_autosave_asks_once_and_never_replaces_another_notebook_s(page, namespace, tmp_path, theirs):
    from tests.lab.saving.test_saving import train

    theirs("net.autosave.hlab")
    net = namespace["net"] = make_net()
    body = {"model": "m1", "file": "", "unit": "step", "every": 1}
    assert page.error("autosave", **body)["code"] == "exists"
    page.ok("autosave", **body, overwrite=True)
    try:
        train(net, 1)
        theirs("net.autosave.hlab")
        before = (tmp_path / "net.autosave.hlab").read_bytes()
        train(net, 1)
        assert "another notebook" in page.ok("models")["saving"]["m1"]["autosave"]["problem"]
        assert (tmp_path / "net.autosave.hlab").read_bytes() == before
    finally:
        page.ok("autosave", **body | {"unit": "off"})


# -- history with what was known ---------------------------------------------------------------------------------------


def test_a_save_knows_step_loss_and_note(page, namespace, tmp_path):
    net, other = make_net(), make_net()
    namespace |= {"net": net, "other": other}
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    runs.watch(True)
    for step in range(3):
        with mx.autograd.record():
            value = (net(inputs()) ** 2).mean()
        value.backward()
        trainer.step(1)
        mx.log(loss=float(step))
    runs.under_way().show_all()
    save(page, note="before the  \n change")
    runs.finish()
    save(page)
    save(page, "m2", "other.hlab")
    reply = page.ok("history", model="m1", file="")
    (kept,) = reply["saves"]
    assert (kept["step"], kept["loss"], kept["loss_name"], kept["note"]) == (3, 2.0, "loss", "before the    change")
    assert (reply["current"]["step"], reply["current"]["note"]) == (3, kept["note"])  # the same contents
    alone = page.ok("history", model="m2", file="")["current"]
    assert (alone["step"], alone["loss"], alone["note"]) == (None, None, "")
    spoil(net)
    save(page)
    assert page.ok("note", model="m1", file=kept["file"], note="kept")["note"] == "kept"
    assert page.ok("history", model="m1", file="")["saves"][0]["note"] == "kept"
    page.ok("note", model="m1", file="", note="x" * 1000)
    assert page.ok("history", model="m1", file="")["current"]["note"] == "x" * 200


DAMAGED = ["", "[]", "{", '{"step": "3"}', '{"step": -1, "loss": NaN}', '{"note": 3}', "[" * 4000]


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_facts_say_nothing(page, namespace, tmp_path, content):
    namespace["net"] = make_net()
    save(page, note="here")
    (facts,) = (tmp_path / history.FOLDER).glob("*.json")
    facts.write_text(content)
    current = page.ok("history", model="m1", file="")["current"]
    assert (current["step"], current["loss"], current["note"]) == (None, None, "")


def test_any_two_saves_are_compared_and_one_is_put_back(page, namespace, tmp_path):
    net = namespace["net"] = make_net()
    contents = []
    for _ in range(3):
        spoil(net)
        save(page)
        contents.append((tmp_path / "net.hlab").read_bytes())
    second, first = (each["file"] for each in page.ok("history", model="m1", file="")["saves"])
    between = page.ok("compare", model="m1", file=first, other=second)["difference"]
    assert not between["equal"] and between["first"].startswith("net.0") and between["second"].startswith("net.0")
    assert page.ok("compare", model="m1", file=first, other=first)["difference"]["equal"]
    before = weights(net)
    undo = page.ok("restore", model="m1", file=first)["undo"]
    assert (tmp_path / "net.hlab").read_bytes() == contents[0] and same(weights(net), before)
    assert len(page.ok("history", model="m1", file="")["saves"]) == 2
    page.ok("undo", model="m1", undo=undo)
    assert (tmp_path / "net.hlab").read_bytes() == contents[2]
    save(page)
    for file in ("net.hlab", "../net.hlab", "nothing.hlab"):
        assert page.error("restore", model="m1", file=file)["code"] in ("bad-request", "bad-file-name", "not-found")


# -- another kernel ----------------------------------------------------------------------------------------------------


def test_a_model_of_another_kernel_is_unknown(namespace):
    one, two = (Page(Session(lambda: namespace, kernel=name)) for name in ("one", "two"))
    namespace["net"] = make_net()
    ids = [page.ok("models")["models"][0]["id"] for page in (one, two)]
    assert ids == ["m1.one", "m1.two"]
    assert two.error("save", model=ids[0], file="", overwrite=True)["code"] == "unknown-model"
