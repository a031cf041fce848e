"""Rules about arrays and shapes that enter a graph as constants, and about where operators come from."""

from ..finding import Severity
from .record import Rule, rule


@rule("HL161", "array-constant", Severity.ERROR)
class ArrayConstant(Rule):
    """Making an array from Python numbers with `nd.array(...)` inside hybrid_forward.

    Why: an NDArray is not part of a graph and cannot be mixed with its Symbols.
    Bad:
        return F.broadcast_mul(x, mx.nd.array([1.0, 2.0, 3.0]))
    Instead:
        return F.broadcast_mul(x, scale)     # self.scale = self.params.get_constant("scale", [1.0, 2.0, 3.0])
    Note: `F.array(...)` embeds the numbers here; MXNet's Symbol has no such function.
    """

    message = "`{call}` makes an NDArray, which cannot enter a graph."
    rewrite = "self.params.get_constant(name, value) in __init__      or      F.full, F.zeros, F.ones, F.arange"
    defaults = {"call": "nd.array"}


@rule("HL163", "fixed-namespace", Severity.ERROR, error=TypeError)
class FixedNamespace(Rule):
    """Calling `nd.*` or `sym.*` instead of `F.*`.

    Why: F is nd while running eagerly and sym while a graph is made; a fixed one fails in the other mode.
    Bad:
        return mx.nd.relu(x)
    Instead:
        return F.relu(x)
    Fix: safe: the namespace is replaced by F.
    """

    message = "`{call}` works in one mode only; F is the namespace of the mode that runs."
    rewrite = "F.{operator}(...)"
    defaults = {"call": "nd.relu", "operator": "relu"}


@rule("HL164", "captured-array", Severity.ERROR, error=TypeError)
class CapturedArray(Rule):
    """Using an NDArray from outside: a global, an attribute of `self`, `self.weight.data()`.

    Why: an NDArray is not part of a graph and cannot be mixed with its Symbols, nor could the graph see it change.
    Bad:
        return F.dot(x, self.weight.data())
    Instead:
        return F.dot(x, weight)              # the parameter as an argument of hybrid_forward
    """

    message = "`{expression}` is an NDArray, which cannot enter a graph."
    rewrite = "the parameter as an argument of hybrid_forward      or      self.params.get_constant(name, value)"
    defaults = {"expression": "self.weight.data()"}


@rule("HL165", "missing-parameter", Severity.ERROR, error=TypeError)
class MissingParameter(Rule):
    """A parameter made in `__init__` that hybrid_forward does not take.

    Why: every parameter of a HybridBlock is passed to hybrid_forward by its attribute's name.
    Bad:
        class Net(gluon.HybridBlock):
            def __init__(self):
                super().__init__()
                self.weight = self.params.get("weight", shape=(3, 3))

            def hybrid_forward(self, F, x):
                return x
    Instead:
        class Net(gluon.HybridBlock):
            def __init__(self):
                super().__init__()
                self.weight = self.params.get("weight", shape=(3, 3))

            def hybrid_forward(self, F, x, weight):
                return F.dot(x, weight)
    Fix: safe: the argument is added.
    """

    message = "hybrid_forward takes no argument `{parameter}` for the parameter `self.{parameter}`."
    rewrite = "def hybrid_forward({signature}, {parameter}):"
    defaults = {"parameter": "weight", "signature": "self, F, x"}


@rule("HL195", "constant-shape", Severity.WARNING)
class ConstantShape(Rule):
    """Reshaping or broadcasting an input to a shape written in full.

    Why: the batch size becomes part of the graph; MXNet reads foreign memory when another one comes.
    Bad:
        return x.reshape((32, 784))
    Instead:
        return x.reshape((0, -1))            # or -1 for one of the dimensions
    """

    message = "the shape {shape} fixes the batch size of {tensor} in the graph."
    rewrite = "0 keeps a dimension, -1 infers one: {x}.reshape((0, -1))"
    defaults = {"shape": "(...)"}


@rule("HL196", "output-without-input", Severity.WARNING)
class OutputWithoutInput(Rule):
    """Returning a tensor that no input takes part in.

    Why: a graph without inputs has nothing to take batch size and device from.
    Bad:
        return F.zeros((1, 10))
    Instead:
        return F.zeros_like(x)               # or F.contrib.arange_like(x)
    """

    message = "the output depends on no input."
    rewrite = "F.zeros_like(x), F.ones_like(x), F.contrib.arange_like(x)"
