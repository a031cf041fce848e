"""Long work of a running cell has a row in the panel, which goes at its end and moves nothing."""

from playwright.sync_api import expect

from tests.browser.jupyter import IN_ONE_FRONT_END

MODEL = """import hybrid_lab as mx, time
from hybrid_lab import progress
net = mx.gluon.nn.Dense(3)
net.initialize()
net(mx.nd.ones((2, 4)));"""

WORK = """with progress.working("importing net.onnx"):
    time.sleep(4)
    bar = progress.Progress("importing the ONNX file", 8, "operators")
    for number in range(8):
        bar.step(number, f"Conv {number}")
        time.sleep(0.7)
    bar.close()"""


@IN_ONE_FRONT_END
def test_work_of_the_running_cell(open_cells):
    notebook = open_cells([MODEL, WORK])
    panel = notebook.show_panel()
    notebook.run_cell(0)
    row = notebook.row("net")
    expect(row).to_be_visible()
    place = row.bounding_box()
    notebook.run_cell(1, wait=False)
    work = panel.get_by_role("region", name="Work of the running cell")
    expect(work).to_contain_text("importing net.onnx", timeout=30_000)
    bar = work.get_by_role("progressbar")
    expect(bar).to_have_attribute("aria-valuemax", "8", timeout=30_000)
    expect(work).to_contain_text("importing the ONNX file: Conv")
    assert row.bounding_box() == place
    says = panel.locator(".hl-status")
    expect(says).to_contain_text("a cell is running")
    part = says.evaluate("says => says.clientWidth / says.parentElement.clientWidth")
    assert part > 0.8, "notebook and state have a line of their own"
    expect(work).to_be_hidden(timeout=60_000)
