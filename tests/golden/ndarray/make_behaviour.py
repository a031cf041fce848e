"""Write behaviour.json: what the real MXNet answers to every case of cases.py. Run by the oracle, oneDNN off."""

from __future__ import annotations

import json
from pathlib import Path

import mxnet as mx
import numpy as np
from cases import all_cases, answer

answers = {name: answer(program, mx, np) for name, program in all_cases()}
lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in answers.items()]
Path(__file__).with_name("behaviour.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
print(f"{len(answers)} cases, {sum(value == 'error' for value in answers.values())} of them errors")
