"""Plans: another batch keeps the groups of a fused graph, and has kernels whose texts are known wherever possible."""

import re
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import hybrid_lab as mx
from hybrid_lab import autograd, engines, gluon
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.engines.triton.build.compiling import request_of
from hybrid_lab.engines.triton.build.targets import target_of
from hybrid_lab.engines.triton.kernels import launches_of
from hybrid_lab.engines.triton.plan import other_batches
from hybrid_lab.engines.triton.plan.other_batches import kernels_of
from hybrid_lab.engines.triton.plan.training import with_less_saved
from hybrid_lab.engines.triton.run.steps import KernelOperator
from hybrid_lab.engines.triton.write import source as sources_room
from hybrid_lab.engines.triton.write.choose import write_kernels
from hybrid_lab.engines.triton.write.reuse import Writing, choice, shown, writing
from hybrid_lab.gluon import nn, rnn
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.specialize import specialize, specialize_call
from hybrid_lab.ops.framework.sizes import Binding, BoundSize, Guards
from tests.engines import test_random_graphs
from tests.engines.random_graphs import random_case
from tests.engines.small_tiles import use_small_tiles
from tests.graph.building import graph_of
from tests.graph.test_specializations import EncoderBlock, call_of
from tests.graph.test_specializations import others as other_shapes
from tests.triton_device import use_triton


@pytest.fixture
def exact(monkeypatch):
    """Kernels are those that would be written without a plan: no tile choice is repeated."""
    monkeypatch.setattr(other_batches, "NEAR", 0)


@pytest.fixture
def fusings(monkeypatch):
    """The graphs that are fused from now on."""
    found, inner = [], other_batches.fuse
    monkeypatch.setattr(other_batches, "fuse", lambda graph, *rest: found.append(graph) or inner(graph, *rest))
    return found


class Batches:
    """The fused graphs of a call at several sizes. call : as test_specializations.call_of gives it"""

    def __init__(self, call):
        self.call = call

    @staticmethod
    def of(function, count=1):
        """Of a function of F and inputs."""
        graph = graph_of(function, *([None] * count))
        return Batches(None).with_graph(graph)

    def with_graph(self, graph):
        known = {}
        self.specialize = lambda shapes: specialize_call(
            known, graph, shapes, [np.dtype("float32")] * len(shapes), False, (), len(shapes)
        )
        return self

    def fusions(self, *shapes):
        """Of forward and backward, with data of these shapes."""
        if self.call is None:
            parts = self.specialize(list(shapes))
        else:
            given = [*shapes, *self.call.shapes[self.call.num_data :]]
            parts = specialize_call(self.call.specializations, self.call.graph, given, *self.call.rest)
        if parts.split is None:
            return [kernels_of(parts.forward)[1]]
        split = with_less_saved(parts.split)
        graphs = [split.forward, split.backward]
        found = [kernels_of(graph)[1] for graph in graphs]
        assert not any(graph.symbolic is not None and graph.symbolic.needs_numbers for graph in graphs)
        return found

    def sources(self, *shapes):
        kernels = [fusion.kernels[group] for fusion in self.fusions(*shapes) for group in fusion.groups]
        return [source for each in kernels for source in each]


def facts(sources):
    return [
        (source.name, source.code, source.text, source.kind, source.passed, source.signature, dict(source.sizes),
         dict(source.blocks), dict(source.tiled), source.grid, source.warps, source.stages, source.draws,
         [(value.shape, value.dtype.name) for value in (*source.inputs, *source.outputs)],
         sorted((source.inputs.index(value), count) for value, count in source.passes.items()))
        for source in sources
    ]  # fmt: skip


#: Arguments for sizes that vary.
VARYING = re.compile(r"\bsize\d+\b")


def check(fusion):
    """Every group's kernels are what would be written for it without a plan, and take its arrays."""
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
    body = source.text[source.text.index("):\n", source.text.index(f"def {source.name}(")) :]
    text = VARYING.sub(lambda name: str(sizes[name[0]]), body)
    text = re.sub(r" Here [^.]*\.", "", text)  # what the arguments are
    lines = [re.sub(r" +# ", "  # ", line) for line in text.splitlines()]
    left = [name for name in source.passed if name not in sizes]
    assert {name for name in sizes if name in source.code} == sizes.keys() == set(source.passed) - set(left)
    assert all(type(size) is int for size in (*source.sizes.values(), *source.tiled.values(), *source.blocks.values()))
    fields = (source.kind, source.blocks, source.tiled, source.grid, source.warps, source.draws)
    return source.name, lines, left, {name: source.sizes[name] for name in left}, fields


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


