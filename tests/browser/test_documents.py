"""Model files as documents: a double click opens a tab without a kernel, which leads back into a notebook."""

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import IN_LAB_ONLY, NotebookPage


def open_file(notebook: NotebookPage, name: str):
    """Open a file of the folder as a double click does; its tab."""
    page = notebook.page
    page.evaluate("path => window.jupyterapp.commands.execute('filebrowser:open-path', { path })", f"files/{name}")
    tab = page.locator(".hl-doc-tab:not(.lm-mod-hidden) .hl-doc")
    expect(tab.locator(".hl-doc-head strong")).to_have_text(name, timeout=30_000)
    return tab


@IN_LAB_ONLY
def test_a_double_click_opens_an_archive(files, open_cells):
    notebook = open_cells(["1"])
    page = notebook.page
    page.evaluate("window.jupyterapp.commands.execute('filebrowser:go-to-path', { path: 'files' })")
    page.locator(".jp-DirListing-item", has_text="net.hlab").first.dblclick()
    tab = page.locator(".hl-doc-tab:not(.lm-mod-hidden) .hl-doc")
    expect(tab.get_by_role("treeitem")).to_have_count(5, timeout=30_000)
    expect(tab.locator("svg").filter(has_text="Dense").first).to_be_visible(timeout=30_000)
    assert not list((files / ".ipynb_checkpoints").glob("*")), "the file was copied to a checkpoint"

    tab.get_by_role("tab", name="Tensors and digests").click()
    expect(tab.locator(".hl-doc-contents")).to_contain_text("verified: each matches its SHA-256")
    tab.get_by_role("tab", name="Compare").click()
    tab.get_by_label("Path of another file on the server").fill("files/later.hlab")
    tab.get_by_role("button", name="Compare", exact=True).click()
    expect(tab.locator(".hl-doc-differences")).to_contain_text("0.weight")
    tab.get_by_role("button", name="Show side by side").click()
    expect(tab.locator(".hl-compare-count")).to_have_text("1 of 1", timeout=30_000)
    expect(tab.locator(".hl-compare-numbers .hl-numbers")).to_have_count(4, timeout=30_000)
    page.keyboard.press("Escape")
    expect(tab.locator(".hl-compare")).to_have_count(0)

    tab.get_by_role("button", name="Load into kernel").click()
    page.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget.content.model?.cells.length === 2", timeout=30_000
    )
    notebook.wait_idle()
    assert "files/net.hlab" in "".join(notebook.cells()[1]["source"])
    assert notebook.kernel("print(net(mx.nd.ones((1, 1, 6, 6))).shape)") == "(1, 2)"


@pytest.mark.long
@IN_LAB_ONLY
def test_the_other_kinds_of_files(files, open_cells):
    notebook = open_cells(["1"])
    tab = open_file(notebook, "exported-symbol.json")
    expect(tab.get_by_role("treeitem").first).to_be_visible(timeout=30_000)
    tab = open_file(notebook, "net.safetensors")
    expect(tab.locator(".hl-doc-contents tbody tr")).to_have_count(4, timeout=30_000)
    tab = open_file(notebook, "chain.onnx")
    expect(tab.locator("svg").filter(has_text="Sum").first).to_be_visible(timeout=30_000)
    tab = open_file(notebook, "broken.hlab")
    expect(tab.get_by_role("alert").first).to_contain_text("damaged", timeout=30_000)
