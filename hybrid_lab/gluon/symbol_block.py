"""SymbolBlock: a HybridBlock made from a graph instead of code, for example from a file's graph."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from os import fspath
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab import initializer
from hybrid_lab import symbol as sym
from hybrid_lab.diagnostics import AttributeSpecError, HybridLabError, LoadMismatchError
from hybrid_lab.gluon.files.loading import plain_name, read_arrays
from hybrid_lab.graph.node import Value
from hybrid_lab.hybridize.graphs import Graphs
from hybrid_lab.hybridize.neutral import NeutralGraph
from hybrid_lab.hybridize.structure import LEAF
from hybrid_lab.ndarray.context import Context
from hybrid_lab.ops.framework.dtypes import dtype_of, is_narrow
from hybrid_lab.ops.framework.protocols import Functions
from hybrid_lab.ops.layers.norm import BatchNorm
from hybrid_lab.symbol import Group, Symbol
from hybrid_lab.symbol.composition import composed
from hybrid_lab.symbol.predicting import labels_of, without_labels
from hybrid_lab.system.logger import logger
from hybrid_lab.system.progress import shows_work

from .hybrid import HybridBlock
from .parameter import Parameter
from .parameter_dict import ParameterDict

__all__ = ["SymbolBlock"]

_OF_LAYERS = ("_weight", "_bias", "_gamma", "_beta")
"""How the names of parameters end."""
_OF_BATCH_NORM = ("gamma", "beta", "running_mean", "running_var", "moving_mean", "moving_var")
"""How the names of BatchNorm's parameters end; older files have the last two."""


