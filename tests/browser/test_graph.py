"""The graph viewer in a living notebook: boxes that open in place, kernels, programs, paths, search, files."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import IN_ONE_FRONT_END
from tests.browser.test_lab import MODEL, STUBBORN

CONVOLUTION = """net = nn.HybridSequential()
net.add(nn.Conv2D(6, 5, activation="relu"), nn.MaxPool2D(2, 2), nn.Dense(10))
net.initialize()
net.hybridize()
net(mx.nd.ones((2, 1, 28, 28)))"""

#: The texts of each node that has a shape, and whether they are inside of it.
NODE_TEXTS = """root => [...root.querySelectorAll('.hl-g-item:not(.hl-g-open)')].flatMap(item => {
  const shape = item.querySelector('.hl-g-shape').getBoundingClientRect();
  return [...item.querySelectorAll('text:not(.hl-g-type)')].map(text => {
    const line = text.getBoundingClientRect();
    return [text.textContent, line.left >= shape.left && line.right <= shape.right && line.bottom <= shape.bottom];
  });
})"""


@pytest.mark.long
@IN_ONE_FRONT_END
def test_what_is_written_fits_its_place(open_cells):
    notebook = open_cells([MODEL, CONVOLUTION, STUBBORN, "mx.view(net)"])
    panel = notebook.show_panel()
    notebook.run_all()
    view = notebook.show_cell(3).locator(".hl-wide")
    for place in (panel, view):
        expect(place.locator("svg.hl-g")).to_contain_text("kernel=(5, 5)")
        found = place.evaluate(NODE_TEXTS)
        assert found and all(fits for _, fits in found), found
        assert "num_filter=6" in " ".join(place.locator("svg.hl-g title").all_text_contents())
        notebook.open_drawer("Report", place)
        report = place.locator(".hl-report")
        expect(report).to_contain_text("FullyConnected")
        styles = "it => [getComputedStyle(it).whiteSpace, getComputedStyle(it).wordBreak]"
        assert report.evaluate(styles) == ["pre", "normal"]

    # Drawn again in a tab that is not shown: the next batch's program is the one that is shown.
    notebook.kernel("net(mx.nd.ones((3, 1, 28, 28)))")
    expect(panel.locator("svg.hl-g")).to_contain_text("f32[3,6,24,24]")
    notebook.close_drawer()
    expect(panel.locator("svg.hl-g .hl-g-node").filter(has_text="Convolution")).to_be_visible()

    # The notebook's other findings are listed, but not counted as the model's.
    expect(panel.get_by_role("tab", name="Findings")).to_have_text("Findings")
    notebook.open_drawer("Findings")
    expect(panel.locator(".hl-others .hl-finding")).to_have_count(2)


KERNELS = """import os
os.environ["HYBRID_LAB_TRITON"] = "interpret"
net = nn.HybridSequential()
net.add(nn.Dense(8, activation="relu"), nn.LayerNorm(), nn.Dense(4))
net.initialize()
net.hybridize(engine="triton")
net(mx.nd.ones((2, 8)))"""

#: How well the name of a box or node can be read where it stands: the ratio of WCAG, 4.5 at least for small text.
CONTRAST = """item => {
  const light = colour => {
    const parts = colour.match(/[0-9.]+/g).map(Number).slice(0, 3);
    const [r, g, b] = parts.map(part => colour.startsWith('color') ? part : part / 255)
      .map(part => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const under = light(getComputedStyle(item.querySelector('.hl-g-shape')).fill);
  return Math.min(...[...item.querySelectorAll(':scope > text:not(.hl-g-type)')].map(text => {
    const over = light(getComputedStyle(text).fill);
    return (Math.max(under, over) + 0.05) / (Math.min(under, over) + 0.05);
  }));
}"""


def for_each_theme(notebook):
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        change = "theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })"
        notebook.page.evaluate(change, theme)
        notebook.page.wait_for_timeout(700)
        yield theme


@IN_ONE_FRONT_END
def test_a_kernel_is_a_box_that_shows_its_source(open_cells):
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    notebook = open_cells([MODEL, KERNELS, "mx.view(net)"])
    panel = notebook.show_panel()
    notebook.run_all()
    view = notebook.show_cell(2).locator(".hl-wide")
    for place in (panel, view):
        place.get_by_role("searchbox", name=re.compile("^Search the graph")).fill("activation_sum")
        notebook.page.keyboard.press("Enter")
        kernel = place.locator("svg.hl-g .hl-g-kind-kernel").filter(has_text="activation")
        expect(kernel).to_have_attribute("aria-label", re.compile(r"^kernel activation_sum.* operators, rows, open$"))

        # A click on its name shows the source, which can be reached and scrolled with the keyboard.
        kernel.locator(".hl-g-title").click()
        notebook.open_drawer("Details", place)
        source = place.locator(".hl-details .hl-source")
        expect(source).to_contain_text("@triton.jit")
        expect(source).to_contain_text("tl.sum(")
        source.focus()
        expect(source).to_be_focused()

        # An operator names the kernel that it runs in, and leads to it.
        place.get_by_role("searchbox", name=re.compile("^Search the graph")).fill("sqrt")
        notebook.page.keyboard.press("Enter")
        expect(place.locator("svg.hl-g .hl-g-selected")).to_contain_text("sqrt")
        expect(source).to_have_count(0)
        place.locator(".hl-details").get_by_role("button", name=re.compile("^activation_sum")).click()
        expect(source).to_contain_text("@triton.jit")
        expect(kernel).to_have_class(re.compile("hl-g-selected"))

        # Closed by a key; the name and the second line can be read in both themes.
        notebook.close_drawer(place)
        place.locator("svg.hl-g").focus()
        notebook.page.keyboard.press("Escape")
        expect(kernel).to_have_attribute("aria-expanded", "false")
        for theme in for_each_theme(notebook):
            assert kernel.evaluate(CONTRAST) >= 4.5, theme


RESIDUAL = """class Cell(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.body = nn.HybridSequential()
        self.body.add(nn.Dense(16, activation="relu", flatten=False), nn.Dense(16, flatten=False))

    def forward(self, x):
        return x + self.body(x)

net = nn.HybridSequential()
net.add(nn.Dense(16), *[Cell() for _ in range(12)], nn.Dense(3))
net.initialize()
net.hybridize()
net(mx.nd.ones((2, 5)))"""


def box_of(locator):
    return locator.locator(".hl-g-shape").last.bounding_box()


def place_in(graph, item):
    box, pane = box_of(item), graph.bounding_box()
    return box["x"] - pane["x"], box["y"] - pane["y"]


@IN_ONE_FRONT_END
def test_boxes_open_in_place_by_mouse_and_keys(open_cells):
    notebook = open_cells([MODEL, RESIDUAL])
    panel = notebook.show_panel()
    notebook.page.evaluate("() => window.jupyterapp.shell._hsplitPanel?.setRelativeSizes([0.5, 0.5, 0])")
    notebook.run_all()
    graph = panel.locator("svg.hl-g")
    expect(panel.get_by_role("combobox", name="Program")).to_contain_text("predict (2, 5)")

    # It starts with the first input in sight.
    start = graph.locator(".hl-g-kind-input").first
    expect(start).to_be_visible()
    place, pane = box_of(start), graph.bounding_box()
    assert pane["y"] < place["y"] and place["y"] + place["height"] < pane["y"] + pane["height"]
    assert pane["x"] < place["x"] and place["x"] + place["width"] < pane["x"] + pane["width"]

    panel.get_by_role("combobox", name="Program").select_option(label="traced")
    expect(panel.locator(".hl-graph-caption")).to_contain_text("shapes of predict")
    fold = graph.locator(".hl-g-kind-fold")
    expect(fold).to_contain_text("12 × Cell")

    # A double-click opens the fold where it is, with one of its Blocks as a sample.
    fold.scroll_into_view_if_needed()
    before = place_in(graph, fold)
    fold.dblclick(position={"x": 60, "y": 12})
    expect(fold).to_have_attribute("aria-expanded", "true")
    assert place_in(graph, fold) == pytest.approx(before, abs=3)
    cells = graph.locator(".hl-g-kind-block")
    expect(cells.and_(graph.locator("[aria-expanded=true]")).first).to_be_visible()

    # The keyboard alone: out of the fold, in again, along the edges.
    graph.focus()
    notebook.page.keyboard.press("Escape")
    expect(fold).to_have_attribute("aria-expanded", "false")
    notebook.page.keyboard.press("Enter")
    expect(fold).to_have_attribute("aria-expanded", "true")
    notebook.page.keyboard.press("Enter")
    selected = graph.locator(".hl-g-selected")
    expect(selected).to_have_attribute("aria-label", re.compile("^Block 1, Cell"))
    notebook.page.keyboard.press("ArrowDown")
    expect(selected).to_have_attribute("aria-label", re.compile("^Block 2, Cell"))
    notebook.page.keyboard.press("t")
    expect(graph.locator(".hl-g-up").first).to_be_attached()
    expect(graph.locator(".hl-g-down").first).to_be_attached()

    notebook.page.keyboard.press("ArrowDown")

    cell = graph.locator("[aria-label^='Block 3, Cell']")
    cell.dblclick(position={"x": 60, "y": 12})
    expect(cell).to_have_attribute("aria-expanded", "true")

    # Search opens the boxes above a hit and goes there.
    notebook.open_menu("More about the graph")
    panel.get_by_role("button", name="Close all").click()
    expect(fold).to_have_attribute("aria-expanded", "false")
    search = panel.get_by_role("searchbox", name=re.compile("^Search the graph"))
    search.click()  # which closes the menu
    search.fill("12.body")
    search.press("Enter")
    expect(fold).to_have_attribute("aria-expanded", "true")
    expect(selected).to_be_visible()

    with notebook.page.expect_download() as download:
        notebook.open_menu("More about the graph")
        panel.get_by_role("button", name="SVG", exact=True).click()
    text = download.value.path().read_text()
    assert text.startswith("<svg") and "12 × Cell" in text and "style=" not in text
    for theme in for_each_theme(notebook):
        assert min(item.evaluate(CONTRAST) for item in graph.locator(".hl-g-node").all()[:4]) >= 4.5, theme


@pytest.mark.long
@IN_ONE_FRONT_END
def test_the_widget_fits_a_narrow_page(open_cells):
    notebook = open_cells([MODEL, CONVOLUTION, "mx.view(net)"])
    notebook.page.set_viewport_size({"width": 800, "height": 900})
    notebook.run_all()
    view = notebook.show_cell(2).locator(".hl-wide")
    expect(view.locator("svg.hl-g .hl-g-node").first).to_be_visible()
    cut = """root => [root, ...root.querySelectorAll('.hl-toolbar, .hl-stage, .hl-graph-part, .hl-graph-bar')]
      .filter(it => it.scrollWidth > it.clientWidth + 1).map(it => it.className)"""
    assert view.evaluate(cut) == []
