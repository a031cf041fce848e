"""A HybridBlock as a file of Python source, of PyTorch or of Gluon, with its weights beside it."""

from __future__ import annotations

import os
from os import PathLike, fspath

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import check_choice
from hybrid_lab.formats.atomic import atomic_write
from hybrid_lab.formats.safetensors import write_safetensors
from hybrid_lab.gluon import access
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.graph.passes.infer import infer
from hybrid_lab.ndarray.tape import Mode
from hybrid_lab.onnx.writing.asked import asked_of, untouched
from hybrid_lab.symbol import Symbol
from hybrid_lab.symbol.predicting import predicting

from .gluon_writer import GluonWriter
from .writer import ModuleSource, SourceWriter

_WRITERS = {"torch": (SourceWriter, "a PyTorch module"), "gluon": (GluonWriter, "a Gluon Block")}


def source(
    net: HybridBlock,
    inputs: object = None,
    *,
    title: str = "",
    weights: str = "model.safetensors",
    style: str = "torch",
) -> ModuleSource:
    """The network of a HybridBlock, as it predicts, as the source of a PyTorch module or a Block, and its weights.

    inputs : as of `mx.onnx.export`: an array, a shape, or a list of them. Default: as in the last call
    title : first line of the file; weights : name of the file that `load()` reads; style : "torch" or "gluon"

    Raises Unmappable, naming the operator, if one has no source in this style.
    """
    check_choice("style", style, tuple(_WRITERS))
    writer, kind = _WRITERS[style]
    if not isinstance(net, HybridBlock):
        raise HybridLabError(f"source is written for one HybridBlock, not {type(net).__name__}")
    asked = asked_of(net, inputs)
    leaves = [untouched(item.sizes, item.dtype) for item in asked.inputs]
    with Mode(False, False):
        neutral = access.calls(net).twin(traces=True).neutral(asked.spec, leaves)
    access.complete_parameters(net, neutral, leaves)
    arrays = [parameter.data().asnumpy() for parameter in neutral.parameters]
    shapes = [*(item.sizes for item in asked.inputs), *(array.shape for array in arrays)]
    dtypes = [*(item.dtype for item in asked.inputs), *(array.dtype for array in arrays)]
    names = [value.node.name for value in neutral.graph.inputs[: neutral.num_data]]
    whole = Symbol(tuple(neutral.graph.outputs))
    graph = predicting(whole, dict(zip(names, shapes, strict=False))).graph(neutral.graph.inputs)
    begun = {node.name for node in graph.operators if node.op.attributes.get("_open")}
    graph = infer(graph, dict(zip(graph.inputs, shapes, strict=True)), dict(zip(graph.inputs, dtypes, strict=True)))
    own = {
        value: (parameter.name, array)
        for value, parameter, array in zip(graph.inputs[neutral.num_data :], neutral.parameters, arrays, strict=True)
    }
    return writer(graph, names, own, begun).source(title or f"{net.name} as {kind}.", weights)


def write_source(
    net: HybridBlock, path: str | PathLike[str], inputs: object = None, *, title: str = "", style: str = "torch"
) -> tuple[str, str]:
    """Write a HybridBlock as the source of a PyTorch module, and its weights to a .safetensors file beside it.

        mx.torch.write_source(net, "model.py", (1, 3, 224, 224))
        # later, with torch and safetensors alone:
        # import model; net = model.load()

    path : of the .py file; it and the file of the weights are replaced if they exist
    inputs : as of `mx.onnx.export`: an array, a shape, or a list of them. Default: as in the last call
    title : the first line of the file
    style : "torch", or "gluon" for a HybridBlock with the layers of `gluon.nn`: for a net whose code is lost

    Layers are attributes of a tree that follows their names, one line each; `forward` has one line for each call. Needs
    no torch. Returns both paths. Raises Unmappable, naming the operator, if one has no source; then nothing is written.
    Operators that need sizes as numbers, such as anchors, are written for the sizes of `inputs`.
    """
    target = os.path.abspath(fspath(path))
    weights = f"{os.path.splitext(target)[0]}.safetensors"
    made = source(net, inputs, title=title, weights=os.path.basename(weights), style=style)
    write_safetensors(weights, {name: np.asarray(array, order="C") for name, array in made.state.items()})
    with atomic_write(target) as file:
        file.write(made.text.encode())
    return target, weights
