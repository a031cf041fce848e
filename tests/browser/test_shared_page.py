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
def opened(browser, shared):
    context = browser.new_context(viewport={"width": 1280, "height": 720}, color_scheme="light", offline=True)
    opened = context.new_page()
    opened.problems = []
    opened.on("pageerror", lambda error: opened.problems.append(str(error)))
    opened.on("console", lambda message: opened.problems.append(message.text) if message.type == "error" else None)
    outside = ("file:", "blob:", "data:")
    opened.on("request", lambda r: None if r.url.startswith(outside) else opened.problems.append(r.url))
    opened.goto(shared.as_uri())
    opened.wait_for_selector(".hl-graph svg [data-id], .hl-canvas [data-id]", timeout=30_000)
    yield opened
    assert opened.problems == []
    context.close()


def test_it_shows_tree_graph_and_runs_without_network(opened):
    assert EVIL in opened.inner_text(".hl-headline")
    assert opened.title() == f"{EVIL} - Hybrid Lab"
    assert opened.locator("img[src=x]").count() == 0
    assert opened.get_by_role("treeitem").count() >= 3
    opened.get_by_role("tab", name="Training").click()
    assert opened.locator(".hl-charts svg").first.is_visible()
    opened.get_by_role("tab", name="Report").click()
    assert "Block" in opened.inner_text(".hl-report")


def test_boxes_open_and_the_search_finds(opened):
    nodes = opened.locator(".hl-canvas [data-id], .hl-graph [data-id]")
    before = nodes.count()
    opened.get_by_role("searchbox", name="Search the graph").or_(
        opened.get_by_placeholder("Search the graph")
    ).first.fill("LayerNorm")
    opened.keyboard.press("Enter")
    opened.wait_for_function(
        "n => document.querySelectorAll('.hl-canvas [data-id], .hl-graph [data-id]').length > n", arg=before
    )


def test_a_block_is_selected_and_its_graph_is_drawn(opened):
    opened.get_by_role("treeitem").nth(1).click()
    opened.wait_for_function("() => document.querySelector('.hl-graph-pane').textContent.includes('FullyConnected')")
    opened.get_by_role("tab", name="Details").click()
    assert "HybridSequential" in opened.inner_text(".hl-details, [role=tabpanel]")


def test_programs_and_overlays_switch(opened):
    programs = opened.get_by_label("Program").or_(opened.locator("select.hl-program")).first
    values = programs.locator("option").all_inner_texts()
    assert len(values) > 1
    programs.select_option(index=0)
    opened.wait_for_timeout(500)
    opened.get_by_label("Overlay", exact=True).select_option("memory")
    opened.wait_for_function("() => document.querySelector('.hl-overlay-bar').textContent.trim() !== ''")
    assert "no kernel" not in opened.inner_text(".hl-overlay-bar")


def test_the_theme_switches(opened):
    light = opened.evaluate("getComputedStyle(document.querySelector('.hl-shared')).backgroundColor")
    opened.get_by_role("button", name="Dark theme").click()
    dark = opened.evaluate("getComputedStyle(document.querySelector('.hl-shared')).backgroundColor")
    assert light != dark and opened.get_by_role("button", name="Light theme").is_visible()


@pytest.mark.long
def test_the_menu_of_the_panel_writes_the_page(open_cells, browser):
    made = "net = mx.gluon.nn.Dense(3)\nnet.initialize()\nnet.hybridize()\nnet(mx.nd.ones((2, 4))).shape"
    notebook = open_cells([f"import hybrid_lab as mx\n{made}"])
    notebook.run_all()
    notebook.show_panel()
    notebook.panel.get_by_role("button", name="More actions").first.click()
    notebook.click("Share as a page")
    notebook.result("Shared net as a page")
    path = notebook.kernel("import os; print(os.path.abspath('net.html'))").strip()
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(f"file://{path}")
    page.get_by_role("treeitem").first.wait_for(timeout=30_000)
    assert "Dense" in page.inner_text(".hl-headline")
    context.close()
