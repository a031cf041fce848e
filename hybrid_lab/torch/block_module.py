"""The module of torch that stands for a Block, and the recorded calls of it. Loading this loads torch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from hybrid_lab import autograd
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.parameter import Parameter
from hybrid_lab.hybridize.structure import Spec, flatten, unflatten
from hybrid_lab.ndarray import NDArray
from hybrid_lab.torch.errors import TorchError
from hybrid_lab.torch.memory import array_of, tensor_on

if TYPE_CHECKING:
    import torch


class BlockModule(torch.nn.Module):
    """A Block as a module of torch. net : the Block"""

    net: Block
    shared: dict[Parameter, Any]
    _paths: dict[str, Parameter]

    def __init__(self, net: Block) -> None:
        super().__init__()
        # Not among torch's own attributes: torch looks for modules and tensors there.
        object.__setattr__(self, "net", net)
        object.__setattr__(self, "shared", {})
        object.__setattr__(self, "_paths", {})
        for path, parameter in access.parameters_by_path(net).items():
            if parameter not in self.shared:
                self._paths[path] = parameter
                tensor = _shared_tensor(path, parameter)
                self.shared[parameter] = tensor if parameter.grad_req == "null" else torch.nn.Parameter(tensor)
            tensor = self.shared[parameter]
            holder, name = _holder(self, path)
            if isinstance(tensor, torch.nn.Parameter):
                holder.register_parameter(name, tensor)
            else:
                holder.register_buffer(name, tensor)

    def forward(self, *args: Any) -> Any:
        """The Block's result for the same arguments."""
        if torch.compiler.is_exporting():
            from hybrid_lab.torch.exported_block import trace

            leaves, structure = pytree.tree_flatten(args)
            return trace(self.net, self._weights(), leaves, structure, self.training)
        for parameter, tensor in self.shared.items():
            _check_memory(parameter, tensor)
        leaves, structure = pytree.tree_flatten(args)
        given = [item for item in leaves if isinstance(item, torch.Tensor)]
        away = [str(item.device) for item in given if item.device.type != "cpu"]
        if away:
            raise TorchError(f"an input is on {away[0]}; a Block as a module takes tensors on the CPU")
        call = _ModuleCall(self.net, self.training)
        weights = [tensor for tensor in self.shared.values() if tensor.requires_grad]
        call.parameters = [parameter for parameter, tensor in self.shared.items() if tensor.requires_grad]

        def run(tensors: Sequence[Any], needed: Sequence[bool] = ()) -> list[NDArray]:
            arrays = call.arrays(tensors, needed)
            rest = iter(arrays)
            own = [next(rest) if isinstance(item, torch.Tensor) else item for item in leaves]
            return call.run(pytree.tree_unflatten(own, structure), arrays, any(needed) or bool(weights))

        if torch.is_grad_enabled() and any(item.requires_grad for item in (*given, *weights)):
            results = CallOfBlock.apply(call, run, len(given), *given, *weights)  # type: ignore[no-untyped-call]
        else:
            results = [tensor_on(item.raw()) for item in run(given)]
        return unflatten(call.structure, iter(results))

    def _weights(self) -> dict[Parameter, Any]:
        """The tensors of the parameters as the module has them now: torch.export puts others into their place."""
        return {
            parameter: self.get_parameter(path) if path in dict(self.named_parameters()) else self.get_buffer(path)
            for path, parameter in self._paths.items()
        }

    def extra_repr(self) -> str:
        """The Block's class and name."""
        return f"{type(self.net).__name__} {self.net.name}"

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        for parameter, tensor in self.shared.items():
            probe = fn(tensor.detach()[:0])
            if probe.device != tensor.device or probe.dtype != tensor.dtype:
                raise TorchError(
                    f"{parameter.name}: the module's parameters lie in the memory of the Block's and cannot "
                    f"become {probe.dtype} on {probe.device}. Use net.cast(...) and mx.torch.module(net) again, of "
                    "a Block on the CPU"
                )
        return self  # they are the requested dtype and device already

    def __deepcopy__(self, memo: Any) -> Any:
        return BlockModule(copy.deepcopy(self.net, memo)).train(self.training)


