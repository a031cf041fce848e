"""gluon.contrib.estimator: the training loop, its event handlers and checkpoints."""

import io
import itertools
import logging
import warnings
from types import SimpleNamespace

import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.gluon import nn
from hybrid_lab.gluon.contrib.estimator import (
    BatchEnd,
    BatchProcessor,
    CheckpointHandler,
    EarlyStoppingHandler,
    EpochEnd,
    Estimator,
    GradientUpdateHandler,
    LoggingHandler,
    MetricHandler,
    ValidationHandler,
    event_handler,
)


@pytest.fixture
def data():
    """Four batches of two classes that a line separates."""
    x = nd.random.normal(shape=(32, 3))
    labels = (x.sum(axis=1) > 0).astype("float32")
    return gluon.data.DataLoader(gluon.data.ArrayDataset(x, labels), batch_size=8)


@pytest.fixture
def make():
    """An Estimator of a small network, quiet, with a Trainer that learns."""

    def build(net=None, rate=0.5, **options):
        net = net or nn.Dense(2, in_units=3, prefix="out_")
        net.initialize(mx.init.Xavier())
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": rate})
        estimator = Estimator(net, gluon.loss.SoftmaxCrossEntropyLoss(), trainer=trainer, **options)
        estimator.logger.handlers.clear()
        return estimator

    return build


def log_of(estimator):
    stream = io.StringIO()
    estimator.logger.addHandler(logging.StreamHandler(stream))
    return stream


def test_fit_trains_and_evaluates(data, make):
    estimator = make()
    estimator.fit(data, val_data=data, epochs=10)
    assert [metric.name for metric in estimator.train_metrics] == [
        "training accuracy",
        "training softmaxcrossentropyloss",
    ]
    assert estimator.val_metrics[0].name == "validation accuracy"
    assert estimator.val_metrics[0].get()[1] > 0.9


def test_batches_end_in_the_middle_of_an_epoch(data, make):
    class Count(BatchEnd, EpochEnd):
        batches = epochs = 0

        def batch_end(self, estimator, *args, **kwargs):
            assert kwargs["loss"][0].shape == (8,)
            self.batches += 1

        def epoch_end(self, estimator, *args, **kwargs):
            self.epochs += 1

    count = Count()
    make().fit(data, batches=6, event_handlers=[count])
    assert (count.batches, count.epochs) == (6, 2)


def test_a_handler_that_returns_true_stops(data, make):
    class Stop(EpochEnd):
        def epoch_end(self, estimator, *args, **kwargs):
            return True

    estimator, stream = make(), None
    stream = log_of(estimator)
    estimator.fit(data, epochs=5, event_handlers=Stop())
    assert "with 1 epochs" in stream.getvalue()


def test_the_log_has_metrics_after_every_batch(data, make, monkeypatch):
    """Each look at the clock finds it two seconds later."""
    monkeypatch.setattr(event_handler, "time", SimpleNamespace(time=itertools.count(step=2).__next__))
    estimator = make()
    stream = log_of(estimator)
    estimator.fit(data, epochs=1, event_handlers=[LoggingHandler(1, estimator.train_metrics)])
    lines = [line for line in stream.getvalue().splitlines() if "time/interval" in line]
    assert len(lines) == 4 and lines[0].startswith("[Epoch 0][Batch 0][Samples 8] time/interval: 2.000s ")
    assert "training accuracy: " in lines[3]


def test_defaults_are_left_out_where_the_user_has_their_kind(make, data):
    estimator = make()
    estimator.max_epoch, estimator.max_batch = 1, None
    handlers = estimator._prepare_default_handlers(data, [MetricHandler(estimator.train_metrics)])
    names = [type(handler).__name__ for handler in handlers]
    assert names == ["GradientUpdateHandler", "MetricHandler", "ValidationHandler", "StoppingHandler", "LoggingHandler"]


def test_metrics_that_nobody_updates_are_refused(data, make):
    with pytest.raises(ValueError, match=r"LoggingHandler.metrics has .* does not update"):
        make().fit(data, epochs=1, event_handlers=[LoggingHandler(metrics=[mx.metric.MAE()])])


def test_gradients_of_two_batches_may_be_added(data, make):
    """A GradientUpdateHandler of one's own decides when parameters change."""

    class EverySecond(GradientUpdateHandler):
        batches = 0

        def batch_end(self, estimator, *args, **kwargs):
            self.batches += 1
            if self.batches % 2 == 0:
                estimator.trainer.step(16)
                estimator.net.collect_params().zero_grad()

    estimator = make()
    estimator.net.collect_params().setattr("grad_req", "add")
    before = estimator.net.weight.data().copy()
    estimator.fit(data, batches=1, event_handlers=[EverySecond()])
    assert (estimator.net.weight.data() == before).asnumpy().all()
    estimator.fit(data, batches=2, event_handlers=[EverySecond()])
    assert (estimator.net.weight.data() != before).asnumpy().any()


