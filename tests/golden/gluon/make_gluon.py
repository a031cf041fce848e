"""Golden data of Gluon: names, printed trees, summaries, losses, metrics, schedules, training steps, `.params` files.

Run with the real MXNet 1.9.1, `MXNET_MKLDNN_ENABLED=0 python make_gluon.py`: it writes its files beside itself.
"""

import contextlib
import io
import json
import pathlib

import cases
import mxnet as mx
import numpy as np

HERE = pathlib.Path(__file__).parent
facts, arrays = {"nets": {}, "metrics": [], "schedules": {}}, {}

for name, build in cases.NETS.items():
    with mx.name.NameManager():
        net, shape = build(mx)
        net.initialize()
        x = mx.nd.array(cases.inputs_of(name, shape))
        net(x)
        cases.fill(net)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            net.summary(x)
        arrays[f"{name}.y"] = net(x).asnumpy()
        net.save_parameters(str(HERE / f"{name}.params"))
        symbol = net(mx.sym.var("data"))
        facts["nets"][name] = {
            "parameters": list(net.collect_params().keys()),
            "paths": list(net._collect_params_with_prefix()),
            "repr": repr(net),
            "params_repr": repr(net.collect_params()),
            "summary": printed.getvalue(),
            "internals": symbol.get_internals().list_outputs(),
        }

for number, (name, options, kind) in enumerate(cases.LOSSES):
    inputs = [mx.nd.array(value) for value in cases.loss_inputs(kind)]
    inputs[0].attach_grad()
    with mx.autograd.record():
        value = getattr(mx.gluon.loss, name)(**options)(*inputs)
    value.backward()
    arrays[f"loss{number}"] = value.asnumpy()
    arrays[f"loss{number}.grad"] = inputs[0].grad.asnumpy()

for kind, group in (
    ("classes", cases.METRICS),
    ("regression", cases.REGRESSION_METRICS),
    ("binary", cases.BINARY_METRICS),
):
    for name, options in group:
        metric = mx.metric.create(name, **options)
        for label, pred in cases.metric_batches(kind):
            metric.update([mx.nd.array(label)], [mx.nd.array(pred)])
        facts["metrics"].append([kind, name, options, *metric.get()])

for name, (kind, options) in cases.SCHEDULES.items():
    schedule = getattr(mx.lr_scheduler, kind)(**options)
    facts["schedules"][name] = [schedule(update) for update in range(16)]

for number, (optimizer, options) in enumerate(cases.TRAININGS):
    for place, step in enumerate(cases.train(mx, optimizer, options)):
        arrays.update({f"train{number}.{place}.{key}": value for key, value in step.items()})

(HERE / "gluon.json").write_text(json.dumps(facts, indent=1) + "\n")
np.savez_compressed(HERE / "gluon.npz", **arrays)
