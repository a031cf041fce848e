"""The one file that touches what Triton may change from release to release: 3.4 to 3.9 are known to work."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import linecache
import math
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess


@functools.lru_cache
def interpret() -> None:
    """Let kernels of this process run in Triton's interpreter.

    Triton reads TRITON_INTERPRET when a function is decorated. Where it was imported before, its own library (tl.sum,
    tl.max ...) is decorated already, and is decorated again here.
    """
    os.environ["TRITON_INTERPRET"] = "1"
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    for module in (tl.standard, tl.core, tl.math, tl):
        for name, item in list(vars(module).items()):
            if isinstance(item, JITFunction):
                setattr(module, name, InterpretedFunction(item.fn))
    _mend_bfloat16()
    _mend_conditions()
    _mend_bounds()
    _mend_zeros()
    _drop_unread_checks()


def _drop_unread_checks() -> None:
    """Let the interpreter compute no sum or product of whole numbers twice, the second time in 64 bits.

    It compares the two for an overflow, but raises no error unless its option `debug` is set. That was 40% of the time
    of a kernel.
    """
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    options: Any = getattr(builder, "options", None)
    if getattr(options, "sanitize_overflow", False) and not options.debug:
        builder.options = dataclasses.replace(options, sanitize_overflow=False)


@functools.cache
def _mend_zeros() -> None:
    """Let -x of floating x, and the number -0.0, have the sign of a zero.

    Up to 3.6 Triton subtracts x from 0, which makes 0.0 of 0.0, and up to 3.9 it takes 0.0 for -0.0.
    """
    from triton._C.libtriton import ir
    from triton.language.semantic import TritonSemantic

    minus, constant = TritonSemantic.minus, TritonSemantic.scalar_constant

    def opposite(self: Any, item: Any) -> Any:
        return self.mul(item, -1.0, True) if item.type.scalar.is_floating() else minus(self, item)

    def number(self: Any, value: Any, dtype: Any) -> Any:
        below = isinstance(value, float) and value == 0 and math.copysign(1.0, value) < 0
        if not below or dtype is None or not dtype.is_floating():
            return constant(self, value, dtype)
        handle = getattr(self.builder, f"get_{dtype.name}")(value)
        return type(constant(self, 1.0, dtype))(handle, dtype)

    if not hasattr(ir.builder, "create_fneg"):
        TritonSemantic.minus = opposite
    TritonSemantic.scalar_constant = number


def _mend_bfloat16() -> None:
    """Let the interpreter round to bfloat16 as GPUs do, to the nearest, and multiply such numbers.

    It has bfloat16 as whole numbers of 16 bits, the upper halves of float32: up to 3.9 it cuts the lower half off, and
    `tl.dot` multiplies the whole numbers.
    """
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    convert, builder = interpreter._convert_float, interpreter.InterpreterBuilder
    dot = builder.create_dot

    def converted(data: Any, source: Any, target: Any, rounding: Any) -> Any:
        if source == tl.bfloat16 and target == tl.float32:
            return np.asarray(data.astype(np.uint32) << 16)
        if source == tl.float32 and target == tl.bfloat16:
            bits = np.ascontiguousarray(data, np.float32).view(np.uint32).reshape(data.shape)
            rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
            return np.asarray(np.where(np.isnan(data), (bits >> 16) | 0x40, rounded).astype(np.uint16))
        return convert(data, source, target, rounding)

    def product(self: Any, left: Any, right: Any, *more: Any) -> Any:
        left, right = (
            self.cast_impl(item, tl.float32) if item.dtype.scalar == tl.bfloat16 else item for item in (left, right)
        )
        return dot(self, left, right, *more)

    interpreter._convert_float, builder.create_dot = converted, product


def _mend_conditions() -> None:
    """Let the interpreter use a condition of one number - on the program's number, say - in the mask of a tile.

    It spreads it out over the tile as whole numbers, as which a comparison is labelled; loads take no such mask.
    """
    from triton.runtime.interpreter import InterpreterBuilder

    splat = InterpreterBuilder.create_splat

    def spread(self: object, kind: object, item: Any) -> Any:
        tile = splat(self, kind, item)
        if item.data.dtype == bool:
            tile.data = tile.data.astype(bool)
        return tile

    InterpreterBuilder.create_splat = spread


def _mend_bounds() -> None:
    """Let numbers of the interpreter, which it keeps as arrays of one element, be bounds of loops.

    Up to 3.8 it asks NumPy for `int()` of an array with one element, which NumPy refuses since 2.4.
    """
    import numpy as np
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, *scope: object) -> None:
        patch(tensor, *scope)
        tensor.__index__ = lambda self: int(np.squeeze(self.handle.data))

    interpreter._patch_lang_tensor = patched


def function_of(name: str, text: str, file: str) -> Any:
    """The jit function in generated source. file : what line numbers of tracebacks and binaries refer to"""
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    scope: dict[str, Any] = {"__name__": "hybrid_lab_kernel", "__file__": file}
    exec(compile(text, file, "exec"), scope)
    return scope[name]


def compile_source(
    function: object, signature: Mapping[str, str], constants: Mapping[str, object], divisible: Sequence[Sequence[int]],
    far: Sequence[int], target: tuple[str, object, int], options: Mapping[str, object] | None = None,
) -> Any:  # fmt: skip
    """Compile for a target, (backend, architecture, threads per warp), whether or not such a GPU is here.

    signature : argument -> "*fp32", "i32", "constexpr" ...; constants : the values of "constexpr" arguments
    divisible : (index of an argument, the number that it is a multiple of), addresses in bytes
    far : arguments that are addresses of arrays of 2 GiB or more
    options : num_warps, num_stages, enable_fp_fusion ...
    Triton keeps its files in its own cache, $TRITON_CACHE_DIR.
    """
    import triton
    from triton.backends.compiler import GPUTarget

    _mend_zeros()
    source = _ast_source(function, signature, constants, divisible, far, target)
    return triton.compile(source, target=GPUTarget(*target), options=dict(options or {}))


def files_of(compiled: object, folder: str) -> dict[str, str]:
    """Suffix -> path of a file of a compile. folder : Triton's own cache, in which nothing else was kept"""
    group = getattr(compiled, "metadata_group", None)
    if group is None:  # Triton 3.4 does not say
        group = {path.name: path for path in Path(folder).rglob("*") if path.is_file() and path.name[:2] != "__"}
    return {Path(path).suffix[1:]: str(path) for path in group.values()}


