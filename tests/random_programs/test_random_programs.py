"""Random programs give the same eagerly and on every engine; one that does not is printed at its smallest.

HYBRID_LAB_PROGRAMS=10000 (make test-programs) checks the first 10,000; the default is a small share.
"""

from __future__ import annotations

import ast
import re
from collections import Counter

import numpy as np
import pytest

from hybrid_lab import autograd, nd
from tests import quick
from tests.random_programs.__main__ import check, engine_of, script, smallest
from tests.random_programs.classes import HEADER
from tests.random_programs.compare import Verdict, has_dead_code
from tests.random_programs.rounding import other_rounding
from tests.random_programs.run import run_text
from tests.random_programs.session import write_program
from tests.random_programs.shrink import shrink

COUNT, CHUNK = quick.count("HYBRID_LAB_PROGRAMS", 100, 300), 25

_counts: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def hand_counts_over(totals):
    """They are printed at the end of the run."""
    yield
    totals.update({f"{what} of random programs": count for what, count in _counts.items()})


def complain(seed: int, engine: str, text: str, verdict: Verdict) -> str:
    """What differs, how to see it again, and the smallest script that shows it."""
    again = f"python -m tests.random_programs {seed} {engine}"
    return f"seed {seed}, {engine}: {verdict}. Again: {again}\n{script(smallest(text, engine), engine)}"


