"""Count the tokens of a text; `mx.contrib.text.utils` in MXNet."""

from __future__ import annotations

import re
from collections import Counter

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

__all__ = ["count_tokens_from_str"]


def count_tokens_from_str(
    source_str: str,
    token_delim: str = " ",
    seq_delim: str = "\n",
    to_lower: bool = False,
    counter_to_update: Counter[str] | None = None,
) -> Counter[str]:
    """How often each token occurs in a text.

    token_delim, seq_delim : regular expressions of the text between tokens, and between sequences of them
    to_lower : count in lower case; counter_to_update : add to this Counter, which is then returned
    """
    tokens = [token for token in re.split(f"{token_delim}|{seq_delim}", source_str) if token]
    counter = Counter() if counter_to_update is None else counter_to_update
    counter.update(token.lower() for token in tokens) if to_lower else counter.update(tokens)
    return counter


_suggest_names(__name__)
