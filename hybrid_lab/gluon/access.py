"""Access of other rooms to members of Blocks, Parameters and Trainers that are not public.

They are functions, because a public method of Block could collide with a method of a user's class, and because MXNet's
names with an underscore must stay for ported code.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from hybrid_lab.gluon.members import parents as parents
from hybrid_lab.hybridize import events
from hybrid_lab.initializer import Uniform
from hybrid_lab.ndarray.tape import Leaf

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hybrid_lab.gluon.block import Block
    from hybrid_lab.gluon.parameter import DeferredInit, Parameter
    from hybrid_lab.gluon.trainer import Trainer
    from hybrid_lab.hybridize.block import Hybrid, Tree
    from hybrid_lab.hybridize.calls import GraphCalls
    from hybrid_lab.hybridize.graphs import Graphs
    from hybrid_lab.hybridize.neutral import NeutralGraph
    from hybrid_lab.ndarray import NDArray
    from hybrid_lab.ndarray.context import Context
    from hybrid_lab.optimizer.fused import FusedUpdate


def children(block: Block) -> OrderedDict[str, Block]:
    """The children of a Block by attribute name, in order; the dict itself."""
    return block._children


def is_group(block: Block) -> bool:
    """Whether it stands for a list, dict or object of the user's that holds Blocks, and is no Block of the user's."""
    return getattr(type(block), "_is_group", False)


def own_parameters(block: Block) -> dict[str, Parameter]:
    """The parameters registered on a Block itself by attribute name; the dict itself."""
    return block._reg_params


def parameters_by_path(block: Block) -> dict[str, Parameter]:
    """The parameters of a Block and of all below it by attribute path, 'features.0.weight'."""
    return block._collect_params_with_prefix()


def structure_version(block: Block) -> int:
    """A number that grows whenever the Block, or a Block below it, gets or loses a child or a parameter."""
    return block._structure_version


def last_change(block: Block) -> int:
    """The number of the last change of the Block that the lab shows, see `lab/models/revisions.py`."""
    return block._last_change


def note_change(block: Tree, number: int) -> None:
    """Give a Block the number of its last change."""
    block.__dict__["_last_change"] = number


def structure_changed(block: Tree) -> None:
    """Drop the graphs of the Block and of all Blocks above it: they are stale."""
    block._structure_changed()


def code_changed(block: Block) -> None:
    """The code of the Block was replaced in place. Drop the graphs of the Block and of all Blocks above it, and try
    again whether their calls have graphs.
    """
    for each in block._and_above():
        calls: GraphCalls | None = getattr(each, "_graph_calls", None)
        if calls is not None:
            calls.start_over()
    block._structure_changed()


def parameter_types(block: Block) -> list[tuple[Any, ...]]:
    """Shape (None for a size that is not known), dtype and grad_req of each parameter registered on a Block itself."""
    return [(item._shape, item._dtype, item._grad_req) for item in tuple(block._reg_params.values())]


def last_outputs(block: Block) -> tuple[tuple[Any, Any], ...]:
    """(shape, dtype) of each output of the last call."""
    return block._last_outputs


def graphs(block: Hybrid) -> Graphs:
    """The traced and loaded graphs of a HybridBlock."""
    return block._graphs


def calls(block: Hybrid) -> GraphCalls:
    """The compiled calls of a HybridBlock."""
    return block._graph_calls


def is_active(block: Hybrid) -> bool:
    """Whether `hybridize()` is on, also while a tool lets the Block run its code."""
    return block._active or block._set_aside


def set_active(block: Hybrid, active: bool) -> None:
    """Switch between eager calls and graphs, without dropping graphs as `hybridize()` does."""
    object.__setattr__(block, "_active", active)
    for listener in events.changed:
        listener(block)


def runs_graphs(block: Hybrid) -> bool:
    """Whether calls run graphs: `hybridize()` is on, and no tool has set that aside."""
    return block._active


def set_aside(block: Hybrid, aside: bool) -> None:
    """Let an active Block run its code for a while, or its graphs again; the lab shows it as active all the time."""
    block._let_code_run(aside)


def flags(block: Hybrid) -> dict[str, Any]:
    """The flags given to `hybridize()`."""
    return block._flags


def set_flags(block: Hybrid, flags: dict[str, object]) -> None:
    """Replace the flags, without dropping graphs as `hybridize()` does."""
    object.__setattr__(block, "_flags", flags)


def style(block: Hybrid) -> str:
    """ "1.x" if a call begins with `hybrid_forward`, "2.x" if it begins with another method of the user's."""
    return block._code_style


