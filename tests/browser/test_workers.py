"""Workers of a notebook in the panel: their rows, curves, models and errors, the stop button, and their end."""

import os
import re

import pytest
from playwright.sync_api import expect

from tests.browser.jupyter import IN_ONE_FRONT_END, wait_for

pytest.importorskip("torch")
pytest.importorskip("ipyparallel")

START = """import hybrid_lab as mx
workers = mx.lab.workers(2)"""

BUILD = """%%workers
import os, time
import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd

net = gluon.nn.Dense(1, in_units=2)
net.initialize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore="dist_sync")
store = mx.kv.create("dist_sync")"""

TRAIN = """%%workers
x, y = nd.random.uniform(shape=(8, 2)), nd.random.uniform(shape=(8, 1))
for step in range(60):
    with autograd.record():
        loss = gluon.loss.L2Loss()(net(x), y)
    loss.backward()
    trainer.step(16)
    mx.log(loss=loss)
    while step >= 20 and not os.path.exists("workers-go-on"):
        time.sleep(0.6)  # until the running training has been looked at
        mx.log(loss=loss)"""

FAIL = """%%workers
if store.rank == 1:
    raise ValueError("a mistake")
store.barrier()"""

WAIT = """%%workers
while True:
    time.sleep(0.1)"""


def _is_there(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.long
@IN_ONE_FRONT_END
@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs Linux's list of processes")
def test_workers_are_seen_until_they_end(server, open_cells):
    notebook = open_cells([START, BUILD, TRAIN, FAIL, WAIT])
    panel = notebook.show_panel()
    notebook.run_cell(0)
    notebook.open_drawer("Training")
    workers = panel.locator(".hl-workers")
    rows = workers.locator("tbody tr")
    expect(workers.locator("summary")).to_have_text("2 workers")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text(re.compile("idle.*MiB.*cpu"))
    pids = [int(pid) for pid in rows.locator("td:last-child").all_text_contents()]
    assert all(map(_is_there, pids))

    notebook.run_cell(1)
    expect(panel.get_by_role("combobox", name="Model", exact=True)).to_contain_text("net (rank 0): Dense")
    expect(notebook.row("net")).to_be_visible()
    notebook.run_cell(2, wait=False)
    expect(rows.nth(1)).to_contain_text("busy")
    chart = workers.get_by_role("img", name="loss: rank 0")
    expect(chart.locator("path.hl-line")).to_have_count(2)
    expect(workers.locator("summary")).to_contain_text("samples/s")
    chart.focus()
    notebook.page.keyboard.press("End")
    expect(workers.locator(".hl-chart-readout").first).to_have_text(re.compile("rank 0 .*rank 1 "))
    (server.folder / "workers-go-on").touch()
    notebook.wait_idle()
    expect(rows.locator("td:nth-child(3)")).to_have_text(["60", "60"])
    expect(rows.locator("td:nth-child(2)")).to_have_text(["idle", "idle"])

    notebook.run_cell(3)
    output = notebook.show_cell(3).locator(".jp-OutputArea")
    expect(output).to_contain_text("rank 1 ValueError: a mistake")
    expect(output).to_contain_text("Cell In[4], line 3")
    expect(workers.locator(".hl-worker-problems li")).to_have_text(["rank 1: ValueError: a mistake"])

    notebook.run_cell(4, wait=False)
    expect(rows.locator("td:nth-child(2)")).to_have_text(["busy", "busy"])
    notebook.command("notebook:interrupt-kernel")
    expect(rows.locator("td:nth-child(2)")).to_have_text(["interrupted", "interrupted"])
    assert all(map(_is_there, pids))

    notebook.page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
    expect(workers).to_be_hidden()
    wait_for(lambda: not any(map(_is_there, pids)), seconds=60)


@pytest.mark.long
@IN_ONE_FRONT_END
def test_many_workers_leave_the_graph_its_place(open_cells):
    """Eighteen rows with long names, as a kernel would push them: they scroll, and are folded by the keyboard."""
    notebook = open_cells(["import hybrid_lab as mx\nnet = mx.gluon.nn.Dense(1, in_units=2)\nnet.initialize()"])
    panel = notebook.show_panel()
    notebook.run_cell(0)
    graph = panel.locator(".hl-graph-pane")
    before = graph.bounding_box()
    notebook.kernel(
        "from hybrid_lab.lab.distributed.board import board\n"
        "row = {'host': 'a-machine-with-a-long-name.' * 4, 'process': 1, 'device': 'gpu(0)', 'state': 'failed',\n"
        "       'step': 123456, 'loss': '0.5', 'rate': '1,000', 'memory': '2,000 MiB', 'problem': 'a story ' * 30}\n"
        "board.show({'headline': '18 workers', 'note': 'a note', 'curves': [],\n"
        "            'workers': [{'rank': rank, **row} for rank in range(18)]})"
    )
    notebook.open_drawer("Training")
    workers = panel.locator(".hl-workers")
    expect(workers.locator("tbody tr")).to_have_count(18)
    assert graph.bounding_box() == before
    region = workers.get_by_role("region", name="Workers")
    assert region.bounding_box()["height"] < 300
    assert region.evaluate("region => region.scrollHeight > region.clientHeight")
    region.focus()
    expect(region).to_be_focused()
    workers.locator("summary").press("Enter")
    expect(region).to_be_hidden()
    notebook.kernel("board.clear()")
    expect(workers).to_be_hidden()