class SymbolBlock(HybridBlock):
    """A block that computes `outputs` from `inputs`; the remaining variables of the graph become its parameters.

        data = sym.var("data")
        features = net(data).get_internals()["dense0_fwd_output"]
        block = gluon.SymbolBlock(features, data, params=net.collect_params())

    outputs : a Symbol, or a list of them (the block then returns a list)
    inputs : the Symbol of a variable, or a list of them
    params : a ParameterDict whose parameters are shared by name; parameters without a match are made, uninitialized
    """

    _graph_inside: Graphs | None = None
    """Has the graph that code of the user's is around; None if there is no such code."""

    def __init__(
        self, outputs: Any, inputs: Any, params: ParameterDict | Mapping[str, Parameter] | None = None
    ) -> None:
        super().__init__(prefix=None, params=None)
        several = isinstance(outputs, (list, tuple))
        whole = Group(list(outputs)) if several else outputs
        inputs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        data = [_variable(symbol) for symbol in inputs]
        self._prefix = ""
        shared = ParameterDict()
        shared.update(params or {})
        self._params = ParameterDict("", shared)
        names = {value.node.name for value in data}
        if len(names) != len(data):
            raise HybridLabError(
                f"the inputs of a SymbolBlock must have different names, not {[value.node.name for value in data]}"
            )
        whole = _one_variable_a_name(whole)
        by_name = {value.node.name: value for value in whole.graph().inputs}
        states = set(whole.list_auxiliary_states())
        parameters = tuple(
            self._make_parameter(value, name in states) for name, value in by_name.items() if name not in names
        )
        # An input that the outputs do not depend on stays an argument.
        ordered = [by_name.get(value.node.name, value) for value in data]
        ordered += [value for name, value in by_name.items() if name not in names]
        graph = whole.graph(ordered)
        prefix = os.path.commonprefix(list(self._params.keys()))
        prefix = prefix[: prefix.rfind("_") + 1]
        for name, parameter in self._params.items():
            self._reg_params[name[len(prefix) :]] = parameter
        out_spec = ("list", (LEAF,) * len(whole.outputs)) if several or len(whole.outputs) > 1 else LEAF
        in_spec = ("tuple", (LEAF,) * len(data))
        if self._code_style == "2.x":
            self._graph_inside = Graphs(self)
        self._definition.pin([NeutralGraph(graph, in_spec, out_spec, parameters, source="file")])

    def hybrid_forward(self, F: Functions, *args: Any, **params: Any) -> Any:
        """What super().forward(...) runs in a subclass with a `forward` or `__call__` of its own: the graph."""
        return self._inline_pinned(args, self._definition) if F is sym else self._run_pinned(args, self._definition)

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "forward" and self._is_its_graph:
            self._graph_inside = Graphs(self)
            self._graph_inside.pin([*self._graphs.pinned.values()])
            self._graph_calls.pin([])

    @property
    def _definition(self) -> Graphs:
        """The graphs, including the graph that the block was made from."""
        return self._graphs if self._graph_inside is None else self._graph_inside

    @property
    def _is_its_graph(self) -> bool:
        """Whether there is no code around the graph that the block was made from."""
        return self._graph_inside is None

    def _make_parameter(self, value: Any, state: bool) -> Parameter:
        attrs = value.node.attrs or {}
        fixed = state or "__constant__" in attrs  # an array inside a graph that was exported as a parameter
        options: dict[str, Any] = {"allow_deferred_init": True, "grad_req": "null" if fixed else "write"}
        if value.shape is not None:
            options["shape"] = value.shape
        if value.dtype is not None:
            options["dtype"] = np.dtype(value.dtype).name
        # MXNet writes any object as its text: attr={"__init__": Xavier()} of an operator names no initializer.
        if initializer.described_by(attrs.get("__init__", "")):
            options["init"] = attrs["__init__"]
        for key in ("lr_mult", "wd_mult"):
            if f"__{key}__" in attrs:
                try:
                    options[key] = float(attrs[f"__{key}__"])
                except (TypeError, ValueError):
                    text = attrs[f"__{key}__"]
                    raise AttributeSpecError(f"{value.node.name}: __{key}__={text!r} is not a number") from None
        existing = self._params._find(value.node.name)
        return existing if existing is not None else self._params.get(value.node.name, **options)

    @staticmethod
    @shows_work("importing")
    def imports(
        symbol_file: str,
        input_names: str | Sequence[str],
        param_file: str | None = None,
        ctx: Context | Sequence[Context] | None = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
    ) -> SymbolBlock:
        """The block in MXNet's two files, as `HybridBlock.export` or MXNet itself wrote them.

        symbol_file : `net-symbol.json`; input_names : its inputs, 'data' or ['data0', 'data1']
        param_file : `net-0000.params`, or None for uninitialized parameters
        Labels, such as the `softmax_label` of SoftmaxOutput, may be left out of input_names: the block then predicts
        without them, and without outputs such as losses that need one.
        Raises ArchiveError for damaged files, LoadMismatchError listing all parameters that do not fit.
        """
        from hybrid_lab import symbol

        outputs = symbol.load(symbol_file)
        names = [input_names] if isinstance(input_names, str) else list(input_names)
        known = outputs.list_inputs()
        unknown = [name for name in names if name not in known]
        saved = [] if param_file is None else [plain_name(name) for name in read_arrays(param_file)]
        if unknown:
            raise HybridLabError(
                f"{symbol_file!r} has no input {', '.join(map(repr, unknown))}; its inputs are "
                f"{', '.join(data_inputs(outputs, saved))}"
            )
        outputs, labels, left_out = without_unknown_labels(outputs, {*names, *saved})
        if labels:
            losses = f", and without the outputs {', '.join(left_out)}, which need them" if left_out else ""
            logger.info(f"{symbol_file}: imported without {', '.join(labels)}, which only training reads{losses}")
        if param_file is not None and not allow_missing:
            _refuse_missing_inputs(outputs, names, saved, symbol_file, param_file)
        by_name = {value.node.name: Symbol((value,)) for value in outputs.graph().inputs}
        block = SymbolBlock(outputs, [by_name[name] for name in names])
        for parameter in block.params.values():
            parameter.from_file = True
        if param_file is not None:
            block.params.load(param_file, ctx, allow_missing, ignore_extra, cast_dtype=True, dtype_source="saved")
        return block

    def _stay_float32(self, dtype: DTypeLike | None) -> set[Parameter]:
        """The parameters of BatchNorms in the graph, if `dtype` is float16 or bfloat16, as in nn.BatchNorm.

        Their names must end like in nn.BatchNorm, as in MXNet: code that calls F.BatchNorm itself may have cast its
        own parameters.
        """
        float32: set[Parameter] = set()
        if is_narrow(dtype_of(dtype)):
            for neutral in self._definition.pinned.values():
                own = dict(zip(neutral.graph.inputs[neutral.num_data :], neutral.parameters, strict=True))
                for node in neutral.graph.nodes:
                    if isinstance(node.op, BatchNorm):
                        read = [own.get(item) for item in node.inputs[1:] if isinstance(item, Value)]
                        named = [each for each in read if each is not None and each.name.endswith(_OF_BATCH_NORM)]
                        float32.update(named if len(named) == 4 else ())
        return float32

    def _clear_cached_op(self) -> None:
        """Drop compiled programs; the graph that the block was made from stays."""
        if self._is_its_graph:
            self._graph_calls.forget_programs()
        else:
            super()._clear_cached_op()

    def __repr__(self) -> str:
        neutral = self._definition.first()
        if neutral is None:
            return f"{type(self).__name__}()"
        inputs = [value.node.name for value in neutral.graph.inputs[: neutral.num_data]]
        outputs = [value.node.name for value in neutral.graph.outputs]
        return f"{type(self).__name__}(\n  {', '.join(inputs)} -> {', '.join(outputs)}\n)"


