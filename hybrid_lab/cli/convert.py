"""`hybrid-lab convert`: between .hlab archives, MXNet's exported models, ONNX files, .params and .safetensors."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from . import convert_model
from .command import CommandError, Commands, block_in

if TYPE_CHECKING:
    import numpy as np

    from hybrid_lab.gluon import HybridBlock

ENDINGS = ("-symbol.json", ".hlab", ".onnx", ".params", ".safetensors", ".py")

_BY_WAY_OF_ONNX = "write NAME.onnx, which the converters of that format read"
_BY_WAY_OF_SOURCE = "write NAME.py, the source of a PyTorch module; its load() returns the module with its weights"
OTHER_FORMATS = {
    **dict.fromkeys((".pt", ".pth", ".ckpt", ".bin"), _BY_WAY_OF_SOURCE),
    **dict.fromkeys((".pb", ".tflite", ".h5", ".keras"), _BY_WAY_OF_ONNX),
    **dict.fromkeys((".mlmodel", ".mlpackage", ".engine", ".trt", ".plan", ".xml", ".param", ".rknn"), _BY_WAY_OF_ONNX),
}
"""Endings of formats that this command does not write, and what leads to them."""


def add_commands(commands: Commands) -> None:
    """Register `convert`."""
    convert = commands.add_parser(
        "convert",
        help="convert models and weights: .hlab, MXNet's -symbol.json with .params, .onnx, .safetensors, source",
        description="The endings of SOURCE and TARGET decide. A model: NAME-symbol.json, with its .params beside it, "
        "-> .onnx, .hlab, or .py, the source of a PyTorch module or a Gluon Block (--style); .hlab -> "
        "NAME-symbol.json, .onnx, .py; .onnx -> .hlab. Weights only: all of them -> .params, .safetensors. Labels and "
        "losses of a -symbol.json are left out, and the .onnx or .py is run beside this package on random inputs. No "
        "code of the source is run.",
        epilog="Example: hybrid-lab convert model-symbol.json model.onnx --shape data=1,3,224,224",
        allow_abbrev=False,
    )
    convert.add_argument("source", type=Path, metavar="SOURCE", help="the file to read")
    convert.add_argument("target", type=Path, metavar="TARGET", help="the file to write")
    convert_model.add_arguments(convert)
    convert.add_argument("--block", default="", help="path of the block whose graph to export, such as features.0")
    convert.add_argument("--epoch", type=int, help="number in the name of the .params file; default: the last, or 0")
    convert.add_argument("--opset", type=int, help="of the .onnx file, from 13 on; default: the newest that runs")
    convert.add_argument("--flat", action="store_true", help="without functions for the blocks in the .onnx file")
    convert.add_argument(
        "--style",
        choices=list(convert_model.STYLES),
        help="of a .py: a PyTorch module, which is the default, or a HybridBlock of gluon.nn",
    )
    convert.add_argument("--force", action="store_true", help="overwrite the target")
    convert.set_defaults(run=run_convert)


def ending_of_source(path: Path) -> str:
    """The entry of ENDINGS for a file to read; a graph of MXNet's may have any name that ends with .json. Raises
    CommandError for other endings.
    """
    if path.name.endswith(".json"):
        return "-symbol.json"
    if path.name.endswith(ENDINGS):
        return next(known for known in ENDINGS if path.name.endswith(known))
    symbol_file = path.with_name(f"{path.name}-symbol.json")
    if symbol_file.is_file():
        raise CommandError(f"{path}: this is the prefix of a model's files; give the file {symbol_file}")
    raise CommandError(_unknown_ending(path))


def ending_of_target(path: Path) -> str:
    """The entry of ENDINGS for a file to write. Raises CommandError for other endings."""
    for known in ENDINGS:
        if path.name.endswith(known):
            return known
    hint = OTHER_FORMATS.get(path.suffix.lower())
    raise CommandError(f"{path}: this command does not write {path.suffix}; {hint}" if hint else _unknown_ending(path))


def _unknown_ending(path: Path) -> str:
    return f"{path}: this command does not know the ending of this name; the known endings are {', '.join(ENDINGS)}"


def _no_conversion(arguments: Namespace, source: str, target: str) -> str:
    """Why there is no conversion between two endings, and what to do."""
    if source == ".py":
        return "a .py file is a program: import it, call its load(), and export the module that load() returns"
    if source in (".params", ".safetensors"):
        params = arguments.source if source == ".params" else "NAME.params"
        return (
            f"{arguments.source} has weights alone, without a network, so it cannot become {target}; give the network "
            f"as the source: hybrid-lab convert NAME-symbol.json {arguments.target} --params {params}"
        )
    step = f"there is no conversion from {source} to {target}"
    by_way = {(source, ".hlab"), (".hlab", target)} <= CONVERSIONS.keys()
    return f"{step}; convert to .hlab first, and the .hlab file to {target}" if by_way else step


def _check_options(arguments: Namespace, source: str, target: str) -> None:
    """Raises CommandError if an option was given that the conversion between these endings does not read."""
    for name, option in OPTIONS.items():
        value = getattr(arguments, name)
        given = value is not False and value not in (None, "", [])
        if given and (source, target) not in option.conversions:
            raise CommandError(
                f"--{name}: a conversion from {source} to {target} does not take it; it is {option.purpose}. "
                f"{option.next_step or f'Leave --{name} out'}"
            )
    if arguments.params and arguments.epoch is not None:
        raise CommandError(
            f"--epoch {arguments.epoch}: --params names the .params file already. Leave one of the two options out"
        )


def run_convert(arguments: Namespace) -> int:
    """Find the conversion of the two endings, and do it."""
    kinds = ending_of_source(arguments.source), ending_of_target(arguments.target)
    conversion = CONVERSIONS.get(kinds)
    if conversion is None:
        raise CommandError(_no_conversion(arguments, *kinds))
    if arguments.epoch is not None and arguments.epoch < 0:
        raise CommandError(f"--epoch {arguments.epoch}: an epoch is 0 or more")
    _check_options(arguments, *kinds)
    arguments.style = arguments.style or "torch"
    if not arguments.source.is_file():
        raise CommandError(f"{arguments.source}: no such file")
    written = [arguments.target]
    if kinds[1] == "-symbol.json":
        prefix = str(arguments.target).removesuffix("-symbol.json")
        written.append(Path(f"{prefix}-{arguments.epoch or 0:04d}.params"))
    if kinds[1] == ".py":
        written.append(arguments.target.with_suffix(".safetensors"))
    taken = [path for path in written if path.exists()]
    if taken and not arguments.force:
        raise CommandError(f"{', '.join(map(str, taken))}: exists already; --force overwrites it")
    for line in conversion(arguments):
        print(line)
    return 0


def _weights(arguments: Namespace) -> list[str]:
    """Arrays by name, from whatever holds them."""
    from hybrid_lab.formats.mxnet import load_params, write_params
    from hybrid_lab.formats.safetensors import read_safetensors, write_safetensors

    readers: dict[str, Callable[[Path], Mapping[str, np.ndarray]]] = {
        ".params": load_params,
        ".safetensors": read_safetensors,
        ".hlab": _archive_weights,
        ".onnx": _onnx_weights,
        "-symbol.json": lambda path: load_params(arguments.params or convert_model.of_epoch(path, arguments.epoch)),
    }
    arrays = readers[ending_of_source(arguments.source)](arguments.source)
    if ending_of_target(arguments.target) == ".params":
        write_params(arguments.target, dict(arrays), np_shape=None)
    else:
        write_safetensors(arguments.target, arrays)
    return [f"{arguments.target}: {len(arrays)} arrays"]


def _archive_weights(path: Path) -> Mapping[str, np.ndarray]:
    from hybrid_lab.formats.archive import layout
    from hybrid_lab.formats.archive.container import Container

    archive = Container.open(path)
    return archive.read_tensors(layout.WEIGHTS) if layout.WEIGHTS in archive else {}


def _onnx_weights(path: Path) -> Mapping[str, np.ndarray]:
    from hybrid_lab.onnx.reading.block import imports

    parameters = imports(path).collect_params()
    return {parameter.name: parameter.data().asnumpy() for parameter in parameters.values()}


def _hybrid_block(arguments: Namespace) -> HybridBlock:
    """The HybridBlock of an archive that --block names. Raises CommandError for another Block."""
    from hybrid_lab.formats.archive import load
    from hybrid_lab.gluon import HybridBlock

    block = block_in(arguments.source, load(arguments.source), arguments.block)
    if not isinstance(block, HybridBlock):
        raise CommandError(
            f"{arguments.source}: {arguments.block or 'the top-level block'} is not hybrid, so it has no graph; "
            "name a HybridBlock below it with --block (hybrid-lab inspect shows them)"
        )
    return block


def _archive_to_mxnet(arguments: Namespace) -> list[str]:
    """One block's graph as MXNet's two files."""
    block = _hybrid_block(arguments)
    prefix = str(arguments.target).removesuffix("-symbol.json")
    return [f"{file} written" for file in block.export(prefix, arguments.epoch or 0)]


def _archive_to_onnx(arguments: Namespace) -> list[str]:
    """The network of the model, or of one block, as an ONNX file; or one file for each HybridBlock in it."""
    from hybrid_lab.formats.archive import load
    from hybrid_lab.onnx.writing.exporting import export

    if arguments.shape:
        hybrid = _hybrid_block(arguments)
        inputs = convert_model.asked_inputs(arguments, hybrid)
        return str(export(hybrid, arguments.target, inputs, opset=arguments.opset, flat=arguments.flat)).splitlines()
    block = block_in(arguments.source, load(arguments.source), arguments.block)
    return str(export(block, arguments.target, opset=arguments.opset, flat=arguments.flat)).splitlines()


def _archive_to_source(arguments: Namespace) -> list[str]:
    """One block's network as the source of a PyTorch module or a Gluon Block, with its weights."""
    from hybrid_lab.torch.source.write import write_source

    block = _hybrid_block(arguments)
    title, style = convert_model.title_of(arguments), arguments.style
    inputs = convert_model.asked_inputs(arguments, block)
    return [f"{file} written" for file in write_source(block, arguments.target, inputs, title=title, style=style)]


