"""Vocabularies of tokens, and their embedding vectors from files, under MXNet's names."""

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

from . import counting as utils
from . import embedding, vocab
from .vocab import TextError

__all__ = ["TextError", "embedding", "utils", "vocab"]

_suggest_names(__name__)
