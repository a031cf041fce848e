"""`hybrid-lab convert model-symbol.json ...`: MXNet's exported models to ONNX, archives, PyTorch source and weights."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .check_converted import compared, computes_in_16_bits, in_gluon, in_onnxruntime, in_torch, outputs_of
from .command import CommandError

if TYPE_CHECKING:
    from hybrid_lab.gluon import HybridBlock, SymbolBlock
    from hybrid_lab.symbol import Symbol


def add_arguments(convert: Any) -> None:  # noqa: ANN401 - an ArgumentParser or a group of one
    """The options that describe the inputs of a model."""
    convert.add_argument(
        "--params",
        type=Path,
        help="the .params of a -symbol.json; default: in its folder the last epoch, PREFIX.params or the only .params",
    )
    convert.add_argument("--inputs", help="names of the model's inputs, a,b; default: the variables without parameters")
    convert.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=SIZES",
        help="shape of an input, data=1,3,224,224; once for each input. A name in the place of a "
        "size, data=batch,3,224,224, leaves it open in the .onnx file",
    )
    convert.add_argument(
        "--dtype",
        help="of the inputs of a -symbol.json; a floating one casts the parameters, too. Default: the dtype that the "
        "file declares for an input, else float32, or the parameters' dtype if the network takes no float32",
    )


def symbol_to_onnx(arguments: Namespace) -> list[str]:
    """One ONNX file, compared with this package's own run in ONNX Runtime; open sizes with two values of each."""
    from hybrid_lab.onnx.writing.exporting import export

    block, shapes, lines = _model(arguments, needs_shapes=True)
    inputs = _inputs(block, shapes, arguments.dtype)
    outputs_of(block, inputs)
    given = [shapes[name] if any(isinstance(size, str) for size in shapes[name]) else array
             for name, array in zip(shapes, inputs, strict=True)]  # fmt: skip
    report = export(block, arguments.target, given, opset=arguments.opset, flat=arguments.flat)
    lines += str(report).splitlines()
    tried = [inputs]
    written = dict(zip(shapes, report.exported[0].inputs.values(), strict=False))
    still_open = {size for shape in written.values() for size in shape if isinstance(size, str)}
    if any(size in still_open for shape in shapes.values() for size in shape):
        others = {
            name: tuple(size if size in still_open else array.shape[axis] for axis, size in enumerate(shape))
            for (name, shape), array in zip(shapes.items(), inputs, strict=True)
        }
        tried.append(_inputs(block, others, arguments.dtype, again=True))
    runs = [(each, outputs_of(block, each)) for each in tried]
    narrow = computes_in_16_bits(block)
    return [*lines, compared(arguments.target, "ONNX Runtime", in_onnxruntime, report.path, runs, narrow)]


STYLES = {"torch": "a PyTorch module", "gluon": "a Gluon Block"}


def symbol_to_source(arguments: Namespace) -> list[str]:
    """A PyTorch module or a Gluon Block as source, and its weights; compared if torch is installed, or in Gluon."""
    from hybrid_lab.torch.source.write import write_source

    block, shapes, lines = _model(arguments, needs_shapes=True)
    inputs = _inputs(block, shapes, arguments.dtype)
    files = write_source(block, arguments.target, inputs, title=title_of(arguments), style=arguments.style)
    lines += [f"{file} written" for file in files]
    where, run = ("torch", in_torch) if arguments.style == "torch" else ("a fresh Block", in_gluon)
    runs = [(inputs, outputs_of(block, inputs))]
    return [*lines, compared(arguments.target, where, run, files[0], runs, computes_in_16_bits(block))]


def title_of(arguments: Namespace) -> str:
    """The first line of a file of source."""
    return f"{arguments.source.name} as {STYLES[arguments.style]}, written by hybrid-lab."


def symbol_to_archive(arguments: Namespace) -> list[str]:
    """An archive with one graph. If the shapes are known it is called once, so that it can be exported further."""
    from hybrid_lab.formats.archive import save_cached_graphs

    block, shapes, lines = _model(arguments, needs_shapes=False)
    if shapes:
        outputs_of(block, _inputs(block, shapes, arguments.dtype))
    save_cached_graphs(block, arguments.target, overwrite="fewer graphs")  # --force was checked
    return [f"{arguments.target}: {line}" for line in lines]


# -- the model and its inputs ----------------------------------------------------------------------------------------


