"""The examples on a rule's page as whole modules that can be checked."""

from __future__ import annotations

import textwrap

_HEAD = """\
import logging, math, os, random, time
import numpy as np
import some_library
import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import nn

"""

_CLASS = """
class Net(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(10)
        self.factor = 2.0
        self.weight = self.params.get("weight", shape=(3, 3))
        self.scale = self.params.get_constant("scale", [1.0, 2.0, 3.0])

    def hybrid_forward(self, F, x, weight, scale):
        {unused}
{body}
"""


def as_module(example: str) -> str:
    """An example as a module: a class as it stands, statements as the body of a hybrid_forward with a tensor x."""
    if example.lstrip().startswith("class "):
        return _HEAD + "\n" + example + "\n"
    return _HEAD + _CLASS.format(unused="mask = x > 0", body=textwrap.indent(example, " " * 8))
