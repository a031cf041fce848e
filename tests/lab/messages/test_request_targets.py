"""Every request names the kernel and the model that it is meant for: after a switch of notebook, a restart or a rename
it does the right thing, or nothing with a typed error.
"""

import pytest

from hybrid_lab.lab.kernel.session import Session
from hybrid_lab.lab.messages.connection import PROTOCOL
from hybrid_lab.lab.messages.requests import REQUESTS
from tests.lab.conftest import Page, make_net, weights
from tests.lab.saving.test_saving import files_in

FREE = {"hello", "models", "archives", "curves", "workers"}
"""Requests without fields that name anything."""


def bodies(model):
    """A valid body of each request, about this model where it is about one."""
    own = {"model": model}
    return {
        "hello": {"front_end": "1", "protocol": PROTOCOL, "notebook": "a.ipynb"},
        "models": {},
        "tree": own,
        "changes": own | {"since": 0},
        "summary": own | {"inputs": "", "batch": 0, "dtype": ""},
        "graph": own | {"path": "", "program": ""},
        "overlay": own | {"path": "", "program": "", "kind": "memory", "data": ""},
        "values": own | {"path": "head", "name": "weight", "what": "data"},
        "keep_inputs": own | {"on": True},
        "watch_nan": own | {"on": True},
        "answers": own,
        "findings": own,
        "explain": own,
        "lint": {"cells": [], "only": []},
        "save": own | {"file": "net", "overwrite": True},
        "reload": own | {"file": "net", "graphs": "code"},
        "compare": own | {"file": "net"},
        "compared_values": own | {"file": "net", "first": "head.weight", "second": "head.weight"},
        "undo": own | {"undo": "0"},
        "targets": {"files": ["net.hlab"]},
        "history": own | {"file": "net"},
        "histograms": own | {"file": "net", "path": "head", "name": "weight"},
        "restore": own | {"file": ".hybrid_lab_history/net.hlab"},
        "note": own | {"file": "net", "note": "mine"},
        "folder": {"notebook": "a.ipynb", "path": ""},
        "autosave": own | {"file": "", "unit": "step", "every": 5},
        "open": {"file": "net", "name": "opened", "replace": True},
        "archives": {},
        "asset": {"name": "graphviz"},
        "curves": {},
        "runs": {"numbers": []},
        "workers": {},
        "share": own,
        "watch": {"visible": True},
        "static": {"view": "0"},
    }


class Notebook:
    """A notebook with one model, `net`, and its page."""

    def __init__(self, kernel, fill):
        self.namespace = {"net": make_net()}
        for parameter in self.namespace["net"].collect_params().values():
            parameter.set_data(parameter.data() * 0 + fill)
        self.page = Page(Session(lambda: self.namespace, kernel=kernel))
        self.model = self.page.ok("models")["models"][0]["id"]

    def state(self):
        return {name: array.tobytes() for name, array in weights(self.namespace["net"]).items()}, set(self.namespace)


@pytest.fixture
def notebooks(namespace):
    """Two notebooks in one folder, with a model of the same name; the file is the first one's."""
    one, two = Notebook("one", 1.0), Notebook("two", 2.0)
    one.page.ok("save", model=one.model, file="net", overwrite=False)
    return one, two


def sent(page, kernel, kind, body):
    """The one reply to a request that names this kernel."""
    replies = page.send({"hybrid_lab": PROTOCOL, "kernel_id": kernel, "id": "r1", "type": kind, "body": body})
    (final,) = [reply for reply in replies if reply["type"] != "progress"]
    return final


def test_each_request_is_tried():
    assert set(bodies("")) == set(REQUESTS)


@pytest.mark.each_value
@pytest.mark.parametrize("kind", sorted(set(REQUESTS) - {"hello"}))
@pytest.mark.parametrize("meant_for", ["another notebook", "the kernel before its restart"])
def test_what_was_meant_for_another_kernel_is_refused(notebooks, tmp_path, kind, meant_for):
    one, two = notebooks
    target = two if meant_for == "another notebook" else Notebook("one after", 3.0)
    before, files = target.state(), files_in(tmp_path)
    reply = sent(target.page, "one", kind, bodies(one.model)[kind])
    assert (reply["type"], reply["body"]["code"]) == ("error", "wrong-kernel")
    assert target.state() == before and files_in(tmp_path) == files
    saving = target.page.ok("models")["saving"][target.model]
    assert saving["autosave"] is None and target.page.ok("watch_nan", model=target.model)["on"] is False


