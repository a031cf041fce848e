"""Block: a tree of layers with named parameters."""

from __future__ import annotations

import os
import re
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, TypedDict

from numpy.typing import DTypeLike

from hybrid_lab.diagnostics import HybridLabError, SettingError, capture, rules
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.gluon import budget
from hybrid_lab.hybridize import events
from hybrid_lab.hybridize.block import AnyBlock
from hybrid_lab.hybridize.block_notes import CALLS, called_blocks, note_block
from hybrid_lab.initializer import InitializerLike
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.context import Context
from hybrid_lab.ndarray.numpy_mode import is_np_shape
from hybrid_lab.symbol.tracing import local as _local
from hybrid_lab.system.progress import shows_work
from hybrid_lab.system.provided import Provided, options_of, signed_like

from .call_record import CallRecorder, Records, records_for
from .flags import check_flags, check_switch
from .hooks import HookHandle
from .members import Children, Members
from .naming import NameScope
from .parameter import Parameter
from .parameter_dict import ParameterDict

__all__ = ["Block"]

_BlockScope = NameScope
"""MXNet's name of the class; libraries take it from here."""

block_html: Provided[[Block], str] = Provided("block_html")
complete_block: Provided[[Block, tuple[Any, ...], bool], None] = Provided("complete_block")
model_summary: Provided[..., object] = Provided("model_summary")
export_outermost: Provided[..., Any] = Provided("export_outermost")
load_cached_graphs: Provided[..., Any] = Provided("load_cached_graphs")
save_cached_graphs: Provided[..., Any] = Provided("save_cached_graphs")

_OWN_CONTAINERS = frozenset(
    {"_children", "_reg_params", "_forward_hooks", "_forward_pre_hooks", "_name_counts", "_parents"}
)

_MEMBERS: dict[str, Callable[[Block, Any], Any]] = {"_children": Children, "_reg_params": Members}

_OF_ONE_BLOCK = frozenset({"_parents", "_calls_noted", "_graph_calls"})
"""Attributes that a copy of a Block does not get."""


class BlockOptions(TypedDict, total=False):
    """The keyword arguments of every Block's constructor."""

    prefix: str | None
    params: ParameterDict | None


