"""Write the records' samples to samples.npz, for make_ops.py to run in the real MXNet.

This half needs the project's environment, that one the oracle's:

    python tests/golden/ops/export_samples.py
    MXNET_MKLDNN_ENABLED=0 .oracle/bin/python tests/golden/ops/make_ops.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[2]))

from hybrid_lab.formats.mxnet.operator_names import SCALAR_FORMS  # noqa: E402
from hybrid_lab.ops.framework.sample import Ints  # noqa: E402
from tests.ops.cases import CASES, Case  # noqa: E402

#: Cases whose gradient corrupts the memory of MXNet 1.9.1 and ends the process.
CRASHING = {"SequenceLast-3", "SequenceLast-4"}


def comparable(case: Case) -> bool:
    """Whether MXNet has the operator, takes such inputs, and gives the same numbers every time."""
    loaded = any(
        name in case.record.scalars and not isinstance(item, (int, float))
        for name, item in zip(case.op.signature.inputs, case.sample.inputs, strict=False)
    )
    # The fused RNN runs with oneDNN only, and answers rubbish without; tests/golden/rnn has its answers.
    # MXNet has the convolution in 8 bits in files only: tests/formats/mxnet/test_symbol_json_oracle.py runs it there.
    apart = (None, "RNN", "_sg_mkldnn_conv")
    known = case.record.mxnet not in apart and case.id not in CRASHING
    return known and not case.op.random and not loaded


def mxnet_call(case: Case) -> tuple[str, dict[str, str], list[np.ndarray]]:
    """Name, attributes and arrays with which MXNet computes the case; a number as input becomes an attribute."""
    name, inputs = case.record.mxnet, case.inputs()
    attributes = {key: str(case.op.attributes[key]) for key in case.sample.attributes}
    for position, item in enumerate(inputs):
        if isinstance(item, np.ndarray):
            continue
        given = case.op.signature.inputs[position]
        if given in case.record.scalars:
            attributes[given] = str(item)
        else:
            form = SCALAR_FORMS[name]
            name = form.right if position == 0 else form.left
            attributes["scalar"] = str(item)
    return name, attributes, [item for item in inputs if isinstance(item, np.ndarray)]


def main() -> None:
    calls, arrays = [], {}
    for case in filter(comparable, CASES):
        name, attributes, inputs = mxnet_call(case)
        calls.append(
            {
                "id": case.id,
                "family": case.record.family,
                "operator": name,
                "attributes": attributes,
                "inputs": len(inputs),
                "whole": [index for index, item in enumerate(case.sample.inputs) if isinstance(item, Ints)],
                "aux": [i for i, given in enumerate(case.op.signature.inputs) if given in case.op.signature.aux],
                "gradient": case.sample.gradient and case.record.differentiable,
                "variadic": case.record.variadic,
                "targets": case.op.targets() if hasattr(case.record, "targets") else (),
            }
        )
        arrays.update({f"{case.id}/{index}": item for index, item in enumerate(inputs)})
    np.savez_compressed(FOLDER / "samples.npz", calls=json.dumps(calls), **arrays)
    print(f"{len(calls)} samples")


if __name__ == "__main__":
    main()
