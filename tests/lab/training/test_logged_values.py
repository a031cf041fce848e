"""Every value that `mx.log` takes counts: in which forms it comes, from where, and what stays of it."""

import json
import math
import threading
from decimal import Decimal
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd
from hybrid_lab.gluon.step import boundary
from hybrid_lab.lab.messages.connection import PROTOCOL
from hybrid_lab.lab.training import logged
from hybrid_lab.lab.training import run as runs_of_cells
from hybrid_lab.lab.training.current import runs
from hybrid_lab.lab.training.curves import run_data
from hybrid_lab.lab.training.html import run_html
from hybrid_lab.lab.training.logged import RING
from hybrid_lab.lab.training.run import MORE_NAMES, NAMES, WAITING
from hybrid_lab.lab.training.series import LIMIT, SPANS, Series
from tests.lab.kernel_process import Kernel
from tests.lab.training.test_training import small_training


class Torch:
    """torch as it is used below; a test that asks for it is skipped where it is not installed."""

    def __getattr__(self, name):
        return getattr(pytest.importorskip("torch"), name)


torch = Torch()


@pytest.fixture(autouse=True)
def fresh_runs():
    """No run is under way, and none came before."""
    runs.finish()
    runs.kept.clear()
    yield
    runs.finish()
    runs.kept.clear()
    assert boundary.listeners == []


def curve(name="loss"):
    return next(each for each in run_data(runs.under_way())["curves"] if each["name"] == name)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint8", "bool", ml_dtypes.bfloat16])
def test_means_of_many_arrays_are_those_of_each_to_the_last_bit(dtype):
    random = np.random.RandomState(0)
    arrays = [random.normal(size=size) * 50 for size in (*range(1, 40), 127, 128, 129, 1023, 1024) * 3]
    arrays += [np.full((2, 3), math.nan), np.full(4, math.inf), np.array([math.inf, -math.inf]), np.array(7.0)]
    with np.errstate(invalid="ignore"):
        arrays = [array.astype(dtype) for array in arrays]
    random.shuffle(arrays)
    data = [(array.tobytes(), array.dtype) for array in arrays]
    np.testing.assert_array_equal(logged.means_of(data), [logged.mean_of(array) for array in arrays])


def test_many_logged_arrays_are_averaged_at_once(monkeypatch):
    products = []
    original = np.vecdot
    monkeypatch.setattr(np, "vecdot", lambda *arrays: (products.append(len(arrays[0])), original(*arrays))[1])
    run, length = runs.under_way(), 3 * WAITING + 5
    run.due = math.inf  # nothing is drawn meanwhile
    for step in range(length):
        mx.log(loss=mx.nd.full((8,), step))
    assert products == [WAITING] * 3
    assert curve()["count"] == length and products == [*[WAITING] * 3, 5]


# -- series -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [1, 7, WAITING])
@pytest.mark.parametrize("length", [0, 1, 2, LIMIT - 1, LIMIT, LIMIT + 1, 3 * LIMIT, 10_000, 100_003])
def test_a_series_of_any_length_keeps_every_extreme_and_its_course(length, at_once):
    series, values = Series(), np.random.RandomState(0).rand(length)
    for begin in range(0, length, at_once):
        own = values[begin : begin + at_once].tolist()
        series.extend(range(begin + 1, begin + 1 + len(own)), own)
    buckets = series.buckets
    assert len(buckets) == len(series) <= LIMIT and (length < LIMIT or len(buckets) >= LIMIT / 2)
    place = 0
    for bucket in buckets:  # each bucket is what NumPy says of its values, and together they are all values
        own = values[place : place + bucket.number]
        assert (bucket.start, bucket.step) == (place + 1, place + bucket.number)
        assert (bucket.low, bucket.high, bucket.first, bucket.last) == (own.min(), own.max(), own[0], own[-1])
        assert bucket.mean == pytest.approx(own.mean(), rel=1e-9)
        place += bucket.number
    assert place == length == series.count


