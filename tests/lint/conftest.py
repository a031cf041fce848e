"""Short ways to check a method body."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from hybrid_lab import lint

HEAD = """\
import logging, math, os, random, time
import numpy as np
import some_library
import mxnet as mx
from mxnet import autograd, gluon, nd, sym
from mxnet.gluon import nn, rnn
"""

NET = """
class Net(gluon.HybridBlock):
    def __init__(self, units=3, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.units = units
            self.table = [1, 2, 3]
            self.fc = nn.Dense(units)
            self.body = nn.HybridSequential()
            self.rnn = rnn.LSTM(units)
{init}

    def {signature}:
{body}
"""


def net(body: str, signature: str = "hybrid_forward(self, F, x, y)", init: str = "") -> str:
    """A HybridBlock with this method; lines of `init` go into its constructor."""
    parts = {"init": textwrap.indent(textwrap.dedent(init), " " * 12), "signature": signature}
    return HEAD + NET.format(body=textwrap.indent(textwrap.dedent(body), " " * 8), **parts)


@pytest.fixture
def codes() -> Callable[..., list[str]]:
    """The codes found in a body; without HL197, as the bodies here rarely use both inputs."""

    def found(body: str, signature: str = "hybrid_forward(self, F, x, y)", init: str = "", target: str | None = None):
        findings = lint.check(net(body, signature, init), target=target)
        return [finding.code for finding in findings if finding.code != "HL197"]

    return found
