"""HybridizeError: code that cannot become part of a graph, with its place, the reason and the rewrite."""

from __future__ import annotations

from typing import Any

from . import rules
from .errors import HybridLabError
from .finding import Finding, Severity
from .location import Location, capture


class HybridizeError(HybridLabError):
    """A rule was broken while a graph was traced.

    code, name : the rule's; reason : why; rewrite : what to write instead; location : the user's line; block : the path
    of the block that was traced; tensor : the tensor's name. The last three are None if unknown.
    partial : the NeutralGraph of what ran before, if a trace raised it; for the lab's picture of it
    runs_eagerly : whether a hybridized Block with such code runs eagerly, Block by Block, instead of raising this
    in_graph_code : whether hybrid_forward broke it, and not Python of the user's around hybrid_forward
    keeps_tensors : whether the code keeps tensors on the Block: then all its calls run eagerly until `hybridize()`
    known_as : the name of the block in the message, if the variables of a notebook give another one than `block`
    """

    partial: Any = None
    runs_eagerly: bool = False
    in_graph_code: bool = False
    keeps_tensors: bool = False
    known_as: str = ""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        name: str = "",
        location: Location | None = None,
        block: str | None = None,
        tensor: str | None = None,
        reason: str = "",
        rewrite: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.rule = name
        self.location = location
        self.block = block
        self.tensor = tensor
        self.reason = reason
        self.rewrite = rewrite
        # Overwrites AttributeError's own `name`, which only Python's suggestions read.
        self.name = name

    def __str__(self) -> str:
        lines = [f"HybridizeError {self.code}: {self.message}"]
        name = self.known_as or self.block
        block = f" (block {name})" if name else ""
        if self.location is not None:
            lines.append(f"  {self.location.describe()}{block}")
            lines += [excerpt] if (excerpt := self.location.excerpt("  ")) else []
        elif block:
            lines.append(f"  block {name}")
        lines += [f"  {self.reason}"] if self.reason else []
        first, *more = self.rewrite.splitlines() or [""]
        lines += [f"  Instead:  {first}", *(f"            {line}" for line in more)] if first else []
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.code, self.message, {name: getattr(self, name) for name in _FIELDS})

    @property
    def finding(self) -> Finding:
        """The same as a Finding, for the lab and for reports. An unknown place has file `<unknown>`, line 1."""
        place = self.location or Location.known("<unknown>", 1)
        span = place.line, place.col, place.end_line, place.end_col
        return Finding(
            self.code, self.rule, Severity.ERROR, self.message, place.file, *span,
            tensor=self.tensor, block=self.block, rewrite=self.rewrite,
        )  # fmt: skip


class HybridizeAttributeError(HybridizeError, AttributeError):  # type: ignore[misc]
    """Reading an attribute a Symbol does not have: `hasattr` and `getattr(x, name, default)` stay usable."""


class HybridizeTypeError(HybridizeError, TypeError):
    """A Python protocol (truth, length, iteration, conversion, assignment) a Symbol does not follow."""


class HybridizeNotImplementedError(HybridizeError, AttributeError, NotImplementedError):  # type: ignore[misc]
    """An NDArray method that reads or moves numbers, which a Symbol does not have."""


_FIELDS = ("name", "location", "block", "tensor", "reason", "rewrite")


def _restored(cls: type[HybridizeError], code: str, message: str, fields: dict[str, Any]) -> HybridizeError:
    return cls(code, message, **fields)


#: The `error` of a rule -> the HybridizeError of this type.
_CLASSES: dict[str | None, type[HybridizeError]] = {
    None: HybridizeError,
    "AttributeError": HybridizeAttributeError,
    "TypeError": HybridizeTypeError,
    "NotImplementedError": HybridizeNotImplementedError,
}


def hybridize_error(
    code: str,
    location: Location | None = None,
    *,
    block: str | None = None,
    tensor: str | None = None,
    reason: str | None = None,
    rewrite: str | None = None,
    message: str | None = None,
    **facts: Any,
) -> HybridizeError:
    """The error of rule `code`, ready to raise.

    location : None takes the nearest frame outside this package. facts fill the rule's message and rewrite
    (`attribute="size"`, `call="asnumpy"`); message, reason and rewrite replace the rule's own texts.
    """
    record = rules.get(code)
    return _CLASSES[record.error](
        code,
        message if message is not None else record.message_for(tensor, **facts),
        name=record.name,
        location=location if location is not None else capture(),
        block=block,
        tensor=tensor,
        reason=reason if reason is not None else record.reason,
        rewrite=rewrite if rewrite is not None else record.rewrite_for(tensor, **facts),
    )
