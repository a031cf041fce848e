"""Recurrent layers over whole sequences, and cells that make one step at a time and unroll into a graph."""

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

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

_suggest_names(__name__)
