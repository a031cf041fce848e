"""Side panels as narrow as people make them: what lies over something else is small and hides nothing needed."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import IN_LAB_ONLY, wait_for
from tests.browser.test_layout import ENCODER, drawn, open_tab

WIDTHS = (250, 320, 400)

#: The part of the canvas's height that the card of the overlay and its legend cover.
COVERED = """view => {
  const height = name => view.querySelector(name).getBoundingClientRect().height;
  return (height('.hl-overlay-bar') + height('.hl-g-legend')) / height('.hl-canvas');
}"""

#: How many rows of the tree an element lies over.
ROWS_BELOW = """element => {
  const own = element.getBoundingClientRect();
  return [...element.closest('.hl-stage').querySelectorAll('[role=treeitem]')].filter(row => {
    const { left, right, top, bottom } = row.getBoundingClientRect();
    const tree = row.closest('.hl-tree').getBoundingClientRect();
    const [first, last] = [Math.max(top, tree.top), Math.min(bottom, tree.bottom)];
    return left < own.right && right > own.left && first < own.bottom && last > own.top;
  }).length;
}"""

#: Whether a click in the middle of an element reaches it.
IS_REACHED = """element => {
  element.scrollIntoView({ block: 'nearest' });
  const { left, right, top, bottom } = element.getBoundingClientRect();
  return element.contains(document.elementFromPoint((left + right) / 2, (top + bottom) / 2));
}"""


@IN_LAB_ONLY
def test_what_lies_over_the_graph_is_small_and_off_the_tree(open_cells):
    notebook = open_cells([ENCODER])
    page = notebook.page
    page.set_viewport_size({"width": 1280, "height": 720})
    panel = notebook.show_panel()
    notebook.run_all()
    drawn(panel)
    panel.get_by_role("combobox", name="Overlay").select_option("time")
    legend = panel.get_by_role("note", name="Legend")
    expect(legend).to_be_visible(timeout=30_000)
    for width in WIDTHS:
        notebook.widen(width)
        wait_for(lambda: panel.evaluate(COVERED) < 0.2)
        notebook.kernel(f"other{width} = nn.Dense(2)")
        notes = panel.locator(".hl-notes")
        expect(notes).to_contain_text(f"New model: other{width}", timeout=30_000)
        assert notes.evaluate(ROWS_BELOW) == 0, width
        panel.get_by_role("button", name="Dismiss the notes").click()

        # The hits of a search are reached, whatever the drawer covers.
        notebook.open_drawer("Details")
        field = panel.get_by_role("searchbox", name="Search the graph")
        field.fill("FullyConnected")
        hits = panel.locator(".hl-hit-row")
        expect(hits.nth(5)).to_be_attached()
        expect(panel.locator(".hl-hit-list")).to_be_visible()
        assert all(hits.nth(index).evaluate(IS_REACHED) for index in (0, 3, hits.count() - 1)), width
        assert field.evaluate(IS_REACHED), width
        field.fill("")
        notebook.close_drawer()

    # One line of the legend unfolds, by keyboard too, and so does the card.
    line = legend.get_by_role("button")
    assert "Measured on random numbers" in line.get_attribute("title")
    line.focus()
    page.keyboard.press("Enter")
    expect(line).to_have_attribute("aria-expanded", "true")
    expect(legend.locator(".hl-g-legend-scales")).to_be_visible()
    notebook.unfold_card()
    expect(panel.locator(".hl-overlay-marked button").first).to_be_visible()

    # What was unfolded by hand stays so in another width; details follow the overlay.
    notebook.widen(WIDTHS[0])
    expect(panel.locator(".hl-overlay-marked button").first).to_be_visible()
    panel.locator(".hl-overlay-marked button").first.click()
    notebook.open_drawer("Details")
    measured = panel.locator(".hl-details .hl-measured")
    expect(measured).to_contain_text(re.compile(r"Measured~?[a-z ]*[0-9.]+ (µs|ms)"))
    panel.get_by_role("combobox", name="Overlay").select_option("memory")
    expect(measured).to_contain_text(re.compile(r"Measured[0-9.]+ (B|KiB)"))
    panel.get_by_role("combobox", name="Overlay").select_option("")
    expect(measured).to_have_count(0)


@pytest.mark.long
@IN_LAB_ONLY
def test_the_hits_are_over_the_drawer_of_the_tab(open_cells):
    notebook = open_cells([ENCODER])
    notebook.page.set_viewport_size({"width": 1920, "height": 1080})
    notebook.show_panel()
    notebook.run_all()
    tab = open_tab(notebook)
    drawn(tab)
    notebook.open_drawer("Details", tab)
    tab.get_by_role("searchbox", name="Search the graph").fill("FullyConnected")
    hits = tab.locator(".hl-hit-row")
    expect(hits.nth(20)).to_be_attached()
    assert all(hits.nth(index).evaluate(IS_REACHED) for index in range(hits.count()))
    hits.nth(20).click()
    expect(tab.locator(".hl-details")).to_contain_text("FullyConnected")


#: What is cut in the rows of the tree without an ellipsis, lies over something else, or sticks out.
FAULTS = """view => {
  const tree = view.querySelector('.hl-tree');
  const edge = tree.getBoundingClientRect().left + tree.clientWidth;
  const faults = [];
  for (const row of tree.querySelectorAll('[role=treeitem]')) {
    const leaves = [...row.querySelectorAll('span')].filter(part => part.children.length === 0);
    const parts = leaves.filter(part => part.textContent !== '');
    const seen = parts.filter(part => part.getClientRects().length > 0 && part.getBoundingClientRect().width > 0);
    const places = seen.map(part => part.getBoundingClientRect());
    const inside = row.getBoundingClientRect();
    seen.forEach((part, i) => {
      const what = `${row.dataset.path} ${part.className} ${part.textContent}`;
      const style = getComputedStyle(part);
      const isCut = part.scrollWidth > part.clientWidth + 1 && style.display !== 'inline';
      if (isCut && style.textOverflow !== 'ellipsis') faults.push('cut: ' + what);
      if (isCut && part.classList.contains('hl-chip')) faults.push('chip cut: ' + what);
      if (places[i].right > Math.min(edge, inside.right) + 1) faults.push('sticks out: ' + what);
      if (places[i].bottom > inside.bottom + 1) faults.push('below its row: ' + what);
      places.slice(i + 1).forEach((other, j) => {
        const apart = other.left >= places[i].right - 1 || other.right <= places[i].left + 1;
        const above = other.top >= places[i].bottom - 1 || other.bottom <= places[i].top + 1;
        if (!apart && !above) faults.push(`over ${seen[i + 1 + j].textContent}: ` + what);
      });
    });
  }
  return faults;
}"""

DEEP = """class Wide(gluon.HybridBlock):
    def __init__(self, depth):
        super().__init__()
        self.attention_with_a_rather_long_name = nn.Dense(32, flatten=False)
        self.inner = Wide(depth - 1) if depth else nn.HybridLambda(lambda F, x: F.split(x, num_outputs=2, axis=1))

    def hybrid_forward(self, F, x):
        return self.inner(self.attention_with_a_rather_long_name(x))

