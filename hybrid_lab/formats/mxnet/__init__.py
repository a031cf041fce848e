"""MXNet's own files: `.params` arrays and `-symbol.json` graphs."""

from .params import read_params, write_params

__all__ = ["read_params", "write_params"]
