"""Random settings of losses, and how a loss is run: the same for the real MXNet (golden data) and for hybrid_lab."""

import numpy as np
from layer_cases import draw

ELEMENTWISE = {
    "L2Loss": {},
    "L1Loss": {},
    "HuberLoss": {"rho": (1, 0.5, 2.5)},
    "HingeLoss": {"margin": (1, 0.3, 2)},
    "SquaredHingeLoss": {"margin": (1, 0.3, 2)},
    "LogisticLoss": {"label_format": ("signed", "binary")},
    "SigmoidBinaryCrossEntropyLoss": {"from_sigmoid": (True, False)},
    "PoissonNLLLoss": {"from_logits": (True, False), "compute_full": (True, False)},
    "KLDivLoss": {"from_logits": (True, False), "axis": (-1, 1)},
    "SoftmaxCrossEntropyLoss": {"from_logits": (True, False), "sparse_label": (True, False), "axis": (-1, 1)},
    "CosineEmbeddingLoss": {"margin": (0, 0.2, -0.3)},
    "TripletLoss": {"margin": (1, 0.2)},
    "CTCLoss": {},
    "SDMLLoss": {"smoothing_parameter": (0.3, 0.1)},
}


def loss_case(seed):
    """The loss of this seed: {"loss", "arguments", "shape", "weighted", "seed"}."""
    rng = np.random.RandomState(seed)
    name = list(ELEMENTWISE)[seed % len(ELEMENTWISE)]
    arguments = {key: draw(rng, *values) for key, values in ELEMENTWISE[name].items() if rng.rand() < 0.7}
    if rng.rand() < 0.4 and name != "SDMLLoss":
        arguments["weight"] = draw(rng, 0.5, 2.0, 3)
    shape = tuple(int(size) for size in rng.randint(2, 5, rng.randint(2, 5)))
    if name not in ("CosineEmbeddingLoss", "CTCLoss", "SDMLLoss", "TripletLoss") and rng.rand() < 0.3:
        arguments["batch_axis"] = draw(rng, 1, -1) if name != "SoftmaxCrossEntropyLoss" else 0
    if name in ("CosineEmbeddingLoss", "SDMLLoss"):
        shape = shape[:2]
    if name == "CTCLoss":
        shape = tuple(int(size) for size in (rng.randint(4, 7), rng.randint(1, 4), rng.randint(3, 5)))
        arguments["layout"] = draw(rng, "NTC", "TNC")
        arguments["label_layout"] = draw(rng, "NT", "TN")
    if len(shape) == 2 and arguments.get("axis") == 1 and name == "SoftmaxCrossEntropyLoss":
        del arguments["axis"]
    weighted = name not in ("TripletLoss", "SDMLLoss") and bool(rng.rand() < 0.4)
    case = {"loss": name, "arguments": arguments, "shape": shape, "weighted": weighted, "more": bool(rng.rand() < 0.4)}
    # MXNet computes these in float32 only.
    dtype = "float32" if name in ("CosineEmbeddingLoss", "CTCLoss", "SDMLLoss") else "float64"
    return {**case, "seed": seed, "dtype": dtype}


def softmax(values, axis):
    values = np.exp(values - values.max(axis, keepdims=True))
    return values / values.sum(axis, keepdims=True)


