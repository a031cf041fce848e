"""mx.tune: measure which tiles a model's kernels run fastest with on this machine's GPU, and keep what was found."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from math import exp, log
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.words import count
from hybrid_lab.gluon import access
from hybrid_lab.insight.compiled import known_inputs
from hybrid_lab.insight.states import walk
from hybrid_lab.insight.table import Column, Row, Table, frame

if TYPE_CHECKING:
    from hybrid_lab.engines.triton.tuning import Tuned
    from hybrid_lab.gluon.block import Block


@dataclass
class Tuning:
    """What `mx.tune` found; print it, show it in a notebook, or take `data()`.

    kernels : each distinct product, attention and row reduction; seconds : that it all took
    """

    name: str
    kernels: list[Tuned] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def gain(self) -> float:
        """How many times as fast the kernels are as with the rule's tiles, each once: the geometric mean."""
        return exp(sum(log(each.gain) for each in self.kernels) / len(self.kernels)) if self.kernels else 1.0

    @property
    def left_out(self) -> int:
        """How many candidates did not compile, gave other numbers or failed."""
        return sum(len(each.choice.left_out) for each in self.kernels)

    def data(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers."""
        kernels = [
            {"name": each.name, "kind": each.kind, "best": each.best, "gain": each.gain, "measured": each.measured}
            | asdict(each.choice)
            for each in self.kernels
        ]
        return {"name": self.name, "seconds": self.seconds, "gain": self.gain, "kernels": kernels}

    def _head(self) -> str:
        fresh = sum(each.measured for each in self.kernels)
        left = f", {count(self.left_out, 'candidate')} left out" if self.left_out else ""
        return (
            f"{self.name}: {count(len(self.kernels), 'kernel')}, {fresh} measured now{left}; {self.gain:.2f} x the "
            f"rule's tiles, {self.seconds:.1f} s"
        )

    def _table(self) -> Table:
        titles = [Column("kernel", flexible=True), Column("kind"), Column("best", flexible=True)]
        titles += [Column(title, right=True) for title in ("us", "rule's us", "gain")]
        table = Table([*titles, Column("left out", flexible=True)])
        for each in self.kernels:
            seconds = each.choice.seconds
            times = [f"{1e6 * seconds[name]:.1f}" if name in seconds else "" for name in (each.best, "rule")]
            left = "; ".join(f"{name}: {reason}" for name, reason in each.choice.left_out.items())
            table.rows.append(Row([each.name, each.kind, each.best, *times, f"{each.gain:.2f} x", left]))
        return table

    def __str__(self) -> str:
        return "\n".join([self._head(), *(self._table().lines() if self.kernels else [])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return frame(self._head(), *([self._table().html()] if self.kernels else []))


def tune(net: Block, *inputs: Any, train: bool | None = None, again: bool = False) -> Tuning:
    """Measure, for calls on `inputs`, which tiles the products, attentions and row reductions of a model run fastest
    with on this machine's GPU, torch's own products among them; later compiles take what was found, in other processes
    too, and shapes of about the same size share it.

    inputs : arrays or shapes, as the call takes them; none: those of the last call. What they hold is not looked at,
        and the model does not run
    train : only the graphs of training, or only those of prediction; None means both
    again : measure those too that were measured at an earlier time

    Takes seconds to minutes, with a bar of progress; interrupting it keeps what was found until then. A candidate must
    give the rule's numbers to be timed. Raises EngineUnavailable without a GPU, HybridLabError for a Block that is not
    hybrid or was not called so far, HybridizeError where the code cannot become a graph.
    """
    from hybrid_lab.engines.triton import tuning
    from hybrid_lab.engines.triton.writing import tiles
    from hybrid_lab.gluon.ahead import graphs_of
    from hybrid_lab.gluon.hybrid import HybridBlock

    if not isinstance(net, HybridBlock):
        raise HybridLabError(f"{net.name} is not a HybridBlock: tune those in it one by one, mx.tune(net.features, x)")
    started = time.perf_counter()
    bench = tuning.GpuBench()
    modes = (False, True) if train is None else (train,)
    graphs = [
        graph
        for mode in modes
        for part, graph in graphs_of(net, list(inputs) or known_inputs(net), mode).items()
        if not part.startswith("update")
    ]
    tf32 = bool(access.flags(net).get("tf32"))
    try:
        found = tuning.tune(graphs, lambda target: tiles.precision(tf32, target), bench, again)
    finally:
        for _, _, block, before in walk(net):
            if before is None and isinstance(block, HybridBlock):
                access.graphs(block).forget_programs()
    return Tuning(net.name, found, time.perf_counter() - started)