@pytest.mark.parametrize("at_once", [1, 2, 3, 4, 9])
def test_a_series_has_the_place_of_every_value_that_is_not_finite(at_once):
    series = Series()
    values = [1.0, math.nan, math.nan, 2.0, math.inf, -math.inf, -math.inf, math.nan, 3.0]
    for begin in range(0, len(values), at_once):
        series.extend(range(begin + 1, len(values) + 1)[:at_once], values[begin : begin + at_once])
    assert series.spans == [("NaN", 2, 3, 2), ("inf", 5, 5, 1), ("-inf", 6, 7, 2), ("NaN", 8, 8, 1)]
    assert (series.count, series.not_finite, len(series), series.last) == (9, 6, 3, 3.0)


@pytest.mark.parametrize("kinds", [(1.0, 2.5), (math.nan, 1.0), (math.inf, -math.inf, math.nan, 1e308, -1e308)])
def test_values_that_come_at_once_give_what_each_of_them_gives(kinds):
    random = np.random.RandomState(0)
    for _ in range(20):
        values = random.choice(kinds, random.randint(1, 3000)).tolist()
        one, many = Series(), Series()
        for step, value in enumerate(values, 1):
            one.extend([step], [value])
        begin = 0
        while begin < len(values):
            own = values[begin : begin + random.randint(1, 300)]
            many.extend(range(begin + 1, begin + 1 + len(own)), own)
            begin += len(own)
        for name in ("count", "not_finite", "unplaced", "last", "last_step", "spans"):
            np.testing.assert_equal(getattr(one, name), getattr(many, name))
        assert [each._replace(mean=0.0) for each in one.buckets] == [each._replace(mean=0.0) for each in many.buckets]
        means = [each.mean for each in many.buckets]
        assert means == pytest.approx([each.mean for each in one.buckets], rel=1e-9, abs=1e-9 * max(map(abs, means)))


def test_places_of_values_that_are_not_finite_are_bounded_and_the_rest_is_counted():
    for step in range(1, 2 * (SPANS + 50) + 1):
        mx.log(loss=math.nan if step % 2 else 1.0)
    seen = curve()
    assert (len(seen["bad"]), seen["bad_count"]) == (SPANS, SPANS + 50)
    assert seen["bad_text"].startswith("NaN at step 1, 3, 5, ") and seen["bad_text"].endswith(", and 230 values more")


def test_a_span_that_lasts_is_one_place():
    for step in range(5000):
        mx.log(loss=1.0 if step < 57 else math.nan)
    assert curve()["bad"] == [{"what": "NaN", "first": 58, "last": 5000, "count": 4943}]
    assert curve()["bad_text"] == "NaN at step 58 to 5000" and "NaN at step 58 to 5000" in run_html(
        run_data(runs.current)
    )


@pytest.mark.parametrize("values", [[1.7e308, -1.7e308] * 300, [1.7e308] * 500, [5e-324] * 500])
def test_the_mean_of_numbers_of_any_size_is_finite(values):
    for value in values:
        mx.log(loss=value)
    assert all(math.isfinite(mean) for mean in curve()["means"])
    assert "nan" not in run_html(run_data(runs.current)).replace("data-", "")


# -- values -----------------------------------------------------------------------------------------------------------

