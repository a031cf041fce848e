"""Detection augmenters in the real MXNet 1.9.1: writes detection.json. Run with the oracle's Python."""

import json
from pathlib import Path

import mxnet as mx
from detection_cases import results

path = Path(__file__).with_name("detection.json")
path.write_text("[\n" + ",\n".join(json.dumps(case) for case in results(mx)) + "\n]\n")
