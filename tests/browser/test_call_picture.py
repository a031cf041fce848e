"""The picture of a plain Block in a living notebook: its calls, graphs that open in it, overlays of the whole."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import IN_LAB_ONLY, IN_ONE_FRONT_END

PLAIN = """import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import nn

def mlp(*units):
    net = nn.HybridSequential()
    net.add(*[nn.Dense(unit, activation="relu") for unit in units])
    return net

class Plain(gluon.Block):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder, self.head = mlp(32, 16, 16, 8), mlp(16, 16, 16, 32), nn.Dense(4)

    def forward(self, x):
        return self.head(nd.tanh(self.decoder(self.encoder(x))))

net = Plain()
net.initialize()
net.hybridize()
net(nd.ones((2, 32)))"""

GROUP = """gan = {"gen": mlp(8, 4), "dis": mlp(8, 1)}
for part in gan.values():
    part.initialize()
    part.hybridize()
gan["dis"](gan["gen"](nd.ones((2, 3))))"""


def box(place, name):
    return place.locator("svg.hl-g .hl-g-kind-block").filter(has_text=re.compile(f"^{name}"))


@IN_ONE_FRONT_END
def test_a_graph_opens_in_the_picture_of_the_whole(open_cells):
    notebook = open_cells([PLAIN, "mx.view(net)", GROUP])
    panel = notebook.show_panel()
    notebook.run_all()
    panel.get_by_role("combobox", name="Model", exact=True).select_option(label="net: Plain")
    view = notebook.show_cell(1).locator(".hl-wide")
    for place in (panel, view):
        graph = place.locator("svg.hl-g")
        expect(graph).to_contain_text("tanh")
        for name in ("encoder", "decoder"):
            expect(box(place, name)).to_have_attribute("aria-expanded", "false")
        expect(place).to_contain_text("3 calls of 3 graphs, 17 operators; 1 operator between them in eager mode")

        # Enter opens a Block's graph in place; an operator in it is selected, and the details name its Block.
        box(place, "decoder").locator(".hl-g-title").click()
        graph.focus()
        notebook.page.keyboard.press("Enter")
        expect(box(place, "decoder")).to_have_attribute("aria-expanded", "true")
        inner = box(place, "3")
        inner.locator(".hl-g-title").click()
        graph.focus()
        notebook.page.keyboard.press("Enter")
        notebook.close_drawer(place)
        graph.locator(".hl-g-node").filter(has_text="num_hidden=32").first.locator(".hl-g-title").click()
        expect(graph.locator(".hl-g-selected")).to_contain_text("FullyConnected")
        notebook.open_drawer("Details", place)
        expect(place.locator(".hl-details")).to_contain_text("decoder.3")
        notebook.close_drawer(place)

    # The overlay of the whole colours the nodes of all graphs.
    panel.get_by_role("combobox", name=re.compile("verlay")).select_option(label="Time")
    expect(panel).to_contain_text("in 3 calls of its Blocks")

    # Another call: the picture follows.
    notebook.kernel("net.forward = lambda x: net.encoder(x)\nnet(nd.ones((2, 32)))")
    expect(panel.locator("svg.hl-g")).not_to_contain_text("tanh")

    # The nets of a dict are one model.
    panel.get_by_role("combobox", name="Model", exact=True).select_option(label='gan: dict (part is gan["dis"])')
    expect(box(panel, "gen").first).to_be_visible()
    expect(box(panel, "dis").first).to_be_visible()


@pytest.mark.long
@IN_LAB_ONLY
def test_a_comparison_marks_the_whole_and_a_file_has_the_picture(open_cells):
    notebook = open_cells([PLAIN])
    panel = notebook.show_panel()
    notebook.run_all()
    graph = panel.locator("svg.hl-g")
    expect(graph).to_contain_text("tanh")
    notebook.click("Save net")
    notebook.result("net.hlab")

    # Other operators in one Block: they are marked in the picture of the whole, in their Block's box.
    other = PLAIN.replace("nn.Dense(4)", "nn.Dense(4, activation='sigmoid')")
    notebook.set_source(0, other)
    notebook.run_cell(0)
    expect(panel).to_contain_text("18 operators")
    notebook.click("Compare…")
    results = panel.locator(".hl-drawer-results")
    results.get_by_role("button", name="Show in graph").first.click(timeout=30_000)
    expect(graph.locator(".hl-g-measured").first).to_be_visible()
    expect(graph).to_contain_text("tanh")
    expect(graph.locator(".hl-g-selected")).to_have_attribute("aria-label", re.compile("added"))

    # The file, opened as a document, shows what was called before the save, and remembers the size of its panes.
    widths = []
    for key in ("ArrowRight", None):
        notebook.page.evaluate(
            "() => void window.jupyterapp.commands.execute('filebrowser:open-path', {path: 'net.hlab'})"
        )
        document = notebook.page.locator(".hl-doc-tab:not(.lm-mod-hidden) .hl-doc")
        expect(document.locator("svg.hl-g")).to_contain_text("tanh", timeout=30_000)
        expect(box(document, "encoder")).to_be_visible()
        expect(document.locator(".hl-graph-caption")).to_contain_text("as last called before it was saved")
        if key:
            handle = document.get_by_role("separator", name="Size of the tree")
            handle.focus()
            for _ in range(3):
                notebook.page.keyboard.press(key)
        notebook.page.wait_for_timeout(1500)
        widths.append(document.locator(".hl-tree-pane").bounding_box()["width"])
        notebook.page.evaluate("() => void window.jupyterapp.commands.execute('application:close')")
        expect(document).to_have_count(0)
    assert abs(widths[0] - widths[1]) < 2