def _onnx_to_archive(arguments: Namespace) -> list[str]:
    """The network of an ONNX file as an archive, which opens without the package onnx."""
    from hybrid_lab.onnx.reading.block import imports

    block = imports(arguments.source)
    block.save(arguments.target)
    return [f"{arguments.target}: {len(block.collect_params())} parameters of {arguments.source}"]


CONVERSIONS: dict[tuple[str, str], Callable[[Namespace], list[str]]] = {
    (".hlab", "-symbol.json"): _archive_to_mxnet,
    (".hlab", ".onnx"): _archive_to_onnx,
    (".hlab", ".py"): _archive_to_source,
    ("-symbol.json", ".hlab"): convert_model.symbol_to_archive,
    ("-symbol.json", ".onnx"): convert_model.symbol_to_onnx,
    ("-symbol.json", ".py"): convert_model.symbol_to_source,
    (".onnx", ".hlab"): _onnx_to_archive,
    **{
        (source, target): _weights
        for source in (".hlab", ".onnx", ".params", ".safetensors", "-symbol.json")
        for target in (".params", ".safetensors")
    },
}


class _Option(NamedTuple):
    """An option of `convert`. conversions : those that read it; next_step : what to do in place of leaving it out."""

    conversions: set[tuple[str, str]]
    purpose: str
    next_step: str = ""