class Block(AnyBlock):
    """Base of all layers and models. A subclass defines `forward(*args)`.

    Blocks and Parameters assigned to attributes are registered:

        class Model(gluon.Block):
            def __init__(self, **kwargs):
                super().__init__(**kwargs)
                with self.name_scope():
                    self.hidden = nn.Dense(20)
                    self.out = nn.Dense(10)

            def forward(self, x):
                return self.out(nd.relu(self.hidden(x)))

    prefix : put before the names of parameters and children; by default the class's name in lower case with a number
    params : a ParameterDict to share weights with, `other.params`
    """

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        budget.spend()
        full_prefix, own_params = NameScope.create(prefix, params, self._alias())
        vars(self).update(  # past __setattr__, which checks every value
            _children=Children(self, {}),
            _reg_params=Members(self, {}),
            _parents=[],
            _structure_version=0,
            _last_change=0,
            _empty_prefix=prefix == "",
            _prefix=full_prefix,
            _params=own_params,
            _name=full_prefix.removesuffix("_"),
            _name_counts={},
            _forward_hooks=OrderedDict(),
            _forward_pre_hooks=OrderedDict(),
            _warned_containers=frozenset(),
        )

    _is_container = False
    """Whether the Block only calls its children in order: `summary` has no line for it."""

    _children: Children
    _reg_params: Members[Parameter]
    _parents: list[weakref.ref[Block]]
    _structure_version: int
    _last_change: int
    _empty_prefix: bool
    _prefix: str
    _params: ParameterDict
    _name: str
    _name_counts: dict[str, int]
    _forward_hooks: OrderedDict[int, Callable[..., Any]]
    _forward_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _warned_containers: frozenset[str]

    def _alias(self) -> str:
        """The name that is numbered: `dense` gives dense0, dense1 ..."""
        return type(self).__name__.lower()

    def __repr__(self) -> str:
        lines = (f"  ({key}): {_indented(block)}" for key, block in self._children.items())
        return f"{type(self).__name__}(\n" + "\n".join(lines) + "\n)"

    def _repr_html_(self) -> str:
        """The block tree as HTML without scripts, for notebooks."""
        return block_html(self)

    # -- attributes, children, structure -----------------------------------------------------------------------

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, (Block, Parameter)) and "_children" not in self.__dict__:
            raise RuntimeError(
                f"{type(self).__name__}.__init__ must call super().__init__() before it assigns {name!r}"
            )
        existing = self.__dict__.get(name)
        if isinstance(existing, Block) and not isinstance(value, Block) and name in self._children:
            raise TypeError(
                f"{name!r} is a child block ({type(existing).__name__}) and cannot become a {type(value).__name__}; "
                f"another Block may take its place, `del net.{name}` removes it"
            )
        if isinstance(existing, Parameter) and name in self._reg_params and value is not existing:
            raise TypeError(
                f"{name!r} is a parameter already; give it values with set_data(), or share one with "
                "params=other.params when the block is made"
            )
        if isinstance(value, Block):
            self.register_child(value, name)
        elif isinstance(value, Parameter):
            self._register_parameter(value, name)
        elif name in _MEMBERS:
            value = _MEMBERS[name](self, value)
            object.__setattr__(self, name, value)
            self._structure_changed()
            return
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__.get("_children", ()):
            del self._children[name]
        elif name in self.__dict__.get("_reg_params", ()):
            parameter = self._reg_params[name]
            del self._reg_params[name]
            self._params.remove(parameter.name)
        object.__delattr__(self, name)

    def _register_parameter(self, parameter: Parameter, name: str) -> None:
        if not any(each is parameter for each in self._params.values()) and not parameter.registered:
            # Made with Parameter(...) rather than self.params.get(...): it takes its full name here.
            if not parameter.name.startswith(self._prefix):
                parameter.name = self._prefix + parameter.name
            if parameter.name in self._params:
                parameter.name = self._prefix + name
        if parameter.name not in self._params:
            self._params.add(parameter)
        self._reg_params[name] = parameter

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Make `block` a child, under `name` (default: its number). A child of that name is replaced, in its place.

        Raises TypeError for what is no Block, and ValueError for an empty name.
        """
        self._children[str(len(self._children)) if name is None else name] = block

    def _check_child(self, block: object, name: object) -> None:
        if not isinstance(block, Block):
            raise TypeError(f"a child of {self.name} must be a Block, such as nn.Dense(10), not {block!r}")
        if not isinstance(name, str) or not name:
            raise ValueError(f"a child of {self.name} needs a name, a text such as 'encoder', not {name!r}")

    def _adopt(self, block: Block) -> None:
        """Note in a child that this Block is above it."""
        if not any(parent() is self for parent in block._parents):
            block._parents[:] = [parent for parent in block._parents if parent() is not None]
            block._parents.append(weakref.ref(self))

    def _structure_changed(self, structure: bool = True) -> None:
        """Tell this block and all above it that graphs traced before are stale.

        structure : False if neither children nor parameters came or went
        """
        for block in self._and_above():
            object.__setattr__(block, "_structure_version", block._structure_version + structure)
            block._clear_cached_op()
            for listener in events.changed:
                listener(block)

    def _and_above(self) -> Iterator[Block]:
        """This Block and all Blocks above it, each once."""
        pending: list[Block] = [self]
        seen: set[int] = set()
        while pending:
            block = pending.pop()
            if id(block) in seen:
                continue
            seen.add(id(block))
            yield block
            for reference in block._parents:
                parent = reference()
                if parent is not None and any(child is block for child in parent._children.values()):
                    pending.append(parent)

    def _clear_cached_op(self) -> None:
        """Drop cached graphs, which only a HybridBlock has, and what is expected of the calls of a plain one."""
        if self._calls_noted is not None:
            self._calls_noted.forget()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in _OF_ONE_BLOCK}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self.__dict__["_parents"] = []
        for name, kind in _MEMBERS.items():
            self.__dict__[name] = kind(self, self.__dict__[name])

    def __copy__(self) -> Block:
        """Another Block with the same children, parameters and attributes; what it gets later, this one does not."""
        twin = object.__new__(type(self))
        twin.__setstate__({
            key: value.copy() if key in _OWN_CONTAINERS else value for key, value in self.__getstate__().items()
        })  # fmt: skip
        return twin

    def _warn_of_hidden_children(self) -> None:
        """Blocks in lists and dicts are not registered (HL182): say so, once per attribute."""
        registered = {id(child) for child in self._children.values()}
        for name, value in self.__dict__.items():
            if name in _OWN_CONTAINERS or name in self._warned_containers or not isinstance(value, (list, tuple, dict)):
                continue
            if any(id(block) not in registered for block in _blocks_in(value)):
                self._warned_containers |= {name}
                rule = rules.get("HL182")
                facts = {"attribute": f"self.{name}", "container": type(value).__name__}
                message = rule.message_for(**facts)
                location = capture()
                warnings.warn_explicit(
                    f"HL182: {type(self).__name__}: {message} Instead: {rule.rewrite_for(**facts)}",
                    UserWarning,
                    location.file if location else "<unknown>",
                    location.line if location else 0,
                )

    # -- names -------------------------------------------------------------------------------------------------

    @property
    def prefix(self) -> str:
        """What the names of parameters and children start with."""
        return self._prefix

    @property
    def name(self) -> str:
        """The prefix without its last underscore."""
        return self._name

    def name_scope(self) -> NameScope:
        """`with self.name_scope():` - blocks and symbols made inside get this block's prefix."""
        return NameScope(self)

    # -- parameters --------------------------------------------------------------------------------------------

    @property
    def params(self) -> ParameterDict:
        """This block's own parameters, without its children's."""
        return self._params

    def collect_params(self, select: str | None = None) -> ParameterDict:
        """The parameters of this block and everything below it.

        select : a regular expression matched at the start of the full names, '.*weight|.*bias'
        """
        pattern = re.compile(select) if select else None
        collected = ParameterDict(self._params.prefix)
        self._collect_parameters(collected, pattern)
        return collected

    def _collect_parameters(self, collected: ParameterDict, pattern: re.Pattern[str] | None) -> None:
        self._warn_of_hidden_children()
        own: Mapping[str, Parameter] | ParameterDict = self._params
        if pattern is not None:
            own = {name: parameter for name, parameter in self._params.items() if pattern.match(name)}
        collected.update(own)
        for child in self._children.values():
            child._collect_parameters(collected, pattern)

    def _collect_params_with_prefix(self, prefix: str = "") -> dict[str, Parameter]:
        """Parameters by attribute path, '0.weight'; a shared one stands under each of its paths."""
        start = prefix + "." if prefix else ""
        parameters = {start + name: parameter for name, parameter in self._reg_params.items()}
        for name, child in self._children.items():
            parameters.update(child._collect_params_with_prefix(start + name))
        return parameters

    def initialize(
        self,
        init: InitializerLike | None = None,
        ctx: Context | Sequence[Context] | None = None,
        verbose: bool = False,
        force_reinit: bool = False,
    ) -> None:
        """Initialize all parameters; those whose shape is not known yet wait for the first forward pass.

        init : for parameters without an initializer of their own; default Uniform(0.07)
        ctx : one context or a list; verbose : log each; force_reinit : also parameters with values
        """
        check_switches("Block.initialize", verbose=verbose, force_reinit=force_reinit)
        self.collect_params().initialize(init, ctx, verbose, force_reinit)

    def zero_grad(self) -> None:
        """Set the gradients of all parameters to zero."""
        self.collect_params().zero_grad()

    def setattr(self, name: str, value: object) -> None:
        """Set an attribute of every parameter: `setattr('grad_req', 'null')` freezes them. As in Gluon 2."""
        self.collect_params().setattr(name, value)

    def reset_ctx(self, ctx: Context | Sequence[Context] | None) -> None:
        """Move all parameters to other contexts: `net.reset_ctx(mx.gpu(0))`. As in Gluon 2.

        Raises UninitializedError before `initialize()`.
        """
        self.collect_params().reset_ctx(ctx)

    def cast(self, dtype: DTypeLike | None) -> None:
        """Change the element type of all parameters; None is float32, as in MXNet."""
        dtype = "float32" if dtype is None else dtype
        for child in self._children.values():
            child.cast(dtype)
        float32 = self._stay_float32(dtype)
        for parameter in self._params.values():
            parameter.cast("float32" if parameter in float32 else dtype)
        self._structure_changed(structure=False)

    def _stay_float32(self, dtype: DTypeLike | None) -> Collection[Parameter]:
        """The own parameters that `cast(dtype)` makes float32, for any `dtype`."""
        return ()

    # -- files -------------------------------------------------------------------------------------------------

    @shows_work("saving the parameters of")
    def save_parameters(self, filename: str | PathLike[str], deduplicate: bool = False) -> None:
        """Write all parameters by attribute path: as safetensors if the name ends with `.safetensors`, else in MXNet's
        `.params` form.

        deduplicate : write shared parameters once. Raises UninitializedError if one has no values; no file is left.
        """
        check_switches("Block.save_parameters", deduplicate=deduplicate)
        from hybrid_lab.formats.arrays import write_arrays

        parameters = self._collect_params_with_prefix()
        if deduplicate:
            first: dict[int, str] = {}
            for name, parameter in parameters.items():
                first.setdefault(id(parameter), name)
            parameters = {name: parameter for name, parameter in parameters.items() if first[id(parameter)] == name}
        arrays = {name: parameter._reduce().asnumpy() for name, parameter in parameters.items()}
        write_arrays(filename, arrays, is_np_shape() or None)

    def save_params(self, filename: str | PathLike[str]) -> None:
        """MXNet's former name of `save_parameters`: parameters by their names without the Block's prefix."""
        self.collect_params().save(filename, strip_prefix=self.prefix)

    def load_params(
        self,
        filename: str | PathLike[str],
        ctx: Context | Sequence[Context] | None = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
    ) -> None:
        """MXNet's former name of `load_parameters`."""
        self.load_parameters(filename, ctx, allow_missing, ignore_extra)

    @shows_work("loading the parameters of")
    def load_parameters(
        self,
        filename: str | PathLike[str],
        ctx: Context | Sequence[Context] | None = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        cast_dtype: bool = False,
        dtype_source: str = "current",
        map: Mapping[str, str] | str | None = None,  # noqa: A002 - as in load_cached_graphs
    ) -> None:
        """Load a `.params` or safetensors file: by attribute path, as `save_parameters` writes it, or by name, as
        `export` does; or the index of a safetensors file in parts, `model.safetensors.index.json`.

        map : file path -> model path of what has another name here, {"encoder.layer": "layers", "fc.bias": "out.bias"};
            `*` stands for any one part, {"layer.*.norm.weight": "cells.*.norm.gamma"}. Or the name of a map for files
            from another library, "torchvision-resnet50" (docs/name-maps.md)
        cast_dtype : convert to the model's dtype (dtype_source 'current') or take over the file's ('saved').
        All or nothing: raises LoadMismatchError listing everything missing, extra or of another shape or dtype.
        """
        check_switches(
            "Block.load_parameters", allow_missing=allow_missing, ignore_extra=ignore_extra, cast_dtype=cast_dtype
        )
        from hybrid_lab.gluon.files.loading import load_parameters, plain_name, read_arrays, renamed

        targets: dict[str, list[tuple[str, Parameter]]] = {}
        for path, parameter in self._collect_params_with_prefix().items():
            targets[path] = [(path, parameter)]
        for name, parameter in self.collect_params().items():
            targets.setdefault(name, [(name, parameter)])
            if self._prefix and name.startswith(self._prefix):
                targets.setdefault(name[len(self._prefix) :], [(name, parameter)])
        arrays = renamed(read_arrays(filename), map or {}, filename)
        arrays = {name if name in targets else plain_name(name): array for name, array in arrays.items()}
        load_parameters(targets, arrays, filename, ctx, allow_missing, ignore_extra, cast_dtype, dtype_source)

    @signed_like(save_cached_graphs)
    def save(self, path: str | PathLike[str] | None = None, **options: object) -> Any:
        """Write the tree, all cached graphs and all parameters to one `.hlab` archive. As `mx.save_cached_graphs`."""
        return save_cached_graphs(self, path, **options)

    @signed_like(load_cached_graphs)
    def load(self, path: str | PathLike[str] | None = None, **options: object) -> Any:
        """Load an archive into this model and return the report. As `mx.load_cached_graphs`."""
        return load_cached_graphs(self, path, **options)

    def export(self, path: str, epoch: int = 0, remove_amp_cast: bool = True) -> Any:
        """Write MXNet's two files for each outermost HybridBlock, as `HybridBlock.export` does for a single one.

        path : `model` gives `model-features.0-symbol.json` and `model-features.0-0000.params` for the HybridBlock at
            `features.0`
        Returns the two names for each, in order: [("model-features-symbol.json", "model-features-0000.params"), ...].
        A HybridBlock that was never called is left out with a warning. Raises HybridLabError if none is left.
        """
        check_switches("Block.export", remove_amp_cast=remove_amp_cast)
        return export_outermost(self, path, epoch, remove_amp_cast)

    # -- states, by SINGA's names ------------------------------------------------------------------------------

    def get_params(self) -> dict[str, NDArray]:
        """The arrays that training updates, by path: `conv1.weight`. They are the Block's own, not copies.

        Raises UninitializedError if one has no values yet; `compile` gives values to all.
        """
        from hybrid_lab.gluon.files import states

        return states.arrays_of(self, learned_only=True)

    def set_params(self, parameters: Mapping[str, object], allow_missing: bool = False) -> None:
        """Copy values (NDArrays, NumPy arrays, lists) into the parameters of these paths.

        All or nothing: raises LoadMismatchError listing what is missing, extra or of another shape.
        """
        from hybrid_lab.gluon.files import states

        check_switches("Block.set_params", allow_missing=allow_missing)
        states.set_arrays(self, parameters, True, allow_missing)

    def get_states(self) -> dict[str, NDArray]:
        """All arrays that the Block computes with, by path: its parameters, and running statistics and constants."""
        from hybrid_lab.gluon.files import states

        return states.arrays_of(self, learned_only=False)

    def set_states(self, values: Mapping[str, object], allow_missing: bool = False) -> None:
        """As `set_params`, for all states."""
        from hybrid_lab.gluon.files import states

        check_switches("Block.set_states", allow_missing=allow_missing)
        states.set_arrays(self, values, False, allow_missing)

    @options_of(save_cached_graphs, without=("aux", "format"))
    def save_states(
        self, path: str | PathLike[str], aux_states: Mapping[str, object] | None = None, **options: object
    ) -> str:
        """As `save`, with a dictionary of the user's own values (numbers, texts, lists, arrays). A name that ends with
        `.zip` writes SINGA's file instead: the states by SINGA's names, and arrays and numbers of the user's own.
        """
        from hybrid_lab.gluon.files import states

        if fspath(path).endswith(states.ZIP):
            if options:
                raise SettingError(f"SINGA's file takes no {', '.join(options)}; a name that ends with .hlab does")
            return states.save_singa(self, path, aux_states or {})
        saved: str = save_cached_graphs(self, path, aux=aux_states or {}, **options)
        return saved

    @options_of(load_cached_graphs)
    def load_states(
        self,
        path: str | PathLike[str],
        dev: Context | Sequence[Context] | None = None,
        use_graph: bool | None = None,
        graph_alg: str = "sequence",
        **options: object,
    ) -> dict[str, Any]:
        """As `load`, or from SINGA's file; returns the dictionary that `save_states` got.

        dev : move the model to this context afterwards; use_graph : hybridize it, or run the code itself; None leaves
            both unchanged
        graph_alg : as of `compile`; options : as of `load`
        All or nothing: raises ArchiveError for a damaged file, LoadMismatchError for another model's file.
        """
        from hybrid_lab.formats.singa import is_singa
        from hybrid_lab.gluon.files import states

        states.check_graph_alg(graph_alg)
        contexts = [] if dev is None else states.usable(dev)
        if use_graph is not None:
            check_switch("use_graph", use_graph, "load_states")
        if os.path.isfile(path) and is_singa(path) and not options:
            found = states.load_singa(self, path)
        else:
            found = load_cached_graphs(self, path, **options).aux
        if contexts:
            self.reset_ctx(contexts)
        if use_graph is not None:
            self._switch_graphs(bool(use_graph))
        return found

    def compile(
        self,
        inputs: object,
        is_train: bool = True,
        use_graph: bool = True,
        sequential: bool = False,
        graph_alg: str = "sequence",
    ) -> None:
        """Complete a model before its first call, as in SINGA: parameters get shapes and values, graphs are made.

        inputs : a list of arrays or shapes, `net.compile([x])`, `net.compile([(8, 3, 32, 32)])`; they are called with,
            and running statistics and random numbers are as before afterwards. A shape stands for an array of the dtype
            of the model's weights; `(shape, dtype)` and a DataDesc say another one: `net.compile([((8, 20), "int32")])`
        is_train : also make the program of a recorded call; use_graph : hybridize, or run the code itself
        sequential, graph_alg : accepted for SINGA's sake: a switch, and "sequence", its only algorithm
        Parameters that have values keep them. Raises SettingError for other settings.
        """
        from hybrid_lab.gluon.ahead import arguments, weight_dtype
        from hybrid_lab.gluon.files import states

        for name, switch in (("is_train", is_train), ("use_graph", use_graph), ("sequential", sequential)):
            check_switch(name, switch, "compile")
        states.check_graph_alg(graph_alg)
        args = arguments(inputs, weight_dtype(self))
        self._switch_graphs(bool(use_graph))
        complete_block(self, args, bool(is_train))

    # -- calling -----------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the pre-hooks, `forward`, and the hooks."""
        enclosing = _local.enclosing
        is_traced = False
        if enclosing is not None:
            if type(enclosing) is list:
                enclosing.append(self)
            elif type(enclosing) is CallRecorder:
                return enclosing.call(self, Block.__call__, (self, *args), kwargs)
            else:
                is_traced = True
        for hook in self._forward_pre_hooks.values():
            hook(self, args)
        records = self._calls_noted or records_for(self)
        calls = enclosing if is_traced else [] if records.are_like(args) else records.begin(args)
        _local.enclosing = calls
        try:
            outputs = self.forward(*args, **kwargs)
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, RecursionError):
                note_block(error, self)
            if not is_traced:
                records.fail(calls, error, [*called_blocks(error.__traceback__)])
            raise
        finally:
            _local.enclosing = enclosing
        if calls != records.expected and not is_traced:
            records.end(args, calls, outputs)
        self._note_outputs(outputs)
        for hook in self._forward_hooks.values():
            hook(self, args, outputs)
        return outputs

    _calls_noted: Records | None = None
    """Of a plain Block, what is known of its calls."""
    _last_outputs: tuple[tuple[Any, Any], ...] = ()
    """(shape, dtype) of each output of the last call, for the lab's tree."""

    def _note_outputs(self, outputs: object) -> None:
        if isinstance(outputs, NDArray):
            types: tuple[tuple[Any, Any], ...] = ((outputs.host_view.shape, outputs.host_view.dtype),)
        elif isinstance(outputs, (tuple, list)):
            types = tuple((item.host_view.shape, item.host_view.dtype) for item in outputs if isinstance(item, NDArray))
        else:
            return
        self._note_output_types(types)

    def _note_output_types(self, types: tuple[tuple[Any, Any], ...]) -> None:
        if self._last_outputs != types and not events.tools.running:
            self.__dict__["_last_outputs"] = types
            for listener in events.changed:
                listener(self)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The computation; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward()")

    def register_forward_pre_hook(self, hook: Callable[[Block, tuple[object, ...]], object]) -> HookHandle:
        """Call `hook(block, inputs)` before each forward; `handle.detach()` ends that.

        A HybridBlock does not call it if it runs inside the graph of another Block.
        """
        handle = HookHandle().attach(self._forward_pre_hooks, hook)
        self._hooked()
        return handle

    def register_forward_hook(self, hook: Callable[[Block, tuple[object, ...], object], object]) -> HookHandle:
        """Call `hook(block, inputs, outputs)` after each forward, as `register_forward_pre_hook` does before it."""
        handle = HookHandle().attach(self._forward_hooks, hook)
        self._hooked()
        return handle

    def register_op_hook(self, callback: Callable[[str, str, NDArray], object], monitor_all: bool = False) -> None:
        """Call `callback(name, operator, array)` for the output of every operator in the calls of the hybridized Blocks
        below, with names such as 'dense0_fwd_output' and 'FullyConnected'. See `HybridBlock.register_op_hook`.
        """
        check_switches("Block.register_op_hook", monitor_all=monitor_all)
        for child in self._children.values():
            child.register_op_hook(callback, monitor_all)

    def _hooked(self) -> None:
        """The Block got a hook; a HybridBlock warns if the hook will not run."""

    def apply(self, fn: Callable[[Block], object]) -> Block:
        """Call `fn(block)` for every block below, then for this one. Returns this block."""
        for child in self._children.values():
            child.apply(fn)
        fn(self)
        return self

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Hybridize the HybridBlocks below; a plain Block itself runs as Python. See `HybridBlock.hybridize`."""
        check_flags(active, kwargs)
        for child in self._children.values():
            child.hybridize(active, **kwargs)

    def _switch_graphs(self, on: bool) -> None:
        """Hybridize the outermost HybridBlocks, or switch them off; a Block already in that state keeps its flags."""
        for child in self._children.values():
            child._switch_graphs(on)

    def compile_for(self, *targets: str, inputs: object = None, train: bool = False) -> Any:
        """Raises HybridLabError: a plain Block has no graph. The message names the children that have one."""
        hybrid = [name for name, child in self._children.items() if type(child).compile_for is not Block.compile_for]
        children = f"; use compile_for of its children {', '.join(hybrid[:4])}" if hybrid else ""
        raise HybridLabError(
            f"{self.name} is a {type(self).__name__}, not a HybridBlock, and has no graph to compile{children}"
        )

    def summary(self, *inputs: object, **options: object) -> None:
        """Print a table of the layers with output shapes and numbers of parameters, from one call on `inputs`.

        With shapes in the place of arrays, as in `net.summary((8, 3, 224, 224))`, or with options, nothing is called:
        it prints what `mx.summary(net, ...)` returns.
        """
        from .layer_table import are_shapes, layer_table

        print(model_summary(self, *inputs, **options) if options or are_shapes(inputs) else layer_table(self, inputs))


CALLS.add(Block.__call__.__code__)


def _blocks_in(value: object) -> Iterator[Block]:
    """The Blocks in nested lists, tuples and dicts."""
    if isinstance(value, Block):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _blocks_in(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _blocks_in(each)


def _indented(block: Block) -> str:
    return repr(block).replace("\n", "\n  ")
