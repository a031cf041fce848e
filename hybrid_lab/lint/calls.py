"""Abstract evaluation of calls: operators, tensor methods, children, built-ins, and functions of the source."""

from __future__ import annotations

import ast

from . import names
from .attributes import member, part_of
from .classes import AUTOGRAD_FUNCTION, Function, SourceClass, positional_arguments
from .functions import call_function, construct, keep_children, unknown_result
from .known_functions import call_known
from .operators import call_operator
from .targets import grow
from .values import NONE, OTHER, Kind, Value, element_of, sequence, tensor
from .walk import Walk, evaluate, value_of

_HOST_READS = {"asnumpy", "asscalar", "item", "tolist", "numpy"}


@value_of.register
def _(node: ast.Call, walk: Walk) -> Value:
    function = evaluate(walk, node.func)
    arguments: list[Value] = []
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            inner = evaluate(walk, argument.value)
            walk.values[id(argument)] = inner
            walk.look(argument)
            arguments += inner.items if inner.items is not None else [member(inner)] * _room(function, node)
        else:
            arguments.append(evaluate(walk, argument))
    keywords: dict[str, Value] = {}
    for keyword in node.keywords:
        value = evaluate(walk, keyword.value)
        if keyword.arg is not None:
            keywords[keyword.arg] = value
        else:
            keywords["**"] = value
    value = call(walk, node, function, arguments, keywords)
    return value.but(like=("call", id(node))) if value.is_tensor and value.like is None else value


def _room(function: Value, node: ast.Call) -> int:
    """How many arguments a function of the source takes for one `*args` in this call; 1 if it is not known."""
    if not isinstance(function.ref, Function):
        return 1
    bound = 1 if function.element is not None else 0
    return max(1, len(positional_arguments(function.ref.node)) - bound - (len(node.args) - 1))


def call(walk: Walk, node: ast.Call, function: Value, arguments: list[Value], keywords: dict[str, Value]) -> Value:
    """The return value of a call, by the kind of the function. keywords : a dict that is unpacked has the name `**`."""
    everything = [*arguments, *keywords.values()]
    match function.kind:
        case Kind.FUNCTION:
            assert isinstance(function.ref, Function)
            bound = [function.element] if function.element is not None else []
            return call_function(walk, function.ref, [*bound, *arguments], keywords)
        case Kind.OPERATORS:
            return call_operator(walk, node, str(function.ref), arguments, keywords)
        case Kind.METHOD:
            assert function.element is not None
            return call_method(walk, node, str(function.ref), function.element, arguments, keywords)
        case Kind.BLOCK:
            keep_children(walk, everything)
            return call_block(walk, function, everything)
        case Kind.CLASS:
            keep_children(walk, everything)
            cls = function.ref
            if isinstance(cls, SourceClass) and cls.is_block:
                return Value(Kind.BLOCK, ref=cls, site=id(node), depends=False)
            if isinstance(cls, SourceClass) and cls.is_autograd_function:
                return OTHER.but(ref=AUTOGRAD_FUNCTION)
            return OTHER
        case Kind.MODULE if function.ref == "builtins.map" and arguments and arguments[0].kind is not Kind.FUNCTION:
            members = [member(value) for value in arguments[1:]]
            return sequence(element=call(walk, node, arguments[0], members, {}))
        case Kind.MODULE if (found := _imported(walk, node, str(function.ref), everything)) is not None:
            return call(walk, node, found, arguments, keywords)
        case Kind.MODULE:
            return call_known(walk, node, str(function.ref), arguments, keywords)
    keep_children(walk, everything)
    return unknown_result(everything)


def _imported(walk: Walk, node: ast.Call, name: str, everything: list[Value]) -> Value | None:
    """A function of an imported module that is called with tensors, if its source is at hand."""
    if name.startswith(names.KNOWN_MODULES) or not any(value.has_tensor for value in everything):
        return None
    found = walk.frame.module.imported(name)
    if found is not None and walk.value(node.func).ref == name:
        walk.values[id(node.func)] = found
    return found


def call_method(
    walk: Walk, node: ast.Call, name: str, owner: Value, arguments: list[Value], keywords: dict[str, Value]
) -> Value:
    """The return value of `owner.name(...)`."""
    everything = [*arguments, *keywords.values()]
    match owner.kind:
        case Kind.TENSOR:
            return _tensor_method(walk, node, name, owner, arguments, keywords)
        case Kind.SELF:
            return _self_method(walk, node, name, owner, everything)
        case Kind.METHOD if owner.ref in ("params", "collect_params") and name in ("get", "get_constant"):
            return Value(Kind.PARAMETER)
        case Kind.BLOCK:
            return _block_method(walk, node, name, owner, everything)
        case Kind.PARAMETER if name == "data":
            return tensor(depends=False)
        case Kind.PARAMETER if name in ("list_data", "grad"):
            return tensor(depends=False) if walk.style == "forward" else Value(Kind.ARRAY, name=owner.name)
        case Kind.PARAMETER if name == "var":
            return tensor(depends=False)
        case Kind.SEQUENCE | Kind.MAPPING:
            return _container_method(walk, node, name, owner, arguments)
        case Kind.ARRAY:
            return Value(Kind.HOST) if name in _HOST_READS else owner
        case Kind.HOST:
            return owner
    keep_children(walk, everything)
    return unknown_result(everything)


