"""The lab in a real kernel: pages connect, cells push, requests are answered meanwhile, saves fall between steps."""

import numpy as np
import pytest

pytest.importorskip("ipykernel")

from hybrid_lab import gluon  # noqa: E402
from hybrid_lab.lab.messages.connection import PROTOCOL  # noqa: E402
from tests.lab.conftest import CLASS, IMPORTS, MAKE  # noqa: E402
from tests.lab.kernel_process import Kernel  # noqa: E402

NET = """class BigNet(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.fc = nn.Dense(6, activation="relu", in_units=5)
            self.norm = nn.BatchNorm(in_channels=6)
            self.head = nn.Dense(3, in_units=6)

    def hybrid_forward(self, F, x):
        return self.head(self.norm(self.fc(x)))"""

TRAIN = """import os, time
def train(steps, pause, until=None):
    mx.random.seed(5)
    net = BigNet(prefix="big_")
    net.initialize()
    net.hybridize()
    globals()["big"] = net
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    after = []
    while len(after) < steps or (until and not os.path.exists(until)):
        with autograd.record():
            loss = (net(x) ** 2).sum()
            time.sleep(pause)
        loss.backward()
        time.sleep(pause)
        trainer.step(4)
        after.append({k: p.data().asnumpy().copy() for k, p in net._collect_params_with_prefix().items()})
        print("training" if len(after) == 4 else "step", flush=True)
    return after"""

MARKED = "class Marked(gluon.HybridBlock):\n    def hybrid_forward(self, F, x):\n        return x.asnumpy()"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    started = Kernel(tmp_path_factory.mktemp("kernel"))
    yield started
    started.stop()


@pytest.fixture
def held(kernel):
    """A cell that runs until `held.release()`; `held.cell` is its message."""
    gate = kernel.folder / "gate"
    gate.unlink(missing_ok=True)

    class Held:
        cell = kernel.start(
            "import os, time\nprint('held', flush=True)\nwhile not os.path.exists('gate'): time.sleep(0.01)"
        )

        def release(self):
            gate.touch()
            kernel.finish(self.cell)

    kernel.wait_for_output(Held.cell, "held")
    yield Held()
    gate.touch()


@pytest.fixture(scope="module")
def page(kernel):
    """One page, connected before anything else happened in the kernel but the imports."""
    early = kernel.page()
    assert early.closed(), "without hybrid_lab nobody takes the comm"
    kernel.run(IMPORTS, CLASS, NET, TRAIN, MAKE)
    kernel.run("from hybrid_lab.gluon import step\nstep.PATIENCE = 0.5")  # a test should not wait as long as a user
    connected = kernel.page()
    hello = connected.ok("hello", front_end="0.1.0", protocol=PROTOCOL, notebook="a.ipynb")
    assert hello["protocol"] == PROTOCOL and hello["subshells"] is True
    connected.folder = hello["folder"]
    return connected


def model_named(page, name):
    return next(model for model in page.ok("models")["models"] if model["name"] == name)


def test_each_cell_pushes_the_models_to_every_page(kernel, page):
    second = kernel.page()
    second.ok("hello", front_end="0.1.0", protocol=PROTOCOL, notebook="a.ipynb")
    before = len(page.pushes), len(second.pushes)
    kernel.run("other = nn.Dense(2)")
    kernel.listen(lambda: len(page.pushes) > before[0] and len(second.pushes) > before[1])
    for connected in (page, second):
        assert [model["name"] for model in connected.pushes[-1]["models"]] == ["net", "other"]
    kernel.run("del other")


def test_requests_are_answered_while_a_cell_runs(kernel, page, held):
    """The cells before pushed; that must not turn the conversation over to the busy main thread."""
    for kind, body in [
        ("models", {}),
        ("tree", {"model": model_named(page, "net")["id"]}),
        ("lint", {"cells": [{"id": "a", "source": CLASS}], "only": []}),
        ("archives", {}),
    ]:
        assert page.ok(kind, **body) is not None
    assert page.ok("models")["busy"] is True and kernel.running(held.cell)
    held.release()
    assert page.ok("models")["busy"] is False


def test_a_request_has_one_reply(kernel, page):
    identities = [page.start("models") for _ in range(5)] + [page.start("nonsense")]
    for identity in identities:
        page.reply(identity)
    kernel.run("1")
    assert [len(page.replies(identity)) for identity in identities] == [1] * 6


def test_prints_of_a_running_cell_are_not_lost_to_a_trace(kernel, page):
    """A graph is traced for the panel, silently, while a cell prints."""
    kernel.run("fresh = Net(); fresh.initialize(); fresh.hybridize()")
    model = model_named(page, "fresh")["id"]
    cell = kernel.start("print('begin', flush=True)\nfor n in range(200):\n    print(n, end=' '); time.sleep(0.002)")
    kernel.wait_for_output(cell, "begin")
    for _ in range(10):
        assert page.ok("graph", model=model, path="", program="traced")["dot"]
    assert kernel.finish(cell).split()[1:] == [str(number) for number in range(200)]
    kernel.run("del fresh")


