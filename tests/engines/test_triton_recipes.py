"""Recipes: what fusing and writing found out about a graph, for other sizes and for the next process."""

import functools
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import hybrid_lab as mx
from hybrid_lab import autograd, gluon
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.engines.triton.building.compiling import request_of
from hybrid_lab.engines.triton.building.targets import target_of
from hybrid_lab.engines.triton.engine import kernels_of
from hybrid_lab.engines.triton.kernels import launches_of
from hybrid_lab.engines.triton.reusing import recipe, recipes
from hybrid_lab.engines.triton.reusing.recipe_key import key_of
from hybrid_lab.engines.triton.reusing.recipes import RECIPES
from hybrid_lab.engines.triton.running.steps import KernelOperator
from hybrid_lab.engines.triton.support import refusal
from hybrid_lab.engines.triton.writing import reduction
from hybrid_lab.engines.triton.writing.symbolic import Conditions, Formulas, Trace, choice, filled, is_power_of_two
from hybrid_lab.engines.triton.writing.write import write_kernels
from hybrid_lab.gluon import nn, rnn
from hybrid_lab.gluon.ahead import graphs_of
from hybrid_lab.graph.decompose import decompose
from hybrid_lab.graph.lower import lower_random
from hybrid_lab.graph.partition import Region
from hybrid_lab.graph.simplify import simplify
from hybrid_lab.graph.specialize import specialize
from tests.engines.random_graphs import random_case
from tests.engines.test_random_graphs import CHUNK, COUNT
from tests.graph.building import graph_of
from tests.triton_device import use_triton


@pytest.fixture(autouse=True)
def nothing_known(tmp_path, monkeypatch):
    monkeypatch.setenv("HYBRID_LAB_CACHE", str(tmp_path))
    RECIPES.clear()
    yield tmp_path / "recipes"
    RECIPES.clear()


@pytest.fixture
def exact(monkeypatch):
    """Kernels are those that would be written, tiles too."""
    monkeypatch.setattr(recipe, "NEAR", 1)


@pytest.fixture
def writes(monkeypatch):
    """The regions that are written from now on."""
    found = []

    def written(region, precision="ieee"):
        found.append(region)
        return write_kernels(region, precision)

    monkeypatch.setattr(recipes.write, "write_kernels", written)
    return found


def lowered(graph):
    return simplify(decompose(lower_random(graph), lambda node: refusal(node) is None))


def facts(sources):
    return [
        (source.name, source.code, source.text, source.kind, source.passed, source.signature, dict(source.sizes),
         dict(source.blocks), dict(source.tiled), source.grid, source.warps, source.stages, source.draws,
         [(value.shape, value.dtype.name) for value in (*source.inputs, *source.outputs)],
         sorted((source.inputs.index(value), count) for value, count in source.passes.items()))
        for source in sources
    ]  # fmt: skip


#: Arguments for numbers that vary.
VARYING = re.compile(r"\bsize\d+\b")


def check(fusion):
    """Every group's kernels are what would be written for it now, and take its arrays."""
    for group in fusion.groups:
        found, fresh = fusion.kernels[group], write_kernels(group)
        if any(map(VARYING.fullmatch, [name for source in found for name in source.sizes])):
            assert [printed(source) for source in found] == [printed(source) for source in fresh]
        else:
            assert facts(found) == facts(fresh)
        inside = {*group.inputs, *group.outputs}
        for one, other in zip(found, fresh, strict=True):
            for value, wanted in zip((*one.inputs, *one.outputs), (*other.inputs, *other.outputs), strict=True):
                assert value is wanted or value not in inside  # what one kernel leaves for the next is made anew


def printed(source):
    """A kernel with the numbers of its arguments in the text, without its head."""
    sizes = {name: number for name, number in source.sizes.items() if VARYING.fullmatch(name)}
    text = VARYING.sub(lambda name: str(sizes[name[0]]), source.text[source.text.index("):\n") :])
    text = re.sub(r" Here [^.]*\.", "", text)  # what the arguments are
    lines = [re.sub(r" +# ", "  # ", line) for line in text.splitlines()]
    left = [name for name in source.passed if name not in sizes]
    assert {name for name in sizes if name in source.code} == sizes.keys() == set(source.passed) - set(left)
    fields = (source.kind, source.blocks, source.tiled, source.grid, source.warps, source.draws)
    return source.name, lines, left, {name: source.sizes[name] for name in left}, fields


