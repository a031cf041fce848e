"""MXNet's functions for ONNX files, which take and give Symbols: the functions of `hybrid_lab.onnx.symbols`.

`mx.onnx.export` and `mx.onnx.imports` have Blocks.
"""

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.ndarray import NDArray
from hybrid_lab.symbol import Symbol
from hybrid_lab.system.provided import Provided

__all__ = ["export_model", "get_model_metadata", "import_model", "import_to_gluon"]

export_model: Provided[..., str] = Provided("onnx_export_model")
get_model_metadata: Provided[..., dict[str, list[tuple[str, tuple[int, ...]]]]] = Provided("onnx_get_model_metadata")
import_model: Provided[..., tuple[Symbol, dict[str, NDArray], dict[str, NDArray]]] = Provided("onnx_import_model")
import_to_gluon: Provided[..., HybridBlock] = Provided("onnx_import_to_gluon")

_suggest_names(__name__)
