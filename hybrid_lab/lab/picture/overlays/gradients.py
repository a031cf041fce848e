"""Norms of gradients, as the last backward() left them."""

from __future__ import annotations

import math

import numpy as np

from hybrid_lab.gluon import access
from hybrid_lab.insight.states import blocks_below
from hybrid_lab.insight.summary import number
from hybrid_lab.lab.picture.overlays.cells import SLOWEST, Cell, Overlay
from hybrid_lab.lab.picture.overlays.source import OverlaySource
from hybrid_lab.ndarray.ndarray import NDArray


def gradients_overlay(source: OverlaySource) -> Overlay:
    """For each operator the norm of the gradients of its parameters; nothing runs."""
    result, norms = Overlay(""), {}
    top = f"{source.path}." if source.path else ""
    parameters = [
        (f"{above}.{name}" if above else name, parameter)
        for above, block in blocks_below(source.net)
        for name, parameter in access.own_parameters(block).items()
    ]
    for path, parameter in parameters:
        arrays = access.arrays(parameter)
        gradient = None if not arrays else arrays[0].grad
        if path.startswith(top) and arrays and gradient is not None:
            norms[path] = _norm(gradient), _norm(arrays[0])
    for row in source.picture.nodes:
        paths = [badge["path"] for badge in row["badges"]]
        paths += [row["attributes"].get("parameter", ""), row["attributes"].get("gradient of", "")]
        known = [(path, *norms[path]) for path in paths if path in norms]
        if known:
            value = math.sqrt(sum(norm * norm for _, norm, _ in known))
            each = (f"{number(norm)} of {path}, whose values have {number(size)}" for path, norm, size in known)
            text = f"norm of the gradient {'; '.join(each)}"
            result.cells[row["id"]] = Cell(value, None, number(value), text, not math.isfinite(value))
    if not norms:
        result.missing = "No parameter of this Block has a gradient yet: call backward() once."
    whole = math.sqrt(sum(norm * norm for norm, _ in norms.values()))
    result.headline = f"norm of all gradients {number(whole)}, as the last backward() left them"
    ranked = sorted(result.cells.items(), key=lambda pair: -(pair[1].value or 0.0))
    bad = [identity for identity, cell in ranked if cell.bad]
    result.marked = (bad or [identity for identity, _ in ranked])[:SLOWEST]
    return result


def _norm(array: NDArray) -> float:
    """The Euclidean norm, in parts, so that nothing is copied whole."""
    flat, total = array.raw().reshape(-1), 0.0
    for start in range(0, flat.size, 1 << 18):
        part = flat[start : start + (1 << 18)]
        with np.errstate(all="ignore"):
            square = float(np.dot(part, part)) if part.dtype == np.float32 else 0.0
        if not 1e-30 < square < 1e30:  # out of the range in which float32 has all its digits
            part = part.astype(np.float64)
            square = float(part @ part)
        total += square
    return math.sqrt(total) if total == total else math.nan