def fused(graph):
    return recipes.fused(lowered(graph), "ieee")


class Mixed(nn.HybridSequential):
    """A little of everything that depends on a batch: windows, statistics over images, means, views."""

    def __init__(self):
        super().__init__()
        self.add(nn.Conv2D(4, 3, padding=1, in_channels=2), nn.BatchNorm(in_channels=4), nn.Activation("relu"))
        self.add(nn.MaxPool2D(2), nn.Conv2D(6, 1, in_channels=4), nn.BatchNorm(in_channels=6), nn.GlobalAvgPool2D())
        self.add(nn.Flatten(), nn.Dense(5, in_units=6), nn.LayerNorm(in_channels=5), nn.Dropout(0.3))
        self.initialize()


class Attending(gluon.HybridBlock):
    """Attention over a sequence, with transposed axes."""

    def __init__(self):
        super().__init__()
        self.project, self.back = nn.Dense(24, in_units=8, flatten=False), nn.Dense(8, in_units=8, flatten=False)

    def hybrid_forward(self, F, x):
        parts = F.split(F.reshape(self.project(x), shape=(0, 0, 3, 2, 4)), num_outputs=3, axis=2, squeeze_axis=True)
        q, k, v = (F.reshape(F.transpose(part, axes=(0, 2, 1, 3)), shape=(-3, -2)) for part in parts)
        weights = F.softmax(F.batch_dot(q, k, transpose_b=True) * 0.5)
        mixed = F.reshape(F.batch_dot(weights, v), shape=(-4, -1, 2, 0, 0))
        return x + self.back(F.reshape(F.transpose(mixed, axes=(0, 2, 1, 3)), shape=(0, 0, -1)))


def attending():
    net = Attending()
    net.initialize()
    return net


def recurrent():
    net = rnn.LSTM(5, 2, layout="NTC", input_size=3)
    net.initialize()
    return net


NETS = {
    "images": (Mixed, lambda batch: (batch, 2, 6, 5)),
    "attention": (attending, lambda batch: (batch, 7, 8)),
    "steps": (recurrent, lambda batch: (batch, 4, 3)),
}


# -- numbers -----------------------------------------------------------------------------------------------------------


def holds(trace, notes, number):
    """Whether the notes hold for another number of the first symbol."""
    return Conditions(notes).hold(Formulas(trace.steps).values({0: number}))


