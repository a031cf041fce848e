"""mx.view(net): the traits of the protocol, kept up to date; requests about its own model only."""

import json

import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn
from hybrid_lab.lab.kernel.session import Session
from hybrid_lab.lab.messages.connection import PROTOCOL
from tests.lab.conftest import CLASS, IMPORTS, MAKE, Stubborn, inputs, make_net

pytest.importorskip("anywidget")
widget = pytest.importorskip("hybrid_lab.lab.views.widget")

if not (widget.resources("hybrid_lab.lab") / "static" / "view.js").is_file():
    pytest.skip("the widget's front end is not built: make build", allow_module_level=True)

TRAITS = {"protocol", "version", "kernel_id", "model", "tree", "graph", "findings", "selected", "svg"}


@pytest.fixture
def view(namespace):
    def show(net, name=None):
        return widget.make_view(net, Session(lambda: namespace), name)

    return show


def ask(shown, kind, **body):
    """The reply to a custom message, as the browser sends it."""
    sent = []
    shown.send = lambda content: sent.append(content)
    request = {"hybrid_lab": PROTOCOL, "kernel_id": shown.kernel_id, "id": "r1", "type": kind, "body": body}
    shown._message(shown, request, [])
    (reply,) = [message for message in sent if message["type"] != "progress"]
    return reply


def test_traits_are_the_replies_of_the_protocol(view, namespace):
    net = namespace["net"] = make_net()
    shown = view(net)
    synced = set(shown.traits(sync=True)) - {"comm", "layout", "tabbable", "tooltip"}
    assert {name for name in synced if not name.startswith("_")} == TRAITS
    assert shown.protocol == PROTOCOL and shown.version == mx.__version__ and shown.model == "m1"
    for trait, kind, body in [
        ("tree", "tree", {}),
        ("findings", "findings", {}),
        ("graph", "graph", {"path": "", "program": ""}),
    ]:
        assert getattr(shown, trait) == ask(shown, kind, model="m1", **body)["body"]
    json.dumps([shown.tree, shown.graph, shown.findings], allow_nan=False)
    assert shown.tree["model"]["name"] == "net" and shown.selected == ""


def test_before_the_first_call_there_is_the_tree_and_the_neutral_graph(view):
    shown = view(make_net(called=False))
    assert shown.tree["root"]["state"] == "waiting" and "digraph" in shown.graph["dot"]
    assert shown.tree["root"]["parameter_count"] is None


def test_a_plain_top_shows_all_its_blocks(view):
    net = nn.Sequential()
    net.add(nn.HybridSequential())
    net[0].add(nn.Dense(2))
    shown = view(net, "mine")
    assert (shown.selected, shown.graph["path"], shown.tree["root"]["attr"]) == ("", "", "mine")
    assert [box["label"] for box in shown.graph["boxes"] if not box["parent"]] == [
        "0"
    ] and "not called yet" in shown.graph["summary"]


def test_the_traits_follow_the_cells(shell, run):
    run(IMPORTS, CLASS, "net = Net(); net.initialize(); net.hybridize()", "view = mx.view(net)")
    shown = shell.user_ns["view"]
    assert shown.tree["root"]["state"] == "waiting" and shown.tree["root"]["attr"] == "net"
    run("y = net(x)")
    assert shown.tree["root"]["state"] == "active" and shown.tree["root"]["output"]
    before = shown.tree
    run("1 + 1")
    assert shown.tree is before
    run("net.hybridize(False)")
    assert shown.tree["root"]["state"] == "eager"


def test_a_request_changes_the_traits_as_well(view, namespace):
    net = namespace["net"] = make_net()
    shown = view(net)
    of_save = ask(shown, "save", model="m1", file="", overwrite=False)["body"]["undo"]
    net.head.weight.set_data(net.head.weight.data() * 0)
    undo = ask(shown, "reload", model="m1", file="", graphs="code")["body"]["undo"]
    assert shown.tree["model"]["undo"] == undo
    assert ask(shown, "undo", model="m1", undo=undo)["type"] == "ok"
    assert shown.tree["model"]["undo"] == of_save


@pytest.mark.parametrize("kind", ["hello", "models", "lint", "open"])
def test_requests_of_the_other_channel_are_refused(view, namespace, kind):
    namespace["net"] = make_net()
    body = {
        "hello": {"front_end": "1", "protocol": 1, "notebook": ""},
        "models": {},
        "lint": {"cells": [], "only": []},
        "open": {"file": "a", "name": "b", "replace": True},
    }[kind]
    assert ask(view(namespace["net"]), kind, **body)["body"]["code"] == "bad-request"


