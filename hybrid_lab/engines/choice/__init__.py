"""The choice between the engines of a CPU: what is fastest for a call, measured on the call itself and remembered."""

from hybrid_lab.engines.choice.engine import ChoosingEngine

__all__ = ["ChoosingEngine"]