def test_a_number_notes_what_is_asked_and_gives_formulas():
    trace = Trace()
    n = trace.symbol(8)
    with trace.running():
        rows = -(-n * 49 // 16)
        assert isinstance(rows, int) and type(rows) is not int
        assert not rows < 3 and n != 1 and max(rows, 20) is rows
        assert f"{rows:,} rows" != "25 rows"
    assert trace.notes and not any(name == "is" for name, _, _ in trace.notes)
    now, then = Formulas(trace.steps).values({0: 8}), Formulas(trace.steps).values({0: 64})
    assert now[rows.at] == 25 and then[rows.at] == 196
    notes = [(*note, outcome) for note, outcome in trace.notes.items()]
    assert Conditions(notes).hold(then) and not holds(trace, notes, 1)
    assert filled(f"{'x'} \x00{rows.at},\x00", then) == "x 196"


@pytest.mark.parametrize(
    "use",
    [str, repr, "{}".format, int, float, hash, range, lambda n: [0][n - 8], lambda n: np.empty(n), lambda n: {n: 1}],
)
def test_what_needs_the_value_fixes_it(use):
    trace = Trace()
    n = trace.symbol(8)
    use(n)
    notes = [(*note, outcome) for note, outcome in trace.notes.items()]
    assert [holds(trace, notes, number) for number in (8, 16)] == [True, False]


def test_a_number_as_a_key_of_a_cache_is_equal_to_nothing_later():
    @functools.lru_cache
    def doubled(n):
        return n * 2

    trace = Trace()
    with trace.running():
        doubled(trace.symbol(8))
    assert type(doubled(8)) is int


def test_zeros_and_types_are_printed_apart():
    trace = Trace()
    zero = trace.symbol(0.0)
    assert str(zero) == "0.0"
    notes = [(*note, outcome) for note, outcome in trace.notes.items()]
    assert not holds(trace, notes, -0.0) and not holds(trace, notes, 0)


def test_powers_of_two_are_noted_as_such():
    trace = Trace()
    n = trace.symbol(0.125)
    assert is_power_of_two(n) and not is_power_of_two(0.3) and not is_power_of_two(-2.0)
    notes = [(*note, outcome) for note, outcome in trace.notes.items()]
    assert holds(trace, notes, 0.5) and not holds(trace, notes, 0.6)


def test_choices_are_noted_apart():
    @choice
    def tile(n):
        return 32 if n > 100 else 16

    trace = Trace()
    n = trace.symbol(8)
    with trace.running():
        assert tile(n) == 16
    assert not trace.notes and len(trace.preferences) == 1


# -- other sizes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETS)
def test_other_batches_have_the_kernels_that_would_be_written(name, exact):
    make, shape = NETS[name]
    net = make()
    for batch in (6, 12, 33, 1, 6):
        for graph in graphs_of(net, [shape(batch)], train=True).values():
            check(fused(graph))


def test_other_lengths_too(exact):
    net = attending()
    for length in (7, 64, 5):
        for graph in graphs_of(net, [(2, length, 8)], train=True).values():
            check(fused(graph))


@pytest.mark.parametrize("name", NETS)
def test_another_batch_is_neither_fused_nor_written(name, writes):
    make, shape = NETS[name]
    net = make()
    for graph in graphs_of(net, [shape(36)], train=True).values():
        fused(graph)
    assert writes
    known = len(RECIPES._known)
    # Sums over the batch may have another tile; of layers' states in one array, and of transposed ones, the batch is a
    # stride in the text.
    most = {"images": 1, "attention": 2, "steps": 14}[name]
    for part, graph in graphs_of(net, [shape(48)], train=True).items():
        given = lowered(graph)
        writes.clear()
        recipes.fused(given, "ieee")
        assert len(writes) <= most, part
        writes.clear()
        recipes.fused(given, "ieee")
        assert not writes, part
    assert len(RECIPES._known) == known


def test_a_smaller_batch_of_images_has_the_binaries_of_the_larger_one():
    net, target = Mixed(), target_of("gfx942")

    def made(batch):
        sources = [
            source
            for graph in graphs_of(net, [(batch, 2, 8, 8)], train=True).values()
            for source in kernels_of(graph)[2]
        ]
        return {request_of(source, target)["key"] for source in sources}, sources

    known, _ = made(128)
    for batch in (96, 64, 48, 32, 33, 126):
        keys, sources = made(batch)
        assert keys <= known, [source.name for source in sources if request_of(source, target)["key"] not in known]


def test_the_kernels_of_another_batch_tell_of_that_batch(monkeypatch):
    use_triton(monkeypatch)

    class Sliced(gluon.HybridBlock):
        def hybrid_forward(self, F, x, w):
            return F.exp(F.slice_axis(x, axis=1, begin=2, end=5)), F.dot(F.tanh(x), w), F.transpose(x)

    def told(net, batch):
        x, w = mx.nd.ones((batch, 12)), mx.nd.ones((12, 6))
        net(x, w)
        program = net._graphs.compilations[-1].program
        steps = [node.op for node in program.forward.graph.operators if isinstance(node.op, KernelOperator)]
        launches = [launch for step in steps for launch in launches_of(step)]
        return (
            [(launch.name, launch.bytes_moved, launch.flops, launch.programs, launch.source) for launch in launches],
            [[node.op.name for node in step.region.nodes] for step in steps],
            [[value.shape for value in (*step.region.inputs, *step.region.outputs)] for step in steps],
            [vars(region) for region in program.forward.report.regions],
            [str(found) for found in mx.explain(net, x, w).kernels],
        )

    net = Sliced()
    net.hybridize(engine="triton")
    told(net, 16)
    for batch in (32, 48, 7):
        found = told(net, batch)
        steps = net._graphs.compilations[-1].program.forward.graph.operators
        assert batch == 7 or all(type(node.op.region) is not Region for node in steps if not node.op.view)
        RECIPES.clear()
        fresh = Sliced(prefix=net.prefix)
        fresh.hybridize(engine="triton")
        assert found == told(fresh, batch)


def test_a_count_that_sizes_decide_is_an_argument_where_no_size_of_the_kernel_tells_it():
    class Scaled(gluon.HybridBlock):
        def hybrid_forward(self, F, x, y):
            return F.broadcast_div(F.square(y), F.sum(F.ones_like(x)))

    net = Scaled()
    texts = []
    for batch in (6, 12, 30):
        (source,) = kernels_of(graphs_of(net, [(batch, 5), (7,)])["forward"])[2]
        assert source.sizes == {"n": 7, "count": 5 * batch}
        texts.append(source.code)
    assert len(set(texts)) == 1 and "/ count" in texts[0]
    (source,) = kernels_of(graph_of(lambda F, y: F.square(y) / 30.0, (7,)))[2]
    assert source.sizes == {"n": 7} and "/ 30.0" in source.code, "a number of the user's is part of the text"


def test_a_group_that_would_be_another_text_is_written_anew_and_kept(writes, exact):
    def net(n):
        return graph_of(lambda F, x: F.transpose(x * 2.0, axes=(1, 0)) + 1.0, (n, 5))

    fused(net(6))
    (first,) = kernels_of(net(6))[2]
    writes.clear()
    (second,) = kernels_of(net(8))[2]
    assert first.code != second.code and len(writes) == 1
    (again,) = kernels_of(net(8))[2]
    assert again.code == second.code and len(writes) == 1
    assert [source.code for source in kernels_of(net(6))[2]] == [first.code] and len(writes) == 1


def test_from_the_third_size_on_what_varies_is_an_argument(writes, exact):
    def net(n):
        return graph_of(lambda F, x: F.transpose(x * 2.0, axes=(1, 0)) + 1.0, (n, 5))

    texts = []
    for n in (6, 8, 10, 12, 33, 1000):
        found = fused(net(n))
        check(found)
        ((source,),) = found.kernels.values()
        texts.append(source.code)
        assert all(found.kernels[group] for group in found.groups)
    assert len(set(texts)) == 3 == len(set(texts[:3])) and len(set(texts[2:])) == 1
    assert source.sizes == {"n": 5000, "size1": 1000, "size2": 1000}, "of `offsets // 1000` and `offsets % 1000`"
    assert source.together == {"n": 4, "size1": 4, "size2": 4}
    assert '"""2 operators over f32[5,1000]. Here size1 = 1,000, size2 = 1,000."""' in source.text
    writes.clear()
    for n in (6, 8, 14):
        fused(net(n))
    assert not writes


@pytest.mark.parametrize(
    "compute",
    [
        lambda F, x, y: F.concat(x, y, dim=1) + 1.0,
        lambda F, x, y: F.slice_axis(x * 2.0, axis=1, begin=1, end=None) + F.slice_axis(x, axis=1, begin=0, end=-1),
        lambda F, x, y: F.tile(x * 2.0, reps=(1, 2, 1)) + 1.0,
    ],
    ids=["joined", "cut", "repeated"],
)
def test_where_axes_are_joined_and_cut_varies_too(compute, exact):
    texts = []
    for n, m in ((3, 5), (4, 6), (5, 7), (6, 9), (7, 12), (9, 14)):
        found = fused(graph_of(compute, (n, m, 4), (n, 3, 4)))
        texts += [source.code for group in found.groups for source in found.kernels[group]]
    assert len(texts) == 6 and len(set(texts[2:])) == 1


def test_products_have_their_sizes_in_the_text(exact):
    """Their loops would divide by arguments."""
    for n in (6, 8, 10, 12):
        found = fused(graph_of(lambda F, x, w: F.Convolution(x, w, no_bias=True, kernel=(3, 3), num_filter=4),
                               (2, 3, n, n), (4, 3, 3, 3)))  # fmt: skip
        check(found)
        assert not any(VARYING.search(source.code) for group in found.groups for source in found.kernels[group])


def test_nan_in_a_graph_is_a_number_like_others(writes):
    def net(n):
        return graph_of(lambda F, x: F.where(F.broadcast_greater(x, 0.5), x * 2.0, np.nan), (n, 5))

    (first,) = kernels_of(net(6))[2]
    (second,) = kernels_of(net(12))[2]
    assert first.code == second.code and 'float("nan")' in first.code.replace("'", '"')
    assert len(writes) == 1


def test_numbers_in_a_graph_are_looked_at():
    def net(number):
        return graph_of(lambda F, x: F.exp(x) * number, (6, 5))

    texts = [kernels_of(net(number))[2][0].code for number in (2.5, 3.5, -0.0, 0.0, 2.5)]
    assert len(set(texts)) == 4 and texts[0] == texts[4] and "* 3.5" in texts[1] and "-0.0" in texts[2]


def test_after_nan_other_numbers_are_looked_at_too():
    def net(number):
        return graph_of(lambda F, x: F.exp(x) * number, (6, 5))

    texts = [kernels_of(net(number))[2][0].code for number in (np.nan, 3.5, np.nan)]
    assert "nan" in texts[0] and "* 3.5" in texts[1] and texts[0] == texts[2]


def test_zeros_of_two_signs_are_two_numbers_to_groups_that_share_a_way():
    kernels_of(graph_of(lambda F, x: F.exp(x) * 0.0, (6, 5)))
    ((group,),) = [recipe.groups for recipe in RECIPES._known.values()]
    numbers, seen = list(group.ways[0].given), {}
    assert group.fit(numbers, seen)
    numbers[numbers.index(0.0)] = -0.0
    assert group.fit(numbers, seen) is None


def test_a_count_is_handed_over_anew():
    def net(n):
        return graph_of(lambda F, x: F.mean(x, axis=0), (n, 5))

    for n in (7, 14, 35):
        (source,) = kernels_of(net(n))[2]
        assert source.sizes["columns"] == n and f"{n:,} elements" in source.text


def test_tiles_are_kept_for_sizes_that_are_near(monkeypatch):
    def net(n):
        return graph_of(lambda F, x, w: F.dot(x, w), (n, 300), (300, 500))

    def blocks(n):
        return [(dict(source.blocks), source.grid) for source in kernels_of(net(n))[2]]

    first = blocks(500)
    assert blocks(1999) == first
    far = blocks(2001)
    assert far != first
    RECIPES.clear()
    assert blocks(2001) == far


def test_what_does_not_fit_any_more_is_refused_anew():
    def net(n):
        return graph_of(lambda F, x: F.exp(x) + 1.0, (n, 1 << 20), dtype="float32")

    assert not fused(net(4)).refused
    assert set(fused(net(1 << 9)).refused.values()) == {"more than 2 GiB"}
    assert not fused(net(8)).refused


def test_settings_are_part_of_the_key(monkeypatch):
    graph = lowered(graph_of(lambda F, x: F.sum(x, axis=1), (6, 5)))
    before = key_of(graph, "ieee")
    monkeypatch.setattr(reduction, "TILE", 64)
    assert key_of(graph, "ieee") != before != key_of(graph, "tf32")


def test_operators_of_others_have_no_recipe():
    from hybrid_lab.ops.operator import Operator

    class Mine(Operator):
        triton = "{0} * 2.0"

        def infer_shape(self, x):
            return x

        def numpy(self, x, out=None):
            return x * 2

    from hybrid_lab.graph.builder import make_node
    from hybrid_lab.graph.graph import Graph
    from hybrid_lab.graph.node import input_node

    Mine.name, x = "mine", input_node("x", shape=(3,), dtype="float32")
    op = object.__new__(Mine)
    for key, item in (("attributes", {}), ("inferred", {})):
        object.__setattr__(op, key, item)
    assert key_of(Graph([x], make_node(op, [x]).outputs), "ieee") is None


# -- in the interpreter ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETS)
def test_results_at_other_batches_are_numpys(name, monkeypatch):
    use_triton(monkeypatch)
    make, shape = NETS[name]
    net = make()
    random = np.random.RandomState(3)
    for batch in (4, 6, 9, 1):
        data = random.uniform(-1, 1, shape(batch)).astype("float32")
        found = []
        for engine in ("numpy", "triton"):
            net.hybridize(engine=engine)
            mx.random.seed(7)
            x = mx.nd.array(data)
            x.attach_grad()
            with autograd.record():
                y = net(x)
                y = y[0] if isinstance(y, (list, tuple)) else y
                loss = (y * y).mean()
            loss.backward()
            found.append([y.asnumpy(), x.grad.asnumpy()])
        # BatchNorm of one element: its gradient is 0, and what is computed is rounding times 1 / sqrt(epsilon), 300.
        near = 1e-4 if batch == 1 else 1e-5
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=near)


