"""Weights for the networks of the zoo that are the same numbers on both sides: they depend on name and shape alone."""

import zlib

import numpy as np


def weight(name, shape):
    """Numbers for the parameter with this structural name ("features.0.weight"), float32."""
    random = np.random.RandomState(zlib.crc32(name.encode()) & 0xFFFFFFFF)
    numbers = np.resize(random.uniform(-1, 1, 4093).astype(np.float32), shape)
    if name.endswith(("gamma", "running_var")):
        return 1 + 0.1 * numbers
    if len(shape) == 1:
        return 0.1 * numbers
    return numbers * np.sqrt(6.0 / np.prod(shape[1:])).astype(np.float32)


def image(size):
    """A batch of one, (1, 3, size, size)."""
    return np.random.RandomState(7).uniform(-1, 1, (1, 3, size, size)).astype(np.float32)


def size_of(name):
    """Height and width of the images a network is made for."""
    return 299 if name.startswith("inception") else 224


def digest(lines):
    """A number that two lists of texts share only if they are equal."""
    return zlib.crc32("\n".join(lines).encode())
