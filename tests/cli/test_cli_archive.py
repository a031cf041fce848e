"""`hybrid-lab inspect`, `verify`, `diff` and `convert` on archives of a small real model."""

import json

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.cli import main
from hybrid_lab.gluon import nn


class Top(gluon.Block):
    """A plain Block over two hybrid ones, one of them never called."""

    def __init__(self):
        super().__init__(prefix="top_")
        with self.name_scope():
            self.body = nn.HybridSequential(prefix="body_")
            with self.body.name_scope():
                self.body.add(nn.Dense(4, activation="relu", in_units=3), nn.Dense(2, in_units=4))
            self.spare = nn.Dense(5, in_units=2)

    def forward(self, x):
        return self.body(x)


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mx.random.seed(1)
    net = Top()
    net.initialize()
    net.hybridize(engine="numpy")
    net(nd.ones((2, 3)))
    mx.save_cached_graphs(net, "model.hlab")
    return net


def test_inspect_shows_tree_graphs_and_tensors(model, capsys):
    assert main(["inspect", "model.hlab", "--tensors"]) == 0
    out = capsys.readouterr().out
    assert "top: Top (not hybrid)" in out
    assert "  body: HybridSequential (hybrid, hybridized, 1 graph)" in out
    assert "    0: Dense (hybrid" in out
    assert "  spare: Dense (hybrid, hybridized)" in out
    assert "body.0.weight  float32[4, 3]" in out


def test_inspect_as_json(model, capsys):
    assert main(["inspect", "model.hlab", "--json"]) == 0
    parsed = json.loads(capsys.readouterr().out)
    assert parsed["manifest"]["format"] == "hlab"
    assert parsed["tree"]["blocks"][0]["class"] == "Top"


def test_a_list_of_tensors_is_no_part_of_the_json(model, capsys):
    assert main(["inspect", "model.hlab", "--json", "--tensors"]) == 2
    assert "leave out --json or --tensors" in capsys.readouterr().err


def test_verify_finds_one_flipped_byte(model, tmp_path, capsys):
    assert main(["verify", "model.hlab"]) == 0
    data = bytearray((tmp_path / "model.hlab").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "broken.hlab").write_bytes(data)
    assert main(["verify", "broken.hlab", "model.hlab"]) == 1
    out = capsys.readouterr().out
    assert "broken.hlab: damaged archive" in out
    assert "model.hlab: intact" in out


def test_a_folder_and_a_missing_file_are_told_and_the_others_verified(model, tmp_path, capsys):
    assert main(["verify", ".", "nothing.hlab", "model.hlab"]) == 2
    out = capsys.readouterr().out
    assert "'.' is a folder; give the path of a file in it: 'model.hlab'" in out
    assert "there is no file 'nothing.hlab'" in out
    assert "model.hlab: intact" in out
    assert main(["inspect", "nothing"]) == 2
    assert "there is no file 'nothing.hlab'" in capsys.readouterr().err


def test_an_error_of_the_system_is_told_without_its_number(model, tmp_path, capsys):
    assert main(["convert", "model.hlab", "nowhere/net.params"]) == 2
    assert capsys.readouterr().err == (
        "hybrid-lab convert: there is no folder 'nowhere' to write 'nowhere/net.params' into; "
        "create it, or give another path\n"
    )


def test_diff_of_equal_and_changed_weights(model, capsys):
    assert main(["diff", "model.hlab", "model.hlab"]) == 0
    assert capsys.readouterr().out == "no differences\n"
    weight = model.body[0].weight
    weight.set_data(weight.data() + 0.5)
    mx.save_cached_graphs(model, "later.hlab")
    assert main(["diff", "model.hlab", "later.hlab"]) == 1
    assert "tensor body.0.weight: differs by up to 0.5" in capsys.readouterr().out


def test_convert_to_mxnet_and_back_keeps_the_function(model, capsys):
    assert main(["convert", "model.hlab", "net-symbol.json", "--block", "body"]) == 0
    assert main(["convert", "net-symbol.json", "again.hlab"]) == 0
    x = nd.array(np.random.RandomState(0).rand(5, 3))
    np.testing.assert_allclose(gluon.load("again.hlab")(x).asnumpy(), model(x).asnumpy(), rtol=1e-6)


def test_convert_weights(model, capsys):
    from hybrid_lab.formats.mxnet import read_params

    assert main(["convert", "model.hlab", "weights.safetensors"]) == 0
    assert main(["convert", "weights.safetensors", "weights.params"]) == 0
    arrays = read_params("weights.params")
    np.testing.assert_array_equal(arrays["body.1.weight"], model.body[1].weight.data().asnumpy())


def test_top_that_is_not_hybrid_asks_for_a_block(model, capsys):
    assert main(["convert", "model.hlab", "net-symbol.json"]) == 2
    assert "name a HybridBlock below it with --block" in capsys.readouterr().err


def test_existing_target_is_kept(model, tmp_path, capsys):
    (tmp_path / "weights.params").write_bytes(b"mine")
    assert main(["convert", "model.hlab", "weights.params"]) == 2
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / "weights.params").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["inspect", "gone.hlab"], "gone.hlab"),
        (["inspect", "text.hlab"], "damaged archive"),
        (["convert", "model.h5", "model.hlab"], "the known endings are"),
        (["convert", "weights.params", "model.hlab"], "has weights alone, without a network"),
    ],
)
def test_bad_requests_are_one_plain_message(tmp_path, monkeypatch, capsys, command, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.hlab").write_text("not an archive")
    assert main(command) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error
