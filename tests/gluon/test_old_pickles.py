"""Pickles that were written while the room `hybridize/` was the folder `gluon/hybridized/`: their names still mean the
same classes.
"""

import importlib
import pickle
from pathlib import Path

import numpy as np
import pytest

from hybrid_lab import nd

#: {"blocks": name -> Block that was called, "results": name -> array}, written by that version.
PICKLE = Path(__file__).parent.parent / "golden" / "pickles" / "gluon-hybridized.pickle"


@pytest.fixture
def saved():
    return pickle.loads(PICKLE.read_bytes())


def arguments(name):
    x = nd.array(np.arange(8, dtype="float32").reshape(2, 4))
    return {"clip": (x, 0.5, 3.0), "cell": (x, [nd.zeros((2, 3)), nd.zeros((2, 3))])}.get(name, (x,))


@pytest.mark.parametrize("name", ["net", "clip", "cell", "eager"])
def test_blocks_compute_the_same(saved, name):
    result = saved["blocks"][name](*arguments(name))
    result = result[0] if isinstance(result, (tuple, list)) else result
    np.testing.assert_allclose(result.asnumpy(), saved["results"][name], rtol=1e-6)


@pytest.mark.parametrize("name, kinds", [("net", 2), ("clip", 1), ("cell", 1)])
def test_the_calls_that_they_had_are_known(saved, name, kinds, tmp_path):
    block = saved["blocks"][name]
    assert block._active and len(list(block._graphs.calls)) == kinds
    block.save(tmp_path / "net.hlab")  # traces the graphs of these calls


@pytest.mark.parametrize(
    "old, new",
    [
        ("cached_graph", "hybridize.graphs"),
        ("program", "hybridize.compiled_call"),
        ("structure", "hybridize.structure"),
        ("frozen", "hybridize.stale.trace_warnings"),
        ("ahead", "gluon.ahead"),
    ],
)
def test_old_names_are_the_same_modules(old, new):
    module = importlib.import_module(f"hybrid_lab.{new}")
    assert importlib.import_module(f"hybrid_lab.gluon.hybridized.{old}") is module
    assert module.__spec__.name == f"hybrid_lab.{new}"


def test_other_names_are_unknown():
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        importlib.import_module("hybrid_lab.gluon.hybridized.no_such_module")