def encoding():
    net = EncoderBlock()
    net.initialize()
    return net


NETS = {
    "images": (Mixed, lambda batch: (batch, 2, 6, 5)),
    "attention": (attending, lambda batch: (batch, 7, 8)),
    "steps": (recurrent, lambda batch: (batch, 4, 3)),
    "encoder": (encoding, lambda batch: (batch, 6, 16)),
}


def batches_of(name, first):
    make, shape = NETS[name]
    return Batches(call_of(make(), [shape(first)], "train")), shape


# -- choices and arguments ---------------------------------------------------------------------------------------------


@choice
def tile(n):
    return {"ROWS": 32 if n > 100 else half(n)}


@choice
def half(n):
    return 16 if n > 8 else 8


def test_choices_are_repeated_until_one_does_not_fit():
    with writing(Writing()) as first:
        assert tile(200) == {"ROWS": 32} and half(12) == 16 and half(4) == 8
    assert [name for name, _ in first.outcomes] == ["tile", "half", "half"]
    with writing(Writing(tuple(first.outcomes))) as second:
        tile(9)["ROWS"] = 7  # what is changed is a copy
        assert half(4) == 16 and tile(9) == {"ROWS": 16} and half(4) == 8
    assert second.outcomes[0] == ("tile", {"ROWS": 32})
    assert tile(9) == {"ROWS": 16} and half(4) == 8, "outside nothing is repeated"


def test_a_tile_that_must_cover_its_axis_grows():
    with writing(Writing()) as first:
        assert sources_room.covering(30) == 32
    with writing(Writing(tuple(first.outcomes))):
        assert sources_room.covering(33) == 64
    with writing(Writing(tuple(first.outcomes))):
        assert sources_room.covering(3) == 32
    with writing(Writing(tuple(first.outcomes))):
        assert sources_room.block_for(100, 1, 16) == 16, "never more than the limit"


def test_sizes_that_differ_from_earlier_ones_are_arguments():
    guards = Guards()
    n, m = guards.symbol(8), guards.symbol(3)
    earlier, now = Binding(guards, [8, 3]), Binding(guards, [12, 3])
    sizes = {name: BoundSize(now.size(size), size) for name, size in (("n", n), ("m", m), ("nm", n * m))}
    with writing(Writing(earlier=[earlier])) as made:
        assert shown(sizes["m"]) == "3" and shown(7) == "7" and shown(sizes["n"] - sizes["n"]) == "0"
        assert [shown(sizes["n"] * 4), shown(sizes["nm"], 4), shown(4 * sizes["n"], 2)] == ["size1", "size2", "size1"]
    assert made.arguments == {"size1": (48, 2), "size2": (36, 4)}
    with writing(Writing(earlier=[now])):
        assert shown(sizes["n"]) == "12"
    assert shown(sizes["n"]) == "12"


# -- other sizes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETS)
def test_other_batches_have_the_kernels_that_would_be_written(name, exact):
    batches, shape = batches_of(name, 6)
    for batch in (6, 12, 33, 1, 6):
        for fusion in batches.fusions(shape(batch)):
            check(fusion)


def test_other_lengths_too(exact):
    batches = Batches(call_of(attending(), [(2, 7, 8)], "train"))
    for length in (7, 64, 5):
        for fusion in batches.fusions((2, length, 8)):
            check(fusion)


@pytest.mark.parametrize("name", NETS)
def test_another_batch_is_not_fused(name, fusings):
    batches, shape = batches_of(name, 36)
    batches.fusions(shape(36))
    assert len(fusings) == 2, "forward and backward"
    first = {source.code for source in batches.sources(shape(36))}
    for batch in (48, 24, 99):
        assert batches.fusions(shape(batch))
    assert len(fusings) == 2
    assert {source.code for source in batches.sources(shape(36))} == first
    batches.fusions(shape(1))
    assert len(fusings) > 2, "what broadcasts is another graph, or has other groups"


def test_equal_groups_are_written_once(monkeypatch, exact):
    written, inner = [], other_batches.write_kernels
    monkeypatch.setattr(
        other_batches, "write_kernels", lambda *given, **rest: written.append(given) or inner(*given, **rest)
    )

    def chain(F, x):
        for _ in range(3):
            x = F.softmax(F.sort(x))
        return x

    batches = Batches.of(chain)
    batches.fusions((8, 30))
    written.clear()
    (fusion,) = batches.fusions((9, 30))
    assert len(fusion.groups) == 3 and len(written) == 1
    check(fusion)
    told = [fusion.kernels[group][-1] for group in fusion.groups]
    assert all(one.inputs[0] in group.inputs for one, group in zip(told, fusion.groups, strict=True))


