"""Gradients with fewer bits: half precision, or MXNet's one and two bits with a residual."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hybrid_lab.distributed.kvstore.kvstore import KVStoreError

from .worker_group import Group

KINDS = ("fp16", "bf16", "2bit", "1bit")
_THRESHOLDS = {"2bit": 0.5, "1bit": 0.0}


class Compression:
    """How gradients become smaller on their way. kind : one of KINDS; threshold : of one and two bits"""

    def __init__(self, kind: str, threshold: float) -> None:
        self.kind, self.threshold = kind, threshold

    def __repr__(self) -> str:
        return f"Compression({self.kind!r}{f', threshold={self.threshold}' if self.kind in _THRESHOLDS else ''})"

    def sum(self, group: Group, memory: np.ndarray, residual: np.ndarray) -> None:
        """Replace a flat array by the sum of all workers' compressed arrays.

        residual : of the same size; compression to one or two bits keeps the unsent remainder in it for the next time
        """
        if self.kind in _THRESHOLDS:
            self._sum_bits(group, memory, residual)
            return
        import torch

        small = torch.from_numpy(memory).to(torch.float16 if self.kind == "fp16" else torch.bfloat16)
        group.sum(small).wait()
        torch.from_numpy(memory).copy_(small)

    def _sum_bits(self, group: Group, memory: np.ndarray, residual: np.ndarray) -> None:
        """Each number is sent as -1 or 1, or as -threshold, 0 or threshold: as int8, in which up to 127 workers add up
        without error.
        """
        residual += memory
        if self.kind == "1bit":
            sent, unit = np.where(residual > self.threshold, 1, -1).astype(np.int8), memory.dtype.type(1)
        else:
            sent = (residual >= self.threshold).astype(np.int8) - (residual <= -self.threshold).astype(np.int8)
            unit = memory.dtype.type(self.threshold)
        residual -= sent * unit
        counts = sent if group.size <= 127 else sent.astype(np.int32)
        group.sum(counts).wait()
        np.multiply(counts, unit, out=memory)


def compression(settings: Mapping[str, Any]) -> Compression:
    """The compression of MXNet's settings. Raises KVStoreError for other settings."""
    if not isinstance(settings, Mapping):
        raise KVStoreError(f"gradient compression takes a dict such as {{'type': '2bit'}}, not {settings!r}")
    kind = settings.get("type")
    if kind not in KINDS:
        raise KVStoreError(f"gradients are compressed as {', '.join(KINDS)}, not as {kind!r}")
    unknown = sorted(set(settings) - {"type", "threshold"})
    if unknown:
        raise KVStoreError(f"gradient compression has the settings type and threshold, not {', '.join(unknown)}")
    try:
        threshold = float(settings.get("threshold", _THRESHOLDS.get(kind, 0.0)))
    except (TypeError, ValueError):
        threshold = -1.0
    if not 0 <= threshold < float("inf") or (kind == "2bit" and not threshold):
        raise KVStoreError(f"the threshold of {kind} is a number above 0, not {settings.get('threshold')!r}")
    return Compression(kind, threshold)
