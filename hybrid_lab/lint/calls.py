"""Abstract evaluation of calls: operators, tensor methods, children, built-ins, and functions of the source."""

from __future__ import annotations

import ast
from collections.abc import Hashable
from typing import Any

from ..diagnostics.rules.values import NONE, OTHER, Kind, Value, element_of, join, sequence, tensor
from . import names
from .classes import Function, Module, SourceClass
from .expressions import Expressions
from .frame import Frame

_DEPTH = 12
_HOST_READS = {"asnumpy", "asscalar", "item", "tolist", "numpy"}


class Calls(Expressions):
    """Evaluation of calls."""

    frames: list[Frame]
    summaries: dict[Any, Value]

    def on_Call(self, node: ast.Call) -> Value:
        function = self.evaluate(node.func)
        arguments: list[Value] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                inner = self.evaluate(argument.value)
                self.values[id(argument)] = inner
                self.look(argument)
                arguments += inner.items if inner.items is not None else [self.member(inner)]
            else:
                arguments.append(self.evaluate(argument))
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.evaluate(keyword.value)
            if keyword.arg is not None:
                keywords[keyword.arg] = value
            else:
                keywords["**"] = value
        return self.call(node, function, arguments, keywords)

    def call(self, node: ast.Call, function: Value, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        everything = [*arguments, *keywords.values()]
        match function.kind:
            case Kind.FUNCTION:
                assert isinstance(function.ref, Function)
                bound = [function.element] if function.element is not None else []
                return self.call_function(function.ref, [*bound, *arguments], keywords)
            case Kind.OPERATORS:
                return self.call_operator(node, str(function.ref), arguments, keywords)
            case Kind.METHOD:
                assert function.element is not None
                return self.call_method(node, str(function.ref), function.element, arguments, keywords)
            case Kind.BLOCK:
                self.keep_children(everything)
                return self.call_block(function, everything)
            case Kind.CLASS:
                self.keep_children(everything)
                cls = function.ref
                if isinstance(cls, SourceClass) and cls.is_block:
                    return Value(Kind.BLOCK, ref=cls, site=id(node), depends=False)
                return OTHER
            case Kind.MODULE:
                return self.call_known(node, str(function.ref), arguments, keywords)
        self.keep_children(everything)
        return self.unknown_result(everything)

    @staticmethod
    def unknown_result(everything: list[Value]) -> Value:
        """A function nothing is known about gives tensors, or lists of them, if it got some."""
        return tensor(single=False) if any(value.has_tensor for value in everything) else OTHER

    def keep_children(self, values: list[Value]) -> None:
        """Blocks handed to another block or function count as registered by it."""
        if self.constructing is None:
            return
        for value in values:
            if value.site is not None:
                self.constructing.registered.add(value.site)
            if value.kind in (Kind.SEQUENCE, Kind.MAPPING):
                self.keep_children(list(value.members))

    # Functions of the source

    def call_function(self, function: Function, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        everything = [*arguments, *keywords.values()]
        if self.constructing is None and self.frames[0].function is None and len(self.frames) == 1:
            return self.unknown_result(everything)  # module level: what a call returns does not matter there
        active = [frame.function for frame in self.frames]
        if active.count(function) > 1 or len(self.frames) > _DEPTH or self.budget < 0:
            return self.unknown_result(everything)
        key: Any = None
        on_self = any(value.kind is Kind.SELF for value in everything)
        if function.closure is None and not (on_self and self.constructing is not None):
            given = tuple(_coarse(value) for value in arguments)
            named = tuple((name, _coarse(value)) for name, value in sorted(keywords.items()))
            key = (function, given, named, bool(self.quiet))
            if key in self.summaries:
                return self.summaries[key]
        value = self.enter(function, arguments, keywords)
        if key is not None:
            self.summaries[key] = value
        return value

    def enter(
        self,
        function: Function,
        arguments: list[Value],
        keywords: dict[str, Value],
        me: Value | None = None,
        unknown_arguments: bool = False,
    ) -> Value:
        """Walk a function with these arguments and return what it returns."""
        env = self._bound(function, [me, *arguments] if me is not None else arguments, keywords)
        frame = Frame(
            function,
            function.module,
            function.source,
            env,
            closure=function.closure,
            owner=function.owner or self.frame.owner,
        )
        self.frames.append(frame)
        if isinstance(function.node, ast.Lambda):
            result = self.evaluate(function.node.body)
        else:
            self.run(function.node.body)
            returned = [value for _, value, _ in frame.returns]
            result = returned[0] if returned else NONE
            for value in returned[1:]:
                result = join(result, value)
        self.frames.pop()
        return result

    def _bound(self, function: Function, arguments: list[Value], keywords: dict[str, Value]) -> dict[str, Value]:
        signature = function.node.args
        positional = [*signature.posonlyargs, *signature.args]
        if function.kind == "class" and arguments:
            arguments = [OTHER, *arguments[1:]]
        env: dict[str, Value] = {}
        for argument, default in zip(reversed(positional), reversed(signature.defaults), strict=False):
            env[argument.arg] = _default(default)
        for argument, keyword_default in zip(signature.kwonlyargs, signature.kw_defaults, strict=True):
            env[argument.arg] = _default(keyword_default) if keyword_default is not None else OTHER
        for argument, value in zip(positional, arguments, strict=False):
            env[argument.arg] = value
        names_taken = {argument.arg for argument in [*positional, *signature.kwonlyargs]}
        extra = [value for name, value in keywords.items() if name not in names_taken]
        env |= {name: value for name, value in keywords.items() if name in names_taken}
        for argument in positional:
            env.setdefault(argument.arg, OTHER)
        if signature.vararg is not None:
            env[signature.vararg.arg] = sequence(tuple(arguments[len(positional) :]))
        if signature.kwarg is not None:
            element = element_of(sequence(tuple(extra))) if extra else None
            env[signature.kwarg.arg] = Value(Kind.MAPPING, element=element, depends=False)
        return env

    def run(self, body: Any) -> bool:
        raise NotImplementedError

    # Operators and methods of tensors

    def call_operator(self, node: ast.Call, name: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        everything = [*arguments, *keywords.values()]
        depends = any(input_in(value) for value in everything)
        short = name.removeprefix("np.").removeprefix("npx.")
        if short in ("contrib.foreach", "contrib.while_loop", "contrib.cond", "foreach", "while_loop", "cond"):
            return self._control_flow(short.removeprefix("contrib."), arguments, keywords)
        if short in names.PERHAPS_MULTIPLE:
            return tensor(single=False, depends=depends)
        if short in names.MULTIPLE_OUTPUTS or (short == "topk" and _literal(node, "ret_typ") == "both"):
            outputs = _literal(node, "num_outputs", 1 if short != "split_v2" else None)
            if outputs == 1 and short in ("split", "SliceChannel", "slice_channel"):
                return tensor(depends=depends)
            return Value(Kind.OUTPUTS, depends=depends)
        if short in ("BatchNorm", "LayerNorm") and _literal(node, "output_mean_var"):
            return Value(Kind.OUTPUTS, depends=depends)
        if short.startswith("contrib.") and short[8:9].isupper():
            return tensor(single=False, depends=depends)
        first = next((value for value in everything if value.kind is Kind.TENSOR), None)
        like = first.like if first is not None and short in names.ELEMENTWISE else None
        if short in names.LIKE_SECOND:
            second = arguments[1] if len(arguments) > 1 else keywords.get("rhs", OTHER)
            like = second.like
        return tensor(depends=depends, like=like, fresh=True)

    def _control_flow(self, name: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        """foreach(body, data, init_states), while_loop(cond, func, loop_vars), cond(pred, then_func, else_func)."""
        spelled = {
            "foreach": ("body", "data", "init_states"),
            "while_loop": ("cond", "func", "loop_vars", "max_iterations"),
            "cond": ("pred", "then_func", "else_func"),
        }[name]
        given = dict(zip(spelled, arguments, strict=False)) | keywords
        if name == "foreach":
            data, states = given.get("data", OTHER), given.get("init_states", OTHER)
            self._apply(given.get("body", OTHER), [data, states])
            return sequence((tensor(single=False), states if states.members else tensor(single=False)))
        if name == "while_loop":
            variables = given.get("loop_vars", OTHER)
            inputs = list(variables.items) if variables.items is not None else [self.member(variables)]
            self._apply(given.get("cond", OTHER), inputs)
            self._apply(given.get("func", OTHER), inputs)
            return sequence((tensor(single=False), variables if variables.members else tensor(single=False)))
        results = [self._apply(given.get(branch, OTHER), []) for branch in ("then_func", "else_func")]
        joined = join(*results)
        return joined if joined.has_tensor else tensor(single=False)

    def _apply(self, function: Value, arguments: list[Value]) -> Value:
        if function.kind is Kind.FUNCTION and isinstance(function.ref, Function):
            bound = [function.element] if function.element is not None else []
            return self.call_function(function.ref, [*bound, *arguments], {})
        return self.unknown_result(arguments)

    def call_method(
        self, node: ast.Call, name: str, owner: Value, arguments: list[Value], keywords: dict[str, Value]
    ) -> Value:
        everything = [*arguments, *keywords.values()]
        match owner.kind:
            case Kind.TENSOR | Kind.OUTPUTS:
                return self._tensor_method(node, name, owner, arguments, keywords)
            case Kind.SELF:
                return self._self_method(node, name, owner, everything)
            case Kind.METHOD if owner.ref in ("params", "collect_params") and name in ("get", "get_constant"):
                return Value(Kind.PARAMETER)
            case Kind.BLOCK:
                return self._block_method(node, name, owner, everything)
            case Kind.PARAMETER if name == "data":
                return tensor(depends=False)
            case Kind.PARAMETER if name in ("list_data", "grad"):
                return tensor(depends=False) if self.style == "forward" else Value(Kind.ARRAY, name=owner.name)
            case Kind.PARAMETER if name == "var":
                return tensor(depends=False)
            case Kind.SEQUENCE | Kind.MAPPING:
                return self._container_method(node, name, owner, arguments)
            case Kind.ARRAY:
                return Value(Kind.HOST) if name in _HOST_READS else owner
            case Kind.HOST:
                return owner
        self.keep_children(everything)
        return self.unknown_result(everything)

    def _tensor_method(
        self, node: ast.Call, name: str, owner: Value, arguments: list[Value], keywords: dict[str, Value]
    ) -> Value:
        if name in _HOST_READS:
            return Value(Kind.HOST, name=owner.name)
        if (
            owner.kind is Kind.OUTPUTS
            or not owner.single
            and name in ("append", "items", "values", "get", "pop", "keys")
        ):
            return tensor(owner.name, single=False, depends=owner.depends)
        if name in ("wait_to_read", "wait_to_write", "attach_grad", "backward"):
            return OTHER
        result = self.call_operator(node, name, [owner, *arguments], keywords)
        return result.but(fresh=False) if name == "reshape" else result  # a view

    def _self_method(self, node: ast.Call, name: str, owner: Value, everything: list[Value]) -> Value:
        self.keep_children(everything)
        if name in ("register_child", "hybridize", "initialize", "name_scope", "cast", "apply"):
            if name == "register_child" and self.constructing is not None and node.args:
                self.constructing.added.append((node.args[0], self.values.get(id(node.args[0]), OTHER)))
            return OTHER
        if name == "collect_params":
            return Value(Kind.METHOD, ref="collect_params", element=owner)
        return self.unknown_result(everything)

    def _block_method(self, node: ast.Call, name: str, owner: Value, everything: list[Value]) -> Value:
        self.keep_children(everything)
        if name in ("add", "register_child"):
            if self.constructing is not None and self.is_block(owner):
                self.constructing.added += [(arg, self.values.get(id(arg), OTHER)) for arg in node.args]
            return OTHER
        if name in ("forward", "hybrid_forward"):
            return self.call_block(owner, everything)
        return self.unknown_result(everything)

    def is_block(self, value: Value) -> bool | None:
        raise NotImplementedError

    def _container_method(self, node: ast.Call, name: str, owner: Value, arguments: list[Value]) -> Value:
        container = node.func.value if isinstance(node.func, ast.Attribute) else None
        if name in ("append", "insert", "add", "appendleft", "setdefault") and arguments and container is not None:
            self.grow(container, owner, arguments[-1])
            return NONE
        if name in ("extend", "update") and arguments and container is not None:
            added = arguments[0] if arguments[0].members else None
            if added is not None:
                self.grow(container, owner, element_of(added))
            elif arguments[0].kind in (Kind.TENSOR, Kind.OUTPUTS):
                self.grow(container, owner, self.member(arguments[0]))
            return NONE
        if name in ("pop", "popleft", "get"):
            return element_of(owner)
        if name == "values":
            return sequence(element=element_of(owner)) if owner.members else sequence(())
        if name == "items":
            return sequence(element=sequence((OTHER, element_of(owner))))
        if name == "copy":
            return owner
        return OTHER

    def grow(self, container: ast.expr, owner: Value, value: Value) -> None:
        raise NotImplementedError

    def call_block(self, block: Value, everything: list[Value]) -> Value:
        """The output of a child: one tensor where its class is known to give one."""
        if not any(value.has_tensor for value in everything):
            return OTHER
        if block.like == "one output":
            return tensor(fresh=True)
        if isinstance(block.ref, SourceClass):
            return self._source_block(block.ref, everything)
        if isinstance(block.ref, str) and block.ref.rpartition(".")[2] in names.SINGLE_OUTPUT_LAYERS:
            if names.is_block_class(block.ref) is not None:
                return tensor(single=True, fresh=True)
        return tensor(single=False)

    def _source_block(self, cls: SourceClass, everything: list[Value]) -> Value:
        """Walk the child's own method, without remarks: it is checked as a class of its own."""
        self.construct(cls)
        method = cls.find("hybrid_forward")
        operators = [Value(Kind.OPERATORS, ref="")] if method is not None else []
        method = method or cls.find("forward")
        if method is None or not cls.hybrid:
            return tensor(single=False)
        self.quiet += 1
        me = Value(Kind.SELF, ref=cls)
        parameters = {name: tensor(name, depends=False) for name in cls.parameters}
        result = self.call_function(method, [me, *operators, *everything], parameters)
        self.quiet -= 1
        return _as_output(result)

    def call_known(self, node: ast.Call, name: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        """A call of a function that is known by its dotted name."""
        raise NotImplementedError


def _default(node: ast.expr) -> Value:
    if isinstance(node, ast.Constant):
        return NONE if node.value is None else Value(Kind.CONSTANT, ref=(type(node.value).__name__, node.value))
    if isinstance(node, (ast.List, ast.Tuple, ast.Dict)):
        return sequence(()) if not isinstance(node, ast.Dict) else Value(Kind.MAPPING, depends=False)
    return OTHER


def _coarse(value: Value) -> Hashable:
    """What of an argument decides what a function returns: literals count by their type alone."""
    return value.ref[0] if value.kind is Kind.CONSTANT and isinstance(value.ref, tuple) else value


def input_in(value: Value) -> bool:
    """Whether an input of the block takes part in a value."""
    if value.kind in (Kind.TENSOR, Kind.OUTPUTS):
        return value.depends
    return any(input_in(member) for member in value.members)


def _as_output(value: Value) -> Value:
    """What a caller may rely on of a child's return value."""
    if value.kind is Kind.TENSOR:
        return value.but(name=None, depends=True, like=None, fresh=False)
    if value.kind is Kind.SEQUENCE and value.items is not None:
        return sequence(tuple(_as_output(item) for item in value.items))
    return tensor(single=False)


def _literal(node: ast.Call, keyword: str, position: int | None = None) -> Any:
    """A literal argument, by keyword or position; None if absent or computed."""
    found = next((k.value for k in node.keywords if k.arg == keyword), None)
    if found is None and position is not None and len(node.args) > position:
        found = node.args[position]
    return found.value if isinstance(found, ast.Constant) else None


__all__ = ["Calls", "Module"]
