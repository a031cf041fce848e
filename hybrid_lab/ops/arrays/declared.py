"""The check of the inputs of an imported graph: for which shapes and dtypes the graph holds."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, HybridLabError, ShapeError
from hybrid_lab.ops.framework import Operator, Signature, sample
from hybrid_lab.ops.framework.declared_shapes import DeclaredInput, DeclaredShapes
from hybrid_lab.ops.framework.lowering import emit_lowering, run_lowering
from hybrid_lab.ops.framework.protocols import Functions, Gradients, Tensor
from hybrid_lab.ops.framework.types import PartialShape, PartialShapes, Shape, Shapes


class CheckInputs(Operator, name="_check_inputs"):
    """The inputs unchanged, if their shapes and dtypes satisfy the declaration of the graph behind them.

    args : any number of arrays; returns : the same
    declares, conditions : JSON, of `DeclaredShapes`; source : where the graph comes from, for the error's advice
    Raises DeclaredSizeError, a ShapeError, and DTypeError.
    """

    mxnet = None
    by_shapes = True
    passes_inputs = True
    arrays_only = ("args",)
    declares: str
    conditions: str = "[]"
    source: Literal["torch", "onnx", "code"] = "onnx"
    numpy, onnx = run_lowering, emit_lowering
    samples = [
        sample((3, 4), declares='[["x",["b",4],"float32"]]'),
        # An output without a gradient gives its input zeros eagerly, and nothing in a graph.
        sample(
            *((3, 4), (3, 2)),
            gradient=False,
            declares='[["x",["b",4],"float32"],["y",["b","b - 1"],null]]',
            conditions='["b < 9"]',
        ),
    ]

    @cached_property
    def holds_for(self) -> DeclaredShapes:
        """The shapes that the graph holds for."""
        return DeclaredShapes.loads(self.declares, self.conditions)

    @cached_property
    def signature(self) -> Signature:
        return Signature((), len(self.holds_for.inputs))

    def check(self) -> None:
        try:
            count = len(self.holds_for.inputs)
        except (ValueError, HybridLabError) as error:
            raise AttributeSpecError(f"_check_inputs: {error}") from None
        if not count:
            raise AttributeSpecError("_check_inputs: it declares no input")

    def complete(self, *shapes: PartialShape) -> PartialShapes:
        known = []
        for item, shape in zip(self.holds_for.inputs, shapes, strict=True):
            if item.sizes is not None and (shape is None or len(shape) == len(item.sizes)):
                own = (None,) * len(item.sizes) if shape is None else shape
                numbers = [size if isinstance(size, int) else None for size in item.sizes]
                shape = tuple([a if a is not None else b for a, b in zip(own, numbers, strict=True)])
            known.append(shape)
        return tuple(known)

    def infer_shape(self, *args: Shape) -> Shape | Shapes:
        if len(args) != len(self.holds_for.inputs):
            raise ShapeError(f"_check_inputs: {len(args)} inputs for {len(self.holds_for.inputs)} that are declared")
        self.holds_for.check_shapes(args, self._advice)
        return list(args) if len(args) > 1 else args[0]

    def infer_type(self, *args: np.dtype) -> list[np.dtype]:
        self.holds_for.check_dtypes(args)
        return list(args)

    def lower(self, F: Functions, *args: Tensor) -> tuple[Tensor, ...]:
        self.infer_shape(*[item.shape for item in args])
        self.infer_type(*[np.dtype(item.dtype) for item in args])
        return args

    def grad(self, F: Functions, *values: Tensor) -> Gradients:
        return values[2 * len(self.holds_for.inputs) :]

    def _advice(self, item: DeclaredInput) -> str:
        """What to do about an input of another shape."""
        if self.source == "torch":
            return "Import the module again with an example of this size, or with the size open: dynamic_shapes="
        if self.source == "code":
            return "The code that the graph was traced from reads shapes; call it with this shape and export it again"
        shape = f"({', '.join(['None'] * len(item.sizes or ()))}{',' if len(item.sizes or ()) == 1 else ''})"
        return f"If the file computes for other sizes, leave them open: imports(..., shapes={{{item.name!r}: {shape}}})"
