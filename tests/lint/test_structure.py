"""Rules about classes: parameters, children, methods, inputs and outputs; and which classes count."""

from __future__ import annotations

import sys
import textwrap

import pytest

from hybrid_lab import lint

from .conftest import HEAD


def found(source: str, target: str | None = None, **options) -> list[str]:
    return [finding.code for finding in lint.check(textwrap.dedent(source), target=target, **options)]


def block(init: str = "pass", forward: str = "return x", signature: str = "self, F, x", method="hybrid_forward") -> str:
    parts = [HEAD, "class Net(gluon.HybridBlock):", "    def __init__(self, units=3):", "        super().__init__()"]
    parts += [textwrap.indent(textwrap.dedent(init).strip(), " " * 8), ""]
    parts += [f"    def {method}({signature}):", textwrap.indent(textwrap.dedent(forward), " " * 8)]
    return "\n".join(parts)


# HL165


@pytest.mark.parametrize(
    "init",
    [
        "self.weight = self.params.get('weight', shape=(3, 3))",
        "self.scale = self.params.get_constant('scale', [1.0])",
        "self.weight = gluon.Parameter('weight', shape=(3,))",
        "with self.name_scope():\n    w = self.params.get('weight')\n    self.weight = w",
    ],
)
def test_a_parameter_must_be_an_argument(init):
    assert found(block(init)) == ["HL165"]


def test_each_missing_parameter_is_named_and_added_by_the_fix():
    source = block("self.w = self.params.get('w')\nself.b = self.params.get('b')", "return x")
    findings = lint.check(source)
    assert [finding.message for finding in findings] == [
        "hybrid_forward takes no argument `w` for the parameter `self.w`.",
        "hybrid_forward takes no argument `b` for the parameter `self.b`.",
    ]
    assert all(finding.fix.safe for finding in findings)
    assert "def hybrid_forward(self, F, x, w, b):" in lint.apply_fixes(source, findings)
    assert lint.check(lint.apply_fixes(source, findings)) == []


def test_a_parameter_after_defaults_gets_one():
    source = block("self.w = self.params.get('w')", "return x", "self, F, x, mask=None")
    assert "hybrid_forward(self, F, x, mask=None, w=None)" in lint.apply_fixes(source, lint.check(source))


@pytest.mark.parametrize(
    ("init", "signature"),
    [
        ("self.weight = self.params.get('weight')", "self, F, x, weight"),
        ("self.weight = self.params.get('weight')", "self, F, x, **params"),
        ("self.weight = self.params.get('weight')", "self, F, x, *, weight"),
        ("if units:\n    self.bias = self.params.get('bias')\nelse:\n    self.bias = None", "self, F, x, bias=None"),
    ],
)
def test_parameters_that_arrive(init, signature):
    assert found(block(init, signature=signature)) == []


def test_a_parameter_of_a_base_class_counts():
    source = HEAD + textwrap.dedent("""
        class Base(gluon.HybridBlock):
            def __init__(self):
                super().__init__()
                self.weight = self.params.get("weight")

        class Net(Base):
            def __init__(self):
                super().__init__()

            def hybrid_forward(self, F, x):
                return x
        """)
    assert found(source) == ["HL165"]


def test_forward_style_needs_no_arguments_for_parameters():
    source = block("self.weight = gluon.Parameter('w')", "return x * self.weight.data()", "self, x", "forward")
    assert found(source) == []


# HL181, HL182, HL183


@pytest.mark.parametrize(
    ("init", "repaired"),
    [
        ("self.body = nn.Sequential()", "self.body = nn.HybridSequential()"),
        ("self.act = gluon.nn.Lambda('relu')", "self.act = gluon.nn.HybridLambda('relu')"),
        ("self.body = nn.HybridSequential()\nself.body.add(nn.Sequential())", "self.body.add(nn.HybridSequential())"),
    ],
)
def test_a_plain_child_has_a_hybrid_counterpart(init, repaired):
    source = block(init)
    findings = lint.check(source)
    assert [finding.code for finding in findings] == ["HL181"]
    assert repaired in lint.apply_fixes(source, findings)


def test_a_plain_block_of_the_source_is_a_plain_child():
    source = "class Part(gluon.Block):\n    def forward(self, x):\n        return x.asnumpy()\n\n\n"
    assert found(HEAD + source + block("self.part = Part()").removeprefix(HEAD)) == ["HL181"]


