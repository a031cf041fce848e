"""Functions of `mx.np` beside NumPy's: values, and gradients beside numeric ones; in a graph the same."""

import functools
import inspect
import itertools

import numpy
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd, np, npx, sym
from hybrid_lab.diagnostics import HybridizeError, HybridLabError
from hybrid_lab.diagnostics.errors import (
    ArrayIndexError,
    AttributeSpecError,
    DTypeError,
    InputError,
    ShapeError,
    UnsupportedArgument,
)
from hybrid_lab.util import np_shape

A = numpy.array([[0.5, -1.2, 2.0], [1.5, 0.3, -0.7]], "float32")
B = numpy.array([[1.1, 0.4, -0.6], [0.2, -1.3, 0.9]], "float32")
SQUARE = numpy.array([[2.0, 0.3, 0.1], [0.3, 1.5, -0.2], [0.1, -0.2, 1.0]], "float32")
CUBE = numpy.arange(24, dtype="float32").reshape(2, 3, 4) / 10

CASES = {
    **{name: (lambda m, a, f=name: getattr(m, f)(a), (abs(A) / 4 + 0.1,)) for name in (
        "sqrt", "cbrt", "exp", "expm1", "log", "log10", "log2", "log1p", "sin", "cos", "tan", "arcsin", "arccos",
        "arctan", "sinh", "cosh", "tanh", "arcsinh", "arctanh", "degrees", "radians", "reciprocal", "square", "abs",
        "negative", "cumsum", "ravel", "transpose", "sum", "mean", "prod", "max", "min", "var", "std",
    )},
    "arccosh": (lambda m, a: m.arccosh(a), (abs(A) + 1.1,)),
    "add": (lambda m, a, b: a + b, (A, B)),
    "divide": (lambda m, a, b: a / b, (A, B)),
    "power": (lambda m, a, b: a**b, (abs(A), B)),
    "remainder": (lambda m, a: a % 0.65, (A,)),
    "maximum": (lambda m, a, b: m.maximum(a, b) - m.minimum(a, 0.1), (A, B)),
    "arctan2": (lambda m, a, b: m.arctan2(a, b), (A, B)),
    "hypot": (lambda m, a, b: m.hypot(a, b), (A, B)),
    "copysign": (lambda m, a, b: m.copysign(a, b), (A, B)),
    "clip": (lambda m, a: m.clip(a, -0.5, 1.0), (A,)),
    "where": (lambda m, a, b: m.where(a > 0.4, a, b), (A, B)),
    "where_row": (lambda m, a: m.where(m.array([1.0, 0.0, 1.0]) > 0, a, 0.0), (A,)),
    "sum_axis": (lambda m, a: m.sum(a, axis=(0, 2), keepdims=True), (CUBE,)),
    "mean_axis": (lambda m, a: a.mean(axis=-1), (CUBE,)),
    "var_ddof": (lambda m, a: m.var(a, axis=1, ddof=1), (CUBE,)),
    "average": (lambda m, a, b: m.average(a, axis=1, weights=m.abs(b)), (A, B)),
    "dot": (lambda m, a, b: m.dot(a, b.T), (A, B)),
    "dot_vectors": (lambda m, a, b: m.dot(a[0], b[1]), (A, B)),
    "dot_cube": (lambda m, a, b: m.dot(a, m.transpose(b, (0, 2, 1))), (CUBE, CUBE)),
    "matmul": (lambda m, a, b: m.matmul(a, m.swapaxes(b, 1, 2)), (CUBE, CUBE)),
    "matmul_broadcast": (lambda m, a, b: a @ b, (CUBE, CUBE[0].T.copy())),
    "tensordot": (lambda m, a, b: m.tensordot(a, b, ([1, 0], [1, 0])), (CUBE, CUBE)),
    "inner": (lambda m, a, b: m.inner(a, b), (A, B)),
    "outer": (lambda m, a, b: m.outer(a, b), (A, B)),
    "kron": (lambda m, a, b: m.kron(a, b), (A, B)),
    "einsum_ij": (lambda m, a, b: m.einsum("ij,kj->ik", a, b), (A, B)),
    "einsum_trace": (lambda m, a: m.einsum("ii->", a), (SQUARE,)),
    "einsum_batch": (lambda m, a, b: m.einsum("...ij,...kj->...ik", a, b), (CUBE, CUBE)),
    "einsum_three": (lambda m, a, b: m.einsum("ij,ik,kl->jl", a, b, b.T), (A, B)),
    "concatenate": (lambda m, a, b: m.concatenate([a, b, a], axis=1), (A, B)),
    "stack": (lambda m, a, b: m.stack([a, b], axis=-1), (A, B)),
    "stack_numbers": (lambda m, a: m.stack([a[0, 0], a[1, 1]]), (A,)),
    "vstack": (lambda m, a, b: m.vstack([a, b[0]]), (A, B)),
    "hstack": (lambda m, a, b: m.hstack([a, b]), (A, B)),
    "split": (lambda m, a: m.split(a, [1, 2], axis=1)[1], (A,)),
    "tile": (lambda m, a: m.tile(a, (2, 1, 2)), (A,)),
    "repeat": (lambda m, a: m.repeat(a, 2, axis=1), (A,)),
    "flip": (lambda m, a: m.flip(a, (0, 1)), (A,)),
    "roll": (lambda m, a: m.roll(a, 4), (A,)),
    "rot90": (lambda m, a: m.rot90(a, 3), (A,)),
    "moveaxis": (lambda m, a: m.moveaxis(a, 0, -1), (CUBE,)),
    "expand_dims": (lambda m, a: m.expand_dims(a, (0, 2)), (A,)),
    "squeeze": (lambda m, a: m.squeeze(a[None, :, :1]), (A,)),
    "pad": (lambda m, a: m.pad(a, ((1, 0), (0, 2)), mode="constant", constant_values=2), (A,)),
    "pad_reflect": (lambda m, a: m.pad(a, 1, mode="reflect"), (A,)),
    "take": (lambda m, a: m.take(a, m.array([[0, -1]]).astype("int32"), axis=1), (A,)),
    "delete": (lambda m, a: m.delete(a, [0, 2], axis=1), (A,)),
    "insert": (lambda m, a: m.insert(a, 1, m.array([5.0, 6.0]), axis=1), (A,)),
    "insert_places": (lambda m, a: m.insert(a, [0, 2], 7.0, axis=1), (A,)),
    "diag": (lambda m, a: m.diag(a, 1), (A,)),
    "diagonal": (lambda m, a: m.diagonal(a, 0, 0, 2), (CUBE,)),
    "trace": (lambda m, a: m.trace(a, 1), (SQUARE,)),
    "tril": (lambda m, a: m.tril(a, -1) + m.triu(a), (CUBE,)),
    "diff": (lambda m, a: m.diff(a, n=2), (CUBE,)),
    "meshgrid": (lambda m, a, b: m.meshgrid(a[0], b[0])[0] * m.meshgrid(a[0], b[0])[1], (A, B)),
    "sort": (lambda m, a: m.sort(a, axis=0), (A,)),
    "norm": (lambda m, a: m.linalg.norm(a), (A,)),
    "norm_rows": (lambda m, a: m.linalg.norm(a, ord=1, axis=1), (A,)),
    "inv": (lambda m, a: m.linalg.inv(a), (SQUARE,)),
    "det": (lambda m, a: m.linalg.det(a), (SQUARE,)),
    "slogdet": (lambda m, a: m.linalg.slogdet(a)[1], (SQUARE,)),
    "cholesky": (lambda m, a: m.linalg.cholesky(a), (SQUARE,)),
    "solve": (lambda m, a, b: m.linalg.solve(a, b.T), (SQUARE, B)),
    "solve_tensors": (lambda m, a, b: m.linalg.tensorsolve(a.reshape(3, 1, 3), b[0]), (SQUARE, B)),
    "solve_as_many_axes": (lambda m, a, b: m.linalg.tensorsolve(a[:1, :1], b[:1, :1]), (A, B)),
    "full_of_a_row": (lambda m, a: m.full((4, 3), a[0]), (A,)),
    "matrix_power": (lambda m, a: m.linalg.matrix_power(a, 5) + m.linalg.matrix_power(a, -2), (SQUARE,)),
    "polyval": (lambda m, a: m.polyval(m.array([1.0, 2.0, 3.0]), a), (A,)),
}  # fmt: skip


