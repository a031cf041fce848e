"""One runtime with one workload, in a process of its own that answers requests (see serve.py).

python worker.py <runtime> <workload>
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

from serve import serve  # noqa: E402


def gluon_calls(runtime, workload):
    """(versions, infer, train) for hybrid_lab and MXNet."""
    from gluon_workloads import build

    if runtime.startswith("MXNet"):
        import mxnet as mx

        wait = mx.nd.waitall
    else:
        import hybrid_lab as mx

        def wait():
            return None

    net, x, target, loss = build(mx, workload)
    if runtime == "MXNet hybrid":
        net.hybridize(static_alloc=True, static_shape=True)
        loss.hybridize(static_alloc=True, static_shape=True)
    elif runtime != "MXNet eager" and runtime != "eager":
        engine = None if runtime == "hybrid" else runtime.removeprefix("hybrid ")
        net.hybridize(static_alloc=True, static_shape=True, engine=engine)
        loss.hybridize(static_alloc=True, static_shape=True, engine=engine)
    trainers = []

    def infer():
        net(x)
        wait()

    def train():
        if not trainers:
            net(x)
            settings = {"learning_rate": 1e-4, "momentum": 0.9}
            trainers.append(mx.gluon.Trainer(net.collect_params(), "sgd", settings))
        with mx.autograd.record():
            error = loss(net(x), target)
        error.backward()
        trainers[0].step(x.shape[0])
        wait()

    return infer, train


def torch_calls(runtime, workload):
    import os

    import torch
    from gluon_workloads import WORKLOADS
    from torch_workloads import build

    torch.manual_seed(0)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    net, x, target, loss = build(workload, WORKLOADS[workload][0])
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9) if list(net.parameters()) else None
    prepared = {}

    def infer():
        if "infer" not in prepared:
            net.eval()
            if runtime == "torch.compile":
                from torch._inductor import config

                config.freezing = True
                prepared["infer"] = torch.compile(net)
            else:
                prepared["infer"] = net
        with torch.no_grad():
            prepared["infer"](x)

    def train():
        if "train" not in prepared:
            net.train()
            prepared["train"] = torch.compile(net) if runtime == "torch.compile" else net
        error = loss(prepared["train"](x), target)
        error.backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()

    return infer, train


def onnxruntime_calls(workload):
    """A model exported once and given to onnxruntime as it is, with its own defaults."""
    import io
    import os
    import warnings

    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime
    import torch
    from gluon_workloads import WORKLOADS
    from torch_workloads import build

    warnings.filterwarnings("ignore")
    net, x, _, _ = build(workload, WORKLOADS[workload][0])
    file = io.BytesIO()
    torch.onnx.export(net.eval(), (x,), file, dynamo=False, input_names=["x"])
    feeds, made = {"x": x.numpy()}, []

    def infer():
        if not made:
            made.append(onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"]))
        made[0].run(None, feeds)

    return infer, None


def main():
    runtime, workload = sys.argv[1:3]
    if runtime.startswith("torch"):
        calls = torch_calls(runtime, workload)
    elif runtime == "onnxruntime by hand":
        calls = onnxruntime_calls(workload)
    else:
        calls = gluon_calls(runtime, workload)
    serve(dict(zip(("infer", "train"), calls)))


if __name__ == "__main__":
    main()
