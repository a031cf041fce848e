"""The steps of the optimizers as their papers and MXNet's documentation write them, in NumPy's float64."""

import math

import numpy as np


class Formula:
    """One weight: `step(w, g, lr, wd, t)` returns the new weight; g is rescaled and clipped, t counts from 1."""

    decay_in_gradient = False

    def __init__(self, **settings):
        self.settings = settings
        self.kept = {}

    def __getattr__(self, name):
        return self.settings[name]

    def before(self, name):
        return self.kept.get(name, 0.0)


class SGD(Formula):
    def step(self, w, g, lr, wd, t):
        self.kept["m"] = self.momentum * self.before("m") - lr * (g + wd * w)
        return w + self.kept["m"]


class NAG(Formula):
    """As MXNet's operator computes it in place: the kept momentum has the decay of the new weight in it."""

    def step(self, w, g, lr, wd, t):
        if not self.momentum:
            return w - lr * (g + wd * w)
        m = self.momentum * self.before("m")
        new = w - lr * (g + wd * w) + self.momentum * (m - lr * (g + wd * w))
        self.kept["m"] = m - lr * (g + wd * new)
        return new


class Signum(Formula):
    def step(self, w, g, lr, wd, t):
        if not self.momentum:
            return (1 - lr * wd) * w - lr * np.sign(g)
        self.kept["m"] = self.momentum * self.before("m") - (1 - self.momentum) * (g + wd * w)
        return (1 - lr * self.wd_lh) * w + lr * np.sign(self.kept["m"])


class Adam(Formula):
    decay_in_gradient = True

    def direction(self, g, lr, t, correct=True):
        m = self.kept["m"] = self.beta1 * self.before("m") + (1 - self.beta1) * g
        v = self.kept["v"] = self.beta2 * self.before("v") + (1 - self.beta2) * g * g
        if correct:
            lr = lr * math.sqrt(1 - self.beta2**t) / (1 - self.beta1**t)
        return lr * m / (np.sqrt(v) + self.epsilon)

    def step(self, w, g, lr, wd, t):
        return w - self.direction(g, lr, t)


class AdamW(Adam):
    decay_in_gradient = False

    def step(self, w, g, lr, wd, t):
        return w - lr * wd * w - self.direction(g, lr, t, self.correct_bias)


class Adamax(Formula):
    decay_in_gradient = True

    def step(self, w, g, lr, wd, t):
        m = self.kept["m"] = self.beta1 * self.before("m") + (1 - self.beta1) * g
        u = self.kept["u"] = np.maximum(self.beta2 * self.before("u"), np.abs(g))
        return w - lr / (1 - self.beta1**t) * np.divide(m, u, out=np.zeros_like(g), where=u > 0)


class AdaGrad(Formula):
    def step(self, w, g, lr, wd, t):
        h = self.kept["h"] = self.before("h") + g * g
        return w - lr * (g / np.sqrt(h + self.eps) + wd * w)


class AdaDelta(Formula):
    def step(self, w, g, lr, wd, t):
        s = self.kept["s"] = self.rho * self.before("s") + (1 - self.rho) * g * g
        d = np.sqrt(self.before("a") + self.epsilon) / np.sqrt(s + self.epsilon) * g
        self.kept["a"] = self.rho * self.before("a") + (1 - self.rho) * d * d
        return w - d - wd * w


class RMSProp(Formula):
    decay_in_gradient = True

    def step(self, w, g, lr, wd, t):
        n = self.kept["n"] = self.gamma1 * self.before("n") + (1 - self.gamma1) * g * g
        if self.centered:
            mean = self.kept["g"] = self.gamma1 * self.before("g") + (1 - self.gamma1) * g
            d = self.kept["d"] = self.gamma2 * self.before("d") - lr * g / np.sqrt(n - mean * mean + self.epsilon)
            new = w + d
        else:
            new = w - lr * g / np.sqrt(n + self.epsilon)
        return new if not self.clip_weights else np.clip(new, -self.clip_weights, self.clip_weights)


class Ftrl(Formula):
    def step(self, w, g, lr, wd, t):
        n = self.before("n")
        z = self.kept["z"] = self.before("z") + g - (np.sqrt(n + g * g) - np.sqrt(n)) * w / lr
        n = self.kept["n"] = n + g * g
        new = (np.sign(z) * self.lamda1 - z) / ((self.beta + np.sqrt(n)) / lr + wd)
        return np.where(np.abs(z) > self.lamda1, new, 0.0)


#: name: (formula, default learning rate, defaults of the settings)
FORMULAS = {
    "sgd": (SGD, 0.01, {"momentum": 0.0}),
    "nag": (NAG, 0.01, {"momentum": 0.0}),
    "signum": (Signum, 0.01, {"momentum": 0.9, "wd_lh": 0.0}),
    "adam": (Adam, 0.001, {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}),
    "adamw": (AdamW, 0.001, {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6, "correct_bias": True}),
    "adamax": (Adamax, 0.002, {"beta1": 0.9, "beta2": 0.999}),
    "adagrad": (AdaGrad, 0.01, {"eps": 1e-7}),
    "adadelta": (AdaDelta, 0.01, {"rho": 0.9, "epsilon": 1e-5}),
    "rmsprop": (
        RMSProp,
        0.001,
        {"gamma1": 0.9, "gamma2": 0.9, "epsilon": 1e-8, "centered": False, "clip_weights": None},
    ),
    "ftrl": (Ftrl, 0.1, {"lamda1": 0.01, "beta": 1.0}),
}


def descent(name, arguments, rate_at=None, lr_mult=1.0, wd_mult=1.0):
    """A function (weight, gradient, t, rescale_grad) that returns the next weight.

    rate_at : the rate of a schedule by the number of the update
    """
    kind, default, settings = FORMULAS[name]
    own = {key: arguments.get(key, value) for key, value in settings.items()}
    formula = kind(**own)
    wd, limit = arguments.get("wd", 0.0) * wd_mult, arguments.get("clip_gradient")

    def step(w, g, t, rescale):
        lr = rate_at(t) if rate_at else arguments.get("learning_rate", default)
        g = g * rescale
        if formula.decay_in_gradient:
            g = g + wd * w
        if limit:
            g = np.clip(g, -limit, limit)
        return formula.step(w, g, lr * lr_mult, wd, t)

    return step
