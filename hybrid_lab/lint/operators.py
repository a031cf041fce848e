"""Calls of operators, control flow among them: how many outputs they give, and of which shape."""

from __future__ import annotations

import ast
from collections.abc import Hashable

from . import names
from .attributes import member
from .classes import Function
from .functions import call_function, input_in, unknown_result
from .values import OTHER, Kind, Value, join, sequence, tensor
from .walk import Walk


def call_operator(walk: Walk, node: ast.Call, name: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
    """The return value of an operator. name : its path below F"""
    everything = [*arguments, *keywords.values()]
    short = name.removeprefix("np.").removeprefix("npx.")
    depends = any(input_in(value) for value in everything)
    if not depends and short not in names.CREATION and not short.startswith("random"):
        depends = [each.but(held=None) for each in arguments[:1]] == [OTHER]  # a tensor, of which nothing is known
    if short == "arange" and _literal(node, "infer_range"):
        return tensor()  # it gets the shape of its partner
    implicit = len(arguments) - len(node.args)  # the tensor, if a method of it is called
    if short in ("contrib.foreach", "contrib.while_loop", "contrib.cond", "foreach", "while_loop", "cond"):
        return _control_flow(walk, short.removeprefix("contrib."), arguments, keywords)
    first = next((value for value in everything if value.kind is Kind.TENSOR), OTHER)
    if short in names.PERHAPS_MULTIPLE:
        return tensor(single=False, depends=depends)
    if short in names.MULTIPLE_OUTPUTS or (short == "topk" and _literal(node, "ret_typ") == "both"):
        outputs = _literal(node, "num_outputs", 1 - implicit if short != "split_v2" else None)
        part = tensor(depends=depends, thin=first.thin)
        one = outputs == 1 and short in ("split", "SliceChannel", "slice_channel")
        return part if one else sequence(element=part)
    if short in ("BatchNorm", "LayerNorm") and _literal(node, "output_mean_var"):
        return sequence(element=tensor(depends=depends))
    if short.startswith("contrib.") and short[8:9].isupper():
        return tensor(single=False, depends=depends)
    if short in names.LIKE_SECOND:
        second = arguments[1] if len(arguments) > 1 else keywords.get("rhs", OTHER)
        return tensor(depends=depends, like=second.like, thin=second.thin, fresh=True)
    if short in names.ELEMENTWISE:
        return tensor(depends=depends, like=first.like, thin=first.thin, fresh=True)
    return tensor(depends=depends, thin=_thin(node, short, first, implicit), fresh=True)


def _thin(node: ast.Call, name: str, first: Value, implicit: int) -> Hashable:
    """The `thin` of an operator's result."""
    if name in names.REDUCTIONS:
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        axis, keepdims = given.get("axis"), given.get("keepdims")
        some_axes = axis is not None or len(node.args) > 1 - implicit
        kept = isinstance(keepdims, ast.Constant) and keepdims.value is True
        # Without axes the result has one element.
        return ("of", first.like) if some_axes and not kept and first.like is not None else kept or not some_axes
    if name in names.REARRANGING:
        return first.thin
    return name == "expand_dims" or (name == "reshape" and _has_one(node, 1 - implicit))


def _control_flow(walk: Walk, name: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
    """foreach(body, data, init_states), while_loop(cond, func, loop_vars), cond(pred, then_func, else_func)."""
    spelled = {
        "foreach": ("body", "data", "init_states"),
        "while_loop": ("cond", "func", "loop_vars", "max_iterations"),
        "cond": ("pred", "then_func", "else_func"),
    }[name]
    arguments_by_name = dict(zip(spelled, arguments, strict=False)) | keywords
    if name == "foreach":
        data, states = arguments_by_name.get("data", OTHER), arguments_by_name.get("init_states", OTHER)
        apply(walk, arguments_by_name.get("body", OTHER), [data, states])
        return sequence((tensor(single=False), states if states.members else tensor(single=False)))
    if name == "while_loop":
        variables = arguments_by_name.get("loop_vars", OTHER)
        inputs = list(variables.items) if variables.items is not None else [member(variables)]
        apply(walk, arguments_by_name.get("cond", OTHER), inputs)
        apply(walk, arguments_by_name.get("func", OTHER), inputs)
        return sequence((tensor(single=False), variables if variables.members else tensor(single=False)))
    results = [apply(walk, arguments_by_name.get(branch, OTHER), []) for branch in ("then_func", "else_func")]
    joined = join(*results)
    return joined if joined.has_tensor else tensor(single=False)


def apply(walk: Walk, function: Value, arguments: list[Value]) -> Value:
    """The return value of a function that was passed as an argument."""
    if function.kind is Kind.FUNCTION and isinstance(function.ref, Function):
        bound = [function.element] if function.element is not None else []
        return call_function(walk, function.ref, [*bound, *arguments], {})
    return unknown_result(arguments)


def _has_one(node: ast.Call, position: int) -> bool:
    """Whether a shape given to a reshape, by keyword or from a position on, has a 1 in it."""
    given = [keyword.value for keyword in node.keywords if keyword.arg == "shape"] or node.args[position:]
    sizes = [size for part in given for size in (part.elts if isinstance(part, ast.Tuple | ast.List) else [part])]
    return any(isinstance(size, ast.Constant) and size.value == 1 for size in sizes)


def _literal(node: ast.Call, keyword: str, position: int | None = None) -> object:
    """A literal argument, by keyword or position; None if absent or computed."""
    argument = next((k.value for k in node.keywords if k.arg == keyword), None)
    if argument is None and position is not None and len(node.args) > position:
        argument = node.args[position]
    return argument.value if isinstance(argument, ast.Constant) else None
