"""contrib.autograd and contrib.io: MXNet's older interfaces."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.contrib import autograd
from hybrid_lab.diagnostics import AutogradError
from hybrid_lab.mxnet.contrib.io import DataLoaderIter


def test_grad_and_loss_gives_gradients_and_values():
    gradients, value = autograd.grad_and_loss(lambda x, y: x * y + x)(nd.array([2.0]), nd.array([5.0]))
    assert [gradient.asscalar() for gradient in gradients] == [6.0, 2.0] and value.asscalar() == 12.0


def test_argnum_chooses_arguments():
    function = autograd.grad(lambda x, y: x * x * y, argnum=1)
    assert function(nd.array([3.0]), nd.array([5.0]))[0].asscalar() == 9.0
    assert len(autograd.grad(lambda x, y: x + y, argnum=[0, 1])(nd.ones((1,)), nd.ones((1,)))) == 2


def test_sections_set_recording_and_mode():
    x = nd.ones((100,))
    with autograd.train_section():
        assert mx.autograd.is_recording() and mx.autograd.is_training()
        with autograd.test_section():
            assert not mx.autograd.is_recording()
            assert (nd.Dropout(x, p=0.5) == x).asnumpy().all()
        assert mx.autograd.is_recording() and (nd.Dropout(x, p=0.5) == 0).asnumpy().any()
    assert not mx.autograd.is_training()


def test_backward_of_several_outputs():
    x, gradient = nd.array([1.0, 2.0]), nd.zeros((2,))
    autograd.mark_variables([x], [gradient])
    with autograd.train_section():
        outputs = [x * 2, x * 3]
    autograd.backward(outputs, [nd.ones((2,)), nd.array([10.0, 100.0])])
    assert gradient.asnumpy().tolist() == [32.0, 302.0]


def test_wrong_arguments_are_named():
    with pytest.raises(AutogradError, match="list or tuple"):
        autograd.compute_gradient(nd.ones((1,)))
    with pytest.raises(AutogradError, match="not float"):
        autograd.grad(lambda x: x)(2.0)


def test_a_loader_is_read_as_a_data_iter():
    data = gluon.data.ArrayDataset(nd.arange(10).reshape((5, 2)), nd.arange(5))
    batches = DataLoaderIter(gluon.data.DataLoader(data, batch_size=2), label_name="label")
    assert (batches.provide_data[0].name, batches.provide_data[0].shape) == ("data", (2, 2))
    assert (batches.provide_label[0].name, batches.batch_size) == ("label", 2)
    read = list(batches)
    assert [batch.pad for batch in read] == [0, 0, 1]
    assert read[2].data[0].asnumpy().tolist() == [[8.0, 9.0], [0.0, 0.0]]
    batches.reset()
    np.testing.assert_array_equal(batches.next().label[0].asnumpy(), [0, 1])
