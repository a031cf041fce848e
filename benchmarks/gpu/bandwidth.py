"""Single operators on the GPU beside what the device can do -> results/gpu-bandwidth-<GPU>.md.

Pointwise chains and reductions as a share of the copy bandwidth that torch's own copy reaches in the same run; matrix
products beside torch's, which are the vendor's library.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1]), str(HERE)]
from harness import write_table  # noqa: E402
from run import gpu  # noqa: E402

ELEMENTS = 1 << 26
ROUNDS = 7


def milliseconds(calls: dict[str, Callable[[], Any]], repeats: int = 20) -> dict[str, float]:
    """Medians over interleaved rounds of `repeats` calls each, by the device's own clock."""
    import torch

    found: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(3):
            call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(repeats):
                call()
            end.record()
            end.synchronize()
            found[name].append(start.elapsed_time(end) / repeats)
    return {name: statistics.median(times) for name, times in found.items()}


def memory_bound() -> list[list[str]]:
    import torch

    import hybrid_lab as mx

    ctx = mx.gpu(0)
    source = torch.rand(ELEMENTS, device="cuda")
    target = torch.empty_like(source)
    rows = ELEMENTS // 4096
    x = mx.nd.random.uniform(shape=(rows, 4096), ctx=ctx)
    y = mx.nd.random.uniform(shape=(rows, 4096), ctx=ctx)

    class Of(mx.gluon.HybridBlock):
        def __init__(self, function: Callable[..., Any]):
            super().__init__()
            self.function = function

        def hybrid_forward(self, F: Any, *inputs: Any) -> Any:
            return self.function(F, *inputs)

    #: name -> (function, arrays, how often the elements are moved)
    cases = {
        "x * y + x": (lambda F, x, y: x * y + x, (x, y), 3),
        "gelu(x)": (lambda F, x: F.LeakyReLU(x, act_type="gelu"), (x,), 2),
        "tanh(x) * sigmoid(y)": (lambda F, x, y: F.tanh(x) * F.sigmoid(y), (x, y), 3),
        "sum of rows": (lambda F, x: F.sum(x, axis=1), (x,), 1),
        "sum of columns": (lambda F, x: F.sum(x, axis=0), (x,), 1),
        "sum of all": (lambda F, x: F.sum(x), (x,), 1),
        "softmax of rows": (lambda F, x: F.softmax(x, axis=-1), (x,), 2),
    }
    calls: dict[str, Callable[[], Any]] = {"copy": lambda: target.copy_(source)}
    for name, (function, arrays, _) in cases.items():
        block = Of(function)
        block.hybridize(engine="triton")
        calls[name] = lambda block=block, arrays=arrays: block(*arrays)
    times = milliseconds(calls)
    size = ELEMENTS * 4 / 1e6
    copy = 2 * size / times["copy"]
    table = [["copy (torch)", f"{times['copy']:.3f}", f"{copy:.0f}", "1.00"]]
    for name, (_, _, moved) in cases.items():
        speed = moved * size / times[name]
        table.append([name, f"{times[name]:.3f}", f"{speed:.0f}", f"{speed / copy:.2f}"])
    return table


def products() -> list[list[str]]:
    import torch

    import hybrid_lab as mx

    ctx, table = mx.gpu(0), []

    class Dot(mx.gluon.HybridBlock):
        def hybrid_forward(self, F: Any, x: Any, y: Any) -> Any:
            return F.dot(x, y)

    for dtype, size in [("float16", 4096), ("float16", 8192), ("float32", 2048), ("float32", 4096)]:
        first, second = (mx.nd.random.uniform(-1, 1, shape=(size, size), ctx=ctx).astype(dtype) for _ in range(2))
        left, right = (torch.rand(size, size, device="cuda", dtype=getattr(torch, dtype)) for _ in range(2))
        block = Dot()
        block.hybridize(engine="triton")
        torch.backends.cuda.matmul.allow_tf32 = False
        times = milliseconds(
            {"ours": lambda b=block, x=first, y=second: b(x, y), "torch": lambda x=left, y=right: x @ y}, repeats=5
        )
        flops = 2 * size**3 / 1e9
        table.append(
            [f"{dtype} {size}", *(f"{flops / times[name]:.0f}" for name in ("ours", "torch")),
             f"{times['torch'] / times['ours']:.2f}"]
        )  # fmt: skip
    return table


def main() -> None:
    name = gpu()
    label = re.sub(r"\W+", "-", name).strip("-").lower()
    write_table(
        f"gpu-bandwidth-{label}", f"Memory-bound operators on {name}", ["case", "ms", "GB/s", "of the copy's"],
        memory_bound(), f"{ELEMENTS:,} float32 elements; medians of {ROUNDS} interleaved rounds.",
    )  # fmt: skip
    write_table(
        f"gpu-products-{label}", f"Matrix products on {name}", ["case", "ours, GFLOP/ms", "torch", "torch / ours"],
        products(), "Square matrices; float32 without tf32. Above 1 ours is faster.",
    )  # fmt: skip


if __name__ == "__main__":
    main()
