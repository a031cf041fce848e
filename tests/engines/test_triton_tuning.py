"""Tuning: candidates are checked, timed and kept; Triton's interpreter stands in for a GPU, and a function for its
clock.
"""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import torch

import hybrid_lab as mx
from hybrid_lab import engines, nd
from hybrid_lab.diagnostics.errors import EngineError, EngineUnavailable
from hybrid_lab.engines.triton import tuning, tuning_results
from hybrid_lab.engines.triton.build import compiling
from hybrid_lab.engines.triton.kernels import kernels_of_graphs
from hybrid_lab.engines.triton.plan.other_batches import kernels_of
from hybrid_lab.engines.triton.run import availability
from hybrid_lab.engines.triton.run.vendor import VendorKernel, flag_of, vendor_form, with_flag
from hybrid_lab.engines.triton.tuning_results import TILES, VENDOR, TuningResult
from hybrid_lab.engines.triton.write import tiles
from hybrid_lab.gluon import nn
from tests.graph.building import graph_of
from tests.ops.cases import close
from tests.triton_device import ON_GPU, SIMULATED, use_triton

in_the_interpreter = pytest.mark.skipif(ON_GPU, reason="the interpreter takes candidates of any chip")


@pytest.fixture(autouse=True)
def interpreter(monkeypatch, tmp_path):
    use_triton(monkeypatch)
    monkeypatch.setenv("HYBRID_LAB_CACHE", str(tmp_path))
    tuning_results.forget()
    yield
    tuning_results.forget()


class Bench:
    """The interpreter as a device: every candidate runs, and `times` says what the clock shows, one after the other.

    target, chip : for its candidates, and for what it finds; broken : by position, what does not compile
    """

    def __init__(self, times=(), target="sm90", broken=()):
        self.times, self.target, self.chip, self.broken = list(times), target, target, dict(broken)
        self.asked = 0

    def prepare(self, sources):
        return self.broken

    def seconds(self, run):
        self.asked += 1
        return self.times.pop(0) if self.times else 1.0


def tune(graph, *arguments, again=False, **named):
    bench = arguments[0] if arguments else Bench(**named)
    return tuning.tune([graph], lambda target: "ieee", bench, again)


#: What torch's precision of float32 is asked for.
OPS = ("matmul", "conv", "rnn")


def dense(rows=20, inner=40, columns=70, dtype="float32"):
    return graph_of(lambda F, x, w: F.relu(F.dot(x, w) + 1.0), (rows, inner), (inner, columns), dtype=dtype)


def attention():
    def function(F, q, k, v):
        return F.batch_dot(F.softmax(F.batch_dot(q, k, transpose_b=True) * 0.3), v)

    return graph_of(function, (2, 33, 8), (2, 40, 8), (2, 40, 8))


def convolution():
    return graph_of(
        lambda F, x, w: F.relu(F.Convolution(x, w, kernel=(3, 3), pad=(1, 1), num_filter=20, no_bias=True)),
        (2, 3, 6, 5), (20, 3, 3, 3),
    )  # fmt: skip


def split():
    """Programs share the tiles of a long sum."""
    return dense(4, 1100, 5)


def half():
    return dense(dtype="float16")


@in_the_interpreter
@pytest.mark.parametrize(
    ("make", "target"),
    [(dense, "sm90"), (dense, "gfx942"), (dense, "gfx950"), (dense, "gfx1100"), (attention, "sm90")]
    + [(attention, "gfx1100"), (convolution, "gfx942"), (split, "sm90"), (half, "sm90"), (half, "gfx950")],
)
def test_every_candidate_gives_the_numbers_of_the_rule(make, target):
    bench = Bench(target=target)
    (found,) = tune(make(), bench)
    assert not found.result.left_out and found.measured and found.best == "rule"
    assert bench.asked == len(found.result.seconds) >= 2
    assert make is attention or "vendor" in found.result.seconds


@in_the_interpreter
def test_rows_are_tried_with_other_numbers_of_warps():
    (found,) = tune(graph_of(lambda F, x: F.softmax(x), (6, 50)))
    assert found.kind == "rows" and len(found.result.seconds) == 4