def load_binary(
    name: str, signature: Mapping[str, str], constants: Mapping[str, object], divisible: Sequence[Sequence[int]],
    far: Sequence[int], target: tuple[str, object, int], files: Mapping[str, bytes], key: str,
) -> Any:  # fmt: skip
    """Triton's CompiledKernel of files that `compile_source` made elsewhere; nothing is compiled.

    name : of the function. Launchers ask a function for its arguments' names only, so none is made of the text, which
        takes longer than everything else here.
    files : suffix -> contents, "json" for Triton's metadata among them; key : what tells this kernel from every other
    Raises EngineError if there is no folder for temporary files: Triton reads a kernel from files, at once.
    """
    from types import SimpleNamespace

    from triton.compiler import CompiledKernel

    function = SimpleNamespace(__name__=name, arg_names=list(signature), launch_metadata=None)
    source = _ast_source(function, signature, constants, divisible, far, target)
    paths = {}
    try:
        with contextlib.ExitStack() as stack:
            for kind in ("json", "hsaco", "cubin"):
                if kind in files:
                    file = stack.enter_context(tempfile.NamedTemporaryFile(prefix="hybrid_lab_", suffix=f".{kind}"))
                    file.write(files[kind])
                    file.flush()
                    paths[f"kernel.{kind}"] = file.name
            return CompiledKernel(source, paths, key)
    except OSError as error:
        from hybrid_lab.diagnostics.errors import EngineError

        hint = "Triton reads it from a folder for temporary files; TMPDIR names another one"
        raise EngineError(f"the kernel {name} could not be loaded: {error}; {hint}") from error


def _ast_source(
    function: object, signature: Mapping[str, str], constants: Mapping[str, object], divisible: Sequence[Sequence[int]],
    far: Sequence[int], target: tuple[str, object, int],
) -> object:  # fmt: skip
    from triton.compiler import ASTSource

    attributes: dict[tuple[int, ...], list[list[Any]]] = {
        (index,): [["tt.divisibility", many]] for index, many in sorted(map(tuple, divisible))
    }
    if target[0] == "hip":
        # AMD's buffer instructions, with offsets of 32 bits, reach all of an array below 2 GiB.
        for index, kind in enumerate(signature.values()):
            if kind.startswith("*") and index not in far:
                attributes.setdefault((index,), []).append(["tt.pointer_range", 32])
    return ASTSource(function, signature=dict(signature), constexprs=dict(constants), attrs=attributes)


