"""Stores of arrays by key, which sum what several devices push: `mx.kv.create("local")`."""

from __future__ import annotations

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

from .base import KVStoreBase, TestStore
from .kvstore import KVStore, KVStoreError, create

__all__ = ["KVStore", "KVStoreBase", "KVStoreError", "TestStore", "create"]

_suggest_names(__name__)
