"""What lies over something else: notes, the card of an overlay, map and drawer; and what is cut in narrow panels."""

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import IN_LAB_ONLY, wait_for
from tests.browser.test_layout import ENCODER, drawn, open_tab

#: Whether two elements of a view lie over one another.
OVER = """(view, [one, other]) => {
  const [a, b] = [one, other].map(name => view.querySelector(name).getBoundingClientRect());
  const apart = a.left > b.right - 1 || b.left > a.right - 1 || a.top > b.bottom - 1 || b.top > a.bottom - 1;
  return a.width > 0 && b.width > 0 && !apart;
}"""

#: The nodes, closed boxes and names of open boxes that the card of the overlay lies over.
UNDER_CARD = """view => {
  const card = view.querySelector('.hl-overlay-bar').getBoundingClientRect();
  return [...view.querySelectorAll('svg.hl-g .hl-g-item')].filter(item => {
    const name = item.classList.contains('hl-g-open') ? '.hl-g-title' : '.hl-g-shape';
    const { left, right, top, bottom } = item.querySelector(name).getBoundingClientRect();
    return left < card.right && right > card.left && top < card.bottom && bottom > card.top;
  }).map(item => item.getAttribute('aria-label'));
}"""

#: The tabs of the drawer that are seen in part; those that are seen whole.
TABS = """view => {
  const strip = view.querySelector('.hl-drawer-tabs .hl-tablist').getBoundingClientRect();
  const tabs = [...view.querySelectorAll('.hl-drawer-tabs [role=tab]:not([hidden])')];
  const seen = tabs.filter(tab => tab.getBoundingClientRect().right > strip.left + 1)
    .filter(tab => tab.getBoundingClientRect().left < strip.right - 1);
  const isWhole = tab => tab.getBoundingClientRect().left >= strip.left - 1
    && tab.getBoundingClientRect().right <= strip.right + 1 && tab.scrollWidth <= tab.clientWidth + 1;
  return [seen.filter(tab => !isWhole(tab)).map(tab => tab.textContent), seen.map(tab => tab.textContent)];
}"""

#: Whether the end of the first long answer is within the line, before the pixels where it fades out.
END_IS_SEEN = """view => {
  const line = view.querySelector('.hl-answers').getBoundingClientRect();
  const end = view.querySelector('.hl-answer-long > span + span')?.getBoundingClientRect();
  return end !== undefined && end.width > 0 && end.left >= line.left && end.right <= line.right - 18;
}"""

LOSS = """trainer = gluon.Trainer(net.collect_params(), "sgd")
for step in range(60):
    mx.log(validation_loss=float("nan") if step == 57 else 1.0)"""


@pytest.mark.long
@IN_LAB_ONLY
def test_a_panel_as_narrow_as_it_opens_cuts_no_tab_and_no_link(open_cells):
    notebook = open_cells([ENCODER, LOSS])
    page = notebook.page
    page.set_viewport_size({"width": 1280, "height": 720})
    panel = notebook.show_panel()
    notebook.run_all()
    drawn(panel)
    notebook.widen(250)
    expect(panel.get_by_role("tab", name="Training")).to_be_attached()

    # The end of the answer says where the click leads.
    end = panel.locator(".hl-answer-long > span + span")
    expect(end).to_have_text(": find where")
    wait_for(lambda: panel.evaluate(END_IS_SEEN))  # what is cut at the end of the line fades out

    more = panel.get_by_role("combobox", name="More tabs")
    for name in ("Details", "Report", "Training", "Findings"):
        cut, seen = panel.evaluate(TABS)
        assert not cut and len(seen) >= 4, (cut, seen)
        hidden = more.locator("option:not([disabled])").all_text_contents() if more.is_visible() else []
        assert sorted(seen + hidden) == sorted(
            panel.locator(".hl-drawer-tabs [role=tab]:not([hidden])").all_text_contents()
        )
        if name in hidden:
            more.select_option(label=name)
        else:
            panel.get_by_role("tab", name=name).click()
        expect(panel.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")
        assert name in panel.evaluate(TABS)[1]
    page.keyboard.press("Escape")
    notebook.widen(400)
    expect(more).to_be_hidden()
    assert panel.evaluate(TABS)[0] == []


@pytest.mark.long
@IN_LAB_ONLY
def test_a_note_leaves_a_narrow_panels_graph_free(open_cells):
    notebook = open_cells([ENCODER])
    page = notebook.page
    panel = notebook.show_panel()
    notebook.run_all()
    drawn(panel)
    for size in ({"width": 1280, "height": 720}, {"width": 1920, "height": 1080}):
        page.set_viewport_size(size)
        notebook.widen(250)
        name = f"other{size['width']}"
        notebook.kernel(f"{name} = nn.Dense(2)")
        note = panel.locator(".hl-notes")
        expect(note).to_contain_text(f"New model: {name}", timeout=30_000)
        for part in (".hl-canvas", ".hl-tree", ".hl-toolbar", ".hl-banner", ".hl-drawer-tabs"):
            assert not panel.evaluate(OVER, [".hl-notes", part]), part
        panel.get_by_role("button", name="Dismiss the notes").click()
        expect(note).to_be_hidden()


@IN_LAB_ONLY
def test_the_card_is_over_no_node_and_the_map_beside_the_drawer(open_cells):
    notebook = open_cells([ENCODER])
    page = notebook.page
    page.set_viewport_size({"width": 1280, "height": 720})
    panel = notebook.show_panel()
    notebook.run_all()
    drawn(panel)
    notebook.widen(250)
    tab = open_tab(notebook)
    drawn(tab)
    before = [view.locator("svg.hl-g > g").get_attribute("transform") for view in (panel, tab)]
    for view in (panel, tab):
        choice = view.get_by_role("combobox", name="Overlay", exact=True)
        for kind in ("time", "memory"):
            choice.select_option(kind)
            expect(view.locator(".hl-overlay-bar")).to_be_visible()
            expect(view.locator(".hl-g-legend")).to_be_visible(timeout=30_000)
            wait_for(lambda view=view: view.evaluate(UNDER_CARD) == [])
        notebook.unfold_card(view)
        wait_for(lambda view=view: view.evaluate(UNDER_CARD) == [])
        choice.select_option("")
        page.wait_for_timeout(600)
    after = [view.locator("svg.hl-g > g").get_attribute("transform") for view in (panel, tab)]
    assert after == before, "without an overlay the graph stands where it stood"

    page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    page.evaluate("() => { window.jupyterapp.shell.mode = 'single-document'; }")
    page.set_viewport_size({"width": 1920, "height": 1080})
    for _ in range(5):
        tab.get_by_role("button", name="Zoom in").click()
    expect(tab.locator(".hl-g-map")).to_be_visible()
    notebook.open_drawer("Details", tab)
    assert not tab.evaluate(OVER, [".hl-g-map", ".hl-drawer"])
    page.set_viewport_size({"width": 800, "height": 1080})
    page.wait_for_timeout(600)
    expect(tab.locator(".hl-g-map")).to_be_visible()
    for part in (".hl-g-map", ".hl-zoom"):
        assert not tab.evaluate(OVER, [part, ".hl-drawer"]), part
