"""Run a file that `hybrid-lab convert` has written beside this package's own run, and compare the outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.formatting import first_line

from .command import CommandError, has_module, install_hint

if TYPE_CHECKING:
    from hybrid_lab.gluon import HybridBlock

CLOSE = 1e-4
"""The largest difference, relative to the largest output, that a conversion may have."""
CLOSE_IN_16_BITS = 0.02
"""The same for a network that computes, or has outputs, in float16 or bfloat16."""


def outputs_of(block: HybridBlock, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of a network as NumPy arrays."""
    made = block(*inputs)
    return [array.asnumpy() for array in (made if isinstance(made, (list, tuple)) else [made])]


def in_onnxruntime(path: str, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of an .onnx file, run by ONNX Runtime on the CPU."""
    from hybrid_lab.engines.libraries import import_library

    session = import_library("onnxruntime").InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    return list(session.run(None, {name: array.asnumpy() for name, array in zip(names, inputs, strict=True)}))


def _written(path: str) -> ModuleType:
    """The file that was written, as a module. Python's own import would take the compiled module of an earlier file of
    the same size that was written in the same second.
    """
    module = ModuleType("_converted")
    module.__file__ = path
    exec(compile(Path(path).read_bytes(), path, "exec"), module.__dict__)
    return module


def in_torch(path: str, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of a PyTorch module in a .py file."""
    from hybrid_lab.engines.libraries import import_library

    torch = import_library("torch")
    model = _written(path).load(str(Path(path).with_suffix(".safetensors")))
    with torch.no_grad():
        made = model(*(torch.tensor(x.asnumpy()) for x in inputs))
    return [tensor.detach().numpy() for tensor in (made if isinstance(made, (list, tuple)) else [made])]


def in_gluon(path: str, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of a Gluon Block in a .py file, hybridized."""
    net = _written(path).load()
    net.hybridize()
    return outputs_of(net, inputs)


def computes_in_16_bits(block: HybridBlock) -> bool:
    """Whether a network has parameters in float16 or bfloat16, or casts to one of them."""
    from hybrid_lab.gluon import access
    from hybrid_lab.ops.elementwise.cast import AMPCast, Cast
    from hybrid_lab.ops.framework.dtypes import dtype_of

    neutral = access.graphs(block).first()
    assert neutral is not None
    casts = [node.op.dtype for node in neutral.graph.operators if isinstance(node.op, (Cast, AMPCast))]
    parameters = [parameter.dtype for parameter in block.collect_params().values()]
    return any(dtype_of(dtype).itemsize == 2 for dtype in (*casts, *parameters))


def compared(
    target: Path,
    name: str,
    run: Callable[[str, Sequence[Any]], list[Any]],
    path: str,
    runs: Sequence[tuple[Sequence[Any], Sequence[Any]]],
    in_16_bits: bool,
) -> str:
    """A line with the largest difference of all runs.

    runs : (inputs, outputs of this package's own run) of each; in_16_bits : whether the network computes in 16 bits.
    Raises CommandError, status 1, as `_difference` does.
    """
    needed = {"ONNX Runtime": ["onnxruntime"], "torch": ["torch", "safetensors"]}.get(name, [])
    missing = [package for package in needed if not has_module(package)]
    if missing:
        extra = {"ONNX Runtime": "onnx", "torch": "torch"}[name]
        return f"not compared: {missing[0]} is not installed; {install_hint(extra)}"
    largest = max(_difference(target, name, run, path, inputs, wanted, in_16_bits) for inputs, wanted in runs)
    return f"compared in {name} with random inputs: the largest difference is {largest:.1e} of the largest output"


def _difference(
    target: Path,
    name: str,
    run: Callable[[str, Sequence[Any]], list[Any]],
    path: str,
    inputs: Sequence[Any],
    wanted: Sequence[Any],
    in_16_bits: bool,
) -> float:
    """The largest difference from the outputs of this package's own run, relative to the largest output.

    Raises CommandError, status 1, if it is larger than CLOSE (CLOSE_IN_16_BITS), or if the outputs have other shapes.
    """
    import numpy as np

    double = any(array.dtype == np.float64 for array in wanted)
    try:
        found = run(path, inputs)
    except Exception as error:  # any error of the other package
        raise CommandError(
            f"{target} was written, but {name} cannot run it: {first_line(error):.300}"
            + ("; --dtype float32 writes the network in float32, which it runs" if double else ""),
            status=1,
        ) from error
    if len(found) != len(wanted):
        raise CommandError(f"{target}: {name} gives {len(found)} outputs, this package {len(wanted)}", status=1)
    largest = 0.0
    for got, want in zip(found, wanted, strict=True):
        if got.shape != want.shape:
            raise CommandError(f"{target}: {name} gives the shape {got.shape}, this package {want.shape}", status=1)
        one, other = got.astype(np.float64), want.astype(np.float64)
        scale = float(np.max(np.abs(other[np.isfinite(other)]), initial=0.0)) or 1.0
        with np.errstate(invalid="ignore"):
            equal = (one == other) | (np.isnan(one) & np.isnan(other))
            difference = np.where(equal, 0.0, np.abs(one - other) / scale)
        largest = float(np.maximum(largest, np.max(difference, initial=0.0)))  # NaN if one of both is NaN
    in_16_bits = in_16_bits or any(array.dtype.itemsize == 2 for array in wanted)
    if not largest <= (CLOSE_IN_16_BITS if in_16_bits else CLOSE):
        raise CommandError(
            f"{target}: {name} differs from this package's own run by up to {largest:.2g} of the largest output; do "
            "not use the file, and please report the model",
            status=1,
        )
    return largest
