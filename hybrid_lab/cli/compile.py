"""`hybrid-lab compile`: the kernels of an archive for GPUs that need not be in the machine."""

from __future__ import annotations

import json
import re
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.file_errors import writing
from hybrid_lab.diagnostics.formatting import count

from .archive import printable
from .command import CommandError, Commands, archive_file, block_in

if TYPE_CHECKING:
    from hybrid_lab.gluon import Block, HybridBlock
    from hybrid_lab.insight.compiled import CompiledModel
    from hybrid_lab.ndarray.ndarray import NDArray


def add_commands(commands: Commands) -> None:
    """Register `compile`."""
    parser = commands.add_parser(
        "compile",
        help="kernels of an archive for GPUs that this machine need not have: registers, spills, bytes, an estimate",
        description="Compiles the graphs of a .hlab archive with Triton. GPUs are gfx90a, gfx942, gfx1100, sm80, sm90 "
        "and others of their families. Exit status: 0 all compiled, 1 a kernel did not compile, 2 a bad request.",
        allow_abbrev=False,
    )
    parser.add_argument("archive", metavar="FILE", type=Path, help="a .hlab archive")
    parser.add_argument("--target", action="append", default=[], metavar="GPU", help="gfx942, sm90 ...; repeatable")
    parser.add_argument("--train", action="store_true", help="forward, backward and update instead of a prediction")
    parser.add_argument("--batch", type=int, help="size of the inputs' first axis; by default the one that was saved")
    parser.add_argument(
        "--input", action="append", default=[], metavar="SHAPE", help="8x3x224x224, for each input; default: as saved"
    )
    parser.add_argument("--block", default="", help="path of the block to compile, such as features.0")
    parser.add_argument("--out", type=Path, help="folder for sources, Triton's IR, assembly and binaries")
    parser.add_argument(
        "--into", type=Path, metavar="FILE", help="put the binaries into this archive, for --trust on another machine"
    )
    parser.add_argument(
        "--trust", action="store_true", help="use the archive's own binaries; nothing checks what they do on the GPU"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run_compile)


def run_compile(arguments: Namespace) -> int:
    """Compile and print, block by block if the top of the model is not hybrid."""
    from hybrid_lab.engines.triton.build.compiling import check_triton
    from hybrid_lab.engines.triton.build.targets import TARGETS, name_of, target_of
    from hybrid_lab.formats.archive import add_binaries, load, use_compiled
    from hybrid_lab.formats.archive.container import Container

    if not arguments.target:
        raise CommandError(f"name at least one GPU with --target; there are {', '.join(TARGETS)}")
    targets = tuple(dict.fromkeys(name_of(target_of(target)) for target in arguments.target))
    arguments.archive = archive_file(arguments.archive)
    if arguments.into is not None:
        if not arguments.into.is_file():
            raise CommandError(f"--into {arguments.into}: no such archive; save the model first")
        Container.open(arguments.into)  # no archive is found out before anything is compiled
    if arguments.out is not None:
        there = next(each for each in (arguments.out, *arguments.out.absolute().parents) if each.exists())
        if not there.is_dir():
            raise CommandError(f"--out {arguments.out}: {there} is a file; name a folder")
    check_triton()
    if arguments.trust:
        print(use_compiled(arguments.archive), file=sys.stderr)
    models = []
    for path, block in _blocks(load(arguments.archive), arguments):
        started = time.perf_counter()
        compiled = _compiled(block, targets, arguments)
        compiled.name = path or arguments.archive.stem
        compiled.seconds = time.perf_counter() - started
        models.append(compiled)
        if not arguments.json:
            print("\n".join(map(printable, str(compiled).splitlines())))
    if arguments.json:
        print(json.dumps([compiled.data() for compiled in models], indent=2))
    if arguments.out is not None:
        written = sum(write(compiled, arguments.out) for compiled in models)
        if not arguments.json:
            print(f"{count(written, 'file')} written to {arguments.out}")
    if arguments.into is not None:
        kernels = [kernel for model in models for kernel in model.kernels]
        number = add_binaries(arguments.into, [each.binary for each in kernels if each.binary is not None])
        print(f"{count(number, 'kernel')} put into {arguments.into}", file=sys.stderr)
    return int(any(kernel.problem for compiled in models for kernel in compiled.kernels))