def without_unknown_labels(outputs: Symbol, known: Container[str]) -> tuple[Symbol, list[str], list[str]]:
    """The graph without unknown labels: without labels of training operators, and variables named as labels. Also
    returns the names of these labels, and of the outputs, such as losses, that were left out with them.
    """
    ours = {*labels_of(outputs), *(name for name in data_inputs(outputs) if name.endswith("label"))}
    labels = [name for name in outputs.list_inputs() if name in ours and name not in known]
    predicted, left_out = without_labels(outputs, labels) if labels else (outputs, [])
    return (outputs, [], []) if predicted is outputs else (predicted, labels, left_out)


def _refuse_missing_inputs(
    outputs: Symbol, names: Sequence[str], saved: Sequence[str], symbol_file: str, param_file: str
) -> None:
    """Raise LoadMismatchError if a graph reads inputs that are neither given nor in the parameter file."""
    known = {*saved, *names, *outputs.list_auxiliary_states()}
    missing = [name for name in outputs.list_inputs() if name not in known and not name.endswith(_OF_LAYERS)]
    if missing:
        path = fspath(param_file)
        raise LoadMismatchError(
            f"{symbol_file!r} reads {', '.join(missing)}, which is no input and has no values in {path!r}; "
            f"give input_names={[*names, *missing]}",
            [f"missing: {name}, an input without a name in input_names" for name in missing],
            path=path,
        )


def data_inputs(outputs: Symbol, saved: Sequence[str] = ()) -> list[str]:
    """The variables of a graph that are its data and not parameters. saved : names in the file of its parameters"""
    known = outputs.list_inputs()
    parameters = {name.removeprefix("arg:") for name in saved} | set(outputs.list_auxiliary_states())
    return [name for name in known if name not in parameters and not name.endswith(_OF_LAYERS)] or known


def _one_variable_a_name(whole: Symbol) -> Symbol:
    """The Symbol with one variable for each name: as in MXNet, variables of one name have one value.

    Raises HybridLabError if two of them have different shapes or dtypes.
    """
    alike: dict[str, list[Value]] = {}
    for value in whole.graph().inputs:
        alike.setdefault(value.node.name, []).append(value)
    one: dict[str, list[Value]] = {}
    for name, values in alike.items():
        if len(values) > 1:
            described = [value for value in values if value.shape is not None or value.dtype is not None]
            kinds = {(value.shape, value.dtype) for value in described}
            if len(kinds) > 1:
                texts = " and ".join(f"shape={shape}, dtype={dtype}" for shape, dtype in kinds)
                raise HybridLabError(
                    f"two variables of the SymbolBlock are named {name!r} and differ, {texts}; a SymbolBlock tells "
                    "variables apart by their names, so give one of them another name"
                )
            one[name] = [(described or values)[0]]
    return type(whole)(tuple(composed(whole.outputs, None, one))) if one else whole


def _variable(symbol: Symbol) -> Any:
    values: tuple[Any, ...] = symbol.outputs if isinstance(symbol, Symbol) else ()
    if len(values) != 1 or not values[0].is_input:
        raise HybridLabError(f"an input of a SymbolBlock must be a variable such as sym.var('data'), not {symbol!r}")
    return values[0]
