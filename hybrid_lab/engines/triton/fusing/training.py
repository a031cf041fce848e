"""What becomes of forward and backward of a recorded call before they are kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hybrid_lab.engines.triton.fusing.kept_views import without_views
from hybrid_lab.engines.triton.fusing.pair import Pair, Source
from hybrid_lab.engines.triton.fusing.recompute import without_weights
from hybrid_lab.graph.form import Form
from hybrid_lab.graph.graph import Graph


def training_pair(forward: Graph, backward: Graph, sources: Sequence[Source], num_outputs: int) -> Pair:
    """The graphs with less to keep from one to the other: no weights of an attention, and no views.

    num_outputs : how many outputs of the forward are the caller's
    It is found out once for all sizes of the graphs' forms that answer alike.
    """
    form, other, at = forward.form, backward.form, forward.at
    if form is None or other is None or at is None:
        return _pair(forward, backward, sources, num_outputs)
    key = ("training", other, tuple(sources), num_outputs)
    if key not in form.kept:
        form.kept[key] = _Formed.of(form, other, sources, num_outputs)
    formed: _Formed | None = form.kept[key]
    if formed is None or not at.agrees(formed.count):
        return _pair(forward, backward, sources, num_outputs)
    return Pair(formed.forward.at(at), formed.backward.at(at), formed.sources)


def _pair(forward: Graph, backward: Graph, sources: Sequence[Source], num_outputs: int) -> Pair:
    found = without_weights(forward, backward, sources, num_outputs)
    return without_views(found or Pair(forward, backward, tuple(sources)), num_outputs)


@dataclass(frozen=True)
class _Formed:
    """A Pair at all sizes that give the first answers alike. count : how many answers"""

    forward: Form
    backward: Form
    sources: tuple[Source, ...]
    count: tuple[int, int]

    @staticmethod
    def of(form: Form, other: Form, sources: Sequence[Source], num_outputs: int) -> _Formed | None:
        """None where something does not know Sizes."""
        answers = form.answers
        try:
            pair = _pair(form.graph, other.graph, sources, num_outputs)
        except Exception:  # whatever it is, it is not the call that is wrong
            return None
        if pair.forward is form.graph:
            return _Formed(form, other, pair.sources, answers.count)
        return _Formed(Form(pair.forward, answers), Form(pair.backward, answers), pair.sources, answers.count)
