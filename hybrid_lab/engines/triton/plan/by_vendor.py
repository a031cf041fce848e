"""Which products the vendor's library (cuBLAS, cuDNN, rocBLAS, MIOpen) computes: by rule, before operators are fused.

Such a product is a step of its own: the kernels before it store its operands, and the kernels behind it fuse the
operators that read its result. Its bias becomes an operator of its own if a convolution has one, so that a kernel
behind it adds the bias. The thresholds stand in write/vendor.json, by family of chips:

    keys : so many keys an attention has at least that is the vendor's
    channels : input channels of a group from which on a convolution, or the gradient of its data, is the vendor's. The
        gradient of its weight always is
    entries : the smallest number of rows whose sums by number, as in the gradient of an embedding, are the vendor's
    half, tf32, float32 : of products with such factors
    channels_last : of products with such factors (kinds), convolutions from so many input channels of a group on have
        channels last (layout.py), and are the vendor's
    flops : operations from which on a matrix product is the vendor's, if its sums have `inner` elements or more
    bytes : so many bytes for each operation may be moved for factors that our own kernel would have computed on the way
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.engines.triton.plan.attention import VendorAttention, with_vendor_attention
from hybrid_lab.engines.triton.plan.groups import origin
from hybrid_lab.engines.triton.plan.layout import TURNED, convolves_last, with_channels_last
from hybrid_lab.engines.triton.plan.prices import is_cheap
from hybrid_lab.engines.triton.plan.recurrent import VendorRNN, is_plain, saves_nothing
from hybrid_lab.engines.triton.run import attention, availability
from hybrid_lab.engines.triton.run.calls import CALLS, SUMS_OF_ROWS, VendorCall, call_of, is_convolution, view_of
from hybrid_lab.engines.triton.run.recurrent import is_trusted
from hybrid_lab.engines.triton.support import lowered, misfit_of_sizes
from hybrid_lab.engines.triton.write import tiles
from hybrid_lab.engines.triton.write.core.product import no_load_fusion
from hybrid_lab.engines.triton.write.kinds import contraction_of, is_product, is_reduction
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.ops.framework.dtypes import NARROW, is_floating
from hybrid_lab.ops.framework.operator import get

#: The vendor's products of a graph, each with the views through which it reads its factors.
Vendors = dict[Node, tuple[Node, ...]]
#: The gradients of a convolution's weight.
_WEIGHT_GRADIENTS = ("_conv_weight_grad", "_deconv_weight_grad")
#: The number of operators that are followed to find the origin of a factor.
_MOST_MADE = 16


@dataclass(frozen=True)
class VendorRule:
    """The rule on one machine.

    family : a column of the table; None : every product that one call of torch computes
    precision : how float32 factors are multiplied, "ieee" or "tf32"
    has_layers : recurrent layers and attention are the vendor's, too; only NVIDIA's are
    """

    family: str | None
    precision: str
    has_layers: bool = False

    def without_biases(self, graph: Graph) -> Graph:
        """The graph with an operator of its own for the bias of each convolution that may be the vendor's."""
        row = {} if self.family is None else _table()[self.family]
        limit = min(row.get("channels", 0), row.get("channels_last", row).get("channels", 0))

        def rewrite(node: Node, inputs: tuple[Any, ...]) -> tuple[Value, ...] | None:
            op: Any = node.op
            if op.name not in ("Convolution", "Deconvolution") or op.no_bias or not is_product(node):
                return None
            if _channels(node) < limit:
                return None
            data, weight, bias = inputs
            plain = node.replace(op=type(op).bind(**{**op.attributes, "no_bias": True}), inputs=(data, weight))
            apart = make_node(get("Reshape").bind(shape=(1, -1, *(1,) * len(op.kernel))), [bias])
            added = make_node(get("broadcast_add").bind(), [plain.outputs[0], apart.outputs[0]])
            return added.replace(scope=node.scope, location=node.location).outputs

        return graph.map(rewrite)

    def computes(self, node: Node) -> bool:
        """Whether a recurrent layer, or its gradient, is the vendor's."""
        if not self.has_layers or not is_plain(node):
            return False
        if availability.missing() is not None or not availability.has_cudnn():  # ahead of time, or on the host
            return True
        op: Any = node.op
        width, dtype = node.values_in[0].shape[2], node.outputs[0].dtype.name
        return is_trusted(op.mode, op.state_size, op.num_layers, op.sizes.directions, int(width), dtype)

    def convolves_last(self, node: Node) -> bool:
        """Whether a convolution, or a gradient of one, is the vendor's with channels last, its bias apart."""
        if node.op.name not in TURNED or "onv" not in node.op.name or not is_product(node):
            return False
        op: Any = node.op
        limits = _table().get("nvidia" if self.family is None else self.family, {}).get("channels_last")
        if limits is None or len(op.kernel) != 2:
            return False
        return self._kind(node) in limits["kinds"] and _channels(node) >= limits["channels"]

    def attends(self, mixed: Node) -> bool:
        """Whether the attention with this last product is the vendor's."""
        keys = mixed.values_in[1].shape[1]
        if self.family is not None and (not self.has_layers or not keys >= _table()[self.family]["keys"]):
            return False
        if availability.missing() is not None or not availability.has_cudnn():  # ahead of time, or on the host
            return True
        return attention.is_trusted(mixed.outputs[0].dtype.name)

    def before_lowering(self, graph: Graph) -> Graph:
        """The graph with attentions by the vendor, and its recurrent layers whole, otherwise lowered."""
        return lowered(with_vendor_attention(graph, self.attends), self.keeps_whole)

    def with_channels_last(self, graph: Graph) -> Graph:
        """A lowered graph, biases apart, with channels last around convolutions that the vendor computes so."""
        return with_channels_last(graph, self.convolves_last)

    def keeps_whole(self, node: Node) -> bool:
        """Whether an operator is not taken apart, because the vendor computes it."""
        return saves_nothing(node) and self.computes(node)

    def products(self, graph: Graph) -> Vendors:
        """The products and recurrent layers of a lowered graph that are the vendor's."""
        users, roots = graph.users(), set(graph.roots)
        found: Vendors = {}
        for node in graph.operators:
            if convolves_last(node):
                found[node] = _readable(node, call_of(node))
            elif isinstance(node.op, (VendorRNN, VendorAttention)) or self.keeps_whole(node):
                found[node] = ()
            elif self._sums_rows(node):
                found[node] = _readable(node, call_of(node))
            elif is_product(node) and (views := self._views(node, users, roots)) is not None:
                found[node] = views
        return found

    def _sums_rows(self, node: Node) -> bool:
        """Whether a gradient that adds up rows by number is the vendor's."""
        if node.op.name not in SUMS_OF_ROWS or not is_floating(node.outputs[0].dtype) or misfit_of_sizes(node):
            return False
        numbers = node.inputs[SUMS_OF_ROWS[node.op.name]]
        assert isinstance(numbers, Value)
        if self.family is not None and not prod(numbers.shape) >= _table()[self.family]["entries"]:
            return False
        try:
            call_of(node)
        except Unmappable:
            return False
        return True

    def _views(self, node: Node, users: Mapping[Value, list[Node]], roots: set[Value]) -> tuple[Node, ...] | None:
        """The views before a product that is the vendor's; None if it is our own."""
        if node.op.name not in CALLS or (self.family is not None and not self._is_large(node)):
            return None
        try:
            call = call_of(node)
        except Unmappable:
            return None
        convolves = is_convolution(node)
        if not _can_read(node, call):
            if self.family is not None and not convolves and self._copied(node, call):
                return None
            return ()  # views are stored before it
        if self.family is not None and not convolves and self._written_out(node, call, users, roots):
            return None
        return _readable(node, call)

    def _is_large(self, node: Node) -> bool:
        limits = _table().get(self.family or "", {})
        kind = self._kind(node)
        contraction = contraction_of(node)
        if kind not in limits or contraction is None:
            return False
        if is_convolution(node):
            if node.op.name in _WEIGHT_GRADIENTS or self.convolves_last(node):
                return True
            return _channels(node) >= limits["channels"]
        inner = prod(contraction.inner)
        flops = 2 * inner * prod((*contraction.batch, *contraction.rows, *contraction.columns))
        return flops >= limits[kind]["flops"] and inner >= limits["inner"]

    def _kind(self, node: Node) -> str:
        dtype = node.outputs[0].dtype.name
        if dtype == "float32":
            return "tf32" if self.precision == "tf32" else "float32"
        return "half" if dtype in NARROW else dtype

    def _copied(self, node: Node, call: VendorCall) -> bool:
        """Whether views of factors, which torch would copy, would cost more than the gain."""
        moved = sum(
            2 * item.nbytes for item in map(node.inputs.__getitem__, dict(call.reads)) if isinstance(item, Value)
        )
        return moved > self._budget(node)

    def _budget(self, node: Node) -> float:
        """The bytes that may be moved for the vendor's product."""
        contraction = contraction_of(node)
        assert contraction is not None
        sizes = contraction.batch, contraction.rows, contraction.columns, contraction.inner
        return (
            _table()[self.family or ""][self._kind(node)]["bytes"] * 2 * prod(size for each in sizes for size in each)
        )

    def _written_out(self, node: Node, call: VendorCall, users: Mapping[Value, list[Node]], roots: set[Value]) -> bool:
        """Whether factors that our own kernel would compute on the way would be written for more than the gain."""
        moved = 0
        for index, _ in call.reads:
            item = node.inputs[index]
            assert isinstance(item, Value)
            made = origin(item)
            if made not in roots and _only_reader(made, users) is node and not _is_stored(made, users, roots):
                moved += 2 * made.nbytes * (not no_load_fusion(made.node, (made.node, node), node, False))
        return moved > self._budget(node)