@pytest.mark.parametrize("first", range(0, COUNT, CHUNK))
def test_programs_give_the_same_on_every_engine(first, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in range(first, min(first + CHUNK, COUNT)):
        engine, text = engine_of(seed), write_program(seed)
        if engine in ("triton", "torch", "onnxruntime"):
            pytest.importorskip("torch" if engine == "triton" else engine)
        try:
            verdict = check(seed, engine, text)
        except Exception as error:
            error.add_note(f"seed {seed}, {engine}:\n{text}")
            raise
        _counts["runs"] += 1
        _counts["observations"] += verdict.observations
        _counts.update({f"observations {reason}": count for reason, count in verdict.explained.items()})
        _counts[f"runs refused: {verdict.refused}"] += verdict.refused is not None
        if verdict.differences:
            pytest.fail(complain(seed, engine, text, verdict))


def test_a_program_runs_by_itself_and_is_the_same_for_the_same_seed():
    text = write_program(3)
    assert text == write_program(3) != write_program(4)
    assert run_text(text).seen[0].label.startswith("0 start: ")
    compile(script(text, "numpy"), "script", "exec")


#: What programs have: a name for it and a pattern of its text.
FEATURES = {
    "1.x": r"hybrid_forward\(",
    "a plain Block": r"\(Block\):",
    "shared parameters": r"\.params\)",
    "a loop": r"foreach\(|while_loop\(",
    "a branch": r"\.cond\(",
    "a Block in a loop": r"(foreach|while_loop|cond)\(.*self\.c\d+\(",
    "a parameter in a loop": r"(foreach|while_loop|cond)\(.*\b(self\.)?w\d",
    "BatchNorm": r"nn\.BatchNorm\(",
    "Dropout": r"Dropout\(",
    "Dropout in a loop": r"(foreach|while_loop|cond)\(.*\.Dropout\(",
    "infinities in a loop": r"(foreach|while_loop|cond)\(.*(\.log\(|\.sqrt\([abs]\)|/ \w+\.relu|/ \(a - a\))",
    "special inputs": r"'special'",
    "create_graph": r"create_graph",
    "rank 0": r"run\.array\(\d+, \(\)",
    "an empty batch": r"run\.array\(\d+, \(0, ",
    "a large array": r"run\.array\(\d+, \((\d{3}|\d+, (48|1500|12, 16))\b",
    "whole numbers": r"'u?int(8|32|64)'",
    "masks": r"'bool'",
    "other floating inputs": r"run\.array\(.*'float(16|64)'",
    "a cast": r"net\.cast\(",
    "a Function": r"\(autograd\.Function\)",
    "hooks": r"register_forward_(pre_)?hook",
    "a constant": r"get_constant\(",
    "an export": r"run\.exported\(",
    "an archive": r"run\.reopened\(|net\.save\(",
    "graphs of a file": r"run\.pinned\(",
    "safetensors": r"\.safetensors'",
    "states of a trainer": r"save_states\(",
    "training": r"trainer\.step\(",
    "a fork": r"run\.forked\(",
    "two nets": r"\bother = ",
    "a data loader": r"DataLoader\(",
    "Ctrl-C": r"run\.interrupt",
    "threads": r"run\.threads\(",
    "a hybridized child": r"run\.hybridize\(net\.c",
    "a forward around hybrid_forward": r"super\(\)\.forward\(",
    "a __call__ of its own": r"super\(\)\.__call__\(",
    "dtype=None": r"dtype=None",
}

#: What comes together in one program.
_PAIRS = {
    "a loop": "create_graph, a cast, an archive, an export, graphs of a file, a fork, threads, training, hooks",
    "a branch": "create_graph, a cast, an archive, training",
    "a Block in a loop": "create_graph, a cast, an archive, training, BatchNorm, Dropout, 1.x, a plain Block",
    "a parameter in a loop": "a constant, training",
    "a cast": "training, create_graph, BatchNorm, an archive, whole numbers, hooks, a constant",
    "an empty batch": "training, create_graph, BatchNorm, a loop",
    "a large array": "training, create_graph, a loop",
    "rank 0": "create_graph, a loop, training",
    "a Function": "a loop, a plain Block, training",
    "whole numbers": "a loop, create_graph, training, an archive, masks",
    "special inputs": "a loop, training",
    "an export": "BatchNorm, training, Dropout",
    "two nets": "create_graph, training",
    "a forward around hybrid_forward": "a loop, create_graph, an archive, an export, training, a cast, hooks",
    "a __call__ of its own": "a loop, create_graph, an archive, training, a cast, hooks, a plain Block, threads",
}
PAIRS = [(one, other) for one, others in _PAIRS.items() for other in others.split(", ")]


@pytest.fixture(scope="module")
def have():
    """Which features each of the first programs has."""
    texts = [write_program(seed) for seed in range(500)]
    assert sum(map(has_dead_code, texts)) > 10
    return [{name for name, pattern in FEATURES.items() if re.search(pattern, text)} for text in texts]


@pytest.mark.long
def test_programs_have_every_feature(have):
    counts = Counter(name for features in have for name in features)
    assert {name: counts[name] for name in FEATURES if counts[name] < 3} == {}


@pytest.mark.long
def test_programs_have_features_together(have):
    assert [pair for pair in PAIRS if not any(features.issuperset(pair) for features in have)] == []


TWO_WRONG = """
def program(run):
    x = run.array(1, (2, 3))
    y = x * 2
    with run.step('first'):
        z = x + 1
        run.see('y', y * x if run.engine is None else y * x + 1)
    run.see('z', z)
"""


def test_a_difference_is_noticed_and_shrinks_to_what_makes_it():
    verdict = check(0, "numpy", TWO_WRONG)
    assert [line.partition(" by ")[0] for line in verdict.differences] == ["0 first: y: differs"]
    small = shrink(TWO_WRONG, lambda text: bool(_differs(text)), 200)
    assert "z" not in {node.id for node in ast.walk(ast.parse(small)) if isinstance(node, ast.Name)}


def _differs(text: str) -> bool:
    try:
        return bool(check(0, "numpy", text).differences)
    except Exception:
        return False


OPENED = """
def program(run):
    net = nn.Dense(2, in_units=3)
    run.initialize(net)
    x = run.array(1, (2, 3))
    with run.step('0 opened'):
        y = net(x)
        net = run.replaced(net, lambda: run.reopened(net))
    with run.step('1 trained'):
        with autograd.record():
            run.see('y', net(x, x) if run.engine else net(x))
"""


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (OPENED, "no graph for this call in an archive opened without its code"),
        (OPENED.replace("run.replaced(net, lambda: run.reopened(net))", "net"), None),
    ],
)
def test_an_opened_archive_may_have_no_graph_for_a_call(text, refused):
    verdict = check(0, "numpy", HEADER + text)
    assert verdict.refused == refused
    assert bool(verdict.differences) == (refused is None)


def test_an_input_without_elements_may_be_two_errors():
    text = """
class Net(HybridBlock):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm()

    def hybrid_forward(self, F, x):
        return F.topk(self.norm(x), axis=1, k=1)

def program(run):
    net = Net()
    run.initialize(net)
    run.hybridize(net)
    with run.step('0 empty'):
        net(run.array(1, (2, 0)))
"""
    verdict = check(0, "numpy", HEADER + text)
    assert not verdict.differences and verdict.explained == {"another of several errors": 1}
    shape_error = "if run.engine:\n            raise mx.diagnostics.ShapeError('0')\n        net(run"
    other = text.replace("net(run", shape_error)
    assert check(0, "numpy", HEADER + other).differences


def test_an_empty_input_may_hide_an_error_of_the_code():
    text = """
class Net(HybridBlock):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm()

    def hybrid_forward(self, F, x):
        return self.norm(x) + F.cast(x, 'float16')

def program(run):
    net = Net()
    run.initialize(net)
    run.hybridize(net)
    with run.step('0 empty'):
        net(run.array(1, (2, 0)))
    with run.step('1 the code'):
        net(run.array(1, (2, 3)))
"""
    verdict = check(0, "numpy", HEADER + text)
    assert not verdict.differences and verdict.explained["another of several errors"] == 1
    assert check(0, "numpy", HEADER + text.partition("    with run.step('1")[0]).differences


