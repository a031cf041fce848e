"""Updates on the device: one launch for all weights of one dtype, with the numbers of the host's update."""

import weakref
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import torch

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd, optimizer
from hybrid_lab.engines.launches import launches
from hybrid_lab.engines.memory import copies
from hybrid_lab.engines.triton.build import compiling, internals
from hybrid_lab.engines.triton.run import availability, kernel
from hybrid_lab.engines.triton.run.update import FEW, WHOLE, DeviceStep, DeviceUpdate
from hybrid_lab.optimizer.fused import update_graph
from tests.gluon.test_fused_update import SETTINGS
from tests.triton_device import ON_GPU, use_triton

GPU = mx.gpu(0)
#: Odd, whole, of one element, of none, and of several blocks where tiles are small.
SHAPES = ((3, 7), (4, 16), (1,), (0, 3), (150,), (64,))


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    use_triton(monkeypatch)


@pytest.fixture
def small_blocks(monkeypatch):
    """Several programs for the larger weights."""
    monkeypatch.setattr(kernel, "INTERPRETER_TILE", 64)


class Owner:
    """Stands for a Parameter: multipliers of its own."""

    def __init__(self, lr_mult=1.0, wd_mult=1.0):
        self.lr_mult, self.wd_mult = lr_mult, wd_mult


def updated(ctx, name, options, dtypes=("float32",), steps=3, shapes=SHAPES):
    """Weights and states after some steps, and the updater. Weights have multipliers and dtypes of their own."""
    random = np.random.default_rng(0)
    updater = optimizer.get_updater(optimizer.create(name, **options))
    owners = [Owner(1.0 + number % 3, number % 2) for number in range(len(shapes))]
    updater.optimizer.param_dict = dict(enumerate(owners))
    kinds = [dtypes[number % len(dtypes)] for number in range(len(shapes))]
    pairs = list(zip(shapes, kinds, strict=True))
    weights = [nd.array(random.normal(size=shape), dtype=dtype, ctx=ctx) for shape, dtype in pairs]
    for step in range(steps):
        updater.optimizer.rescale_grad = 1 / (1 + step)
        gradients = [nd.array(random.normal(size=shape), dtype=dtype, ctx=ctx) for shape, dtype in pairs]
        updater(list(range(len(shapes))), gradients, weights)
    return [each.asnumpy() for each in weights], updater.get_arrays(), updater


def same_bits(name, options, tolerance=0.0, **others):
    tolerance = max(tolerance, 1e-5 if ON_GPU else 0.0)  # a GPU joins products and sums
    found, states, updater = updated(GPU, name, options, **others)
    expected, expected_states, _ = updated(mx.cpu(), name, options, **others)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)
    assert states.keys() == expected_states.keys()
    for key, values in expected_states.items():
        np.testing.assert_allclose(states[key], values, rtol=0, atol=tolerance / 100)
    assert updater.fused.refusal == ""
    return updater.fused


@pytest.mark.parametrize(("name", "options"), SETTINGS)
def test_all_weights_are_one_launch_with_the_bits_of_the_host(name, options, small_blocks):
    before = launches.snapshot()["kernels"]
    fused = same_bits(name, options)
    assert launches.snapshot()["kernels"] - before == 3
    assert "1 launch of" in repr(fused) and "tables written 1 time" in repr(fused)


def test_each_dtype_is_a_launch(small_blocks):
    fused = same_bits("sgd", {"momentum": 0.9, "wd": 0.1}, dtypes=("float32", "float64"))
    assert "2 launches of sgd_mom_update" in repr(fused)


@pytest.mark.parametrize(("name", "options"), SETTINGS)
def test_float16_weights_with_float32_copies(name, options, small_blocks):
    """The host goes weight by weight there; float32 weights beside them have a launch of their own."""
    options = {**options, "multi_precision": True}
    # Nesterov's record adds in another order than its loop: a weight of float16 may be rounded to its neighbour.
    fused = same_bits(name, options, 1e-3 if name == "nag" else 0.0, dtypes=("float16", "float32"))
    assert "2 launches of" in repr(fused)


