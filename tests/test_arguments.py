"""No public function, class or setting takes an argument without using it.

The first test reads the code: parameters that a body never reads, and attributes that are stored and never read. What
is accepted for MXNet's sake and has no effect stands in NO_EFFECT with the reason; its docstring says so, too. The
second calls constructors that take any keyword with one that nobody knows.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import hybrid_lab
from hybrid_lab import gluon, initializer, lr_scheduler, metric, optimizer
from hybrid_lab.gluon import contrib, data, loss, nn, rnn

ROOT = Path(hybrid_lab.__file__).parent

#: What users call: files and folders of the package.
PUBLIC = ["autograd.py", "initializer.py", "lr_scheduler.py", "random.py", "mxnet/viz.py"] + [
    *("mxnet/contrib", "gluon", "metric", "ndarray", "optimizer", "symbol"),
]

NO_EFFECT = {
    # For MXNet's calls: there is one operator for each class.
    "DeformableConvolution.__init__": {"op_name"},
    # MXNet stores it and reads it nowhere.
    "LBSGD.__init__": {"num_epochs"},
    # The size of the weight follows from it, which is all of it.
    "Dense.__init__": {"_in_units"},
    # Statistics are those of the batch on the one device of the call.
    "SyncBatchNorm.__init__": {"num_devices"},
    # Batches are made by threads, in ordinary memory, when an epoch asks for them.
    "DataLoader.__init__": {"pin_device_id", "timeout"},
    # There is one process and ordinary memory; GluonCV passes them.
    "sync_batch_norm": {"key", "ndev"},
    "_MultiWorkerIter.__init__": {"pin_memory", "pin_device_id", "data_loader"},
    # A symbol has no context: that of the arrays it is called with decides.
    "GraphQuestions.eval": {"ctx"},
    **{name: {"ctx"} for name in ("arange", "array", "full")},
    # On a Symbol the context, on an array the name.
    **{name: {"ctx", "name"} for name in ("zeros", "ones")},
    # The streams of random numbers are those of all devices.
    "RandomState.seed": {"ctx"},
    # A Symbol's is refused whatever it is given.
    "boolean_mask": {"axis", "index"},
    # The draws lie where the classes lie that it is given.
    "rand_zipfian": {"ctx"},
    # For subclasses, which override the method.
    "Optimizer.scaled_numbers": {"dtype"},
}


def functions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and (node.name in ("__init__", "__call__") or node.name[0] != "_"):
            yield prefix + node.name, node


def names_of(arguments: ast.arguments) -> list[str]:
    rest = [item for item in (arguments.vararg, arguments.kwarg) if item is not None]
    return [item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest)]


def is_declaration(function: ast.FunctionDef) -> bool:
    """Whether there is no code but an error: for subclasses to override."""
    return all(
        isinstance(item, (ast.Raise, ast.Pass)) or (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))
        for item in function.body
    )


def unused() -> dict[str, set[str]]:
    """Per function the parameters that it does not read, and the attributes it stores that nobody reads."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}
    read: set[str] = set()
    defined: dict[str, int] = {}
    for node in (node for tree in trees.values() for node in ast.walk(tree)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            read.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            read.add(node.value)  # getattr, format strings
        elif isinstance(node, ast.ClassDef):
            for item in node.body:
                defined[getattr(item, "name", "")] = defined.get(getattr(item, "name", ""), 0) + 1
    found: dict[str, set[str]] = {}
    for path, tree in trees.items():
        if path.relative_to(ROOT).parts[0] not in PUBLIC:
            continue
        for name, function in functions(tree.body):
            if is_declaration(function):
                continue
            if "." in name and function.name != "__init__" and defined[function.name] > 1:
                continue  # a rule of several classes, of which each reads what it needs
            parameters = set(names_of(function.args)) - {"self", "cls"}
            inner = [node for item in function.body for node in ast.walk(item)]
            lost = parameters - {node.id for node in inner if isinstance(node, ast.Name)}
            for node in inner if function.name == "__init__" else ():
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in parameters:
                    stored = {item.attr for item in node.targets if isinstance(item, ast.Attribute)}
                    lost |= stored - read
            if lost:
                found.setdefault(name, set()).update(lost)
    return found


@pytest.mark.long
def test_every_argument_is_used():
    found = unused()
    lost = {name: items - NO_EFFECT.get(name, set()) for name, items in found.items()}
    assert {name: items for name, items in lost.items() if items} == {}
    stale = {name: items - found.get(name, set()) for name, items in NO_EFFECT.items()}
    assert {name: items for name, items in stale.items() if items} == {}


def _classes() -> Iterator[type]:
    places = [metric, optimizer, lr_scheduler, initializer, nn, rnn, loss, data, data.vision, data.vision.transforms]
    for place in (*places, contrib.nn, contrib.rnn, gluon):
        for name in dir(place):
            item = getattr(place, name)
            own = inspect.isclass(item) and item.__module__.startswith("hybrid_lab.")
            if own and name[0] != "_" and name != "NDArray":
                yield item


#: Bases, whose keywords are what a subclass passes on for `get_config()` and `dumps()`.
BASES = {metric.EvalMetric, initializer.Initializer}
SOME = {"step": [3], "feval": lambda label, pred: 0.0, "function": lambda x: x, "block": nn.Dense(2)}


def _takes_any_keyword(item: type) -> bool:
    try:
        parameters = inspect.signature(item).parameters.values()
    except ValueError:
        return False
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters) and not issubclass(item, Exception)


@pytest.mark.parametrize(
    "item", [item for item in dict.fromkeys(_classes()) if item not in BASES and _takes_any_keyword(item)]
)
def test_unknown_keywords_are_refused(item: type):
    given = {
        name: SOME.get(name, rnn.LSTMCell(3) if "cell" in name else 3)
        for name, parameter in inspect.signature(item).parameters.items()
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    }
    with pytest.raises(TypeError, match="no_such_argument"):
        item(**given, no_such_argument=1)
