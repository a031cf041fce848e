"""axe-core, the checker of the rules of accessible pages, finds nothing of weight in the views, in both themes."""

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.jupyter import IN_LAB_ONLY, ROOT, NotebookPage
from tests.browser.test_documents import open_file
from tests.browser.test_graph import for_each_theme
from tests.browser.test_lab import MODEL
from tests.browser.test_overlays import TRAINED

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"

#: Runs axe on one element; what it finds of some weight, as "rule: the first elements that break it".
CHECK = """element => axe.run(element, { resultTypes: ['violations'] }).then(found => found.violations
  .filter(rule => ['moderate', 'serious', 'critical'].includes(rule.impact))
  .map(rule => `${rule.id}: ${rule.nodes.slice(0, 3).map(node => node.html).join('  ')}`))"""

LOGGED = """for step in mx.lab.progress(range(4)):
    mx.log(loss=1 / (step + 1))"""


def check(notebook: NotebookPage, view: Locator) -> None:
    for theme in for_each_theme(notebook):
        assert view.evaluate(CHECK) == [], theme


@pytest.fixture
def with_axe(page):
    """Axe in every page that the test opens."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make build")
    page.add_init_script(path=AXE)


@IN_LAB_ONLY
def test_panel_and_widget(with_axe, open_cells):
    notebook = open_cells([MODEL, TRAINED, LOGGED, "mx.view(net)"])
    panel = notebook.show_panel()
    notebook.run_all()
    expect(panel.locator("svg.hl-g .hl-g-shape").first).to_be_visible(timeout=30_000)
    notebook.row("0").click()
    check(notebook, panel)
    for name in ("Details", "Findings", "Results", "Training", "Report"):
        notebook.open_drawer(name)
        check(notebook, panel)
    for name in ("More actions", "More about the graph"):
        notebook.open_menu(name)
        check(notebook, panel)
        notebook.page.keyboard.press("Escape")
    widget = notebook.page.locator(".jp-OutputArea .hl-root").last
    expect(widget.locator("svg.hl-g .hl-g-shape").first).to_be_visible(timeout=30_000)
    check(notebook, widget)


@pytest.mark.long
@IN_LAB_ONLY
def test_model_file(with_axe, files, open_cells):
    notebook = open_cells(["1"])
    tab = open_file(notebook, "net.hlab")
    expect(tab.locator("svg.hl-g .hl-g-shape").first).to_be_visible(timeout=30_000)
    check(notebook, tab)
    for name in ("Tensors and digests", "Compare"):
        tab.get_by_role("tab", name=name).click()
        check(notebook, tab)