_NETWORKS_OF_SYMBOLS = {("-symbol.json", target) for target in (".onnx", ".py", ".hlab")}
_FROM_SYMBOLS = {kinds for kinds in CONVERSIONS if kinds[0] == "-symbol.json"}
_TO_ONNX = {("-symbol.json", ".onnx"), (".hlab", ".onnx")}
_TO_SOURCE = {("-symbol.json", ".py"), (".hlab", ".py")}

OPTIONS = {
    "params": _Option(_FROM_SYMBOLS, "for a -symbol.json, whose parameters are in a file of their own"),
    "inputs": _Option(_NETWORKS_OF_SYMBOLS, "for the network of a -symbol.json"),
    "shape": _Option(
        _NETWORKS_OF_SYMBOLS | _TO_ONNX | _TO_SOURCE,
        "for a network from a -symbol.json, or from a .hlab to be exported",
    ),
    "dtype": _Option(
        _NETWORKS_OF_SYMBOLS,
        "for the network of a -symbol.json",
        "Leave --dtype out, or cast the model in Python, net.cast(dtype), and save it before you convert it",
    ),
    "block": _Option(
        {(".hlab", target) for target in ("-symbol.json", ".onnx", ".py")},
        "for the graph of one block in a .hlab",
        "Leave --block out; the whole model is converted",
    ),
    "epoch": _Option(
        {*_FROM_SYMBOLS, (".hlab", "-symbol.json")}, "the number in the name of the .params file of a -symbol.json"
    ),
    "opset": _Option(_TO_ONNX, "for an .onnx file to be written"),
    "flat": _Option(_TO_ONNX, "for an .onnx file to be written"),
    "style": _Option(_TO_SOURCE, "for a .py to be written"),
}
"""Each option by its name, without those that all conversions take."""
