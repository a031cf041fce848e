"""Matching the operators of two graphs: what is alike is found, and only what differs is reported."""

import random
import sys

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.formats.archive import graphs
from hybrid_lab.gluon import nn
from hybrid_lab.hybridize.neutral import trace_block
from hybrid_lab.hybridize.structure import flatten
from hybrid_lab.insight.graph_diff import GraphSide, diff_graphs, with_context

STEPS = ("relu", "tanh", "double", "add", "flip", "drop")


class Program(gluon.HybridBlock):
    """Computes a list of steps; each reads earlier values by number. results : how many of the last it returns"""

    def __init__(self, steps, results, **kwargs):
        super().__init__(**kwargs)
        self.steps, self.results = steps, results

    def hybrid_forward(self, F, x):
        operators = {
            "relu": lambda a, b: F.Activation(a, act_type="relu"),
            "tanh": lambda a, b: F.Activation(a, act_type="tanh"),
            "double": lambda a, b: a * 2, "add": F.broadcast_add, "flip": lambda a, b: F.flip(a, axis=1),
            "drop": lambda a, b: F.Dropout(a, p=0.5),
        }  # fmt: skip
        values = [x]
        for name, *reads in self.steps:
            values.append(operators[name](*(values[place % len(values)] for place in reads)))
        return values[-self.results :] if self.results > 1 else values[-1]


def traced(steps, results=1):
    net = Program(steps, results)
    net.hybridize(engine="numpy")
    net(nd.ones((2, 3)))
    return net._graphs.graphs()[0].graph


def rows_of(first, second):
    rows, results = diff_graphs(GraphSide(first), GraphSide(second))
    return [row for row in rows if row.kind != "same"], results


def steps_of(chance, length):
    return [(chance.choice(STEPS), chance.randrange(99), chance.randrange(99)) for _ in range(length)]


def mutated(steps, chance):
    """The steps with some of them replaced, removed, added or reading something else; sometimes unchanged."""
    steps = list(steps)
    for _ in range(chance.randrange(3)):
        place = chance.randrange(len(steps))
        kind = chance.randrange(3)
        if kind == 0:
            steps[place] = steps_of(chance, 1)[0]
        elif kind == 1 and len(steps) > 2:
            del steps[place]
        else:
            steps.insert(place, steps_of(chance, 1)[0])
    return steps


@pytest.mark.parametrize("seed", range(8))
def test_graphs_differ_exactly_if_their_listings_do(seed):
    """64 pairs: the listing says whether two graphs compute the same way; the matching must agree, and be complete."""
    chance = random.Random(seed)
    different = 0
    for _ in range(8):
        steps = steps_of(chance, chance.randrange(2, 14))
        one, two = traced(steps, 2), traced(mutated(steps, chance), 2)
        same = graphs.listing(one, 1, []) == graphs.listing(two, 1, [])
        rows, results = diff_graphs(GraphSide(one), GraphSide(two))
        assert (not results and all(row.kind == "same" for row in rows)) == same
        assert sum(row.kind != "added" for row in rows) == len(one.operators)
        assert sum(row.kind != "removed" for row in rows) == len(two.operators)
        different += not same
    assert 0 < different < 8


@pytest.mark.parametrize("place", range(12))
def test_one_inserted_operator_is_one_row(place):
    """Among twelve alike: the matching goes by what is computed before and read after, not by number."""
    steps = [("double", number, 0) for number in range(12)]
    rows, results = rows_of(traced(steps), traced([*steps[:place], ("relu", place, 0), *_later(steps[place:])]))
    assert [(row.kind, row.second) for row in rows] == [("added", "Activation(act_type='relu')")]
    assert results == []


def _later(steps):
    return [(name, a + 1, b) for name, a, b in steps]


@pytest.mark.parametrize("seed", range(12))
def test_operators_inserted_into_a_chain_are_all_that_is_told(seed):
    """Neighbors do not tell the operators of such a chain apart, their order does."""
    chance = random.Random(seed)
    names = [chance.choice(["relu", "tanh"]) for _ in range(chance.randrange(3, 12))]
    longer, inserted = list(names), chance.randrange(1, 4)
    for _ in range(inserted):
        longer.insert(chance.randrange(len(longer) + 1), chance.choice(["relu", "tanh"]))
    one, two = ([(name, place, 0) for place, name in enumerate(each)] for each in (names, longer))
    rows, results = rows_of(traced_only(one), traced_only(two))
    assert [row.kind for row in rows] == ["added"] * inserted and results == []


