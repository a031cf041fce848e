"""Error types: what they also are, and what they say."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest

from hybrid_lab import diagnostics
from hybrid_lab.diagnostics import ArchiveError, HybridLabError, LoadMismatchError, MXNetError, errors


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("ShapeError", ValueError),
        ("DTypeError", TypeError),
        ("AttributeSpecError", TypeError),
        ("UninitializedError", RuntimeError),
        ("DeferredInitializationError", diagnostics.UninitializedError),
        ("AutogradError", RuntimeError),
        ("EngineError", RuntimeError),
        ("EngineUnavailable", ImportError),
        ("EngineUnavailable", diagnostics.EngineError),
        ("ArchiveError", ValueError),
        ("LoadMismatchError", ArchiveError),
        ("HybridizeError", HybridLabError),
        ("Unmappable", HybridLabError),
    ],
)
def test_an_error_is_also_the_built_in_people_catch(name, builtin):
    error = getattr(diagnostics, name)
    assert issubclass(error, HybridLabError)
    assert issubclass(error, builtin)


def test_ported_code_catches_the_old_name():
    import hybrid_lab as mx
    from hybrid_lab.base import MXNetError as of_base

    assert MXNetError is HybridLabError
    assert mx.MXNetError is mx.base.MXNetError is of_base is HybridLabError
    with pytest.raises(mx.base.MXNetError):
        mx.nd.dot(mx.nd.ones((2, 3)), mx.nd.ones((2, 3)))


def test_the_old_name_loads_on_first_use():
    code = "import sys, hybrid_lab as mx; assert 'hybrid_lab.mxnet.base' not in sys.modules; mx.base.MXNetError"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_archive_error_names_file_and_member(tmp_path):
    error = ArchiveError("the digest differs", path=tmp_path / "m.hlab", member="weights.safetensors")
    assert error.path == str(tmp_path / "m.hlab")
    assert str(error) == f"the digest differs ('{tmp_path}/m.hlab', member 'weights.safetensors')"
    assert str(ArchiveError("the digest differs")) == "the digest differs"


def test_a_mismatch_lists_all_differences():
    error = LoadMismatchError("file and model differ", ["class Net is Net2", "child fc2 is missing"], path="m.hlab")
    assert error.differences == ["class Net is Net2", "child fc2 is missing"]
    assert str(error).splitlines() == [
        "file and model differ ('m.hlab')",
        "  - class Net is Net2",
        "  - child fc2 is missing",
    ]


def test_simple_errors_cross_processes():
    error = pickle.loads(pickle.dumps(diagnostics.ShapeError("(2, 3) and (4,) do not fit")))
    assert (type(error), str(error)) == (diagnostics.ShapeError, "(2, 3) and (4,) do not fit")


ARGUMENTS = {
    "FewerGraphsError": ("m.hlab has 2 graphs", ["head"], 2, 1),
    "LoadMismatchError": ("file and model differ", ["class Net is Net2"]),
    "NonFiniteError": ("NaN", "body", "log", "backward", None, ["x: zeros"]),
    "RecordError": ("relu", "numpy", "no"),
    "UnknownNameError": ("nd", "conv", ["convolution"]),
}
EVERY_ERROR = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, HybridLabError)
]  # FileError and HybridizeError, which are elsewhere, have tests of their own


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize("kind", dict.fromkeys(EVERY_ERROR), ids=lambda kind: kind.__name__)
def test_copies_and_pickles_of_errors_have_all(kind, again):
    error = kind(*ARGUMENTS.get(kind.__name__, ("no",)))
    error.add_note("in block net0")
    other = again(error)
    assert type(other) is kind and str(other) == str(error) and other.args == error.args
    assert vars(other) == vars(error)
