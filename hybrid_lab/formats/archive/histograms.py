"""histograms.safetensors: for each parameter of a save a small record of its values, and of its gradient.

A record has the numbers of a Summary and its histogram, so that many saves can be shown without reading their weights.
Archives of older releases have no such member: there the values of a parameter are read instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.gluon import access
from hybrid_lab.insight.summaries import WIDTH, summary_of_row, summary_table
from hybrid_lab.insight.summary import Summary
from hybrid_lab.ndarray.ndarray import NDArray

from ..safetensors import SafetensorsFile
from . import layout
from .container import Container

if TYPE_CHECKING:
    from hybrid_lab.gluon import Parameter

_VALUES, _GRADIENTS = "values", "gradients"
"""Tensors of the member: a row for each parameter; a row for each gradient, after the number of its parameter."""
_LARGEST = 256 << 20
"""Bytes of a member that are read."""


@dataclass(frozen=True)
class ParameterHistograms:
    """values : of a parameter; gradient : of the gradient that a backward wrote before the save, None without one"""

    values: Summary
    gradient: Summary | None = None


def histogram_tensors(parameters: Mapping[str, Parameter], values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The member's tensors for live parameters by their ids; the rows are in the order of the sorted ids.

    values : of the parameters that have some, by the same ids
    """
    names = sorted(values)
    gradients = {row: each for row, name in enumerate(names) if (each := _gradient(parameters[name])) is not None}
    table = summary_table([values[name] for name in names] + list(gradients.values()))
    tensors = {_VALUES: table[: len(names)]} if names else {}
    if gradients:
        tensors[_GRADIENTS] = np.column_stack([list(gradients), table[len(names) :]])
    return tensors


def live_histograms(parameter: Parameter) -> ParameterHistograms | None:
    """The same for the current values of a live parameter; None if it has no values yet."""
    arrays = access.arrays(parameter)
    if not arrays:
        return None
    found = [arrays[0]] if (gradient := _gradient(parameter)) is None else [arrays[0], gradient]
    rows = zip(summary_table(found), found, strict=True)
    return ParameterHistograms(*(summary_of_row(row, tuple(each.shape), np.dtype(each.dtype)) for row, each in rows))


def _gradient(parameter: Parameter) -> NDArray | None:
    """The gradient to summarize: of a sparse gradient, the stored rows."""
    gradient = access.written_gradient(parameter)
    return gradient if gradient is None or gradient.stype == "default" else gradient.data  # type: ignore[attr-defined]


class SavedHistograms:
    """The records of one archive, read without its weights.

    names : the ids of the parameters with values, sorted; is_recorded : whether the archive has the member
    Raises ArchiveError if the archive, or the member, is damaged, FileError.
    """

    def __init__(self, container: Container) -> None:
        self._container = container
        self.is_recorded = layout.HISTOGRAMS in container
        tensors = container.manifest["members"].get(layout.WEIGHTS, {}).get("tensors", {})
        self.names = sorted(name for name in tensors if ":" not in name)  # names with a colon are constants of graphs
        self._rows = {name: row for row, name in enumerate(self.names)}
        self._values: np.ndarray | None = None
        self._gradients: dict[int, np.ndarray] = {}
        if self.is_recorded:
            self._read()

    def _read(self) -> None:
        container = self._container
        if container.manifest["members"][layout.HISTOGRAMS]["size"] > _LARGEST:
            raise self._damaged("it is larger than any record of parameters")
        if not container.holds_tensors(layout.HISTOGRAMS):
            raise self._damaged("it holds no tensors")
        tensors = container.read_tensors(layout.HISTOGRAMS)
        self._values = self._table(tensors, _VALUES, WIDTH)
        if len(self._values) != len(self.names):
            raise self._damaged(f"it has {len(self._values)} rows for {len(self.names)} parameters")
        if _GRADIENTS in tensors:
            table = self._table(tensors, _GRADIENTS, 1 + WIDTH)
            self._gradients = dict(zip(table[:, 0].tolist(), table[:, 1:], strict=True))
            if len(self._gradients) != len(table) or not self._gradients.keys() <= set(range(len(self.names))):
                raise self._damaged("its gradients name parameters that are not there, or one twice")

    def _table(self, tensors: Mapping[str, np.ndarray], name: str, width: int) -> np.ndarray:
        table = tensors.get(name)
        if table is None or table.dtype != np.float64 or table.ndim != 2 or table.shape[1] != width:
            raise self._damaged(f"{name!r} is no table of {width} columns")
        return table

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def of(self, name: str) -> ParameterHistograms | None:
        """The record of a parameter; None if the save has no values of it. Raises ArchiveError if it is damaged."""
        row = self._rows.get(name)
        if row is None:
            return None
        if self._values is None:
            array = self._weights[name]
            return ParameterHistograms(summary_of_row(summary_table([array])[0], array.shape, array.dtype))
        _, dtype, shape, *_ = self._weights.infos[name]
        gradient = self._gradients.get(row)
        try:
            values = summary_of_row(self._values[row], shape, dtype)
            if gradient is None:
                return ParameterHistograms(values)
            # Of a sparse gradient only the stored rows are recorded, whatever their number.
            size = float(gradient[0])
            stored = (int(size),) if 0 <= size < values.size else shape
            return ParameterHistograms(values, summary_of_row(gradient, stored, dtype))
        except ValueError as error:
            raise self._damaged(f"the record of {name[:200]!r} {error}") from None

    @cached_property
    def _weights(self) -> SafetensorsFile:
        return self._container.tensors(layout.WEIGHTS)

    def _damaged(self, why: str) -> ArchiveError:
        return self._container.error(f"damaged archive: {why}", layout.HISTOGRAMS)
