"""Side panels as narrow as people make them: what lies over something else is small and hides nothing needed."""

import re

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
