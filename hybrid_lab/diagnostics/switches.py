"""Arguments that are on or off: a public function refuses anything else, since `strict="no"` would count as on."""

from __future__ import annotations

import numpy as np

from hybrid_lab.diagnostics.errors import SettingError


def check_switches(call: str, **given: object) -> None:
    """Raise SettingError for an argument that is neither on nor off. Numbers and None, for "not given", are accepted.

    call : the function, as in `net.load`
    """
    for name, value in given.items():
        if not (value is None or isinstance(value, (int, np.bool_))):
            raise SettingError(f"{call} takes True or False for {name}, not {value!r}")
