"""Switches off the telemetry of the libraries that this package runs.

The Linux wheel of ONNX Runtime 1.32 has telemetry switched on: its import alone writes a device id and a data base of
events into the user's cache folder, and sessions add events that it sends to its maker. ONNX Runtime reads its
environment variable while it is imported, so the variable must be set before that. Processes that this one starts
inherit the variable.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from types import ModuleType

#: ONNX Runtime's own variable. It takes 1, true, yes and on as "no telemetry", and anything else as "telemetry".
VARIABLE = "ORT_DISABLE_TELEMETRY"
#: Values by which the user keeps the telemetry.
_KEPT = frozenset({"0", "false", "no", "off"})
#: Values that ONNX Runtime understands.
_OFF = frozenset({"1", "true", "yes", "on"})


def is_off(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment tells ONNX Runtime to report nothing."""
    return environment.get(VARIABLE, "").strip().lower() in _OFF


def switch_off(
    environment: MutableMapping[str, str] = os.environ, modules: Mapping[str, ModuleType] = sys.modules
) -> None:
    """Switch off ONNX Runtime's telemetry in this process and its child processes, unless ORT_DISABLE_TELEMETRY is 0,
    false, no or off. An ONNX Runtime that is imported already stops reporting from now on.
    """
    value = environment.get(VARIABLE, "").strip().lower()
    if value in _KEPT:
        return
    if not is_off(environment):
        environment[VARIABLE] = "1"
    stop = getattr(modules.get("onnxruntime"), "disable_telemetry_events", None)
    if stop is not None:
        stop()
