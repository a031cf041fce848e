"""The panel in German and Chinese: no text of the catalogs is left in English, and none is cut off."""

import importlib.util
import json
import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import ROOT, NotebookPage, serve, write_notebook
from tests.browser.test_graph import for_each_theme
from tests.browser.test_lab import MODEL
from tests.browser.test_overlays import TRAINED

CATALOGS = ROOT / "hybrid_lab" / "lab" / "locale"
LANGUAGES = sorted(path.name for path in CATALOGS.iterdir())
SIZES = ((1280, 720), (1920, 1080))
CELLS = [MODEL, TRAINED, "for step in mx.lab.progress(range(4)):\n    mx.log(loss=1 / (step + 1))", "mx.view(net)"]

#: Texts, titles and labels of a view that are there to be read.
TEXTS = """view => {
  const texts = [];
  const walker = document.createTreeWalker(view, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    if (!walker.currentNode.parentElement.closest('style, pre, code, svg')) texts.push(walker.currentNode.data);
  }
  for (const name of ['title', 'aria-label', 'placeholder']) {
    texts.push(...[...view.querySelectorAll(`[${name}]`)].map(element => element.getAttribute(name)));
  }
  return texts;
}"""

#: Buttons, tabs and labels whose text is wider than they are, and is not shortened with an ellipsis on purpose.
CUT_OFF = """view => [...view.querySelectorAll('button, [role=tab], label, label > *, legend, th')]
  .filter(element => element.checkVisibility() && element.textContent.trim() !== '' && element.tagName !== 'SELECT')
  .filter(element => element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0)
  .filter(element => getComputedStyle(element).textOverflow !== 'ellipsis')
  .filter(element => getComputedStyle(element).display !== 'inline')
  .map(element => element.outerHTML.slice(0, 160))"""


def language_pack(folder: Path, language: str) -> None:
    """A package that is to JupyterLab the language pack of this language, where the true one is not installed."""
    name = f"jupyterlab_language_pack_{language}"
    if importlib.util.find_spec(name) is None:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
        about = folder / f"{name}-1.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (about / "entry_points.txt").write_text(f"[jupyterlab.languagepack]\n{language} = {name}\n")


@pytest.mark.long
@pytest.mark.parametrize("language", LANGUAGES)
def test_panel(language, tmp_path, page, monkeypatch):
    home, packs = tmp_path / "home", tmp_path / "packs"
    settings = home / "settings" / "@jupyterlab" / "translation-extension"
    settings.mkdir(parents=True)
    (settings / "plugin.jupyterlab-settings").write_text(json.dumps({"locale": language}))
    packs.mkdir()
    language_pack(packs, language)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(packs), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    catalog = json.loads((CATALOGS / language / "LC_MESSAGES" / "hybrid_lab.json").read_text(encoding="utf-8"))
    english = {text for text, forms in catalog.items() if text and forms != [text] and len(text) > 2}
    with serve(home) as server:
        write_notebook(server.folder / "net.ipynb", CELLS)
        notebook = NotebookPage(page, server, "lab", "net.ipynb")
        panel = notebook.show_panel()
        notebook.run_all()
        expect(panel.locator("svg.hl-g .hl-g-shape").first).to_be_visible(timeout=30_000)

        def look(what: str) -> None:
            if folder := os.environ.get("HYBRID_LAB_PICTURES"):
                page.screenshot(path=Path(folder) / f"{language}_{what.replace(' ', '_')}.png")
            left = sorted({text for text in map(str.strip, panel.evaluate(TEXTS)) if text in english})
            assert left == [], what
            assert panel.evaluate(CUT_OFF) == [], what

        for width, height in SIZES:
            page.set_viewport_size({"width": width, "height": height})
            for theme in for_each_theme(notebook):
                look(f"{width} {theme.split()[1]}")
            tabs = panel.locator(".hl-tablist [role=tab]:visible")
            for index in range(tabs.count()):
                if tabs.nth(index).get_attribute("aria-selected") != "true":
                    tabs.nth(index).click()
                page.wait_for_timeout(400)
                look(f"{width} tab {index}")
            menus = panel.locator(".hl-popover-button:visible")
            for index in range(menus.count()):
                menus.nth(index).click()
                look(f"{width} menu {index}")
                page.keyboard.press("Escape")