class Calls(gluon.HybridBlock):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def hybrid_forward(self, F, *arrays):
        return self.function(F.np, *arrays)


def gradients(function, values):
    arrays = [np.array(value) for value in values]
    for array in arrays:
        array.attach_grad()
    with autograd.record():
        total = (function(*arrays) * np.array(1.0)).sum()
    total.backward()
    return [array.grad.asnumpy() for array in arrays]


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_numpy_in_a_graph_too(name):
    function, values = CASES[name]
    expected = numpy.asarray(function(numpy, *[value.astype("float64") for value in values]))
    block = Calls(function)
    for hybrid in (False, True):
        block.hybridize(hybrid)
        made = block(*[np.array(value) for value in values])
        assert type(made) is np.ndarray
        assert made.shape == expected.shape
        numpy.testing.assert_allclose(made.asnumpy(), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_numeric_derivatives_in_a_graph_too(name):
    function, values = CASES[name]
    block = Calls(function)
    made = gradients(block, values)
    block.hybridize()
    numpy.testing.assert_allclose(
        numpy.concatenate([item.ravel() for item in gradients(block, values)]),
        numpy.concatenate([item.ravel() for item in made]),
        rtol=1e-4,
        atol=1e-5,
    )
    step = 1e-6
    for index, value in enumerate(values):
        wide = [item.astype("float64") for item in values]
        for place in ((0,) * value.ndim, (-1,) * value.ndim):
            sides = []
            for sign in (1, -1):
                wide[index] = value.astype("float64")
                wide[index][place] += sign * step
                sides.append(numpy.sum(function(numpy, *wide)))
            slope = (sides[0] - sides[1]) / (2 * step)
            numpy.testing.assert_allclose(made[index][place], slope, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    "function",
    [
        lambda m: m.arange(2, 8, 2, dtype="float32"),
        lambda m: m.linspace(0, 1, 5, dtype="float32"),
        lambda m: m.full((2, 2), 3, dtype="int32"),
        lambda m: m.eye(3, 2, 1, dtype="float32"),
        lambda m: m.tri(3, dtype="float32"),
        lambda m: m.indices((2, 3), dtype="int32"),
        lambda m: m.zeros((0, 2), dtype="float64"),
        lambda m: m.hanning(5).astype("float32"),
    ],
)
def test_creation(function):
    made, expected = function(np), function(numpy)
    assert (made.shape, made.dtype) == (expected.shape, expected.dtype)
    numpy.testing.assert_allclose(made.asnumpy(), expected, rtol=1e-6, atol=1e-7)


def test_default_dtypes_are_float32():
    for made in (
        np.array([1, 2]),
        np.zeros(2),
        np.ones(2),
        np.arange(3),
        np.linspace(0, 1, 3),
        np.eye(2),
        np.full(2, 3),
    ):
        assert made.dtype == numpy.float32
    assert np.sqrt(4.0) == 2.0  # of a number, a number


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda m, a: m.argmax(a, axis=1), "int64"),
        (lambda m, a: m.argsort(a), "int64"),
        (lambda m, a: m.isnan(a), "bool"),
        (lambda m, a: m.logical_not(a > 0) | (a < -1), "bool"),
        (lambda m, a: (a > 0) & (a < 1) ^ True, "bool"),
        (lambda m, a: m.any(a > 1.9, axis=0), "bool"),
        (lambda m, a: m.all(a), "bool"),
        (lambda m, a: m.floor(a), "float32"),
        (lambda m, a: a.astype("int32") // 2, "int32"),
        (lambda m, a: ~a.astype("int32"), "int32"),
        (lambda m, a: a.astype("int32") & 3, "int32"),
        (lambda m, a: m.unique(m.array([3, 1, 3])), None),
        (lambda m, a: m.nonzero(a > 0)[1], "int64"),
        (lambda m, a: m.where(a > 1)[0], "int64"),
        (lambda m, a: m.bincount(m.array([0, 2, 2]).astype("int32")), "int64"),
        (lambda m, a: m.percentile(a, 30), None),
        (lambda m, a: m.linalg.svd(a)[1] if m is np else m.linalg.svd(a, full_matrices=False)[1], "float32"),
        (lambda m, a: m.linalg.eigvalsh(a.T @ a)[2:], "float32"),
    ],
)
def test_functions_without_gradients(function, kind):
    made, expected = function(np, np.array(A)), function(numpy, A)
    assert kind is None or made.dtype == kind
    numpy.testing.assert_allclose(made.asnumpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 3), (2, 3), (4, 2), (2, 3, 4)])
