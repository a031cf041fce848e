"""SVRGModule beside the real one, whose weights tests/golden/reference/make_svrg.py wrote."""

from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab.diagnostics import SettingError
from hybrid_lab.mxnet.contrib.svrg_optimization import SVRGModule

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "reference" / "svrg.npz"


@pytest.fixture
def golden():
    return np.load(GOLDEN)


def batches_of(golden, size=4):
    return mx.io.NDArrayIter(golden["data"], golden["label"], batch_size=size, label_name="label")


def network():
    output = mx.sym.FullyConnected(mx.sym.Variable("data"), name="fc", num_hidden=1)
    return mx.sym.LinearRegressionOutput(output, mx.sym.Variable("label"), name="out")


@pytest.mark.parametrize("contexts", [1, 2])
def test_weights_of_two_epochs_are_those_of_the_real_one(golden, contexts):
    found = {}
    module = SVRGModule(
        network(), label_names=["label"], update_freq=2, context=[mx.cpu(place) for place in range(contexts)]
    )
    module.fit(
        batches_of(golden),
        eval_metric="mse",
        optimizer_params={"learning_rate": 0.05, "momentum": 0.9},
        initializer=mx.init.Constant(0.1),
        epoch_end_callback=lambda epoch, symbol, arguments, states: found.update(
            {f"{name}_{epoch}": values.asnumpy() for name, values in arguments.items()}
        ),
        num_epoch=2,
    )
    for name, values in found.items():
        np.testing.assert_allclose(values, golden[name], rtol=1e-5, atol=1e-6)


def test_a_second_snapshot_has_the_mean_gradient_of_its_own_parameters(golden):
    # MXNet adds the second mean to the first one.
    module = SVRGModule(network(), label_names=["label"], update_freq=1)
    batches = batches_of(golden)
    module.bind(batches.provide_data, batches.provide_label)
    module.init_params(mx.init.Constant(0.1))
    module.update_full_grads(batches)
    first = module._full_gradients["fc_weight"].asnumpy()
    module.update_full_grads(batches)
    assert np.array_equal(module._full_gradients["fc_weight"].asnumpy(), first)


def test_a_step_at_the_snapshot_is_a_step_of_all_data(golden):
    """There the noise cancels out: each batch gives the mean gradient."""
    batches = batches_of(golden, 11)
    module = SVRGModule(network(), label_names=["label"], update_freq=1)
    module.bind(batches.provide_data, batches.provide_label)
    module.init_params(mx.init.Constant(0.1))
    module.init_optimizer(optimizer_params={"learning_rate": 0.0})
    module.update_full_grads(batches)
    batches.reset()
    for batch in batches:
        module.forward_backward(batch)
        module.update()
        (name, (gradient,)), *_ = module.gradients()
        np.testing.assert_allclose(gradient.asnumpy(), module._full_gradients[name].asnumpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "error"), [(None, TypeError), (2.0, TypeError), (True, TypeError), (0, SettingError)]
)
def test_update_freq_is_a_positive_int(given, error):
    with pytest.raises(error, match="update_freq is a number of epochs"):
        SVRGModule(network(), label_names=["label"], update_freq=given)
