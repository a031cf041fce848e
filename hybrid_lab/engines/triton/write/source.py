"""KernelSource: the text of a kernel, its arguments, and the number of its programs."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np

from hybrid_lab.engines.triton.write import reuse
from hybrid_lab.engines.triton.write.body import INT32, Body
from hybrid_lab.engines.triton.write.exact import exact
from hybrid_lab.engines.triton.write.reuse import choice
from hybrid_lab.engines.triton.write.syntax import FUNCTIONS, ORIGIN, Remark, said, short
from hybrid_lab.graph.node import Node, Value

#: Pointer types of Triton's signatures.
POINTERS = {
    "float16": "*fp16",
    "bfloat16": "*bf16",
    "float32": "*fp32",
    "float64": "*fp64",
    "int8": "*i8",
    "int32": "*i32",
    "int64": "*i64",
    "uint8": "*u8",
    "bool": "*i1",
}


#: Sizes of which a binary never assumes multiples: in addresses they are only factors of other sizes.
COUNTED = ("parts", "planes")


#: Returns a kernel's docstring, and a remark for each of the kernel's last lines.
Comments = Callable[[], tuple[str, Sequence[Remark]]]


@dataclass(frozen=True)
class KernelSource:
    """A kernel's text and how to call it: inputs, outputs, seed and draws if it draws, sizes, and blocks as constants.

    name : of the function; kind : "pointwise", "rows", "rows in a loop" ...
    arguments : names of the function's arguments; head, lines : the text before and behind the function's docstring
    comments : returns the docstring and a remark for each of the last lines. They describe one model and are not
        compiled, so that equal kernels of other layers and models have equal code
    inputs : Values in the order of the pointer arguments; outputs : likewise after them
    draws : draw numbers that the kernel takes, after seed, one argument each
    sizes : name -> whole number handed over at each launch
    blocks : name -> power of two, elements of a tile along one axis
    tiled : names of the blocks that may be another power of two, with the largest useful size
    grid : pairs (size, block): along each axis of the launch as many programs as blocks cover the size; a block "" is 1
    warps : of a program on a GPU; stages : of its pipelined loops, None for what Triton's backend takes by itself
    passes : input -> the number of loops over its rows that read it, if more than one
    precision : how float32 factors of its products are multiplied, "ieee" or "tf32"; "" without products
    anywhere : which pointer arguments may be addresses of any element; other addresses are multiples of 16 bytes
    together : size -> number: if the size is a multiple of it, the binary is compiled for multiples only; nothing is
        assumed of other sizes (see Body.together). None : all sizes, with 16
    """

    name: str
    kind: str
    arguments: Sequence[str]
    head: Sequence[str]
    lines: Sequence[str]
    comments: Comments
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    draws: tuple[int, ...]
    sizes: Mapping[str, int]
    blocks: Mapping[str, int]
    tiled: Mapping[str, int] = field(default_factory=dict)
    grid: tuple[tuple[str, str], ...] = ()
    warps: int = 4
    stages: int | None = None
    passes: Mapping[Value, int] = field(default_factory=dict)
    together: Mapping[str, int] | None = None
    precision: str = ""
    anywhere: tuple[int, ...] = ()

    @cached_property
    def text(self) -> str:
        """The source as people read it, with comments."""
        summary, remarks = self.comments()
        plain = list(self.lines[: len(self.lines) - len(remarks)])
        commented = _origins_once([*zip(self.lines[len(plain) :], map(said, remarks), strict=True)])
        width = min(max((len(text) for text, comment in commented if comment), default=4), 76)
        lines = [f"{text:<{width}}  # {comment}" if comment else text for text, comment in commented]
        return "\n".join([*self.head, f'    """{summary}"""', *plain, *lines, ""])

    @cached_property
    def code(self) -> str:
        """The compiled source, without comments and docstrings."""
        lines = [line.split("  # ")[0] for line in (*self.head, *self.lines) if not line.startswith('    """')]
        return "\n".join(lines) + "\n"

    @cached_property
    def passed(self) -> tuple[str, ...]:
        """The names of the sizes that the kernel takes; the other sizes only decide how many programs there are."""
        return tuple(name for name in self.sizes if name in self.arguments)

    def programs(self, blocks: Mapping[str, int]) -> tuple[int, ...]:
        """How many programs run along each axis of the launch, with these blocks."""
        return tuple(-(-self.sizes[size] // blocks.get(block, 1)) for size, block in self.grid)

    @cached_property
    def signature(self) -> dict[str, str]:
        """Argument types for ahead-of-time compilation."""
        types = [_pointer(value.dtype) for value in (*self.inputs, *self.outputs)]
        types += ["i64"] * bool(self.draws) + ["i64"] * len(self.draws)
        types += ["i64" if self.sizes[name] >= INT32 else "i32" for name in self.passed] + ["constexpr"] * len(
            self.blocks
        )
        return dict(zip(self.arguments, types, strict=True))

    @cached_property
    def far(self) -> tuple[int, ...]:
        """The pointer arguments whose arrays have 2 GiB or more: offsets of 32 bits, in bytes, do not reach them."""
        values = (*self.inputs, *self.outputs)
        return tuple(index for index, value in enumerate(values) if value.nbytes >= INT32)

    @cached_property
    def multiples(self) -> tuple[tuple[int, str, int], ...]:
        """Arguments that a binary may be for multiples of: (which one, its size or "" for an address, of what)."""
        multiples, known = [], self.together
        for index, (name, kind) in enumerate(self.signature.items()):
            if kind.startswith("*"):
                if index not in self.anywhere:
                    multiples.append((index, "", 16))
            elif name in self.sizes:
                many = known.get(name, 1) if known is not None else 1 if name in COUNTED else 16
                if many > 1:
                    multiples.append((index, name, many))
        return tuple(multiples)

    @cached_property
    def fixed(self) -> tuple[Any, ...]:
        """All that a binary depends on but sizes and the chip."""
        return self.name, self.code, *self.signature.values(), *self.blocks.items(), self.warps, self.stages, self.far


@cache
def _pointer(dtype: np.dtype) -> str:  # NumPy takes a microsecond for each name
    return POINTERS[dtype.name]


def kernel_name(nodes: Sequence[Node]) -> str:
    """`sub_exp_mul`: the fused operators, shortened after five; views have no part in it."""
    named = [node for node in nodes if not node.op.view] or list(nodes)
    words = [re.sub(r"\W", "_", short(node.op.name), flags=re.ASCII).lower() for node in named]
    more = f"_and_{len(words) - 5}_more" if len(words) > 5 else ""
    name = "_".join(words[:5]) + more
    return f"k_{name}" if keyword.iskeyword(name) or name[0].isdigit() or len(words) == 1 else name


def ancestors(nodes: Iterable[Node], inside: Sequence[Node], stop: Collection[Node] = ()) -> list[Node]:
    """The operators among `inside` from which `nodes` are computed, with `nodes` themselves; without the operators
    before `stop`.
    """
    members, waiting = set(inside), list(nodes)
    earlier: set[Node] = set()
    while waiting:
        node = waiting.pop()
        if node in members and node not in earlier:
            earlier.add(node)
            if node not in stop:
                waiting += [value.node for value in node.values_in]
    return [node for node in inside if node in earlier]


def descendants(nodes: Collection[Node], inside: Iterable[Node]) -> set[Node]:
    """The operators among `inside`, in program order, that need a result of `nodes`."""
    later: set[Node] = set()
    for node in inside:
        if any(value.node in nodes or value.node in later for value in node.values_in):
            later.add(node)
    return later


def counted(nodes: Sequence[Node]) -> str:
    """`3 operators`; views have no part in it."""
    count = sum(not node.op.view for node in nodes) or len(nodes)
    return f"{count} operator{'s' * (count > 1)}"


def and_more(nodes: Sequence[Node]) -> str:
    """`, and 2 more operators` than one, or ""; views have no part in it."""
    others = sum(not node.op.view for node in nodes) - 1
    return f", and {others} more operator{'s' * (others > 1)}" if others > 0 else ""


def lanes(name: str, length: str, block: str, start: str = "", down: bool = False) -> list[str]:
    """Two lines: the positions of a tile along one axis, beginning at `start`, and the mask of the positions inside.

    length, block : arguments; down : the tile's first axis, else the second one
    """
    axes = "[:, None]" if down else "[None, :]"
    return [f"{name} = {start}tl.arange(0, {block}){axes}", f"{name}_inside = {name} < {length}"]


#: The lines of a program's rows, along the launch's first axis.
ROW_LANES = lanes("row", "rows", "ROWS", "tl.program_id(0) * ROWS + ", down=True)
COLUMN_LANES = lanes("column", "columns", "COLUMNS")


def kernel_source(
    body: Body, kind: str, name: str, summary: str, head: Sequence[str], sizes: Mapping[str, int],
    blocks: Mapping[str, int], tiled: Mapping[str, int], grid: tuple[tuple[str, str], ...], **more: Any,
) -> KernelSource:  # fmt: skip
    """The kernel whose text is `head` and then the lines of the body, behind imports and the functions that it calls.

    head : lines that compute the places; summary : the docstring; the remaining arguments are fields of KernelSource
    """
    assert len(body.scopes) == 1
    arguments = [*body.inputs.values(), *body.pointers.values()]
    arguments += ["seed"] * bool(body.draws) + [f"draw{number}" for number in body.draws]
    written = exact([*head, *(text for text, _ in body.scopes[0].lines)])
    if body.wide:
        written = [_POSITIONS.sub(r"\1.to(tl.int64)", line) for line in written]
    words = set(re.findall(r"\w+", " ".join(written)))
    arguments += [size for size in (*sizes, *reuse.arguments()) if size in words]
    declared = [*arguments, *(f"{block}: tl.constexpr" for block in blocks)]
    top = ["import triton", "import triton.language as tl", *functions_in(words), "", ""]
    call = [f"def {name}({', '.join(declared)}):"]
    if len(call[0]) > 100:
        wrapped = _wrapped([f"{item}," for item in declared], 96)
        call = [f"def {name}(", *(f"    {line}" for line in wrapped), "):"]
    lines = [f"    {line}" for line in written]
    remarks = [remark for _, remark in body.scopes[0].lines]
    return KernelSource(
        name, kind, [*arguments, *blocks], [*top, "@triton.jit", *call], lines, lambda: (summary, remarks),
        tuple(body.inputs), tuple(body.pointers), tuple(body.draws), sizes, blocks, tiled, grid,
        precision=body.precision, **more,
    )  # fmt: skip


#: Where positions begin: all others are computed from these.
_POSITIONS = re.compile(r"(tl\.(?:program_id|arange)\([^()]*\))")


def functions_in(words: Collection[str]) -> list[str]:
    """The lines of the functions that a text with these words calls, directly or through other functions."""
    called, lines = set(words), list[str]()
    for function, text in reversed(FUNCTIONS.items()):
        if function in called:
            lines = ["", "", *text.splitlines(), *lines]
            called.update(re.findall(r"\w+", text))
    return lines


def _origins_once(lines: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Lines with comments; neighbours with the same origin name it once."""
    last, shortened = "", []
    for text, comment in lines:
        operator, _, origin = comment.partition(ORIGIN)
        shortened.append((text, operator if origin == last else comment))
        last = origin or last
    return shortened


def _wrapped(words: Sequence[str], width: int) -> list[str]:
    """Lines of whole words."""
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def power_of_two(number: int, least: int = 1, most: int = 1 << 30) -> int:
    """The smallest power of two that covers `number`, within limits that are powers of two too."""
    block = least
    while block < min(number, most):
        block *= 2
    return block


def block_for(number: int, least: int = 1, most: int = 1 << 30) -> int:
    """The same for an axis that programs or a loop divide among blocks of any size."""
    return min(_block(number, least), max(least, most))


@choice
def _block(number: int, least: int) -> int:
    return power_of_two(number, least)


def covering(number: int, least: int = 1) -> int:
    """The same for an axis that one block has whole. A larger block than is needed does as well."""
    block = block_for(number, least)
    return block if number <= block else power_of_two(number, least)
