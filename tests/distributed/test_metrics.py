"""Metrics and logged values of all workers together, and the parts of files that workers read."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest

pytest.importorskip("torch")

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.data.io.parts import DataPart, part_of
from hybrid_lab.gluon import nn
from hybrid_lab.metric import EvalMetric
from hybrid_lab.metric.base import _registry
from tests.distributed.workers import results

SETTINGS = {
    "TopKAccuracy": [{"top_k": 2}],
    "F1": [{"average": "macro"}, {"average": "micro"}],
    "MCC": [{"average": "macro"}, {"average": "micro"}],
    "Perplexity": [{"ignore_label": None}],
    "PearsonCorrelation": [{"average": "macro"}, {"average": "micro"}],
    "CustomMetric": [{"feval": lambda label, pred: float(abs(label - pred.argmax(1)).mean())}],
    "CompositeEvalMetric": [{"metrics": ["acc", "mse"]}],
}
"""Of the metrics that need settings, or have several kinds of sums."""
REGRESSION = ("MAE", "MSE", "RMSE", "PearsonCorrelation", "CompositeEvalMetric")


def all_metrics() -> list[EvalMetric]:
    kinds = sorted(
        {kind.__name__: kind for kind in _registry.values() if kind.__module__.startswith("hybrid_lab.")}.items()
    )
    return [kind(**settings) for name, kind in kinds for settings in SETTINGS.get(name, [{}])]


def counted(metric: EvalMetric, part: slice) -> EvalMetric:
    """The metric after these of eight batches."""
    numbers = np.random.RandomState(4)
    for number in range(8):
        labels, scores = numbers.randint(0, 2 + (number > 5) * (type(metric).__name__ == "PCC"), 6), numbers.rand(6, 3)
        scores /= scores.sum(1, keepdims=True)
        pred = scores[:, :2] if type(metric).__name__ in ("F1", "MCC") else scores
        if type(metric).__name__ in REGRESSION:
            labels, pred = numbers.rand(6, 3) if type(metric).__name__ != "CompositeEvalMetric" else labels, pred
        if type(metric).__name__ == "CompositeEvalMetric":
            pred = scores[:, 0]
        if number in range(8)[part]:
            metric.update([nd.array(labels)], [nd.array(pred)])
    return metric


BODY = """
import tests.distributed.test_metrics as these
alone = [each.get_global(workers=True) for each in these.all_metrics()]  # before the workers have joined
store = mx.kv.create("dist_sync")
part = slice(0, 3) if rank == 0 else slice(3, 8)
metrics = [these.counted(each, part) for each in these.all_metrics()]
found = {"each": [each.get_global(workers=True) for each in metrics], "alone": alone}
found["own"] = [each.get_global() for each in metrics]
found["pairs"] = metrics[0].get_global_name_value(workers=True)
found["mean"] = mx.distributed.mean(loss=nd.array([rank, rank + 2]), accuracy=0.5 * rank)
found["many"] = mx.distributed.mean(**{f"value{i}": i + rank for i in range(600)})

def told(call):
    try:
        call()
    except mx.distributed.WorkersDifferError as error:
        return str(error)

