"""The fused update: one program over all weights gives what the loop over them gives, and what it is told of."""

import signal
import threading

import numpy as np
import pytest

from hybrid_lab import autograd, gluon, lr_scheduler, nd, optimizer
from hybrid_lab.engines.numpy.blockwise import BLOCK
from hybrid_lab.hybridize.interrupts import Interrupts
from hybrid_lab.optimizer import fused

SHAPES = [(3, 4), (2 * BLOCK + 5,), (7,)]
SETTINGS = [
    ("sgd", {}),
    ("sgd", {"momentum": 0.9, "wd": 0.01}),
    ("sgd", {"clip_gradient": 0.1, "wd": 0.1}),
    ("nag", {"momentum": 0.9, "wd": 0.01}),
    ("adam", {}),
    ("adam", {"wd": 0.1, "clip_gradient": 0.05}),
    ("adamw", {"wd": 0.1}),
    ("adamw", {"correct_bias": False}),
    ("rmsprop", {"wd": 0.1}),
    ("rmsprop", {"centered": True, "clip_weights": 0.5}),
    ("ftrl", {"wd": 0.1}),
    ("adamax", {"wd": 0.1}),
    ("adagrad", {"wd": 0.1, "clip_gradient": 0.05}),
    ("adadelta", {"wd": 0.1}),
    ("signum", {"wd": 0.1, "wd_lh": 0.1}),
    ("signum", {"momentum": 0.0, "wd": 0.1}),
]


def updated(name, options, fuse, dtype="float32", steps=4):
    """Weights and states after some steps; the updater."""
    rng = np.random.default_rng(0)
    updater = optimizer.get_updater(optimizer.create(name, **options))
    if not fuse:
        updater.fused = lambda *arguments: False
    weights = [nd.array(rng.normal(size=shape), dtype=dtype) for shape in SHAPES]
    for step in range(steps):
        updater.optimizer.rescale_grad = 1 / (1 + step)  # 1, 1/2 and 1/4 are powers of two, 1/3 is none
        gradients = [nd.array(rng.normal(size=shape), dtype=dtype) for shape in SHAPES]
        updater([0, 1, 2], gradients, weights)
    return [weight.asnumpy() for weight in weights], updater.get_arrays(), updater


@pytest.mark.parametrize(("name", "options"), SETTINGS)
def test_one_program_equals_the_loop(name, options):
    loop_weights, loop_states, _ = updated(name, options, fuse=False)
    weights, states, updater = updated(name, options, fuse=True)
    assert updater.fused.refusal == "" and len(updater.fused.programs) == 1
    for one, two in zip(weights, loop_weights, strict=True):
        np.testing.assert_array_equal(one, two)
    for key, values in loop_states.items():
        np.testing.assert_array_equal(states[key], values)


@pytest.mark.parametrize(("name", "options"), SETTINGS)
def test_threads_change_no_bit(name, options, monkeypatch):
    weights, states, _ = updated(name, options, fuse=True)
    monkeypatch.setattr(fused, "SHARED", 1)
    monkeypatch.setattr(fused, "SHARED_BLOCK", 5000)
    monkeypatch.setattr(fused, "thread_count", lambda: 3)
    shared_weights, shared_states, updater = updated(name, options, fuse=True)
    assert repr(updater.fused).endswith("blocks on 3 threads")
    assert all(np.array_equal(one, two) for one, two in zip(shared_weights, weights, strict=True))
    assert all(np.array_equal(shared_states[key], values) for key, values in states.items())


@pytest.mark.filterwarnings("ignore:updating float16 weights")
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_dtypes(dtype):
    options = {"momentum": 0.9, "wd": 0.01}
    for one, two in zip(updated("sgd", options, True, dtype)[0], updated("sgd", options, False, dtype)[0], strict=True):
        assert one.dtype == dtype and np.array_equal(one, two)


def test_float16_weights_with_float32_copies_keep_the_loop():
    _, states, updater = updated("sgd", {"momentum": 0.9, "multi_precision": True}, True, "float16")
    assert updater.fused.refusal == "float16 weights are updated through float32 copies"
    assert states["0.0"].dtype == states["0.1"].dtype == np.float32


