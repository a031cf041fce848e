"""What a notebook keeps of a view: it follows the model, and shows without a kernel."""

import json

from playwright.sync_api import expect

from tests.browser.jupyter import NotebookPage

MODEL = """import hybrid_lab as mx
from hybrid_lab.gluon import nn
net = nn.HybridSequential()
net.add(nn.Dense(4, activation="relu"), nn.Dense(2))
net.initialize()
net.hybridize()"""

_OUTPUT = """() => window.jupyterapp.shell.currentWidget.content.model.sharedModel.toJSON().cells[1].outputs[0]"""


def saved_html(notebook: NotebookPage) -> str:
    """The HTML in the output of the second cell, as a saved notebook has it."""
    output = notebook.page.evaluate(_OUTPUT)
    return "".join(output["data"]["text/html"])


def test_the_notebook_keeps_the_last_picture(open_cells, server, browser, front_end):
    notebook = open_cells([MODEL, "mx.view(net)", "net(mx.nd.ones((2, 3)));"])
    page = notebook.page
    notebook.run_cell(0)
    notebook.run_cell(1)
    output = notebook.show_cell(1)
    expect(output.locator(".hl-wide [role=treeitem]").first).to_be_visible(timeout=30_000)
    expect(output.locator(".hl-view-saved")).to_be_hidden()
    output.get_by_role("treeitem").filter(has_text="Dense").last.click()
    notebook.run_cell(2)
    for _ in range(60):
        if "Dense(4 -&gt; 2" in saved_html(notebook) and "data:image/svg+xml," in saved_html(notebook):
            break
        page.wait_for_timeout(250)
    assert "Dense(4 -&gt; 2" in saved_html(notebook) and "data:image/svg+xml," in saved_html(notebook)
    # The living view was not made again: what was selected is.
    selected = notebook.show_cell(1).locator('.hl-wide [role=treeitem][aria-selected="true"]')
    expect(selected).to_contain_text("Dense")
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    name = page.evaluate("window.jupyterapp.shell.currentWidget.context.path")
    page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")

    notebook.kernel("1")
    page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    page.wait_for_timeout(500)
    content = json.loads((server.folder / name).read_text())
    assert len(json.dumps(content["cells"][1])) < 60_000
    context = browser.new_context(viewport={"width": 1500, "height": 1000})
    try:
        again = NotebookPage(context.new_page(), server, front_end, name)
        shown = again.show_cell(1)
        expect(shown.locator(".hl-view-note")).to_contain_text("Run the cell again", timeout=30_000)
        picture = shown.locator("img[src^='data:image/svg+xml']")
        expect(picture).to_be_visible()
        assert picture.evaluate("image => image.complete && image.naturalWidth > 50")
        expect(shown).to_contain_text("Dense(4 -> 2")
        expect(shown).not_to_contain_text("model not found")
        again.run_cell(0)
        again.run_cell(1)
        expect(again.show_cell(1).locator(".hl-wide [role=treeitem]").first).to_be_visible(timeout=30_000)
        expect(again.show_cell(1).locator(".hl-view-note")).to_be_hidden()
    finally:
        context.close()
