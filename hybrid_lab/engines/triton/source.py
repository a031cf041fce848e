"""Write a pointwise group as Triton source: one line per operator, named after what it fuses and what it reads."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from typing import Any

from hybrid_lab.graph.node import Constant, Node, Value
from hybrid_lab.graph.partition import Region
from hybrid_lab.graph.printer import format_origin, format_type

_TYPES = {
    "float16": "tl.float16",
    "float32": "tl.float32",
    "float64": "tl.float64",
    "int8": "tl.int8",
    "int32": "tl.int32",
    "int64": "tl.int64",
    "uint8": "tl.uint8",
    "bool": "tl.int1",
}
#: Pointer types of Triton's signatures.
POINTERS = {
    "float16": "*fp16",
    "float32": "*fp32",
    "float64": "*fp64",
    "int8": "*i8",
    "int32": "*i32",
    "int64": "*i64",
    "uint8": "*u8",
    "bool": "*i1",
}

#: Functions of Triton that take floating numbers only.
_FLOATING = re.compile(r"tl\.(?!where|maximum|minimum|abs|int|uint|full|float)")

PHILOX = '''
@triton.jit
def philox_word(seed, draw, element):
    """Word number `element` of a draw, by Philox4x32-10: see hybrid_lab.ops.philox."""
    key0, key1 = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    block = element // 4
    c0, c1 = block.to(tl.uint32), (block >> 32).to(tl.uint32)
    c2, c3 = draw.to(tl.uint32) + c0 * 0, (draw >> 32).to(tl.uint32) + c0 * 0
    for _ in tl.static_range(10):
        b0, b2 = c0, c2
        c0 = tl.umulhi(tl.full(b2.shape, 0xCD9E8D57, tl.uint32), b2) ^ c1 ^ key0
        c2 = tl.umulhi(tl.full(b0.shape, 0xD2511F53, tl.uint32), b0) ^ c3 ^ key1
        c1 = b2 * tl.full(b2.shape, 0xCD9E8D57, tl.uint32)
        c3 = b0 * tl.full(b0.shape, 0xD2511F53, tl.uint32)
        key0 = key0 + 0x9E3779B9
        key1 = key1 + 0xBB67AE85
    lane = element % 4
    return tl.where(lane == 0, c0, tl.where(lane == 1, c1, tl.where(lane == 2, c2, c3)))
'''


@dataclass(frozen=True)
class KernelSource:
    """A kernel's text and how to call it.

    name : of the function; text : the module's source
    inputs : Values in the order of the pointer arguments; outputs likewise after them
    draws : draw numbers that the kernel takes, after seed, one argument each
    elements : size of the iteration space
    """

    name: str
    text: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    draws: tuple[int, ...]
    elements: int

    @property
    def signature(self) -> dict[str, str]:
        """Argument types for ahead-of-time compilation."""
        arguments = re.search(rf"def {self.name}\((.*?)\):", self.text, re.DOTALL)
        assert arguments is not None
        names = [item.split(":")[0].strip() for item in arguments[1].split(",")]
        types = (
            [POINTERS[value.dtype.name] for value in (*self.inputs, *self.outputs)]
            + ["i64"] * bool(self.draws)
            + ["i64"] * len(self.draws)
        )
        return dict(zip(names, [*types, "i32", "constexpr"], strict=True))


def refusal(node: Node) -> str | None:
    """None where a pointwise kernel can hold the node, else why not."""
    op = node.op
    if op.triton is None:
        return "no kernel kind for it yet"
    if len(node.outputs) != 1:
        return "several outputs"
    if any(value.dtype.name not in _TYPES for value in (*node.values_in, *node.outputs)):
        return "a dtype that kernels do not have"
    if 0 in node.outputs[0].shape:
        return "an empty array"
    if len(node.outputs[0].shape) > 8:
        return "more than 8 axes"
    whole = any(value.dtype.kind in "iu" for value in (*node.values_in, *node.outputs))
    if whole and _FLOATING.search(op.triton):
        return "a floating function of whole numbers"
    if not op.is_pointwise(*(item.shape if isinstance(item, Value) else () for item in node.inputs)):
        return "its operands do not broadcast element by element"
    if node.outputs[0].nbytes >= 2**31:
        return "more than 2 GiB"
    return None


def write_kernel(group: Region) -> KernelSource:
    """The source of one group (all nodes have one output shape)."""
    return _Writer(group).finish()


class _Writer:
    def __init__(self, group: Region):
        self.group = group
        self.shape: tuple[int, ...] = group.nodes[0].outputs[0].shape
        self.names: dict[Any, str] = {}
        self.taken = {"n", "BLOCK", "offsets", "inside", "seed", "tl", "triton"}
        self.body: list[tuple[str, str]] = []
        self.draws: list[int] = []
        constants = dict.fromkeys(
            value for node in group.nodes for value in node.values_in if isinstance(value.node.op, Constant)
        )
        shape_only = {
            value
            for node in group.nodes
            for name, value in zip(node.op.names(), node.inputs, strict=False)
            if name in node.op.shape_only and isinstance(value, Value)
        }
        read = {
            value
            for node in group.nodes
            for name, value in zip(_names(node), node.inputs, strict=False)
            if isinstance(value, Value) and name not in node.op.shape_only
        }
        self.inputs = tuple(value for value in (*group.inputs, *constants) if value in read or value not in shape_only)

    def finish(self) -> KernelSource:
        arguments = [self._name(value, _label(value)) + "_ptr" for value in self.inputs]
        for index, value in enumerate(self.inputs):
            self._load(value, arguments[index])
        for node in self.group.nodes:
            self._compute(node)
        for index, value in enumerate(self.group.outputs):
            pointer = f"out{index}_ptr" if len(self.group.outputs) > 1 else "out_ptr"
            arguments.append(pointer)
            self.body.append((f"tl.store({pointer} + offsets, {self.names[value]}, mask=inside)", ""))
        arguments += (
            ["seed"] * bool(self.draws) + [f"draw{number}" for number in self.draws] + ["n", "BLOCK: tl.constexpr"]
        )
        name = kernel_name(self.group.nodes)
        width = min(max(len(text) for text, _ in self.body), 72)
        lines = [f"    {text:<{width}}  # {comment}" if comment else f"    {text}" for text, comment in self.body]
        head = [
            "import triton",
            "import triton.language as tl",
            *(PHILOX.splitlines() if self.draws else []),
            "",
            "",
            "@triton.jit",
        ]
        head += [f"def {name}({', '.join(arguments)}):", f'    """{self._summary()}"""']
        head += ["    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", "    inside = offsets < n"]
        elements = 1
        for size in self.shape:
            elements *= size
        return KernelSource(
            name, "\n".join(head + lines) + "\n", self.inputs, self.group.outputs, tuple(self.draws), elements
        )

    def _summary(self) -> str:
        count = len(self.group.nodes)
        space = format_type(self.shape, self.group.nodes[-1].outputs[0].dtype)
        return f"{count} operator{'s' if count > 1 else ''} over {space}."

    def _name(self, value: Value, wanted: str) -> str:
        name = re.sub(r"\W", "_", wanted, flags=re.ASCII).strip("_").lower() or "x"
        name = f"x_{name}" if name[0].isdigit() or keyword.iskeyword(name) else name
        base, number = name, 2
        while name in self.taken:
            name, number = f"{base}{number}", number + 1
        self.taken.add(name)
        self.names[value] = name
        return name

    def _load(self, value: Value, pointer: str) -> None:
        index = broadcast_index(value.shape, self.shape)
        loaded = f"tl.load({pointer} + {index}, mask=inside)"
        if value.dtype.name == "float16":
            loaded += ".to(tl.float32)"
        elif value.dtype.name == "bool":
            loaded += " != 0"
        self.body.append((f"{self.names[value]} = {loaded}", format_type(value.shape, value.dtype)))

    def _compute(self, node: Node) -> None:
        value = node.outputs[0]
        dtype = value.dtype if value.dtype.kind != "b" else next((item.dtype for item in node.values_in), value.dtype)
        operands = [
            self.names[item] if isinstance(item, Value) and item in self.names else _literal(item, dtype)
            for item in node.inputs
        ]
        keywords = {}
        if node.op.random:
            draw = node.draw or 0
            if draw not in self.draws:
                self.draws.append(draw)
            keywords = {"seed": "seed", "draw": f"draw{draw}", "element": "offsets.to(tl.int64)"}
        assert node.op.triton is not None
        expression = node.op.triton.format(*map(_wrapped, operands), **keywords)
        name = self._name(value, _short(node.op.name))
        wide = "float32" if value.dtype.name == "float16" else value.dtype.name
        self.body.append((f"{name} = ({expression}).to({_TYPES[wide]})", self._comment(node)))

    def _comment(self, node: Node) -> str:
        text = f"{node.op!r}   {format_origin(node)}".rstrip()
        return "".join(letter if letter.isprintable() else "?" for letter in text)


def _names(node: Node) -> tuple[str, ...]:
    names = node.op.names()
    return names if len(names) >= len(node.inputs) else (*names, *("",) * (len(node.inputs) - len(names)))


def _label(value: Value) -> str:
    return value.node.name or _short(value.node.op.name)


def _short(name: str) -> str:
    return name.removeprefix("broadcast_").strip("_")


def _wrapped(operand: str) -> str:
    return operand if re.fullmatch(r"\w+", operand) else f"({operand})"


def _literal(item: Any, dtype: Any) -> str:
    """A Python scalar as the operand's dtype takes it (int32 * 0.5 multiplies by 0)."""
    if isinstance(item, Value):
        return "0.0"  # only its shape is read
    if dtype.kind in "iu":
        return repr(int(item))
    number = float(item)
    return repr(number) if number - number == 0 else f"float({str(number)!r})"