def test_a_replaced_operator_and_a_changed_attribute_are_one_row_each():
    before = traced([("relu", 0, 0), ("flip", 1, 0), ("double", 2, 0)])
    after = traced([("tanh", 0, 0), ("drop", 1, 0), ("double", 2, 0)])
    rows, results = rows_of(before, after)
    assert [row.changes for row in rows] == [["act_type: 'relu' became 'tanh'"], ["reverse became Dropout"]]
    assert not results


def test_wiring_is_told():
    rows, _ = rows_of(
        traced([("relu", 0, 0), ("flip", 0, 0), ("add", 1, 2)]), traced([("relu", 0, 0), ("flip", 0, 0), ("add", 1, 1)])
    )
    assert [(row.kind, row.changes) for row in rows] == [
        ("removed", []), ("changed", ["input 1: reverse became Activation"])
    ]  # fmt: skip


class Nested(gluon.HybridBlock):
    def __init__(self, units=4, act="relu", **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(nn.Dense(units, activation=act), nn.Dense(3))

    def hybrid_forward(self, F, x):
        return self.body(x) + 1


def nested(**options):
    net = Nested(**options)
    net.initialize()
    net.hybridize(engine="numpy")
    net(nd.ones((2, 5)))
    return net._graphs.graphs()[0].graph


def test_rows_name_the_block_and_the_place_in_it():
    rows, _ = rows_of(nested(), nested(units=6, act="tanh"))
    assert [(row.block, row.kind, row.changes) for row in rows] == [
        ("body.0", "changed", ["num_hidden: 4 became 6"]),
        ("body.0.act" if rows[1].block.endswith("act") else "body.0", "changed", ["act_type: 'relu' became 'tanh'"]),
    ]
    assert all(row.first_place == row.second_place for row in rows) and "test_graph_diff" in rows[0].line


def test_passes_can_be_compared():
    net = Nested()
    net.initialize()
    net.hybridize(engine="numpy")
    net(nd.ones((2, 5)))
    stages = [stage for stage in mx.explain(net).passes() if stage.changed]
    assert stages
    for stage in stages:
        assert not mx.diff(stage.before, stage.before)
        str(mx.diff(stage.before, stage.after))


def test_eager_and_hybrid_can_be_compared_as_graphs():
    net = Nested()
    net.initialize()
    net.hybridize(engine="numpy")
    x = nd.ones((2, 5))
    net(x)
    comparison = mx.compare(net, x)
    for number in range(len(comparison.calls)):
        assert not [row for row in comparison.diff(number).operators if "FullyConnected" in row.first + row.second]
    assert "eager" in str(comparison.diff()) and "graphs" not in comparison.data()


def test_the_first_operator_with_other_numbers_is_marked():
    from hybrid_lab.insight.compare import Comparison, Difference

    net = Nested()
    net.initialize()
    net.hybridize(engine="numpy")
    comparison: Comparison = mx.compare(net, nd.ones((2, 5)))
    wrong = Difference("kernel", "FullyConnected(num_hidden=3)", "", f"{net.name}.body.1", "", "", "", "it is off by 1")
    comparison.calls[0].differences.append(wrong)
    (block,) = [block for block in comparison.diff().blocks if block.path == "body.1"]
    assert block.changes == ["FullyConnected(num_hidden=3): first with other numbers: it is off by 1"]


def test_control_flow_is_compared_inside():
    def loop(step):
        class Loop(gluon.HybridBlock):
            def hybrid_forward(self, F, x):
                outputs, _ = F.contrib.foreach(lambda item, state: (item * step, state), x, F.zeros((3,)))
                return outputs

        net = Loop()
        net.hybridize(engine="numpy")
        net(nd.ones((2, 3)))
        return net._graphs.graphs()[0].graph

    assert rows_of(loop(2), loop(2)) == ([], [])
    rows, _ = rows_of(loop(2), loop(3))
    assert [row.changes for row in rows] == [["the operators inside differ"]]


def test_constants_are_compared_by_their_numbers():
    class Shift(gluon.HybridBlock):
        def __init__(self, numbers):
            super().__init__()
            self.numbers = numbers

        def hybrid_forward(self, F, x):
            return F.broadcast_add(x, F.array(np.array(self.numbers, "float32")))

    def graph(numbers):
        net = Shift(numbers)
        net.hybridize(engine="numpy")
        net(nd.ones((2, 3)))
        return net._graphs.graphs()[0].graph

    assert rows_of(graph([1, 2, 3]), graph([1, 2, 3])) == ([], [])
    assert len(rows_of(graph([1, 2, 3]), graph([1, 2, 4]))[0]) == 1


def test_many_alike_operators_are_matched_quickly():
    """A chain of 1,000 in one Block with one operator more in the middle."""
    steps = [("flip", number, 0) for number in range(1000)]
    rows, _ = rows_of(traced_only(steps), traced_only([*steps[:500], ("relu", 500, 0), *_later(steps[500:])]))
    assert [row.kind for row in rows] == ["added"]


def with_one_more(steps, place):
    """The steps with an operator more, which reads the value of this number; what read that reads the new one."""
    later = [(name, *(read + (read >= place) for read in reads)) for name, *reads in steps[place:]]
    return [*steps[:place], ("flip", place, 0), *later]


CHAINS = {
    "alike": lambda place: None,
    "skip edges": lambda place: place - 6 if place % 7 == 6 else None,
    "half of them read one value": lambda place: 1 if place % 2 and place > 1 else None,
    "each second reads one far before": lambda place: max(0, place - 60) if place % 2 else None,
}
EDITS = {  # and the rows that explain it
    "nothing": (lambda steps: steps, 0),
    "at both ends": (lambda steps: with_one_more(with_one_more(steps, len(steps)), 0), 2),
    "in the middle": (lambda steps: with_one_more(steps, len(steps) // 2), 1),
    "in three places": (lambda steps: with_one_more(with_one_more(with_one_more(steps, 200), 100), 0), 3),
}


@pytest.mark.each_value
@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("chain", CHAINS)
def test_the_work_of_a_comparison_grows_with_the_number_of_operators(chain, edit):
    """Executed lines, not seconds: they are the same on each machine."""
    change, most = EDITS[edit]
    lines = {}
    for count in (400, 800, 1600):
        others = [CHAINS[chain](place) for place in range(count)]
        steps = [("double", n, 0) if other is None else ("add", n, other) for n, other in enumerate(others)]
        first, second = traced_only(steps), traced_only(change(steps))
        lines[count] = lines_of(lambda first=first, second=second: diff_graphs(GraphSide(first), GraphSide(second)))
        assert len(rows_of(first, second)[0]) <= most
    assert lines[1600] - lines[800] < 2.5 * (lines[800] - lines[400])


def lines_of(action):
    """How many lines of Python `action` executes."""
    lines = 0

    def note(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        return note

    sys.settrace(note)
    try:
        action()
    finally:
        sys.settrace(None)
    return lines


def test_many_changes_in_one_block_stay_apart():
    """50 of 1,000 operators changed: the rows are about them and those that read them, and none of the others."""
    chance = random.Random(5)
    steps = [
        (chance.choice(["relu", "tanh", "double", "add"]), max(0, place - chance.randrange(2)), place)
        for place in range(1000)
    ]
    changed = list(steps)
    for place in range(10, 1000, 20):
        changed[place] = ("drop", *steps[place][1:])
    rows, results = rows_of(traced_only(steps), traced_only(changed))
    assert len(rows) <= 100 and results == []
    assert any("became Dropout" in change for row in rows for change in row.changes)


def traced_only(steps):
    """As `traced`, without compiling."""
    net = Program(steps, 1)
    leaves, spec = flatten((nd.ones((2, 3)),))
    return trace_block(net, spec, [(leaves[0].shape, np.dtype("float32"))], False).graph


def test_runs_of_equal_operators_are_one_row():
    steps = [("double", number, 0) for number in range(20)]
    rows, _ = diff_graphs(GraphSide(traced(steps)), GraphSide(traced([*steps[:19], ("relu", 19, 0)])))
    short = with_context(rows)
    assert len(short) < 8 and "alike" in short[0].first