def test_a_save_during_training_is_a_completed_step(kernel, page):
    """Weights and running statistics of one and the same step; the training gives the numbers it gives alone."""
    cell = kernel.start("after = train(12, 0.03, until='is saved')")
    kernel.wait_for_output(cell, "training")
    model = model_named(page, "big")["id"]
    body = page.ok("save", model=model, file="training", overwrite=True)
    assert kernel.running(cell), "the save came only after the training"
    assert body["note"] == "saved between two training steps"
    (kernel.folder / "is saved").touch()
    kernel.finish(cell)
    kernel.run(
        "alone = train(len(after), 0)",
        "saved = {k: p.data().asnumpy() for k, p in gluon.load('training.hlab')._collect_params_with_prefix().items()}",
        "equal = lambda one, two: all(np.array_equal(one[k], two[k]) for k in one)",
    )
    assert kernel.run("print(sum(equal(saved, step) for step in after))") == "1"
    assert kernel.run("print(all(equal(a, b) for a, b in zip(alone, after, strict=True)))") == "True"
    net = gluon.load(body["path"])
    assert np.abs(net.norm.running_mean.data().asnumpy()).max() > 0


def test_reload_and_undo_while_a_cell_trains(kernel, page):
    cell = kernel.start("after = train(12, 0.02, until='is reloaded')")
    kernel.wait_for_output(cell, "training")
    model = model_named(page, "big")["id"]
    page.ok("save", model=model, file="moving", overwrite=True)
    for _ in range(2):  # a whole step lies between them
        kernel.wait_for_more_output(cell, "step")
    body = page.ok("reload", model=model, file="moving", graphs="code")
    assert body["diff"] and page.ok("undo", model=model, undo=body["undo"])["summary"]
    assert kernel.running(cell)
    (kernel.folder / "is reloaded").touch()
    kernel.finish(cell)
    assert kernel.run("print(np.isfinite(after[-1]['head.weight']).all(), len(after) >= 12)") == "True True"


def test_a_cell_without_steps_does_not_keep_a_save_for_ever(kernel, page, held):
    body = page.ok("save", model=model_named(page, "net")["id"], file="sleeping", overwrite=True)
    assert "no training step" in body["note"] and kernel.running(held.cell)
    held.release()


def test_an_interrupt_during_training_leaves_the_lab_alive(kernel, page):
    cell = kernel.start("after = train(1, 0.02, until='never')")
    kernel.wait_for_output(cell, "training")
    waiting = page.start("save", model=model_named(page, "big")["id"], file="interrupted", overwrite=True)
    kernel.manager.interrupt_kernel()
    with pytest.raises(AssertionError, match="KeyboardInterrupt"):
        kernel.finish(cell)
    assert page.reply(waiting)["type"] in ("ok", "error")
    assert page.ok("models")["busy"] is False
    assert kernel.run("print(big(x).shape)") == "(4, 3)"
    assert page.ok("save", model=model_named(page, "big")["id"], file="interrupted", overwrite=True)["note"] == ""


def test_locations_name_the_cell(kernel, page):
    kernel.finish(kernel.start(MARKED + "\nmarked = Marked()", cell_id="cell-7"))
    tree = page.ok("tree", model=model_named(page, "marked")["id"])
    location = tree["root"]["location"]
    assert location["cell_id"] == "cell-7" and location["cell"] == kernel.number
    assert location["label"] == f"cell {kernel.number}, line 2"
    findings = page.ok("findings", model=tree["model"]["id"])["findings"]
    assert [(item["line"], item["location"]["cell_id"]) for item in findings] == [(3, "cell-7")]
    kernel.run("del marked")


def test_every_cell_has_its_number(tmp_path):
    """Also those before the hooks were there: an earlier one, and the one that imports hybrid_lab."""
    place = "print(Location({0}.__code__, 0), '|', Location({0}.__code__, 0).describe())"
    alone = Kernel(tmp_path)
    try:
        alone.run(
            "def early():\n    pass", "from hybrid_lab.diagnostics.location import Location\ndef first():\n    pass"
        )
        assert alone.run(place.format("early")) == "cell 1:1 | cell 1, line 1, in early"
        assert alone.run(place.format("first")) == "cell 2:2 | cell 2, line 2, in first"
        alone.run("def later(): pass")
        assert alone.number == 5 and alone.run(place.format("later")) == "cell 5:1 | cell 5, line 1, in later"
        linted = alone.run("%%hybrid_lint\nimport hybrid_lab.gluon as gluon\n" + MARKED)
        assert alone.number == 7 and linted.startswith("cell 7:5:")
        assert alone.run(place.format("Marked.hybrid_forward")).startswith("cell 7:4 |")
    finally:
        alone.stop()


