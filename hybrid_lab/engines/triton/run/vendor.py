"""Products by the vendor's library (cuBLAS, cuDNN, rocBLAS, MIOpen), through torch.

The products are chosen by rule before fusion (plan/by_vendor.py), or by `mx.tune`, if it measured that the library is
faster than our kernel. Then the group is torch's call, followed by kernels for the operators behind the product. The
call writes into the memory planned for its result if torch has such a call (calls.py). float32 is multiplied as our
kernel would multiply it, sums of float16 are not rounded in between, and torch's own flags are restored afterwards.
`torch.backends.cudnn.benchmark` and torch's switch for deterministic algorithms are the user's.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.engines.triton.plan.by_vendor import views_before
from hybrid_lab.engines.triton.plan.recurrent import layers_of
from hybrid_lab.engines.triton.run.calls import StridedView, VendorCall, call_of, is_convolution, rounded, view_of
from hybrid_lab.engines.triton.write.body import Refused
from hybrid_lab.engines.triton.write.choose import write_kernels
from hybrid_lab.engines.triton.write.core.product import operators_before
from hybrid_lab.engines.triton.write.kinds import is_product
from hybrid_lab.engines.triton.write.source import KernelSource
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.graph.passes.partition import Region

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor


@dataclass(frozen=True, eq=False)
class VendorKernel:
    """A product, or a recurrent layer, by torch's call, in the place of a KernelSource, and of the Kernel that launches
    one.

    nodes : the product, and views before it; inputs : the values they read; outputs : its results that are read
    tf32 : float32 factors may be rounded to 10 bits
    """

    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    tf32: bool
    draws: ClassVar[tuple[int, ...]] = ()
    kind: ClassVar[str] = "vendor"

    @property
    def name(self) -> str:
        return f"{self.nodes[-1].op.name}_by_torch"

    @property
    def source(self) -> VendorKernel:
        return self

    @property
    def precision(self) -> str:
        """The type of the factors during multiplication: "float16", "float32", "tf32" ..."""
        return rounded(self.outputs[0].dtype, self.tf32)

    @cached_property
    def _call(self) -> VendorCall:
        return call_of(self.nodes[-1], self.tf32)

    @property
    def allocates(self) -> bool:
        """Whether torch makes memory for the result; else `run` takes it last."""
        return self._call.result is None

    @cached_property
    def reads(self) -> tuple[tuple[Value, StridedView | None], ...]:
        """The Values whose memory `run` takes, each with where the call finds it; None : as it lies."""
        anchor, found = self.nodes[-1], []
        for index, form in self._call.reads:
            item, views = anchor.inputs[index], views_before(anchor, index)
            views = tuple([view for view in views if view in self.nodes])
            assert isinstance(item, Value)
            value = views[0].values_in[0] if views else item
            found.append((value, view_of(value, views, form)))
        return tuple(found)

    @cached_property
    def result(self) -> StridedView | None:
        """Where `run` finds the memory of the result, if it takes it; None : as it lies."""
        form = self._call.result
        return None if form is None else view_of(self.outputs[0], (), form)

    @property
    def run(self) -> Callable[..., Any]:
        """torch's call: takes the tensors of `reads`, and the tensor of `result` unless it allocates. While it runs,
        torch must have its `flag`.
        """
        return self._call.run

    @cached_property
    def flag(self) -> Flag | None:
        """The flag of torch that the call depends on."""
        return flag_of(self.nodes[-1], self.tf32) if self._call.reads_flag else None

    def __call__(self, tensors: Sequence[Any]) -> None:
        """Compute it. tensors : inputs and then the output, as a Kernel takes them"""
        known: dict[Any, Any] = dict(zip(self.inputs, tensors[:-1], strict=True))
        operands = [known[value] if view is None else view(known[value]) for value, view in self.reads]
        run = with_flag(self.run, self.flag)
        if self.allocates:
            tensors[-1].copy_(run(*operands))
        else:
            run(*operands, tensors[-1] if self.result is None else self.result(tensors[-1]))

    def bound(self, tensors: Sequence[Any]) -> Callable[[int], None]:
        """A call on these tensors, as `Kernel.bound` gives it."""
        return lambda stream: self(tensors)

    def __repr__(self) -> str:
        return self.name


def by_vendor(group: Region, precision: str) -> VendorKernel:
    """The call for a product that is the vendor's by rule, with the views before it. precision : of float32 factors"""
    return VendorKernel(group.nodes, group.inputs, group.outputs, precision == "tf32")