@pytest.mark.parametrize(
    "init",
    [
        "self.body = nn.HybridSequential()",
        "self.fc = nn.Dense(3)\nself.conv = gluon.nn.Conv2D(3, 3)\nself.loss = gluon.loss.L2Loss()",
        "self.cell = rnn.LSTMCell(3)",
        "from elsewhere import Part\nself.part = Part()",
        "self.body = nn.HybridSequential()\nfor i in range(3):\n    self.body.add(nn.Dense(3))",
    ],
)
def test_hybrid_children(init):
    assert found(block(init)) == []


@pytest.mark.parametrize(
    "init",
    [
        "self.layers = [nn.Dense(3), nn.Dense(3)]",
        "self.layers = [nn.Dense(3) for i in range(3)]",
        "self.layers = []\nfor i in range(3):\n    self.layers.append(nn.Dense(3))",
        "self.layers = {'a': nn.Dense(3)}",
        "self.layers = {}\nself.layers['a'] = nn.Dense(3)",
        "self.layers = (nn.Dense(3),)",
        "layers = [nn.Dense(3)]\nself.layers = layers",
        "self.layers = [[nn.Dense(3)], [nn.Dense(3)]]",
    ],
)
def test_children_hidden_in_a_container(init):
    assert found(block(init)) == ["HL182"]


@pytest.mark.parametrize(
    "init",
    [
        "self.layers = []\nfor i in [1, 2]:\n    d = nn.Dense(3)\n    self.register_child(d)\n    self.layers += [d]",
        "self.layers = []\nfor i in '12':\n    d = nn.Dense(3)\n    setattr(self, f'd{i}', d)\n    self.layers += [d]",
        "self.a = nn.Dense(3)\nself.b = nn.Dense(3)\nself.layers = [self.a, self.b]",
        "layers = [nn.Dense(3), nn.Dense(3)]\nself.body = nn.HybridSequential()\nself.body.add(*layers)",
        "self.sizes = [1, 2, 3]\nself.names = {'a': 'b'}",
        "self.body = nn.HybridSequential()\nfor d in [nn.Dense(3)]:\n    self.body.add(d)",
        "self.acts = [lambda x: x]",
    ],
)
def test_containers_whose_children_are_registered(init):
    assert found(block(init)) == []


def test_children_from_a_method_of_the_class():
    source = HEAD + textwrap.dedent("""
        class Net(gluon.HybridBlock):
            def __init__(self):
                super().__init__()
                self.layers = self._make(3)

            def _make(self, n):
                layers = []
                for i in range(n):
                    layers.append(nn.Dense(i))
                return layers

            def hybrid_forward(self, F, x):
                for layer in self.layers:
                    x = layer(x)
                return x
        """)
    assert found(source) == ["HL182"]


# HL184


def test_forward_beside_hybrid_forward():
    source = block() + "\n\n    def forward(self, x):\n        return x * 2\n"
    assert found(source) == []
    assert "HL184" in [finding.code for finding in lint.check(HEAD + source, target="mxnet")]


def test_forward_that_calls_the_one_it_overrides():
    assert found(block() + "\n\n    def forward(self, x):\n        return super().forward(x * 2)\n") == []


# HL191 to HL198


def test_a_constant_choice_of_outputs_is_fixed():
    assert found(block(forward="if self.units:\n    return x, x\nreturn x", init="self.units = units")) == []


@pytest.mark.parametrize(
    ("code", "signature"),
    [
        ("HL193", "self, F, x, scale=2.0"),
        ("HL193", "self, F, x, *, scale"),
        ("HL194", "self, F, x, mask=None"),
        ("HL194", "self, F, *x"),
    ],
)
def test_inputs_that_mxnet_does_not_take(code, signature):
    used = [name for name in ("scale", "mask") if name in signature]
    body = f"{used[0]}\nreturn x" if used else "return x"
    assert found(block(forward=body, signature=signature), target="mxnet") == [code]
    assert found(block(forward=body, signature=signature)) == []


def test_an_unused_input():
    assert found(block(signature="self, F, x, mask")) == ["HL197"]
    assert found(block(signature="self, F, x, _mask")) == []
    assert found(block(signature="self, F, x, mask", forward="raise NotImplementedError")) == []


def test_a_mutable_default():
    assert found(block(signature="self, F, x, sizes=[]", forward="return x * len(sizes)")) == ["HL178"]


