"""What the banner is told: NaN of the user's own data, and what changed since the last save; nothing runs for it."""

from unittest import mock

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon
from hybrid_lab.formats.archive import Container
from hybrid_lab.gluon import access, nn
from hybrid_lab.gluon.files.saved import last_file
from hybrid_lab.lab.kernel.answers import Answers
from hybrid_lab.lab.training.current import runs
from tests.lab.conftest import inputs, make_net


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def ask(page, namespace, net):
    namespace["net"] = net
    (model,) = page.ok("models")["models"]
    return lambda: page.ok("answers", model=model["id"])


def train(net, steps=1, factor=1.0):
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for _ in range(steps):
        with autograd.record():
            loss = net(inputs() * factor).sum()
        loss.backward()
        trainer.step(4)


@pytest.fixture
def autosaved():
    """Saves a net at each step of a training until the test ends."""
    running = []

    def start(net):
        running.append(mx.lab.autosave(net, "net", every=1))
        train(net)

    yield start
    for autosave in running:
        autosave.stop()


def test_nothing_is_known_of_a_new_model(ask):
    answers = ask()
    assert answers["nan"] is None and answers["change"] is None and answers["measurable"]


@pytest.mark.parametrize("how", ["code", "panel", "autosave", "load", "open", "reload"])
def test_every_way_to_save_or_load_counts(ask, page, net, namespace, autosaved, how):
    total = len(net.collect_params())
    if how in ("load", "open", "reload"):
        net.save("net")
        train(net)
    {
        "code": lambda: net.save("net"),
        "panel": lambda: page.ok("save", model="m1", file="net", overwrite=False),
        "autosave": lambda: autosaved(net),
        "load": lambda: net.load("net"),
        "open": lambda: namespace.update(net=gluon.load("net")),
        "reload": lambda: page.ok("reload", model="m1", file="net", graphs="code"),
    }[how]()
    if how == "open":
        model = page.ok("models")["models"][-1]["id"]
        change = page.ok("answers", model=model)["change"]
    else:
        change = ask()["change"]
    assert change["how"] == ("saved" if how in ("code", "panel", "autosave") else "loaded")
    assert (change["file"], change["changed"], change["reachable"]) == ("net.hlab", 0, True)
    assert change["parameters"] == total and not change["structure"]
    if how != "open":
        train(net)
        change = ask()["change"]
        assert (change["changed"], change["uncompared"]) == (0 if how == "autosave" else compared(page), 0)


def compared(page):
    """How many tensors *Compare* lists; of `train` nearly all: the bias in front of the BatchNorm has no gradient."""
    difference = page.ok("compare", model="m1", file="net")["difference"]
    return sum(len(block["tensors"]) for block in difference["blocks"])


def test_single_changes_are_counted(ask, net):
    net.save("net")
    net.head.bias.set_data(mx.nd.ones(3))
    assert ask()["change"]["changed"] == 1
    net.body[1].running_mean.data()[:] = 2
    assert ask()["change"]["changed"] == 2
    net.head.weight.data().__dlpack__()
    assert ask()["change"]["unsure"] == 1
    net.extra = nn.Dense(2)
    change = ask()["change"]
    assert change["structure"] and change["changed"] == 4
    net.save("net")
    assert ask()["change"]["changed"] == 0


def test_written_values_that_equal_the_file_are_no_change(ask, page, net):
    """The banner counts what *Compare* lists."""
    net.save("net")
    values = net.head.weight.data().asnumpy()
    net.head.weight.set_data(mx.nd.array(values))
    net.head.bias.set_data(net.head.bias.data() + 0)
    change = ask()["change"]
    assert (change["changed"], change["uncompared"]) == (0, 0) and compared(page) == 0
    values[-1, -1] += 1
    net.head.weight.set_data(mx.nd.array(values))
    assert ask()["change"]["changed"] == 1 == compared(page)
    net.cast("float16")
    assert ask()["change"]["changed"] == 4 == compared(page)  # the BatchNorm stays float32


def test_written_values_count_as_changed_where_the_file_cannot_tell(page, net, namespace, tmp_path):
    namespace["net"] = net
    net.save("net")
    net.head.bias.set_data(net.head.bias.data() + 0)
    entry = page.session.registry.get("m1")
    while_a_cell_runs = Answers().of(entry, busy=True)["change"]
    assert (while_a_cell_runs["changed"], while_a_cell_runs["uncompared"]) == (1, 1)
    (tmp_path / "net.hlab").unlink()
    gone = Answers().of(entry, busy=False)["change"]
    assert (gone["file_now"], gone["changed"], gone["uncompared"]) == ("gone", 1, 1)


