"""Classes and Blocks that live in this process: block paths, real children, names resolved in memory."""

from __future__ import annotations

import linecache
import sys
import textwrap
import types

import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, lint
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.gluon import nn

ANCHORS = None


def halve(F, t):
    return t / t.shape[0]


class Head(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.fc = nn.Dense(3)

    def hybrid_forward(self, F, x):
        return halve(F, self.fc(x)) * len(x)


class Clean(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.relu(x)


class Unpacks(gluon.HybridBlock):
    def __init__(self, child, **kwargs):
        super().__init__(**kwargs)
        self.child = child

    def hybrid_forward(self, F, x):
        a, b = self.child(x)
        return a + b


class Top(gluon.Block):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.encoder = nn.HybridSequential()
        self.encoder.add(Head(), Clean())
        self.head = Head()

    def forward(self, x):
        print(x.shape)
        return self.head(self.encoder(x))


class Derived(Head):
    pass


def places(findings):
    return [(finding.code, finding.block, finding.tensor) for finding in findings]


def test_a_class():
    findings = lint.check(Head)
    assert places(findings) == [("HL101", None, "t"), ("HL124", None, "x")]
    assert all(finding.file == __file__ for finding in findings)
    assert "t.shape[0]" in linecache.getline(__file__, findings[0].line)


def test_a_class_without_the_method_is_checked_where_it_is_inherited_from():
    assert places(lint.check(Derived)) == places(lint.check(Head))


def test_a_plain_block_class_and_our_own_layers_are_left_alone():
    assert lint.check(Top) == []
    assert lint.check(nn.Dense) == []


def test_every_hybrid_block_of_a_tree_by_its_path():
    findings = lint.check(Top())
    assert {(finding.code, finding.block) for finding in findings} == {
        ("HL101", "net.encoder.0"),
        ("HL124", "net.encoder.0"),
        ("HL101", "net.head"),
        ("HL124", "net.head"),
    }
    assert "(block net.head)" in str(findings[-1])


def test_the_name_of_the_root_can_be_given():
    assert {finding.block for finding in lint.check(Head(), name="model")} == {"model"}


def test_live_children_tell_how_many_outputs_they_give():
    assert places(lint.check(Unpacks(nn.Dense(3)))) == [("HL106", "net", "self.child(x)")]
    sequence = nn.HybridSequential()
    sequence.add(nn.Dense(3), nn.Dense(4))
    assert places(lint.check(Unpacks(sequence))) == [("HL106", "net", "self.child(x)")]
    assert lint.check(Unpacks(Pair())) == []
    assert lint.check(Unpacks) == []


class Pair(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x, x


class Shared(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x * mx.nd.array([1.0]) + SCALE


SCALE = mx.nd.array([2.0])


def test_globals_are_seen_as_they_are():
    assert [finding.code for finding in lint.check(Shared)] == ["HL161", "HL164"]


class Parameters(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x


def test_a_parameter_registered_from_outside():
    block = Parameters()
    assert lint.check(block) == []
    block.late = block.params.get("late", shape=(3,))
    (finding,) = lint.check(block)
    assert (finding.code, finding.block) == ("HL165", "net")


class Hidden(gluon.HybridBlock):
    def __init__(self, layers, register=False, **kwargs):
        super().__init__(**kwargs)
        self.layers = layers
        for layer in layers if register else ():
            self.register_child(layer)

    def hybrid_forward(self, F, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_children_in_a_real_list():
    assert [finding.code for finding in lint.check(Hidden([nn.Dense(3)]))] == ["HL182"]
    assert lint.check(Hidden([nn.Dense(3)], register=True)) == []


def test_a_module(tmp_path):
    module = types.ModuleType("nets")
    file = tmp_path / "nets.py"
    net = "class Net(gluon.HybridBlock):\n    def hybrid_forward(self, F, x):\n        return x.T\n"
    file.write_text(f"from hybrid_lab import gluon\n{net}")
    module.__file__ = str(file)
    assert [(finding.code, finding.file) for finding in lint.check(module)] == [("HL105", str(file))]


def test_a_class_of_a_notebook_cell():
    """IPython compiles cells under made-up file names and keeps their text in linecache."""
    text = textwrap.dedent("""
        from hybrid_lab import gluon
        class Net(gluon.HybridBlock):
            def hybrid_forward(self, F, x):
                return scale(x) * x.ndim
        """)
    helper = "def scale(t):\n    return t * t.size\n"
    namespace = {"__name__": "__main__"}
    for number, cell in enumerate((helper, text)):
        file = f"/tmp/ipykernel_123/{number}99.py"
        linecache.cache[file] = (len(cell), None, cell.splitlines(True), file)
        exec(compile(cell, file, "exec"), namespace)
    main = sys.modules["__main__"]
    saved = getattr(main, "scale", None)
    main.scale = namespace["scale"]
    try:
        findings = lint.check(namespace["Net"]())
    finally:
        del main.scale
        if saved is not None:
            main.scale = saved
    assert [(finding.code, finding.line) for finding in findings] == [("HL102", 2), ("HL102", 5)]


def test_a_class_without_source_is_said_not_to_be_checked():
    namespace = {"gluon": gluon, "__name__": "nowhere"}
    exec("class Net(gluon.HybridBlock):\n    def hybrid_forward(self, F, x):\n        return x.shape\n", namespace)
    (finding,) = lint.check(namespace["Net"])
    assert (finding.code, finding.severity) == ("HL199", "note")


def test_classes_inside_a_function():
    shift = mx.nd.array([1.0])

    def double(t):
        return t * t.ndim

    class Base(gluon.HybridBlock):
        def helper(self, F, t):
            return F.relu(t).size

    class Local(Base):
        def __init__(self):
            super().__init__()
            self.part = Inner()

        def hybrid_forward(self, F, x):
            a, b = self.part(x)
            return double(x) + shift + self.helper(F, x)

    class Inner(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x * 2

    expected = ["HL102", "HL102", "HL106", "HL164"]
    assert [finding.code for finding in lint.check(Local)] == expected
    assert [finding.code for finding in lint.check(Local())] == expected


class Silenced(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x * x.ndim  # hl: ignore[HL102] always 2 here


def test_comments_silence_findings_of_live_classes():
    assert lint.check(Silenced()) == []


def test_a_child_of_two_parents_is_checked_once():
    head = Head()
    both = nn.HybridSequential()
    both.add(head, head)
    assert {finding.block for finding in lint.check(both)} == {"net.0"}


@pytest.mark.parametrize("thing", [3, None, object(), print])
def test_what_cannot_be_checked_is_a_typed_error(thing):
    with pytest.raises(HybridLabError, match="cannot check"):
        lint.check(thing)


def test_an_unknown_target():
    with pytest.raises(HybridLabError, match="unknown target 'tvm'"):
        lint.check("", target="tvm")


class Asking(gluon.HybridBlock):
    def __init__(self, sizes=(1, 2), child=None):
        super().__init__()
        self.sizes = sizes
        self.child = nn.Dense(1) if child is None else child

    def hybrid_forward(self, F, x):
        return self.child(x) * x.shape[0]


def test_blocks_that_look_alike_are_checked_once(monkeypatch):
    """The findings name each of them; a Block with another attribute, child or container is checked by itself."""
    from hybrid_lab.lint import runner

    checked = []
    right = runner._check_class
    monkeypatch.setattr(runner, "_check_class", lambda cls, budget: checked.append(cls.name) or right(cls, budget))
    net = nn.HybridSequential()
    net.add(*(Asking() for _ in range(5)), Asking(sizes=(1, 3)), Asking(child=Clean()), Asking(sizes=[nn.Dense(1)]))
    found = lint.check(net)
    assert sorted({item.block for item in found if item.code == "HL101"}) == [f"net.{n}" for n in range(8)]
    assert checked.count("Asking") == 4
