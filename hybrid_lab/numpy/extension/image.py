"""`mx.npx.image`: the operators of `nd.image`, on arrays of `mx.np`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.unknown_names import unknown_name as _unknown_name
from hybrid_lab.numpy.errors import named as _named
from hybrid_lab.numpy.operators import call as _call
from hybrid_lab.numpy.operators import write as _write
from hybrid_lab.ops.framework.operator import registered_names as _registered_names
from hybrid_lab.ops.framework.surface import make_function as _make_function

if TYPE_CHECKING:
    from hybrid_lab.numpy.types import Out, Tensor
    from hybrid_lab.ops.framework.operator import Operator

_PREFIX = "_image_"


def _dispatch(op: Operator, inputs: list[object], out: Out, name: str | None) -> Tensor:
    return _write(out, _call(op, inputs))


_records = {name[len(_PREFIX) :]: each for name, each in _registered_names().items() if name.startswith(_PREFIX)}
globals().update(
    {name: _named(f"npx.image.{name}", _make_function(record, _dispatch, name)) for name, record in _records.items()}
)

__all__ = sorted(_records)


def __getattr__(name: str) -> Any:
    raise _unknown_name("npx.image", name, __all__)
