"""Tree, graph and code follow each other in a living notebook."""

import re

from playwright.sync_api import expect

from tests.browser.jupyter import IN_LAB_ONLY
from tests.browser.test_stories import IMPORTS

CODE = """class Net(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.first = nn.Dense(8)
        self.second = nn.Dense(4)

    def hybrid_forward(self, F, x):
        y = F.tanh(self.first(x))
        z = F.sigmoid(y)
        return self.second(z)

net = Net()
net.initialize()
net.hybridize()
y = net(x)"""


@IN_LAB_ONLY
def test_tree_graph_and_code_follow_each_other(open_cells):
    notebook = open_cells([IMPORTS, CODE])
    panel = notebook.show_panel()
    notebook.run_all()
    graph = panel.locator("svg.hl-g")
    selected = graph.locator(".hl-g-selected")

    # A row shows its box, in the graph that is drawn.
    notebook.row("second").click()
    expect(selected).to_contain_text("FullyConnected")
    expect(graph.locator(".hl-g-item").filter(has_text="tanh").first).to_be_attached()

    # An operator selects its row and marks its line; the cursor stays where it is.
    field = panel.get_by_role("searchbox", name=re.compile("^Search the graph"))
    field.fill("op:tanh")
    field.press("Enter")
    expect(selected).to_contain_text("tanh")
    marked = notebook.page.locator(".cm-line.hl-code-line")
    expect(marked).to_have_text(re.compile(r"F\.tanh"))
    expect(notebook.row("net")).to_have_attribute("aria-selected", "true")
    expect(field).to_be_focused()

    # The cursor in a line marks its operators.
    line = notebook.show_cell(1).locator(".cm-line").filter(has_text="F.sigmoid")
    line.click()
    expect(graph.locator(".hl-g-code")).to_have_count(1)
    expect(graph.locator(".hl-g-code")).to_contain_text("sigmoid")

    # A weight shows its numbers, in view on a low page too.
    notebook.page.set_viewport_size({"width": 1280, "height": 720})
    notebook.row("first").click()
    expect(selected).to_contain_text("FullyConnected")
    selected.locator("[data-badge='0']").click()
    expect(panel.locator(".hl-details .hl-numbers-of")).to_contain_text("mean")
    expect(panel.locator(".hl-details .hl-numbers-of > *").first).to_be_in_viewport()
