"""HybridBlock: a Block that runs eagerly, or - after hybridize() - as compiled graphs of its code."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab import engines
from hybrid_lab import ndarray as nd
from hybrid_lab import symbol as sym
from hybrid_lab.diagnostics.errors import (
    DeferredInitializationError,
    EngineUnavailable,
    HybridLabError,
    InputError,
    MissingGraphError,
)
from hybrid_lab.diagnostics.hybridize_error import HybridizeError, hybridize_error
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.engines import early_import
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.call_record import CallRecorder, called
from hybrid_lab.gluon.flags import check_flags, known_flags
from hybrid_lab.gluon.own_call import own_call, take_over
from hybrid_lab.gluon.parameter_dict import ParameterDict
from hybrid_lab.hybridize import events
from hybrid_lab.hybridize.block import NONE, Part
from hybrid_lab.hybridize.block_notes import CALLS, note_block
from hybrid_lab.hybridize.calls import GraphCalls, drop_for_values
from hybrid_lab.hybridize.graphs import Graphs
from hybrid_lab.hybridize.known_calls import key_of, kind_of_call
from hybrid_lab.hybridize.neutral import NeutralGraph, extract_nested, location_of, run_traced, spread
from hybrid_lab.hybridize.stale.assignments import ABSENT, in_words, makes_stale
from hybrid_lab.hybridize.structure import flatten, refused, tensors_in
from hybrid_lab.ndarray.context import resolve
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ops.framework.protocols import Functions
from hybrid_lab.symbol import tracing
from hybrid_lab.symbol.symbol import Symbol
from hybrid_lab.system.progress import shows_work
from hybrid_lab.system.provided import Provided

if TYPE_CHECKING:
    from hybrid_lab.gluon.operator_hooks import OperatorHook
    from hybrid_lab.gluon.parameter import Parameter

compile_for: Provided[..., Any] = Provided("compile_for")

_local = tracing.local
_ARRAYS = {NDArray}
_OBJECT = "an object that is neither an array, a number nor a text"


class HybridBlock(Block):
    """A Block whose computation can become a graph.

        class Net(gluon.HybridBlock):
            def __init__(self, **kwargs):
                super().__init__(**kwargs)
                self.hidden = nn.Dense(4)

            def hybrid_forward(self, F, x):
                return F.relu(self.hidden(x))

        net = Net()
        net.initialize()
        net(nd.ones((2, 3))).shape
        net.hybridize()
        net(nd.ones((2, 3))).shape

    Write `hybrid_forward(self, F, x, **params)` (F is `nd` eagerly and `sym` in a trace; parameters registered on the
    block come as keyword arguments), or 2.x-style `forward(self, x)`, which reads them with `self.weight.data()`.

    Eagerly every call runs the code. After `hybridize()` the first call traces it - once per block and input structure
    - and later calls run compiled programs; `mx.explain(net)` shows the graphs and programs.
    """

    _active: bool
    _set_aside: bool = False
    """Whether `hybridize()` is on although `_active` is not: a tool lets the code run."""
    _flags: dict[str, Any]
    _graphs: Graphs
    _graph_calls: GraphCalls

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None):
        super().__init__(prefix=prefix, params=params)
        object.__setattr__(self, "_active", False)
        object.__setattr__(self, "_flags", {})
        self._set_graphs(Graphs(self))

    def __copy__(self) -> Block:
        twin: Any = super().__copy__()
        twin._set_graphs(Graphs(twin))
        twin._graphs.calls = copy.copy(self._graphs.calls)
        if self._graphs.pinned:
            twin._graphs.pin(list(self._graphs.pinned.values()))
        return twin

    def __setstate__(self, state: dict[str, object]) -> None:
        super().__setstate__(state)
        self._set_graphs(self._graphs)

    def _set_graphs(self, graphs: Graphs) -> None:
        object.__setattr__(self, "_graphs", graphs)
        object.__setattr__(self, "_graph_calls", GraphCalls(self, graphs))

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        take_over(cls)

    # -- the code of a call: `__call__` and `forward` of the user's, and hybrid_forward --------------------------------

    _own_call: ClassVar[bool] = False
    """Whether the class or a base of it has a `__call__` of the user's; see `own_call.take_over`."""

    @property
    def _has_hybrid_forward(self) -> bool:
        return "hybrid_forward" in vars(self) or type(self).hybrid_forward is not HybridBlock.hybrid_forward

    @property
    def _has_own_forward(self) -> bool:
        """Whether the class overrides HybridBlock's `forward`, which only runs hybrid_forward."""
        return "forward" in vars(self) or type(self).forward is not HybridBlock.forward

    @property
    def _code_style(self) -> str:
        """ "2.x" if a call begins with a `__call__` or `forward` of the user's, which sees arrays; "1.x" if it begins
        with hybrid_forward.
        """
        return "2.x" if self._own_call or self._has_own_forward else "1.x"

    @property
    def _entry_of_calls(self) -> tuple[Any, int]:
        """The function that gets the arguments of a call, bound to the block, and the number of arguments before
        them.
        """
        if self._own_call:
            return own_call(self), 0
        return (self.forward, 0) if self._has_own_forward else (self.hybrid_forward, 1)

    def hybrid_forward(self, F: Functions, *args: Any, **params: Any) -> Any:
        """The computation, on `F` = nd or sym. Override it (or `forward`)."""
        raise NotImplementedError(
            f"{type(self).__name__} defines neither hybrid_forward(self, F, x, ...) nor forward(self, x, ...)"
        )

    def forward(self, x: Any, *args: Any) -> Any:
        """Run hybrid_forward on arrays (F = nd) or Symbols (F = sym). A `forward` of your own may prepare the arguments
        or the result: `return super().forward(x / 255) * 2`. It is part of the graph.
        """
        leaves = tensors_in((x, *args))
        if any(isinstance(leaf, Symbol) for leaf in leaves):
            return self._run_symbolic((x, *args), "call" if self._code_style == "1.x" else "hybrid_forward")
        if self._graphs.pinned and self._code_style == "1.x":
            return self._run_pinned((x, *args))
        if not leaves:
            raise self._no_array((x, *args))
        ctx = leaves[0].context
        self._check_signature()
        try:
            params = {name: parameter.data(ctx) for name, parameter in self._reg_params.items()}
        except DeferredInitializationError:
            self._complete_parameters((x, *args))
            params = {name: parameter.data(ctx) for name, parameter in self._reg_params.items()}
        return self.hybrid_forward(nd, x, *args, **params)

    def _no_array(self, args: Sequence[object]) -> HybridLabError:
        numbers = [item for item in args if isinstance(item, (np.ndarray, np.generic))]
        if numbers:
            return refused(numbers[0], f"the input of {self.name}")
        kinds = ", ".join(type(item).__name__ for item in args)
        return InputError(f"{self.name} was called without an array; it got {kinds}")

    @property
    def _needs_array(self) -> bool:
        """Whether an eager call without an array is an error: hybrid_forward takes its context from an array."""
        return self._code_style == "1.x" and not self._graphs.pinned

    def _check_signature(self) -> None:
        """Raise HybridizeError HL165 if hybrid_forward does not take a parameter of this block."""
        own = vars(self).get("hybrid_forward")  # such a function may hold the block: the cache is not used
        names = tuple(self._reg_params)
        missing = _untaken(type(self).hybrid_forward, names) if own is None else _untaken.__wrapped__(own, names)
        if missing:
            raise hybridize_error("HL165", location_of(self), block=self.name, tensor=missing, parameter=missing)

    def _made_data(self, parameter: Parameter) -> HybridizeError:
        """The error for a parameter whose class defines `data()`: a graph does not call it."""
        kind = type(parameter).__name__
        error = hybridize_error(
            "HL164",
            location_of(self),
            block=self.name,
            tensor=parameter.name,
            message=f"{kind}.data() makes the values of the parameter {parameter.name!r}; a graph does not call it.",
            reason="A graph reads the values that the parameter holds, without what data() does to them.",
            rewrite="compute the values in the Block's own code, from a plain Parameter",
        )
        error.runs_eagerly = True
        return error

    def _run_symbolic(self, args: Sequence[object], part: Part = "call", keywords: Mapping[str, Any] = NONE) -> Any:
        """Run the block's code on Symbols. The caller has entered its scope in the trace.

        part : where to begin; keywords : arguments of the user's `__call__` given by name alone
        """
        if self._graphs.pinned:
            return self._inline_pinned(args)
        trace = tracing.current()
        if trace is None or not trace.for_shapes:
            for parameter in self._reg_params.values():
                if parameter.makes_data:
                    raise self._made_data(parameter)
        if self._code_style == "1.x" or part == "hybrid_forward":
            return self._trace_hybrid_forward(args)
        try:
            if part == "call" and self._own_call:
                return own_call(self)(*args, **keywords)
            return self._trace_forward(args)
        except HybridizeError as error:
            # As in MXNet, Python around hybrid_forward may do what a graph cannot: the Block runs eagerly then.
            error.runs_eagerly = error.runs_eagerly or not error.in_graph_code
            raise

    def _trace_forward(self, args: Sequence[object]) -> Any:
        """`forward` on Symbols, called by the user's `__call__` through super().__call__(...)."""
        if not self._has_own_forward:
            return self._trace_hybrid_forward(args)
        try:
            return self.forward(*args)
        except HybridizeError as error:
            error.in_graph_code = error.in_graph_code or not self._has_hybrid_forward
            raise

    def _trace_hybrid_forward(self, args: Sequence[object]) -> Any:
        self._check_signature()
        trace = tracing.current()
        read = trace.parameter if trace is not None else (lambda parameter: parameter.var())
        params = {name: read(parameter) for name, parameter in self._reg_params.items()}
        try:
            with trace.in_style("1.x") if trace is not None else contextlib.nullcontext():
                return self.hybrid_forward(sym, *args, **params)
        except HybridizeError as error:
            error.in_graph_code = True
            raise

    # -- calls -------------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any) -> Any:
        """Call the block on arrays (or on Symbols, to compose graphs). Runs the forward hooks."""
        if self._own_call:
            return self._call_inside(args)
        enclosing = _local.enclosing
        if enclosing is not None:
            if isinstance(enclosing, CallRecorder):
                return enclosing.call(self, self._call_from_outside, (args, NONE), NONE)
            if type(enclosing) is not list:
                return self._call_from_outside(args)
            enclosing.append(self)
        if self._active and len(args) == 1 and type(args[0]) is NDArray:
            if not self._forward_hooks and not self._forward_pre_hooks:
                return self._graph_calls.call_one(args[0])
        return self._call_from_outside(args)

    def _call_of_own(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """`__call__` of a class with the user's own `__call__`. keywords : arguments given by name alone"""
        enclosing = _local.enclosing
        if isinstance(enclosing, CallRecorder):
            return enclosing.call(self, self._call_from_outside, (args, keywords), NONE)
        if type(enclosing) is list:
            enclosing.append(self)
        return self._call_from_outside(args, keywords)

    def _call_from_outside(self, args: tuple[Any, ...], keywords: Mapping[str, Any] = NONE) -> Any:
        """A call from outside of the block. keywords : arguments of the user's `__call__` given by name alone"""
        for hook in list(self._forward_pre_hooks.values()):
            hook(self, args)
        trace = _local.trace
        if trace is not None:
            result = self._call_in_trace(trace, args, keywords)
        else:
            result = self._call_alone(args, keywords)
        for hook in list(self._forward_hooks.values()):
            hook(self, args, result)
        return result

    def _call_alone(self, args: tuple[object, ...], keywords: Mapping[str, Any]) -> Any:
        """A call outside of other graphs: compiled or eager."""
        if self._active and not keywords:
            if {*map(type, args)} == _ARRAYS:
                return self._graph_calls(args)
            leaves, _ = self._tensors_given(args)
            if leaves is None:
                self._tell_of_arguments(_OBJECT)
            else:
                if not leaves and args and self._needs_array:
                    raise self._no_array(args)
                if not any(isinstance(leaf, Symbol) for leaf in leaves):
                    return self._graph_calls(args)
        if keywords and self._active:
            self._tell_of_arguments(_by_keyword(keywords))
        return self._call_eagerly(args, keywords)

    def _call_eagerly(self, args: tuple[object, ...], keywords: Mapping[str, Any] = NONE) -> Any:
        plain_code = self._code_style == "2.x"
        leaves, _ = self._tensors_given(args) if plain_code or self._graphs.pinned else ([], ())
        if any(isinstance(leaf, Symbol) for leaf in leaves or ()):
            return self._compose_symbols(args, keywords)
        if self._graphs.pinned:
            return self._run_pinned(args)
        if not leaves and any(isinstance(leaf, Symbol) for leaf in args):
            return self._compose_symbols(args, keywords)
        calls, call, key = self._graphs.calls, None, key_of(args)
        if keywords:
            calls.refused = _by_keyword(keywords)
        elif not calls.repeats(key):
            if self._tensors_given(args)[0] is None:
                calls.refused = _OBJECT
            else:  # before the code changes a list among the arguments
                call = kind_of_call(args, f"the input of {self.name}")
        enclosing, _local.enclosing = _local.enclosing, None  # Blocks called inside are parts of its graph
        try:
            result = own_call(self)(*args, **keywords) if self._own_call else self._forward_eagerly(args)
        except RecursionError:
            raise
        except Exception as error:
            note_block(error, self)
            raise
        finally:
            _local.enclosing = enclosing
        if call is not None:
            calls.note(call, key)
            called(self)
        self._note_outputs(result)
        return result

    def _tensors_given(self, args: tuple[object, ...]) -> tuple[list[Any] | None, Any]:
        """The tensors among the arguments and the structure around them; None if the user's code takes an object that
        no graph takes. Raises HybridLabError for an object of this kind if hybrid_forward would get no tensor, or if a
        graph from a file runs.
        """
        try:
            return flatten(args, f"the input of {self.name}")
        except HybridLabError:
            if self._graphs.pinned or (self._code_style == "1.x" and not tensors_in(args)):
                raise
            return None, None

    def _tell_of_arguments(self, what: str) -> None:
        """Warn once that calls with such arguments have no graph. Raises HybridLabError if `strict` refuses them."""
        if self._flags.get("strict"):
            raise HybridLabError(f"{self.name} was called with {what}, which a graph does not take")
        said = f"it was called with {what}, which a graph does not take: such calls run eagerly"
        self._graph_calls.failures.warn_once(("arguments", what), said)

    def _call_inside(self, args: tuple[object, ...]) -> Any:
        """The call that the user's `__call__` makes with super().__call__(...)."""
        return self._trace_forward(args) if _local.trace is not None else self._forward_eagerly(args)

    def _forward_eagerly(self, args: tuple[object, ...]) -> Any:
        """Run forward; if it reads parameters itself, complete them first."""
        if not self._has_hybrid_forward and any(each._array is None for each in self._reg_params.values()):
            if self._tensors_given(args)[0]:
                self._complete_parameters(args)
        return self.forward(*args)

    def _compose_symbols(self, args: tuple[object, ...], keywords: Mapping[str, Any]) -> Any:
        """A call on Symbols outside of a trace: extends their graph by this block."""
        trace = tracing.Trace(composes=True)
        with tracing.tracing(trace):
            return run_traced(self, trace, args, self.name, keywords=keywords)[0]

    def _call_in_trace(self, trace: tracing.Trace, args: tuple[object, ...], keywords: Mapping[str, Any]) -> Any:
        """A nested call: part of the outer graph, and a graph of its own recorded on the way."""
        leaves, spec = self._tensors_given(args)
        tensors = tensors_in(args) if leaves is None else leaves
        arrays = [tensor for tensor in tensors if not isinstance(tensor, Symbol)]
        if not tensors and args and self._needs_array:
            raise self._no_array(args)
        if arrays:
            raise tracing.refuse("HL164", tensor=f"an input of {self.name}", value=arrays[0], expression="an input")
        observed, used_fixed, begun = len(trace.observed), trace.used_fixed, len(trace.nodes)
        arguments, returned = args, None
        if leaves is None or trace.pauses or len({leaf.outputs[0] for leaf in leaves}) < len(leaves):
            from hybrid_lab.hybridize.container_arguments import separated

            arguments, returned = separated(args)
        try:
            result, alone = run_traced(self, trace, arguments, self._path_in(trace), keywords=keywords)
        except BaseException:
            if returned is not None:
                returned(None)
            raise
        # A graph cannot change an argument list, so a call that changes one has no graph of its own.
        alone = alone and trace.used_fixed == used_fixed and not keywords and not trace.for_shapes
        if leaves and alone and (id(self), spec) not in trace.nested and not self._graphs.has(spec):
            inputs = leaves if returned is None else flatten(arguments)[0]
            graph = extract_nested(trace, self, spec, inputs, result, observed, trace.nodes[begun:])
            if graph is not None:
                trace.nested[id(self), spec] = self, graph
        self._note_traced_outputs(trace, result)
        return result if returned is None else returned(result)

    def _note_traced_outputs(self, trace: tracing.Trace, result: object) -> None:
        leaves = flatten(spread(result))[0]
        types = [trace.types.get(leaf.outputs[0]) for leaf in leaves if isinstance(leaf, Symbol)]
        known_types = [item for item in types if item is not None]
        if known_types and len(known_types) == len(types):
            self._note_output_types(tuple(known_types))

    def _path_in(self, trace: tracing.Trace) -> str:
        """`net0.features.conv1`: the caller's path and this block's name in the caller."""
        scope = trace.scope
        name = trace.child_name(trace.blocks[-1]._children, self) if trace.blocks else None
        if name is not None:
            return f"{scope}.{name}"
        return f"{scope}.{self.name}" if scope else self.name

    # -- graphs that a file brought --------------------------------------------------------------------------

    def _run_pinned(self, args: tuple[Any, ...], graphs: Graphs | None = None) -> Any:
        """Eagerly run the graph loaded from a file. graphs : among which it is found, by default the Block's own"""
        from hybrid_lab.gluon.pinned import run_pinned

        return run_pinned(self, args, graphs)

    def _inline_pinned(self, args: Sequence[object], graphs: Graphs | None = None) -> Any:
        """Put the loaded graph into the graph being traced."""
        from hybrid_lab.gluon.pinned import inline_pinned

        return inline_pinned(self, args, graphs)

    @property
    def _cached_graph(self) -> tuple[Any, ...]:
        """MXNet's form of the Block's graph: (input Symbols, output Symbol); () before the first call of a hybridized
        Block. Assigned, it runs instead of the code: `block._cached_graph = sym.load("net-symbol.json")`, with the
        Block's own parameters; or a tuple of the inputs and the Symbol. () lets the code run again.
        """
        from hybrid_lab.gluon.assigned import as_symbols

        return as_symbols(next(iter(self._graph_calls.predicting_first()), None))

    @_cached_graph.setter
    def _cached_graph(self, graph: object) -> None:
        from hybrid_lab.gluon.assigned import graph_of_symbols
        from hybrid_lab.gluon.files.graphs_of_calls import predicting

        try:
            predicting_graph = predicting(self)
        except MissingGraphError:
            predicting_graph = None
        neutral = graph_of_symbols(self, graph, predicting_graph)
        self._graph_calls.pin([] if neutral is None else [neutral])

    # -- hybridize -------------------------------------------------------------------------------------------

    def hybridize(
        self,
        active: bool = True,
        engine: str | None = None,
        device: Any = None,
        static_alloc: bool = False,
        static_shape: bool = False,
        strict: bool = False,
        tf32: bool = False,
        products: str | None = None,
        **flags: Any,
    ) -> None:
        """Run this block and its children as compiled graphs from the next call on; `active=False` goes back to eager
        runs.

        engine : 'triton', 'onnxruntime', 'torch' or 'numpy'; None takes Triton if a GPU is usable; else the rules in
            engines/policy.py choose an engine for each compiled call. `mx.explain(net)` prints the engine and the
            reason
        device : the device of the engine, mx.gpu(0) or mx.cpu(); None takes the engine's own
        static_alloc : keep all intermediate memory from call to call
        static_shape : also capture the launches of a GPU once and replay them
        strict : raise an error for operators that the engine cannot compile, instead of running them through the
            fallback, and for code without a graph, instead of running it eagerly with a warning
        tf32 : multiply float32 with 10 bits of each factor on GPUs with this format (NVIDIA's from sm80 on, AMD's
            gfx942), several times as fast; without it, and on other devices, float32 is multiplied as float32
        products : on a GPU, the implementation of matrix products and convolutions. None : the vendor's library
            (cuBLAS, cuDNN, rocBLAS, MIOpen) for products that it computes faster by rule, this package's kernels for
            all other products; 'own' : this package's kernels for all products, as with `strict`; 'vendor' : the
            library for all products that it has a call for
        flags : `backend`, MXNet's name of `engine`; MXNet's other flags (inline_limit, forward_bulk_size ...) are
            accepted and kept; any other is dropped with a warning

        Every call drops traces and programs. Raises SettingError if `active` is an engine's name or a flag has a wrong
        value, HybridizeError HL181 if a child is not a HybridBlock, EngineUnavailable for an unknown engine, or if the
        engine or the device cannot be used here, or not together.
        """
        own = {"static_alloc": static_alloc, "static_shape": static_shape, "strict": strict, "tf32": tf32}
        engine = check_flags(active, {**flags, **own, "products": products, "engine": engine, "device": device})
        self._refuse_other_children()
        take_over(type(self))  # its methods may have been replaced since it was made
        flags = known_flags(self.name, flags)
        if active and device is not None:
            device = resolve(device)
            if device.is_gpu and device.device_id:
                raise EngineUnavailable(f"compiled graphs run on gpu(0) only, not on {device}")
            engines.check_device(engine, device.is_gpu)
        elif active and engine is not None:
            engines.get(engine)
        chosen = {
            "engine": engine,
            "device": device,
            "static_alloc": static_alloc,
            "static_shape": static_shape,
            "strict": strict,
            **({"tf32": True} if tf32 else {}),
            **({"products": products} if products is not None else {}),
            **flags,
        }
        if bool(active) is not self._active:
            object.__setattr__(self, "_active", bool(active))
            for listener in events.changed:
                listener(self)
        object.__setattr__(self, "_flags", chosen)
        if active and engine is None and device is None:
            early_import.hybridized()
        self._graph_calls.start_over()
        super().hybridize(active, **chosen)

    def _let_code_run(self, aside: bool) -> None:
        """Let the code of an active Block run for a while, or its graphs again; the lab always shows the Block as
        active.
        """
        object.__setattr__(self, "_set_aside", aside)
        object.__setattr__(self, "_active", not aside)

    def _switch_graphs(self, on: bool) -> None:
        if (self._active or self._set_aside) is not on:
            self.hybridize(on)

    def _refuse_other_children(self) -> None:
        for name, child in self._children.items():
            if not isinstance(child, HybridBlock):
                raise hybridize_error("HL181", block=self.name, child=f"self.{name}", type=type(child).__name__)

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Add a child; it must be a HybridBlock."""
        if not isinstance(block, HybridBlock):
            raise hybridize_error("HL181", block=self.name, child=name or "new child", type=type(block).__name__)
        super().register_child(block, name)

    def _hooked(self) -> None:
        from hybrid_lab.hybridize.hooks import warn_of_new_hook

        warn_of_new_hook(self)

    def register_op_hook(self, callback: OperatorHook, monitor_all: bool = False) -> None:
        """Call `callback(name, operator, array)` for the output of every operator while the hybridized Block is called:
        its graph then runs operator by operator, which is slower.

        monitor_all : also for the inputs of operators, named 'dense0_fwd_data', 'dense0_fwd_weight' ...
        Another callback replaces this callback. Eager calls, and calls inside the graph of another Block, do not call
        it.
        """
        check_switches("HybridBlock.register_op_hook", monitor_all=monitor_all)
        from hybrid_lab.gluon.operator_hooks import OperatorInterceptor

        hook = OperatorInterceptor(callback, bool(monitor_all))
        before, self.__dict__["_operator_hook"] = self.__dict__.get("_operator_hook"), hook
        if before is not None:
            self._graph_calls.remove_interceptor(before)
        self._graph_calls.add_interceptor(hook)
        super().register_op_hook(callback, monitor_all)

    def optimize_for(self, x: Any, *args: Any, backend: str | None = None, **flags: Any) -> None:
        """Hybridize for an engine, and compile the call with these inputs by running it once.

        backend : 'triton', 'onnxruntime', 'torch' or 'numpy', the `engine` of `hybridize`; None lets the engine be
        chosen
        flags : of `hybridize`. Raises EngineUnavailable for another backend, also for MXNet's own
        ('MKLDNN', 'TensorRT')
        """
        self.hybridize(True, backend=backend, **flags)
        self(x, *args)

    def __setattr__(self, name: str, value: object) -> None:
        if tracing.stands_for_arrays() and tracing.holds_symbols(value):
            error = tracing.refuse("HL173", value=value, target=f"self.{name}")
            error.runs_eagerly = error.keeps_tensors = True
            raise error
        before = self.__dict__[name] if name in self.__dict__ else getattr(type(self), name, ABSENT)
        super().__setattr__(name, value)
        if before is not value and tracing.current() is None and makes_stale(self, name, before, value):
            drop_for_values(self, f"{self.name}.{name}{in_words(value, before)}")

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        if tracing.current() is None and makes_stale(self, name, None, ABSENT):
            drop_for_values(self, f"{self.name}.{name}")

    def cast(self, dtype: DTypeLike | None) -> None:
        """Convert all parameters, drop the programs made for the old dtype; None is float32, as in MXNet."""
        dtype = "float32" if dtype is None else dtype
        super().cast(dtype)
        self._graph_calls.forget_programs()
        self._graphs.note_cast(dtype)

    def _clear_cached_op(self) -> None:
        """Forget traces and programs; a graph that came from a file stays."""
        self._graph_calls.clear()

    # -- deferred shapes -------------------------------------------------------------------------------------

    def infer_shape(self, *args: object) -> None:
        """Set the shapes of this block's parameters for these inputs (arrays) of hybrid_forward, or of the user's
        forward; no `initialize()` is needed.
        Override it for shapes that a trace cannot find.

        Raises HybridizeError for code that cannot be traced, and HybridLabError if the code computes with arrays left
        on the Block by an earlier call.
        """
        from hybrid_lab.hybridize.deferred_shapes import infer_shapes

        part: Part = "hybrid_forward" if self._has_hybrid_forward else "forward"
        if not self._own_call and (part == "forward" or not self._has_own_forward):
            part = "call"
        infer_shapes(self, args, part)

    def _complete_parameters(self, args: tuple[object, ...]) -> None:
        """Infer unknown parameter shapes from the inputs, then finish the deferred initialization."""
        if any(not each.shape_is_known and each._array is None for each in self._reg_params.values()):
            self.infer_shape(*args)
        for parameter in self._reg_params.values():
            if parameter._array is None:
                parameter._finish_deferred_init()

    def _complete_from(self, neutral: NeutralGraph, leaves: Sequence[NDArray]) -> None:
        """Finish the deferred initialization of all parameters of a graph. Raises UninitializedError."""
        from hybrid_lab.hybridize.deferred_shapes import set_shapes

        set_shapes(self, neutral, leaves)
        for parameter in neutral.parameters:
            if parameter._array is None:
                parameter._finish_deferred_init()
                parameter.list_data()  # raises if initialize() was forgotten

    # -- looking at kernels ----------------------------------------------------------------------------------

    def compile_for(self, *targets: str, inputs: object = None, train: bool = False) -> Any:
        """The Triton kernels of a call, compiled for GPUs that need not be in the machine: `net.compile_for('gfx942',
        inputs=(8, 3, 224, 224))`. As `insight.compiled.compile_for`.
        """
        check_switches("compile_for", train=train)
        return compile_for(self, *targets, inputs=inputs, train=train)

    # -- saving ----------------------------------------------------------------------------------------------

    @shows_work("exporting")
    def export(self, path: str | None = None, epoch: int = 0, remove_amp_cast: bool = True) -> tuple[Any, Any]:
        """Write MXNet's two files, `<path>-symbol.json` and `<path>-<epoch>.params`; returns their names.

        path : None writes nothing and returns the Symbol and its parameters, `{"arg:dense0_weight": NDArray ...}`
        remove_amp_cast : leave out the conversions put into the graph by `amp.convert_hybrid_block`
        The graph of the latest call in prediction mode is written; the block must have been called once, hybridized or
        not. Raises MissingGraphError otherwise, and HybridLabError if the graph without its conversions would not fit
        float16 or bfloat16 parameters.
        """
        check_switches("HybridBlock.export", remove_amp_cast=remove_amp_cast)
        from hybrid_lab.gluon.files.exporting import export

        return export(self, path, epoch, remove_amp_cast)


CALLS.add(HybridBlock.__call__.__code__)


@functools.lru_cache(maxsize=4096)
def _untaken(function: Any, names: tuple[str, ...]) -> str | None:
    """The first of `names` that is not an argument of `function`."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    arguments = {parameter.name for parameter in parameters}
    return next((name for name in names if name not in arguments), None)


def _by_keyword(keywords: Mapping[str, Any]) -> str:
    return f"{', '.join(keywords)} by keyword alone"