@in_the_interpreter
def test_the_fastest_is_kept_and_used_from_then_on(monkeypatch):
    # The rule, then the candidates of the table, then torch.
    (found,) = tune(dense(), times=[1.0, 0.5, 0.9])
    assert found.result.way == TILES and found.gain == 2.0 and f"{found.best} 500000.0 µs" in str(found)
    tuning_results.forget()  # as a process that starts
    (again,) = tune(dense())
    assert not again.measured and again.result == found.result

    monkeypatch.setattr(availability, "device", lambda: availability.Device("sm90", "cpu", True))
    group, kernels = the_group(dense())
    (source,) = tuning.chosen(group, kernels)
    assert source.blocks == found.result.blocks and source.warps == found.result.warps
    # Of other chips and other kernels nothing is known.
    monkeypatch.setattr(availability, "device", lambda: availability.Device("sm80", "cpu", True))
    assert tuning.chosen(group, kernels) == kernels


def test_chips_of_one_architecture_have_choices_of_their_own(monkeypatch):
    properties = SimpleNamespace(name="NVIDIA H200", multi_processor_count=132)
    monkeypatch.setattr(availability, "device", lambda: availability.Device("sm90", "cuda", False))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    assert availability.chip() == "sm90, NVIDIA H200, 132 processors"
    key = tuning_results.key_of(the_group(dense())[1], availability.chip())
    properties.multi_processor_count = 114
    assert tuning_results.key_of(the_group(dense())[1], availability.chip()) != key


def the_group(graph):
    fusion = kernels_of(graph)[1]
    (group,) = fusion.groups
    return group, tuple(fusion.kernels[group])


@in_the_interpreter
def test_sizes_of_about_as_much_share_a_choice():
    target = "sm90"
    keys = [tuning_results.key_of(the_group(dense(rows))[1], target) for rows in (520, 600, 1000, 1040, 512)]
    assert keys[0] != keys[3] != keys[4]
    assert tuning_results.key_of(the_group(dense(600))[1], "gfx942") != keys[1]
    group, kernels = the_group(dense(24))
    choice = TuningResult(TILES, {"ROWS": 128, "COLUMNS": 32, "INNER": 64}, 8, 3)
    (source,) = tuning._form(choice, group, kernels)
    assert source.blocks == {"ROWS": 32, "COLUMNS": 32, "INNER": 64} and source.stages == 3


@in_the_interpreter
def test_torch_is_taken_where_it_was_faster_and_gives_what_the_kernel_gives(monkeypatch):
    graphs = [dense(), convolution(), graph_of(lambda F, x, w: F.dot(F.transpose(x), w), (4, 5), (4, 6))]
    random = np.random.RandomState(0)
    arrays = [[random.randn(*each.shape).astype("float32") for each in graph.inputs] for graph in graphs]
    expected = [engines.get("numpy").compile(graph)(given) for graph, given in zip(graphs, arrays, strict=True)]
    for graph, given, wanted in zip(graphs, arrays, expected, strict=True):
        key = tuning_results.key_of(the_group(graph)[1], availability.device().name)
        tuning_results.remember(key, "kernel", TuningResult(VENDOR))
        executable = engines.get("triton").compile(graph)
        assert "_by_torch" in str(executable.report) and "_by_torch(" in executable.report.program
        close(executable([torch.from_numpy(item.copy()) for item in given]), wanted)
        (kernel,) = kernels_of_graphs({"forward": graph}, tuned=True)[0]
        assert "torch's own product" in str(kernel)
    forms = [vendor_form(*the_group(graph)) for graph in graphs]
    assert [[type(source) is VendorKernel for source in form] for form in forms] == [[True, False]] * 2 + [[True]]


@in_the_interpreter
def test_where_factors_are_computed_on_the_way_torch_is_no_candidate():
    graph = graph_of(lambda F, x, w: F.dot(F.relu(x), w), (20, 40), (40, 70))
    assert vendor_form(*the_group(graph)) is None
    assert "vendor" not in tune(graph)[0].result.seconds


