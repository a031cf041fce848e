"""Repairs of findings: from the keyboard, from the list, all at once, undone, in cells and in Python files."""

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import IN_ONE_FRONT_END

CELLS = ["""import hybrid_lab as mx
from hybrid_lab import gluon""", """class One(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return mx.nd.relu(x)""", """class Two(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return mx.nd.tanh(x)"""]  # fmt: skip

SOURCE = "i => window.jupyterapp.shell.currentWidget.content.model.cells.get(i).sharedModel.getSource()"
FILE = "() => window.jupyterapp.shell.currentWidget.content.model.sharedModel.getSource()"


@IN_ONE_FRONT_END
def test_fixes_in_cells(open_cells):
    notebook = open_cells(CELLS)
    page = notebook.page

    def source(index):
        return page.evaluate(SOURCE, index)

    panel = notebook.show_panel()
    notebook.expect_marks(1, ["mx.nd.relu(x)"])
    notebook.expect_marks(2, ["mx.nd.tanh(x)"])

    # From finding to finding with F8; Alt+Enter repairs, Ctrl+Z takes that back.
    notebook.show_cell(0).locator(".cm-content").click()
    page.keyboard.press("F8")
    expect(notebook.show_cell(1).locator(".cm-content")).to_be_focused()
    page.keyboard.press("Alt+Enter")
    page.wait_for_function(f"() => ({SOURCE})(1).includes('F.relu')")
    assert len(notebook.cells()) == 3  # Alt+Enter ran nothing and added no cell
    page.keyboard.press("Control+z")
    page.wait_for_function(f"() => ({SOURCE})(1).includes('mx.nd.relu')")
    notebook.expect_marks(1, ["mx.nd.relu(x)"])

    # All at once from the panel, which puts the cursor into the cell.
    notebook.open_drawer("Findings")
    panel.get_by_role("button", name="Apply all 2 safe fixes").click()
    page.wait_for_function(f"() => ({SOURCE})(1).includes('F.relu') && ({SOURCE})(2).includes('F.tanh')")
    page.wait_for_function("() => document.activeElement.closest('.jp-Cell') !== null")
    page.keyboard.press("Control+z")
    page.wait_for_function(f"() => ({SOURCE})(1).includes('mx.nd.relu') || ({SOURCE})(2).includes('mx.nd.tanh')")
    assert "hybrid_forward" in source(1) and "hybrid_forward" in source(2)


@pytest.mark.long
def test_the_same_marks_in_the_editor_of_a_python_file(page, server, front_end):
    (server.folder / "model.py").write_text("\n\n".join(CELLS))
    page.goto(server.address(front_end, "model.py"))
    editor = page.locator(".jp-FileEditor .cm-content")
    expect(editor.locator(".hl-lint").first).to_be_visible(timeout=90_000)
    editor.click()
    page.keyboard.press("F8")
    page.keyboard.press("Alt+Enter")
    page.wait_for_function(f"() => ({FILE})().includes('F.relu') || ({FILE})().includes('F.tanh')")
    page.keyboard.press("Control+z")
    page.wait_for_function(f"() => ({FILE})().includes('mx.nd.relu') && ({FILE})().includes('mx.nd.tanh')")


HELPER = """import hybrid_lab as mx
from hybrid_lab import gluon

def scale(t):
    return t / t.asnumpy()"""
CALLER = """class Net(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.relu(scale(x))"""


@pytest.mark.long
@IN_ONE_FRONT_END
def test_the_call_of_a_function_with_a_finding_is_marked(open_cells):
    notebook = open_cells([HELPER, "x = 1", CALLER])
    page = notebook.page
    panel = notebook.show_panel()
    notebook.expect_marks(0, ["t.asnumpy()"])
    notebook.expect_marks(2, ["scale"])

    # F8 goes from the finding to the call and back; the call's text has the way to the finding.
    notebook.show_cell(0).locator(".cm-content").click()
    page.keyboard.press("Control+Home")
    for index in (0, 2, 0):
        page.keyboard.press("F8")
        expect(notebook.show_cell(index).locator(".cm-content")).to_be_focused()
    notebook.show_cell(2).locator(".hl-lint", has_text="scale").hover()
    expect(page.locator(".cm-tooltip")).to_contain_text("calls scale, in which asnumpy() of the tensor t reads numbers")
    page.locator(".cm-tooltip").get_by_role("button", name="Go to cell at position 1, line 5").click()
    expect(notebook.show_cell(0).locator(".cm-content")).to_be_focused()

    # One finding in the list, with a link to the call.
    notebook.open_drawer("Findings")
    expect(panel.locator(".hl-finding:visible")).to_have_count(1)
    panel.locator(".hl-finding-calls:visible").get_by_role("button", name="cell at position 3, line 3").click()
    expect(notebook.show_cell(2).locator(".cm-content")).to_be_focused()


@pytest.mark.long
@IN_ONE_FRONT_END
def test_the_call_is_marked_in_a_python_file(page, server, front_end):
    (server.folder / "caller.py").write_text(f"{HELPER}\n\n{CALLER}\n")
    page.goto(server.address(front_end, "caller.py"))
    editor = page.locator(".jp-FileEditor .cm-content")
    expect(editor.locator(".hl-lint")).to_have_text(["t.asnumpy()", "scale"], timeout=90_000)
    editor.locator(".hl-lint", has_text="scale").hover()
    page.locator(".cm-tooltip").get_by_role("button", name="Go to line 5").click()
    expect(editor).to_be_focused()
