"""Update rules that follow the gradient itself: SGD, NAG, signSGD, Signum, FTRL and FTML. See rule."""

from __future__ import annotations

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError
from hybrid_lab.ops.framework import is_scalar, sample
from hybrid_lab.ops.framework.attributes import Scalar
from hybrid_lab.ops.framework.protocols import Functions, Number, Tensor
from hybrid_lab.ops.updates.rule import (
    Descent,
    Mixed,
    Update,
    begun,
    changing,
    decayed,
    limited,
    mean_of,
    mixed,
    scaled,
    updating,
)


class SGDUpdate(Descent, name="sgd_update"):
    """weight - lr * (clip(rescale_grad * grad) + wd * weight)."""

    lr: Scalar
    wd: Scalar = Scalar(0.0)
    rescale_grad: Scalar = Scalar(1.0)
    clip_gradient: float = -1.0
    lazy_update: bool = True
    samples = [
        changing(3, 4), changing(5, clip_gradient=0.2), changing(2, 3, dtype="float16"),
        sample((3, 4), (3, 4), np.array([0.1], "float32"), 0.0, 1.0, gradient=False),
    ]  # fmt: skip

    def step(
        self, F: Functions, weight: Tensor, grad: Tensor, lr: Number, wd: Number, rescale_grad: Number
    ) -> tuple[Tensor, ...]:
        return (weight - decayed(self.gradient(F, grad, rescale_grad), weight, wd) * lr,)


class Momentum(Descent):
    """Base: the hyperparameters of rules with a momentum."""

    signature = updating("mom")
    lr: Scalar
    momentum: float = 0.0
    wd: Scalar = Scalar(0.0)
    rescale_grad: Scalar = Scalar(1.0)
    clip_gradient: float = -1.0


class SGDMomentumUpdate(Momentum, name="sgd_mom_update"):
    """mom = momentum * mom - lr * (clip(rescale_grad * grad) + wd * weight); returns : weight + mom."""

    lazy_update: bool = True
    samples = [changing(3, 4, states=1, momentum=0.9), changing(5, states=1, momentum=0.5, clip_gradient=0.2)]

    def step(
        self, F: Functions, weight: Tensor, grad: Tensor, mom: Tensor, lr: Number, wd: Number, rescale_grad: Number
    ) -> tuple[Tensor, ...]:
        change = decayed(self.gradient(F, grad, rescale_grad), weight, wd) * lr
        mom = mom * self.momentum - change
        return weight + mom, mom


class MixedSGDUpdate(Mixed, SGDUpdate, name="mp_sgd_update"):
    """sgd_update of the float32 copy weight32; returns : it in the dtype of the weight. grad : as the weight."""

    single = ("weight32",)
    signature = updating(*single)
    samples = [mixed(0), mixed(0, clip_gradient=0.2)]


class MixedSGDMomentumUpdate(Mixed, SGDMomentumUpdate, name="mp_sgd_mom_update"):
    """sgd_mom_update of the float32 copy weight32 with a float32 momentum; returns : it in the weight's dtype."""

    single = ("mom", "weight32")
    signature = updating(*single)
    samples = [mixed(1, momentum=0.9)]


class NAGUpdate(Momentum, name="nag_mom_update"):
    """Nesterov's momentum: with d(w) = lr * (clip(rescale_grad * grad) + wd * w) and m = momentum * mom,
    returns : new = weight + momentum * m - (momentum + 1) * d(weight); mom = m - d(new).

    The momentum that is kept has the decay of the new weight in it: what MXNet computes with `out=weight`, the way
    its optimizer calls it.
    """

    samples = [changing(3, 4, states=1, momentum=0.9), changing(5, states=1, momentum=0.5, clip_gradient=0.2)]

    def step(
        self, F: Functions, weight: Tensor, grad: Tensor, mom: Tensor, lr: Number, wd: Number, rescale_grad: Number
    ) -> tuple[Tensor, ...]:
        grad = self.gradient(F, grad, rescale_grad)
        mom = mom * self.momentum
        new = weight + mom * self.momentum - decayed(grad, weight, wd) * (lr * (self.momentum + 1.0))
        return new, mom - decayed(grad, new, wd) * lr


class MixedNAGUpdate(Mixed, NAGUpdate, name="mp_nag_mom_update"):
    """nag_mom_update of the float32 copy weight32 with a float32 momentum; returns : it in the weight's dtype."""

    single = ("mom", "weight32")
    signature = updating(*single)
    samples = [mixed(1, momentum=0.9)]


class SignSGDUpdate(Descent, name="signsgd_update"):
    """(1 - lr * wd) * weight - lr * sign(grad); rescale_grad and clip_gradient change no sign and are not read."""

    lr: Scalar
    wd: Scalar = Scalar(0.0)
    rescale_grad: Scalar = Scalar(1.0)
    clip_gradient: float = -1.0
    samples = [changing(3, 4), sample((3, 4), (3, 4), 0.1, 0.0, 1.0, gradient=False)]

    def step(
        self, F: Functions, weight: Tensor, grad: Tensor, lr: Number, wd: Number, rescale_grad: Number
    ) -> tuple[Tensor, ...]:
        return (weight * (1.0 - lr * wd) - F.sign(grad) * lr,)


