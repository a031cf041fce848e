"""Arrays of 2^31 elements and more: kernels count places in int64; arrays of 2 GiB and more on AMD."""

import re

import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

from hybrid_lab.engines.triton.build.compiling import compile_all, request_of
from hybrid_lab.engines.triton.build.targets import target_of
from hybrid_lab.engines.triton.plan.other_batches import kernels_of
from hybrid_lab.engines.triton.write import body
from hybrid_lab.engines.triton.write.core.product import MOST_PROGRAMS
from tests.engines.test_samples import compare
from tests.engines.test_triton import interpreter  # noqa: F401
from tests.graph.building import graph_of
from tests.ops.cases import CASES

#: 2^32 elements.
ROWS, COLUMNS = 1 << 16, 1 << 16
KINDS = {
    "pointwise": (lambda F, x: F.exp(x) * 2.0, ((ROWS, COLUMNS),)),
    "rows": (lambda F, x: F.softmax(x), ((ROWS, COLUMNS),)),
    "columns": (lambda F, x: F.sum(x, axis=0), ((ROWS, COLUMNS),)),
    "all": (lambda F, x: F.sum(x), ((ROWS, COLUMNS),)),
    "product": (lambda F, x, w: F.dot(x, w), ((1 << 20, 4096), (4096, 64))),
    "product of few rows": (lambda F, x, w: F.dot(x, w, transpose_a=True), ((1 << 20, 4096), (1 << 20, 64))),
    "view": (lambda F, x: F.transpose(F.slice_axis(x, axis=0, begin=1, end=None)) + 1.0, ((ROWS, COLUMNS),)),
    "concat": (lambda F, x, y: F.concat(x, y, dim=1) + 1.0, ((ROWS, 1 << 15), (ROWS, 1 << 15))),
    "take": (lambda F, x, i: F.take(x, i), ((1 << 24, 200), (30,))),
    "take's gradient": (lambda F, dy, x, i: F._take_grad(dy, x, i), ((30, 200), (1 << 24, 200), (30,))),
    "convolution": (
        lambda F, x, w: F.Convolution(x, w, kernel=(3, 3), num_filter=8, no_bias=True),
        ((1 << 12, 8, 256, 320), (8, 8, 3, 3)),
    ),
}


#: Graphs with long axes, which launches could not have as their second or third.
LONG = {
    "columns of a product": (lambda F, x, w: F.dot(x, w), ((4, 64), (64, 3_000_000))),
    "rows of a product": (lambda F, x, w: F.dot(x, w), ((3_000_000, 64), (64, 4))),
    "products": (lambda F, x, w: F.batch_dot(x, w), ((70_000, 4, 8), (70_000, 8, 4))),
    "heads": (
        lambda F, q, k, v: F.batch_dot(F.softmax(F.batch_dot(q, k, transpose_b=True)), v), ((70_000, 32, 16),) * 3
    ),
    "columns of collected rows": (lambda F, dy, x, i: F._take_grad(dy, x, i), ((3, 1 << 26), (4, 1 << 26), (3,))),
    "sums of few rows": (lambda F, x: F.sum(x, axis=1), ((2, 1 << 28),)),
    "sums of many rows": (lambda F, x: F.sum(x, axis=1), ((1 << 26, 8),)),
}  # fmt: skip


def sources(function, shapes):
    _, fusion, kernels = kernels_of(graph_of(function, *shapes))
    refused = {reason for node, reason in fusion.refused.items() if not node.op.view}
    assert not refused, refused
    return kernels


def shapes_of(source):
    return [value.shape for value in (*source.inputs, *source.outputs)]


def positions(source):
    """Where a kernel's places begin, and in which type each is."""
    return re.findall(r"tl\.(?:program_id|arange)\([^()]*\)(\.to\(tl\.int64\))?", source.code)


@pytest.mark.parametrize("kind", KINDS)
def test_places_in_large_arrays_are_in_int64(kind):
    function, shapes = KINDS[kind]
    found = sources(function, shapes)
    large = [source for source in found if any(map(body.is_wide, shapes_of(source)))]
    assert large
    for source in large:
        assert positions(source) and all(positions(source)), source.text
        assert "tl.int32" not in source.code.replace("tl.sum(mine.to(tl.int32), axis=0)", "a count"), source.text
        assert source.far
        for name in source.passed:
            assert source.signature[name] == ("i64" if source.sizes[name] >= 1 << 31 else "i32")


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_for_other_arrays_is_as_before(kind):
    function, shapes = KINDS[kind]
    small = [tuple(min(size, 64) for size in shape) for shape in shapes]
    found = sources(function, small)
    assert not any(any(positions(source)) for source in found)
    assert not any(source.far for source in found)
    types = {source.signature[name] for source in found for name in source.passed}
    assert types <= {"i32"}


@pytest.mark.parametrize("kind", [*KINDS, *LONG])
def test_a_launch_has_room_for_its_programs(kind):
    function, shapes = (KINDS | LONG)[kind]
    kernels = kernels_of(graph_of(function, *shapes))[2]
    assert kernels or kind == "products"  # torch computes so many
    for source in kernels:
        first, *others = source.programs(source.blocks)
        assert first < 1 << 31 and max(others, default=1) <= MOST_PROGRAMS, source.text


@pytest.mark.parametrize("chip", ["sm90", "gfx942"])
@pytest.mark.parametrize("kind", ["pointwise", "columns", "take", pytest.param("product", marks=pytest.mark.long)])
def test_they_compile_ahead_of_time(kind, chip):
    function, shapes = KINDS[kind]
    for binary in compile_all(list(sources(function, shapes)), target_of(chip)):
        assert binary.files


def test_arrays_of_2_gib_are_beyond_the_buffer_instructions_of_amd():
    (source,) = sources(lambda F, x, y: F.broadcast_add(x, y), ((1 << 14, 1 << 15), (1 << 15,)))
    assert source.far == (0, 2) and not any(positions(source))
    assert request_of(source, target_of("gfx942"))["far"] == [0, 2]


NAMES = (
    "broadcast_add", "softmax", "sum", "dot", "batch_dot", "transpose", "Concat", "slice", "take", "_take_grad",
    "gather_nd", "_gather_nd_grad", "scatter_nd", "Embedding", "pick", "Convolution", "Pooling", "BatchNorm",
    "LayerNorm", "argmax", "one_hot", "_np_roll", "SequenceMask", "random_normal", "Pad", "_recurrence",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_kernels_with_int64_give_the_same_numbers(name, monkeypatch):
    monkeypatch.setattr(body, "INT32", 2)
    for case in CASES:
        if case.record.name == name and case.number < 2:
            compare(case, "triton")
