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
#: The cells of the picture of a ResNet.
RESNET = (
    """import hybrid_lab as mx
net = mx.gluon.model_zoo.vision.resnet18_v1(classes=10)
net.initialize()
net.hybridize()
x = mx.nd.random.normal(shape=(2, 3, 224, 224))
net(x).shape""",
    "mx.view(net)",
)
#: The cells of the picture of workers.
WORKERS = (
    """import hybrid_lab as mx
workers = mx.lab.workers(2)""",
    """%%workers
import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import nn
import numpy as np

mx.random.seed(3)
net = nn.HybridSequential()
net.add(nn.Dense(32, activation="relu", in_units=16), nn.Dense(4))
net.initialize()
net.hybridize()
store = mx.kv.create("dist_sync")
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.2}, kvstore=store)""",
    """%%workers
numbers, loss_of = np.random.RandomState(store.rank), gluon.loss.SoftmaxCrossEntropyLoss()
for step in range(200):
    x = numbers.randn(32, 16)
    with autograd.record():
        loss = loss_of(net(nd.array(x)), nd.array(x[:, :4].argmax(1)))
    loss.backward()
    trainer.step(32 * store.num_workers)
    mx.log(loss=loss)""",
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
            notebook.panel.locator(".hl-notes").wait_for(state="hidden")
            for theme in THEMES:
                take(notebook, theme)
            context.close()
        context = browser.new_context(viewport={"width": 1440, "height": 1280})
        write_notebook(server.folder / "kernels.ipynb", KERNELS)
        take_kernels(NotebookPage(context.new_page(), server, "lab", "kernels.ipynb"))
        context.close()
        context = browser.new_context(viewport={"width": 1440, "height": 960})
        write_notebook(server.folder / "resnet.ipynb", RESNET)
        take_resnet(NotebookPage(context.new_page(), server, "lab", "resnet.ipynb"))
        context.close()
        context = browser.new_context(viewport={"width": 1440, "height": 860})
        write_notebook(server.folder / "workers.ipynb", WORKERS)
        take_workers(NotebookPage(context.new_page(), server, "lab", "workers.ipynb"))
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
    notebook.open_drawer("Findings")
    notebook.panel.locator(".hl-others .hl-finding").first.scroll_into_view_if_needed()
    page.locator(f'.jp-Cell[data-windowed-list-index="{stubborn}"] .hl-lint').first.hover()
    page.locator(".cm-tooltip .hl-hover").wait_for()
    page.screenshot(path=IMAGES / f"{front_end}_findings_{theme}.png")
    page.mouse.move(2, 2)
    notebook.close_drawer()

    view = next(i for i, source in enumerate(sources) if source == "mx.view(net)")
    show(notebook, view, "start")
    widget = page.locator(".hl-wide").first
    widget.locator("svg.hl-g .hl-g-kind-operator").nth(1).click()
    page.wait_for_timeout(800)
    page.screenshot(path=IMAGES / f"{front_end}_graph_{theme}.png")


def take_kernels(notebook: NotebookPage) -> None:
    """The compiled graph of a net on Triton, with the details of a kernel."""
    page = notebook.page
    notebook.run_all()
    page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    view = notebook.show_cell(len(KERNELS) - 1).locator(".hl-wide")
    view.locator("svg.hl-g .hl-g-kind-kernel").nth(1).locator(".hl-g-title").click()
    for theme, name in THEMES.items():
        page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", name)
        show(notebook, len(KERNELS) - 1, "start")
        page.screenshot(path=IMAGES / f"lab_kernels_{theme}.png")


def take_workers(notebook: NotebookPage) -> None:
    """The rows and curves of two workers, after their training."""
    page = notebook.page
    panel = notebook.show_panel()
    notebook.run_all()
    notebook.widen(560)
    panel.locator(".hl-notes").wait_for(state="hidden")
    notebook.open_drawer("Training")
    for theme, name in THEMES.items():
        page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", name)
        page.wait_for_timeout(1500)
        page.screenshot(path=IMAGES / f"lab_workers_{theme}.png")


def take_resnet(notebook: NotebookPage) -> None:
    """The tab with the times of a ResNet's operators; one of the slowest is opened and selected."""
    page = notebook.page
    notebook.run_all()
    notebook.show_panel().get_by_role("button", name="Open as a tab").click()
    page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    page.evaluate("() => { window.jupyterapp.shell.mode = 'single-document'; }")
    tab = page.locator("#hybrid-lab-tab")
    tab.get_by_role("combobox", name="Overlay", exact=True).select_option("time")
    tab.locator(".hl-overlay-marked button", has_text="body").first.click(timeout=60_000)
    for theme, name in THEMES.items():
        page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", name)
        page.wait_for_timeout(2000)
        page.screenshot(path=IMAGES / f"lab_resnet_{theme}.png")


def show(notebook: NotebookPage, index: int, place: str) -> None:
    notebook.page.evaluate(
        "([index, place]) => window.jupyterapp.shell.currentWidget.content.scrollToItem(index, place)", [index, place]
    )
    notebook.page.wait_for_timeout(1000)


if __name__ == "__main__":
    main()
