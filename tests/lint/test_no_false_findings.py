"""Code of real networks that runs as a graph: it looks like what a rule objects to, and has no finding."""

from __future__ import annotations

import textwrap

import pytest

from hybrid_lab import lint

from .conftest import HEAD, net

CLEAN = [
    # The number of outputs may be given by position, to the method too.
    "a, b = x.split(2, 1)\nreturn a * b",
    "a, b = F.split(x, 2, 1)\nreturn a * b",
    # An attribute that is made where it is missing is made once in both modes.
    "if self.limit is None:\n    self.limit = -1\nreturn F.clip(x, self.limit, 1)",
    "if not hasattr(self, 'limit'):\n    self.limit = self.units * 2\nreturn F.clip(x, 0, self.limit)",
    "if not isinstance(self.make, gluon.Block):\n    self.make = self.make()\n    self.make.initialize()\nreturn x",
    # Both sorts of tensors are asked for.
    "if isinstance(x, (nd.NDArray, sym.Symbol)):\n    return x\nreturn x * 2",
    # What is an array of another library is no tensor of the graph.
    "if isinstance(x, np.ndarray):\n    return x.tolist()\nreturn x",
    "return x * 2 if not isinstance(x, (np.ndarray, np.generic)) else x.item()",
    # A method that only raises is defined by a subclass.
    "return x, self.abstract(F, x)",
]


@pytest.mark.parametrize("body", CLEAN)
@pytest.mark.parametrize("target", [None, "mxnet"])
def test_code_that_runs_as_a_graph(body, target, codes):
    init = "self.limit = None\nself.make = some_library.make"
    source = net(body, "hybrid_forward(self, F, x)", init)
    source += "\n    def abstract(self, F, x):\n        raise NotImplementedError(self.prefix)\n"
    assert lint.check(source, target=target) == []


def test_a_state_that_changes_with_the_first_call_is_found(codes):
    init = "self.first = True\nself.scale = None"
    assert codes("if self.first:\n    self.first = False\n    x = x * 2\nreturn x", init=init) == ["HL173"]
    assert codes("if self.scale is None:\n    self.scale = 1\n    x = x * 2\nreturn x", init=init) == ["HL173"]


@pytest.mark.parametrize(
    ("body", "severity"),
    [
        ("self.start = 0\nreturn x", "note"),
        ("self.seen = []\nreturn x", "note"),
        ("y = [x]\nself.count = len(y)\nreturn x", "note"),
        ("self.units += 1\nreturn x", "warning"),
        ("self.ratio = self.units / 2\nreturn x", "warning"),
        ("self.seen = [x]\nreturn x", "error"),
    ],
)
def test_how_bad_a_value_kept_on_self_is(body, severity):
    (finding,) = lint.check(net(body, "hybrid_forward(self, F, x)"))
    assert (finding.code, finding.severity) == ("HL173", severity)


def test_what_a_method_stores_on_self_is_known_where_it_is_read(codes):
    body = "self.a, self.b = self.fc(x), y  # hl: ignore[HL173]\nreturn self.a, self.b"
    assert codes(body, init="self.a = self.b = None", target="mxnet") == []
    assert codes("self.a = x  # hl: ignore[HL173]\nreturn self.a.shape", init="self.a = None") == ["HL101"]


def test_an_array_that_is_copied_into_an_array_is_one_finding(codes):
    assert codes("return x * nd.array(self.w, ctx=mx.cpu())", init="self.w = nd.ones((3,))") == ["HL161"]


METHODS = """
def three(F, a, b, c):
    return F.relu(a) + F.relu(b) + F.relu(c)

def many(F, *arrays):
    return F.concat(*arrays)

class Net(gluon.HybridBlock):
    def hybrid_forward({signature}):
        {body}
"""


@pytest.mark.parametrize(
    ("signature", "body", "expected"),
    [
        ("self, F, *xs", "a, b = xs; return F.concat(a, b)", []),
        ("self, F, *xs", "a, b = tuple(xs); return F.concat(a, b)", []),
        ("self, F, *xs", "return three(F, *xs)", []),
        ("self, F, x, *args, **kwargs", "return F.relu(x)", []),
        ("self, F, *xs", "return many(F, *xs)", ["HL194"]),
        ("self, F, *xs", "a, *rest = xs; return a", ["HL194"]),
        ("self, F, x, *args", "return args[0] if args else x", ["HL194"]),
        ("self, F, x, mask=None", "return x if mask is None else x * mask", ["HL194", "HL151"]),
    ],
)
def test_inputs_that_may_be_missing_for_mxnet(signature, body, expected):
    source = HEAD + METHODS.format(signature=signature, body=body)
    assert [finding.code for finding in lint.check(source, target="mxnet")] == expected
    assert lint.check(source) == []


def test_star_arguments_reach_every_argument_of_a_function():
    source = HEAD + METHODS.format(signature="self, F, *xs", body="return three(F, *xs)")
    source = source.replace("F.relu(c)", "c.asnumpy()")
    (finding,) = lint.check(source)
    assert finding.code == "HL111"


def test_an_input_that_a_loop_indexes_is_a_list(codes):
    loop = "out = x\nfor i, layer in enumerate(self.table):\n    out = F.concat(out, y[i])\nreturn F.concat(out, y[0])"
    assert codes(loop, target="mxnet") == []
    assert codes(loop.replace("y[0]", "y"), target="mxnet") == ["HL132"]


def test_an_output_of_a_tensor_that_nobody_knows_may_depend_on_the_input():
    source = net("return F.relu(self.unknown)", "hybrid_forward(self, F, _x)")
    assert lint.check(source) == []
    source = net("return F.relu(F.ones((3,)))", "hybrid_forward(self, F, _x)")
    assert [finding.code for finding in lint.check(textwrap.dedent(source))] == ["HL196"]


def test_an_input_that_the_class_documents_as_a_list():
    text = """
        Inputs:
            - **pair**: {} of tensors, each of shape `(N, C)`.
        """
    body = HEAD + METHODS.format(signature="self, F, pair", body="a, b = pair; return F.concat(a, b)")
    body = body.replace("gluon.HybridBlock):\n", f'gluon.HybridBlock):\n    """A net.\n{text}"""\n')
    assert lint.check(body.format("a list")) == []
    assert [finding.code for finding in lint.check(body.format("a row"))] == ["HL106"]
