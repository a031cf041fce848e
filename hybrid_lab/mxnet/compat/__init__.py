"""`import hybrid_lab.compat` makes `import mxnet` this package, so that code written for MXNet runs unchanged.

    import hybrid_lab.compat
    import mxnet as mx                  # mx.gluon is hybrid_lab.gluon

Also `python -m hybrid_lab.compat script.py`, and `%load_ext hybrid_lab.compat` in a notebook.
"""

from __future__ import annotations

from .finder import install, uninstall

__all__ = ["install", "load_ipython_extension", "uninstall", "unload_ipython_extension"]


def load_ipython_extension(ipython: object) -> None:
    """`%load_ext hybrid_lab.compat`."""
    install()


def unload_ipython_extension(ipython: object) -> None:
    """`%unload_ext hybrid_lab.compat`."""
    uninstall()


install()
