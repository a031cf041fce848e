"""Optimizers with random settings against formulas in float64: the loop, the fused update, a hybridized net's Trainer.

sgd, adam and adamw against torch.optim as well.
"""

import math

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from tests.reference.golden import optimizer_cases
from tests.reference.optimizer_formulas import FORMULAS, descent

SEEDS = 9
ORDER = list(optimizer_cases.OPTIMIZERS)
each_name = pytest.mark.parametrize("name", ORDER)


def cases(name):
    return [optimizer_cases.optimizer_case(seed) for seed in range(ORDER.index(name), SEEDS * len(ORDER), len(ORDER))]


def rates(case):
    """The rate by the number of the update, or None without a schedule."""
    if not case["schedule"]:
        return None
    kind, settings = case["schedule"]
    return getattr(mx.lr_scheduler, kind)(**settings)


def expected(case):
    """As optimizer_cases.run_optimizer."""
    weights, gradients = optimizer_cases.weights_and_gradients(case)
    begin, found = case["arguments"].get("begin_num_update", 0), {}
    steps = [descent(case["optimizer"], case["arguments"], rates(case), *mults) for mults in ((1, 1), (0.5, 2))]
    for number in range(optimizer_cases.STEPS):
        rescale = 0.7 if number >= 3 else case["arguments"].get("rescale_grad", 1.0)
        for place, step in enumerate(steps):
            weights[place] = step(weights[place], gradients[number][place], begin + number + 1, rescale)
            found[f"w{place}.{number}"] = weights[place]
    return found


@each_name
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "loop"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-4)])
def test_five_steps_equal_the_formula(name, fused, dtype, tolerance, totals):
    for case in cases(name):
        found = optimizer_cases.run_optimizer(mx, case, dtype, fused)
        for key, values in expected(case).items():
            np.testing.assert_allclose(found[key], values, rtol=tolerance, atol=tolerance, err_msg=f"{case} {key}")
        totals["optimizers compared with formulas"] += 1


class Scaled(gluon.HybridBlock):
    """Two weights whose gradients are the inputs."""

    def __init__(self, start, **kwargs):
        super().__init__(**kwargs)
        for place, values in enumerate(start):
            init = mx.init.Constant(nd.array(values, dtype="float64"))
            setattr(self, f"w{place}", self.params.get(f"w{place}", shape=values.shape, init=init, dtype="float64"))

    def hybrid_forward(self, F, first, second, w0, w1):
        return F.sum(first * w0) + F.sum(second * w1)


@each_name
def test_a_trainer_of_a_hybridized_net(name, totals):
    for case in cases(name)[::3]:
        weights, gradients = optimizer_cases.weights_and_gradients(case)
        net = Scaled(weights)
        net.initialize()
        net.hybridize(engine="numpy")
        net.w1.lr_mult, net.w1.wd_mult = 0.5, 2.0
        rescale = case["arguments"].get("rescale_grad", 1.0)
        trainer = gluon.Trainer(net.collect_params(), name, optimizer_cases.with_schedule(mx, case))
        steps = [descent(name, case["arguments"], rates(case), *mults) for mults in ((1, 1), (0.5, 2))]
        for number in range(optimizer_cases.STEPS):
            batch = 1 + number
            with autograd.record():
                loss = net(*(nd.array(values, dtype="float64") for values in gradients[number]))
            loss.backward()
            trainer.step(batch)
            for place, step in enumerate(steps):
                count = case["arguments"].get("begin_num_update", 0) + number + 1
                weights[place] = step(weights[place], gradients[number][place], count, rescale / batch)
                now = getattr(net, f"w{place}").data().asnumpy()
                np.testing.assert_allclose(now, weights[place], rtol=1e-10, atol=1e-10, err_msg=str(case))
        totals["optimizers compared with formulas"] += 1


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_the_formulas_are_torchs(name):
    """torch's epsilon stands beside the corrected root: MXNet's over sqrt(1 - beta2^t)."""
    torch = pytest.importorskip("torch")
    for case in cases(name):
        given, (_, default, settings) = case["arguments"], FORMULAS[name]
        own = {key: given.get(key, value) for key, value in settings.items()}
        if not own.get("correct_bias", True) or (name == "adam" and given.get("clip_gradient") and given.get("wd")):
            continue  # torch always corrects; the decay is clipped with the gradient in MXNet's Adam
        weights, gradients = optimizer_cases.weights_and_gradients(case)
        weight = torch.tensor(weights[0], requires_grad=True)
        lr, wd, limit = given.get("learning_rate", default), given.get("wd", 0.0), given.get("clip_gradient")
        if name == "sgd":
            peer = torch.optim.SGD([weight], lr, own["momentum"], weight_decay=wd)
        else:
            classes = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
            peer = classes[name]([weight], lr, (own["beta1"], own["beta2"]), weight_decay=wd)
        step = descent(name, {**given, "learning_rate": lr})
        values = weights[0]
        for number in range(optimizer_cases.STEPS):
            g = gradients[number][0]
            weight.grad = torch.tensor(np.clip(g, -limit, limit) if limit else g)
            if name != "sgd":
                peer.param_groups[0]["eps"] = own["epsilon"] / math.sqrt(1 - own["beta2"] ** (number + 1))
            peer.step()
            values = step(values, g, number + 1, 1.0)
            np.testing.assert_allclose(weight.detach().numpy(), values, rtol=1e-11, atol=1e-11, err_msg=str(case))
