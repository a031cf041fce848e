"""The site that `make docs` has built: nothing is loaded from elsewhere, the search works, pages fit a phone."""

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import ROOT

HTML = ROOT / "build" / "docs" / "html"
PAGES = (
    "index",
    "start",
    "operators/layers-softmax",
    "api/gluon-nn",
    "guide/first-net",
    "rules/HL101",
    "tutorials/01_tutorial",
)

pytestmark = pytest.mark.skipif(not (HTML / "index.html").exists(), reason="the site is not built: make docs")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def address():
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(HTML))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(params=[("light", 1280), ("dark", 390)], ids=["light", "dark-phone"])
def visit(browser, address, request):
    """visit(page) -> the page; a request to another host or an error in a script fails the test."""
    scheme, width = request.param
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    elsewhere, errors = [], []
    page.on(
        "request", lambda sent: None if sent.url.startswith((address, "data:", "blob:")) else elsewhere.append(sent.url)
    )
    page.on("pageerror", lambda error: errors.append(str(error)))

    def open_page(name):
        page.goto(f"{address}/{name}", wait_until="networkidle")
        return page

    yield open_page
    context.close()
    assert (elsewhere, errors) == ([], [])


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_and_loads_nothing_from_elsewhere(visit, name):
    page = visit(f"{name}.html")
    expect(page.locator("h1").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_the_home_page_shows_the_picture_of_its_theme(visit):
    page = visit("index.html")
    theme = page.evaluate("document.documentElement.dataset.theme")
    expect(page.locator(f".home-picture img.only-{theme}")).to_be_visible()
    expect(page.locator(".home-picture img:visible")).to_have_count(1)
    assert page.locator("pre").first.inner_text().count("$ ") == 2


def test_the_search_finds_an_operator_and_an_error(visit):
    page = visit("search.html?q=softmax")
    expect(page.locator("#search-results a[href*='layers-softmax']").first).to_be_visible()
    page = visit("search.html?q=numpy+has+no+attribute+bool")
    expect(page.locator("#search-results a[href*='errors/numpy-bool']").first).to_be_visible()
