"""The panel as a tab of the main area, and what is remembered of a notebook."""

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import IN_LAB_ONLY, IN_ONE_FRONT_END

MODEL = """import hybrid_lab as mx
from hybrid_lab.gluon import nn
net = nn.HybridSequential()
net.add(nn.Dense(4, activation="relu"), nn.Dense(2))
net.initialize()
net.hybridize()
net(mx.nd.ones((2, 3)));"""


@pytest.mark.long
@IN_LAB_ONLY
def test_the_tab_shows_tree_graph_and_details_side_by_side(open_cells):
    notebook = open_cells([MODEL, "other = nn.HybridSequential(); other.add(nn.Dense(3))"])
    page = notebook.page
    notebook.run_cell(0)
    panel = notebook.show_panel()
    page.set_viewport_size({"width": 2400, "height": 1000})
    panel.get_by_role("button", name="Open as a tab").click()
    tab = page.locator("#hybrid-lab-tab")
    expect(tab.locator(".hl-row").first).to_be_visible(timeout=30_000)
    expect(tab.locator("svg .hl-g-node").first).to_be_visible(timeout=30_000)
    notebook.open_drawer("Details", tab)
    places = [tab.locator(part).bounding_box() for part in (".hl-tree", ".hl-canvas", ".hl-details")]
    assert places[0]["x"] < places[1]["x"] < places[2]["x"]

    tree = panel.get_by_role("tree")
    before = tree.bounding_box()
    page.locator(".jp-NotebookPanel .jp-CodeCell").nth(1).click()
    page.evaluate("window.jupyterapp.commands.execute('notebook:run-cell')")
    expect(panel.locator(".hl-notes")).to_contain_text("New model: other", timeout=30_000)
    assert tree.bounding_box() == before


@IN_ONE_FRONT_END
def test_what_was_looked_at_is_shown_again(open_cells):
    notebook = open_cells([MODEL, "other = nn.HybridSequential(); other.add(nn.Dense(3))"])
    panel = notebook.show_panel()
    notebook.run_all()
    panel.get_by_role("combobox", name="Model", exact=True).select_option(label="net: HybridSequential")
    panel.get_by_role("treeitem").nth(1).click()
    notebook.page.wait_for_timeout(2500)
    notebook.page.reload()
    notebook.page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=90_000)
    notebook.wait_kernel()
    notebook.command("hybrid-lab:show-panel")
    selected = panel.locator('.hl-row[aria-selected="true"]')
    expect(selected).to_have_attribute("data-path", "0", timeout=60_000)
