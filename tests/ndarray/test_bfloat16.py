"""Arrays of bfloat16: made, printed, converted, computed with, differentiated, saved."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.diagnostics import DTypeError
from hybrid_lab.ops.framework.dtypes import bfloat16
from tests.triton_device import use_triton

BFLOAT16 = bfloat16().type


@pytest.mark.parametrize("dtype", ["bfloat16", BFLOAT16, bfloat16(), np.dtype([("bfloat16", np.uint16)])])
def test_arrays_are_made_with_every_name_of_it(dtype):
    made = [
        nd.array([1, 2.5, -3.14159], dtype=dtype),
        nd.zeros(3, dtype=dtype),
        nd.ones(3, dtype=dtype),
        nd.full(3, 0.1, dtype=dtype),
        nd.arange(3, dtype=dtype),
        nd.linspace(0, 1, 3, dtype=dtype),
        nd.eye(3, dtype=dtype),
        nd.empty(3, dtype=dtype),
        nd.random.uniform(shape=3, dtype=dtype),
        nd.random.normal(shape=3, dtype=dtype),
        nd.ones(3).astype(dtype),
        nd.cast(nd.ones(3), dtype=dtype),
        nd.from_numpy(np.ones(3, bfloat16())),
    ]
    assert {array.dtype for array in made} == {BFLOAT16}
    assert {array.asnumpy().dtype for array in made} == {bfloat16()}
    assert made[0].asnumpy().tolist() == [1, 2.5, -3.140625]


def test_it_prints_as_other_arrays_do():
    assert str(nd.array([1, 2.5, -3.14159], dtype="bfloat16")) == "\n[1 2.5 -3.14062]\n<NDArray 3 @cpu(0)>"


def test_an_array_of_numpy_s_becomes_float32_as_all_do():
    assert nd.array(np.ones(3, bfloat16())).dtype is np.float32
    assert nd.array(nd.ones(3, dtype="bfloat16")).dtype is BFLOAT16


def test_it_rounds_to_the_nearest_ties_to_even():
    wide = nd.array([1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-20, 3.4e38, -np.inf, np.nan])
    with np.errstate(over="ignore"):
        narrow = wide.astype("bfloat16").astype("float32").asnumpy()
    np.testing.assert_array_equal(narrow, [1, 1 + 2.0**-6, 1 + 2.0**-7, np.inf, -np.inf, np.nan])


def test_sums_are_in_float32():
    ones = nd.ones(1000, dtype="bfloat16")
    assert float(ones.sum()) == 1000  # in bfloat16 it would stay at 256
    assert float(nd.dot(ones, ones)) == 1000
    assert float(ones.mean()) == 1


def test_numbers_beside_it_do_not_widen_it():
    x = nd.array([3.0], dtype="bfloat16")
    results = [x * 1.5, 2 - x, x / 3, x**2, x > 2, x + 1, 1 / x, -x]
    assert {result.dtype for result in results} == {BFLOAT16}
    assert [float(result) for result in results[:2]] == [4.5, -1]
    x += 1
    x *= np.float32(2)
    assert x.dtype is BFLOAT16 and float(x) == 8


def test_other_dtypes_beside_it_are_refused():
    with pytest.raises(DTypeError, match="different dtypes .*bfloat16.*convert one with F.cast"):
        nd.ones(3, dtype="bfloat16") + nd.ones(3)
    with pytest.raises(DTypeError, match="different dtypes"):
        nd.ones(3, dtype="bfloat16") + nd.ones(3, dtype="float16")


def test_indexing_and_writing():
    x = nd.arange(6, dtype="bfloat16").reshape((2, 3))
    x[0, 1] = 7.3
    x[1] = nd.ones(3)
    assert x.asnumpy().tolist() == [[0, 7.3125, 2], [1, 1, 1]]
    assert nd.arange(4)[nd.array([2, 0], dtype="bfloat16")].asnumpy().tolist() == [2, 0]
    assert x[:, 1:].dtype is BFLOAT16 and x.max().asscalar() == 7.3125 and x[0, 0].item() == 0


def test_conversions_to_and_fro():
    x = nd.array([-1.5, 0, 2.7, 300], dtype="bfloat16")
    assert x.astype("int32").asnumpy().tolist() == [-1, 0, 2, 300]
    assert x.astype("uint8").asnumpy().tolist() == [255, 0, 2, 44]
    assert x.astype("float64").asnumpy().tolist() == [-1.5, 0, 2.703125, 300]
    assert nd.array([257], dtype="int64").astype("bfloat16").astype("int64").asscalar() == 256
    assert x.astype("bool").asnumpy().tolist() == [True, False, True, True]


def test_copies():
    x = nd.array([1.5, 2.5], dtype="bfloat16")
    for other in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.copy()):
        assert other.dtype is BFLOAT16 and other.asnumpy().tolist() == [1.5, 2.5]
    target = nd.zeros(2)
    x.copyto(target)
    assert target.asnumpy().tolist() == [1.5, 2.5]


def test_saving(tmp_path):
    path = str(tmp_path / "x.params")
    nd.save(path, {"x": nd.array([1.5, 2.5], dtype="bfloat16")})
    found = nd.load(path)["x"]
    assert found.dtype is BFLOAT16 and found.asnumpy().tolist() == [1.5, 2.5]


def test_gradients_of_gradients():
    x = nd.array([0.5, 2], dtype="bfloat16")
    x.attach_grad()
    with autograd.record():
        y = x**3
        (first,) = autograd.grad(y, [x], create_graph=True)
        total = first.sum()
    total.backward()
    assert x.grad.dtype is BFLOAT16 and x.grad.asnumpy().tolist() == [3, 12]


def test_gradients_through_conversions():
    x = nd.array([0.5, 2])
    x.attach_grad()
    with autograd.record():
        y = (x.astype("bfloat16") * 3).astype("float32").sum()
    y.backward()
    assert x.grad.dtype is np.float32 and x.grad.asnumpy().tolist() == [3, 3]


def test_on_a_device(monkeypatch):
    use_triton(monkeypatch)
    x = nd.arange(8, ctx=mx.gpu(0), dtype="bfloat16")
    x.attach_grad()
    with autograd.record():
        y = (x * 1.5).sum()
    y.backward()
    assert y.context == mx.gpu(0) and y.dtype is BFLOAT16 and float(y) == 42
    assert x.grad.asnumpy().tolist() == [1.5] * 8
    assert (x + 1)[2:5].as_in_context(mx.cpu()).asnumpy().tolist() == [3, 4, 5]
    x[1] = 0.3
    assert x.asnumpy()[1] == np.float32(0.3).astype(bfloat16())


def test_nothing_loads_ml_dtypes_before_it_is_asked_for():
    code = (
        "import sys, hybrid_lab as mx; from hybrid_lab import nd; (nd.ones(3) * 2).sum().asscalar();"
        "assert 'ml_dtypes' not in sys.modules; x = mx.gluon.nn.Dense(2, in_units=3, dtype='bfloat16');"
        "assert 'ml_dtypes' in sys.modules; print(x.weight)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "Parameter dense0_weight (shape=(2, 3), dtype=bfloat16)\n", done.stderr


WITHOUT_ML_DTYPES = """
import sys
sys.modules["ml_dtypes"] = None
import numpy as np
import hybrid_lab as mx
from hybrid_lab import nd
from hybrid_lab.diagnostics import AttributeSpecError, DTypeError
for name in ("bfloat16", np.dtype([("bfloat16", np.uint16)])):
    for call in (
        lambda: nd.zeros(3, dtype=name),
        lambda: nd.ones(3).astype(name),
        lambda: nd.cast(nd.ones(3), dtype=name),
        lambda: mx.gluon.Parameter("p", dtype=name),
        lambda: mx.sym.var("x", dtype=name),
    ):
        try:
            call()
        except (AttributeSpecError, DTypeError) as error:
            print("pip install ml_dtypes" in str(error))
