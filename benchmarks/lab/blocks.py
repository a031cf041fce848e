"""Kernel time per cell beside a model of many Blocks, with a page that somebody sees and with one that nobody sees.

    python benchmarks/lab/blocks.py [--blocks 10000] [--rounds 5] [--json]

What a cell changes is changed before it, and the cell itself does nothing: what is measured is the lab's own work.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn
from hybrid_lab.lab.kernel import hooks
from hybrid_lab.lab.kernel.comm import envelope
from hybrid_lab.lab.kernel.session import Session


class Group(gluon.HybridBlock):
    """So many small layers, of which a call runs two: a big tree need not be a big graph."""

    def __init__(self, layers: int, **kwargs: object):
        super().__init__(**kwargs)
        with self.name_scope():
            self.layers = nn.HybridSequential()
            for _ in range(layers):
                self.layers.add(nn.Dense(4, in_units=4))

    def hybrid_forward(self, F, x):  # noqa: ANN001, ANN201
        return self.layers[0](self.layers[1](x))


def tree_only(blocks: int) -> gluon.Block:
    """Groups of 100 Blocks, called eagerly."""
    net = nn.HybridSequential()
    for _ in range(blocks // 100):
        net.add(Group(98))
    net.initialize()
    net(mx.nd.ones((2, 4)))
    return net


def traced(blocks: int) -> gluon.Block:
    """A hybridized model: every Block below is in the graph of the top Block, and has one of its own."""
    net = nn.HybridSequential()
    for _ in range(blocks // 100):
        part = nn.HybridSequential()
        for _ in range(99):
            part.add(nn.Activation("relu"))
        net.add(part)
    net.initialize()
    net.hybridize(engine="numpy")
    net(mx.nd.ones((2, 4)))
    return net


class Cell(gluon.HybridBlock):
    """A Block of the user's own class, which reads an attribute and a global."""

    def __init__(self, number: int, **kwargs: object):
        super().__init__(**kwargs)
        self.scale = 1 + number % 4
        self.act = nn.Activation("relu")

    def forward(self, x):  # noqa: ANN001, ANN201
        return self.act(x) * self.scale / SCALE


SCALE = 2


