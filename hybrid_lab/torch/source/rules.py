"""The table of operators: how each is written in PyTorch. `layers`, `functions` and `detection` fill it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.graph.node import Value

if TYPE_CHECKING:
    from hybrid_lab.graph.node import Node

    from .writer import SourceWriter


AnyOperator: TypeAlias = Any
"""An Operator, with the attributes of its own class."""
#: (writer, node, its operator, the text of each input) -> the text of the output, or one for each visible output
Rule: TypeAlias = "Callable[[SourceWriter, Node, AnyOperator, Sequence[str]], str | Sequence[str]]"

RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a function for the operators of these names."""

    def register(function: Rule) -> Rule:
        for name in names:
            assert name not in RULES, name
            RULES[name] = function
        return function

    return register


def needs(condition: bool, node: Node, what: str) -> None:
    """Raise Unmappable, naming the use of the operator that has no PyTorch form, unless the condition holds."""
    if not condition:
        raise Unmappable(f"{node.op.name} {node.name!r}: {what} has no PyTorch source here; an .onnx file may have it")


def shape_of(node: Node, index: int) -> tuple[int, ...]:
    """The shape of an input; of a number ()."""
    item = node.inputs[index]
    return getattr(item, "shape", ())


#: Operators that pack the weights of a recurrent layer.
_PACKING = frozenset({"Reshape", "Concat", "_rnn_param_concat"})
_MOST_WEIGHTS = 10_000


def weights_of(packed: object) -> list[Value]:
    """The values behind the operators that pack the weights of a recurrent layer, in order; repeated ones too."""
    found: list[Value] = []
    pending = [packed]
    while pending:
        item = pending.pop()
        if not isinstance(item, Value):
            continue
        if item.node.op.name in _PACKING:
            pending += reversed(item.node.inputs)
        else:
            found.append(item)
        if len(found) + len(pending) > _MOST_WEIGHTS:
            raise Unmappable(f"RNN: more than {_MOST_WEIGHTS:,} packed weights have no PyTorch source")
    return found


def infix(text: str) -> str:
    """The text in brackets if operators would bind inside it."""
    depth = 0
    for place, letter in enumerate(text):
        depth += letter in "([{"
        depth -= letter in ")]}"
        if depth == 0 and (letter == " " or (letter == "-" and place == 0)):
            return f"({text})"
    return text


def each(number: Sequence[int], rank: int, default: int) -> int | tuple[int, ...]:
    """The numbers of all axes, as one number if they are equal."""
    numbers = tuple(number) or (default,) * rank
    return numbers[0] if len(set(numbers)) == 1 else numbers