def _model(arguments: Namespace, needs_shapes: bool) -> tuple[SymbolBlock, dict[str, tuple[Any, ...]], list[str]]:
    """The Block of MXNet's two files, the shapes of its inputs, {} if they are not known, and a line about both."""
    from hybrid_lab.formats.mxnet import load_params
    from hybrid_lab.gluon import SymbolBlock
    from hybrid_lab.gluon.symbol_block import without_unknown_labels
    from hybrid_lab.symbol import load
    from hybrid_lab.symbol.predicting import labels_of

    symbol_file = str(arguments.source)
    params = arguments.params or of_epoch(symbol_file, arguments.epoch)
    known = load_params(params)
    asked = _shapes(arguments.shape)
    outputs = load(symbol_file)
    labels = [name for name in asked if name in labels_of(outputs)]
    if labels:
        raise CommandError(
            f"--shape {labels[0]}=...: {labels[0]} is a label, which prediction does not read; leave it out"
        )
    predicting = without_unknown_labels(outputs, {*known, *asked})[0]
    if arguments.inputs:
        inputs = [name.strip() for name in arguments.inputs.split(",")]
    else:
        inputs = [name for name in predicting.list_inputs() if name not in known]
    unread = _unread(predicting, known, {*asked, *(inputs if arguments.inputs else [])}, symbol_file, params)
    unknown = [name for name in asked if name not in inputs]
    if unknown:
        raise CommandError(f"--shape {unknown[0]}=...: the inputs of {symbol_file} are {', '.join(inputs)}")
    block = SymbolBlock.imports(symbol_file, inputs, str(params), ignore_extra=True)
    shapes = {name: asked.get(name) or _guessed(block, name, known) for name in inputs}
    missing = [name for name, shape in shapes.items() if shape is None]
    foreign = [name for name in unread if name not in outputs.list_inputs()]  # the others are for a loss alone
    if missing and (needs_shapes or asked or arguments.dtype):
        raise CommandError(
            ("" if needs_shapes or asked else f"--dtype {arguments.dtype} needs the shapes of the inputs: ")
            + f"the shape of {' and '.join(missing)} does not follow from the parameters; "
            + "give it: "
            + " ".join(f"--shape {name}={_example(block, name, known)}" for name in missing)
            + (
                f". If {missing[-1]} is a parameter, {params} is of another model: it has {_some(foreign)}, which the "
                "network does not read"
                if foreign
                else ""
            )
        )
    lines = [f"inputs {', '.join(inputs)}; parameters of {params}"]
    if unread:
        lines.append(f"left out, because the network does not read them: {_some(unread)}")
    return block, {} if missing else {name: shape for name, shape in shapes.items() if shape is not None}, lines


def _unread(
    outputs: Symbol, known: Mapping[str, Any], asked: Container[str], symbol_file: str, params: Path
) -> list[str]:
    """The names of the arrays in a .params file that the network does not read.

    Raises CommandError if a parameter of the network has no array.
    """
    from hybrid_lab.gluon.symbol_block import data_inputs

    variables = outputs.list_inputs()
    data = data_inputs(outputs)
    parameters = [name for name in variables if name not in data]
    missing = [name for name in parameters if name not in known and name not in asked]
    unread = [name for name in known if name not in variables]
    if missing:
        has = f"{params} has {_some(unread)} in their place" if unread else f"{params} has {len(known)} arrays"
        raise CommandError(
            f"{params} does not belong to {symbol_file}, whose parameters {_some(missing)} it lacks; {has}. "
            "Name the right file with --params"
        )
    return unread


def _some(names: Sequence[str]) -> str:
    """A list of names, of which the first four are written."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _shapes(texts: Sequence[str]) -> dict[str, tuple[int | str, ...]]:
    """--shape data=1,3,224,224 as {"data": (1, 3, 224, 224)}. Raises CommandError."""
    found: dict[str, tuple[int | str, ...]] = {}
    for text in texts:
        name, equals, sizes = text.rpartition("=")
        parts = [part.strip() for part in sizes.strip("()[] ").split(",") if part.strip()]
        if not equals or not name or not parts or not all(part.isdecimal() or part.isidentifier() for part in parts):
            raise CommandError(
                f"--shape {text}: NAME=SIZES is needed, such as --shape data=1,3,224,224; a name in the place of a "
                "size leaves it open: --shape data=batch,3,224,224"
            )
        small = [part for part in parts if part.isdecimal() and not 0 < int(part) < 2**31]
        if small:
            raise CommandError(f"--shape {text}: {small[0]} is no size; each is at least 1")
        found[name] = tuple(int(part) if part.isdecimal() else part for part in parts)
    return found


def _readers(block: HybridBlock, name: str) -> list[Any]:
    """The nodes that read an input, behind nodes that keep its shape."""
    from hybrid_lab.gluon import access

    neutral = access.graphs(block).first()
    assert neutral is not None
    pending = [value for value in neutral.graph.inputs if value.node.name == name]
    found = []
    for value in pending:
        for node in neutral.graph.users().get(value, []):
            if node.inputs[0] is not value:
                continue  # as a weight or bias, of which the file has no values
            if node.op.name in ("Cast", "amp_cast", "identity", "BlockGrad", "Activation", "BatchNorm"):
                pending.append(node.outputs[0])
            found.append(node)
    return found


def _guessed(block: SymbolBlock, name: str, known: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The shape of an input if one parameter determines it: the columns of a fully connected layer's weight."""
    for node in _readers(block, name):
        if node.op.name == "FullyConnected" and node.op.flatten:
            weight = known.get(node.inputs[1].node.name)
            if weight is not None:
                return (1, weight.shape[1])
    return None


