"""The graph has the room: how many pixels of it are seen, and that nothing moves when something comes or goes."""

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.jupyter import FRONT_ENDS, IN_LAB_ONLY, NotebookPage, wait_for

ENCODER = """import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn

class Layer(gluon.HybridBlock):
    def __init__(self, units=32):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(), nn.LayerNorm()
        self.qkv = nn.Dense(3 * units, flatten=False)
        self.proj = nn.Dense(units, flatten=False)
        self.ffn1 = nn.Dense(4 * units, flatten=False, activation="relu")
        self.ffn2 = nn.Dense(units, flatten=False)

    def hybrid_forward(self, F, x):
        q, k, v = F.split(self.qkv(self.norm1(x)), num_outputs=3, axis=2)
        x = x + self.proj(F.batch_dot(F.softmax(F.batch_dot(q, k, transpose_b=True)), v))
        return x + self.ffn2(self.ffn1(self.norm2(x)))

net = nn.HybridSequential()
net.add(nn.Embedding(50, 32), *[Layer() for _ in range(6)], nn.Dense(10, flatten=False))
net.initialize()
net.hybridize()
net(mx.nd.ones((2, 8), dtype="int32")).shape"""

LOG = """for step in mx.lab.progress(range(5), "steps"):
    mx.log(loss=1 / (step + 1))"""

#: The least height of the canvas in pixels by the size of the page: in the side panel, and in the tab.
LEAST = {(1280, 720): (260, 520), (1366, 768): (300, 560), (1440, 900): (400, 700), (3840, 2160): (1000, 1900)}

#: The rows of the canvas that are seen: what neither the page nor another part of the view covers.
SEEN = """canvas => {
  const { left, right, top, bottom } = canvas.getBoundingClientRect();
  const x = Math.round(left + (right - left) / 2);
  let count = 0;
  for (let y = Math.ceil(top); y < bottom; y++) {
    const hit = document.elementFromPoint(x, y);
    count += hit !== null && canvas.parentElement.contains(hit) ? 1 : 0;
  }
  return count;
}"""

#: Where each row of the tree and the canvas are on the page, and where the camera of the graph stands.
PLACES = """view => {
  const at = element => {
    const { x, y, width, height } = element.getBoundingClientRect();
    return [x, y, width, height].map(value => Math.round(value * 10) / 10).join(' ');
  };
  const places = { canvas: at(view.querySelector('.hl-canvas')), tree: at(view.querySelector('.hl-tree')) };
  for (const row of view.querySelectorAll('.hl-row')) places['row ' + row.dataset.path] = at(row);
  places.camera = view.querySelector('svg.hl-g > g').getAttribute('transform');
  return places;
}"""


def open_tab(notebook: NotebookPage) -> Locator:
    notebook.panel.get_by_role("button", name="Open as a tab").click()
    return notebook.page.locator("#hybrid-lab-tab")


def drawn(view: Locator) -> None:
    expect(view.locator("svg.hl-g .hl-g-shape").first).to_be_visible(timeout=30_000)


@pytest.mark.long
@IN_LAB_ONLY
def test_so_much_of_the_graph_is_seen(open_cells):
    """JupyterLab as it opens, with its file browser's width, and the tab beside the notebook."""
    notebook = open_cells([ENCODER])
    page = notebook.page
    panel = notebook.show_panel()
    notebook.run_all()
    drawn(panel)
    tab = open_tab(notebook)
    drawn(tab)
    found = {}
    for (width, height), least in LEAST.items():
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(700)
        found[width, height] = [view.locator(".hl-canvas").evaluate(SEEN) for view in (panel, tab)]
        assert all(seen >= wanted for seen, wanted in zip(found[width, height], least, strict=True)), found
    print("pixels of the canvas that are seen (side panel, tab):", found)


#: Notebook 7 has the panel, and no tabs.
VIEWS = [("lab", "panel"), ("lab", "tab"), ("notebook", "panel")]
VIEWS = [view for view in VIEWS if view[0] in FRONT_ENDS]


@pytest.mark.parametrize(("front_end", "where"), VIEWS)
def test_nothing_moves_when_something_comes_or_goes(open_cells, where):
    notebook = open_cells([ENCODER, LOG, "other = nn.Dense(2)", "def f(:"])
    page = notebook.page
    page.set_viewport_size({"width": 1366, "height": 768})
    panel = notebook.show_panel()
    notebook.run_cell(0)
    view = open_tab(notebook) if where == "tab" else panel
    drawn(view)
    view.locator(".hl-row").nth(1).click()
    view.locator(".hl-row").nth(0).click()
    page.wait_for_timeout(1500)
    drawn(view)
    kernel = "code => [...window.jupyterapp.shell.widgets('main')].find(it => it.sessionContext)"
    kernel += ".sessionContext.session.kernel.requestExecute({ code }).done.then(() => null)"
    before = view.evaluate(PLACES)

    def same(what: str) -> None:
        page.wait_for_timeout(400)
        now = view.evaluate(PLACES)
        moved = {name: (place, now.get(name)) for name, place in before.items() if now.get(name) != place}
        assert not moved, (what, moved)

    view.locator("svg.hl-g .hl-g-kind-input .hl-g-title").click()
    same("select an operator")
    view.get_by_role("tab", name="Details").click()
    same("its details")
    page.keyboard.press("Escape")
    same("no details")
    view.get_by_role("button", name="Save net", exact=True).click()
    expect(view.locator(".hl-drawer-results")).to_contain_text("net.hlab", timeout=30_000)
    same("save")
    if view.get_by_role("button", name="Replace it").is_visible():
        view.get_by_role("button", name="Replace it").click()
    page.evaluate(kernel, "net[0].weight.set_data(net[0].weight.data() * 2)")
    view.get_by_role("button", name="Compare…", exact=True).click()
    expect(view.locator(".hl-drawer-results")).to_contain_text("differs by up to", timeout=30_000)
    same("compare")
    if where == "tab":  # the graphs side by side lie over tree and graph
        view.get_by_role("button", name="Close the comparison").click()
        same("the end of the comparison")
    for name in ("Findings", "Report", "Details"):
        notebook.open_drawer(name, view)
        same(name)
    notebook.close_drawer(view)
    for menu in ("More actions", "More about the graph"):
        notebook.open_menu(menu, view)
        same(menu)
        page.keyboard.press("Escape")
    page.evaluate(kernel, "other = nn.Dense(2)")
    page.evaluate(kernel, LOG)
    expect(view.locator(".hl-notes")).to_contain_text("New model: other", timeout=30_000)
    same("a note")
    expect(view.get_by_role("tab", name="Training")).to_be_visible(timeout=30_000)
    notebook.open_drawer("Training", view)
    same("curves")
    notebook.close_drawer(view)
    view.locator(".hl-row").nth(2).click()
    now = view.evaluate(PLACES)
    rows = [name for name in before if name.startswith("row")]
    assert {name: now[name] for name in [*rows, "canvas"]} == {name: before[name] for name in [*rows, "canvas"]}


