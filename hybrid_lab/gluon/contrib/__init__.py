"""Layers and cells beside the main collection, under MXNet's names."""

from . import nn

__all__ = ["nn"]