def forget_own_cache() -> None:
    """Spare this process Triton's digest over its whole installation (half a second): it has a folder for one kernel.

    For compile processes only, where $TRITON_CACHE_DIR is a new folder for every kernel.
    """
    import triton.compiler.compiler as compiler
    import triton.runtime.cache as cache

    for module in (cache, compiler):
        if hasattr(module, "triton_key"):
            module.triton_key = lambda: "not kept"


def use_cache_folder(folder: str) -> None:
    """Let Triton keep the files of this process's later compiles in `folder`."""
    os.environ["TRITON_CACHE_DIR"] = folder


def version() -> str:
    """Triton's version. Imports Triton."""
    import triton

    return str(triton.__version__)


@functools.cache
def target_here() -> tuple[str, Any, int]:
    """(backend, architecture, threads per warp) of this machine's first GPU."""
    import subprocess

    from triton.runtime.driver import driver

    try:
        target = driver.active.get_current_target()
    except subprocess.CalledProcessError as error:
        raise _not_built(error) from error
    return target.backend, target.arch, target.warp_size


def _not_built(error: subprocess.CalledProcessError) -> Exception:
    """Triton builds what talks to the driver and, in older releases, what launches each kind of kernel with a C
    compiler at first use: the EngineError, with the next step, if that fails.
    """
    from hybrid_lab.diagnostics.errors import EngineError

    tool = os.path.basename(error.cmd[0]) if isinstance(error.cmd, list) else "a compiler"
    return EngineError(
        f"Triton could not build the helper that launches kernels: {tool} ended with status {error.returncode}, "
        "and what it printed is above. It needs Python's header files (Debian: apt-get install python3-dev "
        "libc6-dev; Fedora: dnf install python3-devel); `hybrid-lab env` looks for them"
    )


def handles(compiled: Any) -> tuple[Any, Any, Any]:
    """The parts of a launch of Triton's CompiledKernel: its launcher, the function on the device and its metadata."""
    import subprocess

    try:
        run = compiled.run  # loads the binary
    except subprocess.CalledProcessError as error:
        raise _not_built(error) from error
    return run, compiled.function, compiled.packed_metadata


def builds_launchers(backend: str = "") -> bool:
    """Whether this Triton, up to 3.6, builds a launcher for each signature by a C compiler (0.35 s of a processor).

    backend : "cuda" or "hip"; "" : of this machine's GPU
    """
    return hasattr(sys.modules[_launcher_class(backend).__module__], "make_launcher")


def build_launcher(compiled: Any, backend: str = "") -> None:
    """Make the launcher of a CompiledKernel's signature, so that Triton finds it in its cache when it is asked for it.

    The C compiler is another process: threads that call this build at the same time.
    """
    _launcher_class(backend)(compiled.src, compiled.metadata)


def build_driver_module(backend: str) -> None:
    """Make the module with which Triton asks the driver, where the C compiler does so, for a GPU that need not be here.

    A driver's library has to be there, if only for its name.
    """
    module = _driver_module(backend)
    module.CudaUtils() if backend == "cuda" else module.HIPUtils()


def _launcher_class(backend: str) -> Any:
    if not backend:
        from triton.runtime.driver import driver

        return driver.active.launcher_cls
    module = _driver_module(backend)
    return module.CudaLauncher if backend == "cuda" else module.HIPLauncher


def _driver_module(backend: str) -> Any:
    return importlib.import_module(f"triton.backends.{'nvidia' if backend == 'cuda' else 'amd'}.driver")


def launch_line(
    run: str, grid: Sequence[str], stream: str, function: str, metadata: str, arguments: Sequence[str]
) -> str:
    """A launch, past the JIT dispatch, as a line of Python; names for `handles`.

    arguments : one for each of the signature, constants too; addresses as whole numbers. The three None are metadata
        for profilers and their hooks before and after the launch.
    """
    x, y, z = [*grid, 1, 1][:3]
    return f"{run}({x}, {y}, {z}, {stream}, {function}, {metadata}, None, None, None, {', '.join(arguments)})"


def bound_launch(
    compiled: object, grid: Sequence[int], arguments: Sequence[object], alive: Sequence[object] = ()
) -> Callable[[int], None]:
    """The same launch as a function of the stream. alive : arrays that it keeps alive, as addresses do not"""
    run, function, metadata = handles(compiled)
    x, y, z = [*grid, 1, 1][:3]
    bound = tuple(arguments)

    def launch_on(stream: int, alive: Sequence[object] = alive) -> None:
        run(x, y, z, stream, function, metadata, None, None, None, *bound)

    return launch_on


def current_stream() -> Any:
    """The stream that torch launches on now, of its current GPU: `cuda_stream` is its address."""
    import torch

    return torch.cuda.current_stream()
