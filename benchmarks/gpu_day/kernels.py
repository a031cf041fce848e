"""kernels: single layers beside torch, every kernel of the benchmark networks, and every tile of tiles.json.

Seconds are medians with a cold cache, on random numbers. Each kernel comes with the bytes it moves and the operations
it does, and the item "ceilings" with what a copy and torch's products reach on this GPU: the larger quotient of the two
is the time that no kernel can beat.
"""

from __future__ import annotations

from typing import Any

from gpu_day import layers
from gpu_day.options import Item, Options

LIMIT = 150.0
#: name -> batch, as in `steps`.
NETWORKS = {"resnet18": 32, "encoder 6 layers": 32, "lenet": 64, "lstm 2x200": 32, "resnet50": 32}
#: What stands for every network in miniature.
SMALL = "miniature"
#: Layers whose kernels are measured with every tile.
TILED = (
    "gemm 4096", "conv 64 > 64, 3 x 3 at 56, forward", "conv 64 > 64, 3 x 3 at 56, weight", "attention 1024, forward",
    "gemm 1024", "conv 256 > 64, 1 x 1 at 56, forward", "conv 512 > 512, 3 x 3 at 7, data", "attention 4096, forward",
)  # fmt: skip


def items(options: Options) -> list[Item]:
    every = [f"{name}, {precision}" for precision in layers.PRECISIONS for name in TILED]
    tiles = [f"tiles: {name}" for name in (*every, "memory softmax, float32")]
    networks = [f"network: {name}, {precision}" for precision in layers.PRECISIONS[:2] for name in NETWORKS]
    # The layers of ResNet-18's larger half and the large products come before whole networks.
    single = layers.names()
    first = single[: single.index(next(name for name in single if name.startswith("lstm")))]
    rest = [name for name in single if name not in first]
    return [Item(name, LIMIT) for name in ("ceilings", *first, *networks[:3], *tiles, *rest, *networks[3:])]


def compile_items(options: Options) -> list[Item]:
    """The same, to be compiled by several processes before anything is measured; the many tiles last."""
    names = [item.name for item in items(options) if item.name != "ceilings"]
    return [Item(f"compile: {name}", LIMIT) for name in sorted(names, key=lambda name: name.startswith("tiles"))]


def run(name: str, options: Options) -> dict[str, Any]:
    if name.startswith("compile: "):
        from hybrid_lab.engines.triton.run import availability

        return compile_for(name.removeprefix("compile: "), availability.device_name(), options.small)
    if name == "ceilings":
        return ceilings(options.small)
    if name.startswith("network: "):
        network, _, precision = name.removeprefix("network: ").rpartition(", ")
        return {"kernels": measured(network_graphs(network, options.small), precision, options.small, ("rule",))}
    only = None if name.startswith("tiles: ") else ("rule", "vendor")
    name = name.removeprefix("tiles: ")
    layer, precision = layers.layer(name, options.small), name.rpartition(", ")[2]
    result: dict[str, Any] = {"flops": layer.flops}
    result["kernels"] = measured([layer.graph()], precision, options.small, only)
    if only is not None:
        result["torch"] = torch_seconds(layer.calls(), precision, options.small)
    return result


def compile_for(name: str, target: str, small: bool = False) -> dict[str, Any]:
    """Compile the kernels of a layer, or all that steps of a network need, for a target that need not be here."""
    from hybrid_lab.engines.triton.build import compiling

    sources, failed = sources_of(name, target, small), dict[int, str]()
    compiling.compile_all(sources, target, failed)
    return {"kernels": len(sources), "failed": sorted({text.splitlines()[0] for text in failed.values()})}


def sources_of(name: str, target: str, small: bool = False) -> list[Any]:
    """The kernels of a layer, of "network: lenet, tf32", "smoke: softmax, small, float32" or "tiles: gemm 512, tf32".

    small : of miniature sizes
    """
    from hybrid_lab.engines.triton import tuning
    from hybrid_lab.engines.triton.kernels import kernels_of_graphs
    from hybrid_lab.engines.triton.plan.by_vendor import rule_for
    from hybrid_lab.engines.triton.write import tiles
    from hybrid_lab.engines.triton.write.source import KernelSource

    kind, _, rest = name.partition(": ")
    rest = rest or name
    how = tiles.precision(rest.endswith("tf32"), target)
    sources: list[KernelSource] = []
    if kind in ("network", "smoke"):
        from gpu_day import smoke

        rule = rule_for(target, how)
        smoked = kind == "smoke"
        graphs = smoke.graphs(rest, rule, small) if smoked else step_graphs(rest.rpartition(", ")[0], small, rule)
        listed, _ = kernels_of_graphs(graphs, how, rule=rule)
        sources = [kernel.generated for kernel in listed]
    else:
        for group, kernels in _groups(layers.layer(rest, small).graph(), how):
            forms = tuning.candidates_of(group, tuple(kernels), target)
            for title, (_, form) in forms.items():
                if kind == "tiles" or title in ("rule", "vendor"):
                    sources += [source for source in form if isinstance(source, KernelSource)]
    return sources


