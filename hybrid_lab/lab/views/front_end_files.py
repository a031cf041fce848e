"""The built JavaScript that this package gives to front ends: `lab/static/`."""

from __future__ import annotations

import functools
from importlib.resources import files

from hybrid_lab.lab.errors import RequestError


@functools.lru_cache
def script(name: str) -> str:
    """The text of `lab/static/<name>.js`. Raises RequestError if the front end is not built."""
    try:
        return (files("hybrid_lab.lab") / "static" / f"{name}.js").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RequestError(
            "failed",
            f"{name}.js is not part of this installation",
            "Run `make install` in the checkout, or install the wheel.",
        ) from None
