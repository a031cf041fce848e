"""What people new to the package get wrong: each is an error in their terms that says what to do instead."""

from __future__ import annotations

import logging

import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics import HybridLabError, SettingError
from hybrid_lab.gluon import nn
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
    assert len(said) == 1 and "no pass 'simplfy'; did you mean simplify? There are neutral, infer" in said[0]