#: The element that has the focus, as one word.
FOCUSED = """() => {
  const active = document.activeElement;
  const part = active.closest('.hl-toolbar, .hl-banner, .hl-graph-bar, .hl-tree, .hl-zoom, .hl-drawer-tabs, svg.hl-g');
  return (part ?? active).getAttribute('class')?.split(' ')[0] ?? active.tagName;
}"""


@pytest.mark.long
def test_the_graph_is_a_few_tab_stops_away(open_cells):
    notebook = open_cells([ENCODER])
    page = notebook.page
    panel = notebook.show_panel()
    notebook.run_all()
    drawn(panel)
    panel.get_by_role("combobox", name="Model", exact=True).focus()
    stops = [page.evaluate(FOCUSED)]
    while stops[-1] != "hl-drawer-tabs" and len(stops) < 20:
        page.keyboard.press("Tab")
        stops.append(page.evaluate(FOCUSED))
    bar = stops.index("hl-graph-bar") - 1  # the bar between the panes
    assert stops[:bar] + stops[bar + 1 :] == [
        *("hl-toolbar", "hl-banner", "hl-input", "hl-button", "hl-tree"),  # filter, and columns of the tree
        *("hl-graph-bar", "hl-g", "hl-zoom", "hl-drawer-tabs"),
    ]

    # Within the row of tools the arrow keys move.
    panel.get_by_role("combobox", name="Model", exact=True).focus()
    page.keyboard.press("ArrowRight")
    expect(panel.get_by_role("button", name="Save net", exact=True)).to_be_focused()
    page.keyboard.press("End")
    expect(panel.get_by_role("button", name="More actions")).to_be_focused()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    expect(panel.get_by_role("button", name="More actions")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(panel.get_by_role("group", name="More actions")).to_be_visible()
    page.keyboard.press("Escape")
    expect(panel.get_by_role("button", name="More actions")).to_be_focused()


@pytest.mark.long
def test_panes_are_resized_by_mouse_and_keys_and_remembered(open_cells):
    notebook = open_cells([ENCODER])
    page = notebook.page
    panel = notebook.show_panel()
    notebook.run_all()
    drawn(panel)
    canvas = panel.locator(".hl-canvas")
    handle = panel.get_by_role("separator", name="Size of the tree")

    def height() -> float:
        return canvas.bounding_box()["height"]

    before = height()
    box = handle.bounding_box()
    page.mouse.move(box["x"] + 50, box["y"] + 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 50, box["y"] - 98, steps=4)
    page.mouse.up()
    wait_for(lambda: height() == pytest.approx(before + 100, abs=3))
    handle.focus()
    page.keyboard.press("ArrowDown")
    wait_for(lambda: height() == pytest.approx(before + 76, abs=3))

    # The drawer: its edge moves, the canvas below it does not.
    notebook.open_drawer("Details")
    drawer = panel.locator(".hl-drawer")
    size = drawer.bounding_box()["height"]
    panel.get_by_role("separator", name="Size of the drawer").focus()
    page.keyboard.press("ArrowDown")
    wait_for(lambda: drawer.bounding_box()["height"] == pytest.approx(size - 24, abs=3))
    assert height() == pytest.approx(before + 76, abs=3)
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
    expect(panel.get_by_role("tab", name="Details")).to_be_focused()

    # The tree folds away, and comes back.
    panel.get_by_role("button", name="Tree", exact=True).click()
    expect(panel.get_by_role("tree")).to_be_hidden()
    assert height() > before + 200
    panel.get_by_role("button", name="Tree", exact=True).click()
    wait_for(lambda: height() == pytest.approx(before + 76, abs=3))

    page.wait_for_timeout(2500)  # JupyterLab saves its state now and then
    page.reload()
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=90_000)
    notebook.wait_kernel()
    notebook.show_panel()
    drawn(panel)
    wait_for(lambda: height() == pytest.approx(before + 76, abs=3))
    notebook.open_drawer("Details")
    wait_for(lambda: drawer.bounding_box()["height"] == pytest.approx(size - 24, abs=3))
