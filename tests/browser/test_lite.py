"""The site that `make lite` has built, without the network: it opens, with the tutorial and the extension.

Pyodide and NumPy are on the site only after `make lite PYODIDE=1`: then all cells of the tutorial run. Otherwise its
pages load them from PYODIDE, which these tests do not reach.
"""

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import ROOT

SITE = ROOT / "build" / "lite"
#: The host of Pyodide and of the packages that it brings.
PYODIDE = "cdn.jsdelivr.net"
HAS_PYODIDE = (SITE / "static" / "pyodide" / "pyodide.mjs").exists()
#: Of each code cell: its prompt, the kinds of its outputs, and the text of its outputs.
CELLS = """() => [...document.querySelectorAll('.jp-Notebook .jp-CodeCell')].map(cell => {
  const outputs = [...cell.querySelectorAll('.jp-OutputArea-output')];
  return {
    prompt: cell.querySelector('.jp-InputPrompt').textContent,
    kinds: outputs.map(output => output.dataset.mimeType),
    text: outputs.map(output => output.textContent).join('\\n')
  };
})"""

pytestmark = pytest.mark.skipif(not (SITE / "lab" / "index.html").exists(), reason="the site is not built: make lite")


class Quiet(SimpleHTTPRequestHandler):
    #: A browser loads modules and WebAssembly by these names alone.
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_message(self, *arguments):
        pass


@pytest.fixture
def opened(browser):
    """The page with the tutorial. Requests to other hosts fail; one that is not for Pyodide fails the test."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        own = f"127.0.0.1:{server.server_port}"
        context = browser.new_context(viewport={"width": 1280, "height": 720})
        elsewhere, errors = set(), []

        def answer(route):
            host = urlsplit(route.request.url).netloc
            if host in (own, ""):
                route.continue_()
            else:
                elsewhere.add(host)
                route.abort()

        context.route("**/*", answer)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(error.stack or str(error)))
        page.goto(f"http://{own}/lab/index.html?path=01_tutorial.ipynb")
        yield page
        context.close()
        server.shutdown()
    assert elsewhere <= (set() if HAS_PYODIDE else {PYODIDE})
    assert not [error for error in errors if "hybrid-lab" in error]


def test_the_site_has_the_tutorial_and_the_panel_says_what_is_missing(opened):
    cells = opened.locator(".jp-Notebook .jp-CodeCell")
    expect(cells.first).to_contain_text("%pip install -q hybrid-lab", timeout=120_000)
    opened.locator(".jp-SideBar .lm-TabBar-tab[data-id='hybrid-lab-panel']").click()
    panel = opened.locator("#hybrid-lab-panel")
    expect(panel).to_be_visible()
    expect(panel).to_contain_text("This notebook has no running kernel.")


@pytest.mark.long
@pytest.mark.skipif(not HAS_PYODIDE, reason="Pyodide is not on the site: make lite PYODIDE=1")
def test_every_cell_of_the_tutorial_runs(opened):
    opened.set_default_timeout(120_000)
    expect(opened.locator(".jp-Notebook .jp-CodeCell").first).to_contain_text("%pip install", timeout=120_000)
    # Before the kernel answers, the cells would be run without an effect.
    expect(opened.get_by_text("Python (Pyodide) | Idle")).to_be_visible(timeout=300_000)
    opened.get_by_role("menuitem", name="Run", exact=True).click()
    opened.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    # An error in one cell leaves the cells after it without a number.
    done = (
        "() => [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].every(e => !e.textContent.includes('*'))"
    )
    opened.wait_for_timeout(5_000)
    opened.wait_for_function(done, timeout=900_000)
    cells = opened.evaluate(CELLS)
    assert "Traceback" not in "".join(cell["text"] for cell in cells)
    assert [cell["prompt"] for cell in cells] == [f"[{number}]:" for number in range(1, len(cells) + 1)]
    texts = "\n".join(cell["text"] for cell in cells)
    assert "test accuracy 9" in texts and texts.count("largest difference") == 3
    assert any("image/png" in cell["kinds"] for cell in cells)