def test_an_async_method():
    source = block().replace("    def hybrid_forward", "    async def hybrid_forward")
    assert found(source) == ["HL198"]


# Which classes are looked at

READS = "\n    def hybrid_forward(self, F, x):\n        return x.shape\n"


@pytest.mark.parametrize(
    ("imports", "base"),
    [
        ("from mxnet import gluon", "gluon.HybridBlock"),
        ("from mxnet.gluon import nn", "nn.HybridBlock"),
        ("import mxnet as mx", "mx.gluon.HybridBlock"),
        ("import mxnet as mx", "mx.gluon.nn.HybridBlock"),
        ("import mxnet", "mxnet.gluon.HybridBlock"),
        ("import hybrid_lab as mx", "mx.gluon.HybridBlock"),
        ("from mxnet.gluon import HybridBlock as HB", "HB"),
        ("from mxnet.gluon.block import HybridBlock", "HybridBlock"),
        ("from hybrid_lab.gluon import HybridBlock", "HybridBlock"),
        ("from hybrid_lab import gluon", "gluon.loss.Loss"),
        ("from mxnet.gluon.nn import *", "HybridBlock"),
        ("", "gluon.HybridBlock"),
        ("import mxnet as m\nHB = m.gluon.HybridBlock", "HB"),
        ("from mxnet.gluon import nn", "nn.HybridSequential"),
        ("try:\n    from mxnet.gluon import HybridBlock\nexcept ImportError:\n    HybridBlock = object", "HybridBlock"),
    ],
)
def test_every_way_to_name_a_hybrid_block(imports, base):
    assert found(f"{imports}\nclass Net({base}):{READS}") == ["HL101"]


@pytest.mark.parametrize(
    ("imports", "base"),
    [
        ("from mxnet import gluon", "gluon.Block"),
        ("import torch.nn as nn", "nn.Module"),
        ("", "object"),
        ("from mxnet.gluon import nn", "nn.Sequential"),
    ],
)
def test_other_classes_are_left_alone(imports, base):
    body = "\n    def forward(self, x):\n        print(x)\n        return x.shape, x.asnumpy()\n"
    assert found(f"{imports}\nclass Net({base}):{body}") == []


def test_a_base_class_of_the_same_source():
    source = "class Base(gluon.HybridBlock):\n    pass\n\nclass Middle(Base):\n    pass\n\nclass Net(Middle):" + READS
    assert found(HEAD + source) == ["HL101"]


def test_a_plain_block_between_is_plain():
    source = (
        "class Base(gluon.Block):\n    pass\n\nclass Net(Base):\n    def forward(self, x):\n        return x.shape\n"
    )
    assert found(HEAD + source) == []


def test_a_class_inside_a_function():
    source = (
        "def make(n):\n    class Net(gluon.HybridBlock):"
        + READS.replace("\n    ", "\n        ")
        + "\n    return Net()\n"
    )
    assert found(HEAD + source) == ["HL101"]


def test_an_unknown_base_with_hybrid_forward():
    assert found("from elsewhere import Base\nclass Net(Base):" + READS) == ["HL101"]
    assert (
        found("from elsewhere import Base\nclass Net(Base):\n    def forward(self, x):\n        return x.shape\n") == []
    )


def test_methods_and_helpers_are_followed():
    source = HEAD + textwrap.dedent("""
        def normalize(F, t, eps=1e-5):
            return t / t.shape[0] + eps

        class Net(gluon.HybridBlock):
            def hybrid_forward(self, F, x):
                return self._half(F, normalize(F, x))

            def _half(self, F, t):
                print(self.name)
                return t / t.size

            def never_called(self, t):
                return t.shape
        """)
    findings = lint.check(source)
    assert [(finding.code, finding.line, finding.tensor) for finding in findings] == [
        ("HL101", 9, "t"),
        ("HL102", 17, "t"),
    ]


def test_a_helper_that_gets_no_tensor_is_silent():
    source = HEAD + textwrap.dedent("""
        def area(array):
            return array.shape[0] * array.shape[1]

        class Net(gluon.HybridBlock):
            def hybrid_forward(self, F, x):
                return x * area(np.zeros((3, 4)))
        """)
    assert found(source) == []


