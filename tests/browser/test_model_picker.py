"""Which model the panel shows: that of a name; and what it tells of the others."""

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import IN_LAB_ONLY

MODELS = """import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn

class Stubborn(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x.reshape((x.shape[0], -1))

def mlp(*layers):
    net = nn.HybridSequential()
    net.add(*layers)
    net.initialize()
    net.hybridize()
    return net

x = mx.nd.ones((2, 3))
gen, dis = mlp(nn.Dense(4), nn.Dense(2)), mlp(nn.Dense(4), Stubborn())
gen(x).shape"""

FAILS = """try:
    dis(x)
except Exception:
    pass"""


@pytest.mark.long
@IN_LAB_ONLY
def test_a_model_that_is_not_shown_and_failed_is_one_click_away(open_cells):
    notebook = open_cells([MODELS, FAILS])
    panel = notebook.show_panel()
    notebook.run_cell(0)
    picker = panel.get_by_role("combobox", name="Model", exact=True)
    expect(picker.locator("option:checked")).to_have_text("gen: HybridSequential")
    notebook.run_cell(1)
    link = panel.locator(".hl-answer-bad button")
    expect(link).to_have_text("1 Block of dis failed: dis[1]")
    assert "HL101" in (link.get_attribute("title") or "")
    link.click()
    expect(picker.locator("option:checked")).to_have_text("dis: HybridSequential")
    expect(panel.locator("[role=treeitem][aria-selected=true]")).to_contain_text("Stubborn")
    expect(panel.locator(".hl-answer-bad")).to_contain_text("1 Block failed: dis[1]")


@IN_LAB_ONLY
def test_the_panel_follows_a_name_and_lists_an_object_once(open_cells):
    notebook = open_cells([
        MODELS,
        "old, gen = gen, mlp(nn.Dense(5), nn.Dense(2), nn.Dense(3)); gen(x)",
        "nets = {'one': mlp(nn.Dense(3)), 'two': mlp(nn.Dense(3))}\nfor net in nets.values():\n    net(x)",
    ])  # fmt: skip
    panel = notebook.show_panel()
    notebook.run_cell(0)
    picker = panel.get_by_role("combobox", name="Model", exact=True)
    expect(picker.locator("option:checked")).to_have_text("gen: HybridSequential")
    notebook.row("1").click()
    notebook.run_cell(1)
    expect(picker.locator("option")).to_have_count(3)
    expect(panel.get_by_role("treeitem")).to_have_count(4)  # the new gen
    expect(picker.locator("option:checked")).to_have_text("gen: HybridSequential")
    expect(panel.locator("[role=treeitem][aria-selected=true]")).to_have_attribute("data-path", "1")
    notebook.run_cell(2)
    expect(picker.locator("option")).to_have_count(4)
    texts = picker.locator("option").all_text_contents()
    assert 'nets: dict (net is nets["two"])' in texts and not any(text.startswith("net:") for text in texts), texts
