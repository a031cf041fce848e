"""What the graph brings into view - at first, by Fit, a hit, a link, a click, a key - is under nothing."""

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.jupyter import IN_LAB_ONLY, NotebookPage, wait_for
from tests.browser.test_layout import ENCODER, drawn, open_tab

SMALL = """import hybrid_lab as mx
from hybrid_lab import nd, gluon, autograd
from hybrid_lab.gluon import nn

class Small(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.hidden, self.output = nn.Dense(64, activation="relu"), nn.Dense(10)

    def hybrid_forward(self, F, x):
        return F.softmax(self.output(self.hidden(x)))

net = Small()
net.initialize(); net.hybridize()
net(nd.ones((2, 4)));"""

#: What lies over the boxes: their middle and their corners belong to something else. `selected`: only the selected one
COVERED = """(view, selected) => {
  const pane = view.querySelector('.hl-canvas').getBoundingClientRect();
  const items = [...view.querySelectorAll(`svg.hl-g .hl-g-item${selected ? '.hl-g-selected' : ''}`)];
  if (items.length === 0) return ['nothing is drawn'];
  return items.flatMap(item => {
    const part = item.classList.contains('hl-g-open') ? '.hl-g-title' : '.hl-g-shape';
    const { left, right, top, bottom } = item.querySelector(part).getBoundingClientRect();
    const at = [[(left + right) / 2, (top + bottom) / 2]];
    for (const x of [left + 3, right - 3]) for (const y of [top + 3, bottom - 3]) at.push([x, y]);
    return at.flatMap(([x, y]) => {
      const isIn = x > pane.left && x < pane.right && y > pane.top && y < pane.bottom;
      const there = document.elementFromPoint(x, y);
      const name = `${item.getAttribute('aria-label')} at ${Math.round(x)}, ${Math.round(y)}`;
      if (!isIn) return [`${name}: out of the pane`];
      return there?.closest('svg.hl-g') ? [] : [`${name}: ${there?.className?.baseVal ?? there?.className}`];
    });
  });
}"""


def free(view: Locator, selected: bool = True) -> None:
    """Until nothing lies over the selected box, or over any box."""
    wait_for(lambda: view.evaluate(COVERED, selected) == [] or pytest.fail(str(view.evaluate(COVERED, selected))), 1)


def in_tab(notebook: NotebookPage) -> Locator:
    """The model's tab alone on the page, with room for the drawer at the right."""
    tab = open_tab(notebook)
    drawn(tab)
    notebook.page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    notebook.page.evaluate("() => { window.jupyterapp.shell.mode = 'single-document'; }")
    notebook.page.wait_for_timeout(600)
    return tab


def settled(view: Locator) -> None:
    view.page.wait_for_timeout(350)


@pytest.mark.long
@IN_LAB_ONLY
@pytest.mark.parametrize("size", [(1280, 720), (1366, 768), (1440, 900), (1920, 1080)], ids="{0[0]}x{0[1]}".format)
def test_a_small_graph_is_under_nothing(open_cells, size):
    notebook = open_cells([SMALL])
    page = notebook.page
    page.set_viewport_size({"width": size[0], "height": size[1]})
    panel = notebook.show_panel()
    notebook.run_all()
    drawn(panel)
    view = in_tab(notebook)
    free(view, selected=False)  # the first picture

    # A click on each box opens the drawer at the right; the box comes out from under it, and goes back with it.
    world = view.locator("svg.hl-g > g")
    titles = view.locator("svg.hl-g .hl-g-item:not(.hl-g-open) .hl-g-title")
    for number in range(titles.count()):
        titles.nth(number).click()
        if number == 0:
            expect(view.locator(".hl-drawer")).to_be_visible()
            settled(view)
            free(view)
            notebook.close_drawer(view)
        settled(view)
        free(view)
        before = world.get_attribute("transform")
        notebook.open_drawer("Details", view)
        settled(view)
        free(view)
        notebook.close_drawer(view)
        settled(view)
        assert world.get_attribute("transform") == before

    # With the drawer open: Fit, keys, hits, rows of the tree.
    notebook.open_drawer("Details", view)
    view.get_by_role("button", name="Fit").click()
    settled(view)
    free(view, selected=False)
    view.locator("svg.hl-g").focus()
    for key in ("Home", "ArrowDown", "ArrowDown", "ArrowDown", "End", "ArrowUp"):
        page.keyboard.press(key)
        settled(view)
        free(view)
    for word in ("softmax", "output", "hidden"):
        search = view.get_by_role("searchbox", name="Search the graph")
        search.fill(word)
        search.press("Enter")
        settled(view)
        free(view)
    search.fill("")
    for row in view.locator(".hl-row").all()[1:]:
        row.click()
        settled(view)
        if view.locator("svg.hl-g .hl-g-selected").count():
            free(view)


@IN_LAB_ONLY
def test_a_box_of_a_large_graph_is_under_nothing(open_cells):
    notebook = open_cells([ENCODER])
    page = notebook.page
    page.set_viewport_size({"width": 1366, "height": 768})
    panel = notebook.show_panel()
    notebook.run_all()
    drawn(panel)
    view = in_tab(notebook)
    for _ in range(3):
        view.get_by_role("button", name="Zoom in").click()
    for row in view.locator(".hl-row").all()[1:8]:
        row.click()
        settled(view)
        free(view)
        page.keyboard.press("Escape")
    search = view.get_by_role("searchbox", name="Search the graph")
    search.fill("softmax")
    for _ in range(4):
        search.press("Enter")
        settled(view)
        free(view)
    view.locator("svg.hl-g").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "ArrowUp", "ArrowUp", "Home", "End"):
        page.keyboard.press(key)
        settled(view)
        free(view)


@pytest.mark.long
@IN_LAB_ONLY
def test_the_drawer_leaves_the_graph_two_fifths(open_cells):
    notebook = open_cells([ENCODER])
    page = notebook.page
    panel = notebook.show_panel()
    notebook.run_all()
    drawn(panel)
    edge = "Size of the drawer"
    for where, key in (("panel", "ArrowUp"), ("tab", "ArrowLeft")):
        view = panel if where == "panel" else in_tab(notebook)
        for size in ((1280, 720), (1920, 1080)):
            page.set_viewport_size({"width": size[0], "height": size[1]})
            settled(view)
            notebook.open_drawer("Details", view)
            view.get_by_role("separator", name=edge).focus()
            for _ in range(40):
                page.keyboard.press(key)
            settled(view)
            drawer, canvas = (view.locator(part).bounding_box() for part in (".hl-drawer", ".hl-canvas"))
            seen = drawer["y"] - canvas["y"] if key == "ArrowUp" else drawer["x"] - canvas["x"]
            whole = canvas["height" if key == "ArrowUp" else "width"]
            assert seen >= 0.39 * whole, (size, key, seen, whole)
            notebook.close_drawer(view)
