"""Writes sparse.json: what the real MXNet answers to the cases. `make golden` runs it with the oracle's Python."""

import json
import logging
import os
import tempfile
from pathlib import Path

import mxnet as mx
import numpy as np
from cases import all_cases, answer

os.environ["MXNET_STORAGE_FALLBACK_LOG_VERBOSE"] = "0"
logging.disable(logging.CRITICAL)
HERE = Path(__file__).resolve().parent

with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    answers = {name: answer(program, mx, np) for name, program in all_cases().items()}
lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in answers.items())
(HERE / "sparse.json").write_text("{\n" + lines + "\n}\n")
