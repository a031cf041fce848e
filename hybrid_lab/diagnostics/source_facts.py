"""The source at the place where a trace refused code: the tensor's expression and the facts for the rule's message.

A trace knows tensors by the names of graph nodes; people know them by the text of their code. The instruction that was
running says which piece of syntax asked for numbers, and the frame which names are tensors.
"""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import linecache
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import itemgetter
from types import FrameType
from typing import Any, TypeVar

from .expression import one_line, right_side, root_name, tensor_name
from .rules.numpy_calls import instead_of

Question = Callable[[Any], bool]
Kind = TypeVar("Kind", bound=ast.AST)

UNKNOWN = object()
"""An expression whose value cannot be told without running code."""

_TRUTHS = {"UNARY_NOT", "TO_BOOL"}
_WALKS = {"GET_ITER", "GET_YIELD_FROM_ITER", "LIST_EXTEND", "SET_UPDATE"}
_UNPACKS = {"UNPACK_SEQUENCE", "UNPACK_EX"}
_ITEMS = {"BINARY_SUBSCR", "STORE_SUBSCR", "DELETE_SUBSCR", "BINARY_SLICE", "STORE_SLICE"}
_BETWEEN = {"COPY", "SWAP", "TO_BOOL", "NOP", "EXTENDED_ARG", "CACHE", "NOT_TAKEN"}


@dataclass
class SourceFacts:
    """code : the rule that fits the syntax (a `while` is HL122, a truth HL121); tensor : its expression; facts : of the
    rule's message and rewrite.
    """

    code: str
    tensor: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def source_facts(code: str, frame: FrameType, is_it: Question, is_tensor: Question) -> SourceFacts | None:
    """The words of the user for what rule `code` refused in `frame`; None if the source is not at hand or says
    something else.

    is_it(value) : whether a value is the refused value; is_tensor(value) : whether it is a tensor or contains tensors.
    """
    try:
        site = _Site(frame, is_it, is_tensor)
        return _words(code, site)
    except (SyntaxError, ValueError, LookupError, RecursionError, _Elsewhere):
        return None


class _Elsewhere(Exception):
    """The source does not have the syntax that the instruction comes from."""


_Point = tuple[int, int]
"""Line from 1, column in bytes of UTF-8 from 0, as instructions and syntax nodes count them."""


@lru_cache(maxsize=4)
def _parsed(text: str) -> tuple[dict[ast.AST, ast.AST], dict[_Point, list[tuple[_Point, ast.AST]]]]:
    """Node -> its parent; end -> the nodes that end there, with their beginnings."""
    parents: dict[ast.AST, ast.AST] = {}
    ends: dict[_Point, list[tuple[_Point, ast.AST]]] = {}
    node: Any
    for node in ast.walk(ast.parse(text)):
        parents.update(dict.fromkeys(ast.iter_child_nodes(node), node))
        if (line := getattr(node, "end_lineno", None)) is not None:
            ends.setdefault((line, node.end_col_offset), []).append(((node.lineno, node.col_offset), node))
    return parents, ends


