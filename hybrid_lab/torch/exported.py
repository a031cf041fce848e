"""A module of torch as a graph of ATen operators: torch.export, with training and prediction in one graph.

torch.export traces a module in one mode. A module is exported in both; if the two graphs differ only in dropout and
batch normalization, one graph with operators for both modes takes their place.
"""

from __future__ import annotations

import copy
import inspect
import io
import logging
import operator
import re
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.formatting import check_choice
from hybrid_lab.system.logger import logger
from hybrid_lab.torch.errors import TorchError
from hybrid_lab.torch.failures import decomposition_error, export_error
from hybrid_lab.torch.importers import table
from hybrid_lab.torch.stages import stage

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node as FxNode
    from torch.nn import Module

_COUNTER = "num_batches_tracked"
"""BatchNorm's count of calls, which only `momentum=None` reads."""


@cache
def mode_operators() -> Any:
    """torch's namespace of operators that stand for one of ATen's in both modes."""
    import torch

    library = torch.library.Library(table.MODES, "FRAGMENT")
    library.define("dropout(Tensor x, float p) -> Tensor")
    library.define(
        "batch_norm(Tensor x, Tensor? weight, Tensor? bias, Tensor mean, Tensor var, float momentum, float eps)"
        " -> Tensor"
    )
    library.impl("dropout", lambda x, p: torch.empty_like(x), "CompositeExplicitAutograd")
    library.impl("batch_norm", lambda x, *rest: torch.empty_like(x), "CompositeExplicitAutograd")
    mode_operators.library = library  # type: ignore[attr-defined]  # it is unregistered when nobody holds it
    return getattr(torch.ops, table.MODES)


@dataclass
class Exported:
    """A module as torch exports it. program : in functional ATen operators

    holds_for_one : whether the program also holds for a batch of 1. torch compares open sizes with 1 for reasons of its
        own; these comparisons do not count then
    every : whether all sizes are open that torch can open. Comparisons in the code then hold for the sizes of the
    example
    """

    program: ExportedProgram
    holds_for_one: bool = False
    every: bool = False


def exported(source: Any, args: Sequence[object], kwargs: Mapping[str, object], dynamic_shapes: Any) -> list[Exported]:
    """A module in functional ATen operators: one program for both modes, or one for prediction and one for training.

    source : a module, or an ExportedProgram; dynamic_shapes : as of torch.export, "batch" or "auto"
    Raises TorchError for a module that torch cannot export.
    """
    import torch

    mode_operators()
    if isinstance(source, torch.export.ExportedProgram):
        with _own_graph(source):
            _follow_modes(source)
            return [Exported(_decomposed(source))]
    stage("torch exports it for prediction")
    with _mode(source, False):
        program = _export(source, args, kwargs, dynamic_shapes)
        stage("torch exports it for a batch of one")
        alone, holds_for_one = _with_batch_of_one(source, program, args, kwargs)
        if alone is not program:
            program, dynamic_shapes = alone, None
    training = None
    stage("torch exports it for training")
    try:
        with _mode(source, True):
            training = _export(source, args, kwargs, dynamic_shapes)
    except TorchError as error:
        logger.warning(
            f"{type(source).__name__}: torch exports it for prediction only, so training is the same: {error}"
        )
    always = _always_on(program)
    _follow_modes(program, always)
    programs = [program]
    if training is not None:
        _follow_modes(training, always)
        programs = [training] if _computation(program) == _computation(training) else [program, training]
    stage("torch takes its operators apart")
    return [Exported(_decomposed(each), holds_for_one, dynamic_shapes == "auto") for each in programs]


def exported_for_all_sizes(module: Module, args: Sequence[object], kwargs: Mapping[str, object]) -> Exported | None:
    """A module as it predicts, with all sizes open that torch lets be; None if torch does not export it so."""
    stage("torch exports it for other sizes")
    with _mode(module, False):
        larger, shapes = _opened(module, args, kwargs, every=True)
        try:
            program = _call_export(module, *larger, shapes)
            _, holds_for_one = _with_batch_of_one(module, program, args, kwargs)
            _follow_modes(program, _always_on(program))
            return Exported(_decomposed(program), holds_for_one, True)
        except TorchError:
            return None


_WRITE_SHAPES = frozenset({
    "view", "_unsafe_view", "reshape", "expand", "slice", "arange", "full", "zeros", "ones", "new_zeros", "new_ones",
    "new_full", "roll", "repeat", "constant_pad_nd", "pad", "as_strided", "index_select", "unflatten", "split",
    "split_with_sizes",
})  # fmt: skip
"""Operators whose arguments are sizes, or positions in them."""