def loss_inputs(case):
    """[(name, float64 values)]: the predictions first, then labels, then what is optional."""
    rng = np.random.RandomState(5000 + case["seed"])
    name, arguments, shape = case["loss"], case["arguments"], case["shape"]
    pred, other = rng.normal(0, 1, shape), rng.normal(0, 1, shape)
    axis = arguments.get("axis", -1)
    found = [("pred", pred)]
    if name in ("L1Loss", "L2Loss", "HuberLoss"):
        found.append(("label", other))
    elif name in ("HingeLoss", "SquaredHingeLoss"):
        found.append(("label", np.sign(other)))
    elif name == "LogisticLoss":
        signs = np.sign(other)
        found.append(("label", signs if arguments.get("label_format", "signed") == "signed" else (signs + 1) / 2))
    elif name == "SigmoidBinaryCrossEntropyLoss":
        if arguments.get("from_sigmoid"):
            found = [("pred", 1 / (1 + np.exp(-pred)))]
        found.append(("label", rng.uniform(0, 1, shape).round(int(rng.randint(0, 3)))))
    elif name == "PoissonNLLLoss":
        if not arguments.get("from_logits", True):
            found = [("pred", np.abs(pred) + 0.1)]
        found.append(("label", rng.randint(1, 6, shape).astype("float64")))
    elif name == "KLDivLoss":
        found = [("pred", np.log(softmax(pred, axis)))] if arguments.get("from_logits", True) else found
        found.append(("label", softmax(other, axis)))
    elif name == "SoftmaxCrossEntropyLoss":
        found = [("pred", np.log(softmax(pred, axis)))] if arguments.get("from_logits") else found
        if arguments.get("sparse_label", True):
            place = axis % len(shape)
            found.append(("label", rng.randint(0, shape[place], shape[:place] + shape[place + 1 :]).astype("float64")))
        else:
            found.append(("label", softmax(other, axis)))
    elif name == "CosineEmbeddingLoss":
        found += [("input2", other), ("label", rng.choice([-1.0, 1.0], shape[:1]))]
    elif name == "TripletLoss":
        found += [("positive", other), ("negative", rng.normal(0, 1, shape))]
    elif name == "SDMLLoss":
        found.append(("x2", other))
    elif name == "CTCLoss":
        return ctc_inputs(case, rng)
    if case["weighted"]:
        found.append(("sample_weight", rng.uniform(0, 2, sample_weight_shape(case, found))))
    if name == "SigmoidBinaryCrossEntropyLoss" and case["more"] and case["weighted"]:
        found.append(("pos_weight", rng.uniform(0.5, 3, (1,) * (len(shape) - 1) + shape[-1:])))
    return found


def sample_weight_shape(case, found):
    shape, batch = case["shape"], case["arguments"].get("batch_axis", 0)
    if case["loss"] == "CosineEmbeddingLoss":
        return (shape[0], 1)
    return tuple(size if place == batch % len(shape) else 1 for place, size in enumerate(shape))


def ctc_inputs(case, rng):
    steps, batch, classes = case["shape"]
    arguments = case["arguments"]
    pred = rng.normal(0, 1, (steps, batch, classes))
    length = 2
    label = rng.randint(0, classes - 1, (batch, length)).astype("float64")
    for row in label:
        if rng.rand() < 0.5:
            row[1:] = -1
    lengths = (label >= 0).sum(1).astype("float64")
    if arguments["layout"] == "NTC":
        pred = pred.transpose(1, 0, 2)
    found = [("pred", pred), ("label", label.T if arguments["label_layout"] == "TN" else label)]
    if case["more"] or case["weighted"]:
        found.append(("pred_lengths", rng.randint(4, steps + 1, batch).astype("float64")))
        found.append(("label_lengths", lengths))
    if case["weighted"]:
        found.append(("sample_weight", rng.uniform(0, 2, (batch,))))
    return found


LEARNED = ("pred", "input2", "positive", "negative", "x2")


def run_loss(mx, case, dtype=None, hybridize=None):
    """The loss, and the gradients of its inputs from a random head gradient, by name."""
    dtype = dtype or case["dtype"]
    block = getattr(mx.gluon.loss, case["loss"])(**case["arguments"])
    block.initialize()
    if hybridize is not None:
        block.hybridize(**hybridize)
    given = [(name, mx.nd.array(values, dtype=dtype)) for name, values in loss_inputs(case)]
    for name, value in given:
        if name in LEARNED:
            value.attach_grad()
    with mx.autograd.record():
        y = block(*(value for _, value in given))
    head = np.random.RandomState(case["seed"]).normal(0, 1, y.shape).astype(dtype)
    y.backward(mx.nd.array(head, dtype=dtype))
    found = {"loss": y.asnumpy()}
    found.update({f"d{name}": value.grad.asnumpy() for name, value in given if name in LEARNED})
    return found
