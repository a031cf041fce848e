"""Graphs side by side: what differs is coloured and counted, the panes move together, and all works by keyboard."""

import os

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import IN_LAB_ONLY

MODEL = """import hybrid_lab as mx
from hybrid_lab.gluon import nn

def built(*layers):
    net = nn.HybridSequential()
    net.add(*layers)
    net.hybridize()
    net(x)
    return net

x = mx.nd.ones((2, 16))
mx.random.seed(1)
layers = [nn.Dense(16, in_units=16, activation="relu") for _ in range(3)] + [nn.Dense(4, in_units=16)]
for layer in layers:
    layer.initialize(mx.init.Xavier())
net = built(*layers)
net.save("net", overwrite="fewer graphs");"""
EDIT = """layers[2].weight.set_data(layers[2].weight.data() + 0.25)
net = built(layers[0], layers[1], nn.Dropout(0.5), layers[2], layers[3])"""

WHERE = """panes => panes.map(pane => {
  const world = pane.querySelector('svg.hl-g > g').getAttribute('transform');
  return world.match(/-?[0-9.]+/g).map(Number);
})"""


def cameras(view):
    """(x, y, scale) of both panes."""
    return view.locator(".hl-compare-side").evaluate_all(WHERE)


def middle(view, side, node):
    """The middle of a node of one pane, by its id, from the corner of the pane."""
    place = view.locator(".hl-compare-side").nth(side)
    pane = place.locator(".hl-canvas").bounding_box()
    box = place.locator(f".hl-g-item[data-id='{node}'] > .hl-g-shape").last.bounding_box()
    return box["x"] + box["width"] / 2 - pane["x"], box["y"] + box["height"] / 2 - pane["y"]


def picture(page, name):
    """A screenshot, where a folder for them is given."""
    folder = os.environ.get("HYBRID_LAB_PICTURES")
    if folder:
        page.wait_for_timeout(700)
        page.screenshot(path=f"{folder}/{name}.png")


def compared(open_cells, in_tab=True):
    notebook = open_cells([MODEL, EDIT])
    panel = notebook.show_panel()
    notebook.run_cell(0)
    expect(notebook.row("3")).to_be_visible()
    notebook.run_cell(1)
    expect(notebook.row("4")).to_be_visible()
    place = panel
    if in_tab:
        panel.get_by_role("button", name="Open as a tab").click()
        place = notebook.page.locator("#hybrid-lab-tab")
        expect(place.locator("svg .hl-g-node").first).to_be_visible(timeout=30_000)
    place.get_by_role("button", name="Compare…", exact=True).click()
    return notebook, place


