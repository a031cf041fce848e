"""Random settings of metrics and batches for them, and how they are run: the same for the real MXNet (golden data) and
for hybrid_lab.
"""

import numpy as np
from layer_cases import draw
from loss_cases import softmax

METRICS = {
    "Accuracy": {"axis": (1, -1)},
    "TopKAccuracy": {"top_k": (2, 3, 5)},
    "F1": {"average": ("macro", "micro")},
    "MCC": {"average": ("macro", "micro")},
    "PCC": {},
    "Perplexity": {"ignore_label": (None, 0, 1, -1), "axis": (-1,)},
    "MAE": {},
    "MSE": {},
    "RMSE": {},
    "CrossEntropy": {"eps": (1e-12, 1e-2)},
    "NegativeLogLikelihood": {"eps": (1e-12, 1e-2)},
    "PearsonCorrelation": {"average": ("macro", "micro")},
    "Loss": {},
}

ONE_AXIS = ("F1", "MCC", "TopKAccuracy")  # with labels (n, 1) MXNet compares every prediction with every label


def metric_case(seed):
    rng = np.random.RandomState(seed)
    name = list(METRICS)[seed % len(METRICS)]
    arguments = {key: draw(rng, *values) for key, values in METRICS[name].items() if rng.rand() < 0.7}
    if name == "TopKAccuracy":
        arguments.setdefault("top_k", 2)
    if name == "Perplexity":
        arguments.setdefault("ignore_label", None)
    kind = draw(rng, "plain", "plain", "column", "images", "several")
    return {"metric": name, "arguments": arguments, "kind": kind, "seed": seed}


def metric_batches(case):
    """Three updates: each a list of (label, prediction)."""
    rng = np.random.RandomState(3000 + case["seed"])
    name, kind = case["metric"], case["kind"]
    classes = 2 if name in ("F1", "MCC") else int(rng.randint(case["arguments"].get("top_k", 2), 7))
    updates = []
    for _ in range(3):
        updates.append([batch(rng, name, kind, classes, case) for _ in range(2 if kind == "several" else 1)])
    return updates


def batch(rng, name, kind, classes, case):
    size = int(rng.randint(2, 6))
    if name in ("MAE", "MSE", "RMSE", "PearsonCorrelation", "Loss"):
        shape = {"images": (size, 3), "column": (size, 1)}.get(kind, (size,))
        return rng.normal(0, 1, shape), rng.normal(0, 1, shape)
    shape = (size, classes)
    if kind == "images" and name == "Accuracy":
        place = case["arguments"].get("axis", 1)
        shape = (size, classes, 3) if place == 1 else (size, 3, classes)
        label = rng.randint(0, classes, (size, 3))
        return label.astype("float64"), softmax(rng.normal(0, 1, shape), place)
    label = rng.randint(0, classes, (size, 1) if kind == "column" and name not in ONE_AXIS else (size,))
    scores = softmax(rng.normal(0, 1, shape), 1)
    if name == "Accuracy" and rng.rand() < 0.2:
        return label.astype("float64"), rng.randint(0, classes, label.shape).astype("float64")
    return label.astype("float64"), scores


def run_metric(mx, case):
    """The value after each of three updates, the one since the last reset_local, and the names."""
    metric = getattr(mx.metric, case["metric"])(**case["arguments"])
    found = {}
    for place, batches in enumerate(metric_batches(case)):
        labels, preds = zip(*batches)
        metric.update([mx.nd.array(each) for each in labels], [mx.nd.array(each) for each in preds])
        found[f"value{place}"] = np.array(metric.get()[1], "float64")
        found[f"global{place}"] = np.array(metric.get_global()[1], "float64")
        if place == 1:
            metric.reset_local()
            found["fresh"] = np.array(metric.get()[1], "float64")
    found["name"] = np.array(metric.get()[0])
    metric.reset()
    found["reset"] = np.array(metric.get()[1], "float64")
    return found
