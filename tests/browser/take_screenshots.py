"""Takes the pictures of docs/images: `python -m tests.browser.take_screenshots`. Look at them before a commit."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browser.jupyter import ROOT, NotebookPage, launch, serve, write_notebook

IMAGES = ROOT / "docs" / "images"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
#: The cells of the picture of kernels.
KERNELS = (
    """import os
os.environ["HYBRID_LAB_TRITON"] = "interpret"   # no GPU is needed to look at kernels

import hybrid_lab as mx
from hybrid_lab.gluon import nn""",
    """net = nn.HybridSequential()
net.add(nn.Dense(64, activation="relu"), nn.LayerNorm(), nn.Dense(10))
net.initialize()
net.hybridize()
net(mx.nd.ones((8, 64)));""",
    "mx.view(net)",
)


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home, serve(Path(home)) as server, sync_playwright() as playwright:
        browser = launch(playwright)
        for front_end in ("lab", "notebook"):
            context = browser.new_context(viewport={"width": 1440, "height": 960})
            name = f"{front_end}_tutorial.ipynb"
            shutil.copy(ROOT / "notebooks" / "01_tutorial.ipynb", server.folder / name)
            notebook = NotebookPage(context.new_page(), server, front_end, name)
            notebook.show_panel()
            notebook.run_all()
            for theme in THEMES:
                take(notebook, theme)
            context.close()
        context = browser.new_context(viewport={"width": 1440, "height": 1280})
        write_notebook(server.folder / "kernels.ipynb", KERNELS)
        take_kernels(NotebookPage(context.new_page(), server, "lab", "kernels.ipynb"))
        context.close()
        browser.close()


def take(notebook: NotebookPage, theme: str) -> None:
    page, front_end = notebook.page, notebook.front_end
    page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", THEMES[theme])
    page.wait_for_timeout(1500)
    sources = page.evaluate(
        "() => [...window.jupyterapp.shell.currentWidget.content.model.cells].map(cell => cell.sharedModel.getSource())"
    )
    notebook.panel.get_by_role("combobox", name="Model", exact=True).select_option(label="net: Net")
    if front_end == "lab":
        page.evaluate("() => window.jupyterapp.shell._hsplitPanel?.setRelativeSizes([0.27, 0.73, 0])")

    stubborn = next(i for i, source in enumerate(sources) if source.startswith("class Stubborn"))
    show(notebook, stubborn, "center")  # brings the cells round it onto the page ...
    show(notebook, stubborn - 1, "start")  # ... so that this place is exact
    notebook.panel.get_by_role("tab", name="Findings").click()
    page.locator(f'.jp-Cell[data-windowed-list-index="{stubborn}"] .hl-lint').first.hover()
    page.locator(".cm-tooltip .hl-hover").wait_for()
    page.screenshot(path=IMAGES / f"{front_end}_findings_{theme}.png")
    page.mouse.move(2, 2)
    notebook.panel.get_by_role("tab", name="Graph").click()

    view = next(i for i, source in enumerate(sources) if source == "mx.view(net)")
    show(notebook, view, "start")
    widget = page.locator(".hl-wide").first
    widget.locator("svg.hl-g .hl-g-kind-operator").nth(1).click()
    page.wait_for_timeout(800)
    page.screenshot(path=IMAGES / f"{front_end}_graph_{theme}.png")


def take_kernels(notebook: NotebookPage) -> None:
    """The compiled graph of a net on Triton, with the source of a kernel."""
    page = notebook.page
    notebook.run_all()
    page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    view = notebook.show_cell(len(KERNELS) - 1).locator(".hl-wide")
    view.locator("svg.hl-g .hl-g-kind-kernel").nth(1).locator(".hl-g-title").click()
    for theme, name in THEMES.items():
        page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", name)
        show(notebook, len(KERNELS) - 1, "start")
        page.screenshot(path=IMAGES / f"lab_kernels_{theme}.png")


def show(notebook: NotebookPage, index: int, place: str) -> None:
    notebook.page.evaluate(
        "([index, place]) => window.jupyterapp.shell.currentWidget.content.scrollToItem(index, place)", [index, place]
    )
    notebook.page.wait_for_timeout(1000)


if __name__ == "__main__":
    main()