def _example(block: HybridBlock, name: str, known: Mapping[str, Any]) -> str:
    """What a shape may look like, from the operator that reads the input."""
    for node in _readers(block, name):
        weight = (
            known.get(node.inputs[1].node.name) if len(node.inputs) > 1 and hasattr(node.inputs[1], "node") else None
        )
        if node.op.name == "Convolution" and weight is not None:
            sizes = ("DEPTH", "HEIGHT", "WIDTH")[-len(node.op.kernel) :]
            return f"1,{weight.shape[1] * node.op.num_group},{','.join(sizes)}"
        if node.op.name == "FullyConnected" and weight is not None:
            return f"1,{weight.shape[1]}" if node.op.flatten else f"1,LENGTH,{weight.shape[1]}"
        if node.op.name == "Embedding":
            return "1,LENGTH"
    return "1,..."


_TRIED = (32, 64, 224, 16, 8, 5, 2, 1)
"""What an open size is tried as; the first axis of an input is a batch of 2."""


def _inputs(
    block: HybridBlock, shapes: Mapping[str, Sequence[int | str]], dtype: str | None, again: bool = False
) -> list[Any]:
    """Random inputs of these shapes, whole numbers if the network reads indices. An open size gets the first number
    that the network takes; again : the second one, and a batch of 3.

    dtype : of the inputs, and of the Block's parameters if it is a floating one; None: float32, or the dtype of the
        parameters if the network does not take float32
    """
    from hybrid_lab.diagnostics import DTypeError, HybridLabError
    from hybrid_lab.ops.framework.dtypes import dtype_of, is_floating

    try:
        kinds = [dtype_of(dtype)] if dtype else _usual_types(block)
    except (DTypeError, TypeError) as error:
        raise CommandError(f"--dtype {dtype}: {error}") from None
    if dtype and is_floating(kinds[0]):
        block.cast(kinds[0])
    opened = {size for shape in shapes.values() for size in shape if isinstance(size, str)}
    batches = {shape[0] for shape in shapes.values() if shape and isinstance(shape[0], str)}
    passing: list[list[Any]] = []
    failed: HybridLabError | None = None
    wanted = 2 if again and opened - batches else 1
    for kind in kinds:
        for number in _TRIED if opened - batches else _TRIED[:1]:
            values = {name: 2 + again if name in batches else number for name in opened}
            sizes = [tuple(values[x] if isinstance(x, str) else x for x in shape) for shape in shapes.values()]
            try:
                passing.append(_random_inputs(block, sizes, kind, declared=dtype is None))
            except HybridLabError as error:
                failed = failed or error
            if len(passing) == wanted:
                break
        if passing:
            return passing[-1]
    assert failed is not None
    raise CommandError(f"{failed}. {_advice(block, shapes, dtype, failed)}") from failed


def _usual_types(block: HybridBlock) -> list[Any]:
    """The dtypes that the inputs of a network may have: float32, and the other floating dtypes of its parameters."""
    import numpy as np

    from hybrid_lab.ops.framework.dtypes import dtype_of, is_floating

    own = [dtype_of(parameter.dtype) for parameter in block.collect_params().values()]
    return list(dict.fromkeys([np.dtype("float32"), *filter(is_floating, own)]))


def _advice(block: HybridBlock, shapes: Mapping[str, Sequence[int | str]], dtype: str | None, failed: Exception) -> str:
    """Advice for the user if the network refuses the inputs."""
    from hybrid_lab.diagnostics import DTypeError

    if dtype and isinstance(failed, DTypeError):
        return f"Leave --dtype {dtype} out, or give --dtype float32"
    known = {parameter.name: parameter.data() for parameter in block.collect_params().values()}
    asked = " ".join(f"--shape {name}={','.join(map(str, shape))}" for name, shape in shapes.items())
    examples = " ".join(f"--shape {name}={_example(block, name, known)}" for name in shapes)
    return (
        f"The network does not take {asked}; its inputs look like {examples}. If the shapes are right, the parameters "
        "are of another model"
    )


