"""Family: the specializations of one graph, so that another batch does not run the passes again.

    family.specialize(graph, shapes with a batch of 64, ...)       runs the passes, on Sizes
    family.specialize(graph, shapes with a batch of 37, ...)       the same graphs, with 37 in the shapes

The passes run with a `Size` in the place of the first two sizes of each data input - batch and time, in either layout -
and note what they ask of them (ops/size.py says why that is enough). Where everything that was asked has the same
answer for other sizes, the graphs that the passes would make are at hand. The minimum cut of `split` is no matter of
answers: it is found anew for the bytes of the new sizes.

Where rules cannot do with Sizes, or an answer differs, the passes run as ever.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from hybrid_lab.graph.form import Form
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Value
from hybrid_lab.graph.specialize import Specialized, specialize, until_split
from hybrid_lab.graph.split import Cutter
from hybrid_lab.ops.precision import Precision
from hybrid_lab.ops.size import Answers, At

#: How many sets of answers are kept for one kind of call; the one that was found last is looked at first.
MAX_SETS = 8
#: How many kinds of call are kept.
MAX_KINDS = 64
#: The leading sizes of a data input that may differ from call to call.
LEADING = 2


class Family:
    """Specializations by kind of call: the graph, its mode, dtypes, gradients and the shapes of its parameters."""

    def __init__(self) -> None:
        self._kinds: dict[Any, list[Kin]] = {}
        self._plain: set[Any] = set()  # kinds in which something does not know Sizes

    def specialize(
        self,
        graph: Graph,
        shapes: Sequence[Any],
        dtypes: Sequence[Any],
        train: bool,
        wrt: Sequence[int] = (),
        num_data: int = 0,
        precision: Precision | None = None,
        heads: Collection[int] | None = None,
    ) -> Specialized:
        """As `specialize.specialize`. num_data : the sizes of so many first inputs may differ from call to call"""
        ranks = tuple(map(len, shapes[:num_data]))
        wanted = None if heads is None else frozenset(heads)
        key = graph, ranks, tuple(shapes[num_data:]), tuple(dtypes), train, tuple(wrt), num_data, precision, wanted
        known = self._kinds.setdefault(key, [])
        if len(self._kinds) > MAX_KINDS:
            del self._kinds[next(iter(self._kinds))]
        for kin in known:
            found = kin.at(shapes)
            if found is not None:
                known.remove(kin)
                known.insert(0, kin)
                return found
        options: dict[str, Any] = {"precision": precision, "heads": heads}
        if key in self._plain:
            return specialize(graph, shapes, dtypes, train, wrt, num_data, **options)
        try:
            kin = Kin(graph, shapes, dtypes, train, wrt, num_data, **options)
            found = kin.at(shapes)
            assert found is not None
        except Exception:
            made = specialize(graph, shapes, dtypes, train, wrt, num_data, **options)
            self._plain.add(key)  # it was not the call that was wrong
            return made
        known.insert(0, kin)
        del known[MAX_SETS:]
        return found


class Kin:
    """What the passes made of one kind of call, for all sizes that answer alike."""

    def __init__(
        self,
        graph: Graph,
        shapes: Sequence[Any],
        dtypes: Sequence[Any],
        train: bool,
        wrt: Sequence[int],
        num_data: int,
        precision: Precision | None,
        heads: Collection[int] | None = None,
    ):
        self.answers = Answers()
        self._places: list[tuple[int, int]] = []
        self._others = [shape[LEADING:] for shape in shapes[:num_data]]
        marked = [list(shape) for shape in shapes]
        for index in range(num_data):
            for axis, size in enumerate(shapes[index][:LEADING]):
                marked[index][axis] = self.answers.size(size)
                self._places.append((index, axis))
        given = [tuple(shape) for shape in marked]
        self._cutter: Cutter | None = None
        if wrt:
            joint, start = until_split(graph, given, dtypes, train, wrt, num_data, precision=precision, heads=heads)
            self._cutter = Cutter(joint, len(start.inputs), len(start.outputs))
            self._parts: dict[tuple[Value, ...], tuple[Form, Form, Specialized]] = {}
            self._wrt = tuple(wrt)
            self._heads = None if heads is None else tuple(sorted(heads))
            self._straight = tuple(("input", index) for index in range(len(start.inputs)))
        else:
            made = specialize(graph, given, dtypes, train, (), num_data, precision=precision)
            self._whole = made
            self._forward = Form(made.forward, self.answers)
            self._given = Form(made.given, self.answers)
            self._prologue = None if made.prologue is None else Form(made.prologue, self.answers)
        self._count = self.answers.count

    def at(self, shapes: Sequence[Any]) -> Specialized | None:
        """The graphs for other shapes of the data; None where some answer differs."""
        if any(shape[LEADING:] != other for shape, other in zip(shapes, self._others, strict=False)):
            return None
        at = At(self.answers, [shapes[index][axis] for index, axis in self._places])
        if not at.agrees(self._count):
            return None
        return self._unrecorded(at) if self._cutter is None else self._recorded(at, self._cutter)

    def _recorded(self, at: At, cutter: Cutter) -> Specialized:
        kept = tuple(cutter.kept(at.nbytes))
        if kept not in self._parts:
            parts = cutter.parts(kept)
            made = Specialized(
                parts.forward,
                parts.backward,
                parts.sources,
                self._wrt,
                forward_sources=self._straight,
                heads=self._heads,
            )
            self._parts[kept] = Form(parts.forward, self.answers), Form(parts.backward, self.answers), made
        first, second, made = self._parts[kept]
        forward = first.at(at)
        return replace(made, forward=forward, backward=second.at(at), given=forward)

    def _unrecorded(self, at: At) -> Specialized:
        made = self._whole
        return replace(
            made,
            forward=self._forward.at(at),
            prologue=None if self._prologue is None else self._prologue.at(at),
            given=self._given.at(at),
        )
