"""What we export, and every graph in an archive, imports as a SymbolBlock in the real MXNet (where it is installed)."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import rfc_model

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.formats.archive import layout
from hybrid_lab.formats.archive.archive import Archive
from hybrid_lab.formats.mxnet import write_params
from hybrid_lab.gluon import nn

ORACLE = Path(__file__).parents[3] / ".oracle" / "bin" / "python"
pytestmark = pytest.mark.skipif(not ORACLE.exists(), reason="the real MXNet is not installed in .oracle")


def imported(folder):
    """Run the real MXNet over a folder; stem -> its outputs and gradients."""
    subprocess.run(
        [ORACLE, Path(__file__).with_name("import_in_mxnet.py"), folder],
        check=True,
        env={**os.environ, "MXNET_MKLDNN_ENABLED": "0", "MXNET_STORAGE_FALLBACK_LOG_VERBOSE": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert json.loads((folder / "problems.txt").read_text()) == {}
    return {path.name.removesuffix("-outputs.npz"): dict(np.load(path)) for path in folder.glob("*-outputs.npz")}


def test_every_graph_of_an_archive(tmp_path):
    archive = Archive(rfc_model.called_net().save(tmp_path / "rfc"))
    folder = tmp_path / "members"
    folder.mkdir()
    for member, saved in archive.graphs.items():
        stem = folder / member.removeprefix("graphs/").removesuffix(".json")
        Path(f"{stem}-symbol.json").write_bytes(archive.container.read(member))
        names = [value.node.name for value in saved.graph.inputs]
        parameters = zip(names[saved.num_data :], saved.parameters, strict=True)
        roles = {value.node.name: value.node.op.role for value in saved.graph.inputs}
        arrays = {
            f"{'aux' if roles[name] == 'aux' else 'arg'}:{name}": archive.weights[key] for name, key in parameters
        }
        write_params(f"{stem}-0000.params", arrays)
        inputs = {name: archive.examples[f"{member}:in{index}"] for index, name in enumerate(names[: saved.num_data])}
        np.savez(f"{stem}.npz", **inputs)
    for stem, outputs in imported(folder).items():
        member = f"graphs/{stem}.json"
        assert member in archive.graphs and stem != layout.ROOT
        for index in range(len(archive.graphs[member].graph.outputs)):
            expected = archive.examples[f"{member}:out{index}"]
            np.testing.assert_allclose(outputs[str(index)], expected, rtol=1e-4, atol=1e-5)


class Zoo(gluon.HybridBlock):
    """Operators whose MXNet names or attributes are not ours."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.conv = nn.Conv2D(8, 3, padding=1, groups=2, in_channels=4)
            self.norm = nn.BatchNorm(in_channels=8)
            self.pool = nn.AvgPool2D(2, ceil_mode=True)
            self.dense = nn.Dense(6, in_units=72, activation="softrelu")
            self.layer_norm = nn.LayerNorm(in_channels=6)
            self.table = self.params.get_constant("table", np.arange(6, dtype="float32").reshape(1, 6))

        self.act = nn.LeakyReLU(0.1)

    def hybrid_forward(self, F, x, table):
        y = self.norm(self.conv(x))
        y = F.relu(y) + y  # equal shapes
        y = self.pool(self.act(y))[:, 1:, :, :].slice_axis(axis=1, begin=0, end=None)
        y = F.concat(y, y[:, :1] * 2.0, dim=1)
        y = self.layer_norm(self.dense(y))
        y = F.where(y > 0.1, y**2, 1 - y) + table
        parts = F.split(y, num_outputs=3, axis=1)
        return (
            F.softmax(parts[0] / 2.0 + parts[1]),
            F.sum(y, axis=-1) + F.array(np.float32([0.5])),
            parts[2].expand_dims(1),
        )


def test_exported_blocks_give_the_same_outputs_and_gradients(tmp_path):
    mx.random.seed(2)
    net = Zoo()
    net.initialize(mx.init.Xavier())
    net.hybridize(engine="numpy")
    x = mx.nd.array(np.random.RandomState(4).uniform(-1, 1, (2, 4, 6, 6)))
    with mx.autograd.record():
        net(x)[0].sum().backward()
    expected = [y.asnumpy() for y in net(x)]
    files = net.export(str(tmp_path / "zoo"))
    assert [Path(file).name for file in files] == ["zoo-symbol.json", "zoo-0000.params"]
    np.savez(tmp_path / "zoo.npz", data=x.asnumpy())
    theirs = imported(tmp_path)["zoo"]
    for index, output in enumerate(expected):
        np.testing.assert_allclose(theirs[str(index)], output, rtol=1e-4, atol=1e-5)
    with mx.autograd.record(train_mode=False):
        loss = sum((y * y).sum() for y in net(x))
    loss.backward()
    for name, parameter in net.collect_params().items():
        if parameter.grad_req != "null":
            ours = parameter.grad().asnumpy()
            np.testing.assert_allclose(theirs[f"grad:{name}"], ours, rtol=1e-3, atol=1e-4 * max(1, np.abs(ours).max()))
    block = gluon.SymbolBlock.imports(files[0], "data", files[1])
    for ours, output in zip(block(x), expected, strict=True):
        np.testing.assert_allclose(ours.asnumpy(), output, rtol=1e-5, atol=1e-6)
