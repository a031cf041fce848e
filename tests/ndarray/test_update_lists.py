"""Updates of lists of weights: numbers of the real MXNet 1.9.1, first three of each array."""

import numpy as np
import pytest

from hybrid_lab import nd
from hybrid_lab.diagnostics import ShapeError

NEW = {
    ("adamw", False): [[0.458977, 0.73083, 0.066019], [0.187683, 0.905468, -0.096801]],
    ("adamw", True): [[0.458984, 0.730957, 0.065979], [0.187622, 0.905273, -0.096741]],
    ("lamb", False): [[0.479949, 0.763261, 0.077346], [0.199864, 0.913065, -0.07348]],
    ("lamb", True): [[0.47998, 0.763184, 0.077332], [0.199829, 0.913086, -0.073425]],
}
MEANS = {
    "adamw": [[0.612518, 0.733629, 0.381814], [0.685959, 0.370639, 0.712851]],
    "lamb": [[0.612518, 0.733629, 0.384297], [0.685959, 0.371317, 0.712851]],
}


def arrays(seed, dtype="float32"):
    random = np.random.RandomState(seed)
    return [nd.array(random.rand(*shape) + 0.1, dtype=dtype) for shape in ((3, 4), (5,))]


@pytest.mark.parametrize(("rule", "narrow"), NEW)
def test_as_mxnet(rule, narrow):
    dtype = "float16" if narrow else "float32"
    weights, grads, means, variances = arrays(1, dtype), arrays(2, dtype), arrays(3), arrays(4)
    wide = [weight.astype("float32") for weight in weights]
    out = [nd.zeros_like(weight) for weight in weights]
    lists = [weights, grads, means, variances, *([wide] if narrow else [])]
    function = getattr(nd.contrib, f"multi_{'mp_' if narrow else ''}{rule}_update")
    rates = {"lrs": [0.1, 0.2], "wds": [0.01, 0.02], "out": out}
    if rule == "adamw":
        made = function(*lists, nd.array([0.5]), etas=[0.9, 0.8], clip_gradient=0.3, **rates)
    else:
        bounds = {"lower_bound": 0.5, "upper_bound": 2.0}
        made = function(*lists, step_count=[1, 3], rescale_grad=0.5, bias_correction=True, **bounds, **rates)
    tolerance = 1e-3 if narrow else 2e-6
    for new, target, mean, number in zip(made, out, means, range(2), strict=True):
        assert new is target
        np.testing.assert_allclose(target.asnumpy().ravel()[:3], NEW[rule, narrow][number], tolerance, tolerance)
        np.testing.assert_allclose(mean.asnumpy().ravel()[:3], MEANS[rule][number], 1e-3 if narrow else 2e-6)


def test_lists_of_different_lengths():
    weights, grads = arrays(1), arrays(2)
    with pytest.raises(ShapeError, match="multi_adamw_update: lrs has 1 entries for 2 weights"):
        nd.contrib.multi_adamw_update(weights, grads, grads, grads, 1.0, lrs=[0.1], wds=[0.0, 0.0], etas=[1.0, 1.0])
    with pytest.raises(ShapeError, match="weights has 2 entries for 3 weights"):
        nd.contrib.multi_lamb_update(weights, grads, grads, grads, [1, 1], [0.1, 0.1], [0.0, 0.0], num_tensors=3)
    rates = {"lrs": [0.1, 0.1], "wds": [0.0, 0.0], "etas": [1.0, 1.0]}
    assert len(nd.contrib.multi_adamw_update(weights, grads, *[arrays(3)] * 2, 1.0, size=2, **rates)) == 2