def test_a_smaller_batch_of_images_has_the_binaries_of_the_larger_one():
    batches, target = Batches(call_of(Mixed(), [(128, 2, 8, 8)], "train")), target_of("gfx942")

    def made(batch):
        sources = batches.sources((batch, 2, 8, 8))
        return {request_of(source, target)["key"] for source in sources}, sources

    known, _ = made(128)
    for batch in (96, 64, 48, 32, 33, 126):
        keys, sources = made(batch)
        assert keys <= known, [source.name for source in sources if request_of(source, target)["key"] not in known]


def test_the_kernels_of_another_batch_tell_of_that_batch(monkeypatch, exact):
    use_triton(monkeypatch)

    class Sliced(gluon.HybridBlock):
        def hybrid_forward(self, F, x, w):
            return F.exp(F.slice_axis(x, axis=1, begin=2, end=5)), F.dot(F.tanh(x), w), F.transpose(x)

    def told(net, batch):
        x, w = mx.nd.ones((batch, 12)), mx.nd.ones((12, 6))
        net(x, w)
        program = net._graph_calls.compilations[-1].program
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
        fresh = Sliced(prefix=net.prefix)
        fresh.hybridize(engine="triton")
        assert found == told(fresh, batch)


def test_a_count_that_sizes_decide_is_an_argument_where_no_size_of_the_kernel_tells_it():
    batches = Batches.of(lambda F, x, y: F.broadcast_div(F.square(y), F.sum(F.ones_like(x))), 2)
    texts = []
    for batch in (6, 12, 30):
        (source,) = batches.sources((batch, 5), (7,))
        assert source.sizes == {"n": 7, "count": 5 * batch}
        texts.append(source.code)
    assert len(set(texts)) == 1 and ", count)" in texts[0]
    (source,) = kernels_of(graph_of(lambda F, y: F.square(y) / 30.0, (7,)))[2]
    assert source.sizes == {"n": 7} and ", 30.0)" in source.code, "a number of the user's is part of the text"


def test_from_the_third_text_on_what_varies_is_an_argument(exact):
    batches = Batches.of(lambda F, x: F.transpose(x * 2.0, axes=(1, 0)) + 1.0)
    texts = []
    for n in (6, 8, 10, 12, 33, 1000):
        (found,) = batches.fusions((n, 5))
        check(found)
        ((source,),) = found.kernels.values()
        texts.append(source.code)
    assert len(set(texts)) == 3 == len(set(texts[:3])) and len(set(texts[2:])) == 1
    assert source.sizes == {"n": 5000, "size1": 1000}, "of `offsets // 1000` and `offsets % 1000`"
    assert source.together == {"n": 4, "size1": 4}
    assert '"""2 operators over f32[5,1000]. Here size1 = 1,000."""' in source.text
    assert [batches.sources((n, 5))[0].code for n in (6, 8, 14)] == [texts[0], texts[1], texts[2]]


@pytest.mark.parametrize(
    "compute",
    [
        lambda F, x, y: F.concat(x, y, dim=1) + 1.0,
        lambda F, x, y: F.slice_axis(x * 2.0, axis=0, begin=1, end=None) + F.slice_axis(x, axis=0, begin=0, end=-1),
        lambda F, x, y: F.tile(x * 2.0, reps=(1, 2, 1)) + 1.0,
    ],
    ids=["joined", "cut", "repeated"],
)
def test_where_axes_are_joined_and_cut_varies_too(compute, exact):
    batches, texts = Batches.of(compute, 2), []
    for n, m in ((3, 5), (4, 6), (5, 7), (6, 9), (7, 12), (9, 14)):
        sources = batches.sources((n, m, 4), (n, 3, 4))
        texts += [source.code for source in sources]
    assert len(texts) == 6 and len(set(texts[2:])) == 1


def test_products_have_their_sizes_in_the_text(exact):
    """Their loops would divide by arguments."""

    def convolution(F, x, w):
        return F.Convolution(F.transpose(x, axes=(2, 3, 0, 1)), w, no_bias=True, kernel=(3, 3), num_filter=4)

    batches = Batches.of(convolution, 2)
    for n in (6, 8, 10, 12):
        (found,) = batches.fusions((n, n, 2, 3), (4, 3, 3, 3))
        check(found)
        assert not any(VARYING.search(source.code) for group in found.groups for source in found.kernels[group])


