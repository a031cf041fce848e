"""Checks of rules about objects that each call reads on: iterators and generators of random numbers that outlive the
call.
"""

import ast
import re
from collections.abc import Iterator

from ..values import GENERATOR, ITERATOR, Kind
from ..walk import Mark, Walk, check
from .mutation import is_kept

_READING = (
    "__next__", "close", "read", "readline", "readlines", "seek", "send", "throw", "write", "writelines", "truncate",
)  # fmt: skip
#: Functions of Python that read an iterator to its end, or hand it on.
_CONSUMING = {
    "all", "any", "dict", "enumerate", "filter", "frozenset", "list", "map", "max", "min", "next", "set", "sorted",
    "sum", "tuple", "zip",
}  # fmt: skip
_DRAWING = {
    "beta", "binomial", "bytes", "choice", "choices", "exponential", "gamma", "gauss", "getrandbits", "integers",
    "multinomial", "multivariate_normal", "normal", "normalvariate", "permutation", "permuted", "poisson", "rand",
    "randint", "randn", "random", "random_sample", "randrange", "sample", "shuffle", "standard_normal", "triangular",
    "uniform",
}  # fmt: skip
_CALLED_SO = re.compile(r"(^|[._])(rng|rand|random|random_state|randomstate|generator|prng)\d*$", re.IGNORECASE)


@check("HL178")
def read_on(
    node: ast.Call | ast.For | ast.AsyncFor | ast.comprehension | ast.Starred | ast.YieldFrom | ast.Assign, walk: Walk
) -> Iterator[Mark]:
    for iterator in _read_here(node, walk):
        text = walk.text(iterator)
        rewrite = "pass what it gives as an argument: net(x, next(it))"
        place = iterator if isinstance(node, ast.comprehension) else node
        place = node.iter if isinstance(node, ast.For | ast.AsyncFor) else place
        yield Mark(place, message=f"`{text}` is an iterator, and each call reads it on.", rewrite=rewrite)


def _read_here(node: ast.AST, walk: Walk) -> Iterator[ast.expr]:
    """The iterators that outlive the call and that a piece of syntax reads on."""
    if isinstance(node, ast.Call):
        name = walk.dotted(node.func) or ""
        if name == "builtins.next" and node.args:
            asked = node.args[0]
            # Only an iterator has a next member, whatever else is known of it.
            written = isinstance(asked, ast.Name | ast.Attribute | ast.Subscript)
            if written and walk.value(asked).kind is not Kind.TENSOR and is_kept(asked, walk):
                yield asked
                return
        if isinstance(node.func, ast.Attribute) and node.func.attr in _READING:
            owner = node.func.value
            if _is_kept_iterator(owner, walk) or (node.func.attr == "__next__" and is_kept(owner, walk)):
                yield owner
        reads = name.removeprefix("builtins.") in _CONSUMING or name.startswith(("itertools.", "functools.reduce"))
        read = node.args if reads else []
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        read = [node.iter]
    elif isinstance(node, ast.Assign):
        unpacks = any(isinstance(target, ast.Tuple | ast.List) for target in node.targets)
        read = [node.value] if unpacks else []
    else:
        assert isinstance(node, ast.Starred | ast.YieldFrom)
        read = [node.value]
    yield from (each for each in read if _is_kept_iterator(each, walk))


def _is_kept_iterator(node: ast.expr, walk: Walk) -> bool:
    value = walk.value(node)
    return value.ref == ITERATOR and value.held is not None


@check("HL172")
def kept_generator(node: ast.Call, walk: Walk) -> Iterator[Mark]:
    """Draws from a generator that the Block or the module has: `self.rng.random()`."""
    if not isinstance(node.func, ast.Attribute) or not is_kept(node.func.value, walk):
        return
    owner = walk.value(node.func.value)
    named = owner.kind is Kind.OTHER and owner.ref is None and _CALLED_SO.search(walk.text(node.func.value))
    if owner.ref == GENERATOR or (named and node.func.attr in _DRAWING):
        yield Mark(node, call=f"{walk.text(node.func)}()")
