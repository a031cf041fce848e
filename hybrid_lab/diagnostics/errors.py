"""The typed errors of the package, to which every error that a user can meet belongs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .location import Location


class HybridLabError(Exception):
    """Base of every error this package raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        """Copies and pickles keep the attributes, whatever arguments the constructor takes."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[HybridLabError], arguments: tuple[object, ...], attributes: dict[str, object]) -> Exception:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(attributes)
    return error


class ShapeError(HybridLabError, ValueError):
    """Shapes that do not fit an operator, a layer or each other."""


class DeclaredSizeError(ShapeError):
    """Inputs of other sizes than the sizes that an imported graph holds for. The message names input, axis and
    sizes.
    """


class ArrayIndexError(ShapeError, IndexError):
    """An index that is out of range for the shape, or a key that means nothing."""


class DTypeError(HybridLabError, TypeError):
    """Element types that do not fit an operator or each other."""


class AttributeSpecError(HybridLabError, TypeError):
    """An operator attribute that is unknown, missing or cannot be parsed."""


class UnsupportedArgument(AttributeSpecError, NotImplementedError):
    """An argument that NumPy's function of the name has, with a value that is not supported here."""


class SettingError(HybridLabError, TypeError):
    """An argument of the wrong kind: a name instead of a switch, a string instead of a number."""


class UnknownNameError(HybridLabError, AttributeError):
    """A name that a module or a namespace does not have.

    where : the object that was asked, as users write it: `nd`, `gluon.nn`
    wanted : the name; near ones among `known` are put into the message
    advice : what to say in place of near names
    location, block : where in the user's code it was asked while a graph was traced, else None
    """

    def __init__(
        self,
        where: str,
        wanted: str,
        known: Iterable[str] = (),
        advice: str = "",
        *,
        location: Location | None = None,
        block: str | None = None,
    ) -> None:
        super().__init__(where, wanted)
        self.where, self.wanted, self.known, self.advice = where, wanted, tuple(known), advice
        self.location, self.block = location, block

    def __str__(self) -> str:
        # Computed here and not in __init__, because hasattr() raises many of these and reads no message.
        message = f"{self.where} has no {self.wanted!r}; {self.advice or self._near()}"
        if self.location is None:
            return message
        block = f" (block {self.block})" if self.block else ""
        return "\n".join([message, f"  {self.location.describe()}{block}", self.location.excerpt("  ")]).rstrip()

    def _near(self) -> str:
        from difflib import get_close_matches

        from .foreign_names import foreign_operator

        if self.where.partition(".")[0] in ("nd", "sym", "F") and (foreign := foreign_operator(self.wanted)):
            root = self.where.partition(".")[0]
            return f"it is {foreign.framework}'s name, write {foreign.instead.replace('F.', f'{root}.')}"
        lower = {name.lower(): name for name in self.known if not name.startswith("_")}
        near = get_close_matches(self.wanted.lower(), lower, n=3)
        if near and near[0] == self.wanted.lower():  # written with other capitals only
            near = near[:1]
        if not near:
            return "see Limits in the README for the missing parts of MXNet"
        return f"did you mean {', '.join(lower[name] for name in near)}?"


class RecordError(HybridLabError):
    """An operator record that breaks the contract of records (docs/adding-an-operator.md): a mistake in the operator's
    code, not in the user's.
    """

    def __init__(self, operator: str, member: str, problem: str) -> None:
        self.operator, self.member = operator, member
        super().__init__(f"the operator record {operator!r}: {member} {problem}")


class BindError(HybridLabError, ValueError, RuntimeError):
    """Arrays, shapes or gradients do not fit the Symbol of a `bind`."""


class InputError(HybridLabError, ValueError):
    """A Block or a function was called with something that it cannot compute with, such as None for an array."""


class NotSupportedForSparseNDArray(ShapeError, TypeError, NotImplementedError):
    """A method that sparse arrays do not have, because it needs dense memory."""


class UninitializedError(HybridLabError, RuntimeError):
    """A parameter was used before `initialize()`."""


class DeferredInitializationError(UninitializedError):
    """A parameter's shape is not known yet: a first forward pass completes it."""


class AutogradError(HybridLabError, RuntimeError):
    """Gradients that cannot be computed, or would be wrong."""


class NonFiniteError(HybridLabError, FloatingPointError):
    """NaN or an infinity, in a model that `mx.watch_nan` watches.

    block : path of the Block in the model, "" for the model itself; None if no Block of it is concerned
    operator : name of the operator that made the value, "" if no operator did
    part : "forward" or "backward"; location : the line that called the operator, or None
    inputs : the operands in words: shapes, ranges, zeros, NaN
    parameter : attribute of the Block, such as "weight", whose values were not finite before the call, else ""
    """

    def __init__(
        self,
        message: str,
        block: str | None = None,
        operator: str = "",
        part: str = "forward",
        location: Location | None = None,
        inputs: Sequence[str] = (),
        parameter: str = "",
    ) -> None:
        place = [] if location is None else [f"  {location.describe()}", location.excerpt("  ")]
        rows = [f"    {text}" for text in inputs]
        super().__init__(
            "\n".join(line for line in [message, *place, *(["  it read:"] if rows else []), *rows] if line)
        )
        self.block, self.operator, self.part, self.location = block, operator, part, location
        self.inputs, self.parameter = tuple(inputs), parameter


class NestingError(HybridLabError, RecursionError):
    """Blocks that call one another deeper than Python's recursion limit lets a graph be traced."""


class MissingPackageError(HybridLabError, ImportError):
    """A package that a function needs is not installed; the message has the command that installs it."""


class EngineError(HybridLabError, RuntimeError):
    """An engine could not compile or run a graph."""


class EngineUnavailable(EngineError, ImportError):
    """An engine whose library or device is missing on this machine."""


class ArchiveError(HybridLabError, ValueError):
    """An archive that is damaged or unreadable, or contradicts its manifest.

    path : the archive's file, or None; member : the name inside it, or None. Both are put into the message.
    reason : the message without them.
    """

    def __init__(self, message: str, *, path: str | PathLike[str] | None = None, member: str | None = None) -> None:
        self.path = None if path is None else fspath(path)
        self.member = member
        self.reason = message
        where = [repr(self.path)] if self.path is not None else []
        where += [f"member {member!r}"] if member is not None else []
        super().__init__(f"{message} ({', '.join(where)})" if where else message)


class LoadMismatchError(ArchiveError):
    """A file and the live model differ; `differences` lists every difference, one line each."""

    def __init__(
        self,
        message: str,
        differences: Sequence[str] = (),
        *,
        path: str | PathLike[str] | None = None,
        member: str | None = None,
    ) -> None:
        super().__init__(message, path=path, member=member)
        self.differences = list(differences)

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"  - {difference}" for difference in self.differences)])


class MissingGraphError(HybridLabError):
    """There is no graph: a Block with graphs from a file was called with another mode, other shapes or other arguments
    than its graphs are for; or a Block without a graph (never called, or its code has none) is to be exported.
    """


class FewerGraphsError(HybridLabError):
    """A save would replace an archive by one with fewer graphs, which needs `overwrite="fewer graphs"`.

    lost : the graphs that the new archive would not have, by the paths of their Blocks
    before, now : how many graphs the archive has, and would have
    """

    def __init__(self, message: str, lost: Sequence[str], before: int, now: int):
        super().__init__(message)
        self.lost, self.before, self.now = list(lost), before, now


class Unmappable(HybridLabError):
    """An operator, with these attributes, has no form in the target format (ONNX)."""


MXNetError = HybridLabError
"""The name under which ported code catches errors of the framework."""
