"""The engines that tests compare, None being eager calls, and how results by name differ."""

import numpy as np

ENGINES = (None, "numpy", "onnxruntime", "torch")


def differences(found, expected, tolerance):
    """Names of the results that are not there on both sides, or are further apart."""
    different = sorted(set(found) ^ set(expected))
    for name in set(found) & set(expected):
        one, other = found[name], expected[name]
        scale = tolerance * max(1.0, np.abs(other).max(initial=0.0))
        if one.shape != other.shape or not np.allclose(one, other, rtol=tolerance, atol=scale):
            different.append(name)
    return different