def kernel_name(nodes: tuple[Node, ...]) -> str:
    """`sub_exp_mul`: what the kernel fuses, shortened after five operators."""
    words = [re.sub(r"\W", "_", _short(node.op.name), flags=re.ASCII).lower() for node in nodes]
    more = f"_and_{len(words) - 5}_more" if len(words) > 5 else ""
    name = "_".join(words[:5]) + more
    return f"k_{name}" if keyword.iskeyword(name) or name[0].isdigit() or len(nodes) == 1 else name


def broadcast_index(shape: tuple[int, ...], space: tuple[int, ...]) -> str:
    """The element of a broadcast operand that belongs to element `offsets` of the iteration space, row by row.

    Sizes of the first axis never appear where it is not broadcast, so another batch size gives the same text.
    """
    full = (1,) * (len(space) - len(shape)) + tuple(shape)
    if full == tuple(space):
        return "offsets"
    if all(size == 1 for size in full):
        return "offsets * 0"
    # Runs of axes that are kept or broadcast alike, from the last to the first.
    runs: list[list[int]] = []
    for size, whole in zip(reversed(full), reversed(space), strict=True):
        if whole == 1:
            continue
        kept = int(size != 1)
        if runs and runs[-1][0] == kept:
            runs[-1][1] *= whole
        else:
            runs.append([kept, whole])
    terms, below, stride = [], 1, 1
    for place, (kept, length) in enumerate(runs):
        if kept:
            term = "offsets" if below == 1 else f"offsets // {below}"
            if place < len(runs) - 1:
                term = f"({term}) % {length}" if below > 1 else f"{term} % {length}"
            terms.append(term if stride == 1 else f"({term}) * {stride}")
            stride *= length
        below *= length
    return " + ".join(f"({term})" if " " in term else term for term in terms)
