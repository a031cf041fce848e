"""Short tracebacks: the user's own lines, links and the whole folded; only for errors of this package in a kernel."""

import pytest

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.lab.kernel import tracebacks
from hybrid_lab.lab.messages.errors import ERROR
from tests.lab.kernel_process import Kernel

MODEL = """import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn

class Stubborn(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x.reshape((x.shape[0] * 2, -1)) if x.shape[0] > 1 else x

net = nn.HybridSequential()
net.add(nn.Dense(3), Stubborn())
net.initialize()
net.hybridize(strict=True)
x = mx.nd.ones((2, 5))"""


@pytest.fixture
def kernel(tmp_path):
    running = Kernel(tmp_path)
    yield running
    running.stop()


def failed(kernel, cell, cell_id="here"):
    """(the error output, the data of the output beside it or None) of a cell that fails."""
    del kernel.heard[:]
    with pytest.raises(AssertionError):
        kernel.finish(kernel.start(cell, cell_id))
    errors = [each["content"] for each in kernel.heard if each["msg_type"] == "error"]
    shown = [each["content"]["data"] for each in kernel.heard if each["msg_type"] == "display_data"]
    assert len(errors) == 1
    return errors[0], next((data for data in shown if ERROR in data), None)


#: Errors of this package, each from another part of it: the cell, the class (or one below it), the Block that is named.
ERRORS = {
    "shapes": ("mx.nd.ones((2, 3)) + mx.nd.ones((4, 5))", "ShapeError", None),
    "trace": ("net(x)", "HybridizeError", "net[1]"),
    "nan": ("with mx.watch_nan(net[0]):\n    net[0](x * float('nan'))", "NonFiniteError", "net[0]"),
    "file": ("net.load('nothing.hlab')", "ArchiveError", None),
    "uninitialized": ("nn.Dense(3)(x)", "UninitializedError", None),
    "fewer": ("net[0](x)\nnet[0].save('one')\nnet[0].hybridize()\nnn.Dense(3).save('one')", "FewerGraphsError", None),
}


def test_errors_of_this_package_are_short(kernel):
    kernel.run(MODEL)
    for name, (cell, kind, block) in ERRORS.items():
        error, shown = failed(kernel, cell)
        text = "\n".join(error["traceback"])
        if error["ename"] != kind:
            assert error["ename"].endswith("Error"), (name, error["ename"])
        assert "site-packages" not in text and "hybrid_lab/" not in text.partition("Traceback")[2], name
        assert shown is not None, (name, text)
        data = shown[ERROR]
        assert data["error"] == error["ename"] and data["hidden"] >= 2, name
        assert data["places"][0]["cell_id"] or data["places"][0]["cell"] is not None, name
        assert "<details>" in shown["text/html"] and "hybrid_lab" in shown["text/html"], name
        assert "<script" not in shown["text/html"]
        if block is not None:
            assert data["name"] == block, name


def test_tb_gives_the_whole_and_a_setting_too(kernel):
    kernel.run(MODEL)
    failed(kernel, "net(x)")
    del kernel.heard[:]
    kernel.finish(kernel.start("%tb"))
    whole = "\n".join(each["content"]["traceback"][0] for each in kernel.heard if each["msg_type"] == "error")
    kernel.run("mx.lab.short_tracebacks(False)")
    error, shown = failed(kernel, "net(x)")
    assert shown is None and "hybrid_lab" in "\n".join(error["traceback"])
    assert whole


def test_other_exceptions_and_handlers_are_unchanged(kernel):
    kernel.run(MODEL)
    error, shown = failed(kernel, "1 / 0")
    assert error["ename"] == "ZeroDivisionError" and shown is None
    assert kernel.run("print(get_ipython().custom_exceptions[0].__name__)") == "HybridLabError"
    kernel.run("%unload_ext hybrid_lab")
    assert kernel.run("print(get_ipython().custom_exceptions)") == "()"
    kernel.run("def own(*_, **__): print('mine')\nget_ipython().set_custom_exc((ValueError,), own)")
    kernel.run("%load_ext hybrid_lab")
    assert kernel.run("print(get_ipython().custom_exceptions[0].__name__)") == "ValueError"


def test_the_exception_that_it_came_from_is_named_in_a_line():
    try:
        try:
            {}["key"]
        except KeyError as error:
            raise HybridLabError("no such name") from error
    except HybridLabError as error:
        caught = error
    with tracebacks._without_cause(caught) as words:
        assert words == ["caused by KeyError: 'key'"] and caught.__cause__ is None
    assert isinstance(caught.__cause__, KeyError)
