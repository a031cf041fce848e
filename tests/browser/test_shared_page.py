"""A shared page in Chromium, opened from the disk with the network off: it opens boxes, searches, selects, switches."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright")

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.gluon import nn

pytestmark = pytest.mark.browser

EVIL = "</script><img src=x onerror=\"document.title='run'\">"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    net = nn.HybridSequential()
    for _ in range(2):
        inner = nn.HybridSequential()
        inner.add(nn.Dense(8, activation="tanh"), nn.Dense(4), nn.LayerNorm())
        net.add(inner)
    net.initialize()
    net.hybridize()
    x = nd.random.normal(shape=(5, 4))
    net(x)
    with autograd.record():
        loss = net(x).sum()
    loss.backward()
    for step in range(30):
        mx.log(loss=1 / (step + 1))
    path = tmp_path_factory.mktemp("shared") / "net.html"
    mx.lab.share(net, path, name=EVIL)
    return path


@pytest.fixture
def page(browser, shared):
    context = browser.new_context(viewport={"width": 1280, "height": 720}, color_scheme="light", offline=True)
    page = context.new_page()
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("console", lambda message: page.problems.append(message.text) if message.type == "error" else None)
    outside = ("file:", "blob:", "data:")
    page.on("request", lambda r: None if r.url.startswith(outside) else page.problems.append(r.url))
    page.goto(shared.as_uri())
    page.wait_for_selector(".hl-graph svg [data-id], .hl-canvas [data-id]", timeout=30_000)
    yield page
    assert page.problems == []
    context.close()


def test_it_shows_tree_graph_and_runs_without_network(page):
    assert EVIL in page.inner_text(".hl-headline")
    assert page.title() == f"{EVIL} - Hybrid Lab"
    assert page.locator("img[src=x]").count() == 0
    assert page.get_by_role("treeitem").count() >= 3
    page.get_by_role("tab", name="Training").click()
    assert page.locator(".hl-charts svg").first.is_visible()
    page.get_by_role("tab", name="Report").click()
    assert "Block" in page.inner_text(".hl-report")


def test_boxes_open_and_the_search_finds(page):
    nodes = page.locator(".hl-canvas [data-id], .hl-graph [data-id]")
    before = nodes.count()
    page.get_by_role("searchbox", name="Search the graph").or_(page.get_by_placeholder("Search the graph")).first.fill(
        "LayerNorm"
    )
    page.keyboard.press("Enter")
    page.wait_for_function(
        "n => document.querySelectorAll('.hl-canvas [data-id], .hl-graph [data-id]').length > n", arg=before
    )


def test_a_block_is_selected_and_its_graph_is_drawn(page):
    page.get_by_role("treeitem").nth(1).click()
    page.wait_for_function("() => document.querySelector('.hl-graph-pane').textContent.includes('FullyConnected')")
    page.get_by_role("tab", name="Details").click()
    assert "HybridSequential" in page.inner_text(".hl-details, [role=tabpanel]")


def test_programs_and_overlays_switch(page):
    programs = page.get_by_label("Program").or_(page.locator("select.hl-program")).first
    values = programs.locator("option").all_inner_texts()
    assert len(values) > 1
    programs.select_option(index=0)
    page.wait_for_timeout(500)
    page.get_by_label("Overlay").select_option("memory")
    page.wait_for_function("() => document.querySelector('.hl-overlay-bar').textContent.trim() !== ''")
    assert "no kernel" not in page.inner_text(".hl-overlay-bar")


def test_the_theme_switches(page):
    light = page.evaluate("getComputedStyle(document.querySelector('.hl-shared')).backgroundColor")
    page.get_by_role("button", name="Dark theme").click()
    dark = page.evaluate("getComputedStyle(document.querySelector('.hl-shared')).backgroundColor")
    assert light != dark and page.get_by_role("button", name="Light theme").is_visible()