def test_early_stopping_stops_where_nothing_improves(data, make):
    estimator = make(rate=0.0)
    stopping = EarlyStoppingHandler(estimator.train_metrics[0], patience=2)
    estimator.fit(data, epochs=9, event_handlers=[stopping])
    assert (stopping.current_epoch, stopping.stopped_epoch) == (3, 2)


def test_auto_means_smaller_is_better_for_a_loss_and_larger_for_an_accuracy():
    loss = EarlyStoppingHandler(mx.metric.Loss())
    assert loss._comparison.improves(1.0, best=2.0) and not loss._comparison.improves(2.0, best=1.0)
    accuracy = EarlyStoppingHandler(mx.metric.Accuracy())
    assert accuracy._comparison.improves(0.9, best=0.8) and not accuracy._comparison.improves(0.85, 0.8, least=0.1)


def test_checkpoints_and_the_best_of_them(data, make, tmp_path):
    net = nn.HybridSequential(prefix="net_")
    net.add(nn.Dense(2, in_units=3, prefix="out_"))
    net.hybridize(engine="numpy")
    estimator = make(net)
    handler = CheckpointHandler(
        tmp_path, "m", estimator.train_metrics[0], save_best=True, max_checkpoints=2, epoch_period=1
    )
    estimator.fit(data, epochs=4, event_handlers=[handler])
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "m-best.params", "m-best.states", "m-epoch2batch12.params", "m-epoch2batch12.states",
        "m-epoch3batch16.params", "m-epoch3batch16.states", "m-symbol.json",
    ]  # fmt: skip
    block = gluon.SymbolBlock.imports(str(tmp_path / "m-symbol.json"), ["data"])
    assert list(block.collect_params()) == ["out_weight", "out_bias"]


def test_a_training_resumes_with_the_remaining_epochs(data, make, tmp_path):
    first = make()
    first.fit(data, epochs=2, event_handlers=[CheckpointHandler(tmp_path)])
    second = make()
    handler = CheckpointHandler(tmp_path, resume_from_checkpoint=True)
    second.fit(data, epochs=5, event_handlers=[handler])
    assert second.max_epoch == 3 and (tmp_path / "model-epoch4batch20.params").exists()
    with pytest.raises(ValueError, match="has all 5 epochs"):
        make().fit(data, epochs=5, event_handlers=[CheckpointHandler(tmp_path, resume_from_checkpoint=True)])


def test_validation_in_the_middle_of_an_epoch(data, make):
    seen = []

    def evaluate(val_data, batch_axis, event_handlers):
        seen.append(batch_axis)

    make().fit(data, epochs=1, event_handlers=[ValidationHandler(data, evaluate, batch_period=2)])
    assert seen == [0, 0, 0]  # after batches 2 and 4, and after the epoch


def test_a_batch_processor_of_ones_own(data, make):
    class Doubled(BatchProcessor):
        def fit_batch(self, estimator, train_batch, batch_axis=0):
            self.seen = train_batch[0].shape
            return super().fit_batch(estimator, [train_batch[0] * 2, train_batch[1]], batch_axis)

    processor = Doubled()
    make(batch_processor=processor).fit(data, batches=1)
    assert processor.seen == (8, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_metrics": "accuracy"}, "metrics must be an EvalMetric"),
        ({"context": "cpu"}, "context must be a Context"),
        ({"batch_processor": object()}, "has no method fit_batch"),
    ],
)
def test_wrong_settings_are_named(make, options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_wrong_data_and_lengths_are_named(data, make):
    with pytest.raises(ValueError, match="takes a gluon.data.DataLoader, not list"):
        make().fit([1], epochs=1)
    with pytest.raises(ValueError, match="a number of epochs or of batches"):
        make().fit(data)
    with pytest.raises(ValueError, match="must be a gluon.loss.Loss"):
        Estimator(nn.Dense(2), nd.softmax)


def test_a_network_without_trainer_gets_one_with_a_warning():
    net = nn.Dense(2, in_units=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator = Estimator(net, gluon.loss.L2Loss())
    assert "No trainer specified" in str(caught[-1].message) and estimator.trainer.learning_rate == 0.001
    assert net.weight.data().shape == (2, 3)
