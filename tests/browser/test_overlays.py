"""Overlays in a living notebook: times, values and memory on the graph, numbers of parameters, the switch for NaN."""

import os
import re

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import IN_ONE_FRONT_END, wait_for
from tests.browser.test_graph import CONTRAST, for_each_theme
from tests.browser.test_lab import MODEL

TRAINED = """net = nn.HybridSequential()
net.add(nn.Conv2D(6, 5, activation="relu"), nn.MaxPool2D(2, 2), nn.Dense(30), nn.Dense(10))
net.initialize()
net.hybridize(engine="numpy")
x = mx.nd.random.normal(shape=(2, 1, 28, 28))
net(x)
with mx.autograd.record():
    loss = net(x).sum()
loss.backward()"""

#: Whether texts lie within the shapes that they belong to.
INSIDE = """texts => texts.map(text => {
  const box = text.getBoundingClientRect();
  const around = text.parentElement.querySelector(':scope > .hl-g-shape').getBoundingClientRect();
  return box.left > around.left && box.right < around.right && box.top > around.top && box.bottom < around.bottom;
})"""

SHOWN = """mx.nd.random.normal(shape=(16, 3, 7, 7))"""


@IN_ONE_FRONT_END
def test_what_is_measured_is_seen_on_the_graph(open_cells):
    notebook = open_cells([MODEL, TRAINED, SHOWN])
    panel = notebook.show_panel()
    notebook.run_all()
    chosen = panel.get_by_role("combobox", name="Overlay", exact=True)
    headline = panel.locator(".hl-overlay-bar .hl-summary")
    measured = panel.locator("svg.hl-g .hl-g-measured")

    chosen.select_option("time")
    expect(headline).to_contain_text("the same operators in eager mode")
    expect(measured.first).to_be_visible()
    notebook.unfold_card()
    slowest = panel.locator(".hl-overlay-marked button")
    expect(slowest.first).to_be_visible()
    slowest.first.click()
    notebook.open_drawer("Details")
    expect(panel.locator("svg.hl-g .hl-g-selected")).to_have_count(1)
    expect(panel.locator(".hl-details")).to_contain_text(re.compile(r"Measured[0-9.]+ (µs|ms)"))
    notebook.close_drawer()
    numbers = panel.locator("svg.hl-g .hl-g-measure")
    expect(numbers.first).to_be_visible()
    assert all(numbers.evaluate_all(INSIDE)), "a number of the overlay is not inside its node or box"
    reason = panel.locator(".hl-graph-caption")
    expect(reason).to_have_attribute("title", re.compile(r"as hybridize\(engine='numpy'\) asked"))
    closed = panel.locator("svg.hl-g .hl-g-measured:not(.hl-g-open)")
    for theme in for_each_theme(notebook):
        for index in range(closed.count()):
            assert closed.nth(index).evaluate(CONTRAST) >= 4.5, (theme, index)
        if folder := os.environ.get("HYBRID_LAB_PICTURES"):
            notebook.page.screenshot(path=f"{folder}/overlay_{theme.rpartition(' ')[2].lower()}.png")

    chosen.select_option("memory")
    expect(headline).to_contain_text("arena")
    expect(panel.locator(".hl-overlay-timeline svg")).to_be_visible()
    expect(panel.locator(".hl-overlay-step")).to_contain_text("kept for the backward")

    chosen.select_option("values")
    field = panel.get_by_role("textbox", name=re.compile("^Variables with the inputs"))
    field.fill("x")
    field.press("Enter")
    expect(headline).to_contain_text("on x: all are finite")
    notebook.kernel("x[0, 0, 0, 0] = float('nan')")
    panel.get_by_role("button", name="Measure").click()
    expect(headline).to_contain_text("with NaN or infinities")
    expect(panel.locator("svg.hl-g .hl-g-bad").first).to_be_visible()

    chosen.select_option("")
    expect(measured).to_have_count(0)


@pytest.mark.long
@IN_ONE_FRONT_END
def test_numbers_and_the_switch_for_nan(open_cells):
    notebook = open_cells([MODEL, TRAINED, SHOWN])
    panel = notebook.show_panel()
    notebook.run_all()
    output = notebook.show_cell(2).locator(".jp-OutputArea-output")
    expect(output).to_contain_text("16 x 3 x 7 x 7, float32, cpu(0)")
    expect(output.locator("img")).to_be_visible()

    notebook.row("2").dblclick()
    panel.locator(".hl-details").get_by_role("button", name="weight", exact=True).click()
    numbers = panel.locator(".hl-numbers")
    expect(numbers).to_have_count(2)
    expect(numbers.first).to_contain_text("30 x 864, float32, cpu(0)")
    expect(numbers.first.locator("img")).to_be_visible()

    notebook.open_menu("More about the graph")
    watch = panel.get_by_role("checkbox", name="Stop at NaN")
    watch.check()
    expect(watch).to_be_checked()
    code = "try:\n    net(x * float('nan'))\nexcept mx.diagnostics.NonFiniteError as error:\n    print(error)"
    # The kernel hears of the switch by a message, which code that comes right behind it may overtake.
    wait_for(lambda: "input 0 of" in notebook.kernel(code))
    watch.uncheck()
    wait_for(lambda: notebook.kernel(code) == "")
