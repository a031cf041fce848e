"""Golden data of random layers, losses, cells, optimizers, schedules and metrics.

Run with the real MXNet 1.9.1, `MXNET_MKLDNN_ENABLED=0 python make_reference.py`: it writes reference.json here, the
sketches of all results by kind and seed; null where MXNet raises.
"""

import json
import pathlib

import mxnet as mx
from kinds import KINDS
from sketch import sketch


def results(run, case):
    """Sketches of the results by name, or None."""
    try:
        found = {name: sketch(values) for name, values in run(mx, case).items()}
        mx.nd.waitall()
        return found
    except (mx.MXNetError, ValueError) as error:
        print(case, str(error).strip().splitlines()[-1])
        try:
            mx.nd.waitall()
        except mx.MXNetError:
            pass  # the same error once more, from a call that had not ended
        return None


golden = {
    kind: {str(seed): results(run, draw(seed)) for seed in range(count)}
    for kind, (draw, run, count, _) in KINDS.items()
}
lines = [
    f'"{kind}": {{\n' + ",\n".join(f'"{seed}": {json.dumps(each)}' for seed, each in cases.items()) + "\n}"
    for kind, cases in golden.items()
]
text = "{\n" + ",\n".join(lines) + "\n}\n"
pathlib.Path(__file__).with_name("reference.json").write_text(text)
