"""Layers and cells beside the main collection, under MXNet's names."""

from . import nn, rnn

__all__ = ["nn", "rnn"]
