"""The torch engine: a region as a straight line of torch's CPU kernels, without autograd and without copies."""

from hybrid_lab.engines.torch_kernels import images, order, recurrent, table
from hybrid_lab.engines.torch_kernels.engine import ENGINE, TorchEngine

__all__ = ["ENGINE", "TorchEngine", "images", "order", "recurrent", "table"]
