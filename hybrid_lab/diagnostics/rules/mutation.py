"""Rules about writing into tensors and keeping things on `self` while a graph is made."""

from ..finding import Severity
from .record import Rule, rule


@rule("HL141", "item-assignment", Severity.ERROR, error=TypeError)
class ItemAssignment(Rule):
    """Assigning to elements of a tensor: `x[...] = v`.

    Why: a graph has values, not memory to write into.
    Bad:
        x[0] = 0
        return x
    Instead:
        return F.where(mask, F.zeros_like(x), x)    # or F.scatter_nd, F.concat of the parts
    """

    message = "elements of {tensor} cannot be assigned to: a graph has values, not memory."
    rewrite = "F.where(mask, value, {x})      or      F.scatter_nd(value, indices, shape)"


@rule("HL142", "augmented-assignment", Severity.ERROR, error=TypeError)
class AugmentedAssignment(Rule):
    """Changing a tensor in place: `x += y`, and methods that end in `_`.

    Why: eager code would change the caller's array, a graph cannot: the two modes would differ.
    Bad:
        x += 1
        return x
    Instead:
        x = x + 1
        return x
    Fix: safe where the tensor was made inside the method and has no other name.
    """

    message = "`{operator}` changes {tensor} in place in eager mode; a graph cannot."
    rewrite = "{x} = {x} {binary} ..."
    defaults = {"operator": "+=", "binary": "+"}


@rule("HL173", "store-on-self", Severity.ERROR)
class StoreOnSelf(Rule):
    """Assigning to an attribute of `self` inside hybrid_forward.

    Why: it happens once, while the graph is made: a tensor stored so is a Symbol, a number stays as it was.
    Bad:
        self.attention = F.softmax(x)
        return self.attention
    Instead:
        attention = F.softmax(x)
        return attention                     # return it, or make it a parameter
    """

    message = "`{target}` is assigned while the graph is made, once: it {outcome}."
    rewrite = "return it as an output      or      keep it as a parameter with grad_req='null'"
    defaults = {"target": "self.x", "outcome": "would keep a Symbol, not numbers"}


@rule("HL178", "hidden-input", Severity.WARNING)
class HiddenInput(Rule):
    """Reading or writing the environment, a global variable or a mutable default inside hybrid_forward.

    Why: what is read is frozen into the graph, and what is written is written once, while the graph is made.
    Bad:
        if os.environ.get("DOUBLE"):
            x = x * 2
        return x
    Instead:
        return x * self.factor               # read in the constructor
    """

    message = "`{construct}` is seen once, while the graph is made, and frozen into it."
    rewrite = "a constructor argument kept on self"
    defaults = {"construct": "global"}