def _blocks(root: Block, arguments: Namespace) -> Iterator[tuple[str, HybridBlock]]:
    """The outermost blocks with a graph. Raises CommandError if there is none."""
    from hybrid_lab.gluon import HybridBlock, access

    blocks: list[tuple[str, HybridBlock]] = []
    waiting = [(arguments.block, block_in(arguments.archive, root, arguments.block))]
    for path, each in waiting:
        if isinstance(each, HybridBlock) and access.graphs(each).count:
            blocks.append((path, each))
        else:
            waiting += [(f"{path}.{name}".lstrip("."), child) for name, child in access.children(each).items()]
    if not blocks:
        if not any(isinstance(each, HybridBlock) for _, each in waiting):
            raise CommandError(f"{arguments.archive} has no HybridBlock; a Block that is not hybrid runs as Python")
        raise CommandError(
            f"{arguments.archive} has no graph: save the model after a call, net.hybridize(); net(x); net.save(path)"
        )
    if arguments.input and len(blocks) > 1:
        names = ", ".join(path for path, _ in blocks)
        raise CommandError(f"--input is for one block; choose one with --block: {names}")
    yield from blocks


def _compiled(block: HybridBlock, targets: tuple[str, ...], arguments: Namespace) -> CompiledModel:
    from hybrid_lab.insight.compiled import compile_for, known_inputs

    if arguments.input:
        inputs: list[Any] = [_shape(text) for text in arguments.input]
    else:
        inputs = known_inputs(block)
    if arguments.batch is not None:
        inputs = [_with_batch(item, arguments.batch) for item in inputs]
    return compile_for(block, *targets, inputs=inputs, train=arguments.train)


def _shape(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+([x,]\d+)*", text):
        raise CommandError(f"--input {text}: write a shape as numbers joined by x, such as 8x3x224x224")
    return tuple(int(size) for size in re.split("[x,]", text))


def _with_batch(item: NDArray | tuple[int, ...], batch: int) -> object:
    """The shape, or zeros of the array's type, with another first axis."""
    import numpy as np

    from hybrid_lab import ndarray as nd

    if batch < 1:
        raise CommandError(f"--batch {batch}: a batch has at least one row")
    if isinstance(item, tuple):
        return (batch, *item[1:])
    return nd.zeros((batch, *item.shape[1:]), dtype=np.dtype(item.dtype)) if item.shape else item


def write(model: CompiledModel, folder: Path) -> int:
    """One folder per target: of each distinct kernel the source, Triton's IR, assembly and binary; and kernels.json.

    Returns how many files were written.
    """
    written = 0
    for target in model.targets:
        where = folder / target
        if model.name:
            where = where / re.sub(r"[^\w.\-]", "_", model.name)
        with writing(where):
            where.mkdir(parents=True, exist_ok=True)
        kernels = model.on(target)
        names: dict[str, str] = {}
        for kernel in kernels:
            if kernel.binary is None or kernel.binary.key in names:
                continue
            name = f"{len(names):03d}_{kernel.name}"
            names[kernel.binary.key] = name
            _write_file(where / f"{name}.py", kernel.source.encode())
            written += 1
            for kind, content in kernel.binary.files.items():
                _write_file(where / f"{name}.{kind}", content)
                written += 1
        rows = [
            kernel.data() | {"file": names.get(kernel.binary.key) if kernel.binary is not None else None}
            for kernel in kernels
        ]
        _write_file(where / "kernels.json", json.dumps(rows, indent=1).encode())
        written += 1
    return written


def _write_file(path: Path, content: bytes) -> None:
    from hybrid_lab.formats.atomic import atomic_write

    with atomic_write(path) as file:
        file.write(content)
