"""NumPy functions and the operators of F that stand for them inside a network."""

import ast
from collections.abc import Callable

#: Same name, same meaning, one tensor.
ELEMENTWISE = frozenset({
    "exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "cbrt", "square", "abs", "sign", "floor", "ceil", "rint",
    "trunc", "fix", "sin", "cos", "tan", "sinh", "cosh", "tanh", "arcsin", "arccos", "arctan", "arcsinh", "arccosh",
    "arctanh", "negative", "reciprocal", "degrees", "radians", "zeros_like", "ones_like",
})  # fmt: skip

#: NumPy's name -> the operator's.
SAME_OPERATOR = {
    "maximum": "broadcast_maximum", "minimum": "broadcast_minimum", "concatenate": "concat", "stack": "stack",
    "sum": "sum", "mean": "mean", "max": "max", "min": "min", "prod": "prod", "dot": "dot", "matmul": "dot",
    "where": "where", "clip": "clip", "transpose": "transpose", "reshape": "reshape", "expand_dims": "expand_dims",
    "squeeze": "squeeze", "argmax": "argmax", "argmin": "argmin", "add": "broadcast_add", "subtract": "broadcast_sub",
    "multiply": "broadcast_mul", "divide": "broadcast_div", "true_divide": "broadcast_div", "mod": "broadcast_mod",
    "power": "broadcast_power", "hypot": "broadcast_hypot", "absolute": "abs", "fabs": "abs", "amax": "max",
    "amin": "min", "tile": "tile", "repeat": "repeat", "flip": "flip",
    "take": "take", "greater": "broadcast_greater", "less": "broadcast_lesser", "equal": "broadcast_equal",
    "greater_equal": "broadcast_greater_equal", "less_equal": "broadcast_lesser_equal",
    "not_equal": "broadcast_not_equal", "logical_not": "logical_not", "logical_and": "broadcast_logical_and",
    "logical_or": "broadcast_logical_or", "swapaxes": "swapaxes", "nansum": "nansum",
}  # fmt: skip

#: Functions of a list of tensors -> what their operator calls the axis.
JOINING = {"concatenate": "dim", "stack": "axis"}
_MAKING = frozenset({"array", "asarray", "asanyarray", "ascontiguousarray", "copy"})


def operator_for(function: str) -> str | None:
    """The operator of F for a NumPy function, or None."""
    return SAME_OPERATOR.get(function, function if function in ELEMENTWISE else None)


def instead_of(function: str, call: ast.Call, tensor: str, text: Callable[[ast.AST], str], operators: str = "F") -> str:
    """What to write instead of a NumPy function given a tensor: `F.concat(x, y, dim=1)` for
    `np.concatenate([x, y], axis=1)`.

    call : the call in the source; text(node) : the source of a node; tensor : what it was given; operators : the name
    of F in the method
    """
    if function in _MAKING:
        other = f"{operators}.cast({tensor}, dtype='float32') for another type"
        return f"{tensor} itself, a tensor already      or      {other}"
    operator = operator_for(function)
    if operator is None:
        return f"no operator of {operators} is like np.{function}: do it with others, or in a plain Block"
    if any(isinstance(argument, ast.Starred) for argument in call.args) or any(not k.arg for k in call.keywords):
        return f"{operators}.{operator}(...)"
    arguments = [text(argument) for argument in call.args]
    keywords = [(keyword.arg, text(keyword.value)) for keyword in call.keywords]
    if function in JOINING:
        if call.args and isinstance(call.args[0], ast.List | ast.Tuple):
            parts = [text(part) for part in call.args[0].elts]
        else:
            parts = [f"*{part}" for part in arguments[:1]]
        axis = next((value for key, value in keywords if key == "axis"), arguments[1] if len(arguments) > 1 else "0")
        return f"{operators}.{operator}({', '.join(parts)}, {JOINING[function]}={axis})"
    arguments += [f"{key}={value}" for key, value in keywords if key not in ("dtype", "out", "casting")]
    return f"{operators}.{operator}({', '.join(arguments)})"
