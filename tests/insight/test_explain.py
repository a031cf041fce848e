"""explain: what runs where and why, as text, HTML and data."""

import contextlib
import json

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon
from hybrid_lab.engines import Fallback, Report, registry
from hybrid_lab.gluon import nn
from hybrid_lab.insight.explain import _together
from tests.graph.building import graph_of


class Head(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.fc = nn.Dense(4)

    def hybrid_forward(self, F, x):
        return F.relu(self.fc(x))


class Bad(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x.reshape((x.shape[0], -1))


class Top(gluon.Block):
    """A plain Block over a HybridBlock, which it holds twice, and one that cannot be hybridized."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.head, self.bad = Head(), Bad()
        self.again = self.head

    def forward(self, x):
        return self.bad(self.again(self.head(x)))


def make(kind=Head):
    net = kind()
    net.initialize()
    net.hybridize(engine="numpy")
    return net


def x(rows=2):
    return mx.nd.array(np.ones((rows, 4), "float32"))


def test_what_happened_in_one_line():
    net = make()
    assert mx.explain(net).headline == f"{net.name}: 0 graphs, 0 programs, 0 fallbacks, 0 recompiles"
    assert mx.explain(net, x()).headline == f"{net.name}: 1 graph, 1 program, 0 fallbacks, 0 recompiles"


def test_lines_that_go_on_stand_further_in():
    pytest.importorskip("onnxruntime")
    net = nn.HybridSequential()
    net.add(*(nn.Conv2D(16, 3, padding=1, activation="relu") for _ in range(6)))
    net.initialize()
    net.hybridize(engine="onnxruntime")
    lines = str(mx.explain(net, mx.nd.ones((4, 3, 32, 32)))).split("\n")
    (region,) = [index for index, line in enumerate(lines) if "region 0" in line]
    assert "region 0: onnxruntime runs 12 operators as one (Convolution, " in lines[region]
    first, second = (len(line) - len(line.lstrip()) for line in lines[region : region + 2])
    assert second == first + 2, lines[region : region + 2]
    assert any("graph of a call with (tensor,): 12 operators, from the code" in line for line in lines)


def test_states_in_order_of_the_tree():
    explanation = mx.explain(make(), x())
    assert [(row.path, row.kind, row.state) for row in explanation.blocks] == [
        ("", "Head", "active"),
        ("fc", "Dense", "inlined"),
    ]
    assert explanation.blocks[0].output == "f32[2,4]"


def test_why_each_recompile():
    net = make()
    net(x(2))
    net(x(3))
    with autograd.record():
        net(x(3))
    reasons = mx.explain(net).recompiles
    assert reasons[0] == f"{net.name}: input shape (3, 4) instead of (2, 4)"
    assert "training mode" in reasons[1] and "recording" in reasons[1]
    text = str(mx.explain(net))
    assert "backward:" in text and "first call" in text
    assert "(input shape (3, 4) instead of (2, 4), called at " in text and "test_explain.py, line" in text


def test_every_recompile_is_counted():
    net = make()
    for rows in range(1, 80):
        net(x(rows))
    explanation = mx.explain(net)
    assert "78 recompiles" in explanation.headline and len(explanation.blocks[0].programs) == 64


def test_programs_of_loops_are_counted():
    class Loop(gluon.HybridBlock):
        def hybrid_forward(self, F, x, state):
            return F.contrib.foreach(lambda entry, state: (entry + state, state), x, state)[0]

    loop = Loop()
    loop.hybridize(engine="numpy")
    for width in (2, 3, 3):
        loop(mx.nd.ones((4, width)), mx.nd.ones((width,)))
    assert "loops and branches: 2 programs compiled so far" in str(mx.explain(loop))


def test_how_the_parameters_are_updated():
    net = make()
    net(x())
    trainers = [gluon.Trainer(net.collect_params(), name) for name in ("sgd", "adamax")]
    for trainer in trainers:
        with autograd.record():
            loss = net(x()).sum()
        loss.backward()
        trainer.step(2)
    updates = sorted(mx.explain(net).updates)
    assert updates == [
        "Adamax: 2 weights, 20 values, in one pass of _adamax_update, 2 blocks",
        "SGD: 2 weights, 20 values, in one pass of sgd_update, 2 blocks",
    ]
    assert f"update by {updates[0]}" in str(mx.explain(net))


def test_many_recompiles_are_not_a_flood():
    net = make()
    for rows in range(1, 31):
        net(x(rows))
    lines = str(mx.explain(net)).splitlines()
    assert len(lines) < 40 and any("17 more programs" in line for line in lines)
    last = next(index for index, line in enumerate(lines) if "17 more programs" in line) + 1
    assert lines[last].strip().startswith("prediction f32[30,4]:")


def test_a_plain_top_a_shared_child_and_a_failure():
    explanation = mx.explain(make(Top), x())
    text = str(explanation)
    assert "1 Block that cannot be hybridized" in text.splitlines()[0]
    assert "Top is not a HybridBlock: its forward runs as Python" in text
    assert "the same Block as head" in text
    assert "failed" in text and "HL101" in text
    assert "Instead:" in explanation.error and "^" in text  # the error in full, with the line


def test_without_inputs_a_failure_is_still_there():
    net = make(Bad)
    with pytest.raises(mx.HybridizeError):
        net(x())
    assert mx.explain(net).blocks[0].state == "failed" and mx.explain(net).error == ""


def test_other_errors_are_the_caller_s():
    with pytest.raises(TypeError):
        mx.explain(make(), x(), x())
    with pytest.raises(mx.diagnostics.HybridLabError, match="needs a Block"):
        mx.explain(3)


def test_the_call_is_in_prediction_mode_and_leaves_no_history():
    net = gluon.nn.HybridSequential()
    net.add(nn.Dense(4), nn.BatchNorm(), nn.Dropout(0.5))
    net.initialize()
    net.hybridize(engine="numpy")
    with autograd.record():
        mx.explain(net, x())
        assert autograd.is_recording()
    assert not net[1].running_mean.data().asnumpy().any()


class Triangle(gluon.HybridBlock):
    """A triangular matrix for each row."""

    def hybrid_forward(self, F, x):
        return F.linalg.maketrian(x)


def test_sizes_that_a_rule_needs_as_numbers_are_named():
    net = Triangle()
    net.hybridize(engine="numpy")
    rule, each = "_linalg_maketrian: its rule", "each value of it compiles anew"
    reason = f"{rule} needs the size as a number (axis 1 of input 0); {each}"
    for batch in (2, 3):
        explanation = mx.explain(net, mx.nd.zeros((batch, 6)))
        assert explanation.blocks[0].programs[-1].needs_numbers == [reason]
    assert f"sizes in 2 programs: {reason}" in " ".join(str(explanation).split())


def test_fallbacks_are_counted_each():
    pytest.importorskip("onnxruntime")
    net = nn.HybridSequential()
    for _ in range(3):
        net.add(nn.Dense(4, activation="relu"))
    net.initialize()
    net.hybridize(engine="onnxruntime")
    explanation = mx.explain(net, x())
    rows = explanation.blocks[0].programs
    assert sum(row.fallback_count for row in rows) == 6 and "6 fallbacks" in explanation.headline
    assert all(" on numpy: " in item for item in explanation.fallbacks)


def test_loaded_graphs_and_their_classes(tmp_path):
    net = make()
    net(x())
    net.save(tmp_path / "a.hlab")
    opened = mx.explain(gluon.load(tmp_path / "a.hlab"), x())
    assert [(row.kind, row.state) for row in opened.blocks] == [("Head", "file"), ("Dense", "file")]
    assert "from the file" in str(opened)
    net.load(tmp_path / "a.hlab", graphs="file")
    assert mx.explain(net).blocks[0].state == "file"


def test_guards_are_told():
    class Shaped(gluon.HybridBlock):
        def forward(self, x):
            return x.reshape((x.shape[0], -1)) if autograd.is_training() else x * x.shape[1]

    text = str(mx.explain(make(Shaped), x()))
    assert "only for the shapes (2, 4) and prediction" in text


def test_data_is_plain():
    explanation = mx.explain(make(Top), x())
    data = json.loads(json.dumps(explanation.data(), allow_nan=False))
    assert data["blocks"][1]["programs"][0]["mode"] == "prediction"
    assert set(data) == {"name", "blocks", "copies", "error", "updates", "launches", "problems"}


def test_the_engine_with_its_reason_and_the_memory():
    explanation = mx.explain(make(), x())
    (program,) = explanation.blocks[0].programs
    assert program.choice == "numpy, as hybridize(engine='numpy') asked" and program.choice in str(explanation)
    assert program.bytes_moved > 0 and program.arena_bytes >= program.ideal_bytes
    assert "FullyConnected" in explanation.plan() and "output 0" in explanation.plan()
    assert explanation.plan("fc") == ""


@pytest.fixture
def without_gpu(monkeypatch):
    monkeypatch.setattr(registry.find("triton"), "missing", lambda: "there is no GPU")


@pytest.mark.usefixtures("without_gpu")
def test_an_engine_named_by_the_environment_is_no_default(monkeypatch):
    monkeypatch.setenv("HYBRID_LAB_CPU", "numpy")
    net = nn.Dense(2)
    net.initialize()
    net.hybridize()
    assert "engine: numpy, as HYBRID_LAB_CPU=numpy asked" in str(mx.explain(net, x()))
    monkeypatch.setenv("HYBRID_LAB_CPU", "auto")
    assert "engine: numpy, the default when it was compiled" in str(mx.explain(net))


def test_an_engine_that_stayed_with_the_parent_of_a_fork(monkeypatch):
    monkeypatch.setattr(registry, "left_behind", {"torch"})
    monkeypatch.setattr(registry, "_told_of_a_fork", {"torch"})
    net = nn.Dense(2)
    net.initialize()
    net.hybridize(engine="torch")
    assert "numpy, because this process was forked from one that had loaded torch" in str(mx.explain(net, x()))


@pytest.mark.usefixtures("without_gpu")
def test_each_choice_of_an_engine_is_printed(monkeypatch):
    """Also of programs of which the report is left out, such as the first recorded one after two predictions."""
    monkeypatch.setenv("HYBRID_LAB_CPU", "auto")
    net = nn.Dense(2)
    net.initialize()
    net.hybridize()
    for rows, recorded in ((2, False), (3, False), (2, True), (4, False)):
        with mx.autograd.record() if recorded else contextlib.nullcontext():
            net(mx.nd.ones((rows, 4)))
    (block,) = mx.explain(net).blocks
    choices = [program.choice for program in block.programs]
    printed = [line.strip() for line in str(mx.explain(net)).splitlines() if "engine: " in line]
    assert choices[0] == choices[1] == choices[3] != choices[2] and choices[2].startswith("numpy: recorded, ")
    assert [line[:30] for line in printed] == [f"engine: {choices[at]}"[:30] for at in (0, 2, 3)]


def test_the_passes_with_the_graphs_before_and_after():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(2, 3), nn.BatchNorm())
    net.initialize()
    net.hybridize(engine="numpy")
    passes = mx.explain(net, mx.nd.ones((1, 3, 5, 5))).passes()
    names = [stage.name for stage in passes]
    assert names[:2] == ["infer", "bind_mode"] and "fold_norm" in names and names[-1] == "hoist"
    stage = passes["fold_norm"]
    assert "BatchNorm(" in str(stage.before) and "BatchNorm(" not in str(stage.after)
    assert "- BatchNorm" in str(passes) and len(str(passes).splitlines()) == len(passes) + 1
    assert json.loads(json.dumps(passes.data()))[0]["name"] == "infer"
    assert "<details>" in passes._repr_html_() and "<script" not in passes._repr_html_()
    with pytest.raises(KeyError, match="there is no pass 'fuze'; there are infer"):
        passes["fuze"]
    with pytest.raises(mx.diagnostics.HybridLabError, match="0 programs; call it hybridized first"):
        mx.explain(net).passes("0")


def test_fallbacks_of_one_reason_are_one_line():
    pytest.importorskip("onnxruntime")
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="relu"), nn.Dense(4))
    net.initialize()
    net.hybridize(engine="onnxruntime")
    lines = [line.strip() for line in str(mx.explain(net, x())).splitlines() if "fallback: " in line]
    assert lines == ["fallback: 2 x FullyConnected, Activation on numpy: too little work for a session of its own"]


def test_a_graph_as_a_program():
    explanation = mx.explain(make(), x())
    assert "FullyConnected" in explanation.graph() and "FullyConnected" in explanation.graph("fc")
    assert explanation.graph("nothing") == ""


def test_html_is_escaped_and_has_no_scripts():
    net = make()
    type(net).__name__ = "<script>"
    try:
        source = mx.explain(net, x())._repr_html_()
    finally:
        type(net).__name__ = "Head"
    assert "<script" not in source and "&lt;script&gt;" in source
    assert source.count("<tr>") == 3 and "<details>" in source


def test_fallbacks_stay_objects_whatever_their_words():
    first = Fallback("op x on y", "numpy", "it runs on a CPU", "net, line 3   # more", 2)
    assert _together([first, Fallback("other", "numpy", "it runs on a CPU")]) == [
        "2 x op x on y, other on numpy: it runs on a CPU"
    ]
    sort = graph_of(lambda F, x: F.sort(x), (2, 3)).operators[0]
    report = Report("numpy", refused=[(sort, "numpy", "it runs on a CPU")] * 2, choice="numpy, measured")
    assert report.fallbacks == [Fallback("sort", "numpy", "it runs on a CPU", count=2)]
    assert "fallback: " in str(report) and "choice: " in str(report)
    assert "fallback: " not in report.text(fallbacks=False) and "choice: " not in report.text(choice=False)
