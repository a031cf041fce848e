"""Checkpoints of symbolic models: `prefix-symbol.json` with the graph, `prefix-0003.params` with the arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hybrid_lab import ndarray as nd
from hybrid_lab import symbol as sym
from hybrid_lab.context import cpu
from hybrid_lab.diagnostics.errors import ArchiveError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.diagnostics.unknown_names import unknown_name
from hybrid_lab.ndarray import NDArray
from hybrid_lab.symbol import Symbol
from hybrid_lab.system.provided import Provided

__all__ = [
    "BatchEndParam", "FeedForward", "load_checkpoint", "load_params", "save_checkpoint", "save_params",  # noqa: F822
]  # fmt: skip

Params = dict[str, NDArray]

feed_forward_class: Provided[[], Any] = Provided("feed_forward_class")
"""The class FeedForward, which is made of Modules, a room above this one."""


def __getattr__(name: str) -> object:
    if name == "FeedForward":
        globals()[name] = found = feed_forward_class()
        return found
    raise unknown_name("model", name, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)


class BatchEndParam(NamedTuple):
    """The argument of a callback after a batch.

    nbatch : number of the batch in its epoch, from 0
    locals : the local variables of the loop
    """

    epoch: int
    nbatch: int
    eval_metric: Any
    locals: Mapping[str, Any] | None


def save_checkpoint(
    prefix: str,
    epoch: int,
    symbol: Symbol | None,
    arg_params: Mapping[str, NDArray],
    aux_params: Mapping[str, NDArray],
    remove_amp_cast: bool = True,
) -> None:
    """Write `prefix-symbol.json` and `prefix-EPOCH.params`, which MXNet reads too.

    symbol : None writes no graph
    remove_amp_cast : accepted for MXNet's sake; graphs here have no casts of mixed precision
    """
    check_switches("save_checkpoint", remove_amp_cast=remove_amp_cast)
    if symbol is not None:
        symbol.save(f"{prefix}-symbol.json")
    save_params(f"{prefix}-{epoch:04d}.params", arg_params, aux_params)


def save_params(fname: str, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray]) -> None:
    """Write arguments as `arg:NAME` and auxiliary states as `aux:NAME`."""
    arrays = {f"arg:{name}": array.as_in_context(cpu()) for name, array in arg_params.items()}
    arrays |= {f"aux:{name}": array.as_in_context(cpu()) for name, array in aux_params.items()}
    nd.save(fname, arrays)


def read_params(fname: str) -> tuple[Params, Params]:
    """Arguments and auxiliary states of a file that `save_params` wrote. Raises ArchiveError for another one."""
    loaded = nd.load(fname)
    arguments: Params = {}
    states: Params = {}
    if not isinstance(loaded, dict):
        if loaded:
            raise ArchiveError("the arrays have no names, so this is no checkpoint", path=fname)
        loaded = {}  # of a network without parameters
    for key, array in loaded.items():
        kind, _, name = key.partition(":")
        if kind not in ("arg", "aux") or not name or array is None:
            raise ArchiveError(f"{key!r} is not named arg:NAME or aux:NAME, so this is no checkpoint", path=fname)
        (arguments if kind == "arg" else states)[name] = array
    return arguments, states


def load_params(prefix: str, epoch: int) -> tuple[Params, Params]:
    """Arguments and auxiliary states of `prefix-EPOCH.params`. Raises ArchiveError, FileError."""
    return read_params(f"{prefix}-{epoch:04d}.params")


def load_checkpoint(prefix: str, epoch: int) -> tuple[Symbol, Params, Params]:
    """(symbol, arguments, auxiliary states) of a checkpoint, also of MXNet's.

    Raises ArchiveError, FileError.
    """
    symbol = sym.load(f"{prefix}-symbol.json")
    return (symbol, *load_params(prefix, epoch))