def trained(options, name="sgd", count=3):
    weights = []
    for number in range(count):
        weights.append(gluon.Parameter(f"w{number}", shape=(4,), init="ones"))
        weights[-1].initialize()
    return weights, gluon.Trainer(weights, name, {"learning_rate": 0.5, **options})


def backward(weights):
    with autograd.record():
        losses = [(each.data() * 2).sum() for each in weights]
    autograd.backward(losses)


def test_a_schedule_and_a_batch_size_make_no_new_program():
    schedule = lr_scheduler.FactorScheduler(step=1, factor=0.5)
    weights, trainer = trained({"lr_scheduler": schedule, "momentum": 0.9})
    made = set()
    for batch in (3, 5, 6, 7):
        backward(weights)
        trainer.step(batch)
        made.update(trainer._updaters[0].fused.programs)
    assert len(made) == 1


def test_a_batch_size_that_is_a_power_of_two_costs_no_pass():
    weights, trainer = trained({"momentum": 0.9, "wd": 0.1})
    sizes = {}
    for batch in (32, 33):
        backward(weights)
        trainer.step(batch)
        (program,) = trainer._updaters[0].fused.programs
        sizes[batch] = len(str(program).split("in blocks:")[1].strip().splitlines())
    assert sizes == {32: 6, 33: 7}


def test_multipliers_are_groups_of_one_program():
    weights, trainer = trained({"wd": 0.1})
    weights[1].lr_mult, weights[2].wd_mult = 2.0, 0.0
    backward(weights)
    trainer.step(1)
    # 1 - 0.5 * (2 + 0.1), 1 - 1.0 * (2 + 0.1), 1 - 0.5 * 2
    assert [each.data().asnumpy()[0] for each in weights] == pytest.approx([-0.05, -1.1, 0.0], abs=1e-6)
    fused_update = trainer._updaters[0].fused
    assert len(fused_update._arrays.groups) == 3 and len(fused_update.programs) == 2  # with decay, and without


def test_each_weight_has_its_own_count():
    """A weight that was left out of a step is corrected for its own number of updates."""
    results = []
    for fuse in (True, False):
        weights, trainer = trained({}, "adam")
        if not fuse:
            trainer._updaters[0].fused = lambda *arguments: False
        for used in (weights, weights[:1], weights[1:], weights):
            backward(used)
            trainer.step(1, ignore_stale_grad=True)
        results.append([each.data().asnumpy() for each in weights])
        assert trainer.optimizer._index_update_count == {0: 3, 1: 3, 2: 3}
    assert all(np.array_equal(one, two) for one, two in zip(*results, strict=True))


def test_what_replaces_arrays_is_noticed():
    weights, trainer = trained({"momentum": 0.9})
    changes = (
        (lambda: None, ""),
        (lambda: weights[1].reset_ctx(None), ""),
        (lambda: weights[0].cast("float64"), "a state or a gradient has another shape or dtype than its weight"),
        (trainer._updaters[0].states.clear, ""),
    )
    for change, refusal in changes:
        change()
        before = [each.data().asnumpy() for each in weights]
        backward(weights)
        trainer.step(1)
        assert all((each.data().asnumpy() < old).all() for each, old in zip(weights, before, strict=True))
        assert trainer._updaters[0].fused.refusal == refusal


def test_versions_grow_and_objects_stay():
    weights, trainer = trained({"momentum": 0.9})
    arrays = [each.data() for each in weights]
    backward(weights)
    versions = [array.version for array in arrays]
    trainer.step(1)
    assert [array.version for array in arrays] == [version + 1 for version in versions]
    assert all(each.data() is array for each, array in zip(weights, arrays, strict=True))


def test_a_write_to_a_weight_before_backward_is_still_an_error():
    from hybrid_lab.diagnostics import AutogradError

    weights, trainer = trained({})
    with autograd.record():
        loss = sum((each.data() * each.data()).sum() for each in weights)
    loss.backward(retain_graph=True)
    trainer.step(1)
    with pytest.raises(AutogradError, match="written to since"):
        loss.backward()


