"""mx.libinfo: the release of MXNet whose interface this package follows."""

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

__all__ = ["__version__"]

__version__ = "1.9.1"
"""What `mxnet.__version__` says under `hybrid_lab.compat`; `hybrid_lab.__version__` is this package's own."""

_suggest_names(__name__)