@in_the_interpreter
def test_a_candidate_that_does_not_compile_or_fails_is_left_out(monkeypatch):
    bench = Bench(broken={1: "the kernel could not be compiled:\nmore"})
    (found,) = tune(dense(), bench)
    assert list(found.result.left_out.values()) == ["is not tried: the kernel could not be compiled:"]

    def exhausted(self, tensors):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore")

    def silent(self, tensors):
        raise AssertionError

    monkeypatch.setattr(VendorKernel, "__call__", exhausted)
    (found,) = tune(dense(), again=True)
    assert found.result.left_out == {"vendor": "fails: CUDA out of memory. Tried to allocate 2 GiB"}
    assert "left out vendor" in str(found)
    monkeypatch.setattr(VendorKernel, "__call__", silent)
    (found,) = tune(dense(), again=True)
    assert found.result.left_out == {"vendor": "fails: AssertionError"}


@in_the_interpreter
def test_a_kernel_whose_arrays_do_not_fit_stays_as_it_is(monkeypatch):
    def exhausted(*arguments, **named):
        raise EngineError("the GPU's memory does not suffice")

    monkeypatch.setattr(tuning, "_arrays", exhausted)
    (found,) = tune(dense())
    assert found.result.left_out == {"all": "the GPU's memory does not suffice"} and found.gain == 1.0
    monkeypatch.undo()
    assert tuning_results.recall(tuning_results.key_of(the_group(dense())[1], "sm90")) is None


@in_the_interpreter
def test_a_candidate_with_other_numbers_is_left_out(monkeypatch):
    right = VendorKernel.__call__

    def wrong(self, tensors):
        right(self, tensors)
        tensors[-1].add_(0.01)

    monkeypatch.setattr(VendorKernel, "__call__", wrong)
    (found,) = tune(dense(), times=[1.0] * 20)
    assert found.result.left_out == {"vendor": "gives other numbers"}

    def unsteady(self, tensors):
        right(self, tensors)
        tensors[-1].mul_(1 + 1e-6 * np.random.rand())

    monkeypatch.setattr(VendorKernel, "__call__", unsteady)
    (found,) = tune(dense(), again=True)
    assert found.result.left_out == {"vendor": "gives other numbers from run to run"}


@in_the_interpreter
def test_an_interrupt_keeps_what_was_found():
    graph = graph_of(lambda F, x, w, v: F.dot(F.tanh(F.dot(x, w)), v), (20, 40), (40, 70), (70, 30))

    class Interrupted(Bench):
        def seconds(self, run):
            if self.asked == 8:
                raise KeyboardInterrupt
            return super().seconds(run)

    with pytest.raises(KeyboardInterrupt):
        tune(graph, Interrupted())
    tuning_results.forget()
    found = tune(graph)
    assert [each.measured for each in found].count(False) == 1


@in_the_interpreter
def test_a_damaged_file_is_ignored():
    tune(dense())
    (file,) = tuning_results.TUNED.folder().iterdir()
    file.write_bytes(file.read_bytes().replace(b'"rule"', b'"rude"'))
    tuning_results.forget()
    assert tune(dense())[0].measured


@in_the_interpreter
def test_where_nothing_is_kept_on_disk_this_process_knows(monkeypatch):
    monkeypatch.setenv("HYBRID_LAB_CACHE", "")
    assert tune(dense())[0].measured and not tune(dense())[0].measured


@in_the_interpreter
def test_torchs_flags_are_what_they_were():
    core, names = torch._C, ("cublas_allow_tf32", "cudnn_allow_tf32", "cublas_allow_fp16_reduced_precision_reduction")

    def everything():
        new = getattr(core, "_get_fp32_precision_getter", lambda *of: None)
        return [*(getattr(core, f"_get_{name}")() for name in names), *(new("cuda", op) for op in OPS)]

    anchors = [graph.operators[0] for graph in (dense(), convolution(), half())]
    for anchor, tf32 in itertools.product(anchors, (True, False)):
        flag, before = flag_of(anchor, tf32), everything()

        def fails(flag=flag):
            assert flag.read() == flag.wanted
            everything()  # which torch refuses where its two ways to say tf32 differ
            raise ValueError("in between")

        with pytest.raises(ValueError, match="in between"):
            with_flag(fails, flag)()
        assert everything() == before


