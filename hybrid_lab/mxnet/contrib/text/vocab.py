"""Vocabulary: tokens and their indices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, overload

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

__all__ = ["Vocabulary"]

UNKNOWN = 0
"""The index of every unknown token."""


class TextError(HybridLabError, ValueError, AssertionError):
    """A setting, a token or a file of `mx.contrib.text` that does not fit."""


class Vocabulary:
    """Indices of tokens: the unknown token is 0, then come the reserved tokens, then the counted ones by frequency.

    counter : Counter of tokens, or None; most_freq_count : how many of its tokens at most; min_freq : how often a token
    must occur
    unknown_token : stands for all tokens that are not indexed; reserved_tokens : always indexed, such as "<pad>"

    Tokens of the same frequency are sorted. Raises TextError for settings that do not fit.
    """

    def __init__(
        self,
        counter: Counter[Any] | None = None,
        most_freq_count: int | None = None,
        min_freq: int = 1,
        unknown_token: Hashable = "<unk>",
        reserved_tokens: Sequence[Hashable] | None = None,
    ):
        if min_freq < 1:
            raise TextError(f"min_freq={min_freq}; 1 or more is needed")
        reserved = [] if reserved_tokens is None else list(reserved_tokens)
        if unknown_token in reserved:
            raise TextError(f"reserved_tokens contains the unknown token {unknown_token!r}")
        if len(set(reserved)) < len(reserved):
            raise TextError("reserved_tokens contains a token twice")
        self._unknown_token = unknown_token
        self._reserved_tokens = None if reserved_tokens is None else reserved
        self._idx_to_token: list[Any] = [unknown_token, *reserved]
        if counter is not None:
            if not isinstance(counter, Counter):
                raise TextError(f"counter must be a collections.Counter, not {type(counter).__name__}")
            self._count(counter, most_freq_count, min_freq)
        self._token_to_idx: dict[Any, int] = {token: index for index, token in enumerate(self._idx_to_token)}

    def _count(self, counter: Counter[Any], most: int | None, least: int) -> None:
        known = set(self._idx_to_token)
        frequent = sorted(sorted(counter), key=lambda token: -counter[token])
        chosen = [token for token in frequent if counter[token] >= least and token not in known]
        self._idx_to_token += chosen if most is None else chosen[:most]

    def __len__(self) -> int:
        return len(self._idx_to_token)

    @property
    def token_to_idx(self) -> dict[Any, int]:
        """Token -> index."""
        return self._token_to_idx

    @property
    def idx_to_token(self) -> list[Any]:
        """The tokens in the order of their indices."""
        return self._idx_to_token

    @property
    def unknown_token(self) -> Hashable:
        """The token that replaces every unknown token; its index is 0."""
        return self._unknown_token

    @property
    def reserved_tokens(self) -> list[Hashable] | None:
        """Tokens that are indexed whether they occur or not."""
        return self._reserved_tokens

    @overload
    def to_indices(self, tokens: list[Any]) -> list[int]: ...
    @overload
    def to_indices(self, tokens: Hashable) -> int: ...
    def to_indices(self, tokens: list[Any] | Hashable) -> list[int] | int:
        """The index of a token, or the indices of a list of them."""
        if isinstance(tokens, list):
            return [self._token_to_idx.get(token, UNKNOWN) for token in tokens]
        return self._token_to_idx.get(tokens, UNKNOWN)

    @overload
    def to_tokens(self, indices: list[int]) -> list[Hashable]: ...
    @overload
    def to_tokens(self, indices: int) -> Hashable: ...
    def to_tokens(self, indices: int | list[int]) -> list[Hashable] | Hashable:
        """The token of an index, or the tokens of a list of them. Raises TextError for an index that is not there."""
        if not isinstance(indices, list):
            return self.to_tokens([indices])[0]
        for index in indices:
            if not isinstance(index, int) or not 0 <= index < len(self):
                raise TextError(f"the index {index!r} is not there; the vocabulary has {len(self)} tokens")
        return [self._idx_to_token[index] for index in indices]


_suggest_names(__name__)
