"""A recurrent layer that an engine hands to a library as a whole."""

from __future__ import annotations

from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.signature import Signature
from hybrid_lab.ops.rnn.rnn import RNN, RNNGrad


class LibraryRNN(Operator):
    """Base of the operators that stand for RNN, or for its gradient, in the graphs of one engine. They have no
    attributes of their own, and no rules: shapes are inferred before.

    record : the RNN that it stands for
    """

    record: RNN | RNNGrad

    def __init__(self, record: RNN | RNNGrad, num_outputs: int):
        signature = Signature(outputs=num_outputs)
        for key, value in (("record", record), ("signature", signature), ("attributes", {}), ("inferred", {})):
            object.__setattr__(self, key, value)

    def __repr__(self) -> str:
        return repr(self.record)