def test_a_subclass_with_a_rule_of_its_own_is_asked():
    class Doubled(optimizer.SGD):
        def update(self, index, weight, grad, state):
            weight[:] = weight - 2 * self._get_lr(index) * grad

    weights, _ = trained({})
    doubled = gluon.Trainer(weights, Doubled(learning_rate=0.5))
    backward(weights)
    doubled.step(1)
    assert weights[0].data().asnumpy()[0] == -1.0
    assert "Doubled has its own update()" in repr(doubled._updaters[0].fused)


def test_without_an_operator_the_loop_stays_and_says_so():
    class Fixed(optimizer.Optimizer):
        def update(self, index, weight, grad, state):
            weight[:] = weight - self._get_lr(index)

    weights, _ = trained({})
    trainer = gluon.Trainer(weights, Fixed(learning_rate=0.5))
    backward(weights)
    trainer.step(1)
    assert "there is no update operator for it" in repr(trainer._updaters[0].fused)
    assert (weights[0].data().asnumpy() == 0.5).all()


def test_a_weight_without_any_gradient_stays():
    """Adamax divides by the largest gradient so far."""
    weights, trainer = trained({}, "adamax")
    with autograd.record():
        losses = [(each.data() * 0).sum() for each in weights]
    autograd.backward(losses)
    trainer.step(1)
    assert (weights[0].data().asnumpy() == 1).all()


def test_the_program_reads_as_the_rule():
    _, _, updater = updated("sgd", {"momentum": 0.9}, fuse=True, steps=1)
    (program,) = updater.fused.programs
    lines = [line.split("  # ")[0].rstrip() for line in str(program).splitlines()]
    assert lines == [
        "def update(numbers, blocks):",
        "    lr, = numbers",
        "    c0 = array(lr, float32)",
        "    for weight, grad, mom, t0, in blocks:",
        "        multiply(grad, c0, t0)",
        "        multiply(mom, k, mom)",
        "        subtract(mom, t0, mom)",
        "        add(weight, mom, weight)",
    ]


def test_numbers_are_computed_once_and_in_double_precision():
    operator = optimizer.NAG(momentum=0.9).operator()
    graph = fused.update_graph(operator, np.dtype("float32"), ("lr", "rescale_grad"))
    program = fused.write_blockwise(graph)
    assert "s0 = multiply(lr, 1.9)" in str(program)
    arrays = [np.ones(4, "float32") for _ in range(3 + program.scratch)]
    program.run((0.1, 1.0), [arrays])
    # m = 0.9, w = 1 + 0.81 - 0.1 * 1.9, m = 0.9 - 0.1
    assert arrays[0][0] == pytest.approx(1.62) and arrays[2][0] == pytest.approx(0.8)


# -- interrupts ----------------------------------------------------------------------------------------------------


def test_an_interrupt_waits_for_the_end_of_the_step():
    interrupts, reached = Interrupts(), []
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interrupts:
        signal.raise_signal(signal.SIGINT)
        reached.append("the end")
    assert reached == ["the end"]
    assert signal.getsignal(signal.SIGINT) is before
    with interrupts:
        pass
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_nested_blocks_hold_until_the_outer_one_ends():
    interrupts, reached = Interrupts(), []
    with pytest.raises(KeyboardInterrupt), interrupts:
        with interrupts:
            signal.raise_signal(signal.SIGINT)
        reached.append("between")
    assert reached == ["between"]


def test_an_interrupted_step_is_complete(monkeypatch):
    weights, trainer = trained({"momentum": 0.9})
    backward(weights)
    real = fused.FusedUpdate._count

    def interrupted(self, indices):
        signal.raise_signal(signal.SIGINT)
        return real(self, indices)

    monkeypatch.setattr(fused.FusedUpdate, "_count", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trainer.step(1)
    assert all((each.data().asnumpy() == 0.0).all() for each in weights)
    assert trainer.optimizer.num_update == 1


def test_other_threads_step_without_handlers():
    weights, trainer = trained({})
    backward(weights)
    thread = threading.Thread(target=trainer.step, args=(1,))
    thread.start()
    thread.join()
    assert (weights[0].data().asnumpy() == 0.0).all()