def _channels(node: Node) -> int:
    """The input channels of a group of a convolution."""
    op: Any = node.op
    weight = node.inputs[op.signature.inputs.index("weight")]
    assert isinstance(weight, Value)
    return weight.shape[0] // op.num_group if "deconv" in op.name.lower() else weight.shape[1]


def views_before(node: Node, index: int) -> tuple[Node, ...]:
    """The views through which a product reads an input, in the order of the graph."""
    views: list[Node] = []
    item = node.inputs[index]
    assert isinstance(item, Value)
    while item.node.op.view and len(item.node.outputs) == 1 and item.node.values_in:
        views.append(item.node)
        item = item.node.values_in[0]
    return tuple(views[::-1])


def _readable(node: Node, call: VendorCall) -> tuple[Node, ...]:
    """The views before a product through which torch reads; empty if torch does not: the views are stored then."""
    if not _can_read(node, call):
        return ()
    return tuple(dict.fromkeys(view for index, _ in call.reads for view in views_before(node, index)))


def _can_read(node: Node, call: VendorCall) -> bool:
    """Whether torch reads all factors from their memory, without a copy."""
    try:
        for index, form in call.reads:
            item = node.inputs[index]
            assert isinstance(item, Value)
            view_of(origin(item), views_before(node, index), form)
    except Unmappable:
        return False
    return True


