"""Layers of one weight matrix: Dense multiplies by it, Embedding picks its rows."""

from __future__ import annotations

from typing import Unpack

from numpy.typing import DTypeLike

from hybrid_lab.gluon.block import BlockOptions
from hybrid_lab.initializer import InitializerLike
from hybrid_lab.ops.framework.dtypes import dtype_of
from hybrid_lab.ops.framework.protocols import Functions, Tensor

from ..hybrid import HybridBlock
from .activation import Activation
from .registry import layer


@layer
class Dense(HybridBlock):
    """y = activation(x weight^T + bias).

        layer = nn.Dense(4, activation="relu")
        layer.initialize()
        layer(nd.ones((2, 3))).shape
        layer.weight.shape

    units : size of the output's last axis
    activation : a name as `Activation` takes it, or None
    flatten : x is seen as (batch, rest); False applies the layer to the last axis only
    in_units : size of the input; 0 takes it from the first batch
    weight : (units, in_units); bias : (units,)

    x : (batch, ...) -> (batch, units), or (..., in_units) -> (..., units) if not flattened
    """

    def __init__(
        self,
        units: int,
        activation: str | None = None,
        use_bias: bool = True,
        flatten: bool = True,
        dtype: DTypeLike | None = "float32",
        weight_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike = "zeros",
        in_units: int = 0,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        super().__init__(**kwargs)
        self._units = units
        self._in_units = in_units
        self._flatten = flatten
        with self.name_scope():
            self.weight = self.params.get(
                "weight", shape=(units, in_units), init=weight_initializer, dtype=dtype, allow_deferred_init=True
            )
            self.bias = None
            if use_bias:
                self.bias = self.params.get(
                    "bias", shape=(units,), init=bias_initializer, dtype=dtype, allow_deferred_init=True
                )
            self.act = None if activation is None else Activation(activation, prefix=activation + "_")

    def hybrid_forward(self, F: Functions, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        y = F.FullyConnected(
            x, weight, bias, no_bias=bias is None, num_hidden=self._units, flatten=self._flatten, name="fwd"
        )
        return y if self.act is None else self.act(y)

    def __repr__(self) -> str:
        units, in_units = self.weight.shape or (0, 0)
        return f"{type(self).__name__}({in_units or None} -> {units}, {self.act or 'linear'})"


@layer
class Embedding(HybridBlock):
    """Vectors for indices: y[i] = weight[x[i]].

        layer = nn.Embedding(input_dim=10, output_dim=4)
        layer.initialize()
        layer(nd.array([1, 7])).shape

    input_dim : number of rows (the vocabulary); output_dim : size of a row
    sparse_grad : the gradient of the weight is a row_sparse array, of which a lazy optimizer updates the stored rows
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
        dtype = "float32" if dtype is None else dtype
        self._kwargs = {"input_dim": input_dim, "output_dim": output_dim, "dtype": dtype_of(dtype).name}
        self.weight = self.params.get(
            "weight",
            shape=(input_dim, output_dim),
            init=weight_initializer,
            dtype=dtype,
            allow_deferred_init=True,
            grad_stype="row_sparse" if sparse_grad else "default",
        )

    def hybrid_forward(self, F: Functions, x: Tensor, weight: Tensor) -> Tensor:
        return F.Embedding(x, weight, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        return "{name}({input_dim} -> {output_dim}, {dtype})".format(name=type(self).__name__, **self._kwargs)
