"""One runtime with one workload on a GPU, in a process of its own that answers requests (see serve.py).

python worker.py <runtime> <workload> <batch>;  every call returns when the GPU is done. {"do": "kernels"} : how many
kernels a training step runs, {"do": "device memory"} : the most memory of the device that was in use, MiB.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "cpu"), str(HERE.parent), str(HERE.parents[1])]

from serve import serve  # noqa: E402


def gluon_calls(runtime, workload, batch):
    """(infer, train) of hybrid_lab; "hybrid captured" fixes shapes, so that launches are replayed."""
    from gluon_workloads import build

    import hybrid_lab as mx

    net, x, target, loss = build(mx, workload, batch, mx.gpu(0))
    if runtime != "eager":
        captured = runtime == "hybrid captured"
        for block in (net, loss):
            block.hybridize(static_alloc=captured, static_shape=captured)
    trainers = []

    def infer():
        net(x)
        mx.nd.waitall()

    def train():
        if not trainers:
            net(x)
            settings = {"learning_rate": 1e-4, "momentum": 0.9}
            trainers.append(mx.gluon.Trainer(net.collect_params(), "sgd", settings))
        with mx.autograd.record():
            error = loss(net(x), target)
        error.backward()
        trainers[0].step(batch)
        mx.nd.waitall()

    return infer, train


def torch_calls(runtime, workload, batch):
    """(infer, train) of torch: eager, torch.compile with its defaults, or with max-autotune."""
    import torch
    from torch_workloads import build

    torch.manual_seed(0)
    # torch's convolutions round float32 to 10 bits by themselves; ours do with tf32=True only.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    net, x, target, loss = build(workload, batch, "cuda")
    parameters = list(net.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1e-4, momentum=0.9) if parameters else None
    prepared = {}

    def compiled(mode):
        if mode not in prepared:
            net.train(mode == "train")
            options = {"mode": "max-autotune"} if runtime.endswith("max-autotune") else {}
            prepared[mode] = torch.compile(net, **options) if runtime.startswith("torch.compile") else net
        return prepared[mode]

    def infer():
        with torch.no_grad():
            compiled("infer")(x)
        torch.cuda.synchronize()

    def train():
        error = loss(compiled("train")(x), target)
        error.backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
        torch.cuda.synchronize()

    return infer, train


def kernels(call):
    """How many kernels the GPU ran in one call, however they were launched."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    call()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        call()
    copies = ("Memcpy", "Memset")
    return sum(
        event.count
        for event in found.key_averages()
        if event.device_type == torch.autograd.DeviceType.CUDA and not event.key.startswith(copies)
    )


def device_memory():
    import torch

    free, total = torch.cuda.mem_get_info()
    return max(torch.cuda.max_memory_reserved(), 0) / 2**20 or (total - free) / 2**20


def main():
    runtime, workload, batch = sys.argv[1], sys.argv[2], int(sys.argv[3])
    make = torch_calls if runtime.startswith("torch") else gluon_calls
    infer, train = make(runtime, workload, batch)
    serve({"infer": infer, "train": train, "kernels": lambda: kernels(train), "device memory": device_memory})


if __name__ == "__main__":
    main()
