"""What is different in Notebook 7: a page shows one document, and files open on pages of their own."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import IN_NOTEBOOK_ONLY
from tests.browser.test_lab import CLASS, MODEL, RUN


@IN_NOTEBOOK_ONLY
@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_the_panel_is_in_the_left_sidebar(open_cells, by):
    notebook = open_cells([MODEL, CLASS, RUN])
    page = notebook.page
    expect(notebook.panel).to_be_hidden()
    if by == "mouse":
        page.get_by_role("menuitem", name="View", exact=True).click()
        page.locator(".lm-Menu-item", has_text="Left Sidebar").click()
        page.locator(".lm-Menu-item", has_text="Hybrid Lab").click()
    else:
        page.keyboard.press("Control+Shift+C")
        page.keyboard.type("Show the Hybrid Lab Panel")
        page.keyboard.press("Enter")
    expect(notebook.panel).to_be_visible()
    notebook.run_all()
    expect(notebook.row("head")).to_be_visible()
    expect(notebook.panel.locator("svg.hl-g .hl-g-node").first).to_be_visible()

    # There is one document on the page, so there is no tab for the panel.
    expect(notebook.panel.get_by_role("button", name="Save net", exact=True)).to_be_enabled()
    expect(notebook.panel.get_by_role("button", name="Open as a tab")).to_have_count(0)
    assert not page.evaluate("window.jupyterapp.commands.hasCommand('hybrid-lab:open-tab')")


@pytest.mark.long
@IN_NOTEBOOK_ONLY
def test_a_double_click_opens_an_archive_on_a_page_of_its_own(files, server, page, front_end):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{server.url}/tree/files?token={server.token}")
    with page.expect_popup(timeout=90_000) as popup:
        page.locator(".jp-DirListing-item", has_text=re.compile("^net.hlab")).dblclick(timeout=90_000)
    assert not [url for url in asked if "hybrid-lab/document" in url], "the file was also read for the list of files"
    document = popup.value.locator(".hl-doc")
    expect(document.get_by_role("treeitem")).to_have_count(5, timeout=90_000)
    expect(document.locator("svg").filter(has_text="Dense").first).to_be_visible(timeout=30_000)
    assert not list((files / ".ipynb_checkpoints").glob("*")), "the file was copied to a checkpoint"

    document.get_by_role("tab", name="Tensors and digests").click()
    expect(document.locator(".hl-doc-contents")).to_contain_text("verified: each matches its SHA-256")
    document.get_by_role("tab", name="Compare").click()
    document.get_by_label("Path of another file on the server").fill("files/later.hlab")
    document.get_by_role("button", name="Compare", exact=True).click()
    expect(document.locator(".hl-doc-differences")).to_contain_text("0.weight")

    # The notebooks are on other pages: the line that loads the file is shown, to be copied.
    expect(document.locator(".hl-doc-load")).to_contain_text("in a notebook:")
    expect(document.locator(".hl-doc-code")).to_contain_text('mx.gluon.load("net.hlab")')
    expect(document.get_by_role("button", name="Load into kernel")).to_have_count(0)


@pytest.mark.long
@IN_NOTEBOOK_ONLY
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("exported-symbol.json", "dense0_fwd"),
        ("net.safetensors", "0.weight"),
        ("chain.onnx", "Sum"),
        ("broken.hlab", "damaged"),
    ],
)
def test_the_other_kinds_of_files(files, server, page, front_end, name, shown):
    page.goto(server.address("notebook", f"files/{name}"))
    expect(page.locator(".hl-doc")).to_contain_text(shown, timeout=90_000)
