"""Kernel time per cell beside a model of many Blocks: with no page, with one that nobody sees, with one that is seen.

    python benchmarks/lab/blocks.py [--blocks 10000] [--rounds 5]

The model is called before. A cell here does nothing, so that what is measured is the lab's own work around it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn
from hybrid_lab.lab import hooks
from hybrid_lab.lab.comm import envelope


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


MODELS: Mapping[str, Callable[[int], gluon.Block]] = {"eager": tree_only, "hybridized": traced}


class Comm:
    """A page's comm that counts the bytes of the pushes."""

    comm_id = "page"

    def __init__(self) -> None:
        self.bytes = 0

    def on_msg(self, callback: Callable[[dict[str, object]], None]) -> None:
        """Keep what handles the page's requests."""
        self.request = callback

    def on_close(self, callback: Callable[[object], None]) -> None:
        """Do nothing: a page of this script is never closed."""

    def close(self) -> None:
        """The kernel ends the connection."""

    def send(self, message: object) -> None:
        """Take a message from the kernel and count its bytes."""
        self.bytes += len(json.dumps(message))

    def ask(self, kind: str, **body: object) -> None:
        """Send a request."""
        data = envelope("r1", kind, body)
        self.request({"content": {"data": data}})


def cell(shell: InteractiveShell) -> float:
    """Milliseconds of one cell."""
    start = time.perf_counter()
    shell.run_cell("pass", store_history=False)
    return 1e3 * (time.perf_counter() - start)


def median(shell: InteractiveShell, rounds: int) -> float:
    """The median after one cell that does not count."""
    cell(shell)
    return statistics.median(cell(shell) for _ in range(rounds))


def measure(kind: str, blocks: int, rounds: int) -> dict[str, float]:
    """Milliseconds that the lab adds to each cell: with its hooks, minus without them."""
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    shell.user_ns["net"] = MODELS[kind](blocks)
    bare = median(shell, rounds)
    hooks.register(shell)
    lab = hooks.lab_of(shell)
    assert lab is not None
    rows = {"no page": median(shell, rounds) - bare}
    page = Comm()
    lab.comms.opened(page, None)  # type: ignore[arg-type]
    rows["page seen, nothing changed"] = median(shell, rounds) - bare
    samples = []
    for number in range(rounds):
        shell.user_ns["net"](mx.nd.ones((3 + number, 4)))  # other shapes, perhaps another program
        samples.append(cell(shell) - bare)
    rows["page seen, the model changed"] = statistics.median(samples)
    page.ask("watch", visible=False)
    rows["page hidden"] = median(shell, rounds) - bare
    hooks.unregister(shell)
    InteractiveShell.clear_instance()
    return rows


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--blocks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    results = SimpleNamespace(**{kind: measure(kind, options.blocks, options.rounds) for kind in MODELS})
    print(f"| {options.blocks:,} Blocks, ms per cell | " + " | ".join(MODELS) + " |")
    print("|---|" + "---:|" * len(MODELS))
    for row in results.eager:
        print(f"| {row} | " + " | ".join(f"{getattr(results, kind)[row]:.1f}" for kind in MODELS) + " |")


if __name__ == "__main__":
    main()
