"""Embedding: rows of a table by their indices."""

from __future__ import annotations

from typing import Unpack

from numpy.typing import DTypeLike

from hybrid_lab.gluon.block import BlockOptions
from hybrid_lab.initializer import InitializerLike
from hybrid_lab.ops.framework.dtypes import dtype_of
from hybrid_lab.ops.framework.protocols import Functions, Tensor

from ..hybrid import HybridBlock
from .registry import layer


@layer
class Embedding(HybridBlock):
    """Vectors for indices: y[i] = weight[x[i]].

    input_dim : number of rows (the vocabulary); output_dim : size of a row
    sparse_grad : accepted for MXNet's sake; gradients are dense
    weight : (input_dim, output_dim)

    x : (...) indices, of any dtype -> (..., output_dim)
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        dtype: DTypeLike | None = "float32",
        weight_initializer: InitializerLike | None = None,
        sparse_grad: bool = False,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        super().__init__(**kwargs)
        self._kwargs = {"input_dim": input_dim, "output_dim": output_dim, "dtype": dtype_of(dtype).name}
        self.weight = self.params.get(
            "weight", shape=(input_dim, output_dim), init=weight_initializer, dtype=dtype, allow_deferred_init=True
        )

    def hybrid_forward(self, F: Functions, x: Tensor, weight: Tensor) -> Tensor:
        return F.Embedding(x, weight, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        return "{name}({input_dim} -> {output_dim}, {dtype})".format(name=type(self).__name__, **self._kwargs)
