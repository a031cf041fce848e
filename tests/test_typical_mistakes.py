"""What people new to the package get wrong: each is an error in their terms that says what to do instead."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
from operator import attrgetter

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics import ArchiveError, DTypeError, HybridLabError, SettingError, ShapeError, UnknownNameError
from hybrid_lab.gluon import nn, rnn
from hybrid_lab.graph import dump


@pytest.fixture
def net():
    net = nn.HybridSequential()
    net.add(nn.Dense(3))
    net.initialize()
    return net


# -- what was taken in silence -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nofile.py", "none.ipynb", "models/net.py"])
def test_the_name_of_a_file_that_is_not_there_is_not_checked_as_source(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HybridLabError, match=f"there is no file '{name}'"):
        mx.lint.check(name)
    (tmp_path / "models").mkdir()
    (tmp_path / name).write_text("{}" if name.endswith("b") else "x = 1")
    assert mx.lint.check(name) == []
    assert mx.lint.check(name + "\n") == []


@pytest.mark.parametrize("make", [nn.HybridSequential, nn.Sequential, gluon.Block])
def test_an_engine_is_no_switch(make):
    with pytest.raises(SettingError, match=r"hybridize\(engine='numpy'\)"):
        make().hybridize("numpy")
    with pytest.raises(SettingError, match="device="):
        make().hybridize(mx.cpu())
    for active in (True, False, 1, 0, None):
        make().hybridize(active)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sgd", {"learning_rate": "x"}, "SGD: learning_rate must be a number, not 'x'"),
        ("sgd", {"momentum": "0.9"}, "SGD: momentum must be a number, not '0.9'"),
        ("adam", {"beta1": "x"}, "Adam: beta1 must be a number"),
        ("adam", {"wd": [0.1]}, "Adam: wd must be a number"),
        ("sgd", {"clip_gradient": "x"}, "SGD: clip_gradient must be a number"),
        ("sgd", {"learning_rate": mx.lr_scheduler.FactorScheduler(10)}, "give a schedule as lr_scheduler="),
        ("sgd", {"lr_scheduler": "cosine"}, "SGD: lr_scheduler must be a scheduler"),
    ],
)
def test_a_setting_of_an_optimizer_is_a_number(net, name, options, message):
    with pytest.raises(SettingError, match=message):
        gluon.Trainer(net.collect_params(), name, options)


def test_a_learning_rate_that_is_set_is_a_number(net):
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": nd.ones((1,)).asnumpy()[0]})
    assert trainer.learning_rate == 1
    with pytest.raises(SettingError, match="learning_rate must be a number, not 'x'"):
        trainer.set_learning_rate("x")


def test_a_pass_that_is_not_there_is_said_once(monkeypatch, capsys):
    said = []
    monkeypatch.setattr(logging.getLogger("hybrid_lab"), "warning", said.append)
    monkeypatch.setenv("HYBRID_LAB_DUMP", "simplfy, plan")
    dump._wanted.cache_clear()
    assert [dump.dump("plan", "a plan"), dump.dump("split", "parts")] == ["a plan", "parts"]
    assert "after plan" in capsys.readouterr().err
    wanted = "no pass 'simplfy'; did you mean simplify? There are neutral, mixed_precision, infer"
    assert len(said) == 1 and wanted in said[0]


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nd.sofmax", "nd has no 'sofmax'; did you mean softmax"),
        ("nd.contrib.foreech", "nd.contrib has no 'foreech'; did you mean foreach"),
        ("nd.random.unifrom", "nd.random has no 'unifrom'; did you mean uniform"),
        ("sym.sofmax", "sym has no 'sofmax'; did you mean softmax"),
        ("sym.linalg.gemm3", "sym.linalg has no 'gemm3'; did you mean gemm"),
        ("gluon.nn.Conv2d", r"gluon.nn has no 'Conv2d'; did you mean Conv2D\?$"),
        ("gluon.Hybridblock", r"gluon has no 'Hybridblock'; did you mean HybridBlock\?$"),
        ("gluon.rnn.Lstm", r"gluon.rnn has no 'Lstm'; did you mean LSTM\?$"),
        ("gluon.loss.SoftmaxCELos", "did you mean SoftmaxCELoss"),
        ("metric.Acuracy", "metric has no 'Acuracy'; did you mean Accuracy"),
        ("init.Xaver", "init has no 'Xaver'; did you mean Xavier"),
        ("glon", "mx has no 'glon'; did you mean gluon"),
        ("rtc", "mx has no 'rtc'; only MXNet has it, see Limits in the README; use autograd.Function"),
        ("profiler.dmps", "profiler has no 'dmps'; did you mean dumps"),
        ("rnn.LSTMCel", "rnn has no 'LSTMCel'; did you mean LSTMCell"),
        ("gluon.data.vision.MNISt", "gluon.data.vision has no 'MNISt'; did you mean MNIST"),
        ("gluon.data.vision.transforms.RandomResizeCrop", "did you mean RandomResizedCrop"),
    ],
)
def test_an_unknown_name_says_which_is_near(name, message):
    with pytest.raises(UnknownNameError, match=message) as caught:
        attrgetter(name)(mx)
    assert isinstance(caught.value, AttributeError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_names_can_be_asked_for():
    for where in (mx, nd, nd.contrib, nd.random, mx.sym, mx.sym.contrib, gluon, nn, gluon.data.vision, mx.metric):
        assert not hasattr(where, "nosuchthing") and getattr(where, "__nosuchthing__", 3) == 3
    with pytest.raises(ImportError):
        from hybrid_lab.gluon.nn import Conv2d  # type: ignore[attr-defined]  # noqa: F401


@pytest.mark.parametrize("name", ["sofmax", "waitall"])
def test_an_unknown_operator_in_a_trace_is_told_with_line_and_block(name):
    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            getattr(F, name)
            return F.sofmax(x)

    net = Net(prefix="net_")
    with pytest.raises(UnknownNameError, match="nd has no 'sofmax'"):
        net(nd.ones((2,)))
    net.hybridize()
    with pytest.raises(UnknownNameError, match=f"F has no '{name}'") as caught:
        net(nd.ones((2,)))
    first, second, third, *_ = str(caught.value).splitlines()
    assert ("did you mean softmax" if name == "sofmax" else "nd.waitall is eager only") in first
    assert __file__ in second and "in Net.hybrid_forward (block net" in second
    assert "getattr(F, name)" in third


def test_asking_for_a_name_that_is_not_there_loads_no_room():
    code = "import sys, hybrid_lab as mx; hasattr(mx, 'rtc'); assert 'numpy' not in sys.modules, sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# -- inputs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("given", [np.ones((2, 4)), np.float32(3)])
def test_a_numpy_array_is_no_input(net, active, given):
    net.hybridize(active)
    with pytest.raises(DTypeError, match=rf"holds a numpy.{type(given).__name__}; convert it with mx.nd.array\(x\)"):
        net(given)
    with pytest.raises(HybridLabError, match="holds a object; a HybridBlock takes NDArrays, numbers"):
        net(object())


@pytest.mark.parametrize("flag", ["static_alloc", "static_shape", "strict", "tf32"])
def test_a_switch_of_hybridize_is_on_or_off(net, flag):
    with pytest.raises(SettingError, match=f"True or False for {flag}, not 'no'"):
        net.hybridize(**{flag: "no"})
    net.hybridize(**{flag: np.bool_(False)})


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("layout", ["TNC", "NTC"])
@pytest.mark.parametrize("size", [0, 3])
@pytest.mark.parametrize("inside", [False, True])
def test_recurrent_layers_say_which_axes_they_need(active, layout, size, inside):
    net = rnn.LSTM(4, layout=layout, input_size=size)
    if inside:
        outer = nn.HybridSequential()
        outer.add(net)
        net = outer
    net.initialize()
    net.hybridize(active)
    axes = r"\(time, batch, channels\)" if layout == "TNC" else r"\(batch, time, channels\)"
    if inside and active:  # in a trace arrays have no shape: the operator says it, of its own input
        axes = r"\(steps, batch, features\)"
    with pytest.raises(ShapeError, match=axes):
        net(nd.ones((2, 3)))


# -- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["x", 3, None])
def test_what_takes_a_block_says_so(wrong, tmp_path):
    x = nd.ones((2, 3))
    with pytest.raises(HybridLabError, match=f"profile needs a Block, not {type(wrong).__name__}"):
        mx.profile(wrong, x)
    with pytest.raises(HybridLabError, match=f"save_cached_graphs needs a Block, not {type(wrong).__name__}"):
        mx.save_cached_graphs(wrong)
    with pytest.raises(HybridLabError, match=f"load_cached_graphs needs a Block, not {type(wrong).__name__}"):
        mx.load_cached_graphs(wrong, tmp_path / "x.hlab")


def test_a_wrong_dtype_lists_the_dtypes(net):
    message = "'flaot32' is not a dtype; use one of float32, float64, float16"
    for wrong in (lambda: nd.ones((2,), dtype="flaot32"), lambda: nd.ones((2,)).astype("flaot32")):
        with pytest.raises(DTypeError, match=message):
            wrong()
    with pytest.raises(HybridLabError, match=message):
        mx.sym.cast(mx.sym.var("x"), dtype="flaot32")


# -- files -----------------------------------------------------------------------------------------------------------

_READERS = {
    "net.hlab": r"as .hlab archives are; gluon.load\(file\) or mx.load_cached_graphs",
    "net.params": r"a .params file; net.load_parameters\(file\)",
    "net.states": r"a file of Trainer states; trainer.load_states\(file\)",
    "net-symbol.json": "a -symbol.json file, the graph of a network; gluon.SymbolBlock.imports",
}


@pytest.mark.parametrize("name", _READERS)
def test_a_file_of_another_kind_is_named_with_what_reads_it(net, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net.hybridize(engine="numpy")
    net(nd.ones((2, 4)))
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    mx.save_cached_graphs(net, "net.hlab")
    net.save_parameters("net.params")
    trainer.save_states("net.states")
    net.export("net")
    inspected = [sys.executable, "-m", "hybrid_lab", "inspect", name]
    read = {
        "net.hlab": [lambda: gluon.load(name), lambda: mx.load_cached_graphs(net, name)],
        "net.params": [lambda: net.load_parameters(name), lambda: nd.load(name)],
        "net.states": [lambda: trainer.load_states(name)],
        "net-symbol.json": [lambda: gluon.SymbolBlock.imports(name, ["data"]), lambda: mx.sym.load(name)],
    }
    for kind, calls in read.items():
        for call in calls:
            if kind == name:
                call()
            else:
                with pytest.raises(ArchiveError, match=f"^not a .* but .*{_READERS[name]}.*{name}"):
                    call()
    if name in ("net.params", "net.states"):  # inspect reads the first by its ending
        told = subprocess.run(inspected, capture_output=True, text=True)
        assert (told.returncode == 0) is (name == "net.params")
        assert ("not a .hlab archive but a file of Trainer states" in told.stderr) is (name == "net.states")


def test_a_damaged_file_is_still_called_damaged(net, tmp_path):
    file = tmp_path / "net.hlab"
    net(nd.ones((2, 4)))
    mx.save_cached_graphs(net, file)
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(ArchiveError, match="damaged archive: its end record is missing"):
        gluon.load(file)