def test_decompositions_have_gradients(shape):
    def total(m, a):
        u, s, v = m.linalg.svd(a) if m is np else m.linalg.svd(a, full_matrices=False)
        square = m.matmul(a.swapaxes(-1, -2), a) + m.array(numpy.diag([3.0, 1.0, 0.2, 5.0][: shape[-1]]))
        w, x = m.linalg.eigh(square)
        return (
            ((u**2)[..., 0] * 3).sum() + (s**1.5).sum() + (v**2 * 0.7)[..., :1].sum() + w[..., 0].sum() + (x**4).sum()
        )

    value = numpy.random.RandomState(3).uniform(-1, 1, shape)
    a = np.array(value, dtype="float64")
    a.attach_grad()
    with autograd.record():
        result = total(np, a)
    result.backward()
    numpy.testing.assert_allclose(float(result), total(numpy, value), rtol=1e-6)
    for place in ((0,) * len(shape), (-1,) * len(shape)):
        step = numpy.zeros(shape)
        step[place] = 1e-6
        slope = (total(numpy, value + step) - total(numpy, value - step)) / 2e-6
        numpy.testing.assert_allclose(a.grad.asnumpy()[place], slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 3), (2, 3), (4, 2), (2, 3, 4)])
def test_decompositions_in_a_graph(shape):
    class Factors(gluon.HybridBlock):
        def hybrid_forward(self, F, a):
            u, s, v = F.np.linalg.svd(a)
            w, x = F.np.linalg.eigh(F.np.matmul(F.np.swapaxes(a, -1, -2), a))
            return (u**2).sum() + (s**3).sum() + (v**4).sum() + w.sum() + (x**4).sum()

    net, results = Factors(), []
    for hybridized in (False, True):
        net.hybridize(hybridized)
        a = np.array(numpy.random.RandomState(3).uniform(-1, 1, shape), dtype="float64")
        a.attach_grad()
        with autograd.record():
            y = net(a)
        y.backward()
        results.append((y.asnumpy(), a.grad.asnumpy()))
    numpy.testing.assert_allclose(results[1][0], results[0][0], rtol=1e-12)
    numpy.testing.assert_allclose(results[1][1], results[0][1], rtol=1e-9, atol=1e-12)