@IN_LAB_ONLY
def test_an_inserted_layer_and_other_numbers_side_by_side(open_cells):
    notebook, tab = compared(open_cells)
    page = notebook.page
    view = tab.locator(".hl-compare")
    expect(view.locator(".hl-compare-count")).to_have_text("1 of 2", timeout=30_000)
    legend = view.locator(".hl-compare-kind")
    expect(legend).to_have_text(["1 added", "0 removed", "0 changed", "1 in numbers only"])
    sides = view.locator(".hl-compare-side")
    expect(sides.nth(1).locator("[data-change='added']")).to_have_count(1)
    expect(sides.nth(0).locator("[data-change='removed'], [data-change='added']")).to_have_count(0)
    expect(view.locator(".hl-compare-details .hl-title")).to_contain_text("Dropout")
    expect(sides.nth(1).locator("[data-change='added'] .hl-g-sign")).to_have_text("+")
    picture(page, "compare-tab")

    # The next difference is in both panes, and its numbers are told.
    page.keyboard.press("n")
    expect(view.locator(".hl-compare-count")).to_have_text("2 of 2")
    for side in range(2):
        expect(sides.nth(side).locator(".hl-g-selected[data-change='values']")).to_have_count(1)
    details = view.locator(".hl-compare-details")
    expect(details).to_contain_text("differs by up to 0.25")
    expect(details.locator(".hl-compare-numbers .hl-numbers").nth(1)).to_be_visible(timeout=30_000)
    picture(page, "compare-numbers")

    # Both panes show the same operator in the same place, before and after they are moved.
    chosen = [sides.nth(side).locator(".hl-g-selected").get_attribute("data-id") for side in range(2)]

    def together():
        places = [middle(view, side, chosen[side]) for side in range(2)]
        assert places[0] == pytest.approx(places[1], abs=1.5), places
        (_, _, one), (_, _, two) = cameras(view)
        assert one == two

    together()
    before = cameras(view)
    box = sides.nth(0).locator(".hl-canvas").bounding_box()
    at = middle(view, 0, chosen[0])
    page.mouse.move(box["x"] + at[0], box["y"] + at[1])
    page.mouse.down()
    page.mouse.move(box["x"] + at[0] + 60, box["y"] + at[1] + 40, steps=6)
    page.mouse.up()
    after = cameras(view)
    assert after[0][0] == pytest.approx(before[0][0] + 60, abs=1) and after[0] != before[0]
    together()
    page.keyboard.press("+")
    page.wait_for_timeout(500)
    assert cameras(view)[0][2] == cameras(view)[1][2] != after[0][2]

    # A click in one pane selects the same in the other.
    view.get_by_role("button", name="Previous difference").click()
    expect(view.locator(".hl-compare-count")).to_have_text("1 of 2")
    legend.nth(3).click()
    expect(view.locator(".hl-compare-count")).to_have_text("2 of 2")
    page.keyboard.press("p")
    expect(view.locator(".hl-compare-count")).to_have_text("1 of 2")
    sides.nth(0).locator(".hl-g-node[data-change='values']").click()
    expect(sides.nth(1).locator(".hl-g-selected[data-change='values']")).to_have_count(1)
    expect(view.locator(".hl-compare-count")).to_have_text("2 of 2")

    # A box that is closed in one pane is closed in the other.
    boxes = view.locator(".hl-compare-side .hl-g-box[data-change='values'].hl-g-open", has_text="Dense")
    opened = boxes.count()
    page.keyboard.press("Backspace")
    expect(boxes).to_have_count(opened - 2)
    page.keyboard.press("Enter")
    expect(boxes).to_have_count(opened)

    # The list is one click away, and Escape goes back to the model.
    view.get_by_role("button", name="List", exact=True).click()
    expect(tab.locator(".hl-diff")).to_contain_text("Dropout")
    tab.get_by_role("button", name="Close the drawer").click()
    sides.nth(1).locator("svg.hl-g").focus()
    page.keyboard.press("Escape")
    expect(view).to_have_count(0)
    expect(tab.locator(".hl-panes svg.hl-g .hl-g-node").first).to_be_visible()


@pytest.mark.long
@IN_LAB_ONLY
def test_in_the_panel_the_list_comes_first_and_the_panes_stand_one_above_the_other(open_cells):
    notebook, panel = compared(open_cells, in_tab=False)
    notebook.result("1 Block added")
    panel.get_by_role("button", name="Show side by side", exact=True).click()
    view = panel.locator(".hl-compare")
    expect(view.locator(".hl-compare-count")).to_have_text("1 of 2", timeout=30_000)
    places = [view.locator(".hl-compare-side").nth(side).bounding_box() for side in range(2)]
    assert places[0]["y"] < places[1]["y"] and places[0]["x"] == places[1]["x"]
    picture(notebook.page, "compare-panel")
    view.get_by_role("button", name="Close the comparison").click()
    expect(view).to_have_count(0)


@pytest.mark.long
@IN_LAB_ONLY
def test_a_view_shows_the_pair_too(open_cells):
    notebook = open_cells([MODEL, EDIT, "mx.view(net)"])
    page = notebook.page
    notebook.run_all()
    shown = notebook.show_cell(2).locator(".hl-wide")
    expect(shown.locator("svg.hl-g .hl-g-node").first).to_be_visible(timeout=30_000)
    compare = shown.get_by_role("button", name="Compare…", exact=True)
    expect(compare).to_be_enabled(timeout=30_000)
    compare.click()
    view = shown.locator(".hl-compare")
    expect(view.locator(".hl-compare-count")).to_have_text("1 of 2", timeout=30_000)
    expect(view.locator(".hl-compare-kind")).to_have_text(["1 added", "0 removed", "0 changed", "1 in numbers only"])
    picture(page, "compare-view")
    page.keyboard.press("n")
    expect(view.locator(".hl-compare-details")).to_contain_text("differs by up to 0.25")
    expect(view.locator(".hl-compare-numbers .hl-numbers").nth(1)).to_be_visible(timeout=30_000)
    view.get_by_role("button", name="Close the comparison").click()
    expect(view).to_have_count(0)