FORMS = {
    "float": (0.5, 0.5),
    "int": (3, 3.0),
    "huge int": (10**400, math.inf),
    "negative huge int": (-(10**400), -math.inf),
    "bool": (True, 1.0),
    "Fraction": (Fraction(1, 4), 0.25),
    "Decimal": (Decimal("0.125"), 0.125),
    "np.float64": (np.float64(0.1), 0.1),
    "np.float32": (np.float32(0.5), 0.5),
    "np.float16": (np.float16(0.5), 0.5),
    "np.int8": (np.int8(-3), -3.0),
    "np.uint64": (np.uint64(2**63), 2.0**63),
    "np.bool": (np.bool_(True), 1.0),
    "0-dim": (np.array(0.25), 0.25),
    "1 element": (np.array([[0.25]], "float32"), 0.25),
    "many": (np.arange(10, dtype="int32"), 4.5),
    "many of float16": (np.full(5000, 60000, "float16"), 60000 - 60000 % 32),
    "bools": (np.array([True, False, False, False]), 0.25),
    "not contiguous": (np.arange(12.0).reshape(3, 4)[:, ::2].T, 5.0),
    "reversed": (np.arange(4.0)[::-1], 1.5),
    "big-endian": (np.array([1.0, 2.0], ">f4"), 1.5),
    "bfloat16": (np.array([1.0, 2.0], ml_dtypes.bfloat16), 1.5),
    "bfloat16 scalar": (ml_dtypes.bfloat16(1.5), 1.5),
    "list": ([1.0, 2.0, 6.0], 3.0),
    "tuple": ((1, 2), 1.5),
    "NaN": (math.nan, math.nan),
    "array with NaN": (np.array([1.0, math.nan]), math.nan),
    "inf and -inf": (np.array([math.inf, -math.inf]), math.nan),
    "many with inf": (np.array([1.0] * 5000 + [math.inf]), math.inf),
    "float32 beyond its range": (np.full(4, 3e38, "float32"), float(np.float32(3e38))),
    "NDArray": (lambda: mx.nd.array([1.0, 2.0, 6.0]), 3.0),
    "NDArray of one": (lambda: mx.nd.array([2.5]), 2.5),
    "NDArray of whole numbers": (lambda: mx.nd.array([1, 2], dtype="int32"), 1.5),
    "NDArray of float16": (lambda: mx.nd.array([1, 2], dtype="float16"), 1.5),
    "view": (lambda: mx.nd.array([[1.0, 2.0], [3.0, 5.0]])[1], 4.0),
    "mx.np": (lambda: mx.np.array([1.0, 2.0]), 1.5),
    "mx.np scalar": (lambda: mx.np.array(0.5), 0.5),
    "row_sparse": (lambda: mx.nd.array([[0.0, 0.0], [1.0, 3.0]]).tostype("row_sparse"), 1.0),
    "csr": (lambda: mx.nd.array([[0.0, 0.0], [1.0, 3.0]]).tostype("csr"), 1.0),
    "list of NDArrays": (lambda: [mx.nd.array([1.0]), mx.nd.array([3.0])], 2.0),
    "torch scalar": (lambda: torch.tensor(0.5), 0.5),
    "torch with gradient": (lambda: torch.tensor([0.5, 1.0], requires_grad=True), 0.75),
    "torch bfloat16": (lambda: torch.tensor([0.5, 1.0], dtype=torch.bfloat16), 0.75),
    "torch bool": (lambda: torch.tensor([True, False]), 0.5),
    "torch int": (lambda: torch.tensor(7), 7.0),
    "torch sparse": (lambda: torch.eye(2).to_sparse(), 0.5),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("form", FORMS)
def test_a_value_of_each_form(form):
    value, expected = FORMS[form]
    mx.log(loss=value() if callable(value) else value)
    runs.current.take()
    assert runs.current.series["loss"].last == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(("value", "kind"), [
    ("high", "str"),
    (None, "NoneType"),
    (1j, "complex"),
    (np.array([1j]), "ndarray of complex128"),
    (np.array(["a"]), "ndarray of <U1"),
    (np.array("2020-01-01", "datetime64[D]"), r"ndarray of datetime64\[D\]"),
    (np.zeros(2, [("a", int)]), "ndarray of "),
    (np.zeros(0), "an empty array"),
    ([], "an empty array"),
    ([[1], [1, 2]], "list"),
    ({}, "dict"),
    (lambda: torch.zeros(0), "an empty array"),
    (lambda: torch.zeros(2, dtype=torch.complex64), "a tensor of torch.complex64"),
    (lambda: torch.zeros(2, device="meta"), "a tensor without values"),
    (object(), "object"),
])  # fmt: skip
def test_what_is_no_number_is_refused_at_once_and_nothing_of_the_call_is_taken(value, kind):
    with pytest.raises(TypeError, match=f"for 'loss', not {kind}"):
        mx.log(accuracy=1.0, loss=value() if callable(value) else value)
    assert runs.current is None or not runs.current.series


def test_an_array_that_is_written_to_later_was_read_before():
    total, host = mx.nd.zeros((4,)), np.zeros(4)
    for _ in range(300):
        total += 1
        host += 1
        mx.log(total=total, host=host)
    for name in ("total", "host"):
        assert (curve(name)["lows"][0], curve(name)["highs"][-1], curve(name)["count"]) == (1.0, 300.0, 300)


def test_a_name_logged_twice_in_a_step_has_both_values():
    _, _, step = small_training()
    for number in range(3):
        step()
        mx.log(loss=number)
        mx.log(loss=number + 10)
    seen = curve()
    assert (seen["steps"], seen["means"]) == ([1, 1, 2, 2, 3, 3], [0.0, 10.0, 1.0, 11.0, 2.0, 12.0])


def test_values_before_between_and_after_loops():
    mx.log(loss=0)
    for number in mx.lab.progress(range(3)):
        mx.log(loss=number)
    mx.log(loss=-1)
    list(mx.lab.progress(range(2)))
    mx.log(loss=-2)
    assert curve()["means"] == [0, 0, 1, 2, -1, -2] and curve()["steps"] == [1, 2, 3, 4, 5, 6]


def test_values_after_the_last_step_of_a_trainer_are_drawn():
    """The first value after a step draws nothing, since the step could; later values, as of a long validation, draw."""
    _, _, step = small_training()
    drawn = []
    mx.log(loss=step())
    run = runs.under_way()
    run.views = [lambda run: drawn.append(curve("accuracy")["count"])]
    mx.log(accuracy=0.0)
    for count in (2, 3, 4):
        run.due = -math.inf
        mx.log(accuracy=1.0)
        assert drawn[-1] == count


def test_values_of_several_threads():
    def train(number):
        for step in range(2000):
            mx.log(**{f"loss{number}": step, "all": step, "bad": math.nan if step == 1000 else 1.0})

    threads = [threading.Thread(target=train, args=(number,)) for number in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for number in range(6):
        own = curve(f"loss{number}")
        assert (own["count"], own["lows"][0], own["highs"][-1], own["lasts"][-1]) == (2000, 0.0, 1999.0, 1999.0)
    assert curve("all")["count"] == sum(curve("all")["counts"]) == 12_000
    assert (curve("bad")["bad_count"], curve("bad")["count"]) == (6, 12_000)


def test_values_before_the_steps_of_a_trainer_do_not_go_back():
    for _ in range(5):
        mx.log(loss=1.0)
    _, _, step = small_training()
    for _ in range(8):
        step()
        mx.log(loss=2.0)
    assert curve()["steps"] == [1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 6, 7, 8] and curve()["count"] == 13


def test_the_first_step_counts_although_it_came_before_the_first_value():
    _, _, step = small_training()
    for _ in range(4):
        mx.log(loss=step())
    assert curve()["steps"] == [1, 2, 3, 4]


def test_two_trainings_in_one_cell_go_on_counting():
    """The second Trainer is followed when it steps alone, also if the first one is still alive."""
    (_, one, first), (_, two, second) = small_training(), small_training()
    for step in (first, second):
        for _ in range(30):
            mx.log(loss=step())
    assert curve()["count"] == 60 and len(set(curve()["steps"])) >= 60 - runs_of_cells.OTHER_STEPS
    assert one is not two


def test_two_trainers_that_take_turns_are_counted_once():
    (_, _, critic), (_, _, generator) = small_training(), small_training()
    for _ in mx.lab.progress(range(20)):
        generator()
        for _ in range(5):
            critic()
        mx.log(loss=1.0)
    assert curve()["last_step"] == 20


def test_every_step_of_a_trainer_has_its_learning_rate_and_time():
    _, trainer, step = small_training()
    for number in mx.lab.progress(range(1500)):
        trainer.set_learning_rate(1 / (1 + number))
        step()
    rate, norm = curve("learning rate"), curve("gradient norm")
    assert (rate["count"], rate["highs"][0], rate["lows"][-1]) == (1500, 1.0, pytest.approx(1 / 1500))
    assert curve("step time")["count"] == 1499  # the first one has no beginning
    assert norm["count"] == sum(norm["counts"])
    assert norm["note"] == (f"measured at {norm['count']:,} of 1,500 steps" if norm["count"] < 1500 else "")


@pytest.mark.parametrize(("after", "last_step"), [("nothing", 30), ("zero_grad", 2), ("backward", 2)])
def test_the_norm_is_measured_at_the_last_step_unless_the_gradients_are_others(monkeypatch, after, last_step):
    monkeypatch.setattr(runs_of_cells, "NORM_SHARE", 10**9)
    net, _, step = small_training()
    for _ in mx.lab.progress(range(30)):
        step()
    if after == "zero_grad":
        net.zero_grad()
    if after == "backward":
        with autograd.record():
            loss = net(mx.nd.ones((2, 4))).sum()
        loss.backward()
    run = runs.current
    runs.finish()
    norm = next(each for each in run_data(run)["curves"] if each["name"] == "gradient norm")
    assert (norm["last_step"], norm["note"]) == (last_step, f"measured at {norm['count']} of 30 steps")


def test_a_failing_norm_loses_no_step(monkeypatch):
    def broken(trainer):
        raise RuntimeError("no gradient")

    monkeypatch.setattr(runs_of_cells, "gradient_norm", broken)
    _, _, step = small_training()
    for number in mx.lab.progress(range(20)):
        step()
        mx.log(loss=number)
    assert curve()["steps"] == list(range(1, 21)) and curve("learning rate")["count"] == 20


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("no"), None])
def test_values_of_a_cell_that_ended_by_an_error(error):
    run = runs.under_way()
    for number in range(400):
        mx.log(loss=math.nan if number in (57, 58, 59) else number)
    runs.finish(error)
    (seen,) = run_data(run)["curves"]
    assert (seen["count"], seen["last_step"], seen["highs"][-1]) == (400, 400, 399.0)
    assert seen["bad"] == [{"what": "NaN", "first": 58, "last": 60, "count": 3}]