def written_shapes(program: ExportedProgram) -> int:
    """How many operators have sizes, or positions, as numbers among their arguments."""
    nodes = [node for node in program.graph.nodes if getattr(node.target, "_opname", "") in _WRITE_SHAPES]
    return sum(any(type(item) is int for item in _flat(node.args[1:])) for node in nodes)


def _flat(items: Any) -> list[Any]:
    return [part for item in items for part in (_flat(item) if isinstance(item, (list, tuple)) else [item])]


@contextmanager
def _mode(module: Module, training: bool) -> Iterator[None]:
    """The module in a mode; a module that is already in training mode keeps the modes of its parts."""
    before = {each: each.training for each in module.modules()}
    if not training:
        module.eval()
    elif not module.training:
        module.train()
    try:
        yield
    finally:
        for each, own in before.items():
            each.training = own


@contextmanager
def _own_graph(program: ExportedProgram) -> Iterator[None]:
    """Let the body change the program's graph; the program has its own again afterwards."""
    module = program.graph_module
    own = module.graph
    module.graph = copy.deepcopy(own)
    try:
        yield
    finally:
        module.graph = own


# -- torch.export --------------------------------------------------------------------------------------------------


def _export(
    module: Module, args: Sequence[object], kwargs: Mapping[str, object], dynamic_shapes: Any
) -> ExportedProgram:
    """The module exported in its mode, with an open batch, or all sizes open, if they can be."""
    _bound(module, args, kwargs)
    if isinstance(dynamic_shapes, str):
        check_choice("dynamic_shapes", dynamic_shapes, ("batch", "auto"))
        larger, shapes = _opened(module, args, kwargs, dynamic_shapes == "auto")
        if shapes is not None:
            try:
                return _call_export(module, *larger, shapes)
            except TorchError as error:
                program = _call_export(module, args, kwargs, None)
                logger.warning(
                    f"{type(module).__name__}: the batch is fixed, as torch does not export it open: {error}"
                )
                return program
        dynamic_shapes = None
    return _call_export(module, args, kwargs, dynamic_shapes or None)


def _call_export(module: Module, args: Sequence[object], kwargs: Mapping[str, object], shapes: Any) -> ExportedProgram:
    """Export the module; with open sizes, torch reports comparisons of sizes with 1 if it can export the module so."""
    import torch
    from torch.fx.experimental import _config

    settings: Any = _config  # torch adds `patch` when it loads the module

    def export() -> ExportedProgram:
        with _quiet():
            return torch.export.export(module, tuple(args), dict(kwargs), dynamic_shapes=shapes, strict=False)

    try:
        if shapes is None:
            return export()
        try:
            with settings.patch(backed_size_oblivious=True):
                return export()
        except MemoryError:
            raise
        except Exception:  # as below
            return export()
    except MemoryError:
        raise
    except Exception as error:  # torch raises many types, of private modules too; the code is the user's
        raise export_error(module, error) from error