def test_an_empty_input_may_hide_another_error():
    text = """
def program(run):
    x = run.array(1, (0, 3))
    with run.step('0 a call'):
        if run.engine and x.shape[0] == 0:
            raise mx.diagnostics.ShapeError('no element of (0, 3)')
        raise mx.diagnostics.DTypeError('float16 and float32')
"""
    verdict = check(0, "numpy", HEADER + text)
    assert not verdict.differences and verdict.explained == {"another of several errors": 1}
    assert check(0, "numpy", HEADER + text.replace(" and x.shape[0] == 0", "")).differences


def test_a_loop_without_a_step_is_in_the_history():
    text = """
class Net(HybridBlock):
    def hybrid_forward(self, F, x):
        return F.contrib.foreach(lambda a, s: (a * 2, s), x, F.zeros((1,)))[0]

def program(run):
    net = Net()
    run.hybridize(net)
    x = run.array(1, (0, 3))
    x.attach_grad()
    with run.step('0 backward'):
        with autograd.record():
            y = net(x)
        y.backward()
        run.see_grads(x=x)
"""
    verdict = check(0, "numpy", HEADER + text)
    assert not verdict.differences and not verdict.explained
    asked = text.replace("y = net(x)", "y = [net(x), x * 1]").replace(
        "y.backward()", "run.see('g', autograd.grad(y, [x]))"
    )
    asked = asked.replace("        run.see_grads(x=x)\n", "")
    verdict = check(0, "numpy", HEADER + asked)
    assert not verdict.differences and not verdict.explained
    never = text.replace("a * 2, s), x", "a * 2, s), x if run_is_hybrid else x.detach()")
    never = never.replace(
        "def program(run):", "def program(run):\n    global run_is_hybrid\n    run_is_hybrid = run.engine"
    )
    assert check(0, "numpy", HEADER + never.replace("(0, 3)", "(2, 3)")).differences


RAISES = """
class Net(HybridBlock):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Dense(2), nn.Dense(2, in_units=2)

    def hybrid_forward(self, F, x):
        return F.broadcast_add(self.second(self.first(x)), x)

def program(run):
    net = Net()
    run.initialize(net)
    run.hybridize(net)
    run.see('of another net', run.array(2, (2, 2)))
    with run.step('0 raises'):
        net(run.array(1, (2, 3)))
    with run.step('1 a smaller input'):
        run.see('y', net(run.array(1, (2, 2))))
        run.see_net(net)
"""


def test_an_eager_run_forgets_what_a_call_initialized_before_it_raised():
    verdict = check(0, "numpy", HEADER + RAISES)
    forgets = "programs whose eager run forgets the parameters that a call initialized before it raised"
    assert not verdict.differences and verdict.explained == {forgets: 1}
    other = RAISES.replace("run.see_net(net)", "run.note('state', 'w', 'not initialized' if run.engine else 'array')")
    assert check(0, "numpy", HEADER + other).differences


TRAINED = """
class Net(HybridBlock):
    def __init__(self):
        super().__init__()
        self.child = nn.PReLU()

    def hybrid_forward(self, F, x):
        return F.sum(x) + F.sum(F.contrib.foreach(lambda a, s: (a, self.child(s)), x, F.ones((1,)))[1])

def program(run):
    net = Net()
    run.initialize(net)
    net(run.array(1, (2, 3)))
    run.hybridize(net)
    with run.step('0 trained'):
        trainer = gluon.Trainer(net.collect_params(), 'sgd', {'wd': 0.1})
        x = run.array(1, (0, 3))
        x.attach_grad()
        with autograd.record():
            y = net(x)
        y.backward()
        trainer.step(1)
        run.see_net(net)
"""


@pytest.mark.parametrize("kind", ["write", "add"])
def test_a_trainer_applies_the_zeros_of_a_loop_without_a_step(kind):
    asked = f"    net.collect_params().setattr('grad_req', {kind!r})\n    run.hybridize(net)\n"
    trained = TRAINED.replace("    run.hybridize(net)\n", asked)
    verdict = check(0, "numpy", HEADER + trained)
    gives = "programs whose eager run gives a Trainer the zeros that a loop or a branch gives"
    assert not verdict.differences and verdict.explained == {gives: 1}
    more = trained.replace("'wd': 0.1", "'wd': 0.1 if run.engine else 0.2")
    assert check(0, "numpy", HEADER + more).differences


