"""A model of 10,000 Blocks in the panel: only rows in view are there, filter and keys work."""

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import IN_ONE_FRONT_END

MODEL = """import hybrid_lab as mx
from hybrid_lab.gluon import nn

net = nn.HybridSequential()
for _ in range(100):
    part = nn.HybridSequential()
    for number in range(99):
        part.add(nn.Dense(4) if number % 2 else nn.Activation("relu"))
    net.add(part)"""

#: Milliseconds to wait for what the page shows: other programs may run beside it, and no time is promised here.
PATIENT = 60_000

# Milliseconds from a key in the filter until the picture of the answer is on the page.
TYPE = """async text => {
  const input = document.querySelector('#hybrid-lab-panel .hl-tree-search');
  input.focus();
  input.value = text;
  const start = performance.now();
  input.dispatchEvent(new Event('input', { bubbles: true }));
  await new Promise(resolve => requestAnimationFrame(() => setTimeout(resolve)));
  return performance.now() - start;
}"""


@pytest.mark.long
@IN_ONE_FRONT_END
def test_ten_thousand_blocks(open_cells):
    notebook = open_cells([MODEL])
    panel = notebook.show_panel()
    notebook.run_cell(0)
    tree = panel.get_by_role("tree")
    expect(panel.locator(".hl-headline")).to_contain_text("10,001 Blocks", timeout=PATIENT)
    expect(tree.get_by_role("treeitem").first).to_be_visible(timeout=PATIENT)
    milliseconds = [notebook.page.evaluate(TYPE, text) for text in ("d", "de", "den", "dense", "eager")]
    print("a key in the filter:", *(f"{each:.0f} ms" for each in milliseconds))
    notebook.page.evaluate(TYPE, "dense")
    expect(panel.locator(".hl-tree-part [role=status]")).to_have_text("4,900 matches", timeout=PATIENT)
    assert tree.get_by_role("treeitem").count() < 100
    notebook.page.keyboard.press("ArrowDown")
    notebook.page.keyboard.press("End")
    expect(tree.locator(":focus")).to_have_attribute("data-path", "99.97", timeout=PATIENT)
    expect(tree.locator(":focus")).to_be_in_viewport(timeout=PATIENT)
