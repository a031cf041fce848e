"""The flags of hybridize(): which there are, and which values they take."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import numpy as np

from hybrid_lab import engines
from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.ndarray.context import Context, named
from hybrid_lab.system.logger import logger

SWITCHES = ("static_alloc", "static_shape", "strict", "tf32")
FLAGS = ("engine", "device", *SWITCHES, "products")
#: The values of `products` but None.
PRODUCTS = ("own", "vendor")
#: Flags of MXNet's hybridize() that change nothing here, switches and numbers.
MXNET_SWITCHES = ("clear", "partition_if_dynamic")
MXNET_NUMBERS = ("backward_bulk_size", "forward_bulk_size", "inline_limit")
MXNET_FLAGS = (*MXNET_SWITCHES, *MXNET_NUMBERS, "backend", "backend_opts")


def check_active(active: object) -> None:
    """Raise SettingError if the first argument of hybridize() belongs to another parameter: 'numpy', mx.gpu(0)."""
    if active is None or isinstance(active, (int, np.bool_)):
        return
    meant = {str: f"; an engine is given as hybridize(engine={active!r})", Context: "; give a device as device=..."}
    raise SettingError(f"hybridize() takes True or False first, not {active!r}{meant.get(type(active), '')}")


def check_switch(name: str, value: object, call: str = "hybridize") -> None:
    """Raise SettingError for a flag of hybridize() that is neither on nor off: strict="no"."""
    check_switches(f"{call}()", **{name: value})


def check_flags(active: object, flags: Mapping[str, Any]) -> str | None:
    """The engine that `engine` or `backend`, MXNet's name of it, asks for.

    Raises SettingError for a value that a flag does not take, HybridLabError for an engine that there is not; whether
    the engine can be used here is not looked at.
    """
    check_active(active)
    for name in (*SWITCHES, *MXNET_SWITCHES):
        check_switch(name, flags.get(name))
    if flags.get("products") not in (None, *PRODUCTS):
        raise SettingError(f"hybridize() takes None, 'own' or 'vendor' for products, not {flags['products']!r}")
    for name in MXNET_NUMBERS:
        number = flags.get(name)
        if isinstance(number, (bool, np.bool_)) or not (number is None or isinstance(number, (int, np.integer))):
            raise SettingError(f"hybridize() takes a whole number for {name}, not {number!r}")
    options = flags.get("backend_opts")
    if not (options is None or isinstance(options, Mapping)):
        raise SettingError(f"hybridize() takes a dict for backend_opts, not {options!r}")
    device = flags.get("device")
    if isinstance(device, str):
        named(device)
    elif not (device is None or isinstance(device, Context)):
        raise SettingError(f"hybridize() takes a Context such as mx.gpu(0) for device, not {device!r}")
    engine, backend = flags.get("engine"), flags.get("backend")
    for name, value in (("engine", engine), ("backend", backend)):
        if value is not None:
            if not isinstance(value, str):
                raise SettingError(f"hybridize() takes the name of an engine for {name}, not {value!r}")
            engines.check_name(value)
    if None not in (engine, backend) and engine != backend:
        raise SettingError(f"hybridize() got engine={engine!r} and backend={backend!r}; both name the engine")
    return backend if engine is None else engine


def known_flags(name: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    """MXNet's flags that hybridize() got beside its own flags, without `backend` and its options. Unknown flags give a
    warning.

    name : of the Block
    """
    known = {flag: value for flag, value in flags.items() if flag in (*MXNET_SWITCHES, *MXNET_NUMBERS)}
    for flag in flags.keys() - {*MXNET_FLAGS}:
        near = difflib.get_close_matches(flag, [*FLAGS, *MXNET_FLAGS], 1)
        meant = f"; did you mean {near[0]}?" if near else f". There are {', '.join(FLAGS)}"
        logger.warning(f"{name}: hybridize() has no flag {flag!r}, it is ignored{meant}")
    return known
