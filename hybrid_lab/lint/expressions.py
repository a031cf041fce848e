"""Abstract evaluation of expressions: what each kind of syntax makes of the values in it."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from typing import Any

from ..diagnostics.rules.values import (
    NONE,
    OTHER,
    Kind,
    Value,
    constant,
    element_of,
    join,
    sequence,
    tensor,
)
from . import names
from .classes import Function, SourceClass
from .frame import Frame

_BUILTINS = frozenset(dir(builtins))
_ON_SELF = {
    "params", "collect_params", "name_scope", "register_child", "register_forward_hook", "register_forward_pre_hook",
    "hybridize", "initialize", "prefix", "name", "cast", "apply",
}  # fmt: skip


class Expressions:
    """Evaluation of expressions; the statements (taint.Taint) and calls (calls.Calls) are built on it."""

    values: dict[int, Value]
    style: str
    constructing: SourceClass | None
    quiet: int
    budget: int
    handlers: dict[type, Callable[[Any], Value]]

    @property
    def frame(self) -> Frame:
        raise NotImplementedError

    def look(self, node: ast.AST) -> None:
        raise NotImplementedError

    def bind(self, target: ast.expr, value: Value) -> None:
        raise NotImplementedError

    def call_function(self, function: Function, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        raise NotImplementedError

    def evaluate(self, node: ast.expr) -> Value:
        """The abstract value of an expression; every rule then looks at it."""
        self.budget -= 1
        if self.budget < 0:
            return OTHER
        handler = self.handlers.get(type(node))
        if handler is None:
            handler = self.handlers[type(node)] = getattr(self, f"on_{type(node).__name__}", self.on_unknown)
        value = handler(node)
        self.values[id(node)] = value
        self.look(node)
        return value

    def on_unknown(self, node: ast.expr) -> Value:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.evaluate(child)
        return OTHER

    # Names and attributes

    def on_Constant(self, node: ast.Constant) -> Value:
        return NONE if node.value is None else constant(node.value)

    def on_Name(self, node: ast.Name) -> Value:
        return self.lookup(node.id)

    def lookup(self, name: str) -> Value:
        frame: Frame | None = self.frame
        while frame is not None:
            if name in frame.env:
                return frame.env[name]
            frame = frame.closure
        module = self.frame.module
        if name in module.names:
            return module.names[name]
        if (found := module.lookup(name)) is not None:
            return found
        if name in _BUILTINS:
            return Value(Kind.MODULE, ref=f"builtins.{name}")
        if name in names.CONVENTIONAL:
            return Value(Kind.MODULE, ref=names.CONVENTIONAL[name])
        return Value(Kind.MODULE, ref=f"?.{name}")

    def on_Attribute(self, node: ast.Attribute) -> Value:
        return self.attribute_of(self.evaluate(node.value), node.attr)

    def attribute_of(self, owner: Value, name: str) -> Value:
        if owner.kind is Kind.SELF:
            return self._self_attribute(owner, name)
        if owner.kind is Kind.MODULE:
            return Value(Kind.MODULE, ref=names.canonical(f"{owner.ref}.{name}"))
        if owner.kind is Kind.OPERATORS:
            return Value(Kind.OPERATORS, ref=f"{owner.ref}.{name}" if owner.ref else name)
        if owner.kind is Kind.TENSOR:
            return self._tensor_attribute(owner, name)
        if owner.kind is Kind.SUPER or (owner.kind is Kind.CLASS and isinstance(owner.ref, SourceClass)):
            return self._class_attribute(owner, name)
        if owner.kind is Kind.BLOCK and isinstance(owner.ref, SourceClass):
            self.construct(owner.ref)
            if (attribute := owner.ref.attributes.get(name)) is not None:
                return attribute.value
            if (method := owner.ref.find(name)) is not None:
                return Value(Kind.FUNCTION, ref=method, element=Value(Kind.SELF, ref=owner.ref))
        if owner.kind is Kind.BLOCK and name in ("weight", "bias", "gamma", "beta"):
            return Value(Kind.PARAMETER, name=name)
        if owner.kind in (Kind.OTHER, Kind.CONSTANT, Kind.SHAPE, Kind.LENGTH, Kind.MODE):
            return Value(Kind.METHOD, ref=name, element=owner) if owner.kind is Kind.CONSTANT else OTHER
        if owner.kind is Kind.HOST and name in ("shape", "size", "ndim", "dtype"):
            return OTHER
        return Value(Kind.METHOD, ref=name, element=owner)

    def construct(self, cls: SourceClass) -> None:
        raise NotImplementedError

    def _self_attribute(self, owner: Value, name: str) -> Value:
        cls = owner.ref
        assert isinstance(cls, SourceClass)
        if (attribute := cls.attributes.get(name)) is not None:
            return attribute.value
        if (method := cls.find(name)) is not None:
            bound = Value(Kind.FUNCTION, ref=method, element=owner if method.kind != "static" else None)
            return self.call_function(method, [owner], {}) if method.kind == "property" else bound
        if name in _ON_SELF or name in ("hybrid_forward", "forward"):
            return Value(Kind.METHOD, ref=name, element=owner)
        return OTHER

    def _class_attribute(self, owner: Value, name: str) -> Value:
        cls = owner.ref
        assert isinstance(cls, SourceClass)
        if owner.kind is Kind.SUPER:
            # `element` is the object; `ref` the class whose method says super().
            me = owner.element
            start = me.ref if me is not None and isinstance(me.ref, SourceClass) else cls
            method = start.find(name, after=cls)
            if method is not None:
                return Value(Kind.FUNCTION, ref=method, element=me)
            return Value(Kind.METHOD, ref=name, element=me or OTHER)
        if (attribute := cls.attributes.get(name)) is not None:
            return attribute.value
        if (method := cls.find(name)) is not None:
            return Value(Kind.FUNCTION, ref=method)
        return OTHER

    def _tensor_attribute(self, owner: Value, name: str) -> Value:
        if name in ("shape", "size", "ndim"):
            return Value(Kind.SHAPE, name=owner.name)
        if name in ("dtype", "context", "ctx", "device", "stype", *names.TENSOR_PYTHON_ATTRIBUTES):
            return OTHER
        if name == "T":
            return tensor(owner.name, depends=owner.depends)
        return Value(Kind.METHOD, ref=name, element=owner)

    # Operators

    def on_BinOp(self, node: ast.BinOp) -> Value:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        return self.arithmetic(node.op, left, right)

    def arithmetic(self, op: ast.operator, left: Value, right: Value) -> Value:
        kinds = {left.kind, right.kind}
        if Kind.TENSOR in kinds:
            return self._tensor_arithmetic(op, left, right)
        if Kind.SEQUENCE in kinds:
            if left.kind is right.kind:
                if left.items is not None and right.items is not None:
                    return sequence(left.items + right.items)
                return join(sequence(element=element_of(left)), sequence(element=element_of(right)))
            container = left if left.kind is Kind.SEQUENCE else right
            other = right if container is left else left
            if isinstance(op, (ast.Mult, ast.Add)):
                return sequence(element=element_of(container)) if container.members else container
            return OTHER if not other.has_tensor else tensor(single=False)
        if left.kind is Kind.CONSTANT and isinstance(left.ref, tuple) and left.ref[0] == "str":
            return OTHER
        for kind in (Kind.HOST, Kind.ARRAY, Kind.SHAPE, Kind.LENGTH):
            if kind in kinds:
                return left if left.kind is kind else right
        return OTHER

    def _tensor_arithmetic(self, op: ast.operator, left: Value, right: Value) -> Value:
        values = [value for value in (left, right) if value.kind is Kind.TENSOR]
        others = [value for value in (left, right) if value.kind is not Kind.TENSOR]
        depends = any(value.depends for value in values)
        if others and others[0].kind in (Kind.SEQUENCE, Kind.MAPPING) and not all(value.single for value in values):
            return tensor(single=False, depends=depends)
        if others and others[0].kind is Kind.CONSTANT and others[0].ref[0] == "str":  # type: ignore[index]
            return OTHER
        # `a + b` of two unknown results may join two lists; any other operator is on tensors.
        surely = not isinstance(op, ast.Add) or any(value.single for value in values) or bool(others)
        likes = {value.like for value in values}
        like = likes.pop() if len(likes) == 1 and not any(o.kind is Kind.ARRAY for o in others) else None
        return tensor(values[0].name, single=surely, depends=depends, like=like, fresh=True)

    def on_Compare(self, node: ast.Compare) -> Value:
        operands = [self.evaluate(node.left), *(self.evaluate(comparator) for comparator in node.comparators)]
        if self.asks_for_mode(node, operands):
            return Value(Kind.MODE, ref="sort")
        for op, left, right in zip(node.ops, operands, operands[1:], strict=False):
            if isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
                continue
            if any(side.kind is Kind.CONSTANT and side.ref[0] in ("str", "NoneType") for side in (left, right)):  # type: ignore[index]
                continue
            if Kind.TENSOR in (left.kind, right.kind) and not self._compares_containers(left, right):
                tensors = [side for side in (left, right) if side.kind is Kind.TENSOR]
                return tensor(tensors[0].name, depends=any(side.depends for side in tensors), fresh=True)
        if any(operand.kind is Kind.HOST for operand in operands):
            return Value(Kind.HOST)
        return OTHER

    @staticmethod
    def _compares_containers(left: Value, right: Value) -> bool:
        return Kind.SEQUENCE in (left.kind, right.kind)

    @staticmethod
    def asks_for_mode(node: ast.Compare, operands: list[Value]) -> bool:
        """`F is nd`, `F == mx.sym`, `type(x) is NDArray`, `F.__name__ == "..."`."""
        if not isinstance(node.ops[0], (ast.Is, ast.Eq, ast.IsNot, ast.NotEq)):
            return False
        about = ("mx.nd.NDArray", "mx.sym.Symbol")
        return any(v.kind is Kind.OPERATORS or (v.kind is Kind.MODULE and v.ref in about) for v in operands)

    def eager_branch(self, test: ast.expr) -> bool | None:
        """Which outcome of a test only eager mode reaches; None if the test is about something else."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.eager_branch(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            refs = [self.values.get(id(side), OTHER) for side in (test.left, test.comparators[0])]
            positive = isinstance(test.ops[0], (ast.Is, ast.Eq))
            if self.asks_for_mode(test, refs):
                for value in refs:
                    if value.kind is Kind.MODULE and isinstance(value.ref, str):
                        # By the last part: it may come from a module whose source is not at hand.
                        namespace = value.ref.removesuffix(".NDArray").removesuffix(".Symbol").rpartition(".")[2]
                        if namespace in ("nd", "ndarray"):
                            return positive
                        if namespace in ("sym", "symbol"):
                            return not positive
        if isinstance(test, ast.Call) and len(test.args) == 2:
            value = self.values.get(id(test.func), OTHER)
            asked = self.values.get(id(test.args[1]), OTHER)
            if value.kind is Kind.MODULE and value.ref == "builtins.isinstance" and asked.kind is Kind.MODULE:
                return {"mx.nd.NDArray": True, "mx.sym.Symbol": False}.get(str(asked.ref))
        return None

    def on_BoolOp(self, node: ast.BoolOp) -> Value:
        joined = self.evaluate(node.values[0])
        kinds = {joined.kind}
        env = dict(self.frame.env)
        for previous, operand in zip(node.values, node.values[1:], strict=False):
            self.narrow(previous, isinstance(node.op, ast.And))
            value = self.evaluate(operand)
            kinds.add(value.kind)
            joined = join(joined, value)
        self.frame.env = env
        return Value(Kind.MODE, ref="joined") if Kind.MODE in kinds else joined

    def narrow(self, test: ast.expr, outcome: bool) -> None:
        raise NotImplementedError

    def on_UnaryOp(self, node: ast.UnaryOp) -> Value:
        operand = self.evaluate(node.operand)
        if isinstance(node.op, ast.Not):
            return operand if operand.kind is Kind.MODE else OTHER
        if operand.kind is Kind.TENSOR:
            return operand.but(fresh=True)
        return operand if operand.kind in (Kind.HOST, Kind.ARRAY, Kind.SHAPE, Kind.LENGTH) else OTHER

    def on_IfExp(self, node: ast.IfExp) -> Value:
        self.evaluate(node.test)
        env = dict(self.frame.env)
        only_eager = self.eager_branch(node.test)
        self.narrow(node.test, True)
        self.quiet += only_eager is True
        body = self.evaluate(node.body)
        self.quiet -= only_eager is True
        self.frame.env = dict(env)
        self.narrow(node.test, False)
        self.quiet += only_eager is False
        orelse = self.evaluate(node.orelse)
        self.quiet -= only_eager is False
        self.frame.env = env
        return join(body, orelse)

    def on_NamedExpr(self, node: ast.NamedExpr) -> Value:
        value = self.evaluate(node.value)
        self.bind(node.target, value)
        return value

    def on_Await(self, node: ast.Await) -> Value:
        return self.evaluate(node.value)

    def on_Yield(self, node: ast.Yield) -> Value:
        if node.value is not None:
            self.evaluate(node.value)
        return OTHER

    def on_YieldFrom(self, node: ast.YieldFrom) -> Value:
        self.evaluate(node.value)
        return OTHER

    # Indexing

    def on_Subscript(self, node: ast.Subscript) -> Value:
        owner = self.evaluate(node.value)
        self.evaluate(node.slice)
        return self.subscript_of(owner, node.slice)

    def on_Slice(self, node: ast.Slice) -> Value:
        for part in (node.lower, node.upper, node.step):
            if part is not None:
                self.evaluate(part)
        return OTHER

    def subscript_of(self, owner: Value, index: ast.expr) -> Value:
        if owner.kind is Kind.TENSOR:
            return owner.but(like=None, fresh=False)
        if owner.kind is Kind.OUTPUTS:
            return owner if isinstance(index, ast.Slice) else tensor(owner.name, depends=owner.depends)
        if owner.kind is Kind.SEQUENCE:
            return self._item(owner, index)
        if owner.kind is Kind.MAPPING:
            return element_of(owner)
        if owner.kind in (Kind.HOST, Kind.SHAPE, Kind.ARRAY):
            return owner
        return OTHER

    @staticmethod
    def _item(owner: Value, index: ast.expr) -> Value:
        try:
            bounds = (
                slice(
                    *(
                        None if part is None else ast.literal_eval(part)
                        for part in (index.lower, index.upper, index.step)
                    )
                )
                if isinstance(index, ast.Slice)
                else ast.literal_eval(index)
            )
            if owner.items is not None:
                found = owner.items[bounds]
                return sequence(found) if isinstance(found, tuple) else found
        except (ValueError, TypeError, IndexError, SyntaxError):
            pass
        element = element_of(owner)
        return sequence(element=element) if isinstance(index, ast.Slice) and owner.members else element

    # Containers and comprehensions

    def on_Tuple(self, node: ast.Tuple | ast.List | ast.Set) -> Value:
        items: list[Value] = []
        open_ended = isinstance(node, ast.Set)
        for part in node.elts:
            if isinstance(part, ast.Starred):
                inner = self.evaluate(part.value)
                self.look(part)
                if inner.items is not None:
                    items += inner.items
                else:
                    open_ended = True
                    items.append(self.member(inner))
            else:
                items.append(self.evaluate(part))
        if open_ended:
            return sequence(element=element_of(sequence(tuple(items))) if items else None)
        return sequence(tuple(items))

    on_List = on_Tuple
    on_Set = on_Tuple

    def on_Starred(self, node: ast.Starred) -> Value:
        return self.evaluate(node.value)

    def on_Dict(self, node: ast.Dict) -> Value:
        values = []
        for key, item in zip(node.keys, node.values, strict=True):
            if key is not None:
                self.evaluate(key)
            value = self.evaluate(item)
            values.append(element_of(value) if key is None else value)
        element = element_of(sequence(tuple(values))) if values else None
        return Value(Kind.MAPPING, element=element, depends=False)

    def member(self, value: Value) -> Value:
        """What one turn of `for ... in value` gets."""
        if value.kind in (Kind.TENSOR, Kind.OUTPUTS):
            single = value.kind is Kind.OUTPUTS or value.single
            return tensor(value.name, single=single, depends=value.depends)
        if value.kind is Kind.SEQUENCE:
            return element_of(value)
        if value.kind in (Kind.HOST, Kind.SHAPE, Kind.ARRAY):
            return value
        return OTHER

    def _comprehension(self, node: Any, results: list[ast.expr]) -> list[Value]:
        env = dict(self.frame.env)
        for generator in node.generators:
            iterable = self.evaluate(generator.iter)
            self.look(generator)
            self.bind(generator.target, self.member(iterable))
            for condition in generator.ifs:
                self.evaluate(condition)
                self.narrow(condition, True)
            self.look_at_filters(generator)
        values = [self.evaluate(result) for result in results]
        self.frame.env = env
        return values

    def look_at_filters(self, generator: ast.comprehension) -> None:
        """Rules look at a comprehension twice: before its names are bound, and when its conditions are known."""
        if generator.ifs:
            self.look(generator)

    def on_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Value:
        return sequence(element=self._comprehension(node, [node.elt])[0])

    on_SetComp = on_ListComp
    on_GeneratorExp = on_ListComp

    def on_DictComp(self, node: ast.DictComp) -> Value:
        return Value(Kind.MAPPING, element=self._comprehension(node, [node.key, node.value])[1], depends=False)

    def on_Lambda(self, node: ast.Lambda) -> Value:
        function = Function(node, self.frame.source, self.frame.module, closure=self.frame)
        return Value(Kind.FUNCTION, ref=function)

    def on_JoinedStr(self, node: ast.JoinedStr) -> Value:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.evaluate(part)
        return constant("")

    def on_FormattedValue(self, node: ast.FormattedValue) -> Value:
        self.evaluate(node.value)
        if node.format_spec is not None:
            self.evaluate(node.format_spec)
        return OTHER
