"""MXNet's own files: `.params` arrays and `-symbol.json` graphs."""

from . import symbol_json
from .model import load_params, save_model
from .params import read_params, write_params
from .symbol_json import load as load_symbol

__all__ = ["load_params", "load_symbol", "read_params", "save_model", "symbol_json", "write_params"]
