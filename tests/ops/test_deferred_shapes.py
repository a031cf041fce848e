"""complete() finds the shapes of parameters from the data, part by part, as deferred initialization needs it."""

from __future__ import annotations

import pytest

from hybrid_lab.ops import get

CASES = [
    ("FullyConnected", {"num_hidden": 5}, [(2, 3, 4), None, None], [(2, 3, 4), (5, 12), (5,)]),
    ("FullyConnected", {"num_hidden": 5}, [(None, 3, 4), (5, None), (None,)], [(None, 3, 4), (5, 12), (5,)]),
    ("FullyConnected", {"num_hidden": 5, "flatten": False}, [(2, 3, 4), None, None], [(2, 3, 4), (5, 4), (5,)]),
    ("FullyConnected", {"num_hidden": 5, "no_bias": True}, [None, None], [None, (5, None)]),
    ("FullyConnected", {"num_hidden": 5}, [(2, None), None, None], [(2, None), (5, None), (5,)]),
    (
        "Convolution",
        {"kernel": (3, 2), "num_filter": 8, "num_group": 2},
        [(None, 4, 9, 9), None, None],
        [(None, 4, 9, 9), (8, 2, 3, 2), (8,)],
    ),
    ("Convolution", {"kernel": (3,), "num_filter": 8}, [None, None, None], [None, (8, None, 3), (8,)]),
    ("BatchNorm", {}, [(2, 3, 4), None, None, None, None], [(2, 3, 4), (3,), (3,), (3,), (3,)]),
    ("BatchNorm", {"axis": -1}, [(None, 3, 4), (None,), None, None, None], [(None, 3, 4), (4,), (4,), (4,), (4,)]),
    ("LayerNorm", {}, [(2, 3), None, None], [(2, 3), (3,), (3,)]),
    ("Embedding", {"input_dim": 9, "output_dim": 4}, [None, None], [None, (9, 4)]),
    ("LeakyReLU", {"act_type": "prelu"}, [(2, 3, 4), None], [(2, 3, 4), (3,)]),
    ("broadcast_add", {}, [(2, None), (None, 3)], [(2, 3), (2, 3)]),
    ("broadcast_add", {}, [None, (4, 3)], [(4, 3), (4, 3)]),
    ("broadcast_add", {}, [None, ()], [None, ()]),
    ("broadcast_mul", {}, [(2, None), (1, 3)], [(2, 3), (1, 3)]),
    ("Concat", {"dim": 1}, [(2, 3, 5), (None, None, None), None], [(2, 3, 5), (2, None, 5), (2, None, 5)]),
]


@pytest.mark.parametrize(("name", "attributes", "known", "completed"), CASES)
def test_complete(name, attributes, known, completed):
    assert list(get(name).bind(**attributes).complete(*known)) == completed
