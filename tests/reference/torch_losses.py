"""The losses of tests/golden/reference/loss_cases.py in torch: its own losses where there are some."""

import numpy as np
import pytest

from tests.reference.golden import loss_cases

torch = pytest.importorskip("torch")
functional = torch.nn.functional


def huber(pred, label, a):
    rho = a.get("rho", 1)
    return functional.huber_loss(pred, label, reduction="none", delta=rho) / rho


def logistic(pred, label, a):
    signs = label if a.get("label_format", "signed") == "signed" else 2 * label - 1
    return functional.soft_margin_loss(pred, signs, reduction="none")


def binary(pred, label, a, pos_weight=None):
    if not a.get("from_sigmoid"):
        return functional.binary_cross_entropy_with_logits(pred, label, reduction="none", pos_weight=pos_weight)
    factor = 1.0 if pos_weight is None else pos_weight
    return -(factor * label * (pred + 1e-12).log() + (1 - label) * (1 - pred + 1e-12).log())


def poisson(pred, label, a):
    return functional.poisson_nll_loss(
        pred, label, a.get("from_logits", True), a.get("compute_full", False), eps=1e-8, reduction="none"
    )


def divergence(pred, label, a):
    pred = pred if a.get("from_logits", True) else functional.log_softmax(pred, a.get("axis", -1))
    return label * ((label + 1e-12).log() - pred)


ELEMENTWISE = {
    "L2Loss": lambda pred, label, a: functional.mse_loss(pred, label, reduction="none") / 2,
    "L1Loss": lambda pred, label, a: functional.l1_loss(pred, label, reduction="none"),
    "HuberLoss": huber,
    "HingeLoss": lambda pred, label, a: (a.get("margin", 1) - pred * label).clamp(min=0),
    "SquaredHingeLoss": lambda pred, label, a: (a.get("margin", 1) - pred * label).clamp(min=0) ** 2,
    "LogisticLoss": logistic,
    "SigmoidBinaryCrossEntropyLoss": binary,
    "PoissonNLLLoss": poisson,
    "KLDivLoss": divergence,
}


def others(x, batch):
    return tuple(axis for axis in range(x.ndim) if axis != batch % x.ndim)


def cross_entropy(pred, label, a):
    axis = a.get("axis", -1) % pred.ndim
    pred, shape = pred.movedim(axis, -1), pred.shape[:axis] + (1,) + pred.shape[axis + 1 :]
    if a.get("from_logits"):
        sparse = a.get("sparse_label", True)
        share = functional.one_hot(label.long(), pred.shape[-1]) if sparse else label.movedim(axis, -1)
        loss = -(pred * share).sum(-1)
    elif a.get("sparse_label", True):
        flat = functional.cross_entropy(pred.reshape(-1, pred.shape[-1]), label.long().flatten(), reduction="none")
        loss = flat.reshape(label.shape)
    else:
        label = label.movedim(axis, -1)
        flat = functional.cross_entropy(pred.flatten(0, -2), label.flatten(0, -2), reduction="none")
        loss = flat.reshape(label.shape[:-1])
    return loss.reshape(shape)


def ctc(case, given):
    a = case["arguments"]
    steps, batch, classes = case["shape"]
    pred = given["pred"].transpose(0, 1) if a["layout"] == "NTC" else given["pred"]
    label = (given["label"].T if a["label_layout"] == "TN" else given["label"]).long()
    lengths = given["pred_lengths"].long() if "pred_lengths" in given else torch.full((batch,), steps)
    loss = functional.ctc_loss(
        functional.log_softmax(pred, 2), label.clamp(min=0), lengths, (label >= 0).sum(1), classes - 1, "none"
    )
    return loss


def cosine(case, given):
    margin = case["arguments"].get("margin", 0)
    similarity = functional.cosine_similarity(given["pred"], given["input2"], eps=0)
    loss = torch.where(given["label"] == 1, 1 - similarity, (similarity - margin).clamp(min=0))
    return loss[:, None]


def pairs(case, given):
    """SDMLLoss, row by row."""
    smoothing = case["arguments"].get("smoothing_parameter", 0.3)
    x1, x2 = given["pred"], given["x2"]
    size, rows = x1.shape[0], []
    for index in range(size):
        label = torch.full((size,), smoothing / (size - 1), dtype=torch.float64)
        label[index] = 1 - smoothing
        log = functional.log_softmax(-((x1[index] - x2) ** 2).sum(1), 0)
        rows.append((label * ((label + 1e-12).log() - log)).sum())
    return torch.stack(rows)


def weighted(case, given):
    """The loss of each element, times weights."""
    name, a = case["loss"], case["arguments"]
    pred = given["pred"]
    batch = a.get("batch_axis", 0)
    if name == "TripletLoss":
        squares = (given["positive"] - pred) ** 2 - (given["negative"] - pred) ** 2
        loss = (squares.sum(others(squares, batch)) + a.get("margin", 1)).clamp(min=0)
    elif name in ("CTCLoss", "CosineEmbeddingLoss", "SDMLLoss"):
        loss = {"CTCLoss": ctc, "CosineEmbeddingLoss": cosine, "SDMLLoss": pairs}[name](case, given)
    elif name == "SoftmaxCrossEntropyLoss":
        loss = cross_entropy(pred, given["label"], a)
    else:
        more = [given["pos_weight"]] if "pos_weight" in given else []
        loss = ELEMENTWISE[name](pred, given["label"], a, *more)
    loss = loss * given.get("sample_weight", 1.0)
    return loss * a.get("weight", 1.0)


def run(case):
    """As loss_cases.run_loss, in float64."""
    values = {name: torch.tensor(array) for name, array in loss_cases.loss_inputs(case)}
    learned = [name for name in values if name in loss_cases.LEARNED]
    for name in learned:
        values[name].requires_grad_()
    loss = weighted(case, values)
    batch = case["arguments"].get("batch_axis", 0)
    if case["loss"] == "PoissonNLLLoss":
        loss = loss.mean().reshape(1)
    elif case["loss"] == "KLDivLoss":
        loss = loss.sum(others(loss, batch))
    elif case["loss"] in ELEMENTWISE or case["loss"] == "SoftmaxCrossEntropyLoss":
        loss = loss.mean(others(loss, batch))
    head = np.random.RandomState(case["seed"]).normal(0, 1, tuple(loss.shape))
    gradients = torch.autograd.grad(loss, [values[name] for name in learned], torch.tensor(head))
    found = {"loss": loss.detach().numpy()}
    found.update({f"d{name}": each.numpy() for name, each in zip(learned, gradients)})
    return found
