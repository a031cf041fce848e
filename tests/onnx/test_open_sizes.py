"""Networks that reshape their inputs: which sizes stay open in their files, and that the files hold for others."""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import nd
from hybrid_lab.gluon import nn
from hybrid_lab.onnx.writing.equalities import Needed, needed
from hybrid_lab.ops.framework.sizes import Guards

from .networks import assert_equal, call, floats
from .test_export import hybrid, shapes

# -- equalities ------------------------------------------------------------------------------------------------------


def test_a_common_factor_needs_no_number():
    guards = Guards()
    batch, width = guards.symbol(2), guards.symbol(64)
    assert batch * 64 == batch * width
    assert needed(guards, [0, 1]) == Needed({1: ()})
    assert needed(guards, [1, 0]) == Needed({1: ()})  # the order chooses only where there is a choice


def test_a_division_without_remainder_needs_one_number_and_the_order_chooses_which():
    guards = Guards()
    batch, width = guards.symbol(4), guards.symbol(8)
    assert batch * width % 4 == 0
    assert needed(guards, [0, 1]) == Needed({1: (0,)})
    assert needed(guards, [1, 0]) == Needed({0: (1,)})


def test_a_number_that_another_equality_needs_is_not_asked_for_twice():
    guards = Guards()
    batch, width = guards.symbol(4), guards.symbol(8)
    assert batch * width % 4 == 0
    assert batch == 4
    assert needed(guards, [0, 1]) == Needed({0: ()})


def test_no_number_alone_will_do():
    guards = Guards()
    batch, width = guards.symbol(2), guards.symbol(9)
    assert batch * width % 6 == 0
    assert needed(guards, [0, 1]) == Needed({0: (), 1: ()})


def test_equal_sizes_are_one():
    guards = Guards()
    one, wide, two, long = (guards.symbol(hint) for hint in (4, 12, 4, 3))
    assert one * wide == two * long * 4
    assert needed(guards, [0, 2, 1, 3]) == Needed(one=(0, 2))


def test_three_equal_sizes_are_one():
    guards = Guards()
    one, two, three = (guards.symbol(4) for _ in range(3))
    assert one + two == three * 2
    assert needed(guards, [0, 1, 2]) == Needed(one=(0, 1, 2))


# -- networks --------------------------------------------------------------------------------------------------------

BATCH_OPEN = {
    "flat rows to images": (
        lambda self, F, x: self.child0(F.reshape(x, (0, 1, 8, 8))), [(64,)], lambda: [nn.Conv2D(3, 3)]
    ),
    "flat rows to images, the batch left over": (
        lambda self, F, x: self.child0(F.reshape(x, (-1, 1, 8, 8))), [(64,)], lambda: [nn.Conv2D(3, 3)]
    ),
    "rows of another width": (lambda self, F, x: F.reshape(x, (-1, 6)), [(3, 4)], list),
    "a width that is left over": (lambda self, F, x: F.reshape(x, (0, -1, 3)), [(12,)], list),
    "read from the right": (lambda self, F, x: F.reshape(x, (-1, 6), reverse=True), [(12,)], list),
    "after a Dense": (lambda self, F, x: F.reshape(self.child0(x), (0, 1, 8, 8)), [(5,)], lambda: [nn.Dense(64)]),
    "after a Flatten": (lambda self, F, x: F.reshape(F.flatten(x), (0, 4, 6)), [(3, 8)], list),
    "of a transposed input": (lambda self, F, x: F.reshape(F.transpose(x, (1, 0, 2)), (-1, 6)), [(4, 3)], list),
    "in loops over parts": (
        lambda self, F, x: F.concat(*F.split(F.reshape(x, (0, 4, -1)), 4, axis=1), dim=2), [(24,)], list
    ),
    "two inputs of one batch": (
        lambda self, F, x, y: F.reshape(x, (0, 2, 4)) * F.transpose(F.reshape(y, (-1, 4, 2)), (0, 2, 1)),
        [(8,), (8,)],
        list,
    ),
    "as another input": (lambda self, F, x, y: F.reshape_like(x, y) + y, [(12,), (3, 4)], list),
    "two codes for one size": (lambda self, F, x: F.reshape(x, (0, -4, 4, -1)), [(12,)], list),
}  # fmt: skip


