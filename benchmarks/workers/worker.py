"""One of two workers: it trains a workload for as many steps as it is asked to, and answers with the times.

python worker.py <hybrid_lab or torch> <alone or together> <workload> <batch>
"""

import json
import resource
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "cpu"), str(HERE.parents[1])]


def ours(together, workload, batch):
    from gluon_workloads import build

    import hybrid_lab as mx

    net, x, target, loss = build(mx, workload, batch)
    net.hybridize(static_alloc=True, static_shape=True)
    loss.hybridize(static_alloc=True, static_shape=True)
    net(x)
    store = mx.kv.create("dist_sync") if together else "device"
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1e-4, "momentum": 0.9}, kvstore=store)

    def step():
        with mx.autograd.record():
            error = loss(net(x), target)
        error.backward()
        trainer.step(2 * batch)

    return step


def torchs(together, workload, batch):
    import torch
    import torch.distributed as dist
    from torch_workloads import build

    torch.set_num_threads(1)
    net, x, target, loss = build(workload, batch)
    net.train()
    if together:
        dist.init_process_group("gloo")
        net = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)

    def step():
        error = loss(net(x), target)
        error.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def main():
    library, together, workload, batch = sys.argv[1:]
    step = (ours if library == "hybrid_lab" else torchs)(together == "together", workload, int(batch))
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            step()
            times.append((time.perf_counter() - start) * 1e3)
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"ms": times, "MiB": most}), file=answers, flush=True)


if __name__ == "__main__":
    main()
