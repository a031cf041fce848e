"""Rules about bringing numbers to Python: host reads, synchronization, copies, conversions, printing."""

from ..finding import Severity
from .record import Rule, rule


@rule("HL111", "host-read", Severity.ERROR, error=NotImplementedError)
class HostRead(Rule):
    """Reading numbers out of a tensor: `asnumpy()`, `asscalar()`, `item()`, `tolist()`.

    Why: a graph is traced once, before there are any numbers.
    Bad:
        return F.broadcast_div(x, F.full((1,), x.max().asscalar()))
    Instead:
        return F.broadcast_div(x, x.max())   # stays in the graph
    Note: what needs the numbers (metrics, drawing) belongs after the network, or in a plain Block.
    """

    message = "`{call}()` of {tensor} reads numbers that do not exist while a graph is made."
    rewrite = "keep the tensor in the graph (F.* operators)      or      do it in a plain Block"
    defaults = {"call": "asnumpy"}


@rule("HL112", "host-sync", Severity.ERROR, error=NotImplementedError)
class HostSync(Rule):
    """Waiting for a tensor or moving it: `wait_to_read()`, `copyto()`, `as_in_context()`.

    Why: a graph has no running computation to wait for, and runs on one device.
    Bad:
        y = x * 2
        y.wait_to_read()
        return y
    Instead:
        y = x * 2
        return y
    Fix: safe for a line that only waits: it is deleted.
    """

    message = "`{call}()` of {tensor} has no meaning inside a graph."
    rewrite = "delete the call; move inputs to their device before calling the network"
    defaults = {"call": "wait_to_read"}


@rule("HL113", "copy-call", Severity.ERROR, error=NotImplementedError)
class CopyCall(Rule):
    """Copying or detaching by NDArray methods: `copy()`, `detach()`, `attach_grad()`.

    Why: a Symbol has no memory of its own; the operators for this are `F.identity` and `F.BlockGrad`.
    Bad:
        return F.dot(x.detach(), x)
    Instead:
        return F.dot(F.BlockGrad(x), x)
    Fix: safe for `copy()` (F.identity) and `detach()` (F.BlockGrad).
    """

    message = "`{call}()` of {tensor} does not exist in a graph."
    rewrite = "F.BlockGrad({x})  for detach      or      F.identity({x})  for copy"
    defaults = {"call": "copy"}


@rule("HL124", "tensor-length", Severity.ERROR, error=TypeError)
class TensorLength(Rule):
    """Taking `len()` of a tensor.

    Why: the length is not known while the graph is made; MXNet silently answers 1, the number of outputs.
    Bad:
        return F.sum(x) / len(x)
    Instead:
        return F.mean(F.sum(x, axis=1))      # or a size passed to the constructor
    """

    message = "`len()` of {tensor} is not known while a graph is made (MXNet would answer 1)."
    rewrite = "a size passed to the constructor      or      F.shape_array({x})"


@rule("HL125", "python-number", Severity.ERROR, error=TypeError)
class PythonNumber(Rule):
    """Turning a tensor into a Python number: `int`, `float`, `bool`, `round`, `max`, `min`, `sum`, `math.*`.

    Why: these need the number, and a graph is traced before there is one. `max(x, y)` compares with `if`.
    Bad:
        return x / float(F.sum(x))
    Instead:
        return F.broadcast_div(x, F.sum(x))
    Fix: `max(x, y)`, `min(x, y)`, `round(x)`, `abs(x)` have operators of the same meaning: F.maximum, F.minimum,
        F.round, F.abs. Safe for `max`, `min` of two tensors.
    """

    message = "`{call}()` of {tensor} needs numbers that do not exist while a graph is made."
    rewrite = "F.cast({x}, ...), F.round({x}), F.maximum({x}, y), F.minimum({x}, y)"
    defaults = {"call": "float"}


@rule("HL162", "numpy-on-tensor", Severity.ERROR)
class NumpyOnTensor(Rule):
    """Calling a NumPy function on a tensor.

    Why: NumPy needs numbers; given a Symbol it fails, or builds an array of Symbols without saying so.
    Bad:
        return np.exp(x)
    Instead:
        return F.exp(x)
    Fix: safe where F has an operator of the same name and meaning (`np.exp` and other elementwise functions).
    """

    message = "`{call}` was given {tensor}: NumPy needs numbers, which do not exist while a graph is made."
    rewrite = "F.{operator}({x})"
    defaults = {"call": "np.exp", "operator": "exp"}


@rule("HL171", "print-tensor", Severity.WARNING)
class PrintTensor(Rule):
    """Printing or logging a tensor, or putting it into a string.

    Why: it happens once, while the graph is made, and shows a Symbol instead of numbers; later calls print nothing.
    Bad:
        print(x)
        return x * 2
    Instead:
        return x * 2                         # net.register_forward_hook(...) sees the numbers
    """

    message = "`{call}` of {tensor} happens once, when the graph is made, and shows a Symbol."
    rewrite = "net.register_forward_hook(lambda block, inputs, output: print(output))      or      a plain Block"
    defaults = {"call": "print"}
