"""The modules of tests/golden/reference, which the real MXNet runs too, and the data it made."""

import importlib.util
import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).parents[1] / "golden" / "reference"


def load(name):
    """A module of the folder; they import one another by their bare names."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


layer_cases, loss_cases, cell_cases, optimizer_cases, metric_cases, sketch, kinds = map(
    load,
    ("layer_cases", "loss_cases", "cell_cases", "optimizer_cases", "metric_cases", "sketch", "kinds"),
)
GOLDEN = json.loads((FOLDER / "reference.json").read_text())