@pytest.mark.each_value
@pytest.mark.filterwarnings("ignore:updating")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("name", "options"),
    [*SETTINGS, ("adam", {"learning_rate": 1e-3}), ("sgd", {"learning_rate": 1e-5}), ("adamw", {"wd": 1e-4})],
)
def test_half_precision_weights_are_updated_in_float32_and_rounded(name, options, dtype, small_blocks):
    """On the host, too: learning rates and epsilon are no numbers of float16, 1 - lr * wd is 1 in bfloat16."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    found, states, updater = updated(GPU, name, options, dtypes=(dtype,))
    expected, expected_states, on_host = updated(mx.cpu(), name, options, dtypes=(dtype,))
    step = 2e-3 if dtype == "float16" else 1e-2  # a number may be rounded to the neighbour
    for one, other in zip([*found, *states.values()], [*expected, *expected_states.values()], strict=True):
        one, other = (item.astype("float64") for item in (one, other))
        assert np.isfinite(other).all()
        np.testing.assert_allclose(one, other, rtol=step, atol=1e-6)
    assert updater.fused.refusal == ""
    assert on_host.fused.refusal == f"{dtype} weights are updated in float32 one by one, and rounded"


def test_half_precision_gradients_on_the_host_go_weight_by_weight():
    _, _, updater = updated(mx.cpu(), "sgd", {"multi_precision": True}, dtypes=("float16",))
    assert updater.fused.refusal == "float16 weights are updated through float32 copies"


def test_many_weights_with_numbers_of_their_own(small_blocks):
    """More numbers than are filled in one by one."""
    count = 3 * FEW
    fused = same_bits("adam", {"wd": 0.01}, shapes=[(number,) for number in range(1, count)], steps=2)
    assert "1 launch of adam_update" in repr(fused)


def test_memory_that_has_moved_is_written_into_the_tables():
    weights = []
    for number in range(3):
        weights.append(gluon.Parameter(f"w{number}", shape=(20 + number,), init="ones"))
        weights[-1].initialize(ctx=GPU)
    trainer = gluon.Trainer(weights, "sgd", {"learning_rate": 0.5, "momentum": 0.5})

    def step():
        with autograd.record():
            losses = [(each.data(GPU) * 2).sum() for each in weights]
        autograd.backward(losses)
        trainer.step(1)

    step()
    step()
    assert "tables written 1 time" in trainer.updates[0]
    values = [each.data(GPU).asnumpy() for each in weights]
    weights[1].set_data(nd.zeros((21,), ctx=GPU))
    weights[0].data(GPU).buffer.device = weights[0].data(GPU).buffer.device.clone()
    moved = weights[2].data(GPU).buffer.device
    weights[2].data(GPU).buffer.device = torch.cat([moved[:1], moved])[1:]  # not at a multiple of 16 bytes
    step()
    assert "tables written 2 times" in trainer.updates[0]
    # The momentum after three steps of gradient 2: -1, -1.5, -1.75.
    for each, start in zip(weights, (values[0], 0 * values[1], values[2]), strict=True):
        np.testing.assert_array_equal(each.data(GPU).asnumpy(), start - 1.75)
    weights[0].reset_ctx([GPU])
    step()
    assert all((each.data(GPU).asnumpy() < 0).all() for each in weights)


def test_rates_are_filled_in_and_nothing_is_copied():
    step = made([("lr",)], [0, 0, 0], [zeros(8), zeros(8), zeros(5)])
    before = copies.snapshot()["to_device"], launches.snapshot()["others"]
    for rate in (0.1, 0.2, 0.2):
        step.set_numbers([[rate]])
        step()
    assert (copies.snapshot()["to_device"], launches.snapshot()["others"] - 2) == before


def graphs(*numbers):
    sgd = optimizer.SGD(momentum=0.9)
    return [update_graph(sgd.operator(), np.dtype("float32"), names) for names in numbers]


def zeros(size):
    return torch.zeros(size, device=availability.torch_device())


def made(numbers, groups, weights):
    update = DeviceUpdate(graphs(*numbers))
    rows = [[weight, torch.ones_like(weight), torch.zeros_like(weight)] for weight in weights]
    return DeviceStep(update, list(range(len(numbers))), groups, rows)


def test_a_weight_follows_its_own_rule():
    weights = [zeros(40) + 1, zeros(40) + 1, zeros(3) + 1]
    step = made([("lr",), ("lr", "wd")], [0, 1, 1], weights)
    step.set_numbers([[0.5], [0.25, 2.0]])
    step()
    for weight, expected in zip(weights, (0.5, 0.25, 0.25), strict=True):
        np.testing.assert_array_equal(weight.cpu(), np.full(weight.shape, expected, "float32"))


def test_weights_without_elements_launch_nothing():
    before = launches.snapshot()
    step = made([("lr",)], [0], [zeros(0)])
    step.set_numbers([[0.1]])
    step()
    assert step.blocks == 0 and launches.snapshot()["kernels"] == before["kernels"]


class Handle:
    """Stands for a compiled kernel: notes how it is launched."""

    packed_metadata, function = "metadata", "function"

    def __init__(self):
        self.calls = []

    def run(self, *arguments):
        self.calls.append(arguments)


@pytest.mark.skipif(ON_GPU, reason="stands in for a GPU")
def test_a_launch_on_a_gpu_takes_three_tables(monkeypatch):
    handle = Handle()
    device = availability.Device("sm90", "cpu", False)
    monkeypatch.setattr(availability, "device", lambda: device)
    monkeypatch.setattr(kernel, "device", lambda: device)
    monkeypatch.setattr(compiling, "load", lambda source: handle)
    monkeypatch.setattr(internals, "current_stream", lambda: SimpleNamespace(cuda_stream=77, device_index=0))
    step = made([("lr",)], [0, 0], [torch.zeros(1024), torch.zeros(2049)])
    step()
    step()
    assert len(handle.calls) == 2 and handle.calls[0] == handle.calls[1]
    x, y, z, stream, function, metadata, *_, weights, blocks, numbers, block = handle.calls[0]
    assert (x, y, z, stream, function, metadata, block) == (4, 1, 1, 77, "function", "metadata", 1024)
    assert all(type(address) is int for address in (weights, blocks, numbers))
    assert step._weights[:, :3].tolist() == [[0, 0, 1024], [1, 0, 2049]]


@pytest.mark.skipif(ON_GPU, reason="stands in for a GPU")
def test_a_bound_launch_keeps_the_memory_of_its_tensors(monkeypatch):
    """It knows addresses only, and torch would give the memory behind them to others."""
    device = availability.Device("sm90", "cpu", False)
    monkeypatch.setattr(kernel, "device", lambda: device)
    monkeypatch.setattr(compiling, "load", lambda source: Handle())
    update = DeviceUpdate(graphs(("lr",)))
    tables = [torch.zeros(8) for _ in range(3)]
    held = [weakref.ref(tensor) for tensor in tables]
    launch = kernel.Kernel(update.for_elements(8)).bound(tables)
    del tables
    assert all(tensor() is not None for tensor in held)
    del launch
    assert not any(tensor() is not None for tensor in held)


def test_an_update_of_a_large_weight_counts_in_int64():
    update = DeviceUpdate(graphs(("lr",)))
    small, large = (update.for_elements(size).code.split("@triton.jit")[-1] for size in ((1 << 31) - 1, 1 << 31))
    assert "int64" not in small and "int32" not in large and large.count(".to(tl.int64)") == 2
    (binary,) = compiling.compile_all([update.for_elements(1 << 31)], "sm90")
    assert binary.files


@pytest.mark.parametrize("target", ["gfx942", "sm90"])
def test_whole_weights_are_read_sixteen_bytes_at_a_time(target):
    update = DeviceUpdate(graphs(("lr",), ("lr", "wd")))
    (binary,) = compiling.compile_all([update.for_elements(4096)], target)
    wide = {"gfx942": ("global_load_dwordx4", "global_store_dwordx4"), "sm90": ("ld.global.v4", "st.global.v4")}
    assert all(text in binary.assembly for text in wide[target])
    assert binary.resources.spills == 0 and WHOLE == 16
