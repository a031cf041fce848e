"""Layers and cells beside the main collection, under MXNet's names."""

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

from . import cnn, data, estimator, nn, rnn

__all__ = ["cnn", "data", "estimator", "nn", "rnn"]

_suggest_names(__name__)