OPEN = {
    "dot": (lambda m, a, b: m.dot(a, b), (A, B.T)),
    "dot_vectors": (lambda m, a, b: m.dot(a, b), (A[0], B[0])),
    "dot_cube": (lambda m, a, b: m.dot(a, b), (CUBE, CUBE.swapaxes(1, 2))),
    "dot_number": (lambda m, a, b: m.dot(a, b), (A, numpy.array(2.0, "float32"))),
    "tensordot": (lambda m, a, b: m.tensordot(a, b, axes=2), (CUBE, CUBE[0])),
    "tensordot_axes": (lambda m, a, b: m.tensordot(a, b, axes=([0, 2], [-1, 1])), (CUBE, CUBE.transpose(1, 2, 0))),
    "inner": (lambda m, a, b: m.inner(a, b), (CUBE, CUBE[0])),
    "inner_number": (lambda m, a, b: m.inner(a, b), (numpy.array(2.0, "float32"), A)),
    "vdot": (lambda m, a, b: m.vdot(a, b), (A, B)),
    "roll": (lambda m, a: m.roll(a, 4), (A,)),
    "roll_axes": (lambda m, a: m.roll(a, (1, -2), axis=(0, -1)), (CUBE,)),
    "det": (lambda m, a: m.linalg.det(a), (SQUARE,)),
    "det_batch": (lambda m, a: m.linalg.det(a), (numpy.stack([SQUARE, 2 * SQUARE]),)),
}
"""Functions that ask for the number of axes, or for sizes, of Symbols before these are known."""


@pytest.mark.parametrize(("function", "values"), OPEN.values(), ids=OPEN)
def test_symbols_without_shapes(function, values):
    names = ["a", "b"][: len(values)]
    symbol = function(sym.np, *(sym.var(name).as_np_ndarray() for name in names))
    expected = function(numpy, *values)
    with np_shape(True):  # in which () is a shape, and no unknown one
        inferred = symbol.infer_shape(**{name: each.shape for name, each in zip(names, values, strict=True)})
    assert inferred[1] == [expected.shape]
    results = []
    for net in (Calls(function), gluon.SymbolBlock(symbol, [sym.var(name).as_np_ndarray() for name in names])):
        arrays = [np.array(value) for value in values]
        for each in arrays:
            each.attach_grad()
        net.hybridize(False)
        with autograd.record():
            y = net(*arrays)
        y.backward(np.ones(y.shape) * 0.5)
        numpy.testing.assert_allclose(y.asnumpy(), expected, rtol=1e-5, atol=1e-6)
        net.hybridize()
        results.append([each.grad.asnumpy() for each in arrays])
        numpy.testing.assert_allclose(net(*arrays).asnumpy(), expected, rtol=1e-5, atol=1e-6)
    for one, other in zip(*results, strict=True):
        numpy.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_multivariate_normal_has_the_dtype_of_its_parameters(dtype):
    block = Calls(lambda m, mean, cov: m.random.multivariate_normal(mean, cov, (4,)))
    for hybridized in (False, True):
        block.hybridize(hybridized)
        made = block(np.array([[0.0, 10.0]] * 3, dtype=dtype), np.array([[1.0, 0.0], [0.0, 0.25]], dtype=dtype))
        assert made.dtype == dtype and made.shape == (4, 3, 2)
        assert abs(float(made[..., 1].mean()) - 10) < 1


