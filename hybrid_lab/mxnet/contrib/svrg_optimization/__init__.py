"""MXNet's `mx.contrib.svrg_optimization`: a Module that trains with variance-reduced gradients."""

from .svrg_module import SVRGModule

__all__ = ["SVRGModule"]