def test_information_is_no_error_in_a_notebook(kernel):
    """Standard error is red there: a warning belongs on it, the line of a first call does not."""
    logs = "from hybrid_lab.system.logger import logger; logger.{}('{}')"
    identity = kernel.start(logs.format("info", "net: 1 <graph>") + "; " + logs.format("warning", "slow"))
    kernel.finish(identity)
    mine = [message for message in kernel.heard if message["parent_header"].get("msg_id") == identity]
    shown = [message["content"]["data"] for message in mine if message["msg_type"] == "display_data"]
    assert [data["text/plain"] for data in shown] == ["net: 1 <graph>"] and "1 &lt;graph&gt;" in shown[0]["text/html"]
    streams = [message["content"] for message in mine if message["msg_type"] == "stream"]
    assert [(each["name"], each["text"]) for each in streams] == [("stderr", "slow\n")]


def test_information_goes_where_standard_error_is_sent(kernel):
    catch = "import contextlib, io, threading\nwith contextlib.redirect_stderr(io.StringIO()) as caught:\n    {}\n"
    log = "__import__('hybrid_lab.system.logger').system.logger.logger.info('mine')"
    assert kernel.run(catch.format(log) + "print(repr(caught.getvalue()))") == repr("mine\n")
    thread = f"thread = threading.Thread(target=lambda: {log}); thread.start(); thread.join()"
    identity = kernel.start(thread)
    kernel.finish(identity)
    mine = [message for message in kernel.heard if message["parent_header"].get("msg_id") == identity]
    assert not [message for message in mine if message["msg_type"] == "display_data"]
    streams = [message["content"] for message in mine if message["msg_type"] == "stream"]
    assert [(each["name"], each["text"].strip()) for each in streams if each["text"].strip()] == [("stdout", "mine")]


def test_a_redefined_class_is_told_to_the_pages(kernel, page):
    before = len(page.pushes)
    kernel.run(CLASS.replace("self.fc(x)", "self.fc(x) * 2"))
    kernel.listen(lambda: len(page.pushes) > before)
    assert page.pushes[-1]["notes"] == ["net was made from an earlier class Net: make net again to run the new code"]


def test_a_view_does_not_take_the_page_s_route(kernel, page):
    """A widget sets traits from the main thread; its comm, too, must answer while the next cell runs."""
    if kernel.run("import importlib.util as u; print(u.find_spec('anywidget') is not None)") != "True":
        pytest.skip("anywidget is not installed")
    kernel.finish(kernel.start("view = mx.view(net)", "as-a-page-does"))
    assert kernel.run("print('_reply_subshell_id' in view.comm.__dict__)") == "False"


def test_without_a_subshell_requests_wait_and_are_answered(kernel, page, request):
    slow = kernel.page(with_subshell=False)
    slow.ok("hello", front_end="0.1.0", protocol=PROTOCOL, notebook="a.ipynb")
    held = request.getfixturevalue("held")
    identity = slow.start("models")
    kernel.listen(lambda: False, seconds=0.2)
    assert not slow.replies(identity)
    held.release()
    assert slow.reply(identity)["type"] == "ok" and len(slow.replies(identity)) == 1


def test_unload_says_good_bye(kernel, page):
    """%unload_ext works after a plain import, too."""
    kernel.run("%unload_ext hybrid_lab")
    assert page.closed() and kernel.page().closed()
    assert "connected to this notebook" in kernel.run("%load_ext hybrid_lab")
    assert kernel.page().ok("hello", front_end="0.1.0", protocol=PROTOCOL, notebook="")["protocol"] == PROTOCOL


def test_a_restarted_kernel_refuses_what_was_meant_for_it_before(tmp_path):
    """Jupyter's id of the kernel stays the same, and so does the name of the model."""
    kernel = Kernel(tmp_path)
    try:
        replies = []
        for start in range(2):
            kernel.run("import hybrid_lab as mx; net = mx.gluon.nn.Dense(2, in_units=2); net.initialize()")
            page = kernel.page()
            hello = page.ok("hello", front_end="0.1.0", protocol=PROTOCOL, notebook="a.ipynb")
            replies.append((hello["kernel_id"], page.ok("models")["models"][0]["id"]))
            if start == 0:
                page.ok("save", model=replies[0][1], file="", overwrite=False)
                saved = (tmp_path / "net.hlab").read_bytes()
                kernel.manager.restart_kernel(now=True)
                kernel.client.wait_for_ready(timeout=60)
        (old_kernel, old_model), (new_kernel, new_model) = replies
        assert old_kernel != new_kernel and old_model != new_model
        assert page.ask("save", model=old_model, file="", overwrite=True)["body"]["code"] == "unknown-model"
        type(page).kernel_id, own = old_kernel, type(page).kernel_id
        try:
            assert page.ask("save", model=new_model, file="", overwrite=True)["body"]["code"] == "wrong-kernel"
        finally:
            type(page).kernel_id = own
        assert (tmp_path / "net.hlab").read_bytes() == saved
        error = page.ask("save", model=new_model, file="", overwrite=False)["body"]
        assert error["code"] == "exists" and "before this one was restarted" in error["message"]
    finally:
        kernel.stop()
