"""Insight: reports about what hybridization did with a model, which print as text and give plain data."""

from hybrid_lab.insight.capture import Capture, capture
from hybrid_lab.insight.compare import Comparison, compare
from hybrid_lab.insight.explain import Explanation, explain
from hybrid_lab.insight.facets import Facets, facets
from hybrid_lab.insight.profile import Profile, profile
from hybrid_lab.insight.states import BlockState, block_state, walk
from hybrid_lab.insight.tune import Tuning, tune
from hybrid_lab.insight.watch import Watch, watch_nan

__all__ = [
    "BlockState",
    "Capture",
    "Comparison",
    "Explanation",
    "Facets",
    "Profile",
    "Tuning",
    "Watch",
    "block_state",
    "capture",
    "compare",
    "explain",
    "facets",
    "profile",
    "tune",
    "walk",
    "watch_nan",
]
