"""The one file that touches what Triton may change from release to release: 3.4 to 3.9 are known to work."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any


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


def compile_source(
    function: Any, signature: Mapping[str, str], constants: Mapping[str, Any], divisible: Sequence[int],
    target: tuple[str, Any, int],
) -> Any:  # fmt: skip
    """Compile for a target, (backend, architecture, threads per warp), whether or not such a GPU is here.

    signature : argument -> "*fp32", "i32", "constexpr" ...; constants : the latter's values
    divisible : numbers of the arguments that are multiples of 16, addresses in bytes
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    attributes = {(index,): [["tt.divisibility", 16]] for index in divisible}
    source = ASTSource(function, signature=dict(signature), constexprs=dict(constants), attrs=attributes)
    return triton.compile(source, target=GPUTarget(*target))
