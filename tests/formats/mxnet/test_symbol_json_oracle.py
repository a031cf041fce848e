"""Every operator's samples, written as symbol JSON, mean the same to the real MXNet (where it is installed)."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab.formats.mxnet import symbol_json
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, input_node
from hybrid_lab.ndarray.interpret import interpret
from hybrid_lab.ops.framework.operator import records
from tests.failures import Failures
from tests.seeds import same_random_numbers

ROOT = Path(__file__).parents[3]
ORACLE = ROOT / ".oracle" / "bin" / "python"
pytestmark = pytest.mark.skipif(not ORACLE.exists(), reason="the real MXNet is not installed in .oracle")

#: What MXNet has with oneDNN or on a GPU only; some of it ends the process.
ELSEWHERE = {("_contrib_BatchNormWithReLU", 0), ("_contrib_BatchNormWithReLU", 1), ("Deconvolution", 8)}
#: On a GPU only.
ELSEWHERE |= {(name, index) for name in ("_contrib_fft", "_contrib_ifft", "_contrib_count_sketch") for index in (0, 1)}
#: One image only, or with the middle row or column unwritten; four axes only.
ELSEWHERE |= {("_image_flip_left_right", 1), ("_image_flip_top_bottom", 0), ("_image_flip_top_bottom", 1)}
ELSEWHERE |= {("_image_random_flip_left_right", 1), ("_image_random_flip_top_bottom", 1), ("BatchNorm_v1", 1)}
#: tests/golden/rnn has its answers with oneDNN.
ELSEWHERE |= {("RNN", index) for index in range(12)}
#: Lengths of sequences with a projection: on a GPU only.
ELSEWHERE |= {("RNN", 13)}
#: Only written in place there, which a Symbol does not do; a crash; an axis that is not counted from the end.
ELSEWHERE |= {("_scatter_set_nd", 0), ("_scatter_set_nd", 1), ("fill_element_0index", 0), ("cumsum", 2)}
#: A step that is skipped leaves the output unwritten there.
ELSEWHERE |= {("_adamw_update", 1), ("_adamw_update", 2), ("_adamw_update", 3)}
#: On int8 data the numbers depend on the processor there: without VNNI weights are halved.
ELSEWHERE |= {("_sg_mkldnn_conv", 4)}
#: Another dtype of the result needs MXNET_SAFE_ACCUMULATION=1 there.
ELSEWHERE |= {("norm", 4), ("norm", 5), ("norm", 6)}
#: On row_sparse arrays only.
ELSEWHERE |= {(name, index) for name in ("_sparse_retain", "_square_sum") for index in (0, 1)}
#: As Symbols they infer no shapes there.
ARRAYS_ONLY = ("_contrib_group_adagrad", "multi_sgd", "multi_mp_sgd", "preloaded_multi_")


def loaded(record, sample):
    """Whether a number that MXNet has as an attribute is an array here."""
    given = zip(record.bind(**sample.attributes).signature.inputs, sample.inputs, strict=False)
    return any(name in record.scalars and isinstance(item, np.ndarray) for name, item in given)


CASES = [
    (record, index)
    for record in records()
    if record.mxnet is not None and record.name != "null"
    for index, sample in enumerate(record.samples)
    if (record.name, index) not in ELSEWHERE
    and not loaded(record, sample)
    and not record.name.startswith(ARRAYS_ONLY)
    and sample.dtype != "float16"  # which MXNet computes on a GPU only, or rounds otherwise
]


def graph_of(record, sample):
    """A graph of one node, and arrays for its inputs by name."""
    arrays = sample.arrays(record.name)
    op = record.bind(**sample.attributes)
    inputs, fed = [], {}
    for index, item in enumerate(arrays):
        if isinstance(item, np.ndarray):
            value = input_node(f"in{index}", "data")
            fed[f"in{index}"] = item
            inputs.append(value)
        else:
            inputs.append(item)
    node = Node(op, inputs, name="node", draw=0 if op.random else None)
    return Graph([item for item in inputs if hasattr(item, "node")], node.outputs[: op.signature.visible], draws=1), fed


def stem(record, index):
    return f"{record.name}-{index}"


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("oracle")
    for record, index in CASES:
        graph, arrays = graph_of(record, record.samples[index])
        symbol_json.save(folder / f"{stem(record, index)}.json", graph)
        np.savez(folder / f"{stem(record, index)}.npz", **arrays)
    subprocess.run(
        [ORACLE, Path(__file__).with_name("run_in_mxnet.py"), folder],
        check=True,
        env={**os.environ, "MXNET_MKLDNN_ENABLED": "0", "MXNET_STORAGE_FALLBACK_LOG_VERBOSE": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    problems = json.loads((folder / "problems.txt").read_text())
    return folder, {Path(key).name: text for key, text in problems.items()}


@pytest.mark.parametrize("record", dict(CASES), ids=lambda record: record.name)
def test_same_outputs_in_mxnet(record, answers):
    failures = Failures()
    for index in [index for each, index in CASES if each is record]:
        with failures.of(f"sample {index}, {record.samples[index]}"):
            same_random_numbers()
            check(record, index, *answers)
    failures.raise_all()


def check(record, index, folder, problems):
    assert stem(record, index) not in problems, problems[stem(record, index)]
    graph, arrays = graph_of(record, record.samples[index])
    again = symbol_json.load(folder / f"{stem(record, index)}.json")
    ours = interpret(again, [mx.nd.array(arrays[v.node.name], dtype=arrays[v.node.name].dtype) for v in again.inputs])
    with np.load(folder / f"{stem(record, index)}.out.npz") as theirs:
        for position, output in enumerate(ours):
            expected = theirs[str(position)]
            assert output.shape == expected.shape
            if record.bind(**record.samples[index].attributes).random:
                continue  # other generators, other numbers
            scale = max(1.0, float(np.abs(expected).max())) if expected.size else 1.0
            np.testing.assert_allclose(output.asnumpy(), expected, rtol=1e-4, atol=1e-5 * scale)