shared = nn.Dense(32, flatten=False)
net = nn.HybridSequential()
net.add(nn.Embedding(5_000_000, 32), *[Layer() for _ in range(2)], shared, shared, Wide(6))
net.initialize()
net.hybridize()
net(mx.nd.ones((2, 8), dtype="int32"))[0].shape"""


@pytest.mark.long
@IN_LAB_ONLY
def test_no_number_of_a_row_is_cut_at_any_width(open_cells):
    notebook = open_cells([ENCODER, DEEP])
    page = notebook.page
    page.set_viewport_size({"width": 1500, "height": 900})
    panel = notebook.show_panel()
    notebook.run_all()
    drawn(panel)
    panel.get_by_role("treeitem").first.focus()
    for _ in range(7):
        page.keyboard.press("*")
        page.keyboard.press("End")
    page.keyboard.press("Home")
    found = {}
    for overlay in ("", "time"):
        panel.get_by_role("combobox", name="Overlay").select_option(overlay)
        if overlay:
            expect(panel.locator(".hl-chip-measured").first).to_be_visible(timeout=60_000)
        for width in range(250, 901, 50):
            notebook.widen(width)
            page.wait_for_timeout(150)
            if faults := panel.evaluate(FAULTS):
                found[overlay, width] = faults[:4]
    assert not found, found

    # A name that is cut has a title.
    notebook.widen(250)
    name = panel.locator(".hl-row-name", has_text="attention_with_a_rather_long_name").first
    name.hover()
    expect(name).to_have_attribute("title", "attention_with_a_rather_long_name")
