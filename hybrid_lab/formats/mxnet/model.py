"""A model as MXNet exports it: `<prefix>-symbol.json` and `<prefix>-0000.params`."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath

import numpy as np

from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Value

from ..atomic import atomic_write
from . import symbol_json
from .params import read_params, write_params


def save_model(
    prefix: str | PathLike[str], epoch: int, graph: Graph, values: Mapping[Value, np.ndarray], np_shape: bool = False
) -> tuple[str, str]:
    """Write the two files of one traced block; returns their names.

    values : the inputs of the graph that are parameters, with their values
    np_shape : write the form that MXNet reads, and writes, under `npx.set_np()`
    Both texts exist before either file is written. Raises Unmappable for an operator that MXNet lacks.
    """
    return write_model(prefix, epoch, *encode_model(graph, values, np_shape), np_shape)


def encode_model(
    graph: Graph,
    values: Mapping[Value, np.ndarray],
    np_shape: bool = False,
    attrs: Mapping[str, list[object]] | None = None,
) -> tuple[bytes, dict[str, np.ndarray]]:
    """The text of the symbol file, and the arrays by MXNet's names, `arg:weight`. Raises Unmappable.

    np_shape : as in `save_model`; attrs : further attributes of the graph
    """
    constants: dict[str, np.ndarray] = {}
    attrs = {**(attrs or {}), **({"is_np_shape": ["int", 1]} if np_shape else {})}
    text = symbol_json.dumps(graph, constants=constants, attrs=attrs).encode("utf-8")
    arrays: dict[str, np.ndarray] = {}
    states = graph.states
    for value, array in values.items():
        arrays[f"{'aux' if value in states else 'arg'}:{value.node.name}"] = array
    return text, arrays | {f"arg:{name}": array for name, array in constants.items()}


def write_model(
    prefix: str | PathLike[str], epoch: int, text: bytes, arrays: Mapping[str, np.ndarray], np_shape: bool = False
) -> tuple[str, str]:
    """Write what `encode_model` gave to two files; returns their names."""
    symbol_file, params_file = f"{fspath(prefix)}-symbol.json", f"{fspath(prefix)}-{epoch:04d}.params"
    with atomic_write(symbol_file) as file:
        file.write(text)
        file.flush()
        # In the block: if either file cannot be written both stay as they were.
        write_params(params_file, arrays, np_shape=np_shape or None)
    return symbol_file, params_file


def load_params(path: str | PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of a `.params` file by plain name, without `arg:` and `aux:`. Raises ArchiveError."""
    arrays = read_params(path)
    if isinstance(arrays, list):
        if arrays:
            raise ArchiveError(
                f"the file holds {len(arrays)} arrays without names; a model's file needs names", path=path
            )
        return {}
    by_name: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        plain = name[4:] if name[:4] in ("arg:", "aux:") else name
        if plain in by_name:
            raise ArchiveError(f"the parameter {plain!r} appears twice", path=path)
        if array is not None:
            by_name[plain] = array
    return by_name