found["errors"] = [
    told(lambda: mx.distributed.mean(**({"loss": 1} if rank == 0 else {"accuracy": 1}))),
    told(lambda: (mx.metric.MSE() if rank == 0 else mx.metric.Accuracy()).get_global(workers=True)),
    told(lambda: mx.metric.MSE("error").get_global(workers=True) if rank == 0 else mx.distributed.mean(error=3)),
    told(lambda: mx.distributed.mean(**{f"value{i}": i for i in range(300 + rank)})),
]
found["still"] = mx.distributed.mean(rank=rank)
found["fit"] = these.fitted(store)
found["parts"] = [these.DataPart(*these.part_of(None, None)), these.part_of(3, 2)]
return found
"""


def fitted(store):
    """What an Estimator tells of its training."""
    mx.random.seed(1)
    net = nn.Dense(3, in_units=4)
    net.initialize(mx.init.Xavier())
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=store)
    numbers = np.random.RandomState(2)
    data = gluon.data.ArrayDataset(numbers.randn(24, 4).astype("float32"), numbers.randint(0, 3, 24).astype("float32"))
    sampler = gluon.data.DistributedSampler(24, shuffle=False)
    loader = gluon.data.DataLoader(data, 12 // sampler._parts, sampler=sampler)
    estimator = gluon.contrib.estimator.Estimator(net, gluon.loss.SoftmaxCrossEntropyLoss(), trainer=trainer)
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    estimator.logger.handlers = [handler]
    estimator.fit(loader, epochs=2)
    ends = [line.partition("Finished in ")[2].partition(", ")[2] for line in lines if "Finished in" in line]
    return ends, net.weight.data().asnumpy()


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return results(2, BODY, tmp_path_factory.mktemp("workers"), timeout=600)


@pytest.mark.long
def test_metrics_of_all_workers(found):
    for worker in found:
        for metric, (name, value) in zip(all_metrics(), worker["each"], strict=True):
            wanted_name, wanted = counted(metric, slice(None)).get_global()
            assert name == wanted_name
            np.testing.assert_allclose(value, wanted, rtol=1e-9, err_msg=str(name))
    different = [one for one, other in zip(found[0]["own"], found[1]["own"], strict=True) if one != other]
    assert len(different) > 10  # without workers=True they are those of each worker
    assert [*map(str, found[0]["alone"])] == [str(each.get_global()) for each in all_metrics()]
    assert found[0]["pairs"] == [found[0]["each"][0]]


def test_means(found):
    for worker in found:
        assert worker["mean"] == {"loss": 1.5, "accuracy": 0.25}
        assert worker["many"] == {f"value{i}": i + 0.5 for i in range(600)}
        assert worker["still"] == {"rank": 0.5}
    assert mx.distributed.mean(loss=nd.array([1, 3])) == {"loss": 2.0}
    with pytest.raises(mx.diagnostics.SettingError, match="loss is a number"):
        mx.distributed.mean(loss="much")


def test_other_metrics_are_told_in_all_workers(found):
    assert found[0]["errors"] == found[1]["errors"]
    first, second, third, fourth = found[0]["errors"]
    assert "rank 0 sums the values loss over all workers, rank 1 the values accuracy" in first
    assert "the metrics mse (MSE) of the shape (2,) over all workers, rank 1 the metrics accuracy (Accuracy)" in second
    assert "rank 0 sums the metrics error (MSE)" in third
    assert "value300" in fourth


def test_an_estimator_tells_of_all_workers(found):
    ends, weight = fitted("device")
    for worker in found:
        assert worker["fit"][0] == ends
        np.testing.assert_allclose(worker["fit"][1], weight, atol=1e-6)


class Own(mx.metric.EvalMetric):
    """As MXNet's users write them: `update` and `get`."""

    def update(self, labels, preds):
        self.seen = 1

    def get(self):
        return self.name, 7.0


def test_a_metric_with_a_value_of_its_own():
    with pytest.raises(mx.diagnostics.SettingError, match=r"Own computes its value in get\(\)"):
        Own("own").get_global(workers=True)
    assert math.isnan(mx.metric.Accuracy().get_global(workers=True)[1])


# -- parts --------------------------------------------------------------------------------------------------------


def test_parts_of_workers(found):
    assert [each["parts"] for each in found] == [
        [DataPart(0, 2, True), DataPart(2, 3, False)],
        [DataPart(1, 2, True), DataPart(2, 3, False)],
    ]
    assert part_of(None, None) == DataPart(0, 1, False)


@pytest.mark.parametrize("length", [0, 1, 3, 10, 100])
@pytest.mark.parametrize("parts", [1, 2, 4, 7])
def test_workers_read_equally_many_rows_and_all_of_them(length, parts):
    rows = [list(range(length))[DataPart(number, parts, True).slice(length)] for number in range(parts)]
    assert {len(each) for each in rows} == {-(-length // parts)}
    assert {row for each in rows for row in each} == set(range(length))