def _groups(graph: Any, precision: str) -> list[tuple[Any, Any]]:
    """The groups of a graph with their kernels."""
    from hybrid_lab.engines.triton.plan.other_batches import kernels_of

    fusion = kernels_of(graph, precision)[1]
    return [(group, fusion.kernels[group]) for group in fusion.groups]


def step_graphs(name: str, small: bool = False, rule: Any = None) -> dict[str, Any]:
    """All graphs of a training step and of a prediction: the network's, the loss's and the update's.

    rule : which products the GPU's own library computes
    """
    import hybrid_lab as mx
    from hybrid_lab.gluon import ahead

    net, x, target, loss = network(name, small)
    # Kept while the graphs are made: the update is that of the Trainer that has the parameters.
    net.infer_shape(x)
    settings = {"learning_rate": 1e-4, "momentum": 0.9}
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", settings)
    training = ahead.graphs_of(net, x, train=True, rule=rule)
    output = mx.nd.zeros(training["forward"].outputs[0].shape)
    output.attach_grad()
    error = ahead.graphs_of(loss, [output, target], train=True)
    found = {f"training {part}": graph for part, graph in training.items() if not part.startswith("update")}
    found |= {part: graph for part, graph in training.items() if part.startswith("update")}
    found |= {f"loss {part}": graph for part, graph in error.items() if not part.startswith("update")}
    found |= {f"prediction {part}": graph for part, graph in ahead.graphs_of(net, x).items()}
    del trainer
    return found


def network(name: str, small: bool = False) -> Any:
    """(network, input, target, loss) on the CPU."""
    from gluon_workloads import build

    import hybrid_lab as mx

    return build(mx, SMALL if small else name, 2 if small else NETWORKS[name])


def network_graphs(name: str, small: bool = False) -> list[Any]:
    """Forward and backward of a training step."""
    from hybrid_lab.gluon import ahead

    net, x, _, _ = network(name, small)
    graphs = ahead.graphs_of(net, x, train=True)
    return [graphs["forward"], graphs["backward"]]


# -- measuring ---------------------------------------------------------------------------------------------------------


def measured(graphs: list[Any], precision: str, small: bool, only: tuple[str, ...] | None) -> list[dict[str, Any]]:
    """The kernels of graphs, equal ones once, with the seconds of each candidate.

    only : candidates by the names that tuning gives them, "rule" and "vendor"; None for every tile
    """
    from hybrid_lab.engines.triton import tuning, tuning_results
    from hybrid_lab.engines.triton.kernels import kernels_in
    from hybrid_lab.engines.triton.plan.other_batches import kernels_of
    from hybrid_lab.engines.triton.write import tiles

    bench = _bench(small)
    _allow_tf32(precision == "tf32")  # as the vendor's candidates want it
    found: dict[str, dict[str, Any]] = {}
    for graph in graphs:
        lowered, fusion, _ = kernels_of(graph, tiles.precision(precision == "tf32", bench.target))
        listed = iter(kernels_in(lowered, fusion))
        for group in fusion.groups:
            kernels = fusion.kernels[group]
            rows = [next(listed) for _ in kernels]
            key = tuning_results.key_of(kernels, bench.target)
            if key in found:
                found[key]["times"] += 1
                continue
            choice = tuning.measure(group, kernels, bench, only)
            found[key] = {
                "name": rows[-1].name,
                "kind": " + ".join(row.kind for row in rows),
                "tile": {name: size for row in rows for name, size in row.blocks.items()},
                "bytes": sum(row.bytes_moved for row in rows),
                "flops": sum(row.flops for row in rows),
                "dtype": rows[0].dtype,
                "times": 1,
                "seconds": dict(choice.seconds),
                "left_out": dict(choice.left_out),
            }
    return list(found.values())


def torch_seconds(calls: Any, precision: str, small: bool) -> dict[str, float | str]:
    """Seconds of torch's calls; the error's first line where one fails."""
    import torch

    bench, found = _bench(small), {}
    _allow_tf32(precision == "tf32")
    torch.backends.cudnn.benchmark = True
    for name, call in calls.items():
        try:
            found[name] = bench.seconds(call)
        except RuntimeError as error:
            found[name] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return found


def ceilings(small: bool) -> dict[str, Any]:
    """GB/s of a large copy, reads and writes counted, and TFLOP/s of torch's largest products."""
    import torch

    bench = _bench(small)
    elements, size = (1 << 16, 64) if small else (1 << 28, 8192)
    source = torch.rand(elements, device=layers.device())
    target = torch.empty_like(source)
    found: dict[str, Any] = {"copy GB/s": 8 * elements / bench.seconds(lambda: target.copy_(source)) / 1e9}
    for precision in layers.PRECISIONS:
        _allow_tf32(precision == "tf32")
        call = layers.gemm(size, "float16" if precision == "float16" else "float32").calls()["torch"]
        found[f"{precision} TFLOP/s"] = 2 * size**3 / bench.seconds(call) / 1e12
    return found


def _allow_tf32(allowed: bool) -> None:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


_benches: list[Any] = []


def _bench(small: bool) -> Any:
    from hybrid_lab.engines.triton import tuning

    if not _benches:
        if small:
            tuning.FLUSH, tuning.FEWEST, tuning.MOST = 1 << 16, 1, 1
        _benches.append(tuning.GpuBench())
    return _benches[0]
