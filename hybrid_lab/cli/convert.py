"""`hybrid-lab convert`: between .hlab archives, MXNet's exported models, ONNX files, .params and .safetensors."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .command import CommandError, Commands, block_in

if TYPE_CHECKING:
    import numpy as np

ENDINGS = ("-symbol.json", ".hlab", ".onnx", ".params", ".safetensors")


def add_commands(commands: Commands) -> None:
    """Register `convert`."""
    convert = commands.add_parser(
        "convert",
        help="convert models and weights: .hlab, MXNet's -symbol.json with .params, .onnx, .safetensors",
        description="The endings of SOURCE and TARGET decide. A model: .hlab <-> NAME-symbol.json with its .params "
        "beside it; .hlab <-> .onnx. Weights only: .hlab, .onnx, .params, .safetensors -> .params, .safetensors. No "
        "code is run.",
        allow_abbrev=False,
    )
    convert.add_argument("source", type=Path)
    convert.add_argument("target", type=Path)
    convert.add_argument("--params", type=Path, help="the .params of a -symbol.json; default: the last epoch beside it")
    convert.add_argument("--inputs", help="names of the model's inputs, a,b; default: the variables without parameters")
    convert.add_argument("--block", default="", help="path of the block whose graph to export, such as features.0")
    convert.add_argument("--epoch", type=int, default=0, help="number in the name of the .params file")
    convert.add_argument("--opset", type=int, help="of the .onnx file, from 13 on; default: the newest that runs")
    convert.add_argument("--flat", action="store_true", help="without functions for the blocks in the .onnx file")
    convert.add_argument("--force", action="store_true", help="overwrite the target")
    convert.set_defaults(run=run_convert)


def ending(path: Path) -> str:
    """Which of ENDINGS a file name has. Raises CommandError for others."""
    for known in ENDINGS:
        if path.name.endswith(known):
            return known
    raise CommandError(
        f"{path}: this command does not know the ending of this name; the known endings are {', '.join(ENDINGS)}"
    )


def run_convert(arguments: Namespace) -> int:
    """Find the conversion of the two endings, and do it."""
    kinds = ending(arguments.source), ending(arguments.target)
    conversion = CONVERSIONS.get(kinds)
    if conversion is None:
        raise CommandError(f"there is no conversion from {kinds[0]} to {kinds[1]}")
    if not arguments.source.is_file():
        raise CommandError(f"{arguments.source}: no such file")
    written = [arguments.target]
    if kinds[1] == "-symbol.json":
        prefix = str(arguments.target).removesuffix("-symbol.json")
        written.append(Path(f"{prefix}-{arguments.epoch:04d}.params"))
    taken = [path for path in written if path.exists()]
    if taken and not arguments.force:
        raise CommandError(f"{', '.join(map(str, taken))}: exists already; --force overwrites it")
    for line in conversion(arguments):
        print(line)
    return 0


def _weights(arguments: Namespace) -> list[str]:
    """Arrays by name, from whatever holds them."""
    from ..formats.mxnet import load_params, write_params
    from ..formats.safetensors import read_safetensors, write_safetensors

    readers: dict[str, Callable[[Path], Mapping[str, np.ndarray]]] = {
        ".params": load_params,
        ".safetensors": read_safetensors,
        ".hlab": _archive_weights,
        ".onnx": _onnx_weights,
    }
    arrays = readers[ending(arguments.source)](arguments.source)
    if ending(arguments.target) == ".params":
        write_params(arguments.target, dict(arrays), np_shape=None)
    else:
        write_safetensors(arguments.target, arrays)
    return [f"{arguments.target}: {len(arrays)} arrays"]


def _archive_weights(path: Path) -> Mapping[str, np.ndarray]:
    from ..formats.archive import layout
    from ..formats.archive.container import Container

    archive = Container.open(path)
    return archive.read_tensors(layout.WEIGHTS) if layout.WEIGHTS in archive else {}


def _onnx_weights(path: Path) -> Mapping[str, np.ndarray]:
    from ..onnx.block import imports

    parameters = imports(path).collect_params()
    return {parameter.name: parameter.data().asnumpy() for parameter in parameters.values()}


def _archive_to_mxnet(arguments: Namespace) -> list[str]:
    """One block's graph as MXNet's two files."""
    from ..formats.archive import load
    from ..gluon import HybridBlock

    block = block_in(arguments.source, load(arguments.source), arguments.block)
    if not isinstance(block, HybridBlock):
        raise CommandError(
            f"{arguments.source}: {arguments.block or 'the top-level block'} is not hybrid, so it has no graph; "
            "name a HybridBlock below it with --block (hybrid-lab inspect shows them)"
        )
    prefix = str(arguments.target).removesuffix("-symbol.json")
    return [f"{file} written" for file in block.export(prefix, arguments.epoch)]


def _archive_to_onnx(arguments: Namespace) -> list[str]:
    """The network of the model, or of one block, as an ONNX file; or one file for each HybridBlock in it."""
    from ..formats.archive import load
    from ..onnx.exporting import export

    block = block_in(arguments.source, load(arguments.source), arguments.block)
    return str(export(block, arguments.target, opset=arguments.opset, flat=arguments.flat)).splitlines()


def _onnx_to_archive(arguments: Namespace) -> list[str]:
    """The network of an ONNX file as an archive, which opens without the package onnx."""
    from ..onnx.block import imports

    block = imports(arguments.source)
    block.save(arguments.target)
    return [f"{arguments.target}: {len(block.collect_params())} parameters of {arguments.source}"]


def _mxnet_to_archive(arguments: Namespace) -> list[str]:
    """An exported model of MXNet as an archive with one graph."""
    from ..formats.archive import save_cached_graphs
    from ..formats.mxnet import load_params
    from ..gluon import SymbolBlock
    from ..symbol import load

    symbol_file = str(arguments.source)
    params = arguments.params or _last_epoch(symbol_file)
    if arguments.inputs:
        inputs = arguments.inputs.split(",")
    else:
        known = load_params(params)
        inputs = [name for name in load(symbol_file).list_inputs() if name not in known]
    block = SymbolBlock.imports(symbol_file, inputs, str(params))
    save_cached_graphs(block, arguments.target, overwrite="fewer graphs")  # --force was checked
    return [f"{arguments.target}: inputs {', '.join(inputs)}; parameters of {params}"]


def _last_epoch(symbol_file: str) -> Path:
    prefix = Path(symbol_file.removesuffix("-symbol.json"))
    pattern = re.compile(re.escape(prefix.name) + r"-(\d{4,})\.params")
    epochs = {int(m[1]): path for path in prefix.parent.iterdir() if (m := pattern.fullmatch(path.name))}
    if not epochs:
        raise CommandError(
            f"{symbol_file}: there is no {prefix.name}-0000.params beside it; name the file with --params"
        )
    return epochs[max(epochs)]


CONVERSIONS: dict[tuple[str, str], Callable[[Namespace], list[str]]] = {
    (".hlab", "-symbol.json"): _archive_to_mxnet,
    (".hlab", ".onnx"): _archive_to_onnx,
    ("-symbol.json", ".hlab"): _mxnet_to_archive,
    (".onnx", ".hlab"): _onnx_to_archive,
    **{
        (source, target): _weights
        for source in (".hlab", ".onnx", ".params", ".safetensors")
        for target in (".params", ".safetensors")
    },
}