def test_a_value_that_a_thread_logs_while_the_cell_ends_is_there():
    run = runs.under_way()
    mx.log(loss=1.0)
    runs.finish()
    run.log({"loss": 2.0})
    assert run.series["loss"].count == 2


def test_names_beyond_the_bound_are_counted_and_take_no_memory():
    for number in range(5000):
        mx.log(**{f"value{number}": 1.0})
    run = runs.current
    run.take()
    assert (len(run.series), len(run.left_out)) == (NAMES, MORE_NAMES)
    assert run.note == "A run keeps 32 curves: at least 1,000 names more were logged."


# -- values on a GPU --------------------------------------------------------------------------------------------------


class Gpu:
    """A GPU of torch that is behind: what is launched is done when `finish` is called."""

    def __init__(self, monkeypatch):
        self.done, self.launched, self.waits = 0, 0, 0
        gpu = self

        class Later(logged.OnDevice):
            __slots__ = ("_number",)

            def __init__(self, tensor):
                super().__init__(tensor)
                gpu.launched += 1
                self._number = gpu.launched

            @property
            def is_ready(self):
                return self._number <= gpu.done

            def read(self):
                gpu.waits += self._number > gpu.done
                gpu.done = max(gpu.done, self._number)
                return super().read()

        monkeypatch.setattr(logged, "OnDevice", Later)

    def array(self, values):
        """An NDArray whose numbers are on the GPU."""
        return mx.nd.NDArray.wrap_device(torch.tensor(values), mx.cpu())