@in_the_interpreter
def test_the_interpreter_is_not_timed():
    net = nn.Dense(3, in_units=4)
    net.initialize()
    with pytest.raises(EngineUnavailable, match="say nothing"):
        mx.tune(net, nd.ones((2, 4)))


@in_the_interpreter
def test_a_net_is_tuned_and_recompiled(monkeypatch):
    monkeypatch.setattr(tuning, "GpuBench", lambda: Bench([1.0, 2.0, 2.0, 2.0, 2.0, 0.1], availability.device().name))
    net = nn.HybridSequential()
    net.add(nn.Dense(20, in_units=40, activation="relu"), nn.Dense(3, in_units=20))
    net.initialize()
    net.hybridize(engine="triton")
    x = nd.array(np.random.RandomState(0).randn(5, 40))
    before = net(x).asnumpy()
    found = mx.tune(net, (5, 40))
    assert len(found.kernels) >= 2 and "of 2 kernels" not in repr(found)
    np.testing.assert_allclose(net(x).asnumpy(), before, rtol=1e-5, atol=1e-6)
    assert str(found).startswith("hybridsequential") and found.data()["kernels"][0]["seconds"]


@in_the_interpreter
def test_measuring_a_kernel_keeps_nothing():
    group, kernels = the_group(dense(64, 64, 64))
    choice = tuning.measure(group, kernels, Bench([3.0, 1.0]), ("rule", "vendor"))
    assert choice.way == "vendor" and choice.seconds == {"rule": 3.0, "vendor": 1.0}
    assert tuning_results.is_empty()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "int64", "int8", "uint8"])
def test_candidates_get_the_same_random_numbers_of_every_dtype(dtype):
    """Whole numbers are indices too; where roots and logarithms gave NaN, all numbers are positive."""
    group, kernels = the_group(graph_of(lambda F, x: F.concat(x, x * x, dim=0), (64, 33), dtype=dtype))
    read = {value for source in kernels for value in source.inputs}
    (one,), (other,) = tuning._arrays(read, group).values(), tuning._arrays(read, group).values()
    assert torch.equal(one, other) and str(one.dtype) == f"torch.{dtype}"
    if one.is_floating_point():
        assert (one < 0).any() and len(one[0].unique()) > 25 and one.isfinite().all()
        (positive,) = tuning._arrays(read, group, positive=True).values()
        assert (positive >= 0.09).all()
    else:
        assert set(one.unique().tolist()) == {0, 1}


@in_the_interpreter
def test_candidates_compile_ahead_of_time():
    group, kernels = the_group(dense(64, 64, 64))
    forms = tuning.candidates_of(group, kernels, "gfx90a")
    sources = [form[0] for title, (_, form) in forms.items() if title != "vendor"]
    assert len(sources) > 3
    failed = {}
    compiling.compile_all(sources, "gfx90a", failed)
    assert not failed and len({tuple(source.blocks.items()) for source in sources}) > 2


@in_the_interpreter
def test_the_table_has_six_configurations_at_most_and_no_two_alike():
    for kind, table in tiles._table().items():
        for family in table.keys() - {"of"}:
            rows = list(map(tuple, table[family]))
            assert len(rows) <= 6 and len(set(rows)) == len(rows), kind
            assert {len(row) for row in rows} == {len(table["of"])}


@pytest.mark.skipif(not ON_GPU or SIMULATED, reason="times need a GPU")
def test_a_net_is_tuned_on_this_gpu():
    net = nn.HybridSequential()
    net.add(nn.Dense(256, in_units=512, activation="relu"), nn.Dense(64, in_units=256))
    net.initialize(ctx=mx.gpu(0))
    net.hybridize()
    x = nd.array(np.random.RandomState(0).randn(300, 512), ctx=mx.gpu(0))
    before = net(x).asnumpy()
    found = mx.tune(net, x)
    assert found.kernels and all(each.measured and len(each.result.seconds) > 1 for each in found.kernels)
    np.testing.assert_allclose(net(x).asnumpy(), before, rtol=1e-4, atol=1e-5)
    assert not any(each.measured for each in mx.tune(net, x).kernels)
