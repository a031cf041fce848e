"""Run samples.npz through the real MXNet 1.9.1 and write what it answers, one file per family.

Needs the oracle's environment:

    MXNET_MKLDNN_ENABLED=0 .oracle/bin/python tests/golden/ops/make_ops.py

Keys: <case>/y<i> outputs, <case>/dx<i> gradients for the head gradients of `heads`, <case>/aux<i> auxiliary states,
<case>/error the text where MXNet refused.
"""

import json
from collections import defaultdict
from pathlib import Path

import mxnet as mx
import numpy as np

FOLDER = Path(__file__).resolve().parent


def find(name):
    for place in (mx.nd, mx.nd._internal, mx.nd.op):
        if hasattr(place, name):
            return getattr(place, name)
    prefix, short = name.strip("_").split("_", 1)
    return getattr(getattr(mx.nd, prefix), short)


def heads(shape, dtype):
    """Head gradients: the same numbers for the same shape, everywhere."""
    count = int(np.prod(shape))
    return (((np.arange(count) * 7919) % 41 - 20) / 16.0).reshape(shape).astype(dtype)


def run(call, inputs):
    arrays = [mx.nd.array(item, dtype=item.dtype) for item in inputs]
    gradient = call["gradient"]
    for index, array in enumerate(arrays):
        floating = array.dtype in (np.float32, np.float64, np.float16)
        if gradient and floating and index not in call["aux"] and index not in call["whole"]:
            array.attach_grad()
    attributes = dict(call["attributes"])
    if call["variadic"] and not {"num_weights", "num_arrays", "num_outputs"} & set(attributes):
        attributes["num_args"] = len(arrays)
    if call["targets"]:
        # Written over the weights, as optimizers call them.
        attributes["out"] = [arrays[index] for index in call["targets"]]
    with mx.autograd.record(train_mode=call["family"] != "quantized"):  # layers in 8 bits only predict
        outputs = find(call["operator"])(*arrays, **attributes)
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    answer = {f"y{index}": y.asnumpy() for index, y in enumerate(outputs)}
    if gradient:
        mx.autograd.backward(outputs, [mx.nd.array(heads(y.shape, y.dtype), dtype=y.dtype) for y in outputs])
        answer.update({f"dx{i}": array.grad.asnumpy() for i, array in enumerate(arrays) if array.grad is not None})
    answer.update({f"aux{index}": arrays[index].asnumpy() for index in call["aux"]})
    return answer


def main():
    samples = np.load(FOLDER / "samples.npz")
    families = defaultdict(dict)
    refused = []
    for call in json.loads(str(samples["calls"])):
        inputs = [samples["{}/{}".format(call["id"], index)] for index in range(call["inputs"])]
        try:
            answer = run(call, inputs)
            mx.nd.waitall()
        except Exception as error:
            refused.append(call["id"])
            answer = {"error": np.array(str(error).strip().splitlines()[-1])}
        families[call["family"]].update({"{}/{}".format(call["id"], key): value for key, value in answer.items()})
    for family, answers in families.items():
        np.savez_compressed(FOLDER / (family + ".npz"), **answers)
    print(", ".join(f"{family} {len(answers)}" for family, answers in sorted(families.items())))
    print("refused by MXNet:", ", ".join(refused) or "none")


if __name__ == "__main__":
    main()