def is_its_graph(block: Block) -> bool:
    """Whether the Block is a SymbolBlock without code around the graph that it was made from."""
    return getattr(block, "_is_its_graph", False)


def entry(block: Hybrid) -> tuple[Any, int]:
    """The method that gets the arguments of a call, and how many others come before them (F)."""
    return block._entry_of_calls


def stay_float32(block: Block, dtype: DTypeLike) -> Collection[Parameter]:
    """The own parameters that `cast(dtype)` makes float32."""
    return block._stay_float32(dtype)


def arrays(parameter: Parameter) -> list[NDArray] | None:
    """The values of a Parameter, one array per context; None before they exist."""
    return parameter._data


def written_gradient(parameter: Parameter) -> NDArray | None:
    """The gradient on the first context; None if no backward has written it since it was made or set to zero."""
    link = parameter._data[0].tape_link if parameter._data else None
    return link.grad if type(link) is Leaf and link.written else None


def mean(parameter: Parameter) -> NDArray:
    """The mean of the values over all contexts, on the CPU. Raises UninitializedError."""
    return parameter._reduce()


def load_values(parameter: Parameter, values: NDArray, ctx: Context | Sequence[Context] | None = None) -> None:
    """Take `values`, already of the right dtype, as the Parameter's values; initialize it if need be.

    The Parameter may keep `values` itself: the caller must not use it afterwards.
    """
    parameter._load_init(values, ctx, True)


def complete_parameters(block: Hybrid, neutral: NeutralGraph, leaves: Sequence[NDArray]) -> None:
    """Finish the deferred initialization of the parameters of a graph that gets these arrays."""
    if any(parameter._array is None for parameter in neutral.parameters):
        block._complete_from(neutral, leaves)


def deferred_init(parameter: Parameter) -> DeferredInit | None:
    """The postponed `initialize()` of a Parameter whose shape was not known then; None for any other Parameter."""
    return parameter._deferred_init


def initializers(parameter: Parameter) -> tuple[Any, Any] | None:
    """The initializer of a Parameter's first values, or of new values: (its initializer, the default one). None if they
    were loaded, and it has no initializer of its own.
    """
    used = parameter._initialized_by
    if used is not None:
        return used.init, used.default_init
    return None if parameter.init is None else (parameter.init, Uniform())


def initialize_as(parameter: Parameter, data: NDArray, used: tuple[Any, Any]) -> None:
    """Write first values of a Parameter into `data`, drawn from the generator at hand (`initializer.drawing_from`).

    used : what `initializers` gave
    """
    parameter._apply(data, *used)


def finish_deferred_init(parameter: Parameter) -> None:
    """Make the values of a deferred Parameter whose shape is known by now."""
    parameter._finish_deferred_init()


def gradient_stype(parameter: Parameter) -> str:
    """The storage type of a Parameter's gradient: "default" or "row_sparse"."""
    return parameter._grad_stype


def trainer_parameters(trainer: Trainer) -> list[Parameter]:
    """The Parameters that a Trainer updates, in order."""
    return trainer._params


def has_own_store(trainer: Trainer) -> bool:
    """Whether a store of the user's own sums the gradients of a Trainer or updates its parameters."""
    return trainer._own_store is not None


def num_workers(trainer: Trainer) -> int:
    """How many workers take the steps of a Trainer."""
    from hybrid_lab.distributed.kvstore import KVStoreBase

    store = trainer._kvstore
    return store.num_workers if isinstance(store, KVStoreBase) else 1


def scales_loss(trainer: Trainer) -> bool:
    """Whether a Trainer works with a scaled loss, as `contrib.amp` sets it up."""
    return trainer._amp_loss_scaler is not None


def own_scale(trainer: Trainer) -> float:
    """The factor of gradients that the user gave, without 1 / batch size."""
    return trainer._amp_original_scale


def settings(block: Block) -> dict[str, Any]:
    """The attributes of a Block, including private ones."""
    return vars(block)


def fused_updates(trainer: Trainer) -> list[FusedUpdate]:
    """The fused update of each context of a Trainer."""
    return [updater.fused for updater in trainer._updaters]


def parameter_holding(name: str, array: NDArray) -> Parameter:
    """A Parameter whose value is `array`: the array itself, with its link on the tape."""
    from hybrid_lab.gluon.parameter import Parameter

    parameter = Parameter(name, grad_req="null", shape=array.shape, dtype=array.dtype)
    parameter._array, parameter._data = array, [array]
    return parameter