def _tensor_method(
    walk: Walk, node: ast.Call, name: str, owner: Value, arguments: list[Value], keywords: dict[str, Value]
) -> Value:
    if name in _HOST_READS:
        return Value(Kind.HOST, name=owner.name)
    if not owner.single and name in ("append", "items", "values", "get", "pop", "keys"):
        return tensor(owner.name, single=False, depends=owner.depends)
    if name in ("wait_to_read", "wait_to_write", "attach_grad", "backward"):
        return OTHER
    result = call_operator(walk, node, name, [owner, *arguments], keywords)
    return result.but(fresh=False) if name == "reshape" else result  # a view


def _self_method(walk: Walk, node: ast.Call, name: str, owner: Value, everything: list[Value]) -> Value:
    keep_children(walk, everything)
    if name in ("register_child", "hybridize", "initialize", "name_scope", "cast", "apply"):
        if name == "register_child" and walk.constructing is not None and node.args:
            walk.constructing.added.append((node.args[0], walk.values.get(id(node.args[0]), OTHER)))
        return OTHER
    if name == "collect_params":
        return Value(Kind.METHOD, ref="collect_params", element=owner)
    return unknown_result(everything)


def _block_method(walk: Walk, node: ast.Call, name: str, owner: Value, everything: list[Value]) -> Value:
    keep_children(walk, everything)
    if name in ("add", "register_child"):
        if walk.constructing is not None and walk.is_block(owner):
            walk.constructing.added += [(arg, walk.values.get(id(arg), OTHER)) for arg in node.args]
        return OTHER
    if name in ("forward", "hybrid_forward"):
        return call_block(walk, owner, everything)
    return unknown_result(everything)


def _container_method(walk: Walk, node: ast.Call, name: str, owner: Value, arguments: list[Value]) -> Value:
    container = node.func.value if isinstance(node.func, ast.Attribute) else None
    if name in ("append", "insert", "add", "appendleft", "setdefault") and arguments and container is not None:
        grow(walk, container, owner, arguments[-1])
        return NONE if name != "setdefault" else part_of(owner, arguments[-1])
    if name in ("extend", "update") and arguments and container is not None:
        added = arguments[0] if arguments[0].members else None
        if added is not None:
            grow(walk, container, owner, element_of(added))
        elif arguments[0].kind is Kind.TENSOR:
            grow(walk, container, owner, member(arguments[0]))
        return NONE
    if name in ("pop", "popleft", "get"):
        return element_of(owner) if name != "get" else part_of(owner, element_of(owner))
    if name == "values":
        return sequence(element=part_of(owner, element_of(owner))) if owner.members else sequence(())
    if name == "items":
        return sequence(element=sequence((OTHER, part_of(owner, element_of(owner)))))
    if name == "copy":
        return owner.held_as(None)
    return OTHER


def call_block(walk: Walk, block: Value, everything: list[Value]) -> Value:
    """The output of a child: one tensor if its class is known to give one."""
    if not any(value.has_tensor for value in everything):
        return OTHER
    if block.like == "one output":
        return tensor(fresh=True)
    if isinstance(block.ref, SourceClass):
        return _source_block(walk, block.ref, everything)
    if isinstance(block.ref, str) and block.ref.rpartition(".")[2] in names.SINGLE_OUTPUT_LAYERS:
        if names.is_block_class(block.ref) is not None:
            return tensor(single=True, fresh=True)
    return tensor(single=False)


def _source_block(walk: Walk, cls: SourceClass, everything: list[Value]) -> Value:
    """Walk the child's own method quietly; its class is checked by itself."""
    construct(walk, cls)
    method = cls.find("hybrid_forward")
    operators = [Value(Kind.OPERATORS, ref="")] if method is not None else []
    method = method or cls.find("forward")
    if method is None or not cls.hybrid:
        return tensor(single=False)
    arguments = [Value(Kind.SELF, ref=cls), *operators, *everything]
    parameters = {name: tensor(name, depends=False) for name in cls.parameters}
    with walk.quietly():
        return _as_output(call_function(walk, method, arguments, parameters))


def _as_output(value: Value) -> Value:
    """The return value of a child, reduced to the facts that its caller can rely on."""
    if value.kind is Kind.TENSOR:
        return value.but(name=None, depends=True, like=None, thin=False, fresh=False)
    if value.kind is Kind.SEQUENCE and value.items is not None:
        return sequence(tuple(_as_output(item) for item in value.items))
    return tensor(single=False)
