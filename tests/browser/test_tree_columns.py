"""The columns of the tree: chosen in the menu, remembered, the kernel's numbers, what if; nothing moves."""

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import IN_LAB_ONLY, IN_ONE_FRONT_END
from tests.browser.test_layout import ENCODER, open_tab

MODEL = """import hybrid_lab as mx
from hybrid_lab.gluon import nn

net = nn.HybridSequential()
net.add(nn.Dense(64, activation="relu"), nn.Dense(64), nn.Dense(10))
net.initialize()"""

CALL = """net.hybridize()
net(mx.nd.ones((8, 32)))"""

#: Names in the rows that are cut although a class beside them has room that they could have.
CUT_NAMES = """tree => [...tree.querySelectorAll('.hl-row > .hl-row-block')].filter(block => {
    const [name, type] = ['.hl-row-name', '.hl-row-class'].map(part => block.querySelector(part));
    return name.scrollWidth > name.clientWidth && type.getBoundingClientRect().width > 1;
}).map(block => block.textContent)"""

PLACES = """panel => [...panel.querySelectorAll('.hl-row, .hl-canvas')].map(
    row => { const box = row.getBoundingClientRect(); return [box.top, box.height]; })"""


@IN_ONE_FRONT_END
def test_columns(open_cells):
    notebook = open_cells([MODEL, CALL])
    panel = notebook.show_panel()
    page = notebook.page
    notebook.run_cell(0)
    expect(panel.get_by_role("tree").get_by_role("treeitem").first).to_be_visible()
    assert panel.get_by_role("treegrid").count() == 0, "a narrow tree has no columns at first"

    panel.get_by_role("button", name="Columns of the tree").press("Enter")
    menu = panel.get_by_role("group", name="Columns of the tree")
    for name in ("Params numbers", "MAC multiply-adds"):
        menu.get_by_role("checkbox", name=name).check()
    expect(menu.get_by_role("status")).to_contain_text("unknown until the model is called")
    expect(panel.locator(".hl-canvas")).to_be_visible()
    places = page.evaluate(PLACES, panel.element_handle())

    menu.get_by_role("textbox", name="Input shapes").fill("4 x 32")
    page.keyboard.press("Enter")
    grid = panel.get_by_role("treegrid")
    top = grid.get_by_role("row").nth(1)
    expect(top.get_by_role("gridcell").nth(2)).to_have_text("27.1 k")  # 4 x (32 x 64 + 64 x 64 + 64 x 10)
    expect(menu.get_by_role("status")).to_contain_text("Counted for f32[4,32]")
    assert page.evaluate(PLACES, panel.element_handle()) == places, "nothing moves when the numbers come"

    menu.get_by_role("button", name="Back to the last call").click()
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    notebook.run_cell(1)
    expect(top.get_by_role("gridcell").nth(2)).to_have_text("54.3 k", timeout=30_000)
    expect(top.get_by_role("gridcell").nth(1)).to_have_text("6.92 k")
    top.click()
    notebook.open_drawer("Details", panel)
    expect(panel.locator(".hl-details")).to_contain_text("54.3 kMAC")

    page.wait_for_timeout(700)  # the choice is written some moments later
    page.reload()
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=90_000)
    notebook.wait_kernel()
    panel = notebook.show_panel()
    expect(panel.get_by_role("treegrid").get_by_role("columnheader")).to_have_text(["Block", "Params", "MAC"])


@pytest.mark.long
@IN_ONE_FRONT_END
@pytest.mark.parametrize("width", [1920])
def test_a_wide_tab_has_columns_at_first(open_cells, width):
    notebook = open_cells([MODEL, CALL])
    page = notebook.page
    page.set_viewport_size({"width": width, "height": 1080})
    panel = notebook.show_panel()
    notebook.run_cell(0)
    notebook.run_cell(1)
    panel.get_by_role("button", name="Open as a tab").click()
    grid = page.locator("#hybrid-lab-tab").get_by_role("treegrid")
    expect(grid.get_by_role("columnheader")).to_have_text(["Block", "Params", "FLOP"], timeout=30_000)
    expect(grid.get_by_role("row").nth(1).get_by_role("gridcell").nth(1)).to_have_text("6.92 k")


@pytest.mark.long
@IN_LAB_ONLY
def test_the_class_is_cut_before_the_name(open_cells):
    notebook = open_cells([ENCODER])
    panel = notebook.show_panel()
    notebook.run_all()
    panel.get_by_role("button", name="Columns of the tree").click()
    panel.get_by_role("checkbox", name="Params numbers").check()
    notebook.page.keyboard.press("Escape")
    panel.get_by_role("searchbox", name="Filter the Blocks").fill("norm")
    for width in (250, 310, 320, 400, 560):
        notebook.widen(width)
        assert panel.locator(".hl-tree").evaluate(CUT_NAMES) == [], width


@pytest.mark.long
@IN_LAB_ONLY
def test_the_button_leaves_room_for_the_filter(open_cells):
    notebook = open_cells([ENCODER])
    notebook.page.set_viewport_size({"width": 1280, "height": 720})
    panel = notebook.show_panel()
    notebook.run_all()
    tab = open_tab(notebook)
    expect(tab.get_by_role("searchbox", name="Filter the Blocks")).to_be_visible(timeout=30_000)
    for view in (panel, tab):
        assert view.get_by_role("searchbox", name="Filter the Blocks").bounding_box()["width"] > 110
        view.get_by_role("button", name="Columns of the tree").click()
        expect(view.get_by_role("group", name="Columns of the tree")).to_be_visible()
        notebook.page.keyboard.press("Escape")
    search = tab.get_by_role("searchbox", name="Filter the Blocks")
    search.fill("norm")
    name = tab.locator(".hl-row-name", has_text="norm2").first
    expect(name).to_be_visible()
    assert name.evaluate("name => name.scrollWidth <= name.clientWidth")