def test_a_count_is_handed_over_anew():
    batches = Batches.of(lambda F, x: F.mean(x, axis=0))
    for n in (7, 14, 35):
        (source,) = batches.sources((n, 5))
        assert source.sizes["columns"] == n and f"{n:,} elements" in source.text


def test_tiles_are_kept_for_sizes_that_are_near():
    def blocks(batches, n):
        return [(dict(source.blocks), source.grid) for source in batches.sources((n, 300), (300, 500))]

    def product(F, x, w):
        return F.dot(x, w)

    batches = Batches.of(product, 2)
    first = blocks(batches, 500)
    assert blocks(batches, 1999) == first
    far = blocks(batches, 2001)
    assert far != first
    assert blocks(Batches.of(product, 2), 2001) == far
    assert blocks(batches, 600) == first and blocks(batches, 1500) == far, "those of the nearest sizes"


def test_what_does_not_fit_any_more_is_refused_anew():
    batches = Batches.of(lambda F, x: F.exp(x) + 1.0)

    def refused(n):
        (found,) = batches.fusions((n, 1 << 20))
        return set(found.refused.values())

    assert not refused(4)
    assert refused(0) == {"an empty array"}
    assert not refused(8)


def test_a_batch_of_2_to_the_31_elements_counts_them_in_int64_and_the_next_one_does_not():
    batches = Batches.of(lambda F, x: F.exp(x) + 1.0)
    small, large, again = (batches.sources((n, 1 << 20))[0] for n in (4, 1 << 11, 4))
    assert "int64" in large.code and large.signature["n"] == "i64"
    assert "int64" not in small.code and again.code == small.code


# -- in the interpreter ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["images", "attention", *(pytest.param(name, marks=pytest.mark.long) for name in ("steps", "encoder"))]
)
def test_results_at_other_batches_are_numpys(name, monkeypatch):
    use_triton(monkeypatch)
    make, shape = NETS[name]
    net = make()
    random = np.random.RandomState(3)
    for batch in (4, 9, 1):
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


def with_data_first(case):
    """The case with its data in the first inputs, as calls have it, and the number of these."""
    roles = [value.node.op.role for value in case.graph.inputs]
    order = sorted(range(len(roles)), key=lambda index: roles[index] != "data")
    graph = case.graph
    inputs = [graph.inputs[index] for index in order]
    graph = Graph(inputs, graph.outputs, graph.effects, graph.draws, graph.name)
    arrays = [case.arrays[index] for index in order]
    return replace(case, graph=graph, arrays=arrays), roles.count("data")


@pytest.mark.parametrize(
    "first", [0, pytest.param(96, marks=pytest.mark.long)]
)  # the graphs of these seeds have kernels with arguments
def test_random_graphs_at_other_sizes(first, monkeypatch):
    """Tile choices of the first sizes, and arguments for all sizes, more than `Writing.varies` asks for and in products
    too: numbers are those of eager calls.
    """
    use_triton(monkeypatch)
    others, with_arguments = 0, []
    inner = other_batches._with_arguments
    monkeypatch.setattr(
        other_batches, "_with_arguments", lambda *given: with_arguments.append(given[0]) or inner(*given)
    )
    for seed in range(first, first + 16):
        case, num_data = with_data_first(random_case(seed))
        specializations = {}
        with monkeypatch.context() as patch:
            patch.setattr(
                test_random_graphs,
                "specialize",
                lambda *call, num_data=num_data, known=specializations: specialize_call(known, *call, num_data),
            )
            patch.setattr(other_batches, "LITERAL", 1)
            if seed % 2:
                use_small_tiles(patch, loops=seed % 4 == 1, split=seed % 3 == 0)
                patch.setattr(other_batches, "_multiplies", lambda kernels: False)
                patch.setattr(Writing, "varies", lambda self, size: bool(self.earlier))
            runs = 0
            for shapes in other_shapes([a.shape for a in case.arrays], num_data, np.random.RandomState(seed)):
                arrays = [np.resize(array, shape) for array, shape in zip(case.arrays, shapes, strict=True)]
                other = replace(case, arrays=arrays)
                try:
                    test_random_graphs.Eager(other, True, True)
                    specialize(case.graph, shapes, [a.dtype for a in arrays], True, case.wrt)
                except (HybridLabError, ValueError, IndexError):  # the graph is not for these sizes
                    continue
                runs += 1
                found = test_random_graphs.problems(other, engines.get("triton"), train=True)
                assert found == [], (seed, shapes)
                if runs == 3:
                    break
            others += runs > 1
    assert others > 2 and with_arguments