def test_a_model_of_very_many_parameters_is_not_compared(ask, net, monkeypatch):
    net.save("net")
    net.head.bias.set_data(net.head.bias.data() + 0)
    monkeypatch.setattr("hybrid_lab.lab.saving.changed_numbers._TENSORS", len(net.collect_params()) - 1)
    change = ask()["change"]
    assert (change["changed"], change["uncompared"]) == (1, 1)


def test_a_file_that_is_replaced_is_not_kept_open(page, net, namespace, tmp_path):
    """After each cell the written parameters are compared with the file, each version once."""
    namespace["net"] = net
    net.save("net")
    answers, entry = Answers(), page.session.registry.get("m1")
    net.head.bias.set_data(mx.nd.ones(3))
    assert answers.of(entry, busy=False)["change"]["changed"] == 1
    with mock.patch.object(Container, "open", side_effect=AssertionError("read again")):
        assert answers.of(entry, busy=False)["change"]["changed"] == 1
    net.save("net")
    net.head.bias.set_data(mx.nd.ones(3))
    assert answers.of(entry, busy=False)["change"]["changed"] == 0


def test_a_file_of_an_earlier_kernel_is_named_and_not_compared(ask, net):
    other = make_net()
    other.save("net")
    change = ask()["change"]
    assert (change["how"], change["file"], change["reachable"]) == ("unknown", "net.hlab", True)


def test_a_file_that_was_removed_or_replaced_is_told(ask, net, tmp_path):
    net.save("net")
    assert ask()["change"]["file_now"] == "same"
    saved = (tmp_path / "net.hlab").read_bytes()
    (tmp_path / "net.hlab").unlink()
    assert ask()["change"]["file_now"] == "gone"
    (tmp_path / "net.hlab").write_bytes(saved + b"more")
    assert ask()["change"]["file_now"] == "other"
    net.save("other")
    assert ask()["change"]["file_now"] == "same"


def test_dropped_graphs_are_no_change_of_the_structure(ask, net):
    """A class cell that runs again with other code drops graphs; the model has the Blocks and parameters it had."""
    net.save("net")
    access.structure_changed(net)
    assert not ask()["change"]["structure"]
    net.head = nn.Dense(3)
    assert ask()["change"]["structure"]


def test_a_save_of_a_part_is_no_save_of_the_model(ask, net):
    net.body.save("body")
    assert ask()["change"] is None and last_file(net.body) is not None


def test_a_model_that_is_gone_is_forgotten(net):
    import gc

    net.save("net")
    key = id(net)
    del net
    gc.collect()
    from hybrid_lab.gluon.files import saved

    assert key not in saved._last or saved._last[key][0]() is not None


def test_a_watched_nan_names_its_block_until_the_model_is_finite_again(ask, net):
    watch = mx.watch_nan(net)
    with pytest.raises(mx.NonFiniteError):
        net(inputs() * np.inf)
    nan = ask()["nan"]
    assert nan["source"] == "watched" and nan["path"] is not None
    net(inputs())
    assert ask()["nan"] is None
    watch.close()


@pytest.mark.parametrize("how", ["load", "reload", "load_parameters", "set_data", "initialize"])
def test_a_watched_nan_is_forgotten_with_the_values_that_gave_it(ask, page, net, how):
    net.save("net")
    net.save_parameters("net.params")
    for _ in range(2):
        with mx.watch_nan(net), pytest.raises(mx.NonFiniteError):
            net(inputs() * np.inf)
        assert ask()["nan"]["source"] == "watched"
        net(inputs())  # not watched: it says nothing
        assert ask()["nan"]["source"] == "watched"
        {
            "load": lambda: net.load("net"),
            "reload": lambda: page.ok("reload", model="m1", file="net", graphs="code"),
            "load_parameters": lambda: net.load_parameters("net.params"),
            "set_data": lambda: net.head.weight.set_data(net.head.weight.data() / 2),
            "initialize": lambda: net.initialize(force_reinit=True),
        }[how]()
        assert ask()["nan"] is None
    with mx.watch_nan(net), pytest.raises(mx.NonFiniteError):
        net(inputs() * np.inf)
    net.body[1].running_mean.set_data(mx.nd.ones(8))
    assert ask()["nan"]["source"] == "watched", "running statistics change in each call"


