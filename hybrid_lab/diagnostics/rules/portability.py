"""Rules that only matter where the code must also run on MXNet: reported with `target="mxnet"` and at export."""

from ..finding import Severity
from .record import Rule, rule


@rule("HL151", "broadcasting-arithmetic", Severity.NOTE, portability=True)
class BroadcastingArithmetic(Rule):
    """Arithmetic between two tensors that may have different shapes.

    Why: `+ - * / % **` broadcast in both modes here; on MXNet's Symbol they need equal shapes.
    Bad:
        return x + F.ones((1, 1))
    Instead:
        return F.broadcast_add(x, F.ones((1, 1)))
    """

    message = "`{operator}` between two tensors does not broadcast on MXNet's Symbol."
    rewrite = "F.{broadcast}({left}, {right})"
    defaults = {"operator": "+", "broadcast": "broadcast_add", "left": "x", "right": "y"}


@rule("HL152", "broadcasting-comparison", Severity.NOTE, portability=True)
class BroadcastingComparison(Rule):
    """A comparison between two tensors that may have different shapes.

    Why: comparisons broadcast in both modes here; on MXNet's Symbol they need equal shapes.
    Bad:
        return x > F.ones((1, 1))
    Instead:
        return F.broadcast_greater(x, F.ones((1, 1)))
    """

    message = "`{operator}` between two tensors does not broadcast on MXNet's Symbol."
    rewrite = "F.{broadcast}({left}, {right})"
    defaults = {"operator": ">", "broadcast": "broadcast_greater", "left": "x", "right": "y"}


@rule("HL153", "missing-operator", Severity.NOTE, portability=True)
class MissingOperator(Rule):
    """`@`, `//`, `&`, `|`, `^`, `~` on a tensor.

    Why: they work in both modes here; MXNet's Symbol does not have them.
    Bad:
        return x @ weight
    Instead:
        return F.dot(x, weight)
    """

    message = "`{operator}` on {tensor} does not exist on MXNet's Symbol."
    rewrite = "{replacement}"
    defaults = {"operator": "@", "replacement": "F.dot(x, y)"}


@rule("HL192", "structured-output", Severity.NOTE, portability=True)
class StructuredOutput(Rule):
    """Returning a dict, None or a number from hybrid_forward.

    Why: it is kept as the output's structure here; MXNet's graphs return tensors, or lists of tensors.
    Bad:
        return {"score": x}
    Instead:
        return x
    """

    message = "an output that is {kind} does not pass through MXNet's graphs."
    rewrite = "return tensors, or a list of tensors"
    defaults = {"kind": "a dict"}


@rule("HL193", "structured-input", Severity.NOTE, portability=True)
class StructuredInput(Rule):
    """Inputs of hybrid_forward that are passed by keyword, or are numbers, strings or dicts.

    Why: they are part of the graph's key here; MXNet's graphs take tensors and lists of tensors, by position.
    Bad:
        class Net(gluon.HybridBlock):
            def hybrid_forward(self, F, x, scale=2.0):
                return x * scale
    Instead:
        class Net(gluon.HybridBlock):
            def __init__(self, scale=2.0):
                super().__init__()
                self.scale = scale

            def hybrid_forward(self, F, x):
                return x * self.scale
    """

    message = "the input `{argument}` is {kind}, which MXNet's graphs do not take."
    rewrite = "a constructor argument kept on self      or      a tensor"
    defaults = {"argument": "scale", "kind": "a number"}


@rule("HL194", "varying-inputs", Severity.NOTE, portability=True)
class VaryingInputs(Rule):
    """Inputs whose number may change from call to call: `*args`, or an argument that may be None.

    Why: a graph is made for each structure of inputs here; MXNet's graph belongs to the first call's.
    Bad:
        class Net(gluon.HybridBlock):
            def hybrid_forward(self, F, x, mask=None):
                return x if mask is None else x * mask
    Instead:
        class Net(gluon.HybridBlock):
            def hybrid_forward(self, F, x, mask):
                return x * mask
    """

    message = "the input `{argument}` may be there or not; MXNet's graph belongs to the first call's inputs."
    rewrite = "always the same inputs"
    defaults = {"argument": "mask"}


@rule("HL197", "unused-input", Severity.WARNING)
class UnusedInput(Rule):
    """An input of hybrid_forward that nothing reads.

    Why: it is not part of the graph; MXNet warns, and exported graphs ask for one input less.
    Bad:
        class Net(gluon.HybridBlock):
            def hybrid_forward(self, F, x, mask):
                return x * 2
    Instead:
        class Net(gluon.HybridBlock):
            def hybrid_forward(self, F, x):
                return x * 2
    """

    message = "the input `{argument}` is never used."
    rewrite = "delete the argument      or      name it `_{argument}`"
    defaults = {"argument": "mask"}
