"""The site that `make lite` has built, without the network: it opens, with the tutorial and the extension.

Pyodide and NumPy are not on the site: its pages load them from PYODIDE, which this test does not reach.
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

pytestmark = pytest.mark.skipif(not (SITE / "lab" / "index.html").exists(), reason="the site is not built: make lite")


class Quiet(SimpleHTTPRequestHandler):
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
    assert elsewhere <= {PYODIDE}
    assert not [error for error in errors if "hybrid-lab" in error]


def test_the_site_has_the_tutorial_and_the_panel_says_what_is_missing(opened):
    cells = opened.locator(".jp-Notebook .jp-CodeCell")
    expect(cells.first).to_contain_text("%pip install -q hybrid-lab", timeout=120_000)
    opened.locator(".jp-SideBar .lm-TabBar-tab[data-id='hybrid-lab-panel']").click()
    panel = opened.locator("#hybrid-lab-panel")
    expect(panel).to_be_visible()
    expect(panel).to_contain_text("This notebook has no running kernel.")
