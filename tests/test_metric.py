"""Metrics. (Numbers against the real MXNet are in gluon/test_golden.py.)"""

import math

import numpy as np
import pytest

from hybrid_lab import metric, nd
from hybrid_lab.diagnostics import ShapeError

SCORES = nd.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])


def test_accuracy_of_scores_and_of_classes():
    accuracy = metric.Accuracy()
    assert math.isnan(accuracy.get()[1])
    accuracy.update(nd.array([1, 0, 0]), SCORES)
    assert accuracy.get() == ("accuracy", pytest.approx(2 / 3))
    accuracy.update([nd.array([1])], [nd.array([1])])
    assert accuracy.get() == ("accuracy", 0.75)


def test_local_and_global():
    accuracy = metric.Accuracy()
    accuracy.update(nd.array([0]), nd.array([1]))
    accuracy.reset_local()
    accuracy.update(nd.array([1]), nd.array([1]))
    assert accuracy.get()[1] == 1.0
    assert accuracy.get_global()[1] == 0.5
    accuracy.reset()
    assert math.isnan(accuracy.get_global()[1])


def test_several_at_once():
    both = metric.create(["acc", "ce"])
    both.update(nd.array([1, 0, 1]), SCORES)
    assert both.get()[0] == ["accuracy", "cross-entropy"]
    assert dict(both.get_name_value())["accuracy"] == 1.0
    assert str(both).startswith("EvalMetric: {'accuracy': 1.0")


def test_a_function_is_a_metric():
    largest = metric.create(lambda label, pred: float(np.abs(label - pred).max()))
    largest.update(nd.array([1, 2]), nd.array([1, 4]))
    assert largest.get() == ("custom(<lambda>)", 2.0)
    counted = metric.np(lambda label, pred: (float(label.sum()), 2), name="counted")
    counted.update(nd.array([1, 2]), nd.array([0, 0]))
    assert counted.get() == ("counted", 1.5)


def test_by_names():
    accuracy = metric.Accuracy(output_names=["y"], label_names=["t"])
    accuracy.update_dict({"t": nd.array([1])}, {"x": nd.array([0]), "y": nd.array([1])})
    assert accuracy.get()[1] == 1.0


def test_two_classes_and_more():
    """F1, MCC and PCC look at pairs of label and prediction, however the labels are shaped."""
    pred = nd.array([[0.2, 0.8], [0.9, 0.1], [0.4, 0.6], [0.7, 0.3]])
    for label in (nd.array([1, 0, 0, 0]), nd.array([[1], [0], [0], [0]])):
        for name, expected in (("f1", 2 / 3), ("mcc", 1 / math.sqrt(3)), ("pcc", 1 / math.sqrt(3))):
            score = metric.create(name)
            score.update([label], [pred])
            assert score.get() == (name, pytest.approx(expected))
    pcc = metric.PCC()
    pcc.update(nd.array([0, 1, 2]), nd.array([0, 1, 2]))
    assert pcc.get()[1] == pytest.approx(1)
    with pytest.raises(ShapeError, match="1 labels for 4 predictions"):
        metric.F1().update([nd.array([1])], [pred])


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="no metric named 'acuracy'; did you mean 'accuracy'"):
        metric.create("acuracy")
    with pytest.raises(ShapeError, match="labels and predictions do not match: 2 and 1"):
        metric.Accuracy().update([nd.array([1]), nd.array([1])], [nd.array([1])])
    with pytest.raises(ShapeError, match="2 labels for 3 predictions"):
        metric.Accuracy().update([nd.array([1, 0])], [SCORES])
    with pytest.raises(ValueError, match="top_k must be at least 2"):
        metric.TopKAccuracy(top_k=1)


def test_a_correlation_over_all_batches_is_that_of_the_joined_batches():
    generator = np.random.RandomState(0)
    labels, preds = generator.uniform(1e4, 1e4 + 1, (2, 3, 8))
    preds += np.arange(3)[:, None] + labels
    macro, micro = (metric.PearsonCorrelation(average=average) for average in ("macro", "micro"))
    for label, pred in zip(labels, preds, strict=True):
        for each in (macro, micro):
            each.update(nd.array(label, dtype="float64"), nd.array(pred, dtype="float64"))
    assert micro.get()[1] == pytest.approx(np.corrcoef(labels.ravel(), preds.ravel())[0, 1], rel=1e-9)
    assert micro.get_global() == micro.get()
    assert macro.get()[1] == pytest.approx(np.mean([np.corrcoef(*pair)[0, 1] for pair in zip(labels, preds)]))
    micro.reset_local()
    assert np.isnan(micro.get()[1]) and not np.isnan(micro.get_global()[1])
    with pytest.raises(ValueError, match="average"):
        metric.PearsonCorrelation(average="weighted")
