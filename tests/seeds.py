"""The random numbers that tests draw."""

import random

import numpy as np


def same_random_numbers() -> None:
    """Let what follows draw the same numbers, whatever was drawn before in this process."""
    import hybrid_lab as mx

    mx.random.seed(0)
    np.random.seed(0)
    random.seed(0)
