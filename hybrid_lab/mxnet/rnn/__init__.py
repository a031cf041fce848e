"""Recurrent cells on Symbols, for Modules: one step at a time, unrolled into a graph. `gluon.rnn` has the cells of
Gluon.
"""

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

from . import io as io
from .base import BaseRNNCell, RNNParams
from .checkpoint import do_rnn_checkpoint, load_rnn_checkpoint, save_rnn_checkpoint
from .convolved import BaseConvRNNCell, ConvGRUCell, ConvLSTMCell, ConvRNNCell
from .fused import FusedRNNCell
from .gated import GRUCell, LSTMCell, RNNCell
from .io import BucketSentenceIter, encode_sentences
from .modifier import (
    BidirectionalCell,
    DropoutCell,
    ModifierCell,
    ResidualCell,
    SequentialRNNCell,
    ZoneoutCell,
)

__all__ = [
    "BaseConvRNNCell",
    "BaseRNNCell",
    "BidirectionalCell",
    "BucketSentenceIter",
    "ConvGRUCell",
    "ConvLSTMCell",
    "ConvRNNCell",
    "DropoutCell",
    "FusedRNNCell",
    "GRUCell",
    "LSTMCell",
    "ModifierCell",
    "RNNCell",
    "RNNParams",
    "ResidualCell",
    "SequentialRNNCell",
    "ZoneoutCell",
    "do_rnn_checkpoint",
    "encode_sentences",
    "load_rnn_checkpoint",
    "save_rnn_checkpoint",
]

_suggest_names(__name__)
