"""Every name in the tables of the importers is an operator, and the rows that tables of names make are run."""

import ast
import pathlib

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from torch import nn
from torch.utils import _pytree as pytree

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.onnx.reading.importers import functions as onnx_functions
from hybrid_lab.onnx.reading.importers import table as onnx_table
from hybrid_lab.ops.framework.operator import find
from hybrid_lab.torch.importers import elementwise, functions, table
from tests.failures import Failures

ROOT = pathlib.Path(mx.__file__).parent
FUNCTIONS = {"torch/importers": functions.Functions, "onnx/reading/importers": onnx_functions.Functions}
FILES = [(folder, path.name) for folder in FUNCTIONS for path in sorted((ROOT / folder).glob("*.py"))]


def test_both_importers_have_files():
    assert {folder for folder, _ in FILES} == set(FUNCTIONS)


@pytest.mark.parametrize(("folder", "file"), FILES)
def test_every_name_of_an_importer_is_an_operator_or_a_method(folder, file):
    F = FUNCTIONS[folder]()
    missing = []
    for node in ast.walk(ast.parse((ROOT / folder / file).read_text())):
        match node:
            case ast.Attribute(value=ast.Name(id="F"), attr=name):
                if find(name) is None and name not in vars(F) and not hasattr(type(F), name):
                    missing.append(f"line {node.lineno}: F.{name}")
            case ast.Call(func=ast.Name(id="onnx"), args=[ast.Constant(value=name), *domain]):
                domains = [item.value for item in domain] or [key.value.value for key in node.keywords] or [""]
                if onnx_table.find(domains[0], name, 10_000) is None:
                    missing.append(f"line {node.lineno}: onnx({name!r})")
    assert not missing


@pytest.mark.parametrize("rows", [elementwise._FUNCTIONS, elementwise._COMPARISONS, elementwise._LOGIC])
def test_tables_of_names_name_operators(rows):
    assert [record for record in rows.values() if find(record) is None] == []


def test_every_row_is_an_operator_of_aten():
    assert [name for name in table.names() if not hasattr(torch.ops.aten, name)] == []


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def _same(ours, theirs):
    ours = ours if isinstance(ours, (list, tuple)) else [ours]
    theirs = theirs if isinstance(theirs, (list, tuple)) else [theirs]
    for one, two in zip(ours, theirs, strict=True):
        assert one.shape == tuple(two.shape)
        np.testing.assert_allclose(one.asnumpy().astype("float64"), two.detach().numpy().astype("float64"), 1e-4, 1e-5)


def _arrays(inputs):
    return [nd.array(item.numpy(), dtype=item.numpy().dtype) for item in inputs]


def _imported(function, make, batches=(3, 1, 5)):
    """Import a function with an open batch of 3; compare it eagerly, hybridized and from an archive."""
    module = Function(function).eval()
    net = mx.torch.imports(module, make(3))
    for batch in batches:
        _same(net(*_arrays(make(batch))), module(*make(batch)))
    net.hybridize()
    _same(net(*_arrays(make(5 if 5 in batches else 3))), module(*make(5 if 5 in batches else 3)))
    return net, module


def _random(*shapes):
    """Arguments with a batch in front; the same ones for the same batch."""

    def make(batch):
        torch.manual_seed(batch)
        return tuple(torch.rand(batch, *shape) for shape in shapes)

    return make


def test_every_function_of_one_number_is_that_of_torch():
    names = [name for name in elementwise._FUNCTIONS if name not in ("acosh", "atanh", "acos", "asin")]
    _imported(lambda x: tuple(getattr(torch.ops.aten, name)(x) for name in names), _random((6,)))
    _imported(lambda x: (torch.acosh(x + 1), torch.atanh(x / 2), torch.acos(x), torch.asin(x)), _random((6,)))


