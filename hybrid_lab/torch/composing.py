"""The graph of an ExportedProgram in this package's operators, with its parameters apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.graph.node import Constant, Input, Node, Scope, Value
from hybrid_lab.hybridize.structure import LEAF, Spec, flatten
from hybrid_lab.ndarray.buffer import Buffer
from hybrid_lab.onnx.reading.compose import Composed, finished
from hybrid_lab.ops.framework.sizes import NeedsNumber, SymbolicSize
from hybrid_lab.system.logger import logger
from hybrid_lab.torch.errors import TorchError, UnsupportedOperatorError
from hybrid_lab.torch.exported import ARITHMETIC, Exported
from hybrid_lab.torch.importers import ROWS_LOADED, table
from hybrid_lab.torch.importers.functions import Functions, Tensor
from hybrid_lab.torch.memory import array_of, numpy_dtype, shared_buffer
from hybrid_lab.torch.size_conditions import conditions_of, equalities_of

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule
    from torch.fx import Node as FxNode

assert ROWS_LOADED  # imported so that the functions of all operators are in the table
_NOWHERE = frozenset({"device", "layout", "pin_memory", "memory_format", "non_blocking", "generator"})
"""Arguments that say where and how torch stores a tensor."""
_CHECKS = (
    "_assert", "sym_constrain_range", "_log_api_usage", "_functional_assert", "_functional_sym_constrain",
    "_linalg_check_errors",
)  # fmt: skip
"""How the names of operators begin that only check something."""
_WITHOUT = "Import the parts of the module that do without it"
_BROKEN = (TypeError, ValueError, IndexError, KeyError, AttributeError, ArithmeticError, RecursionError)


def compose(exported: Exported, tell: bool = True) -> Composed:
    """The graph of an exported module. tell : warn of sizes that the code fixes. Raises UnsupportedOperatorError."""
    return _Composer(exported, tell).compose()


class _Composer:
    def __init__(self, exported: Exported, tell: bool) -> None:
        self.exported, self.program = exported, exported.program
        self.warn = logger.warning if tell else lambda text: None
        self.signature = self.program.graph_signature
        self.F = Functions()
        self.known: dict[Any, Any] = {}
        self.sizes: dict[str, Any] = {}
        self.hints: dict[str, int] = {}
        self.stored: dict[int, Tensor] = {}
        self.buffers: dict[str, Buffer] = {}
        self.data: list[Value] = []
        self.names: list[str] = []
        self.node_names: dict[Node, str] = {}
        self.root = self.F.scope = Scope("model")
        self.scopes: dict[tuple[str, ...], Scope] = {}
        self.classes: dict[str, str] = {}
        self.tensors: dict[str, Value] = {}

    def compose(self) -> Composed:
        specs = {spec.arg.name: spec for spec in self.signature.input_specs}
        leaves: list[Any] = []
        module = self.program.graph_module
        for node in module.graph.nodes:
            if node.op == "placeholder":
                self.known[node] = self._input(node, specs[node.name], leaves)
        shapes = {name: value.shape for name, value in zip(self.names, self.data, strict=True)}
        self.F.conditions += conditions_of(self.exported, shapes, self.sizes, self.hints, self.warn)
        results = self._run(module)
        if self.exported.every:
            self.F.conditions += equalities_of(self.F.guards)
        return self._finished(leaves, results)

    # -- inputs ------------------------------------------------------------------------------------------------

    def _input(self, node: FxNode, spec: Any, leaves: list[Any]) -> Any:
        kind = spec.kind.name
        if kind == "USER_INPUT":
            item = self._user_input(node, spec)
            leaves.append(item)
            return item
        if kind == "TOKEN":  # of effects, such as checks: it holds nothing
            return None
        if kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            tensor = self._stored(spec)
            if id(tensor) in self.stored:  # a weight that two modules share has the name of the first
                return self.stored[id(tensor)]
            made = self.stored[id(tensor)] = self._held(spec, kind, tensor)
            return made
        raise TorchError(
            f"the exported program has an input of kind {kind} ({spec.target}), which is not supported. {_WITHOUT}"
        )

    def _held(self, spec: Any, kind: str, tensor: torch.Tensor) -> Tensor:
        """A parameter, a state or a constant."""
        array = array_of(tensor, spec.target)
        trained = kind == "PARAMETER" or (kind == "BUFFER" and tensor.is_floating_point() and array.ndim > 0)
        if not trained:
            return self.F.constant(array)
        if kind == "BUFFER" or not tensor.requires_grad:
            self.F.states.add(spec.target)
        line = array if array.ndim else array.reshape(1)  # parameters have at least one axis
        buffer = shared_buffer(line, tensor)
        if buffer is not None:
            self.buffers[spec.target] = buffer
        if array.ndim:
            return Tensor(self.F, None, array, "", spec.target, True)
        return self.F.reshape_to(Tensor(self.F, None, line, "", spec.target, True), ())

    def _stored(self, spec: Any) -> Any:
        """The tensor of a parameter or a buffer."""
        for tensors in (self.program.state_dict, self.program.constants):
            if spec.target in tensors:
                return tensors[spec.target]
        raise TorchError(f"the exported program does not hold the tensor {spec.target!r}; export the module again")

    def _user_input(self, node: FxNode, spec: Any) -> Any:
        value = node.meta.get("val")
        if value is None or not hasattr(value, "shape"):
            return getattr(spec.arg, "value", value)
        dtype = numpy_dtype(value.dtype, f"the input {node.name!r}")
        shape = [self._size(size, axis) for axis, size in enumerate(value.shape)]
        made = self.F.input(node.name, tuple(shape), dtype.name)
        self.data.append(made.value)
        self.names.append(node.name)
        return made

    def _size(self, size: Any, axis: int) -> Any:
        """A size of an input: a number, or an open size, the same for each of torch's symbols."""
        if isinstance(size, int):
            return size
        hint = getattr(size.node, "hint", None)
        # If all sizes are open, the code may compare them, which the example's numbers satisfy.
        found = self._open_size(size.node.expr, hint if self.exported.every and axis else None)
        if isinstance(found, SymbolicSize) and isinstance(hint, int):
            self.hints[repr(found)] = hint
        return found

    def _open_size(self, expression: Any, hint: int | None) -> Any:
        if expression.is_number:
            self.warn(f"the code of the module needs a size of {expression}, which is fixed so")
            return int(expression)
        if str(expression) not in self.sizes:
            # torch writes a size as factor * s + rest if the code needs that, such as an odd length: 2*s + 1. Then s is
            # the open size here too. Any other expression is an open size of its own.
            symbols = list(expression.free_symbols)
            if len(symbols) == 1 and expression != symbols[0]:
                self.sizes.setdefault(str(symbols[0]), self.F.open_size())
                linear = expression.as_poly(symbols[0])
                if linear is not None and linear.degree() == 1:
                    factor, rest = (int(number) for number in linear.all_coeffs())
                    return self.sizes[str(symbols[0])] * factor + rest
            self.sizes[str(expression)] = self.F.open_size() if hint is None else self.F.guards.symbol(hint)
        return self.sizes[str(expression)]

    # -- nodes -------------------------------------------------------------------------------------------------

    def _run(self, module: GraphModule) -> Any:
        """Compose the nodes of a graph module; returns the value of its output node."""
        for node in module.graph.nodes:
            if node.op == "get_attr":
                self.known[node] = self._attribute(module, node.target)
            elif node.op == "call_function":
                self.known[node] = self._called(module, node)
            elif node.op == "output":
                return self._looked_up(node.args[0])
            elif node.op != "placeholder":
                raise TorchError(
                    f"the exported graph has a node {node.name!r} of kind {node.op}, which is not supported. {_WITHOUT}"
                )
        return ()

    def _attribute(self, module: GraphModule, target: str) -> Any:
        item: Any = module
        for name in target.split("."):
            item = getattr(item, name)
        return self.F.constant(array_of(item, target)) if hasattr(item, "numpy") else item

    def _looked_up(self, item: Any) -> Any:
        if hasattr(item, "op") and hasattr(item, "target"):
            return self.known[item]
        if isinstance(item, (list, tuple)):
            return [self._looked_up(part) for part in item]
        if isinstance(item, slice):
            return slice(*(self._looked_up(part) for part in (item.start, item.stop, item.step)))
        if str(item).startswith("torch.") and type(item).__name__ == "dtype":
            return numpy_dtype(item)
        return item

    def _called(self, module: GraphModule, node: FxNode) -> Any:
        target = node.target
        name = getattr(target, "__name__", str(target))
        args = self._looked_up(node.args)
        if name == "getitem":
            return args[0][args[1]]
        if target in ARITHMETIC:
            return self._of_sizes(node, ARITHMETIC[target], args)
        domain, short = getattr(target, "namespace", ""), getattr(target, "_opname", "")
        if not short:
            return self._of_python(module, node, name, args)
        kwargs = {key: self._looked_up(item) for key, item in node.kwargs.items() if key not in _NOWHERE}
        if short.startswith(_CHECKS) or (domain == "aten" and short.startswith("sym_constrain")):
            return None
        if short in ("sym_size", "sym_numel", "sym_stride", "sym_storage_offset"):
            return self._size_of(node, short, args)
        self._enter(node, f"{domain}.{short}", target)
        function = table.find(domain, short)
        if function is None:
            raise self._unknown(domain, short)
        made = len(self.F.made)
        outputs = self._guarded(function, args, kwargs)
        for item in self.F.made[made:]:
            self.node_names.setdefault(item, node.name)
        if isinstance(outputs, Tensor):
            self.tensors[node.name] = outputs  # type: ignore[assignment]
        return outputs

    def _enter(self, node: FxNode, operator: str, target: Any) -> None:
        F = self.F
        F.node, F.node_name, F.operator, F.overload = node, node.name, operator, getattr(target, "_overloadname", "")
        F.result = node.meta.get("val")
        F.used = frozenset(
            cast(int, user.args[1])
            for user in node.users
            if user.users and getattr(user.target, "__name__", "") == "getitem"
        )
        F.scope = self._scope(node)
        F.path = F.scope.partition(".")[2]

    def _guarded(self, function: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        """The outputs of an operator; whatever goes wrong is a TorchError that names it."""
        try:
            return function(self.F, *args, **kwargs)
        except TorchError:
            raise
        except NeedsNumber as error:
            raise self.F.unsupported(f"needs a size as a number that is open; {self.F.close_sizes}") from error
        except (HybridLabError, *_BROKEN) as error:
            raise self.F.unsupported(f"this use of it has no form here: {str(error)[:300]}") from error

    def _unknown(self, domain: str, name: str) -> UnsupportedOperatorError:
        near = table.nearest(name)
        hint = f"; the nearest one that is: aten.{near}" if near else ""
        return UnsupportedOperatorError(
            f"{self.F.located()}: the operator is not supported{hint}. Import the parts of the module that do without "
            "it, or write this part with other operators of torch",
            f"{domain}.{name}",
        )

    def _of_sizes(self, node: FxNode, function: Any, args: Sequence[object]) -> Any:
        """Arithmetic on sizes."""
        try:
            return function(*args)
        except (TypeError, NeedsNumber, ValueError, ArithmeticError, AssertionError) as error:
            self._enter(node, getattr(function, "__name__", str(function)), function)
            raise self.F.unsupported(f"arithmetic on an open size; {self.F.close_sizes}") from error

    def _size_of(self, node: FxNode, name: str, args: Sequence[object]) -> Any:
        x, *axis = args
        assert isinstance(x, Tensor)
        if name == "sym_size":
            return x.shape[cast(int, axis[0])]
        if name == "sym_numel":
            total: Any = 1
            for size in x.shape:
                total = size * total
            return total
        raise TorchError(f"node {node.name!r}: strides of memory are not supported. {_WITHOUT}")

    def _of_python(self, module: GraphModule, node: FxNode, name: str, args: Sequence[object]) -> Any:
        """A function that is no operator: of sizes, or one of torch's that take graphs."""
        if name in ("sym_float", "sym_int", "sym_max", "sym_min", "sym_not", "sym_ite", "sym_sqrt", "_sym_sqrt"):
            return self._of_sizes(node, node.target, args)
        if name in ("wrap_with_set_grad_enabled", "wrap_with_autocast"):
            return self._region(node, name, args)
        if name == "with_effects" and str(getattr(args[1], "_opname", "")).startswith(_CHECKS):
            return [None, None]  # the token, and no result
        self._enter(node, name, node.target)
        raise self.F.unsupported(
            "control flow by the data is not supported. Compute both branches and take torch.where of them, or import "
            "the parts of the module that do without it"
            if name in ("cond", "while_loop", "scan", "map_impl", "associative_scan")
            else "the function is not supported; write this part with operators of torch"
        )

    def _region(self, node: FxNode, name: str, args: Sequence[object]) -> Any:
        """The nodes of a region such as `with torch.no_grad():`, in line."""
        place = next(place for place, item in enumerate(args) if hasattr(item, "graph"))
        inner, operands = cast("GraphModule", args[place]), args[place + 1 :]
        holders = [item for item in inner.graph.nodes if item.op == "placeholder"]
        self.known.update(zip(holders, operands, strict=True))
        results = self._run(inner)
        if name == "wrap_with_set_grad_enabled" and not args[0]:
            results = [
                self.F.BlockGrad(item) if isinstance(item, Tensor) and not item.is_constant else item
                for item in results
            ]
        return results

    # -- scopes ------------------------------------------------------------------------------------------------

    def _scope(self, node: FxNode) -> Scope:
        """The scope of a node as torch's nn_module_stack says it; each call of a module has its own."""
        stack = node.meta.get("nn_module_stack") or {}
        scope, calls = self.root, ()
        for call, entry in stack.items():
            if not isinstance(entry, tuple):
                continue
            path, kind = entry
            if call.startswith("_empty"):
                continue
            path = path.partition("@")[0]
            self.classes.setdefault(path, getattr(kind, "__qualname__", str(kind)).rsplit(".", 1)[-1])
            if not path:
                continue
            calls = (*calls, call)  # type: ignore[assignment]
            if calls not in self.scopes:
                self.scopes[calls] = Scope(f"{self.root}.{path}", scope)
            scope = self.scopes[calls]
        return scope

    # -- results -----------------------------------------------------------------------------------------------

    def _finished(self, leaves: Sequence[Any], results: Sequence[Any]) -> Composed:
        own: list[Any] = []
        for spec, item in zip(self.signature.output_specs, results, strict=True):
            kind = spec.kind.name
            if kind == "USER_OUTPUT":
                own.append(item)
            elif kind == "TOKEN":
                continue
            elif kind == "BUFFER_MUTATION":
                self._check_update(spec.target, item)
            elif kind == "USER_INPUT_MUTATION":
                raise TorchError(
                    f"the module writes to its input {spec.target!r}; begin with a copy: {spec.target} = "
                    f"{spec.target}.clone()"
                )
            else:
                raise TorchError(
                    f"the exported program has an output of kind {kind}, which is not supported. {_WITHOUT}"
                )
        from torch.utils import _pytree as pytree

        tree = pytree.tree_unflatten(own, self.program.call_spec.out_spec)
        values: list[Value] = []
        out_spec = self._result(tree, values)
        call_args, call_kwargs = pytree.tree_unflatten(list(leaves), self.program.call_spec.in_spec)
        _, structure = flatten(_as_leaves((*call_args, *call_kwargs.values())))
        tensors = {name: item.value for name, item in self.tensors.items() if item.is_in_graph}  # type: ignore[attr-defined]
        names = [f"output{number}" for number in range(len(values))] if len(values) > 1 else ["output"]
        composed = finished(
            self.F, self.data, self.names, structure, values, out_spec, names, tensors, self.node_names, self.classes
        )
        composed.buffers = {name: item for name, item in self.buffers.items() if name in composed.parameters}
        return composed

    def _check_update(self, name: str, item: Any) -> None:
        """New values of a buffer: running statistics of BatchNorm update themselves, and counters count for nothing."""
        if isinstance(item, Tensor) and (item.name == name or not item.is_floating):
            return
        raise TorchError(
            f"the module writes to its buffer {name!r}, which only running statistics of batch normalization may do "
            "here; give the new value as an output"
        )

    def _result(self, item: Any, values: list[Value]) -> Spec:
        """The structure of a result, whose tensors are added to `values`."""
        if isinstance(item, Tensor):
            value = item.value
            if isinstance(value.node.op, (Input, Constant)):
                value = self.F.identity(Tensor(self.F, value)).value  # even if there is nothing to do
            values.append(value)
            return LEAF
        if isinstance(item, Mapping):
            return "dict", tuple((str(key), self._result(part, values)) for key, part in item.items())
        if isinstance(item, (list, tuple)):
            kind = "list" if isinstance(item, list) else "tuple"
            return kind, tuple(self._result(part, values) for part in item)
        if isinstance(item, SymbolicSize):
            return self._result(self.F.operand(item), values)
        if item is None or isinstance(item, (bool, int, float, str)):
            return flatten(item)[1]
        if hasattr(item, "to_tuple"):
            return self._result(item.to_tuple(), values)
        fields = getattr(item, "__dict__", None)
        if fields:
            return self._result(fields, values)
        raise TorchError(f"the module returns a {type(item).__name__}; return tensors, tuples, lists or dicts of them")


class _Leaf:
    """Stands for a tensor if only the structure of arguments is read."""

    _data = np.zeros(0)


def _as_leaves(item: Any) -> Any:
    if isinstance(item, Tensor):
        return _Leaf()
    if isinstance(item, dict):
        return {key: _as_leaves(part) for key, part in item.items()}
    if isinstance(item, (list, tuple)):
        return (
            type(item)(_as_leaves(part) for part in item)
            if type(item) in (list, tuple)
            else tuple(map(_as_leaves, item))
        )
    return item