def test_values_on_a_gpu_are_read_later_without_waiting(monkeypatch):
    gpu = Gpu(monkeypatch)
    for number in range(RING):
        mx.log(loss=gpu.array([float(number)]))
    runs.current.take()
    assert (gpu.waits, gpu.launched) == (0, RING) and curve()["count"] == 0
    mx.log(loss=gpu.array([-1.0]))  # one more: the oldest is read
    runs.current.take()
    assert gpu.waits == 1 and curve()["count"] == 1
    gpu.done = 100
    mx.log(loss=gpu.array([-2.0]))
    assert gpu.waits == 1 and curve()["count"] == 100
    run = runs.current
    runs.finish()
    (seen,) = run_data(run)["curves"]
    assert (seen["count"], seen["steps"][-1], seen["lows"][-1], max(seen["highs"])) == (RING + 2, RING + 2, -2.0, 255.0)


def test_a_value_on_a_gpu_is_that_of_its_time_and_order(monkeypatch):
    gpu = Gpu(monkeypatch)
    array = gpu.array([0.0, 2.0])
    for number in range(5):
        array[:] = number
        mx.log(loss=gpu.array([float(number)]) if number % 2 else float(number), other=1.0)
    assert curve("other")["count"] == 5 and curve()["means"] == [0.0]  # what comes after a value that waits, waits too
    gpu.done = 10
    runs.current.show_all()
    assert curve()["means"] == [0.0, 1.0, 2.0, 3.0, 4.0] and curve()["steps"] == [1, 2, 3, 4, 5]