class _Site:
    """The instruction a frame is at, with the source around it."""

    def __init__(self, frame: FrameType, is_it: Question, is_tensor: Question) -> None:
        self.frame, self.is_it, self._is_tensor = frame, is_it, is_tensor
        self._lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)
        text_of_file = "".join(self._lines)
        if not text_of_file.strip():
            raise _Elsewhere
        self.parents, self._ends = _parsed(text_of_file)
        # A call into Python code leaves f_lasti in the caches behind its instruction.
        *self.before, self.instruction = (i for i in dis.get_instructions(frame.f_code) if i.offset <= frame.f_lasti)

    @property
    def operation(self) -> str:
        return self.instruction.opname

    def source(self, node: ast.AST) -> str:
        """The text of a node. (`ast.get_source_segment` splits the whole file into lines each time.)"""
        if not isinstance(node, (ast.expr, ast.stmt)) or node.end_lineno is None or node.end_col_offset is None:
            return ast.unparse(node)
        lines = [line.encode() for line in self._lines[node.lineno - 1 : node.end_lineno]]  # columns count bytes
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return b"".join(lines).decode()

    def text(self, node: ast.AST) -> str:
        return one_line(node, self.source(node))

    def name(self, node: ast.AST) -> str:
        return tensor_name(node, self.text(node), self._name_is_tensor)

    def root(self, node: ast.AST) -> str | None:
        return root_name(node, self._name_is_tensor)

    def _name_is_tensor(self, node: ast.Name) -> bool:
        return self._is_tensor(self.value(node))

    @cached_property
    def _locals(self) -> dict[str, Any]:
        return self.frame.f_locals

    def value(self, node: ast.AST) -> object:
        """The value of a name, constant or plain attribute; UNKNOWN of everything that runs code."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            for names in (self._locals, self.frame.f_globals, vars(builtins)):
                if node.id in names:
                    return names[node.id]
        if isinstance(node, ast.Attribute) and (owner := self.value(node.value)) is not UNKNOWN:
            return inspect.getattr_static(owner, node.attr, UNKNOWN)
        return UNKNOWN

    def around(self, node: ast.AST) -> ast.AST | None:
        return self.parents.get(node)

    def nodes(self, kinds: tuple[type[Kind], ...], instruction: dis.Instruction) -> Iterator[Kind]:
        """Nodes at an instruction's place. A method on a line of its own is noted without the lines before it, so
        what ends there counts too, the shortest first.
        """
        place = instruction.positions
        if place is None or place.lineno is None or place.end_col_offset is None:
            return
        start = (place.lineno, place.col_offset or 0)
        ending = self._ends.get((place.end_lineno or place.lineno, place.end_col_offset), ())
        ending_here = [(begin, node) for begin, node in ending if begin <= start and isinstance(node, kinds)]
        yield from (node for _, node in sorted(ending_here, key=itemgetter(0), reverse=True))

    def node(self, *kinds: type[Kind]) -> Kind:
        """The node that the instruction belongs to, of a kind in `kinds`."""
        for node in self.nodes(kinds, self.instruction):
            return node
        raise _Elsewhere

    def consumed(self) -> ast.AST:
        """The expression whose value the instruction takes: the result of the instruction before."""
        for instruction in reversed(self.before):
            if instruction.opname not in _BETWEEN:
                for node in self.nodes((ast.expr, ast.pattern), instruction):
                    return node
                break
        raise _Elsewhere

    def pick(self, candidates: Iterable[ast.expr]) -> ast.expr:
        """The expression that is the refused value, or may be it."""
        parts = [part.value if isinstance(part, ast.Starred) else part for part in candidates]
        values = [self.value(part) for part in parts]
        for part, value in zip(parts, values, strict=True):
            if value is not UNKNOWN and self.is_it(value):
                return part
        unknown = [p for p, v in zip(parts, values, strict=True) if v is UNKNOWN or self._is_tensor(v)]
        for part in [*(part for part in unknown if self.root(part)), *unknown]:
            return part
        raise _Elsewhere


def _words(code: str, site: _Site) -> SourceFacts:
    operation = site.operation
    if operation.startswith(("CALL", "PRECALL")):
        return _call(code, site, site.node(ast.Call))
    if operation in ("LOAD_ATTR", "LOAD_METHOD"):
        return SourceFacts(code, site.name(site.node(ast.Attribute).value))
    if operation == "STORE_ATTR":
        return _stored(code, site, site.node(ast.Attribute))
    if operation in _ITEMS:
        return _item(code, site, site.node(ast.Subscript))
    if operation == "BINARY_OP":
        node = site.node(ast.AugAssign, ast.BinOp, ast.Subscript)
        if isinstance(node, ast.Subscript):
            return _item(code, site, node)
        assert isinstance(node, ast.AugAssign | ast.BinOp)
        return _operation(code, site, node)
    if operation == "COMPARE_OP":
        if code != "HL164":
            return _truth(code, site, site.node(ast.expr, ast.pattern))  # since 3.13 it asks for the truth itself
        compared = site.node(ast.Compare)
        return _array(code, site, [compared.left, *compared.comparators])
    if operation in _UNPACKS:
        target = site.node(ast.Tuple, ast.List)
        assert isinstance(target, ast.Tuple | ast.List)
        return _unpacked(code, site, target)
    if operation in _WALKS:
        return SourceFacts(code, site.name(site.consumed()))
    if operation == "CONTAINS_OP":
        left = site.node(ast.Compare).left
        return SourceFacts(code, _condition_name(left, site), {"construct": "in", "condition": site.text(left)})
    if operation in _TRUTHS or "JUMP" in operation:
        condition = site.consumed()
        call = site.around(condition)
        if isinstance(call, ast.Call) and call.func is condition:
            return _call(code, site, call)  # since 3.14 `all(... for ...)` and `any` are loops in the caller's bytecode
        return _truth(code, site, condition)
    raise _Elsewhere


def _condition_name(node: ast.AST, site: _Site) -> str:
    return site.root(node) or site.name(node)


def _call(code: str, site: _Site, call: ast.Call) -> SourceFacts:
    everything = [*call.args, *(keyword.value for keyword in call.keywords)]
    if code in ("HL123", "HL106") and site.operation == "CALL_FUNCTION_EX":
        return SourceFacts("HL123", site.name(site.pick(part for part in call.args if isinstance(part, ast.Starred))))
    if code == "HL164":
        return _array(code, site, everything)
    function, spelled = site.value(call.func), site.text(call.func)
    name = spelled.rpartition(".")[2]
    if code == "HL163":
        owner = site.value(call.func.value) if isinstance(call.func, ast.Attribute) else UNKNOWN
        facts = {"call": spelled}
        if inspect.ismodule(owner):
            facts["operator"] = _below_namespace(spelled)
        return SourceFacts(code, site.name(site.pick(everything)), facts)
    chosen = site.pick(everything)
    if code == "HL121" and function in (any, all, bool):
        condition = call.args[0]
        return SourceFacts(
            code, _condition_name(condition, site), {"construct": name, "condition": site.text(condition)}
        )
    if code == "HL121" and function in (max, min, sorted):
        return SourceFacts("HL125", site.name(chosen), {"call": name})
    if code == "HL162" or (code in ("HL121", "HL125", "HL126") and _of_numpy(function)):
        tensor = site.name(chosen)
        facts = {"call": spelled, "rewrite": instead_of(name, call, tensor, site.text)}
        return SourceFacts("HL162", tensor, facts)
    if getattr(function, "__module__", None) == "math":
        spelled = f"math.{getattr(function, '__name__', name)}"
    return SourceFacts(code, site.name(chosen), {"call": spelled} if code == "HL125" else {})


def _below_namespace(spelled: str) -> str:
    """`random.uniform` of `mx.nd.random.uniform`, `relu` of `nd.relu`."""
    parts = spelled.split(".")
    for index, part in enumerate(parts[:-1]):
        if part in ("nd", "ndarray", "sym", "symbol"):
            return ".".join(parts[index + 1 :])
    return parts[-1]


def _of_numpy(function: object) -> bool:
    home = getattr(function, "__module__", None) or type(function).__module__
    return str(home).partition(".")[0] == "numpy"


def _array(code: str, site: _Site, candidates: list[ast.expr]) -> SourceFacts:
    """An array that met a Symbol: `is_it` knows the array."""
    values = [site.value(part) for part in candidates]
    chosen = next((p for p, v in zip(candidates, values, strict=True) if v is not UNKNOWN and site.is_it(v)), None)
    if chosen is None:
        open_ones = [part for part, value in zip(candidates, values, strict=True) if value is UNKNOWN]
        if len(open_ones) != 1:
            raise _Elsewhere
        chosen = open_ones[0]
    text = site.text(chosen)
    return SourceFacts(code, text, {"expression": text})


def _stored(code: str, site: _Site, target: ast.Attribute) -> SourceFacts:
    statement = site.around(target)
    value = getattr(statement, "value", None)
    tensor = site.name(value) if isinstance(statement, ast.Assign | ast.AnnAssign) and value is not None else None
    return SourceFacts(code, tensor, {"target": site.text(target)})


def _item(code: str, site: _Site, node: ast.Subscript) -> SourceFacts:
    if code == "HL126":
        return SourceFacts(code, site.name(node.slice), {"construct": site.text(node)})
    facts: dict[str, Any] = {"change": "deleted", "construct": "del"} if site.operation == "DELETE_SUBSCR" else {}
    if code == "HL133":
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        facts["index"] = site.text(next((part for part in parts if site.root(part)), node.slice))
    return SourceFacts(code, site.name(node.value), facts)


def _operation(code: str, site: _Site, node: ast.AugAssign | ast.BinOp) -> SourceFacts:
    if isinstance(node, ast.BinOp):
        if code in ("HL163", "HL164"):
            return _array("HL164", site, [node.left, node.right])
        return SourceFacts(code, site.name(site.pick([node.left, node.right])), {"call": site.text(node)})
    if code == "HL164":
        return _array(code, site, [node.value])
    if isinstance(node.target, ast.Subscript):
        return SourceFacts("HL141" if code == "HL142" else code, site.name(node.target.value))
    return SourceFacts(code, site.text(node.target), {"right": right_side(node, site.text)})


def _unpacked(code: str, site: _Site, target: ast.Tuple | ast.List) -> SourceFacts:
    around: Any = site.around(target)
    count = None if any(isinstance(part, ast.Starred) for part in target.elts) else len(target.elts)
    if isinstance(around, ast.Assign):
        return SourceFacts(code, site.name(around.value), {"count": count})
    name = site.root(around.iter) if isinstance(around, ast.For | ast.comprehension) else None
    return SourceFacts(code, name, {"count": count})


def _truth(code: str, site: _Site, condition: ast.AST) -> SourceFacts:
    """The syntax that asks for the truth of `condition`."""
    around = site.around(condition)
    while isinstance(around, ast.BoolOp) and condition is around.values[-1]:
        condition, around = around, site.around(around)
    if isinstance(around, ast.pattern | ast.match_case):
        while not isinstance(around, ast.Match):
            around = site.around(around) if around is not None else None
        condition, construct = around.subject, "match"
    elif isinstance(around, ast.While):
        return SourceFacts("HL122", _condition_name(condition, site))
    elif isinstance(around, ast.UnaryOp):
        construct = "not"
    elif isinstance(around, ast.BoolOp):
        construct = "and" if isinstance(around.op, ast.And) else "or"
    elif isinstance(around, ast.Assert):
        construct = "assert"
    elif isinstance(condition, ast.Compare) and len(condition.ops) > 1:
        construct = "chained comparison"
    else:
        construct = "elif" if isinstance(around, ast.If) and site.source(around).startswith("elif") else "if"
    return SourceFacts(
        code, _condition_name(condition, site), {"construct": construct, "condition": site.text(condition)}
    )
