"""The insight room: what hybridization did with a model, as objects that print well and as plain data."""

from hybrid_lab.insight.explain import Explanation, explain
from hybrid_lab.insight.states import BlockState, block_state, walk

__all__ = ["BlockState", "Explanation", "block_state", "explain", "walk"]