def test_values_that_the_gpu_lost_are_counted(monkeypatch):
    class Broken(logged.OnDevice):
        __slots__ = ()
        is_ready = False

        def read(self):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    gpu = Gpu(monkeypatch)
    monkeypatch.setattr(logged, "OnDevice", Broken)
    for _ in range(3):
        mx.log(loss=gpu.array([1.0]))
    run = runs.current
    runs.finish(RuntimeError("CUDA error"))
    assert run.note == "3 values could not be read from the GPU."


def test_a_tensor_on_a_device_without_events_is_copied_there():
    tensor = torch.tensor([1.0, 3.0])
    value = logged.OnDevice(tensor)
    tensor[:] = 0
    assert value.is_ready and value.read() == 2.0


# -- a real kernel ----------------------------------------------------------------------------------------------------

CELL = """
import time, math, random
import hybrid_lab as mx
chosen = {17, 4321, 4322, 9998, 10000}
random.seed(0)
values = [math.nan if step in chosen else random.gauss(0, 1) for step in range(1, 10001)]
values[123], values[7777] = -50.5, 60.25
begun = time.perf_counter()
for number, value in enumerate(values):
    mx.log(loss=value)
    until = begun + 0.0002 * (number + 1)
    while time.perf_counter() < until:
        pass
"""


@pytest.mark.parametrize("ending", ["", "1 / 0", "raise KeyboardInterrupt"])
def test_ten_thousand_values_in_a_real_kernel(tmp_path, ending):
    kernel = Kernel(tmp_path)
    try:
        kernel.run("import hybrid_lab")
        page = kernel.page()
        page.ok("hello", front_end="0", protocol=PROTOCOL, notebook="")
        if ending:
            with pytest.raises(AssertionError):
                kernel.run(CELL + ending)
        else:
            kernel.run(CELL)
        (run,) = page.ok("curves")["runs"]
        values = json.loads(kernel.run("import json; print(json.dumps([each for each in values if each == each]))"))
    finally:
        kernel.stop()
    (seen,) = run["curves"]
    assert (seen["count"], sum(seen["counts"]), seen["bad_count"]) == (10_000, 9995, 5)
    places = [step for span in seen["bad"] for step in range(span["first"], span["last"] + 1)]
    assert places == [17, 4321, 4322, 9998, 10000] and {span["what"] for span in seen["bad"]} == {"NaN"}
    begin = 0
    for count, low, high in zip(seen["counts"], seen["lows"], seen["highs"], strict=True):
        assert (low, high) == (min(values[begin : begin + count]), max(values[begin : begin + count]))
        begin += count
    assert (min(seen["lows"]), max(seen["highs"])) == (-50.5, 60.25)