def test_images():
    image = np.array(numpy.random.RandomState(0).randint(0, 256, (8, 6, 3)), dtype="uint8")
    plain = image.as_nd_ndarray()
    for name, attributes in {
        "to_tensor": {}, "resize": {"size": (4, 5)}, "crop": {"x": 1, "y": 2, "width": 3, "height": 4},
        "flip_left_right": {}, "flip_top_bottom": {},
    }.items():  # fmt: skip
        made = getattr(npx.image, name)(image, **attributes)
        assert type(made) is np.ndarray
        numpy.testing.assert_array_equal(made.asnumpy(), getattr(nd.image, name)(plain, **attributes).asnumpy())
        in_graph = Calls(lambda m, a, name=name, attributes=attributes: getattr(npx.image, name)(a, **attributes))
        in_graph.hybridize()
        numpy.testing.assert_array_equal(in_graph(image).asnumpy(), made.asnumpy())
    with pytest.raises(AttributeError, match="npx.image"):
        npx.image.to_tensr  # noqa: B018


def test_blocks_with_functions_that_read_numbers_run_eagerly(caplog):
    calls = {
        "nonzero": lambda m, x: m.nonzero(x)[0],
        "unique": lambda m, x: m.unique(x),
        "quantile": lambda m, x: m.quantile(x, 0.5, interpolation="lower"),
        "linalg.eigvals": lambda m, x: m.linalg.eigvals(m.dot(x.reshape(-1, 1), x.reshape(1, -1))),
        "constraint_check": lambda m, x: x * npx.constraint_check(x > -1),
        "random.choice": lambda m, x: m.random.choice(x, (2,), replace=False),
        "random.shuffle": lambda m, x: m.random.shuffle(x + 1) or x,
    }
    x = np.array([3.0, 0.0, 1.0])
    for name, call in calls.items():
        block, made = Calls(call), []
        for hybridized in (False, True, True):
            block.hybridize(hybridized)
            np.random.seed(1)
            made.append(block(x).asnumpy())
        numpy.testing.assert_array_equal(made[0], made[1])
        numpy.testing.assert_array_equal(made[0], made[2])
        said = [record.getMessage() for record in caplog.records if f"np.{name} reads numbers" in record.getMessage()]
        assert said and all("Its calls run eagerly" in each for each in said), name
        block.hybridize(strict=True)
        with pytest.raises(HybridizeError, match=rf"HL133: np\.{name} reads numbers"):
            block(x)


def test_tools_say_why_a_block_that_runs_eagerly_has_no_graph(tmp_path):
    block = Calls(lambda m, x: m.unique(x))
    block.hybridize()
    x = np.array([3.0, 0.0, 1.0])
    block(x)
    for tool in (mx.compare, mx.profile):
        with pytest.raises(HybridizeError, match=r"HL133: np\.unique reads numbers"):
            tool(block, x)
    with pytest.raises(HybridLabError, match=r"has no graph, its calls run eagerly: .*HL133"):
        block.export(str(tmp_path / "net"))


def test_a_matrix_without_the_diagonal_has_an_empty_one():
    x = np.arange(6).reshape(2, 3)
    for k in range(-4, 5):
        block = Calls(lambda m, a, k=k: m.diag(a, k))
        for hybridized in (False, True):
            block.hybridize(hybridized)
            numpy.testing.assert_array_equal(block(x).asnumpy(), numpy.diag(x.asnumpy(), k))


def test_nan_to_num_writes_to_arrays_but_not_in_a_graph():
    x = np.array([1.0, numpy.nan])
    assert np.nan_to_num(x, copy=False) is x
    assert x.asnumpy().tolist() == [1.0, 0.0]
    block = Calls(lambda m, a: m.nan_to_num(a, copy=False))
    block.hybridize()
    with pytest.raises(UnsupportedArgument, match="copy=False writes to its argument"):
        block(x)


