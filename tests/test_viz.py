"""Pictures and tables of graphs."""

import pytest

from hybrid_lab import nd, sym, viz
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.gluon import nn


@pytest.fixture
def net():
    net = nn.HybridSequential(prefix="n_")
    with net.name_scope():
        net.add(nn.Conv2D(4, 3, activation="relu"), nn.MaxPool2D(), nn.Dense(3))
    net.initialize()
    return net


def test_a_table_of_operators(net):
    rows = [line.split() for line in viz.summary(net(sym.var("data")), {"data": (2, 3, 8, 8)}).splitlines()]
    assert [row for row in rows if len(row) > 2 and "(" in row[0]] == [
        ["data(null)", "3x8x8", "0"],
        ["n_conv0_fwd(Convolution)", "4x6x6", "112", "data"],
        ["n_conv0_relu_fwd(Activation)", "4x6x6", "0", "n_conv0_fwd"],
        ["n_pool0_fwd(Pooling)", "4x3x3", "0", "n_conv0_relu_fwd"],
        ["n_dense0_fwd(FullyConnected)", "3", "111", "n_pool0_fwd"],
    ]
    assert ["Total", "params:", "223"] in rows


def test_unknown_numbers_are_not_guessed(net):
    assert "Total params: ?" in viz.summary(net(sym.var("data")))


def test_a_called_block_will_do(net, capsys):
    with pytest.raises(HybridLabError, match="was never called, so it has no graph yet"):
        viz.print_summary(net)
    net.hybridize(engine="numpy")
    net(nd.ones((1, 3, 8, 8)))
    viz.print_summary(net, {"data": (5, 3, 8, 8)})
    assert "Total params: 223" in capsys.readouterr().out


def test_a_digraph_without_weights(net):
    source = viz.plot_network(net(sym.var("data")), title="net", shape={"data": (2, 3, 8, 8)}).source
    assert 'n_conv0_fwd [label="Convolution\n3x3/1x1, 4"' in source
    assert 'n_pool0_fwd -> n_conv0_relu_fwd [label="4x6x6"' in source
    assert "weight" not in source
    assert "n_conv0_weight" in viz.plot_network(net(sym.var("data")), hide_weights=False).source


def test_a_block_s_graph_with_frames(net):
    net.hybridize(engine="numpy")
    net(nd.ones((1, 3, 8, 8)))
    source = viz.plot_graph(net).source
    assert source.count("subgraph cluster_") == 4 and 'label="0: Conv2D"' in source
    assert '[label="float32[1,4,6,6]"]' in source and "fillcolor" in source
    closed = viz.plot_graph(net, program="traced", depth=0).source
    assert "cluster" not in closed and 'shape=box3d, label="2: Dense"' in closed
    inner = viz.plot_graph(net, "0").source
    assert "Pooling" not in inner and "Convolution" in inner
    with pytest.raises(HybridLabError, match=r"no Block '7.a': '7' is not there"):
        viz.plot_graph(net, "7.a")


def test_a_graph_too_large_for_graphviz_is_closed():
    class Chain(nn.HybridSequential):
        def hybrid_forward(self, F, x):
            for _ in range(5000):
                x = F.relu(x)
            return x

    source = viz.plot_graph(Chain()).source
    assert source.count("box3d") == 34 and source.count("->") == 35
    assert viz.plot_graph(Chain(), depth=1).source.count("->") == 5001


@pytest.mark.parametrize(
    "draw",
    [
        lambda net: viz.plot_graph(net),
        lambda net: viz.plot_graph(net, program="traced"),
        lambda net: viz.plot_network(net),
        lambda net: viz.plot_network(sym.Activation(sym.var("data"), act_type="relu"), shape={"data": (1, 2)}),
        lambda net: viz.plot_network(sym.Group([sym.var("a") + 1, sym.var("b") * 2])),
        lambda net: viz.plot_network(sym.contrib.foreach(lambda a, b: (a + b, b), sym.var("d"), sym.var("s"))[0]),
    ],
)
def test_a_graph_without_graphvizs_program_is_the_labs_picture(draw, monkeypatch):
    graphviz = pytest.importorskip("graphviz")
    net = nn.Dense(2, activation="relu")
    net.initialize()
    net.hybridize(engine="numpy")
    net(nd.ones((1, 3)))
    plotted = draw(net)
    assert isinstance(plotted, (graphviz.Digraph, graphviz.Source)) and "digraph" in plotted.source
    monkeypatch.setenv("PATH", "")
    bundle = plotted._repr_mimebundle_()
    assert bundle["image/svg+xml"].startswith("<svg") and "dot` is not installed" in bundle["text/plain"]