class SignumUpdate(Momentum, name="signum_update"):
    """mom = momentum * mom - (1 - momentum) * (clip(rescale_grad * grad) + wd * weight);
    returns : (1 - lr * wd_lh) * weight + lr * sign(mom)  (arXiv 1802.04434).
    """

    wd_lh: float = 0.0
    samples = [
        changing(3, 4, states=1, momentum=0.9),
        sample((4,), (4,), (4,), 0.1, 0.01, 2.0, gradient=False, momentum=0.2, wd_lh=0.1, clip_gradient=0.5),
    ]

    def step(
        self, F: Functions, weight: Tensor, grad: Tensor, mom: Tensor, lr: Number, wd: Number, rescale_grad: Number
    ) -> tuple[Tensor, ...]:
        change = decayed(self.gradient(F, grad, rescale_grad), weight, wd) * (1.0 - self.momentum)
        mom = mom * self.momentum - change
        kept = weight if self.wd_lh == 0 else weight * (1.0 - lr * self.wd_lh)
        return kept + F.sign(mom) * lr, mom


class FTRLUpdate(Descent, name="ftrl_update"):
    """Follow the regularized leader (McMahan et al., 2013): g = clip(rescale_grad * grad);
    z = z + g - (sqrt(n + g^2) - sqrt(n)) * weight / lr; n = n + g^2;
    returns : (sign(z) * lamda1 - z) / ((beta + sqrt(n)) / lr + wd) where |z| > lamda1, else 0.
    """

    signature = updating("z", "n")
    lr: Scalar
    lamda1: float = 0.01
    beta: float = 1.0
    wd: Scalar = Scalar(0.0)
    rescale_grad: Scalar = Scalar(1.0)
    clip_gradient: float = -1.0
    samples = [
        changing(3, 4, states=2),
        changing(12, states=2, lamda1=3.0, beta=0.5, clip_gradient=0.2),
    ]

    def step(
        self, F: Functions, weight: Tensor, grad: Tensor, z: Tensor, n: Tensor, lr: Number, wd: Number,
        rescale_grad: Number,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        g = self.gradient(F, grad, rescale_grad)
        new_n = n + F.square(g)
        root = F.sqrt(new_n)
        z = z + g - (root - F.sqrt(n)) * weight / lr
        # clip(z) - z is sign(z) * lamda1 - z where |z| > lamda1, and 0 elsewhere.
        shrunk = F.clip(z, a_min=-self.lamda1, a_max=self.lamda1) - z
        return shrunk / decayed_rate(root + self.beta, lr, wd), z, new_n


def decayed_rate(value: Tensor, lr: Number, wd: Number) -> Tensor:
    """value / lr + wd."""
    return value / lr if is_scalar(wd) and wd == 0 else value / lr + wd


class FTMLUpdate(Update, name="ftml_update"):
    """Follow the moving leader (Zheng and Kwok, 2017), step t: g = clip(rescale_grad * grad + wd * weight);
    v = beta2 * v + (1 - beta2) * g^2; d_t = (1 - beta1^t) / lr * (sqrt(v / (1 - beta2^t)) + epsilon);
    z = beta1 * z + (1 - beta1) * g - (d_t - beta1 * d) * weight; d = d_t; returns : -z / d.
    """

    signature = updating("d", "v", "z")
    lr: Scalar
    beta1: float = 0.6
    beta2: float = 0.999
    epsilon: float = 1e-8
    t: Scalar
    wd: Scalar = Scalar(0.0)
    rescale_grad: Scalar = Scalar(1.0)
    clip_grad: float = -1.0
    samples = [
        changing(3, 4, states=3, numbers=(0.1, 3, 0.01, 0.5)),
        changing(5, states=3, numbers=(0.1, 1, 0.0, 1.0), beta1=0.5, beta2=0.9, clip_grad=0.3),
    ]

    def check(self) -> None:
        if not (0 <= self.beta1 <= 1 and 0 <= self.beta2 <= 1):
            raise AttributeSpecError(f"ftml_update: beta1={self.beta1}, beta2={self.beta2}; both must be in [0, 1]")

    def step(
        self, F: Functions, weight: Tensor, grad: Tensor, d: Tensor, v: Tensor, z: Tensor, lr: Number, t: Number,
        wd: Number, rescale_grad: Number,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        g = limited(F, decayed(scaled(grad, rescale_grad), weight, wd), self.clip_grad)
        v = mean_of(v, F.square(g), self.beta2)
        new_d = (F.sqrt(v / begun(F, self.beta2, t)) + self.epsilon) * (begun(F, self.beta1, t) / lr)
        z = mean_of(z, g, self.beta1) - (new_d - d * self.beta1) * weight
        return -z / new_d, new_d, v, z
