"""Modules that torch cannot export: the error names module, line and next step."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import hybrid_lab as mx  # noqa: E402
from hybrid_lab import nd  # noqa: E402
from tests.torch.comparing import apart  # noqa: E402


@pytest.fixture(scope="module")
def operators():
    """`without_shapes` has no fake implementation; `composite` fails while it is decomposed, once `fails` is True."""
    library = torch.library.Library("hybrid_lab_tests", "DEF")
    library.define("without_shapes(Tensor x) -> Tensor")
    library.impl("without_shapes", lambda x: x + 1, "CPU")
    library.define("composite(Tensor x) -> Tensor")

    def composite(x):
        if operators.fails:
            raise RuntimeError("no decomposition")
        return x + 1

    operators = torch.ops.hybrid_lab_tests
    operators.fails = False
    library.impl("composite", composite, "CompositeImplicitAutograd")
    yield operators
    library._destroy()


class Part(nn.Module):
    """Calls a function on its input."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(5, 5), Part(function)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def wrong_width(x):
    return x + torch.ones(7)


def branch(x):
    if x.sum() > 0:
        return x * 2
    return x


def own_error(x):
    raise KeyError("of the user")


def error_of(source, *args, **options):
    with pytest.raises(mx.torch.TorchError) as caught:
        mx.torch.imports(source, *args, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("function", "line", "next_step"),
    [
        (wrong_width, "in wrong_width: return x + torch.ones(7)", "Call the module itself with the example inputs"),
        (branch, "in branch: if x.sum() > 0:", "Compute with torch.where"),
        (own_error, 'in own_error: raise KeyError("of the user")', "Call the module itself with the example inputs"),
    ],
)
def test_a_failed_export_names_module_line_and_next_step(function, line, next_step):
    message = error_of(Net(function), torch.randn(3, 5))
    number = function.__code__.co_firstlineno + 1
    assert message.startswith(f"blocks.1 of Net ({__file__}, line {number}, {line}): ")
    assert next_step in message


def test_a_failure_in_a_layer_of_torch_names_the_line_that_calls_it():
    message = error_of(Net(wrong_width), torch.randn(3, 4))
    assert message.startswith(f"blocks.0 of Net ({__file__}, line ")
    assert "in Net.forward: x = block(x)): torch.export cannot trace it (" in message


def test_an_operator_without_shapes(operators):
    message = error_of(Net(lambda x: operators.without_shapes(x)), torch.randn(3, 5))
    assert "the operator hybrid_lab_tests.without_shapes.default returns" in message
    assert "torch.library.register_fake" in message


def test_an_operator_that_torch_cannot_decompose(operators):
    program = torch.export.export(Net(lambda x: operators.composite(x)), (torch.randn(3, 5),))
    operators.fails = True
    try:
        message = error_of(program)
    finally:
        operators.fails = False
    assert message.startswith("blocks.1 (hybrid_lab_tests.composite.default, node 'composite'")
    assert "cannot write it in core ATen operators (RuntimeError: no decomposition)" in message
    assert "Write this part with other operators of torch" in message
    assert repr(mx.torch.imports(program)).startswith("Net(")  # the program is as it was


@pytest.mark.parametrize(
    ("args", "kwargs", "problem"),
    [
        ((torch.ones(2, 3), torch.ones(2)), {}, "too many positional arguments"),
        ((), {}, "missing a required argument: 'input'"),
        ((torch.ones(2, 3),), {"mask": 1}, "got an unexpected keyword argument 'mask'"),
    ],
)
def test_example_inputs_that_do_not_fit(args, kwargs, problem):
    message = error_of(nn.Linear(3, 2), args, example_kwargs=kwargs)
    assert f"Linear: the example inputs do not fit forward(input: torch.Tensor) -> torch.Tensor ({problem})" in message


def test_dynamic_shapes_that_do_not_fit():
    message = error_of(nn.Linear(3, 2), torch.ones(2, 3), dynamic_shapes={"other": {0: torch.export.Dim.AUTO}})
    assert message.startswith("Linear: torch.export refuses it (UserError: ")


def test_a_missing_operator_names_the_line():
    message = error_of(Net(lambda x: torch.fft.fft(x).real), torch.randn(3, 5))
    assert message.startswith(f"blocks.1 (aten._fft_r2c, node '_fft_r2c', {__file__}, line ")


def test_an_input_that_the_code_writes_to():
    message = error_of(Part(lambda x: x.mul_(2)), nd.ones(3))
    assert "writes to its input 'x'; begin with a copy: x = x.clone()" in message


def test_an_exported_program_stays_as_it_is():
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).eval()
    x = torch.randn(3, 4)
    program = torch.export.export(module, (x,))
    text = str(program.graph)
    for _ in range(2):
        net = mx.torch.imports(program)
        assert apart([net(nd.array(x.numpy())).asnumpy()], [module(x).detach().numpy()]) <= 1e-5
    assert str(program.graph) == text
    assert torch.equal(program.module()(x), module(x))