@pytest.mark.parametrize("batch", [1, 2, 64])
@pytest.mark.parametrize(("function", "rows", "children"), BATCH_OPEN.values(), ids=BATCH_OPEN)
def test_a_reshape_leaves_the_batch_open(function, rows, children, batch, tmp_path):
    net = hybrid(function, *children())
    call(net, [floats(batch, *row) for row in rows])
    report = mx.onnx.export(net, tmp_path / "net.onnx")
    assert [shape[0] for shape in shapes(report).values()] == ["batch"] * len(rows)
    for size in (batch, 5, 8):
        assert_equal(report.path, net, [floats(size, *row) for row in rows])


def test_code_in_numpy_semantics(tmp_path):
    class Net(mx.gluon.HybridBlock):
        def forward(self, x):
            return mx.np.reshape(x, (-1, 2, 8))

    net = Net()
    net.hybridize()
    net(mx.np.ones((2, 16)))
    report = mx.onnx.export(net, tmp_path / "net.onnx")
    assert shapes(report) == {"data": ("batch", 16)}
    assert_equal(report.path, net, [floats(3, 16)])


@pytest.mark.parametrize("function", [
    lambda self, F, x: self.child0(F.reshape(x, (4, -1))),
    lambda self, F, x: F.reshape(x, (4, 6)),
    lambda self, F, x: F.reshape(x, (-1, 8)),
    lambda self, F, x: F.reshape(x, (-4, 2, -1, -2)),
], ids=["before a layer", "both sizes", "rows of another size", "a batch in two parts"])  # fmt: skip
def test_a_reshape_that_holds_for_one_batch_says_so(function, tmp_path):
    net = hybrid(function, nn.Dense(3))
    net(nd.ones((2, 12)))
    report = mx.onnx.export(net, tmp_path / "net.onnx")
    assert shapes(report)["data"][0] == 2
    assert report.notes == ("axis 0 of data is fixed at 2: the network holds for this size alone",)
    assert_equal(report.path, net, [floats(2, 12)])


def test_the_note_names_the_inputs_that_leave_another_size_open(tmp_path):
    """Four rows: either the batch or the width may be any."""
    net = hybrid(lambda self, F, x: F.reshape(x, (4, -1)))
    net(nd.ones((4, 8)))
    report = mx.onnx.export(net, tmp_path / "net.onnx", inputs=("batch", "width"))
    assert shapes(report) == {"data": ("batch", 8)}
    assert report.notes == (
        "width is fixed at 8: this leaves batch open; inputs=(4, 'width') leaves width open instead",
    )  # fmt: skip
    assert_equal(report.path, net, [floats(3, 8)])
    report = mx.onnx.export(net, tmp_path / "net.onnx", inputs=(4, "width"))
    assert shapes(report) == {"data": (4, "width")} and not report.notes
    assert_equal(report.path, net, [floats(4, 5)])


def test_a_size_in_which_calls_differ_stays_open_rather_than_the_batch(tmp_path):
    net = hybrid(lambda self, F, x: F.reshape(x, (4, -1)))
    for width in (3, 8):
        net(nd.ones((4, width)))
    report = mx.onnx.export(net, tmp_path / "net.onnx")
    assert shapes(report) == {"data": (4, "data_1")}
    assert report.notes == (
        "axis 0 of data is fixed at 4: this leaves axis 1 of data open; "
        "inputs=('batch', 8) leaves axis 0 of data open instead",
    )
    assert_equal(report.path, net, [floats(4, 5)])
    report = mx.onnx.export(net, tmp_path / "net.onnx", inputs=("batch", 8))
    assert_equal(report.path, net, [floats(3, 8)])


def test_the_file_is_read_again(tmp_path):
    net = hybrid(lambda self, F, x: self.child0(F.reshape(x, (0, 1, 8, 8))), nn.Conv2D(3, 3))
    call(net, [floats(2, 64)])
    again = mx.onnx.imports(mx.onnx.export(net, tmp_path / "net.onnx").path)
    for size in (2, 3):
        x = floats(size, 64)
        np.testing.assert_allclose(call(again, [x])[0], call(net, [x])[0], rtol=1e-5, atol=1e-6)