# -- on disk -----------------------------------------------------------------------------------------------------------


def both(graph):
    """Facts of a graph's kernels as they are written first and as they are read from disk."""
    given = lowered(graph)
    first = recipes.fused(given, "ieee")
    RECIPES.clear()
    second = recipes.fused(given, "ieee")
    for one, other in zip(first.groups, second.groups, strict=True):
        yield facts(first.kernels[one]), facts(second.kernels[other])
    names = [{(node.op.name, why) for node, why in found.refused.items()} for found in (first, second)]
    assert names[0] == names[1] and len(first.apart) == len(second.apart)


@pytest.mark.parametrize("name", NETS)
def test_from_disk_as_written(name, writes, nothing_known):
    make, shape = NETS[name]
    for graph in graphs_of(make(), [shape(6)], train=True).values():
        for one, other in both(graph):
            assert one == other
    assert list(nothing_known.iterdir())


@pytest.mark.parametrize("first", range(0, COUNT // 4, CHUNK))
def test_random_graphs_from_disk_and_at_other_sizes(first, exact):
    others = 0
    for seed in range(first, min(first + CHUNK, COUNT // 4)):
        case = random_case(seed)
        shapes, dtypes = [array.shape for array in case.arrays], [array.dtype for array in case.arrays]
        parts = specialize(case.graph, shapes, dtypes, True, case.wrt)
        for graph in filter(None, (parts.forward, parts.backward)):
            for one, other in both(graph):
                assert one == other, seed
        roles = [value.node.op.role for value in case.graph.inputs]
        changed = [
            (shape[0] * 3, *shape[1:]) if role == "data" and shape else shape
            for role, shape in zip(roles, shapes, strict=True)
        ]
        try:
            parts = specialize(case.graph, changed, dtypes, True, case.wrt)
            graphs = [lowered(graph) for graph in (parts.forward, parts.backward) if graph is not None]
        except HybridLabError:  # some graphs have no batch
            continue
        others += 1
        for graph in graphs:
            check(recipes.fused(graph, "ieee"))
    assert others


def one_file(folder):
    (path,) = folder.iterdir()
    return path


SMALL = functools.partial(graph_of, lambda F, x: F.sum(F.exp(x), axis=1) + 1.0)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"",
        lambda text: text[:-40],
        lambda text: text.replace(b"exp", b"log"),
        lambda text: b"\xff\xfe" + text,
        lambda text: text[:64] + b"\n[1,",
    ],
)
def test_a_damaged_file_is_written_again(damage, nothing_known, writes):
    wanted = facts(kernels_of(SMALL((6, 5)))[2])
    path = one_file(nothing_known)
    good = path.read_bytes()
    path.write_bytes(damage(good))
    RECIPES.clear()
    writes.clear()
    assert facts(kernels_of(SMALL((6, 5)))[2]) == wanted
    assert writes and path.read_bytes() == good


def test_other_code_has_files_of_its_own(nothing_known, monkeypatch):
    kernels_of(SMALL((6, 5)))
    RECIPES.clear()
    monkeypatch.setattr(recipes, "code_digest", lambda: "another")
    kernels_of(SMALL((6, 5)))
    assert len(list(nothing_known.iterdir())) == 2


def test_nothing_is_kept_without_a_folder(monkeypatch, nothing_known):
    monkeypatch.setenv("HYBRID_LAB_CACHE", "")
    kernels_of(SMALL((6, 5)))
    assert not nothing_known.exists()


def test_a_folder_that_cannot_be_written_to_is_none(tmp_path, monkeypatch):
    (tmp_path / "recipes").write_text("in the way")
    assert len(kernels_of(SMALL((6, 5)))[2]) == 1


def test_two_processes_write_at_once(nothing_known, tmp_path):
    program = textwrap.dedent(
        """
        from tests.engines.test_triton_recipes import Mixed, fused, graphs_of
        from hybrid_lab.engines.triton.reusing.recipes import RECIPES
        for _ in range(2):
            RECIPES.clear()
            for batch in (3, 50):
                for graph in graphs_of(Mixed(), [(batch, 2, 6, 5)], train=True).values():
                    fused(graph)
        """
    )
    both = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
    assert [process.wait(300) for process in both] == [0, 0]
    files = list(nothing_known.iterdir())
    for batch in (3, 50):
        for graph in graphs_of(Mixed(), [(batch, 2, 6, 5)], train=True).values():
            fused(graph)
    assert files and sorted(nothing_known.iterdir()) == sorted(files)