def test_every_comparison_is_that_of_torch():
    names = [*elementwise._COMPARISONS]
    _imported(
        lambda x, y: tuple(getattr(torch, name)((3 * x).round(), (3 * y).round()) for name in names),
        _random((6,), (6,)),
    )
    _imported(
        lambda x, y: tuple(getattr(torch, name)(x > 0.5, y > 0.3) for name in elementwise._LOGIC), _random((6,), (6,))
    )


def _write(x):
    y = x.clone()
    y[:, 2] = 7
    y[:, [0, 3]] = x[:, [1, 2]]
    return y


def _write_at(x):
    y = torch.zeros_like(x)
    y[torch.arange(x.shape[0]), x.argmax(1)] = 1.0
    return y


def _regular(x):
    return x + 4 * torch.eye(3)


#: Operators that took no open batch, or named operators that do not exist -> (function, shapes of its arguments, each
#: without the batch in front).
OPEN = {
    "logsigmoid": (TF.logsigmoid, [(6,)]),
    "binary_cross_entropy_with_logits": (TF.binary_cross_entropy_with_logits, [(6,), (6,)]),
    "atan2": (torch.atan2, [(6,), (6,)]),
    "grid_sample": (lambda x, g: TF.grid_sample(x, g, align_corners=False), [(2, 5, 5), (4, 4, 2)]),
    "grid_sample nearest": (
        lambda x, g: TF.grid_sample(x, g, "nearest", "border", True),
        [(2, 5, 5), (4, 4, 2)],
    ),
    "scatter": (lambda x: torch.zeros_like(x).scatter(1, x.argsort(1)[:, :2], 1.0), [(6,)]),
    "scatter a source": (lambda x: torch.zeros_like(x).scatter(1, x.argsort(1), x), [(6,)]),
    "scatter_add": (lambda x: torch.zeros_like(x).scatter_add(1, x.argsort(1) // 2, x), [(6,)]),
    **{
        f"scatter_reduce {reduce} {own}": (
            lambda x, reduce=reduce, own=own: x.scatter_reduce(1, x.argsort(1) // 2, x * 2, reduce, include_self=own),
            [(6,)],
        )
        for reduce in ("sum", "prod", "mean", "amax", "amin")
        for own in (True, False)
    },
    "index_put": (
        lambda x: x.index_put((torch.tensor([0, 0]), torch.tensor([1, 2])), torch.tensor(9.0)),
        [(6,)],
    ),
    "index_add": (lambda x: x.index_add(1, torch.tensor([0, 2, 2]), x[:, :3]), [(6,)]),
    "index_copy": (lambda x: x.index_copy(1, torch.tensor([0, 2]), x[:, 3:5]), [(6,)]),
    "an assignment at a maximum": (_write_at, [(6,)]),
    "inv": (lambda x: torch.linalg.inv(_regular(x)), [(3, 3)]),
    "solve": (lambda x: torch.linalg.solve(_regular(x), x), [(3, 3)]),
    "solve a vector": (lambda x, b: torch.linalg.solve(_regular(x), b), [(3, 3), (3,)]),
    "cholesky": (lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(3)), [(3, 3)]),
    "solve_triangular": (lambda x: torch.linalg.solve_triangular(_regular(x), x, upper=True), [(3, 3)]),
    "det": (lambda x: torch.linalg.det(_regular(x)), [(3, 3)]),
    "slogdet": (lambda x: torch.linalg.slogdet(_regular(x))[1], [(3, 3)]),
    "cholesky_solve": (
        lambda x: torch.cholesky_solve(x, torch.linalg.cholesky(x @ x.mT + torch.eye(3))),
        [(3, 3)],
    ),
    **{
        f"cdist {p}": (lambda x, y, p=p: torch.cdist(x, y, p=p), [(4, 5), (3, 5)])
        for p in (0.0, 1.0, 2.0, 3.0, float("inf"))
    },
    "kthvalue": (lambda x: tuple(x.kthvalue(2, 1)), [(6,)]),
    "kthvalue with its axis": (lambda x: x.kthvalue(6, -1, keepdim=True)[0], [(6,)]),
    "median": (lambda x: tuple(x.median(1)), [(5,)]),
    "median of an even number": (lambda x: x.median(1)[0], [(6,)]),
    "median with NaN": (lambda x: torch.where(x > 0.8, x * float("nan"), x).median(1)[0], [(6,)]),
    "digamma": (lambda x: torch.digamma(x + 0.5), [(6,)]),
    "polygamma": (lambda x: torch.polygamma(2, x + 0.5), [(6,)]),
    "erfinv": (torch.erfinv, [(6,)]),
    "bilinear": (lambda x, y: TF.bilinear(x, y, torch.ones(3, 6, 6)), [(6,), (6,)]),
    "rrelu": (lambda x: TF.rrelu(x - 0.5), [(6,)]),
    "max_pool2d with places": (lambda x: TF.max_pool2d(x, 2, return_indices=True), [(2, 6, 6)]),
}


def _by_arguments():
    found = {}
    for name, (_, shapes) in OPEN.items():
        found.setdefault(str(shapes), []).append(name)
    return found


def _open(names):
    """Import the functions of these names as one module that returns all their results."""

    def function(*args):
        return tuple(pytree.tree_leaves([OPEN[name][0](*args) for name in names]))

    _imported(function, _random(*OPEN[names[0]][1]))


@pytest.mark.parametrize("names", _by_arguments().values(), ids=_by_arguments())
def test_operators_keep_the_batch_open(names, caplog):
    """One export for all functions of equal arguments; if it fails, each function by itself, to name those that fail.

    An export and its decomposition cost a second, nearly all of it for any operator.
    """
    try:
        _open(names)
        assert "fixed" not in caplog.text
    except Exception as error:
        failures = Failures()
        for name in names:
            caplog.clear()
            with failures.of(name):
                _open([name])
                assert "fixed" not in caplog.text
        failures.raise_all()
        raise error


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_indices(mode, tmp_path):
    module = nn.EmbeddingBag(10, 3, mode=mode, padding_idx=2).eval()
    rows = torch.tensor([[1, 2, 4], [3, 4, 5]])
    net = mx.torch.imports(module, rows)
    for each in (rows, rows[:1], torch.cat([rows, rows])):
        _same(net(*_arrays([each])), module(each))
    net.save(tmp_path / "a.hlab")
    _same(gluon.load(tmp_path / "a.hlab")(*_arrays([rows])), module(rows))
    line, starts = torch.tensor([1, 2, 4, 3, 4, 5]), torch.tensor([0, 3])
    net = mx.torch.imports(module, (line, starts))
    for each in (starts, torch.tensor([0, 0]), torch.tensor([0, 5])):
        _same(net(*_arrays([line, each])), module(line, each))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_margin_of_several_labels_is_that_of_the_module(reduction):
    """torch's decomposition of this loss gives other numbers than the loss."""
    module = nn.MultiLabelMarginLoss(reduction=reduction)
    x, y = torch.randn(3, 4), torch.tensor([[3, 0, -1, 1], [2, 1, 3, -1], [0, -1, -1, -1]])
    net = mx.torch.imports(module, (x, y))
    for scores, labels in ((x, y), (x[:1], y[:1]), (torch.cat([x, x + 1]), torch.cat([y, y]))):
        _same(net(*_arrays([scores, labels])), module(scores, labels))


def test_an_assignment_keeps_the_batch_open():
    _imported(_write, _random((6,)), (3, 5))


def test_an_unsupported_operator_is_named_with_its_line():
    with pytest.raises(mx.torch.UnsupportedOperatorError, match=r"aten\.linalg_qr.*test_tables\.py"):
        mx.torch.imports(Function(lambda x: torch.linalg.qr(x)[1]), torch.randn(3, 2, 2))


def test_an_operator_without_an_open_form_is_imported_for_the_examples_batch(caplog):
    net = mx.torch.imports(Function(lambda x: x * min(x.shape[0], 8)), torch.ones(3, 2))
    assert "the batch is fixed" in caplog.text and net(nd.ones((3, 2))).asnumpy()[0, 0] == 3