"""


def test_one_without_ml_dtypes_is_told_what_to_install():
    """In a process of its own: an operator whose dtype was loaded stays known."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_ML_DTYPES], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n" * 10, done.stderr


@pytest.mark.parametrize("engine", [None, "numpy", "triton"])
def test_positions_are_whole_numbers(engine, monkeypatch):
    """bfloat16 has those up to 256: positions of it are float32."""
    if engine == "triton":
        use_triton(monkeypatch)

    class Best(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.argmax(x, axis=1), F.argmin(x, axis=1), F.argmax_channel(x), F.argsort(x, axis=1)

    values = np.zeros((2, 1000), np.float32)
    values[:, 777], values[:, 601] = 1, -1
    net = Best()
    if engine is not None:
        net.hybridize(engine=engine)
    largest, least, channel, order = net(nd.array(values, dtype="bfloat16"))
    assert {each.dtype for each in (largest, least, channel, order)} == {np.float32}
    assert largest.asnumpy().tolist() == channel.asnumpy().tolist() == [777, 777]
    assert least.asnumpy().tolist() == [601, 601] == order.asnumpy()[:, 0].tolist()


def test_random_numbers_are_the_same_in_graphs(monkeypatch):
    use_triton(monkeypatch)

    class Draws(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return (
                F.random.uniform(shape=(3, 40), dtype="bfloat16"),
                F.random.normal(shape=(3, 40), dtype="bfloat16"),
                F.Dropout(x, p=0.5, mode="always"),
            )

    net, found = Draws(), []
    for engine in (None, "numpy", "triton"):
        if engine is not None:
            net.hybridize(engine=engine)
        mx.random.seed(7)
        found.append([each.asnumpy() for each in net(nd.ones((3, 40), dtype="bfloat16"))])
    for eager, numpy, triton in zip(*found, strict=True):
        assert eager.dtype == numpy.dtype == triton.dtype == bfloat16()
        assert np.array_equal(eager, numpy)
        np.testing.assert_allclose(triton.astype(np.float32), eager.astype(np.float32), rtol=2.0**-7)
    assert np.array_equal(found[0][2], found[2][2])


def test_gradients_of_arrays_without_dimensions_add_up():
    x = nd.array([1.5], dtype="bfloat16").reshape(())
    x.attach_grad()
    with autograd.record():
        y = nd.broadcast_add(x, x)  # read three times
        z = y * y + y
    z.backward()
    assert x.grad.shape == () and x.grad.dtype is BFLOAT16 and float(x.grad.asscalar()) == 14.0
