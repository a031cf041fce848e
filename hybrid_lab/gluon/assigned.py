"""`block._cached_graph`, read and assigned: a HybridBlock's graph as MXNet has it, (input Symbols, output Symbol)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.errors import HybridLabError, SettingError
from hybrid_lab.graph.node import Value
from hybrid_lab.hybridize.neutral import NeutralGraph
from hybrid_lab.hybridize.structure import LEAF, Spec, count_leaves
from hybrid_lab.symbol.symbol import Group, Symbol

if TYPE_CHECKING:
    from hybrid_lab.gluon.parameter import Parameter
    from hybrid_lab.hybridize.block import Hybrid, Tree

_DATA = re.compile(r"data(\d*)")


def as_symbols(neutral: NeutralGraph | None) -> tuple[Any, ...]:
    """MXNet's form of a graph: (Symbols of the inputs, Symbol of the outputs); () if there is none."""
    if neutral is None:
        return ()
    inputs = [Symbol((value,)) for value in neutral.graph.inputs[: neutral.num_data]]
    return inputs, Symbol(tuple(neutral.graph.outputs))


def graph_of_symbols(block: Hybrid, assigned: object, known: NeutralGraph | None) -> NeutralGraph | None:
    """The graph that a Symbol, or a tuple of input Symbols and Symbol, stands for; None for an empty tuple.

    known : a graph of the Block, whose structure of arguments and results is taken over
    The inputs of a Symbol alone are its variables that are no parameters of the Block: `data`, or `data0`, `data1` ...
    Raises SettingError for anything else, HybridLabError for a variable that is neither an input nor a parameter.
    """
    if assigned is None or (isinstance(assigned, (tuple, list)) and not assigned):
        return None
    inputs, outputs = assigned if isinstance(assigned, (tuple, list)) and len(assigned) == 2 else (None, assigned)
    if isinstance(outputs, (tuple, list)) and outputs and all(isinstance(each, Symbol) for each in outputs):
        outputs = Group(outputs)
    if not isinstance(outputs, Symbol):
        kind = type(assigned).__name__
        raise SettingError(f"{block.name}._cached_graph takes a Symbol, or (input Symbols, Symbol), not a {kind}")
    variables = {value.node.name: value for value in outputs.graph().inputs}
    states = set(outputs.list_auxiliary_states())
    if inputs is None:
        own = parameters_by_names(block, list(variables))
        data = [name for name in variables if name not in own and name not in states and not _is_parameter(name)]
        data.sort(key=_place_of_data)
    else:
        data = _names_of_inputs(block, inputs)
        own = parameters_by_names(block, [name for name in variables if name not in data])
    strangers = [name for name in variables if name not in own and name not in data]
    if strangers:
        raise HybridLabError(
            f"the graph reads {', '.join(strangers)}, which {block.name} does not have as parameters; give the inputs "
            f"too, {block.name}._cached_graph = ([sym.var('data')], symbol), or load the file with its values by "
            "gluon.SymbolBlock.imports"
        )
    owned = [name for name in variables if name in own]
    values = [variables[name] if name in variables else _unread(name) for name in data]
    graph = outputs.graph([*values, *(variables[name] for name in owned)])
    in_spec, out_spec = _structure(known, len(data), len(outputs.outputs))
    return NeutralGraph(graph, in_spec, out_spec, tuple(own[name] for name in owned), source="file")


def _structure(known: NeutralGraph | None, inputs: int, outputs: int) -> tuple[Spec, Spec]:
    """The structure of arguments and results. MXNet's form has no structure: it is taken from a known graph of the
    Block with as many tensors; else the tensors form a flat sequence.
    """
    if known is not None and known.num_data == inputs and count_leaves(known.out_spec) == outputs:
        return known.in_spec, known.out_spec
    return ("tuple", (LEAF,) * inputs), LEAF if outputs == 1 else ("list", (LEAF,) * outputs)


def _names_of_inputs(block: Hybrid, inputs: object) -> list[str]:
    symbols = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    names = [each.name for each in symbols if isinstance(each, Symbol) and len(each.outputs) == 1]
    if len(names) != len(symbols) or len(set(names)) != len(names):
        raise SettingError(f"{block.name}._cached_graph takes Symbols of variables with different names as inputs")
    return [str(name) for name in names]


def _unread(name: str) -> Value:
    """The variable of an input that the graph does not read."""
    from hybrid_lab.symbol import var

    return var(name).outputs[0]


def _is_parameter(name: str) -> bool:
    """Whether a name ends as parameters' names do."""
    return name.endswith(("_weight", "_bias", "_gamma", "_beta")) or "_constant" in name


def _place_of_data(name: str) -> tuple[int, int]:
    """The number of `data1`; other names stay in their order, at the end."""
    found = _DATA.fullmatch(name)
    return (1, 0) if found is None else (0, int(found[1] or 0))


def parameters_by_names(block: Tree, names: Sequence[str]) -> dict[str, Parameter]:
    """The parameters of a Block that variables of a graph mean, by the variables' names.

    A process that makes a model again may give its Blocks other numbers: `dense0_weight` is `dense4_weight` there. So a
    name that the Block lacks refers to the parameter at the same place among the names that differ in numbers only.
    """
    own = dict(block.collect_params().items())
    found = {name: own[name] for name in names if name in own}
    theirs, ours = _by_form(set(names) - found.keys()), _by_form(own.keys() - found.keys())
    for form, variables in theirs.items():
        if len(variables) == len(ours.get(form, ())):
            found |= {name: own[mine] for name, mine in zip(variables, ours[form], strict=True)}
    return found


def _by_form(names: Iterable[str]) -> dict[str, list[str]]:
    """Names by their form without numbers, each list in the order of the numbers."""
    found: dict[str, list[str]] = {}
    for name in sorted(names, key=natural):
        found.setdefault(re.sub(r"\d+", "0", name), []).append(name)
    return found


def natural(name: str) -> list[Any]:
    """A key that sorts `features.2` before `features.10`."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name)]