def test_a_child_of_the_source_tells_its_outputs():
    source = HEAD + textwrap.dedent("""
        class One(gluon.HybridBlock):
            def hybrid_forward(self, F, x):
                return F.relu(x)

        class Two(gluon.HybridBlock):
            def hybrid_forward(self, F, x):
                return x, x * 2

        class Net(gluon.HybridBlock):
            def __init__(self):
                super().__init__()
                self.one = One()
                self.two = Two()

            def hybrid_forward(self, F, x):
                a, b = self.two(x)
                c, d = self.one(a)
                return b, c, d
        """)
    findings = lint.check(source)
    assert [(finding.code, finding.tensor) for finding in findings] == [("HL106", "self.one(a)")]


def test_super_hybrid_forward_is_followed():
    source = HEAD + textwrap.dedent("""
        class Base(gluon.HybridBlock):
            def hybrid_forward(self, F, x):
                return F.relu(x)

        class Net(Base):
            def hybrid_forward(self, F, x):
                return super().hybrid_forward(F, x).shape
        """)
    assert found(source) == ["HL101"]


# The 2.x style

FORWARD = "class Net(gluon.HybridBlock):\n    def forward(self, x, mask=None):\n{}"


def forward(body: str) -> list[tuple[str, str]]:
    source = HEAD + FORWARD.format(textwrap.indent(body, " " * 8))
    findings = lint.check(source)
    return [(finding.code, str(finding.severity)) for finding in findings if finding.code != "HL197"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return x.reshape((x.shape[0], -1))", [("HL101", "warning")]),
        ("return x / x.size", [("HL102", "warning")]),
        ("return x.asnumpy()", [("HL111", "error")]),
        ("if x.sum() > 0:\n    return x\nreturn -x", [("HL121", "error")]),
        ("for row in x:\n    print(row)\nreturn x", [("HL123", "warning"), ("HL171", "warning")]),
        ("a, b = x\nreturn x.T / len(x)", [("HL106", "warning"), ("HL124", "warning")]),
        ("for i in range(len(x)):\n    pass\nreturn x", [("HL126", "warning"), ("HL124", "warning")]),
        ("if autograd.is_training():\n    return x * 2\nreturn x", [("HL174", "warning")]),
        ("return mx.nd.relu(x) + mx.np.exp(x) + mx.npx.relu(x)", []),
        ("return x * mx.nd.array([1, 2])", []),
        ("if mask is not None:\n    x = x * mask\nreturn x", []),
        ("return np.exp(x)", [("HL162", "error")]),
        ("self.last = x\nreturn x", [("HL173", "error")]),
    ],
)
def test_forward_style(body, expected):
    assert forward(body) == expected


# Source that is no help


def test_a_syntax_error_is_one_finding():
    (finding,) = lint.check("class Net(gluon.HybridBlock):\n    def hybrid_forward(self, F, x)\n        return x\n")
    assert (finding.code, finding.line) == ("HL001", 2)
    assert finding.message == "expected ':'"


@pytest.mark.parametrize(
    "source",
    [
        "",
        "\n\n",
        "x = 1",
        "'''",
        "\x00",
        "def f(:",
        "\tif",
        "class A(A): pass",
        "(" * 300,
        "class A(B): pass\nclass B(A): pass",
    ],
)
def test_no_source_raises(source):
    assert all(finding.code == "HL001" for finding in lint.check(source))


def test_deep_and_recursive_code_ends():
    source = HEAD + textwrap.dedent("""
        def down(F, t, n):
            return down(F, up(F, t, n - 1), n - 1) if n else t.shape

        def up(F, t, n):
            return down(F, t, n)

        class Net(gluon.HybridBlock):
            def __init__(self):
                super().__init__()
                self.me = Net()

            def hybrid_forward(self, F, x):
                for a in range(3):
                    for b in range(3):
                        for c in range(3):
                            x = self.me(down(F, x, a)) + self.hybrid_forward(F, x)
                return x
        """)
    assert found(source) == ["HL101"]


def test_the_code_is_not_executed(tmp_path):
    marker = tmp_path / "executed"
    found(f"open({str(marker)!r}, 'w')\nclass Net(gluon.HybridBlock):\n    x = open({str(marker)!r}, 'w')\n")
    assert not marker.exists()


def test_an_expression_nested_too_deeply_is_said():
    body = " + ".join(["x"] * 3000)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)  # a library that another test uses may have set a larger one
    try:
        findings = lint.check(
            HEAD + "class Net(gluon.HybridBlock):\n    def hybrid_forward(self, F, x):\n        return " + body
        )
    finally:
        sys.setrecursionlimit(before)
    assert [finding.code for finding in findings] == ["HL002"]
