"""Takes the pictures of docs/screenshots.md: each state of the lab at four sizes of the page, light and dark.

`python -m tests.browser.take_sizes [STATE ...]`: one file has the four sizes of one state and theme. Look at them
before a commit.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from playwright.sync_api import Browser, sync_playwright

from tests.browser.jupyter import NotebookPage, Server, launch, serve, write_notebook
from tests.browser.take_screenshots import IMAGES, THEMES
from tests.browser.test_compare_picture import EDIT
from tests.browser.test_compare_picture import MODEL as CHAIN
from tests.browser.test_layout import LEAST, LOG
from tests.browser.test_stories import IMPORTS, MODEL, NAN, STUBBORN, TRAIN

WIDTH, GAP = 800, 8
"""Pixels of one picture of a file, and between two."""


def graph(notebook: NotebookPage) -> None:
    notebook.row("2").click()
    notebook.open_drawer("Details")


def times(notebook: NotebookPage) -> None:
    notebook.panel.get_by_role("combobox", name="Overlay", exact=True).select_option("time")
    notebook.panel.locator("svg.hl-g .hl-g-measured").first.wait_for()
    notebook.unfold_card()


def banner(notebook: NotebookPage) -> None:
    notebook.panel.locator(".hl-answer").first.wait_for()


def changed(notebook: NotebookPage) -> None:
    notebook.panel.locator(".hl-answer", has_text="changed since the save").get_by_role("button").click()
    notebook.panel.locator(".hl-results-tab").wait_for()


def curves(notebook: NotebookPage) -> None:
    notebook.open_drawer("Training")


def tab(notebook: NotebookPage) -> None:
    notebook.panel.get_by_role("button", name="Open as a tab").click()
    notebook.page.locator("#hybrid-lab-tab svg .hl-g-node").first.wait_for()


def comparison(notebook: NotebookPage) -> None:
    tab(notebook)
    place = notebook.page.locator("#hybrid-lab-tab")
    place.get_by_role("button", name="Compare…", exact=True).click()
    place.locator(".hl-compare-side svg .hl-g-node").first.wait_for()


#: The cells of each state, and what is done when they have run.
STATES: dict[str, tuple[list[str], Callable[[NotebookPage], None]]] = {
    "graph": ([IMPORTS, MODEL], graph),
    "times": ([IMPORTS, MODEL], times),
    "failed": ([IMPORTS, STUBBORN], banner),
    "nan": ([IMPORTS, NAN, NAN], banner),
    "changed": ([IMPORTS, MODEL, "net.save('net')", TRAIN], changed),
    "training": ([IMPORTS, MODEL, LOG], curves),
    "tab": ([IMPORTS, MODEL], tab),
    "comparison": ([CHAIN, EDIT], comparison),
}


def take(browser: Browser, server: Server, state: str) -> None:
    cells, act = STATES[state]
    first = next(iter(LEAST))
    context = browser.new_context(viewport={"width": first[0], "height": first[1]})
    write_notebook(server.folder / f"{state}.ipynb", cells)
    notebook = NotebookPage(context.new_page(), server, "lab", f"{state}.ipynb")
    notebook.show_panel()
    for index in range(len(cells)):
        notebook.run_cell(index)
    act(notebook)
    for theme, name in THEMES.items():
        notebook.page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", name)
        pictures = []
        for width, height in LEAST:
            notebook.page.set_viewport_size({"width": width, "height": height})
            notebook.page.mouse.move(2, 2)
            notebook.page.wait_for_timeout(2000)
            pictures.append(notebook.page.screenshot())
        (IMAGES / f"sizes_{state}_{theme}.webp").write_bytes(sheet(pictures))
        notebook.page.set_viewport_size({"width": first[0], "height": first[1]})
    context.close()


def sheet(pictures: list[bytes]) -> bytes:
    """Four pictures in two rows, as WebP."""
    small = [cv2.imdecode(np.frombuffer(picture, np.uint8), cv2.IMREAD_COLOR) for picture in pictures]
    small = [
        cv2.resize(item, (WIDTH, round(WIDTH * item.shape[0] / item.shape[1])), interpolation=cv2.INTER_AREA)
        for item in small
    ]
    rows = []
    for pair in (small[:2], small[2:]):
        height = max(item.shape[0] for item in pair)
        row = np.full((height, 2 * WIDTH + GAP, 3), 128, np.uint8)
        for index, item in enumerate(pair):
            left = index * (WIDTH + GAP)
            row[: item.shape[0], left : left + WIDTH] = item
        rows.append(row)
    between = np.full((GAP, 2 * WIDTH + GAP, 3), 128, np.uint8)
    done, data = cv2.imencode(".webp", np.vstack([rows[0], between, rows[1]]), [cv2.IMWRITE_WEBP_QUALITY, 70])
    assert done
    return data.tobytes()


def main() -> None:
    with tempfile.TemporaryDirectory() as home, serve(Path(home)) as server, sync_playwright() as playwright:
        browser = launch(playwright)
        for state in sys.argv[1:] or STATES:
            take(browser, server, state)
            print(state, flush=True)
        browser.close()


if __name__ == "__main__":
    main()
