"""The state of every Block, with its reason; the walk over a tree."""

import gc
import weakref

import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn
from hybrid_lab.insight.states import STATES, block_state, blocks_below, hybrid_blocks, walk


class Net(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.fc = nn.Dense(3)

    def hybrid_forward(self, F, x):
        return self.fc(x)


class Bad(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return len(x)


def test_the_life_of_a_hybrid_block(tmp_path):
    net = Net()
    net.initialize()
    states = [block_state(net)]
    net.hybridize()
    states.append(block_state(net))
    net(mx.nd.ones((2, 4)))
    states += [block_state(net), block_state(net.fc)]
    net.fc(mx.nd.ones((2, 4)))
    states.append(block_state(net.fc))
    net.save(tmp_path / "a.hlab")
    net.load(tmp_path / "a.hlab", graphs="file")
    states.append(block_state(net))
    assert [state.state for state in states] == ["eager", "waiting", "active", "inlined", "active", "file"]
    assert states[0].why == "hybridize() was not called" and states[2].why == ""


def test_a_failure_names_rule_and_line():
    net = Bad()
    net.hybridize()
    with pytest.raises(mx.HybridizeError):
        net(mx.nd.ones((2, 4)))
    state = block_state(net)
    assert state.state == "failed" and "HL111" in state.why or "HL1" in state.why
    assert "test_states.py, line" in state.why
    net.hybridize()
    assert block_state(net).state == "waiting"


class Oops(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.fc = nn.Dense(3)

    def hybrid_forward(self, F, x, y=None):
        return self.fc(x) + (self.oops if y is None else y)


def test_any_exception_of_the_code_is_a_failure_until_a_call_succeeds():
    net = Oops()
    net.initialize()
    net.hybridize()
    x = mx.nd.ones((2, 4))
    for known in (False, True):  # the second time a call that has a program follows
        with pytest.raises(AttributeError, match="oops"):
            net(x)
        state = block_state(net)
        assert (state.state, state.why.partition(":")[0]) == ("failed", "AttributeError")
        assert "oops" in state.why and "test_states.py, line" in state.why and "Oops.hybrid_forward" in state.why
        assert block_state(net.fc).state == ("inlined" if known else "waiting")
        assert "cannot be hybridized" in mx.explain(net).headline
        net(x, mx.nd.ones((2, 3)))
        assert block_state(net).state == "active"
    with pytest.raises(AttributeError):
        net(x)
    net.hybridize()
    assert block_state(net).state == "waiting"


class Reading(gluon.HybridBlock):
    error = True

    def hybrid_forward(self, F, x):
        if self.error == "ordinary":
            raise ZeroDivisionError("a\nb")
        return F.relu(x) * float(x.asscalar()) if self.error else F.relu(x)


@pytest.mark.parametrize(("error", "code"), [(True, "HL1"), ("ordinary", "ZeroDivisionError: a (")])
def test_the_block_whose_code_fails_has_the_failure_and_those_around_it_name_its_path(error, code):
    net, middle, inner = nn.HybridSequential(), nn.HybridSequential(), Reading()
    middle.add(nn.Activation("relu"), inner)
    net.add(middle)
    net.hybridize()
    inner.error = error
    with pytest.raises(Exception, match="."):
        net(mx.nd.ones((1,)))
    states = {path: block_state(block, path != "") for path, block in blocks_below(net)}
    assert {path: state.state for path, state in states.items()} == {
        "": "failed", "0": "failed", "0.0": "waiting", "0.1": "failed",
    }  # fmt: skip
    assert states["0.1"].why.startswith(code) and "test_states.py, line" in states["0.1"].why
    assert states[""].why == f"its graph failed in 0.1: {states['0.1'].why}"
    assert states["0"].why == f"its graph failed in 1: {states['0.1'].why}"
    object.__setattr__(inner, "error", False)  # unnoticed: only the next call tells
    net(mx.nd.ones((1,)))
    assert [block_state(block, path != "").state for path, block in blocks_below(net)] == ["active", *["inlined"] * 3]


class Keeping(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        self.last = x
        return F.relu(x)


class Masking(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.contrib.boolean_mask(x, F.sum(x, axis=1) > 0)


class Extending(gluon.HybridBlock):
    def hybrid_forward(self, F, x, seen=None):
        if seen is not None:
            seen.append(1)
        return F.relu(x)


@pytest.mark.parametrize(
    ("kind", "code", "rest"), [(Keeping, "HL173", ()), (Masking, "HL133", ()), (Extending, "HL142", ([],))]
)
def test_a_block_whose_calls_run_eagerly_has_a_state_of_its_own(kind, code, rest):
    net = kind()
    net.hybridize()
    for _ in range(2):
        net(mx.nd.ones((2, 4)), *rest)
        state = block_state(net)
        assert (state.state, state.why.partition(":")[0], state.failed_in) == ("refused", code, "")
        assert "test_states.py, line" in state.why
        assert mx.explain(net).headline.endswith(", 1 Block without a graph")
    strict = kind()
    strict.hybridize(strict=True)
    with pytest.raises(mx.HybridizeError, match=code):
        strict(mx.nd.ones((2, 4)), *rest)
    assert block_state(strict).state == "failed"


@pytest.mark.parametrize("kind", [Keeping, Masking])
def test_blocks_around_one_that_runs_eagerly_name_its_path(kind):
    net, middle = nn.HybridSequential(), nn.HybridSequential()
    middle.add(nn.Activation("relu"), kind())
    net.add(middle)
    net.hybridize()
    net(mx.nd.ones((2, 4)))
    states = {path: block_state(block, path != "") for path, block in blocks_below(net)}
    assert {path: state.state for path, state in states.items()} == {
        "": "refused", "0": "refused", "0.0": "active", "0.1": "refused",
    }  # fmt: skip
    assert {path: state.failed_in for path, state in states.items()} == {"": "0.1", "0": "1", "0.0": "", "0.1": ""}
    assert states[""].why == f"it has no graph because of 0.1: {states['0.1'].why}"


def test_an_error_after_a_refusal_is_a_failure():
    class Both(gluon.HybridBlock):
        def hybrid_forward(self, F, x, y=None):
            return F.contrib.boolean_mask(x, F.sum(x, axis=1) > 0) if y is None else self.oops

    net = Both()
    net.hybridize()
    net(mx.nd.ones((2, 4)))
    assert block_state(net).state == "refused"
    with pytest.raises(AttributeError, match="oops"):
        net(mx.nd.ones((2, 4)), mx.nd.ones((2, 4)))
    assert block_state(net).state == "failed"


def test_a_failure_keeps_neither_the_net_around_nor_the_arrays_of_its_frames():
    net, inner = nn.HybridSequential(), Reading()
    net.add(inner)
    net.hybridize()
    x = mx.nd.ones((1,))
    with pytest.raises(mx.HybridizeError):
        net(x)
    around, array = weakref.ref(net), weakref.ref(x)
    del net, x
    gc.collect()
    assert (around(), array()) == (None, None) and block_state(inner).state == "failed"


def test_a_plain_block_says_what_it_is():
    state = block_state(nn.Sequential())
    assert state.state == "plain" and "Sequential is not a HybridBlock" in state.why


def test_walk_enters_shared_blocks_once():
    net = nn.HybridSequential()
    net.add(Net())
    net.register_child(net[0], "twin")
    rows = [(path, name, before) for path, name, _, before in walk(net)]
    assert rows == [("", net.name, None), ("0", "0", None), ("0.fc", "fc", None), ("twin", "twin", "0")]
    assert [path for path, _ in blocks_below(net)] == ["", "0", "0.fc"]
    plain = nn.Sequential()
    plain.add(nn.Dense(2), nn.Sequential())
    assert [path for path, _ in hybrid_blocks(plain)] == ["0"]


def test_a_very_deep_model_is_no_problem():
    top = nn.Sequential()
    for _ in range(3000):  # from the innermost outwards: a Block that changes walks to all its ancestors
        inner, top = top, nn.Sequential()
        top._children["0"] = inner
    assert sum(1 for _ in walk(top)) == 3001


def test_a_block_that_stands_alone_is_not_inlined():
    inner, outer = Net(), gluon.nn.HybridSequential()
    outer.add(inner)
    outer.initialize()
    outer.hybridize()
    outer(mx.nd.ones((2, 4)))
    assert block_state(inner).state == "inlined"
    alone = block_state(inner, inner=False)
    assert (alone.state, alone.why) == ("waiting", "has a graph, which its next call compiles")
    assert "inlined" not in str(mx.explain(inner)).splitlines()[1] and "inlined" in str(mx.explain(outer))


def test_the_docs_have_the_vocabulary():
    """The table of docs/lab.md is STATES, in its order."""
    from pathlib import Path

    page = (Path(__file__).resolve().parents[2] / "docs" / "lab.md").read_text(encoding="utf-8")
    rows = [f"  | *{word}* | {meaning} |" for word, meaning in STATES.values()]
    assert "\n".join(rows) in page


def test_everybody_says_the_same_word():
    """Each state in the explanation and in the static HTML of a model."""
    from hybrid_lab.insight.states import STATES, State
    from hybrid_lab.lab.messages.models import State as LabState
    from hybrid_lab.lab.views.static_html import block_html

    assert set(STATES) == set(State.__args__) == set(LabState.__args__)
    plain = nn.Sequential()
    plain.add(nn.Dense(2))
    for net, state in ((plain, "plain"), (nn.Dense(2), "eager")):
        word, meaning = STATES[state]
        assert f">{word}</span>" in block_html(net) and meaning in block_html(net)
        assert f"  {word} " in str(mx.explain(net)).splitlines()[1]
