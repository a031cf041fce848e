"""Rules about reading what a tensor in a graph does not know: its shape, size, type, place, layout, length."""

from ..finding import Severity
from .record import Rule, rule


@rule("HL101", "shape-read", Severity.ERROR, error=AttributeError)
class ShapeRead(Rule):
    """Reading `.shape` of a tensor inside hybrid_forward.

    Why: a graph is made before the shapes are known; the number would be frozen into it.
    Bad:
        return x.reshape((x.shape[0], -1))
    Instead:
        return x.reshape((0, -1))            # 0 keeps the dimension
    Fix: safe where only the batch dimension is read inside `reshape`. Elsewhere `F.shape_array`, `F.slice_like`,
        `F.reshape_like`, `F.broadcast_like` or `F.zeros_like` keep the shape inside the graph.
    Note: in a 2.x-style `forward` the trace can read it; the graph is then made again for every new shape.
    """

    message = "`.shape` of {tensor} cannot be read while a graph is made."
    rewrite = "{x}.reshape((0, -1))  (0 keeps a dimension)      or      F.shape_array({x}), F.reshape_like({x}, other)"
    softer_in_forward = True


@rule("HL102", "size-read", Severity.ERROR, error=AttributeError)
class SizeRead(Rule):
    """Reading `.size` or `.ndim` of a tensor inside hybrid_forward.

    Why: a graph is made before the shapes are known; the number would be frozen into it.
    Bad:
        return F.sum(x) / x.size
    Instead:
        return F.mean(x)
    Note: `F.size_array(x)` is the size as a tensor; a number of dimensions belongs in the constructor.
    """

    message = "`.{attribute}` of {tensor} cannot be read while a graph is made."
    rewrite = "F.size_array({x})      or      a constructor argument (self.ndim)"
    defaults = {"attribute": "size"}
    softer_in_forward = True


@rule("HL103", "dtype-read", Severity.ERROR, error=AttributeError)
class DtypeRead(Rule):
    """Reading `.dtype` of a tensor inside hybrid_forward.

    Why: a graph is made before the element types are known.
    Bad:
        return F.zeros((1, 3), dtype=x.dtype) * x
    Instead:
        return F.zeros_like(x) * x           # takes its dtype from x
    """

    message = "`.dtype` of {tensor} cannot be read while a graph is made."
    rewrite = "F.cast({x}, dtype='float32')      or      F.zeros_like({x})"
    softer_in_forward = True


@rule("HL104", "context-read", Severity.ERROR, error=AttributeError)
class ContextRead(Rule):
    """Reading `.context` or `.ctx` of a tensor inside hybrid_forward.

    Why: a graph belongs to no device; it runs where its inputs are.
    Bad:
        return x + F.ones((1, 3), ctx=x.context)
    Instead:
        return x + F.ones((1, 3))            # made where the graph runs
    """

    message = "`.{attribute}` of {tensor} does not exist in a graph: it runs where its inputs are."
    rewrite = "leave ctx out      or      F.zeros_like({x}), F.ones_like({x})"
    defaults = {"attribute": "context"}


@rule("HL105", "layout-read", Severity.ERROR, error=AttributeError)
class LayoutRead(Rule):
    """Reading `.T` or `.stype` of a tensor inside hybrid_forward.

    Why: a Symbol has neither; transposing is an operator, and the storage type is not known before the graph runs.
    Bad:
        return F.dot(x.T, x)
    Instead:
        return F.dot(F.transpose(x), x)
    Fix: safe for `.T`.
    """

    message = "`.{attribute}` of {tensor} does not exist in a graph."
    rewrite = "F.transpose({x})"
    defaults = {"attribute": "T"}


@rule("HL106", "unpack-tensor", Severity.ERROR, error=TypeError)
class UnpackTensor(Rule):
    """Unpacking one tensor into several names.

    Why: unpacking walks over the first dimension, whose length is not known while the graph is made.
    Bad:
        a, b = x
        return a + b
    Instead:
        a, b = F.split(x, num_outputs=2, axis=0, squeeze_axis=True)
        return a + b
    """

    message = "{tensor} cannot be unpacked into {count} names: its length is not known while a graph is made."
    rewrite = "F.split({x}, num_outputs={count}, axis=0, squeeze_axis=True)"
    defaults = {"count": "several"}