def _only_reader(value: Value, users: Mapping[Value, list[Node]]) -> Node | None:
    """The one operator that reads a value, through views too; None if several do."""
    readers: list[Node] = []
    waiting = [value]
    while waiting:
        for reader in users.get(waiting.pop(), ()):
            if reader.op.view and len(reader.outputs) == 1:
                waiting += reader.outputs
            else:
                readers.append(reader)
    return readers[0] if len(readers) == 1 else None


def _is_stored(value: Value, users: Mapping[Value, list[Node]], roots: set[Value]) -> bool:
    """Whether the value is in memory in any case: it is no result of cheap operators, or of such of a product or a
    reduction, whose kernel stores it.
    """
    waiting, seen = [value], set[Node]()
    if not is_cheap(value.node):
        return True
    while waiting and len(seen) < _MOST_MADE:
        item = waiting.pop()
        if item.node in seen:
            continue
        seen.add(item.node)
        if is_product(item.node) or is_reduction(item.node):
            return True
        if is_cheap(item.node):
            waiting += map(origin, item.node.values_in)
    return False


@functools.lru_cache
def _table() -> dict[str, dict[str, Any]]:
    return json.loads((Path(tiles.__file__).parent / "vendor.json").read_text(encoding="utf-8"))


def rule_here(products: str | None, strict: bool, precision: str) -> VendorRule | None:
    """The rule on this machine's device; None if all products are our own kernels.

    products : as hybridize() takes it, None, "own" or "vendor"; strict : as there; precision : of float32 factors
    """
    device = availability.device()
    if products == "own" or strict or (products is None and device.interpreted):
        return None
    if products == "vendor":
        return VendorRule(None, precision, True)
    return VendorRule(tiles.family(device.name), precision, availability.has_cudnn())


def rule_for(target: str, precision: str) -> VendorRule:
    """The rule on a GPU that need not be here: "sm90", "gfx942"."""
    family = tiles.family(target)
    return VendorRule(family, precision, family == "nvidia")
