"""A few numbers that stand for an array: small arrays whole, larger ones as four random projections."""

import numpy as np

WHOLE = 6


def sketch(values):
    """[shape, dtype, numbers] of an array; strings and truth values as they are."""
    values = np.asarray(values)
    if values.dtype.kind in "Ub":
        return values.item()
    flat = values.astype("float64").ravel()
    if flat.size > WHOLE:
        flat = np.random.RandomState(flat.size).normal(0, 1, (4, flat.size)) @ flat / np.sqrt(flat.size)
    return [list(values.shape), values.dtype.name, [float(f"{number:.8g}") for number in flat]]


def close(one, other, tolerance):
    """Whether two sketches are of arrays that are as close as that."""
    if not isinstance(one, list) or not isinstance(other, list):
        return one == other
    shapes = one[:2] == other[:2]
    return shapes and np.allclose(one[2], other[2], rtol=tolerance, atol=tolerance, equal_nan=True)
