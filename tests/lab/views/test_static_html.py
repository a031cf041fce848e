"""A Block as the last line of a cell: a static tree, without scripts, that nbconvert keeps."""

import re
from html.parser import HTMLParser

import nbformat
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn
from hybrid_lab.lab.models.tree import block_tree
from hybrid_lab.lab.views.static_html import block_html
from tests.lab.conftest import CLASS, IMPORTS, MAKE, Net, Stubborn, inputs, make_net


class Text(HTMLParser):
    """Tags and text of a piece of HTML; checks that every tag is closed."""

    def __init__(self, source):
        super().__init__()
        self.open, self.tags, self.text = [], set(), ""
        self.feed(source)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.tags.add(tag)
        assert not any(name.startswith("on") or name in ("href", "src") for name, _ in attributes)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_tree_in_words():
    net = make_net()
    text = re.sub(r"\s+", " ", Text(net._repr_html_()).text)
    assert f"{net.name}: Net (4 x 3) float32" in text and "head: Dense(8 -> 3, linear)" in text
    assert "graph" in text and "107 parameters" in text


def test_no_scripts_no_style_sheets_and_no_colours():
    source = make_net()._repr_html_()
    assert Text(source).tags <= {"div", "details", "summary", "ul", "li", "b", "span"}
    assert set(re.findall(r"color:([\w#]+)", source)) == {"inherit"} and "background" not in source


def test_names_and_reprs_are_escaped():
    class Evil(gluon.HybridBlock):
        def __repr__(self):
            return "<script>alert('1')</script>"

        def hybrid_forward(self, F, x):
            return x

    Evil.__name__ = "<img src=x onerror=alert(2)>"
    net = gluon.nn.HybridSequential()
    net.register_child(Evil(), '"><script>')
    source = block_html(net, "<b>&")
    assert Text(source).tags <= {"div", "details", "summary", "ul", "li", "b", "span"}
    assert "<script>" not in source and "<img" not in source and "&lt;b&gt;&amp;" in source


def test_states_are_told():
    net = make_net(Stubborn, called=False)
    assert "hybridized, not called" in net._repr_html_()
    with pytest.raises(mx.HybridizeError):
        net(inputs())
    assert "does not hybridize" in net._repr_html_() and "HL101" in net._repr_html_()
    assert "not hybrid" in nn.Sequential()._repr_html_()
    fresh = Net()
    assert "shapes not known yet" in fresh._repr_html_()


def test_a_shared_block_is_shown_once():
    net = nn.HybridSequential()
    net.add(nn.Dense(2))
    net.register_child(net[0], "twin")
    assert "the same Block as 0" in Text(block_html(net)).text


def test_the_plain_repr_is_mxnet_s():
    net = nn.HybridSequential()
    net.add(nn.Dense(10, in_units=5, activation="relu"), nn.Dropout(0.5))
    assert (
        repr(net) == "HybridSequential(\n  (0): Dense(5 -> 10, Activation(relu))\n  (1): Dropout(p = 0.5, axes=())\n)"
    )


def test_a_class_may_have_html_of_its_own(run):
    run(
        IMPORTS,
        CLASS.replace("    def __init__", "    def _repr_html_(self):\n        return 'mine'\n\n    def __init__", 1),
    )
    assert run("get_ipython().display_formatter.format(Net())[0]['text/html']") == "mine"


def test_a_broken_repr_does_not_hide_the_tree(run):
    run(IMPORTS, "class Broken(gluon.Block):\n    def __repr__(self):\n        raise ValueError\nnet = Broken()")
    assert "Broken" in run("net._repr_html_()")


def test_nbconvert_keeps_the_tree(run):
    """The output as a notebook file has it, through `nbconvert --to html`."""
    nbconvert = pytest.importorskip("nbconvert")
    data, metadata = run(IMPORTS, CLASS, MAKE, "get_ipython().display_formatter.format(net)")
    assert set(data) == {"text/plain", "text/html"}
    notebook = nbformat.v4.new_notebook()
    output = nbformat.v4.new_output("execute_result", data, metadata=metadata, execution_count=1)
    notebook.cells = [nbformat.v4.new_code_cell("net", execution_count=1, outputs=[output])]
    page, _ = nbconvert.HTMLExporter().from_notebook_node(notebook)
    assert data["text/html"].replace("<details open>", '<details open="">') in page


def test_large_models_are_cut():
    net = nn.HybridSequential()
    for _ in range(40):
        inner = nn.HybridSequential()
        inner.add(*[nn.Dense(4, in_units=4) for _ in range(9)])
        net.add(inner)
    tree = block_tree(net, "net")
    assert tree["parameter_count"] == 40 * 9 * 20 and len(tree["children"]) == 40
    for _ in range(200):
        net.add(*[nn.Dense(1) for _ in range(10)])
    html = block_html(net)
    assert len(html) < 1_000_000 and "more" in Text(html).text
