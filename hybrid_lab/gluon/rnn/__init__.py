"""Recurrent layers over whole sequences, and cells that make one step at a time and unroll into a graph."""

from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.unknown_names import suggesting as _suggesting

from .cell import GRUCell, HybridRecurrentCell, LSTMCell, RecurrentCell, RNNCell
from .layer import GRU, LSTM, RNN
from .modifier import BidirectionalCell, DropoutCell, ModifierCell, ResidualCell, ZoneoutCell
from .stack import HybridSequentialRNNCell, SequentialRNNCell

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "BidirectionalCell",
    "DropoutCell",
    "GRUCell",
    "HybridRecurrentCell",
    "HybridSequentialRNNCell",
    "LSTMCell",
    "ModifierCell",
    "RNNCell",
    "RecurrentCell",
    "ResidualCell",
    "SequentialRNNCell",
    "ZoneoutCell",
]


if not TYPE_CHECKING:  # so that a wrong name stays an error for type checkers
    __getattr__ = _suggesting(__name__, "gluon.rnn")
