"""Update rules with running moments of the gradient: the Adam, AdaGrad, RMSProp and LAMB families. See rule."""

from __future__ import annotations

import numpy as np

from hybrid_lab.ops.framework import ints, is_scalar, sample
from hybrid_lab.ops.framework.attributes import Scalar
from hybrid_lab.ops.framework.protocols import Functions, Number, Tensor
from hybrid_lab.ops.framework.types import Shape, Shapes
from hybrid_lab.ops.updates.rule import (
    Descent,
    Mixed,
    Update,
    begun,
    changing,
    decayed,
    limited,
    mean_of,
    scaled,
    updating,
)


class AdamUpdate(Descent, name="adam_update"):
    """g = clip(rescale_grad * grad + wd * weight); mean = beta1 * mean + (1 - beta1) * g;
    var = beta2 * var + (1 - beta2) * g^2; returns : weight - lr * mean / (sqrt(var) + epsilon)  (arXiv 1412.6980).

    The correction for the moments' start at zero is the caller's, in lr.
    """

    signature = updating("mean", "var")
    lr: Scalar
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    wd: Scalar = Scalar(0.0)
    rescale_grad: Scalar = Scalar(1.0)
    clip_gradient: float = -1.0
    lazy_update: bool = True
    samples = [
        changing(3, 4, states=2),
        changing(5, states=2, beta1=0.5, beta2=0.7, clip_gradient=0.2),
        sample((3,), (3,), (3,), (3,), np.array([0.1], "float32"), 0.0, 1.0, gradient=False, low=0.1),
    ]

    def step(
        self, F: Functions, weight: Tensor, grad: Tensor, mean: Tensor, var: Tensor, lr: Number, wd: Number,
        rescale_grad: Number,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        g = self.regularized(F, weight, grad, wd, rescale_grad)
        mean, var = mean_of(mean, g, self.beta1), mean_of(var, F.square(g), self.beta2)
        return weight - mean / (F.sqrt(var) + self.epsilon) * lr, mean, var


class AdamWUpdate(Update, name="_adamw_update", aliases=("_contrib_adamw_update",)):
    """Adam with the decay apart from the gradient (arXiv 1711.05101): g = clip(rescale_grad * grad), mean and var as in
    adam_update; returns : weight - eta * (lr * mean / (sqrt(var) + epsilon) + wd * weight).

    rescale_grad : a number or an array with one; if it is 0, infinite or NaN (an overflow in mixed precision)
    nothing changes. lr and eta : the corrected rate, and the schedule's factor
    """

    signature = updating("mean", "var")
    ones = ("rescale_grad",)
    lr: Scalar
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    wd: Scalar = Scalar(0.0)
    eta: Scalar
    clip_gradient: float = -1.0
    samples = [
        sample((3, 4), (3, 4), (3, 4), (3, 4), np.array([scale], "float32"), 0.1, 0.01, 0.9, gradient=False, low=0.05)
        for scale in (0.5, np.inf, np.nan, 0.0)
    ] + [sample(*[(5,)] * 4, np.array([2.0], "float32"), 0.1, 0.0, 1.0, gradient=False, low=0.05, clip_gradient=0.2)]

    def step(
        self, F: Functions, weight: Tensor, grad: Tensor, mean: Tensor, var: Tensor, rescale_grad: Tensor, lr: Number,
        wd: Number, eta: Number,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        if is_scalar(rescale_grad) and (rescale_grad == 0 or not np.isfinite(rescale_grad)):
            return weight + 0.0, mean + 0.0, var + 0.0
        g = limited(F, scaled(grad, rescale_grad), self.clip_gradient)
        new_mean, new_var = mean_of(mean, g, self.beta1), mean_of(var, F.square(g), self.beta2)
        new = weight - decayed(new_mean / (F.sqrt(new_var) + self.epsilon) * lr, weight, wd) * eta
        if is_scalar(rescale_grad):
            return new, new_mean, new_var
        usable = F._contrib_isfinite(rescale_grad) * F.broadcast_not_equal(rescale_grad, 0.0)
        pairs = ((new, weight), (new_mean, mean), (new_var, var))
        return tuple(F.where(F.broadcast_like(usable, weight), value, old) for value, old in pairs)


class MixedAdamWUpdate(Mixed, AdamWUpdate, name="_mp_adamw_update", aliases=("_contrib_mp_adamw_update",)):
    """adamw_update of the float32 copy weight32 with float32 moments; returns : it in the dtype of the weight."""

    single = ("mean", "var", "weight32")
    signature = updating(*single)
    samples = [
        sample(
            *[ints((3, 4), 1, 6, "float16")] * 2,
            *[(3, 4)] * 3,
            np.array([0.5], "float32"),
            *(0.1, 0.01, 0.9),
            gradient=False,
            low=0.05,
        )
    ]


class DecayedAdamUpdate(AdamUpdate, name="_decayed_adam_update"):
    """adam_update of (1 - wd) * weight, without decay in the gradient: the step of the AdamW optimizer, which gives
    lr * wd as wd.
    """

    mxnet = None
    samples = [changing(3, 4, states=2), changing(5, states=2, numbers=(0.1, 0.0, 0.5), clip_gradient=0.2)]

    def step(
        self, F: Functions, weight: Tensor, grad: Tensor, mean: Tensor, var: Tensor, lr: Number, wd: Number,
        rescale_grad: Number,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        decayed_weight = weight if is_scalar(wd) and wd == 0 else weight * (1.0 - wd)
        return super().step(F, decayed_weight, grad, mean, var, lr, 0.0, rescale_grad)


class AdamaxUpdate(Descent, name="_adamax_update"):
    """Adam with the maximum norm (arXiv 1412.6980): g = clip(rescale_grad * grad + wd * weight);
    mean = beta1 * mean + (1 - beta1) * g; norm = max(beta2 * norm, |g|); returns : weight - lr * mean / norm.

    The correction for the mean's start at zero is the caller's, in lr. If the norm is 0 the weight stays.
    """

    mxnet = None
    signature = updating("mean", "norm")
    lr: Scalar
    beta1: float = 0.9
    beta2: float = 0.999
    wd: Scalar = Scalar(0.0)
    rescale_grad: Scalar = Scalar(1.0)
    clip_gradient: float = -1.0
    samples = [changing(3, 4, states=2), changing(5, states=2, beta1=0.5, clip_gradient=0.2)]

    def step(
        self, F: Functions, weight: Tensor, grad: Tensor, mean: Tensor, norm: Tensor, lr: Number, wd: Number,
        rescale_grad: Number,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        g = self.regularized(F, weight, grad, wd, rescale_grad)
        mean, norm = mean_of(mean, g, self.beta1), F.broadcast_maximum(norm * self.beta2, F.abs(g))
        # Without any gradient so far both are 0, and 0 / 1 is 0.
        return weight - mean / (norm + F.broadcast_equal(norm, 0.0)) * lr, mean, norm


class AdaGradUpdate(Descent, name="_adagrad_update"):
    """g = clip(rescale_grad * grad); history = history + g^2;
    returns : weight - lr * (g / sqrt(history + epsilon) + wd * weight)  (Duchi et al., 2011).
    """

    mxnet = None
    signature = updating("history")
    lr: Scalar
    epsilon: float = 1e-7
    wd: Scalar = Scalar(0.0)
    rescale_grad: Scalar = Scalar(1.0)
    clip_gradient: float = -1.0
    samples = [changing(3, 4, states=1), changing(5, states=1, clip_gradient=0.2)]

    def step(
        self, F: Functions, weight: Tensor, grad: Tensor, history: Tensor, lr: Number, wd: Number, rescale_grad: Number
    ) -> tuple[Tensor, ...]:
        g = self.gradient(F, grad, rescale_grad)
        history = history + F.square(g)
        return weight - decayed(g / F.sqrt(history + self.epsilon), weight, wd) * lr, history


class AdaDeltaUpdate(Descent, name="_adadelta_update"):
    """g = clip(rescale_grad * grad); squares = rho * squares + (1 - rho) * g^2;
    d = sqrt(deltas + epsilon) / sqrt(squares + epsilon) * g; deltas = rho * deltas + (1 - rho) * d^2;
    returns : weight - d - wd * weight  (arXiv 1212.5701).
    """

    mxnet = None
    signature = updating("squares", "deltas")
    rho: float = 0.9
    epsilon: float = 1e-5
    wd: Scalar = Scalar(0.0)
    rescale_grad: Scalar = Scalar(1.0)
    clip_gradient: float = -1.0
    samples = [
        changing(3, 4, states=2, numbers=(0.01, 0.5)),
        changing(5, states=2, numbers=(0.0, 1.0), rho=0.5, clip_gradient=0.2),
    ]

    def step(
        self, F: Functions, weight: Tensor, grad: Tensor, squares: Tensor, deltas: Tensor, wd: Number,
        rescale_grad: Number,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        g = self.gradient(F, grad, rescale_grad)
        squares = mean_of(squares, F.square(g), self.rho)
        delta = g * F.sqrt(deltas + self.epsilon) / F.sqrt(squares + self.epsilon)
        return weight - decayed(delta, weight, wd), squares, mean_of(deltas, F.square(delta), self.rho)


class RMSPropUpdate(Descent, name="rmsprop_update"):
    """g = clip(rescale_grad * grad + wd * weight); n = (1 - gamma1) * g^2 + gamma1 * n;
    returns : weight - lr * g / sqrt(n + epsilon), limited to [-clip_weights, clip_weights]  (Hinton, 2012).
    """

    signature = updating("n")
    lr: Scalar
    gamma1: float = 0.95
    epsilon: float = 1e-8
    wd: Scalar = Scalar(0.0)
    rescale_grad: Scalar = Scalar(1.0)
    clip_gradient: float = -1.0
    clip_weights: float = -1.0
    samples = [
        changing(3, 4, states=1),
        changing(5, states=1, gamma1=0.5, clip_gradient=0.2, clip_weights=0.3),
    ]

    def step(
        self, F: Functions, weight: Tensor, grad: Tensor, n: Tensor, lr: Number, wd: Number, rescale_grad: Number
    ) -> tuple[Tensor, ...]:
        g = self.regularized(F, weight, grad, wd, rescale_grad)
        n = mean_of(n, F.square(g), self.gamma1)
        return limited(F, weight - g / F.sqrt(n + self.epsilon) * lr, self.clip_weights), n


class CenteredRMSPropUpdate(Descent, name="rmspropalex_update"):
    """RMSProp with the mean subtracted (Graves, arXiv 1308.0850): g = clip(rescale_grad * grad + wd * weight);
    n = (1 - gamma1) * g^2 + gamma1 * n; g_mean = (1 - gamma1) * g + gamma1 * g_mean;
    delta = gamma2 * delta - lr * g / sqrt(n - g_mean^2 + epsilon); returns : weight + delta, within clip_weights.

    The input `g` is g_mean.
    """

    signature = updating("n", "g", "delta")
    lr: Scalar
    gamma1: float = 0.95
    gamma2: float = 0.9
    epsilon: float = 1e-8
    wd: Scalar = Scalar(0.0)
    rescale_grad: Scalar = Scalar(1.0)
    clip_gradient: float = -1.0
    clip_weights: float = -1.0
    samples = [
        sample((4,), (4,), ints((4,), 2, 6), (4,), (4,), 0.1, 0.01, 0.5, gradient=False, low=0.05),
        sample(
            *((4,), (4,), ints((4,), 2, 6), (4,), (4,), 0.1, 0.01, 0.5),
            gradient=False,
            low=0.05,
            gamma1=0.9,
            gamma2=0.5,
            clip_gradient=0.2,
            clip_weights=0.3,
        ),
    ]

    def step(
        self, F: Functions, weight: Tensor, grad: Tensor, n: Tensor, g: Tensor, delta: Tensor, lr: Number, wd: Number,
        rescale_grad: Number,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        change = self.regularized(F, weight, grad, wd, rescale_grad)
        n, g = mean_of(n, F.square(change), self.gamma1), mean_of(g, change, self.gamma1)
        delta = delta * self.gamma2 - change / F.sqrt(n - F.square(g) + self.epsilon) * lr
        return limited(F, weight + delta, self.clip_weights), n, g, delta


class LAMBDirection(Update, name="lamb_update_phase1"):
    """The first half of LAMB (arXiv 1904.00962), step t: g = clip(rescale_grad * grad), mean and var as in adam_update,
    divided by 1 - beta1^t and 1 - beta2^t with bias_correction;
    returns : the direction mean / (sqrt(var) + epsilon) + wd * weight.
    """

    signature = updating("mean", "var")
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    t: Scalar
    bias_correction: bool = True
    wd: Scalar
    rescale_grad: Scalar = Scalar(1.0)
    clip_gradient: float = -1.0
    samples = [
        changing(3, 4, states=2, numbers=(3, 0.01, 0.5)),
        changing(5, states=2, numbers=(1, 0.1, 1.0), bias_correction=False, clip_gradient=0.2),
    ]

    def step(
        self, F: Functions, weight: Tensor, grad: Tensor, mean: Tensor, var: Tensor, t: Number, wd: Number,
        rescale_grad: Number,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        g = limited(F, scaled(grad, rescale_grad), self.clip_gradient)
        mean, var = mean_of(mean, g, self.beta1), mean_of(var, F.square(g), self.beta2)
        first, second = mean, var
        if self.bias_correction:
            first, second = mean / begun(F, self.beta1, t), var / begun(F, self.beta2, t)
        return decayed(first / (F.sqrt(second) + self.epsilon), weight, wd), mean, var


class MixedLAMBDirection(Mixed, LAMBDirection, name="mp_lamb_update_phase1"):
    """lamb_update_phase1 of the float32 copy weight32, which stays; returns : the direction in float32."""

    single = ("mean", "var", "weight32")
    samples = [
        sample(*[ints((3, 4), 1, 6, "float16")] * 2, *[(3, 4)] * 3, 3, 0.01, 0.5, gradient=False, low=0.05),
    ]

    def targets(self) -> tuple[int, ...]:
        return ()

    def infer_type(self, *dtypes: np.dtype) -> list[np.dtype]:
        return [np.dtype("float32"), *super().infer_type(*dtypes)[1:]]

    def step(self, F: Functions, weight: Tensor, grad: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        mean, var, weight32, *numbers = rest
        return LAMBDirection.step(self, F, weight32, F._cast_like(grad, weight32), mean, var, *numbers)


class LAMBUpdate(Update, name="lamb_update_phase2"):
    """The second half of LAMB: weight - lr * r * g with the ratio r = r1 / r2, or 1 if r1 or r2 is 0.

    g : the direction; r1, r2 : the norms of the weight and of the direction, arrays with one number; r1 is limited to
    [lower_bound, upper_bound], where a negative bound is none
    """

    ones = ("r1", "r2")
    lr: Scalar
    lower_bound: float = -1.0
    upper_bound: float = -1.0
    samples = [
        sample(
            (3, 4),
            (3, 4),
            np.array([first], "float32"),
            np.array([second], "float32"),
            0.1,
            gradient=False,
            lower_bound=low,
            upper_bound=high,
        )
        for first, second, low, high in (
            (1.5, 2.0, -1.0, -1.0),
            (1.5, 2.0, 2.0, -1.0),
            (1.5, 2.0, -1.0, 0.5),
            (0.0, 2.0, -1.0, -1.0),
            (1.5, 0.0, -1.0, -1.0),
        )
    ]

    def ratio(self, F: Functions, r1: Number, r2: Number) -> Number:
        """r1 / r2 with r1 limited to the bounds; 1 if r1 or r2 is 0."""
        if is_scalar(r1):
            r1 = max(r1, self.lower_bound) if self.lower_bound >= 0 else r1
            r1 = min(r1, self.upper_bound) if self.upper_bound >= 0 else r1
            return r1 / r2 if r1 != 0 and r2 != 0 else 1.0
        if self.lower_bound >= 0:
            r1 = F.broadcast_maximum(r1, self.lower_bound)
        if self.upper_bound >= 0:
            r1 = F.broadcast_minimum(r1, self.upper_bound)
        usable = F.broadcast_not_equal(r1, 0.0) * F.broadcast_not_equal(r2, 0.0)
        return F.where(usable, r1 / F.where(usable, r2, 1.0), 1.0)

    def step(self, F: Functions, weight: Tensor, g: Tensor, r1: Tensor, r2: Tensor, lr: Number) -> tuple[Tensor, ...]:
        return (weight - g * (self.ratio(F, r1, r2) * lr),)


class MixedLAMBUpdate(LAMBUpdate, name="mp_lamb_update_phase2"):
    """lamb_update_phase2 of the float32 copy weight32 with a float32 direction; returns : it in the weight's dtype."""

    signature = updating("weight32")
    single = ("g", "weight32")
    samples = [
        sample(
            ints((3, 4), 1, 6, "float16"),
            *((3, 4), np.array([1.5], "float32"), np.array([2.0], "float32"), (3, 4), 0.1),
            gradient=False,
        )
    ]

    def infer_shape(self, weight: Shape, g: Shape, r1: Shape, r2: Shape, weight32: Shape, lr: Shape) -> Shapes:
        return self.same(weight, g, r1, r2, weight32, lr)

    def step(self, F: Functions, weight: Tensor, g: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        r1, r2, weight32, lr = rest
        (new,) = super().step(F, weight32, g, r1, r2, lr)
        return F._cast_like(new, weight), new
