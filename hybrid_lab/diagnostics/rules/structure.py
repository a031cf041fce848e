"""Rules about how a HybridBlock is put together: children, methods, inputs, outputs; and about the source itself."""

from ..finding import Severity
from .record import Rule, rule


@rule("HL001", "syntax-error", Severity.ERROR)
class SyntaxFault(Rule):
    """The source is not valid Python.

    Why: what cannot be parsed cannot be checked.
    Bad:
        return x +
    Instead:
        return x + 1
    """

    message = "{problem}"
    rewrite = " "
    defaults = {"problem": "invalid syntax"}


@rule("HL181", "plain-child", Severity.ERROR)
class PlainChild(Rule):
    """A child of a HybridBlock that is not a HybridBlock.

    Why: a graph is made of its children's graphs; a plain Block has none.
    Bad:
        class Net(gluon.HybridBlock):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential()

            def hybrid_forward(self, F, x):
                return self.body(x)
    Instead:
        class Net(gluon.HybridBlock):
            def __init__(self):
                super().__init__()
                self.body = nn.HybridSequential()

            def hybrid_forward(self, F, x):
                return self.body(x)
    Fix: safe where a hybrid counterpart exists (Sequential, Lambda, the contrib containers).
    """

    message = "the child `{child}` is a plain {type}, which cannot become part of a graph."
    rewrite = "{counterpart}"
    defaults = {"child": "self.body", "type": "Block", "counterpart": "a HybridBlock"}


@rule("HL182", "hidden-children", Severity.ERROR)
class HiddenChildren(Rule):
    """Blocks kept in a list, tuple or dict on `self`.

    Why: children inside a container are not registered: their parameters are neither initialized, saved nor trained.
    Bad:
        class Net(gluon.HybridBlock):
            def __init__(self):
                super().__init__()
                self.layers = [nn.Dense(8), nn.Dense(8)]

            def hybrid_forward(self, F, x):
                for layer in self.layers:
                    x = layer(x)
                return x
    Instead:
        class Net(gluon.HybridBlock):
            def __init__(self):
                super().__init__()
                self.layers = nn.HybridSequential()
                self.layers.add(nn.Dense(8), nn.Dense(8))

            def hybrid_forward(self, F, x):
                for layer in self.layers:
                    x = layer(x)
                return x
    """

    message = "the blocks in `{attribute}` are hidden in a {container}: their parameters are not collected."
    rewrite = "{attribute} = nn.HybridSequential(); {attribute}.add(...)      or      self.register_child(block)"
    defaults = {"attribute": "self.layers", "container": "list"}


@rule("HL183", "child-in-forward", Severity.ERROR)
class ChildInForward(Rule):
    """Making a Block inside hybrid_forward.

    Why: it is a new, uninitialized layer in every eager call, and one frozen layer in a graph.
    Bad:
        return nn.Dense(10)(x)
    Instead:
        return self.dense(x)                 # self.dense = nn.Dense(10) in __init__
    """

    message = "`{type}` is made inside {method}: a new layer with new parameters in every call."
    rewrite = "self.layer = {type}(...) in __init__"
    defaults = {"type": "nn.Dense", "method": "hybrid_forward"}


@rule("HL184", "forward-overridden", Severity.ERROR)
class ForwardOverridden(Rule):
    """A HybridBlock that defines `forward` beside `hybrid_forward`.

    Why: `forward` is what makes the graph from hybrid_forward; overridden, hybridize() does nothing.
    Bad:
        class Net(gluon.HybridBlock):
            def forward(self, x):
                return x * 2

            def hybrid_forward(self, F, x):
                return x * 2
    Instead:
        class Net(gluon.HybridBlock):
            def hybrid_forward(self, F, x):
                return x * 2
    """

    message = "`forward` is overridden beside hybrid_forward: hybridize() then does nothing."
    rewrite = "def hybrid_forward(self, F, x): ..."


@rule("HL190", "stale-ignore", Severity.WARNING)
class StaleIgnore(Rule):
    """A suppression comment that silences nothing.

    Why: it hides the next real finding on its line.
    Bad:
        return x * 2  # hl: ignore[HL101] the batch is fixed
    Instead:
        return x * 2
    Fix: safe: the comment is deleted.
    """

    message = "`# hl: ignore[{codes}]` silences nothing on this line."
    rewrite = "delete the comment"
    defaults = {"codes": "HL101"}


@rule("HL191", "varying-outputs", Severity.WARNING)
class VaryingOutputs(Rule):
    """Returning one number of outputs here and another there, decided anew in every call.

    Why: a graph has a fixed structure of outputs, that of the call that made it.
    Bad:
        if autograd.is_training():
            return x, x * 2
        return x
    Instead:
        return x, x * 2
    """

    message = "the number of outputs varies between calls ({counts}): a graph keeps that of its first call."
    rewrite = "the same outputs on every path"
    defaults = {"counts": "1 or 2"}