ONE_STEP = """
class Net(HybridBlock):
    def __init__(self):
        super().__init__()
        self.child = nn.PReLU()

    def hybrid_forward(self, F, x):
        return F.contrib.foreach(lambda a, s: (a * s, self.child(s)), x, F.ones((3,)))

def program(run):
    net = Net()
    run.initialize(net)
    net(run.array(1, (1, 3)))
    run.hybridize(net)
    with run.step('0 one step'):
        with autograd.record():
            y = net(run.array(1, (1, 3)))[0] * 2
        y.backward()
        run.see('y', y)
        run.see_net(net)
"""


def test_a_loop_of_one_step_is_in_the_graph_of_what_only_a_second_one_would_read():
    verdict = check(0, "numpy", HEADER + ONE_STEP)
    (reason,) = verdict.explained
    assert not verdict.differences and "takes what a loop or a branch gives for a part of the graph" in reason
    assert check(0, "numpy", HEADER + ONE_STEP.replace("* 2", "* (2 if run.engine else 3)")).differences


ASKED = ONE_STEP.replace(
    "        y.backward()",
    """            weights = [p.data() for p in net.collect_params().values()]
            run.see('g', autograd.grad(y, weights, create_graph=CREATE), 'gradient')""",
)


@pytest.mark.each_value
@pytest.mark.parametrize("create_graph", ["False", "True"])
@pytest.mark.parametrize(
    "loop",
    [
        "F.contrib.foreach(lambda a, s: (a * s, self.child(s)), x, F.ones((3,)))",
        "F.contrib.while_loop(lambda s: F.max(s) > 0, lambda s: (s * 2, [self.child(s)]), [x * x], max_iterations=1)",
        "[F.contrib.cond(F.max(x * x) > 0, lambda: x * 2, lambda: self.child(x)) + F.ones((1, 3))]",
    ],
)
def test_a_gradient_with_respect_to_what_a_loop_or_a_branch_did_not_read_is_zero(loop, create_graph):
    text = ASKED.replace("F.contrib.foreach(lambda a, s: (a * s, self.child(s)), x, F.ones((3,)))", loop)
    text = text.replace("CREATE", create_graph).replace("net(run.array(1, (1, 3)))[0]", "net(x)[0]")
    text = text.replace("    with", "    x = run.array(1, (1, 3))\n    x.attach_grad()\n    with", 1)
    verdict = check(0, "numpy", HEADER + text)
    (reason,) = verdict.explained
    assert not verdict.differences and "takes what a loop or a branch gives for a part of the graph" in reason
    other = text.replace("'gradient')", "'gradient')\n            run.see('z', (y + 5 if run.engine else y))")
    assert check(0, "numpy", HEADER + other).differences
    outside = text.replace("return ", "x = self.child(x) if run_is_hybrid else x\n        return ")
    outside = outside.replace(
        "def program(run):", "def program(run):\n    global run_is_hybrid\n    run_is_hybrid = run.engine"
    )
    assert check(0, "numpy", HEADER + outside).differences


def test_roundings_move_what_is_normalized_where_all_of_a_row_is_one():
    def normalized():
        with autograd.train_mode():
            ones = nd.ones((4, 1))
            return nd.BatchNorm(ones, *[nd.zeros((1,)) + 1 for _ in range(4)], fix_gamma=False).asnumpy()

    assert (normalized() == 1).all()
    with other_rounding(0):
        assert (normalized() != 1).any()


def test_roundings_move_gradients_of_what_is_normalized_where_all_heads_are_one():
    def gradient():
        x = nd.ones((3, 4))
        x.attach_grad()
        with autograd.record():
            y = nd.LayerNorm(x, nd.ones((4,)), nd.zeros((4,)))
        y.backward()
        return x.grad.asnumpy()

    assert (gradient() == 0).all()
    with other_rounding(0):
        assert (gradient() != 0).any()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_roundings_move_what_is_computed_in_float32_and_rounded_once(dtype):
    x = (nd.arange(1, 200) / 7).astype(dtype)

    def products():
        return nd.LayerNorm(x.reshape((1, -1)), nd.ones((199,), dtype=dtype), nd.zeros((199,), dtype=dtype)).asnumpy()

    plain = products()
    with other_rounding(0):
        moved = products()
    assert (np.abs(moved.astype("float64") - plain.astype("float64")) > 1e-3).any()
    with other_rounding(0):
        assert np.array_equal((x + x).asnumpy(), (x * 2).asnumpy())  # exact in both


def test_an_interrupt_between_two_calls_of_a_block_leaves_the_states_of_the_first_one():
    text = """
class Net(Block):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm()

    def forward(self, x):
        return self.norm(x) + self.norm(x)

def program(run):
    net = Net()
    run.initialize(net)
    run.hybridize(net)
    x = run.array(1, (4, 3))
    with autograd.record():
        for at in range(1, 120, 3):
            run.interrupt(net, lambda: net(x), at)
"""
    assert not check(0, "numpy", HEADER + text).differences
