"""Counts the parameters whose numbers differ from the archive of the last save or load, as Compare does.

Version counters tell which parameters were written. Only these are compared with the file, each version once, and of
most that differ the first bytes are enough.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.formats.archive import Container, layout, ledger
from hybrid_lab.formats.safetensors import SafetensorsFile
from hybrid_lab.gluon import access
from hybrid_lab.gluon.files.saved import FileState, Versions
from hybrid_lab.gluon.parameter import Parameter

_TENSORS = 2_000
"""Parameters of a model that is compared: the header of a file with 10,000 takes a quarter of a second to read."""


class _Compared(NamedTuple):
    """Whether a parameter with these versions holds the numbers of the file."""

    versions: Versions
    equal: bool


class _Known:
    """The parameters that were compared with one file. state : of the save or load; version : of the file"""

    def __init__(self, state: FileState, version: str):
        self.state, self.version = weakref.ref(state), version
        self.compared: dict[str, _Compared] = {}


class ChangedNumbers:
    """Compares parameters of the models of one kernel with the archives they were saved to or loaded from last."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def of(self, model: str, state: FileState, written: Mapping[str, Parameter], most: int) -> tuple[int, int]:
        """How many of these parameters hold the file's numbers, and how many were not compared.

        model : its id; written : parameters by path; most : elements that may be read
        """
        if len(state.versions) > _TENSORS:
            return 0, len(written)
        version = _version(state.path)
        known = self._known.get(model)
        if known is None or known.state() is not state or known.version != version:
            known = self._known[model] = _Known(state, version)
        equal = unknown = 0
        file = _File(state.path)
        for path, parameter in written.items():
            versions = Versions.of(parameter)
            compared = known.compared.get(path)
            if compared is None or compared.versions != versions:
                known.compared.pop(path, None)
                compared = None
                arrays = access.arrays(parameter) or ()
                if len(arrays) == 1 and arrays[0].size <= most and not arrays[0].buffer.host_stale:
                    most -= arrays[0].size
                    compared = _compare(file, path, versions, arrays[0].buffer.host)
            if compared is None:
                unknown += 1
            else:
                known.compared[path] = compared
                equal += compared.equal
        return equal, unknown


class _File:
    """The tensors of an archive, which is opened for the first of them. It is not kept open: it may be replaced."""

    def __init__(self, path: str):
        self._path = path
        self._tensors: SafetensorsFile | None = None

    def holds(self, name: str, array: np.ndarray) -> bool:
        """Whether a tensor is this array. Raises ArchiveError, FileError, OSError, KeyError."""
        if self._tensors is None:
            self._tensors = Container.open(self._path).tensors(layout.WEIGHTS)
        return self._tensors.holds(name, array)


def _version(path: str) -> str:
    try:
        return ledger.version(path)
    except OSError:
        return ""


def _compare(file: _File, path: str, versions: Versions, array: np.ndarray) -> _Compared | None:
    """None if the file cannot be read."""
    try:
        return _Compared(versions, file.holds(path, array))
    except (HybridLabError, OSError, KeyError):
        return None