def test_a_logged_nan_is_forgotten_when_a_file_is_loaded(ask, net):
    net.save("net")
    mx.log(loss=float("nan"))
    runs.finish()
    assert ask()["nan"]["source"] == "logged"
    net.load("net")
    assert ask()["nan"] is None
    mx.log(loss=float("nan"))
    runs.finish()
    assert ask()["nan"]["source"] == "logged", "of a later training"


def test_a_model_whose_parameters_hold_nan_already_is_told_apart(ask, net):
    """A training went wrong, and its cell runs again with the ruined model: no operator makes the first NaN."""
    mx.log(loss=float("nan"))
    runs.finish()
    assert (ask()["nan"]["source"], ask()["nan"]["count"]) == ("logged", 0)
    net.head.weight.set_data(net.head.weight.data() * np.nan)
    assert (ask()["nan"]["source"], ask()["nan"]["count"]) == ("logged", 1)
    with mx.watch_nan(net), pytest.raises(mx.NonFiniteError) as raised:
        net(inputs())
    assert (raised.value.block, raised.value.parameter) == ("head", "weight")
    nan = ask()["nan"]
    assert (nan["source"], nan["path"], nan["name"], nan["count"]) == ("parameters", "head", "head.weight", 1)


def test_a_watched_part_is_named_by_its_path_in_the_model(ask, net):
    with mx.watch_nan(net.body), pytest.raises(mx.NonFiniteError):
        net.body(inputs() * np.nan)
    assert ask()["nan"]["path"].startswith("body")


def test_a_logged_nan_is_named_with_its_step(ask):
    mx.log(loss=1.0)
    mx.log(loss=float("nan"))
    runs.finish()
    nan = ask()["nan"]
    assert (nan["source"], nan["name"]) == ("logged", "loss") and nan["step"] is not None
    mx.log(loss=1.0)
    runs.finish()
    assert ask()["nan"] is None, "the latest training had none"


def test_a_logged_nan_is_told_of_the_model_that_was_trained_alone(page, namespace, net):
    other = nn.Dense(2, in_units=4)
    other.initialize()
    namespace.update(net=net, other=other)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for value in (1.0, float("nan")):
        mx.log(loss=value)
        with autograd.record():
            loss = net(inputs()).sum()
        loss.backward()
        trainer.step(4)
    runs.finish()
    models = page.ok("models")["models"]
    nan = {model["name"]: page.ok("answers", model=model["id"])["nan"] for model in models}
    assert nan["net"]["source"] == "logged" and nan["other"] is None


def test_parameters_with_nan_are_found_by_reading_what_was_written(ask, net):
    train(net, factor=np.nan)
    nan = ask()["nan"]
    assert nan["source"] == "parameters" and nan["count"] > 1 and nan["path"] is not None
    for parameter in net.collect_params().values():
        parameter.set_data(mx.nd.ones(parameter.shape))
    assert ask()["nan"] is None


def test_a_loss_function_has_no_file_and_no_log(page, namespace):
    namespace["loss"] = gluon.loss.L2Loss()
    mx.log(loss=float("nan"))
    runs.finish()
    (model,) = page.ok("models")["models"]
    answers = page.ok("answers", model=model["id"])
    assert answers["nan"] is None and answers["change"] is None


def test_stop_at_nan_holds_for_the_variable(page, namespace, net):
    from hybrid_lab.gluon.call_record import cell

    namespace["net"] = net
    (model,) = page.ok("models")["models"]
    assert page.ok("watch_nan", model=model["id"], on=True)["on"]
    cell.begin(id(namespace))
    try:
        namespace["net"] = make_net(called=False)
        with pytest.raises(mx.NonFiniteError):
            namespace["net"](inputs() * np.nan)
    finally:
        cell.end()
    new = next(each for each in page.ok("models")["models"] if each["id"] != model["id"])
    assert page.ok("answers", model=new["id"])["nan"]["source"] == "watched"
    assert page.ok("watch_nan", model=new["id"])["on"]
    assert not page.ok("watch_nan", model=new["id"], on=False)["on"]
    namespace["net"](inputs() * np.nan)