def own_classes(blocks: int) -> gluon.Block:
    """As `traced`, of the user's own Blocks with a layer in each."""
    net = nn.HybridSequential()
    for _ in range(blocks // 100):
        part = nn.HybridSequential()
        part.add(*(Cell(number) for number in range(49)))
        net.add(part)
    net.hybridize(engine="numpy")
    net(mx.nd.ones((2, 4)))
    return net


MODELS: Mapping[str, Callable[[int], gluon.Block]] = {
    "eager, 20,000 parameters": tree_only,
    "hybridized": traced,
    "hybridized, own classes": own_classes,
}


def written(net: gluon.Block, number: int) -> None:
    """All parameters get other values, as in a training step."""
    for parameter in net.collect_params().values():
        parameter.data()[:] = number


def replaced(net: gluon.Block, number: int) -> None:
    """Another Block takes the place of one deep inside."""
    part = net[number % len(net)]
    (part.layers if isinstance(part, Group) else part).register_child(nn.Activation("tanh"), "5")


#: What a cell does -> how; in this order, as the last ones drop graphs.
CHANGES: Mapping[str, Callable[[gluon.Block, int], object]] = {
    "changes nothing": lambda net, number: None,
    "writes all parameters": written,
    "calls the model with another shape": lambda net, number: net(mx.nd.ones((3 + number, 4))),
    "replaces one Block": replaced,
    "casts the model": lambda net, number: net.cast("float16" if number % 2 else "float32"),
    "hybridizes the model": lambda net, number: net.hybridize(engine="numpy"),
}


class Comm:
    """A page's comm that keeps the last message, and counts its bytes."""

    comm_id = "page"

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.bytes = 0
        self.last: Mapping[str, Any] = {}

    def on_msg(self, callback: Callable[[dict[str, object]], None]) -> None:
        """Keep what handles the page's requests."""
        self.request = callback

    def on_close(self, callback: Callable[[object], None]) -> None:
        """Do nothing: a page of this script is never closed."""

    def close(self) -> None:
        """The kernel ends the connection."""

    def send(self, message: Mapping[str, Any]) -> None:
        """Take a message from the kernel, as JSON."""
        text = json.dumps(message, ensure_ascii=False)
        self.bytes, self.last = len(text), message["body"]

    def ask(self, kind: str, **body: object) -> None:
        """Send a request."""
        data = envelope("r1", kind, body) | {"kernel_id": self.kernel}
        self.request({"content": {"data": data}})


def cell(shell: InteractiveShell) -> float:
    """Milliseconds of one cell."""
    start = time.perf_counter()
    shell.run_cell("pass", store_history=False)
    return 1e3 * (time.perf_counter() - start)


def page_asks(page: Comm, before: Mapping[str, Any], session: Session) -> float:
    """Milliseconds of what the page asks after a cell. before : the Model that the page has"""
    (model,) = session.models()["models"]
    start = time.perf_counter()
    if model["revision"] != before["revision"]:
        page.ask("changes", model=model["id"], since=before["revision"])
        if page.last["whole"]:
            page.ask("tree", model=model["id"])
    return 1e3 * (time.perf_counter() - start)


def measure(kind: str, blocks: int, rounds: int) -> dict[str, str]:
    """Milliseconds that the lab adds to each kind of cell: with the panel open, for what the page then asks, and with
    the panel closed; medians.
    """
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    net = shell.user_ns["net"] = MODELS[kind](blocks)
    cell(shell)
    bare = statistics.median(cell(shell) for _ in range(rounds))
    hooks.register(shell)
    lab = hooks.lab_of(shell)
    assert lab is not None
    page = Comm(lab.session.kernel)
    lab.comms.opened(page, None)  # type: ignore[arg-type]
    rows = {}
    number = 0
    for name, change in CHANGES.items():
        opened, asked, closed = [], [], []
        for is_seen in (True, False):
            page.ask("watch", visible=is_seen)
            cell(shell)
            for _ in range(rounds):
                number += 1
                (model,) = lab.session.models()["models"]
                change(net, number)
                (opened if is_seen else closed).append(cell(shell) - bare)
                if is_seen:
                    asked.append(page_asks(page, model, lab.session))
        rows[name] = "{:.1f} + {:.1f}, {:.1f} ms".format(*map(statistics.median, (opened, asked, closed)))
    (model,) = lab.session.models()["models"]
    samples = []
    for _ in range(rounds):
        start = time.perf_counter()
        page.ask("tree", model=model["id"])
        samples.append(1e3 * (time.perf_counter() - start))
    rows["the tree, where the page asks for it"] = f"{statistics.median(samples):.0f} ms, {page.bytes / 1e6:.1f} MB"
    hooks.unregister(shell)
    InteractiveShell.clear_instance()
    return rows


NOTE = (
    "The time that the lab adds to each cell in the kernel: with the panel open, + for the answer to what the page then"
    " asks, between two cells or in a thread; and with the panel closed. The page asks for the rows of the tree that"
    " changed, and for the whole tree where the types of parameters did."
)


def table(blocks: int, rounds: int) -> tuple[list[str], list[list[str]]]:
    """Header and rows: a column for each model."""
    warnings.simplefilter("ignore")
    results = {kind: measure(kind, blocks, rounds) for kind in MODELS}
    names = next(iter(results.values()))
    header = [f"{blocks:,} Blocks; a cell that", *MODELS]
    return header, [[name, *(result[name] for result in results.values())] for name in names]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--blocks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print header and rows as JSON")
    options = parser.parse_args()
    header, rows = table(options.blocks, options.rounds)
    if options.json:
        print(json.dumps([header, rows]))
        return
    for row in (header, ["---"] * len(header), *rows):
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
