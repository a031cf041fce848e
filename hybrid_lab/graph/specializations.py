"""Specializations of a graph for its calls; another batch reuses the graphs of an earlier one, without the passes.

    specialize_call(specializations, graph, shapes with a batch of 64, ...)      runs the passes, on symbolic sizes
    specialize_call(specializations, graph, shapes with a batch of 37, ...)      the same graphs, with 37 in the shapes

The first two sizes of each data input (batch and time, in either layout) are symbols. While the passes run, every
comparison of symbols is recorded as a guard (ops/framework/sizes.py). A later call whose sizes satisfy the guards gets
the same graphs, bound to its sizes; only the minimum cut of `split` is computed again, because it weighs bytes. If a
guard fails, the passes run again, and their graphs are kept beside the earlier ones. If a rule of an operator or a pass
needs a size as a number (`NeedsNumber`), that size is no symbol in further calls of this kind, and each of its values
has graphs of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.graph.dump import is_dumping
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.graph.specialized import Specialized
from hybrid_lab.ops.framework.precision import Precision
from hybrid_lab.ops.framework.sizes import Guards, NeedsNumber
from hybrid_lab.ops.framework.types import Shape

#: How many specializations with symbolic sizes are kept for one kind of call; the latest is tried first.
MAX_SPECIALIZATIONS = 8
#: How many kinds of call are kept.
MAX_KINDS = 64
#: The leading sizes of a data input that may differ from call to call.
LEADING = 2
#: (data input, axis)
Axis = tuple[int, int]


#: By the kind of call (graph, mode, dtypes, wanted gradients, shapes of the parameters): the graphs, of which those
#: used last come first, and, for each leading size that a rule needs as a number, (data input, axis) -> the reason.
Specializations = dict[Hashable, tuple[list[Specialized], dict[Axis, str]]]


def specialize_call(
    specializations: Specializations,
    graph: Graph,
    shapes: Sequence[Shape],
    dtypes: Sequence[np.dtype],
    train: bool,
    wrt: Sequence[int] = (),
    num_data: int = 0,
    precision: Precision | None = None,
    heads: Collection[int] | None = None,
) -> Specialized:
    """As `specialize.specialize`, with the graphs of earlier calls where their guards hold.

    specializations : of earlier calls; the specialization of this call is added
    num_data : the number of data inputs, which come first; the other inputs are parameters
    """
    ranks = tuple(map(len, shapes[:num_data]))
    wanted = None if heads is None else frozenset(heads)
    key = graph, ranks, tuple(shapes[num_data:]), tuple(dtypes), train, tuple(wrt), num_data, precision, wanted
    known, numbers = specializations.setdefault(key, ([], {}))
    if len(specializations) > MAX_KINDS:
        del specializations[next(iter(specializations))]
    for each in known:
        special = None if is_dumping() else each.bind(shapes)
        if special is not None:
            known.remove(each)
            known.insert(0, each)
            return special
    axes = [(index, axis) for index in range(num_data) for axis in range(len(shapes[index][:LEADING]))]
    # Printed passes show the sizes of each call.
    while symbols := [axis for axis in axes if axis not in numbers and not is_dumping()]:
        try:
            marked = _with_symbols(shapes, symbols)
            latest = specialize(graph, marked, dtypes, train, wrt, num_data, precision=precision, heads=heads)
        except NeedsNumber as need:
            numbers.update({symbols[number]: _reason(need, *symbols[number]) for number in need.symbols})
        except HybridLabError:  # the call is wrong: without symbols below, the error names the sizes
            break
        else:
            known.insert(0, replace(latest, needs_numbers=tuple(dict.fromkeys(numbers.values()))))
            del known[MAX_SPECIALIZATIONS:]
            special = known[0].bind(shapes)
            assert special is not None
            return special
    special = specialize(graph, shapes, dtypes, train, wrt, num_data, precision=precision, heads=heads)
    return replace(special, needs_numbers=tuple(dict.fromkeys(numbers.values())))


def _with_symbols(shapes: Sequence[Shape], symbols: Sequence[Axis]) -> list[Shape]:
    """The shapes with new symbols in some places."""
    guards, marked = Guards(), [list[Any](shape) for shape in shapes]
    for index, axis in symbols:
        marked[index][axis] = guards.symbol(shapes[index][axis])
    return [tuple(shape) for shape in marked]


def _reason(need: NeedsNumber, index: int, axis: int) -> str:
    return f"{need} (axis {axis} of input {index}); each value of it compiles anew"