def test_npx():
    x = np.array(A)
    numpy.testing.assert_allclose(npx.softmax(x).sum(axis=-1).asnumpy(), [1, 1], rtol=1e-6)
    assert npx.relu(x).tolist() == numpy.maximum(A, 0).tolist()
    assert npx.one_hot(np.array([0, 2]), 3).tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    assert npx.pick(x, np.array([0, 2])).tolist() == [A[0, 0].item(), A[1, 2].item()]
    assert npx.batch_dot(np.ones((2, 1, 3)), np.ones((2, 3, 1))).shape == (2, 1, 1)
    assert npx.sequence_mask(np.ones((2, 3)), np.array([1, 3]), True, axis=1).tolist() == [
        [1.0, 0.0, 0.0],
        [1.0, 1.0, 1.0],
    ]
    assert npx.reshape(np.ones((2, 3, 4)), (-2, -5)).shape == (2, 12)
    assert npx.reshape(np.ones((1, 3, 4)), (-3, -1)).shape == (12,)
    assert npx.topk(x, k=2, ret_typ="value").shape == (2, 2)
    assert npx.slice(x, begin=(), end=(), step=None).shape == (2, 3)
    assert npx.slice(x, begin=(1,), end=(None,), step=(None,)).shape == (1, 3)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: np.random.gamma(-1.0),
        lambda: np.random.weibull(np.array([0.0, 1.0])),
        lambda: np.random.normal(0, -1),
        lambda: np.random.bernoulli(1.5),
        lambda: np.random.randint(3, 3),
        lambda: np.random.multinomial(3, [0.9, 0.9, 0.1]),
    ],
)
def test_parameters_of_distributions_are_checked(draw):
    with pytest.raises(ValueError):
        draw()


def test_sizes_of_0_broadcast():
    assert np.broadcast_to(np.ones((3, 1)), (2, 3, 0)).shape == (2, 3, 0)
    assert np.random.beta(np.ones((4, 1)), 2.0, size=(4, 0)).shape == (4, 0)
    assert (np.ones((0, 3)) + np.ones(3)).shape == (0, 3)
    assert np.concatenate([np.ones((0, 2)), np.ones((1, 2))]).shape == (1, 2)
    assert np.sum(np.ones((0, 3)), axis=0).tolist() == [0.0, 0.0, 0.0]


def test_random_numbers_follow_the_seed_and_their_parameters():
    def draws():
        np.random.seed(3)
        return [
            np.random.normal(2, 0.5, (200,)),
            np.random.uniform(np.array([0.0, 10.0]), np.array([1.0, 11.0]), (200, 2)),
            np.random.randint(0, 5, 200),
            np.random.gamma(3.0, 2.0, (200,)),
            np.random.poisson(4.0, 200),
            np.random.binomial(10, 0.5, 200),
            np.random.choice(5, 200),
            np.random.exponential(2.0, (200,)),
            np.random.multinomial(10, [0.2, 0.8], 200),
        ]

    first = draws()
    assert [item.tolist() for item in first] == [item.tolist() for item in draws()]
    means = [2, 5.5, 2, 6, 4, 5, 2, 2, 5]
    for item, mean in zip(first, means):
        assert abs(float(item.astype("float64").mean()) - mean) < 0.6
    assert np.random.normal().shape == np.random.rand().shape == ()
    scale = np.array(2.0)
    scale.attach_grad()
    with autograd.record():
        y = np.random.normal(0, scale, (1000,)).std()
    y.backward()
    assert abs(float(scale.grad) - 1) < 0.1


@pytest.mark.parametrize("options", [{}, {"ddof": 1}, {"keepdims": True}, {"axis": ()}])
def test_the_variance_of_a_number_has_a_gradient(options):
    number = np.array(2.5)
    number.attach_grad()
    with autograd.record():
        result = np.var(number, **options)
    result.backward()
    assert result.shape == () and (options.get("ddof") or (result.item(), number.grad.item()) == (0, 0))


@pytest.mark.parametrize("split", [np.split, np.array_split])
def test_an_axis_to_split_along_must_exist(split):
    with pytest.raises(ShapeError, match="does not exist"):
        split(np.array(1.0), [1])
    with pytest.raises(ShapeError, match="does not exist"):
        np.array_split(np.ones(3), 2, axis=1)


@pytest.mark.parametrize("order", [2, -2, "nuc"])
@pytest.mark.parametrize("axis", [(0, 2), (2, 0), (-1, -2)])
def test_norms_of_matrices_by_singular_values(order, axis):
    values = numpy.random.RandomState(0).rand(2, 3, 4)
    for keepdims in (False, True):
        block = Calls(lambda m, a, keepdims=keepdims: m.linalg.norm(a, order, axis, keepdims))
        wanted, made = numpy.linalg.norm(values, order, axis, keepdims), []
        for hybridized in (False, True):
            block.hybridize(hybridized)
            x = np.array(values)
            x.attach_grad()
            with autograd.record():
                y = block(x)
            y.backward()
            numpy.testing.assert_allclose(y.asnumpy(), wanted, rtol=1e-5)
            made.append(x.grad.asnumpy())
        numpy.testing.assert_allclose(made[0], made[1], rtol=1e-4, atol=1e-5)
    if order == "nuc":  # its gradient is u v: in that direction the norm grows by 1 for each singular value
        moved = numpy.linalg.norm(values + 1e-3 * made[0], order, axis)
        count = min(values.shape[each] for each in axis)
        numpy.testing.assert_allclose(moved - wanted.reshape(moved.shape), 1e-3 * count, rtol=0.02)


