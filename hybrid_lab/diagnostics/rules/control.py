"""Rules about Python control flow that depends on a tensor's numbers."""

from ..finding import Severity
from .record import Rule, rule


@rule("HL121", "tensor-condition", Severity.ERROR, error=TypeError)
class TensorCondition(Rule):
    """Deciding by a tensor: `if`, `not`, `and`, `or`, `assert`, `a if x else b`.

    Why: a graph is traced once, before the numbers are known.
    Bad:
        if x.max() > 0.5:
            return x
        return -x
    Instead:
        return F.where(x > 0.5, x, -x)       # or F.contrib.cond(...)
    """

    message = "`{construct}` on {tensor} cannot become part of a graph."
    rewrite = "F.where({condition}, a, b)      or      F.contrib.cond(...)"
    defaults = {"construct": "if", "condition": "condition"}


@rule("HL122", "tensor-while", Severity.ERROR, error=TypeError)
class TensorWhile(Rule):
    """Looping while a tensor's number says so.

    Why: a graph is traced once, before the numbers are known; the number of turns cannot be.
    Bad:
        while F.sum(x) > 1:
            x = x / 2
        return x
    Instead:
        outputs, (x,) = F.contrib.while_loop(
            cond=lambda x: F.sum(x) > 1, func=lambda x: (x, [x / 2]), loop_vars=[x], max_iterations=100)
        return x
    """

    message = "`while` on {tensor} cannot become part of a graph."
    rewrite = "F.contrib.while_loop(cond, func, loop_vars, max_iterations)"


@rule("HL123", "tensor-iteration", Severity.ERROR, error=TypeError)
class TensorIteration(Rule):
    """Iterating over a tensor: `for`, comprehensions, `zip`, `enumerate`, `list`, `*x`.

    Why: the length is not known while the graph is made; MXNet silently walks over the outputs, once.
    Bad:
        state = 0
        for row in x:
            state = state + row
        return state
    Instead:
        outputs, state = F.contrib.foreach(lambda row, state: (row, state + row), x, F.zeros((1,)))
        return state
    """

    message = "{tensor} cannot be iterated over: its length is not known while a graph is made."
    rewrite = "F.contrib.foreach(body, {x}, init_states)      or      F.split({x}, num_outputs=n, axis=0)"


@rule("HL126", "tensor-range", Severity.ERROR, error=TypeError)
class TensorRange(Rule):
    """A loop over `range()` whose bound comes from a tensor.

    Why: the number of turns would have to be known before the graph runs.
    Bad:
        total = 0
        for i in range(len(x)):
            total = total + x[i]
        return total
    Instead:
        return F.sum(x, axis=0)              # or F.contrib.foreach, F.SequenceMask
    """

    message = "`range()` depends on {tensor}, whose numbers do not exist while a graph is made."
    rewrite = "F.contrib.foreach(body, data, init_states)      or      F.SequenceMask(data, lengths)"