@pytest.mark.each_value
@pytest.mark.parametrize("kind", [kind for kind, body in bodies("").items() if "model" in body])
@pytest.mark.parametrize("meant_for", ["another notebook", "a model that is gone", "a model before a restart"])
def test_what_was_meant_for_another_model_is_refused(notebooks, tmp_path, kind, meant_for):
    one, two = notebooks
    target, model = two, one.model
    if meant_for == "a model that is gone":
        target, model = one, one.model
        one.namespace["net"] = make_net()
    elif meant_for == "a model before a restart":
        target = Notebook("one after", 3.0)
    before, files = target.state(), files_in(tmp_path)
    reply = sent(target.page, target.page.session.kernel, kind, bodies(model)[kind])
    assert (reply["type"], reply["body"]["code"]) == ("error", "unknown-model")
    assert target.state() == before and files_in(tmp_path) == files


@pytest.mark.parametrize("kind", sorted(REQUESTS))
def test_a_request_without_a_kernel_is_a_bad_one(notebooks, kind):
    one, _ = notebooks
    message = {"hybrid_lab": PROTOCOL, "id": "r1", "type": kind, "body": bodies(one.model)[kind]}
    final = one.page.send(message)[-1]
    assert final["type"] == "ok" if kind == "hello" else final["body"]["code"] == "bad-request"


@pytest.mark.parametrize("kind", sorted(set(REQUESTS) - {"asset", "static", "undo", "restore"}))
def test_each_request_is_answered_after_a_rename_of_the_notebook(notebooks, kind):
    """The kernel and its models stay the same."""
    one, _ = notebooks
    one.page.ok("hello", front_end="1", protocol=PROTOCOL, notebook="renamed.ipynb")
    one.page.ok("folder", notebook="renamed.ipynb", path="")
    assert sent(one.page, "one", kind, bodies(one.model)[kind])["type"] == "ok"
    one.page.ok("autosave", model=one.model, file="", unit="off", every=0)


def test_a_file_that_was_renamed_is_missed_or_written_anew(notebooks, tmp_path):
    one, _ = notebooks
    token = one.page.ok("models")["models"][0]["undo"]
    (tmp_path / "net.hlab").rename(tmp_path / "better.hlab")
    for kind, more in (("reload", {"graphs": "code"}), ("compare", {}), ("note", {"note": "x"})):
        assert one.page.error(kind, model=one.model, file="net.hlab", **more)["code"] == "not-found"
    assert one.page.error("undo", model=one.model, undo=token)["code"] == "nothing-to-undo"
    assert one.page.ok("history", model=one.model, file="")["current"] is None
    theirs = (tmp_path / "better.hlab").read_bytes()
    one.page.ok("save", model=one.model, file="", overwrite=False)
    assert (tmp_path / "better.hlab").read_bytes() == theirs


def test_after_a_move_of_the_notebook_the_folder_of_the_files_is_said(notebooks, tmp_path):
    """The kernel stays in its folder until it is shut down, whatever becomes of the notebook's file."""
    one, _ = notebooks
    (tmp_path / "a.ipynb").write_text("{}")
    assert one.page.ok("folder", notebook="a.ipynb", path="")["beside"]
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.ipynb").rename(tmp_path / "sub" / "a.ipynb")
    reply = one.page.ok("folder", notebook="sub/a.ipynb", path="")
    assert not reply["beside"] and reply["folder"] == str(tmp_path)
    assert one.page.ok("models")["folder"] == str(tmp_path)


def test_a_file_in_another_folder_than_the_kernel_s_is_not_proposed(notebooks, tmp_path, monkeypatch):
    """After os.chdir in a cell `net.hlab` is another file: its folder is told, and it is not taken for the model's."""
    one, _ = notebooks
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "net.hlab").write_bytes((tmp_path / "net.hlab").read_bytes())
    monkeypatch.chdir(tmp_path / "sub")
    reply = one.page.ok("models")
    assert reply["folder"] == str(tmp_path / "sub") and reply["models"][0]["file"] == "net.hlab"
    assert one.page.error("save", model=one.model, file="", overwrite=False)["code"] == "exists"
    monkeypatch.chdir(tmp_path)
    one.page.ok("save", model=one.model, file="", overwrite=False)
    monkeypatch.chdir(tmp_path.parent)
    assert one.page.ok("models")["models"][0]["file"] == f"{tmp_path.name}/net.hlab"  # the same file