def test_empty_like_takes_the_arguments_of_numpy():
    x = np.ones((2, 3), dtype="float16")
    assert np.empty_like(x, "int32", "C", False).dtype == "int32"
    assert np.empty_like(x, shape=(4,)).shape == (4,) and np.empty_like(x, shape=4).dtype == "float16"


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (("max", 0), InputError, "ord='max' is not a norm of vectors"),
        (("max",), InputError, "ord='max' is not a norm of matrices"),
        ((None, (1, 1)), ShapeError, "names one axis twice"),
        ((1, (0, 1, 2)), ShapeError, "one or two axes are needed"),
    ],
)
def test_norms_that_are_none(arguments, error, said):
    with pytest.raises(error, match=said):
        np.linalg.norm(np.ones((2, 3)), *arguments)


MODULES = {
    "np": mx.np,
    "np.linalg": mx.np.linalg,
    "np.random": mx.np.random,
    "npx": mx.npx,
    "npx.image": mx.npx.image,
    "npx.random": mx.npx.random,
}


def _functions():
    """The functions of this package as users write them, without those of NumPy, of files and settings."""
    for prefix, module in MODULES.items():
        for name in module.__all__:
            function = getattr(module, name)
            if hasattr(function, "__wrapped__") and name not in ("seed", "genfromtxt", "load", "save"):
                yield f"{prefix}.{name}", function


def test_an_error_about_an_unknown_shape_names_the_function_that_was_called():
    """Also of functions that are composed of others. Each is called with one or two Symbols, and a few numbers."""
    seen = set()
    for name, function in _functions():
        for count, rest in itertools.product((1, 2), ((), (2,), (0, 1))):
            symbols = [mx.sym.var(f"x{index}").as_np_ndarray() for index in range(count)]
            for given in ((*symbols, *rest), (symbols, *rest)):
                try:
                    function(*given)
                except AttributeSpecError as error:
                    if "is not known; call it in a Block" in str(error):
                        seen.add(name)
                        assert str(error).startswith(f"{name}: "), str(error)
                except Exception:  # noqa: BLE001, S110 - of arguments that mean nothing to this function
                    pass
    assert {"np.linalg.solve", "np.linalg.slogdet", "np.vstack", "np.random.normal", "np.trace"} <= seen


def _accepts(function, arguments):
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    return True