def _random_inputs(
    block: HybridBlock,
    sizes: Sequence[tuple[int, ...]],
    kind: Any,  # noqa: ANN401
    declared: bool,
) -> list[Any]:
    """Inputs of these sizes. Raises the error of the operator that does not take them.

    declared : an input whose variable has a dtype in the file, `Variable("image", dtype="uint8")`, gets this one
    """
    from hybrid_lab import ndarray as nd
    from hybrid_lab.gluon import access
    from hybrid_lab.graph.passes.infer import infer
    from hybrid_lab.insight.random_inputs import random_inputs
    from hybrid_lab.ops.framework.dtypes import dtype_of

    neutral = access.graphs(block).first()
    assert neutral is not None
    arrays = [parameter.data() for parameter in neutral.parameters]
    own = [value.dtype if declared else None for value in neutral.graph.inputs[: len(sizes)]]
    kinds = [kind if dtype is None or dtype_of(dtype) == dtype_of("float32") else dtype_of(dtype) for dtype in own]
    graph = infer(
        neutral.graph,
        dict(zip(neutral.graph.inputs, [*sizes, *(array.shape for array in arrays)], strict=True)),
        dict(zip(neutral.graph.inputs, [*kinds, *(dtype_of(array.dtype) for array in arrays)], strict=True)),
    )
    made = random_inputs(graph, list(zip(sizes, kinds, strict=True)))
    return [nd.array(array, dtype=array.dtype) for array in made]


def asked_inputs(arguments: Namespace, block: HybridBlock) -> list[Any] | None:
    """The shapes of --shape for the inputs of a Block from an archive, in order; None if none was given."""
    from hybrid_lab.diagnostics import MissingGraphError
    from hybrid_lab.gluon import access
    from hybrid_lab.onnx.writing.asked import asked_of

    asked = _shapes(arguments.shape)
    if not asked:
        return None
    neutral = access.graphs(block).first()
    names = [] if neutral is None else [value.node.name for value in neutral.graph.inputs[: neutral.num_data]]
    unknown = [name for name in asked if name not in names]
    if unknown:
        there = ", ".join(names) or "not known, as it has no graph"
        raise CommandError(f"--shape {unknown[0]}=...: the inputs of {arguments.source} are {there}")
    missing = [name for name in names if name not in asked]
    if not missing:
        return [asked[name] for name in names]
    try:
        called = asked_of(block, None).inputs
    except MissingGraphError:
        raise CommandError(
            "give each input its shape: " + " ".join(f"--shape {name}=..." for name in missing)
        ) from None
    return [asked.get(name, tuple(item.sizes)) for name, item in zip(names, called, strict=True)]


def of_epoch(symbol_file: str | Path, epoch: int | None) -> Path:
    """The .params beside the file of a graph: of this epoch, or of the last one; without epochs PREFIX.params, or
    the only .params in the folder. All graphs of a BucketingModule, PREFIX-KEY-symbol.json, have the same files,
    PREFIX-0010.params. Raises CommandError, which lists the .params files that are there.
    """
    folder = Path(symbol_file).parent
    prefix = re.sub(r"[-_.]?symbol\.json$|\.json$", "", Path(symbol_file).name)
    files = sorted(path for path in folder.iterdir() if path.suffix == ".params")
    of_bucket = prefix.rpartition("-")[0]
    epochs = _epochs(files, prefix) or (_epochs(files, of_bucket) if of_bucket else {})
    if epoch is not None and epoch not in epochs:
        there = f"; there are the epochs {', '.join(map(str, sorted(epochs)))}" if epochs else ""
        raise CommandError(f"{symbol_file}: there is no {prefix}-{epoch:04d}.params beside it{there}")
    if epochs:
        return epochs[max(epochs) if epoch is None else epoch]
    if plain := [path for path in files if path.stem == prefix or len(files) == 1]:
        return plain[0]
    names = ", ".join(path.name for path in files[:5]) + (" ..." if len(files) > 5 else "")
    there = f"; its folder has {names}" if files else ""
    raise CommandError(
        f"{symbol_file}: there is no {prefix}-0000.params beside it{there}; name the file with --params FILE"
    )


def _epochs(files: Sequence[Path], prefix: str) -> dict[int, Path]:
    """PREFIX-0010.params by its number."""
    pattern = re.compile(re.escape(prefix) + r"-(\d+)\.params")
    return {int(match[1]): path for path in files if (match := pattern.fullmatch(path.name))}