def test_another_model_is_out_of_reach(view, namespace):
    namespace |= {"net": make_net(), "other": make_net()}
    shown = view(namespace["net"])
    for body in ({"model": "m2"}, {"model": "other"}):
        assert ask(shown, "tree", **body)["body"]["code"] == "unknown-model"
    assert ask(shown, "tree", model=7)["body"]["code"] in ("bad-request", "unknown-model")
    assert ask(shown, "nonsense")["body"]["code"] == "bad-request"


def test_a_model_without_a_variable_lives_as_long_as_its_view(view, namespace):
    import gc
    import weakref

    net = make_net()
    gone = weakref.ref(net)
    shown = view(net)
    del net
    gc.collect()
    assert gone() is not None and ask(shown, "tree", model=shown.model)["type"] == "ok"
    shown.close()
    gc.collect()
    assert gone() is None


def test_the_picture_from_the_browser_is_cleaned(view):
    shown = view(make_net())
    shown.svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(2)</script>'
        '<a href="javascript:alert(3)"><text>no</text></a><g id="n0"><path d="M0 0" style="fill:url(x)" fill="URL (http://x)"/></g>'
        '<title>&lt;script&gt;</title><image href="http://x"/><foreignObject><p>x</p></foreignObject></svg>'
    )
    assert "alert" not in shown.svg and "<a" not in shown.svg and 'd="M0 0"' in shown.svg
    assert not any(word in shown.svg for word in ("<script", "style", "http", "<p>", "image", "foreign"))
    for bad in ("<!DOCTYPE svg [<!ENTITY a 'b'>]><svg/>", "<html/>", "not xml <", "<svg" * 10):
        shown.svg = bad
        assert shown.svg == ""


def test_static_html_stands_beside_the_widget(view):
    shown = view(make_net(), "net")
    shown.svg = '<svg xmlns="http://www.w3.org/2000/svg"><path d="M1 1"/></svg>'
    bundle = shown._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "<script" not in data["text/html"] and "net" in data["text/html"] and "M1 1" in data["text/html"]
    assert data["text/plain"].startswith("Net(")


def test_what_is_no_block_is_refused(view):
    with pytest.raises(mx.diagnostics.HybridLabError, match="view needs a Block"):
        view(3)


def test_outside_of_ipython_the_view_works_too():
    net = make_net()
    assert mx.view(net, "net").tree["root"]["attr"] == "net"


def test_a_model_that_fails_still_shows(view):
    class Bad(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.inner = Stubborn()

        def hybrid_forward(self, F, x):
            return self.inner(x)

    net = make_net(Bad, called=False)
    with pytest.raises(mx.HybridizeError):
        net(inputs())
    shown = view(net, "net")
    assert shown.tree["root"]["state"] == "failed" and "HL101" in shown.graph["missing"]
    assert [item["block"] for item in shown.findings["findings"]] == ["net.inner"]


def test_run_in_a_cell(run):
    assert type(run(IMPORTS, CLASS, MAKE, "mx.view(net)")).__name__ == "View"


def test_a_box_of_views_is_static_where_a_program_runs_the_notebook(monkeypatch):
    import ipywidgets

    net = nn.Dense(2, in_units=3)
    net.initialize()
    view = widget.make_view(net, Session(dict))
    label = ipywidgets.Label("a <label>")
    box = ipywidgets.VBox([label, ipywidgets.HBox([view])])

    def kinds(bundle):
        return bundle[0] if isinstance(bundle, tuple) else bundle

    monkeypatch.setattr(widget, "is_run_by_a_program", lambda: True)
    data = widget._bundle_of_box(box)[0]
    assert set(data) == {"text/html", "text/plain"}
    text = data["text/html"]
    assert "Dense" in text and "a &lt;label&gt;" in text and "<script" not in text
    assert text.index("label") < text.index("Dense")
    plain = ipywidgets.VBox([label])
    assert widget.WIDGET in kinds(widget._bundle_of_box(plain))
    monkeypatch.setattr(widget, "is_run_by_a_program", lambda: False)
    assert widget.WIDGET in kinds(widget._bundle_of_box(box))