@pytest.mark.filterwarnings("ignore")
def test_every_error_is_typed_and_names_the_function_that_was_called():
    """Each function is called with text, None, numbers out of range, and arrays of shapes that do not fit."""
    seen = set()
    for name, function in _functions():
        for count in (1, 2):
            for index in range(6**count):
                pool = np.ones((2, 3)), np.array(1.5), np.ones(2), "x", 9, None
                arguments = [pool[index // 6**place % 6] for place in range(count)]
                if not _accepts(function, arguments):
                    continue
                try:
                    function(*arguments)
                except HybridLabError as error:
                    seen.add(name)
                    assert str(error).startswith(f"{name}: "), f"{name}{arguments}: {error}"
    assert len(seen) > 350


ELEMENTWISE = (
    *("add", "subtract", "multiply", "divide", "true_divide", "floor_divide", "mod", "remainder", "power", "maximum"),
    *("minimum", "hypot", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and"),
    *("logical_or", "logical_xor", "arctan2", "copysign", "ldexp"),
)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_errors_of_elementwise_functions_name_the_function(name):
    a, b = np.zeros((2,)), np.zeros((3,))
    with pytest.raises(ShapeError, match=rf"^np\.{name}: the shapes \(2,\) and \(3,\) do not broadcast"):
        getattr(np, name)(a, b)
    with pytest.raises(TypeError, match=f"^np.{name}: an operand must be an array or a number, not str$") as caught:
        getattr(np, name)(a, "x")
    assert isinstance(caught.value, HybridLabError)


def test_errors_of_operators_name_the_function():
    a, b = np.zeros((2,)), np.zeros((3,))
    with pytest.raises(ShapeError, match="^np.add: "):
        a + b
    with pytest.raises(ShapeError, match="^np.clip: "):
        np.clip(a, b, None)
    for bounds in (("x", 3), (a, "x"), (None, "x")):
        with pytest.raises(TypeError, match="^np.clip: .*str$"):
            np.clip(a, *bounds)
    with pytest.raises(ShapeError, match="^np.bitwise_and: "):
        (a > 0) & (b > 0)
    with pytest.raises(InputError, match="^np.bitwise_and: "):
        a.astype("int32") & b.astype("int32")
    with pytest.raises(ShapeError, match="^np.std: axis 1 does not exist"):
        np.std(np.array(1.5), axis=1)


def test_nonzero_of_an_array_of_shape_nothing_takes_it_for_a_vector():
    for number, places in ((1.5, [0]), (0.0, [])):
        (found,) = np.nonzero(np.array(number))
        assert (found.dtype, found.asnumpy().tolist()) == ("int64", places)
        assert npx.nonzero(np.array(number)).asnumpy().tolist() == [[place] for place in places]


def test_genfromtxt_reads_lines_and_refuses_arrays(tmp_path):
    assert np.genfromtxt(["1,2", "3,4"], delimiter=",").asnumpy().tolist() == [[1, 2], [3, 4]]
    with pytest.raises(TypeError, match="^np.genfromtxt: fname .*ndarray"):
        np.genfromtxt(np.array([1, 2]))
    with pytest.raises(FileNotFoundError, match="there is no file '.*table.csv'") as caught:
        np.genfromtxt(str(tmp_path / "table.csv"))
    assert isinstance(caught.value, HybridLabError)
    with pytest.raises(IsADirectoryError, match="is a folder; give the path of a file") as caught:
        np.genfromtxt(str(tmp_path))
    assert isinstance(caught.value, HybridLabError)
    with pytest.raises(DTypeError, match="'foo' is not a dtype"):
        np.genfromtxt(["1,2"], dtype="foo")
    with pytest.raises(InputError, match="^np.genfromtxt: "):
        np.genfromtxt(["1,2", "3"], delimiter=",")


@pytest.mark.parametrize("name", ["percentile", "quantile"])
def test_a_quantile_of_no_numbers_is_a_typed_error(name):
    with pytest.raises(ShapeError, match=rf"np.{name}: the array has shape \(0, 2\) and no elements"):
        getattr(mx.np, name)(mx.np.zeros((0, 2)), 0.3, axis=0)
    with pytest.raises(ArrayIndexError, match=f"np.{name}: axis 2 is out of bounds"):
        getattr(mx.np, name)(mx.np.zeros((2, 2)), 0.3, axis=2)


class Probabilities(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.npx.softmax(x) + 2 * F.npx.log_softmax(x * 3, axis=0)


@pytest.mark.parametrize("hybridize", [False, True])
def test_softmax_of_an_array_of_shape_nothing(hybridize):
    """As in MXNet, it counts as an array with one axis."""
    net = Probabilities()
    if hybridize:
        net.hybridize(engine="numpy")
    x = np.array(1.5)
    x.attach_grad()
    with autograd.record():
        y = net(x)
    y.backward()
    assert (y.shape, y.item(), x.grad.shape, x.grad.item()) == ((), 1.0, (), 0.0)
    assert net(np.array([1.5, 1.5])).shape == (2,)
    length = np.array(0, dtype="int32")
    assert npx.softmax(x, length, use_length=True).item() == 0.0
    with pytest.raises(ShapeError, match="axis 1 does not exist"):
        npx.softmax(x, axis=1)


def test_an_error_of_the_users_function_stays_as_it_is():
    def failing(*rows):
        raise ValueError("of the user's function")

    class Callable:
        def method(self, *rows):
            return failing(*rows)

        def __call__(self, *rows):
            return failing(*rows)

    x = mx.np.ones((2, 3))
    for function in (failing, functools.partial(failing, 1), Callable(), Callable().method):
        calls = [
            functools.partial(mx.np.apply_along_axis, function, 0, x),
            functools.partial(mx.np.apply_over_axes, function, x, axes=[0]),
            functools.partial(mx.np.piecewise, x, [x > 0], [function]),
        ]
        for call in calls:
            with pytest.raises(ValueError, match="^of the user's function$") as caught:
                call()
            assert type(caught.value) is ValueError and caught.traceback[-1].name == "failing"
    with pytest.raises(ShapeError, match=r"^np\.reshape: "):
        mx.np.apply_along_axis(lambda row: mx.np.reshape(row, (99,)), 0, x)
