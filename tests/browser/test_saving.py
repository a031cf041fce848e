"""Saving, comparing and reloading by the panel of a living notebook."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import IN_ONE_FRONT_END
from tests.browser.test_lab import MODEL

CLASS = """class Net(gluon.HybridBlock):
    act = "relu"

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(nn.Dense(8), nn.Dense(8))
            self.head = nn.Dense(3)

    def hybrid_forward(self, F, x):
        return self.head(F.Activation(self.body(x), act_type=self.act))

def made(act):
    Net.act = act
    net = Net()
    net.initialize()
    net.hybridize()
    net(x)
    return net"""

RUN = """x = mx.nd.array(np.random.RandomState(0).rand(4, 5).astype("float32"))
net = made("relu")
big = made("relu")
loss = gluon.loss.L2Loss()
values = loss(x, x)"""

TRAIN = """from hybrid_lab import autograd
import time
trainer = gluon.Trainer(big.collect_params(), "sgd", {"learning_rate": 0.1})
for step in range(40):
    with autograd.record():
        value = (big(x) ** 2).sum()
    value.backward()
    trainer.step(4)
    time.sleep(0.1)"""


@IN_ONE_FRONT_END
def test_what_changed_since_the_last_save(open_cells):
    """Save, train on, compare, go back - and a file whose graph is another one, before anything is replaced."""
    notebook = open_cells([MODEL, CLASS, RUN])
    panel = notebook.show_panel()
    notebook.run_all()
    expect(notebook.row("head")).to_be_visible()
    notebook.click("Save net")
    notebook.result("1 graph, and those of")
    notebook.kernel("net.head.weight.set_data(net.head.weight.data() + 0.5)")
    notebook.click("Compare…")
    notebook.result("1 tensor changed")
    expect(panel.locator(".hl-diff-tensors")).to_contain_text("head.weight differs by up to 0.5")

    # The next save keeps the file that it replaces; the list of earlier saves leads back to it.
    notebook.click("Save net")
    notebook.result("is among the earlier saves")
    panel.get_by_role("tab", name="Saves").click()
    panel.locator(".hl-save-card").first.click()
    panel.get_by_role("button", name=re.compile("^Reload the save of")).click()
    notebook.result("Undo takes them back")
    expect(panel.locator(".hl-diff-tensors")).to_contain_text("head.weight differs by up to 0.5")
    panel.get_by_role("button", name="Undo this reload", exact=True).click()
    notebook.result("1 parameter restored")

    notebook.kernel("net = made('tanh')")
    notebook.click("Reload net")
    confirm = panel.locator(".hl-confirm")
    expect(confirm.locator(".hl-diff-operators")).to_contain_text("act_type: 'relu' became 'tanh'")
    expect(confirm.locator(".hl-mark").first).to_contain_text("changed")
    notebook.click("Cancel")
    notebook.result("net was not changed")
    notebook.click("Compare…")
    panel.get_by_role("button", name="Show in graph", exact=True).first.click()
    marked = panel.locator("svg.hl-g .hl-g-measured")
    expect(marked).to_have_count(1)
    expect(marked).to_contain_text("act_type=tanh")
    expect(marked).to_contain_text("changed")
    assert notebook.kernel("print(net._graphs.pinned)") == "{}"


@pytest.mark.long
@IN_ONE_FRONT_END
def test_the_toolbar_saves_every_model_and_writes_nothing_into_a_running_cell(open_cells):
    notebook = open_cells([MODEL, CLASS, RUN, TRAIN])
    notebook.needs_answers_of_busy_kernels()
    notebook.show_panel()
    for file in notebook.server.folder.glob("*.hlab"):
        file.unlink()  # of an earlier test
    for index in range(3):
        notebook.run_cell(index)
    expect(notebook.row("head")).to_be_visible()
    notebook.run_cell(3, wait=False)
    notebook.page.wait_for_timeout(1000)
    notebook.page.locator('.jp-Toolbar [data-jp-item-name="hybrid-lab-save-all"] >> jp-button, button').first.click()
    result = notebook.result("Saved 2 models")
    expect(result).to_contain_text("Left out: loss (a loss function)")
    expect(result.locator(".hl-saved li")).to_contain_text(["net.hlab", "big.hlab"])
    assert notebook.is_running(3)
    notebook.wait_run()
    files = sorted(path.name for path in notebook.server.folder.glob("*.hlab"))
    assert {"net.hlab", "big.hlab"} <= set(files) and "loss.hlab" not in files
    outputs = notebook.cells()[3]["outputs"]
    assert not [output for output in outputs if "saved" in str(output).lower()], outputs


@pytest.mark.long
@IN_ONE_FRONT_END
def test_graphs_that_a_save_would_lose_are_listed_first(open_cells):
    """The kernel was restarted, as it were: the model was made again and not called, the file has all its graphs."""
    notebook = open_cells([MODEL, CLASS, RUN.splitlines()[0], 'fresh = made("relu")'])
    panel = notebook.show_panel()
    notebook.run_all()
    expect(notebook.row("head")).to_be_visible()
    notebook.click("Save fresh")
    notebook.result("1 graph, and those of")
    notebook.kernel("fresh = Net(); fresh.initialize()")
    notebook.click("Save fresh")
    confirm = panel.locator(".hl-confirm")
    expect(confirm).to_contain_text(re.compile(r"fresh\.hlab has 5 graphs, \d tensors that this save would lose"))
    confirm.get_by_text(re.compile(r"^and \d more$")).click()
    graphs = [f"the graph of {name}" for name in ("the model itself", "body", "body.0", "body.1", "head")]
    for line in [*graphs, "the values of head.weight"]:
        expect(confirm.locator("li").get_by_text(line, exact=True)).to_be_visible()
    notebook.click("Cancel")
    notebook.result("fresh was not saved")
    assert notebook.kernel("print(len(gluon.load('fresh.hlab')._graphs.graphs()))") == "1"
    notebook.click("Save fresh")
    notebook.click("Save without them")
    notebook.result("Saved fresh")


HISTORY = """from hybrid_lab import autograd
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
net(x)
for note in ("first", "second", "<b>third</b>"):
    mx.lab.save_all(models={"net": net}, note=note)
    with autograd.record():
        value = (net(x) ** 2).sum()
    value.backward()
    trainer.step(4)"""


@pytest.mark.long
@IN_ONE_FRONT_END
def test_values_and_gradients_over_three_saves(open_cells):
    """A row for each save and one for the live model; by mouse and by keyboard; compared and reloaded from there."""
    notebook = open_cells([MODEL, CLASS, RUN, HISTORY])
    panel = notebook.show_panel()
    notebook.run_all()
    notebook.row("head").click()
    notebook.open_drawer("Details")
    over = panel.get_by_role("region", name="Values over the saves")
    rows = over.get_by_role("listbox").get_by_role("option")
    expect(rows).to_have_count(4)
    assert [row.split("\n")[-1] for row in over.locator(".hl-ridge-name").all_inner_texts()] == [
        "first", "second", "<b>third</b>", "live",
    ]  # fmt: skip
    expect(over.get_by_role("combobox", name="Parameter")).to_have_value("weight")

    # Numbers by the mouse and by the keyboard are those of the kernel.
    rows.nth(3).locator("svg").hover()
    expect(over.locator(".hl-readout")).to_contain_text("of 24 values")
    low = float(notebook.kernel("print(net.head.weight.data().min().asscalar())"))
    rows.nth(3).locator(".hl-ridge-name").hover()
    expect(over.locator(".hl-readout")).to_contain_text(f"min {low:.3g}")
    rows.nth(3).click()
    notebook.page.keyboard.press("ArrowUp")
    expect(rows.nth(2)).to_be_focused()
    expect(over.locator(".hl-readout")).to_contain_text("24 values")

    # The live row follows the model; a new save adds a row.
    notebook.kernel("net.head.weight.set_data(net.head.weight.data() * 0 + 7)")
    notebook.click("Save net")
    notebook.result("is among the earlier saves")
    notebook.open_drawer("Details")
    expect(rows).to_have_count(5)
    expect(rows.nth(4)).to_have_accessible_name(re.compile("now, live, min 7 · max 7"))

    # Gradients: none before the first backward pass.
    over.get_by_role("tab", name="Gradients").click()
    expect(rows).to_have_count(5)
    expect(rows.nth(0)).to_contain_text("no gradient")
    expect(over.locator(".hl-ridge-shape:visible")).to_have_count(4)
    over.get_by_text("as a table").locator("visible=true").click()
    expect(over.get_by_role("table")).to_contain_text("24 values")

    over.get_by_role("tab", name="Values").click()
    rows.nth(1).click()
    over.get_by_role("button", name=re.compile("^Compare the save of")).click()
    notebook.result("tensors changed")
    notebook.open_drawer("Details")
    over.get_by_role("button", name=re.compile("^Reload the save of")).click()
    notebook.result("Undo takes them back")
    notebook.open_drawer("Details")
    expect(rows.nth(4)).not_to_have_accessible_name(re.compile("min 7"))

    # Another Block has other parameters; one without any has none.
    notebook.row("body").click()
    expect(over.get_by_role("combobox", name="Parameter")).to_have_value("0.weight")
    over.get_by_role("combobox", name="Parameter").select_option("1.bias")
    expect(rows.nth(4)).to_have_accessible_name(re.compile("8 values"))