def _with_batch_of_one(
    module: Module, program: ExportedProgram, args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[ExportedProgram, bool]:
    """The program, and whether it also holds for a batch of 1. If not, though the example has a batch of 1, the
    program of the example takes its place.
    """
    if not any(COMPARED_WITH_ONE.search(guard) for guard in getattr(program, "_guards_code", ())):
        return program, True
    import torch
    from torch.utils import _pytree as pytree

    leaves, structure = pytree.tree_flatten((tuple(args), dict(kwargs)))
    batch = next((item.shape[0] for item in leaves if isinstance(item, torch.Tensor) and item.ndim), None)

    def has_batch(item: object) -> bool:
        return isinstance(item, torch.Tensor) and bool(item.ndim) and item.shape[0] == batch

    one = [item[:1] if has_batch(item) else item for item in leaves]
    try:
        args_of_one, kwargs_of_one = pytree.tree_unflatten(one, structure)
        alone = _call_export(module, args_of_one, kwargs_of_one, None)
    except TorchError:
        return program, False
    if _computation(program, 1) == _computation(alone, 1):
        return program, True
    return (alone if batch == 1 else program), False


COMPARED_WITH_ONE = re.compile(r"(!=|==) ?\d+$")
"""How a guard ends that may be a comparison with 1: `s != 1`, `16*s != 16`."""


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out torch's warnings, and its logs and prints about an error before raising it."""
    thread = threading.get_ident()

    def passes(record: logging.LogRecord) -> bool:
        return record.thread != thread or record.levelno < logging.WARNING  # torch logs less only if it is asked to

    loggers = [
        each for name, each in list(logging.root.manager.loggerDict.items()) if name.partition(".")[0] == "torch"
    ]
    handlers = {handler for each in loggers for handler in getattr(each, "handlers", ())}
    for handler in handlers:
        handler.addFilter(passes)
    printed, graph = io.StringIO(), None
    try:
        with warnings.catch_warnings(), redirect_stderr(printed):
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        graph = getattr(error, "partial_fx_graph", None)  # printed by torch.export, once or twice
        raise
    finally:
        for handler in handlers:
            handler.removeFilter(passes)
        text = printed.getvalue().replace(f"{graph}\n", "")
        if text and sys.stderr is not None:
            sys.stderr.write(text)


def _opened(
    module: Module, args: Sequence[object], kwargs: Mapping[str, object], every: bool = False
) -> tuple[tuple[Any, Any], Any]:
    """The example inputs and torch's dynamic_shapes with the first size of each tensor open, as far as the first sizes
    are equal.

    torch takes an example of 1 as fixed, so a batch of 1 is doubled. every : open all sizes that torch can open
    """
    import torch
    from torch.utils import _pytree as pytree

    leaves, structure = pytree.tree_flatten((tuple(args), dict(kwargs)))
    tensors = [item for item in leaves if isinstance(item, torch.Tensor) and item.ndim]
    if not tensors:
        return (args, kwargs), None
    batch = tensors[0].shape[0]

    def opened(item: object) -> bool:
        return isinstance(item, torch.Tensor) and bool(item.ndim) and item.shape[0] == batch

    def open_axes(item: Any) -> dict[int, Any] | None:
        if every and isinstance(item, torch.Tensor):
            axes = [axis for axis in range(item.ndim) if item.shape[axis] > 1 or not axis]
            return dict.fromkeys(axes, torch.export.Dim.AUTO) or None
        return {0: torch.export.Dim.AUTO} if opened(item) else None

    shapes = [open_axes(item) for item in leaves]
    # New tensors: torch marks the tensors that it exports with an open size.
    leaves = [(torch.cat([item, item]) if batch == 1 else item.detach()) if opened(item) else item for item in leaves]
    larger_args, larger_kwargs = pytree.tree_unflatten(leaves, structure)
    # None of a tensor means that all its sizes are fixed; a plain value has None, too.
    shape_args, shape_kwargs = pytree.tree_unflatten(shapes, structure)
    return (larger_args, larger_kwargs), dict(_bound(module, shape_args, shape_kwargs))


def _bound(module: Module, args: Sequence[object], kwargs: Mapping[str, object]) -> Mapping[str, Any]:
    """The arguments of a module by the names of its forward. Raises TorchError if they do not fit."""
    signature = inspect.signature(module.forward)
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise TorchError(
            f"{type(module).__name__}: the example inputs do not fit forward{signature} ({error}). Give a tensor, or a "
            "tuple of the arguments by position, and example_kwargs for those by name"
        ) from None


def _decomposed(program: ExportedProgram) -> ExportedProgram:
    """The program in operators of the table, and core ATen if the table has none."""
    import torch

    decompositions = torch.export.default_decompositions()
    for name in table.names():
        packet = getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            decompositions.pop(getattr(packet, overload), None)
    try:
        with _quiet():
            return program.run_decompositions(decompositions)
    except MemoryError:
        raise
    except Exception as error:  # as of torch.export; decompositions may be the user's
        raise decomposition_error(program, error) from error


# -- one graph for both modes --------------------------------------------------------------------------------------


def _name(node: FxNode) -> str:
    """`aten.dropout`, without the overload."""
    short = getattr(node.target, "_opname", "")
    return f"{getattr(node.target, 'namespace', '')}.{short}" if short else ""


def _arguments(node: FxNode) -> dict[str, Any]:
    """The arguments of a call by name; arguments without a name in the operator's schema have their position."""
    schema = getattr(node.target, "_schema", None)
    names = [argument.name for argument in schema.arguments] if schema is not None else range(len(node.args))
    return {**dict(zip(map(str, names), node.args, strict=False)), **node.kwargs}


def _always_on(program: ExportedProgram) -> int:
    """How many dropouts are on in prediction too, as F.dropout(x) without training=self.training is."""
    for node in program.graph.nodes:
        if _name(node) == "aten.scaled_dot_product_attention" and _arguments(node).get("dropout_p"):
            raise TorchError(
                f"the attention {node.name!r} drops weights in prediction, too. "
                "Write dropout_p=p if self.training else 0.0"
            )
    dropouts = [node for node in program.graph.nodes if _name(node) in ("aten.dropout", "aten.dropout_")]
    return sum(bool(_arguments(node)["train"]) for node in dropouts)


def _follow_modes(program: ExportedProgram, always_on: int = 0) -> None:
    """Put operators for both modes in the place of dropout and batch normalization with running statistics.

    always_on : number of dropouts that are on in both modes; then all dropouts stay unchanged
    """
    operators = mode_operators()
    graph = program.graph
    for node in list(graph.nodes):
        name = _name(node)
        if name in ("aten.dropout", "aten.dropout_") and not always_on and _is_alone(node):
            node.target, node.args = operators.dropout.default, (node.args[0], float(node.args[1]))
        elif name == "aten.batch_norm" and _arguments(node)["running_mean"] is not None:
            x, weight, bias, mean, var, _, momentum, eps = node.args[:8]
            node.target = operators.batch_norm.default
            node.args, node.kwargs = (x, weight, bias, mean, var, float(momentum), float(eps)), {}
        elif name == "aten.add_" and _is_counter(node.args[0]) and not node.users:
            graph.erase_node(node)
    program.graph_module.recompile()


def _is_alone(dropout: FxNode) -> bool:
    """Whether no other node reads the tensor that a dropout in place overwrites."""
    return _name(dropout) == "aten.dropout" or len(dropout.all_input_nodes[0].users) == 1


def _is_counter(node: Any) -> bool:
    return getattr(node, "op", "") == "placeholder" and node.name.endswith(_COUNTER)


def _computation(program: ExportedProgram, size: int | None = None) -> list[Any]:
    """The computation of a graph, so that two can be compared; the dropout of attention and recurrent layers is left
    out.

    size : the number in the place of all open sizes; the arithmetic on them is left out then
    """
    places: dict[Any, int] = {}

    def described(item: Any) -> Any:
        if hasattr(item, "op") and hasattr(item, "target"):
            number = None if size is None else _number_of(item, size)
            return repr(number) if number is not None else ("node", places.get(item, -1))
        if isinstance(item, (list, tuple)):
            return tuple(described(part) for part in item)
        if isinstance(item, dict):
            return tuple((key, described(part)) for key, part in item.items())
        return repr(item)

    found = []
    for node in program.graph.nodes:
        name = _name(node)
        if size is not None and (_number_of(node, size) is not None or name.startswith(_OF_SIZES)):
            continue
        if size is not None and _is_whole(node):
            places[node] = places[node.args[0]]
            continue
        places[node] = len(set(places.values()))
        arguments = _arguments(node)
        if name == "aten.scaled_dot_product_attention":
            arguments.pop("dropout_p", None)
        elif name in ("aten.lstm", "aten.gru", "aten.rnn_tanh", "aten.rnn_relu"):
            arguments.pop("train")
        found.append((node.op, str(node.target), described(arguments)))
    return found


_OF_SIZES = ("aten._assert", "aten.sym_", "aten._functional_assert")
"""How the names of operators begin that compute nothing but sizes, or check them."""


def _is_whole(node: FxNode) -> bool:
    """Whether a node cuts nothing off: x[:]."""
    return _name(node) == "aten.slice" and list(node.args[2:]) in ([], [0], [0, sys.maxsize])


def _number_of(node: Any, size: int) -> int | bool | float | None:
    """The value of a node that computes a size, with one number in the place of all open sizes; None for other
    values.
    """
    import torch

    value = node.meta.get("val")
    if not isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)):
        return value if isinstance(value, (int, bool, float)) and node.op == "call_function" else None
    expression = value.node.expr
    number = expression.subs(dict.fromkeys(expression.free_symbols, size))
    return bool(number) if isinstance(value, torch.SymBool) else int(number) if number.is_integer else float(number)


ARITHMETIC: Mapping[Any, Any] = {
    getattr(operator, name): getattr(operator, name)
    for name in ("add", "sub", "mul", "floordiv", "mod", "neg", "eq", "ne", "lt", "le", "gt", "ge", "pow", "truediv")
}
"""Functions of Python on sizes that stand in exported graphs."""