class CallOfBlock(torch.autograd.Function):
    """A recorded call: forward through the Block, backward through its tape."""

    @staticmethod
    def forward(ctx: Any, call: _ModuleCall, run: Any, count: int, *tensors: Any) -> Any:
        """The results of the Block as torch's tensors."""
        needed = ctx.needs_input_grad[3:]
        results = run(tensors[:count], needed[:count])
        ctx.call, ctx.needed = call, needed
        ctx.save_for_backward(*tensors)  # torch refuses a backward after writes to them
        outputs = [tensor_on(item.asnumpy()) for item in results]  # copies: the user may write to them
        ctx.mark_non_differentiable(*(item for item in outputs if not item.is_floating_point()))
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The gradients of inputs and weights."""
        if torch.is_grad_enabled():
            raise TorchError(
                f"backward(create_graph=True) through the Block {ctx.call.net.name}: gradients of gradients are "
                "not supported in torch. Compute them here, with hybrid_lab.autograd.grad(..., create_graph=True)"
            )
        assert ctx.saved_tensors is not None  # raises if one was written to
        return (None, None, None, *ctx.call.gradients(gradients, ctx.needed))


def _holder(root: Any, path: str) -> tuple[Any, str]:
    """The module below the root that a parameter belongs to, and its name there."""
    *parts, name = path.split(".")
    for part in parts:
        if part not in dict(root.named_children()):
            root.add_module(part, torch.nn.Module())
        root = root.get_submodule(part)
    return root, name


def _shared_tensor(path: str, parameter: Parameter) -> Any:
    """A tensor in the memory of a Parameter."""
    arrays = access.arrays(parameter)
    if arrays is None:
        raise TorchError(
            f"{path} has no values yet: call net.initialize(), and net(x) once or net.compile([x]), before "
            "mx.torch.module(net)"
        )
    if len(arrays) > 1 or arrays[0].context.is_gpu:
        places = ", ".join(str(array.context) for array in arrays)
        raise TorchError(f"{path} is on {places}; mx.torch.module takes Blocks on one CPU: net.reset_ctx(mx.cpu())")
    tensor = tensor_on(arrays[0].raw())
    arrays[0].buffer.exported = True  # torch writes to it
    return tensor


def _check_memory(parameter: Parameter, tensor: torch.Tensor) -> None:
    """Whether both still have the same memory."""
    arrays = access.arrays(parameter)
    if not arrays or arrays[0].raw().__array_interface__["data"][0] != tensor.data_ptr():
        raise TorchError(
            f"{parameter.name} left the memory of the module's parameter: it was cast, moved or initialized anew. Call "
            "mx.torch.module(net) again, and give the optimizer the parameters of the new module"
        )


class _ModuleCall:
    """One call of a Block for torch. structure : of its result; parameters : the parameters whose gradients torch
    wants
    """

    def __init__(self, net: Block, training: bool) -> None:
        self.net, self.training = net, training
        self.structure: Spec = ()
        self.parameters: list[Parameter] = []
        self.inputs: list[NDArray] = []
        self.results: list[NDArray] = []

    def arrays(self, tensors: Sequence[Any], needed: Sequence[bool]) -> list[NDArray]:
        """The inputs in torch's memory; inputs with a gradient are marked for the tape."""
        made = [NDArray.wrap(array_of(tensor, "an input")) for tensor in tensors]
        for array, wanted in zip(made, needed, strict=False):
            if wanted:
                array.attach_grad()
        return made

    def run(self, args: Any, inputs: list[NDArray], differentiated: bool) -> list[NDArray]:
        """The results of the Block. A call in training is recorded in any case, for running statistics."""
        self.inputs = inputs
        recorded = differentiated or self.training
        with autograd.record(self.training) if recorded else autograd.pause(self.training):
            self.results, self.structure = flatten(self.net(*args), "the result")
        return self.results

    def gradients(self, heads: Sequence[Any], needed: Sequence[bool]) -> list[Any]:
        """Gradients of inputs and parameters from the gradients of the results; None if none is wanted."""
        variables = [*self.inputs, *(access.arrays(item)[0] for item in self.parameters)]  # type: ignore[index]
        wanted = [array for array, need in zip(variables, needed, strict=True) if need]
        pairs = [
            (result, NDArray.wrap(array_of(head, "a gradient")))
            for result, head in zip(self.results, heads, strict=True)
            if head is not None and result.tape_link is not None
        ]
        if not pairs or not wanted:
            return [None] * len(needed)
        results, given = zip(*pairs, strict=True)
        found = iter(autograd.grad(list(results), wanted, list(given), retain_graph=True, train_mode=self.training))
        return [tensor_on(next(found).raw()) if need else None for need in needed]