def vendor_form(group: Region, kernels: Sequence[KernelSource]) -> tuple[Any, ...] | None:
    """The group as torch's call and kernels for the operators behind it; None if it cannot be.

    kernels : of the group, as written
    """
    products = [node for node in group.nodes if is_product(node)]
    if len(products) != 1 or any(source.draws for source in kernels):
        return None
    (anchor,) = products
    first = operators_before(anchor, group.nodes)
    if not all(node.op.view and len(node.outputs) == 1 for node in first):
        return None
    nodes = (*(node for node in group.nodes if node in first), anchor)
    product = anchor.outputs[0]
    inputs = tuple(dict.fromkeys(value for node in nodes for value in node.values_in if value.node not in nodes))
    call = VendorKernel(nodes, inputs, (product,), any(source.precision == "tf32" for source in kernels))
    try:
        assert call.reads
    except Unmappable:
        return None
    rest = tuple(node for node in group.nodes if node not in nodes)
    outputs = tuple(value for value in group.outputs if value != product)
    if not rest or not outputs:
        return (call,) if group.outputs == (product,) else None
    read = dict.fromkeys(value for node in rest for value in node.values_in if value.node not in rest)
    if any(value.node in first for value in read):
        return None
    constants = [value for value in read if not value.node.inputs and value not in group.inputs]
    try:
        behind = write_kernels(Region(rest, tuple(value for value in read if value not in constants), outputs))
    except Refused:
        return None
    return (call, *behind)


@dataclass(frozen=True)
class Flag:
    """A flag of torch that decides how factors are rounded.

    name : the decision; read : reads the flag; wanted : the value needed; change : sets it, returns the argument with
        which `restore` undoes the change
    """

    name: str
    read: Callable[[], Any]
    wanted: Any
    change: Callable[[], Any]
    restore: Callable[[Any], None]


class Flags:
    """Flags of torch that have their values while a program is launched, once for all its calls."""

    def __init__(self, flags: Sequence[Flag]):
        self._flags = [(flag.read, flag.wanted, flag.change, flag.restore) for flag in flags]

    def set(self) -> list[tuple[Callable[[Any], None], Any]]:
        """Set the flags that differ; returns the argument of `restore`."""
        return [(restore, change()) for read, wanted, change, restore in self._flags if read() != wanted]

    @staticmethod
    def restore(changed: Sequence[tuple[Callable[[Any], None], Any]]) -> None:
        """Restore the flags."""
        for restore, before in reversed(changed):
            restore(before)


def with_flag(function: Callable[..., Any], flag: Flag | None) -> Callable[..., Any]:
    """The function, during which a flag of torch has a value; the earlier value is set again in any case."""
    if flag is None:
        return function
    read, wanted, change, restore = flag.read, flag.wanted, flag.change, flag.restore

    def run(*tensors: Tensor) -> Tensor:
        if read() == wanted:
            return function(*tensors)
        before = change()
        try:
            return function(*tensors)
        finally:
            restore(before)

    return run


def flag_of(anchor: Node, tf32: bool) -> Flag | None:
    """The flag that decides how the factors of a product are rounded; None if none does."""
    import torch

    core: Any = torch._C  # noqa: SLF001
    dtype, layers = anchor.outputs[0].dtype.name, layers_of(anchor) is not None
    if dtype == "float32":
        if is_convolution(anchor) or layers:
            return _tf32(core, "cudnn", "rnn" if layers else "conv", ("conv", "rnn"), tf32)
        return _tf32(core, "cublas", "matmul", ("matmul",), tf32)
    if dtype in ("float16", "bfloat16") and not (is_convolution(anchor) or layers):
        name = f"cublas_allow_{'fp16' if dtype == 'float16' else 'bf16'}_reduced_precision_reduction"
        read, write = getattr(core, f"_get_{name}"), getattr(core, f"_set_{name}")
        if isinstance(before := read(), tuple):  # from torch 2.10 on: (rounded sums, split sums)
            return _plain_flag(name, read, lambda value: write(*value), (False, *before[1:]))
        return _plain_flag(name, read, write, False)
    return None


def _plain_flag(name: str, read: Callable[[], Any], write: Callable[[Any], None], wanted: object) -> Flag:
    def change() -> object:
        before = read()
        write(wanted)
        return before

    return Flag(name, read, wanted, change, write)


def _tf32(core: ModuleType, library: str, op: str, together: tuple[str, ...], tf32: bool) -> Flag:
    """Whether float32 may be rounded to tf32. Since 2.9 torch has two ways to say it, and refuses to work if they
    differ, so both are set.

    op : as torch names it, "matmul", "conv" or "rnn"; together : the flags that the older way sets at once
    """
    read_old, write_old = (getattr(core, f"_{each}et_{library}_allow_tf32") for each in "gs")
    if not hasattr(core, "_get_fp32_precision_getter"):
        return _plain_flag(op, read_old, write_old, tf32)
    read_new, write_new = (getattr(core, f"_{each}et_fp32_precision_{each}etter") for each in "gs")
    wanted = "tf32" if tf32 else "ieee"
    with warnings.catch_warnings(), contextlib.suppress(RuntimeError):  # the older way warns once
        warnings.simplefilter("ignore")
        write_old(read_old())

    def change() -> tuple[bool | None, list[str]]:
        before = [read_new("cuda", each) for each in together]
        try:
            old = read_old()
        except RuntimeError:  # the user has set both, and they differ
            old = None
        write_old(tf32)
        write_new("cuda", op, wanted)
        return old, before

    def restore(state: tuple[bool | None, list[str]]) -> None:
        old, before = state
        if old is not None:
            write_old(old)
        for each, value in zip(together, before, strict=True):
            write_new("cuda", each, value)

    return Flag(op, partial(read_new, "cuda", op), wanted, change, restore)
