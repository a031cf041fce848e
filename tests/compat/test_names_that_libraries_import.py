"""Names of MXNet that GluonTS and GluonNLP import, and what they do."""

import hashlib

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd, sym
from hybrid_lab.contrib import amp
from hybrid_lab.diagnostics.errors import InputError
from hybrid_lab.gluon.model_zoo import model_store
from hybrid_lab.mxnet.compat.nested_arguments import _flatten, _regroup
from tests.compat.test_finder import run


def test_they_are_at_mxnets_places():
    run("""
        import hybrid_lab.compat
        from mxnet.gluon.block import _flatten, _regroup, HybridBlock
        from mxnet.gluon.data.dataloader import ForkingPickler, _as_in_context
        from mxnet.gluon.model_zoo import model_store
        from mxnet.gluon.utils import _get_repo_file_url, _get_repo_url, replace_file
        from mxnet.metric import ndarray
        from mxnet.contrib.amp import amp
        import mxnet as mx
        assert ndarray is mx.nd and not amp._amp_initialized
        assert mx.gluon.tensor_types is mx.gluon.parameter.tensor_types
        assert isinstance(mx.nd.ones(1), mx.gluon.tensor_types) and isinstance(mx.sym.var("x"), mx.gluon.tensor_types)
    """)


# MXNet 1.9.1 gives these formats.
@pytest.mark.parametrize(
    ("args", "count", "fmt"),
    [
        (nd.ones(2), 1, 0),
        (None, 1, -1),
        ([nd.ones(2), None], 2, [0, -1]),
        ([nd.ones(2), (nd.ones(3), [nd.ones(1)]), []], 3, [0, [0, [0]], []]),
        (sym.var("x"), 1, 0),
        (sym.split(sym.var("x"), num_outputs=2), 1, 2),
    ],
)
def test_nested_arguments(args, count, fmt):
    flat, found = _flatten(args, "input")
    assert len(flat) == count and found == fmt
    if fmt != 2:
        nested, rest = _regroup(flat, found)
        assert rest == [] and _flatten(nested, "input")[1] == fmt


def test_nested_arguments_that_are_no_arrays():
    with pytest.raises(ValueError, match="the input must be arrays.*of type str"):
        _flatten([nd.ones(2), "x"], "input")
    with pytest.raises(ValueError, match="must be None"):
        _regroup([nd.ones(2)], -1)
    assert _regroup([1, 2, 3], 2) == ([1, 2], [3])


def test_mixed_precision_is_seen():
    from hybrid_lab.mxnet.contrib.amp import mode

    assert mode._amp_initialized is False
    amp.init("bfloat16")
    try:
        assert mode._amp_initialized is True
    finally:
        amp.disable()
    with pytest.raises(AttributeError, match="_amp_initialised"):
        mode._amp_initialised  # noqa: B018


def test_weights_of_a_network_by_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr(model_store, "_model_sha1", {})
    net = gluon.nn.Dense(2, in_units=3)
    net.initialize()
    net.save_parameters(str(tmp_path / "mine.params"))
    digest = hashlib.sha1((tmp_path / "mine.params").read_bytes()).hexdigest()
    assert model_store.get_model_file("mine", root=tmp_path) == str(tmp_path / "mine.params")
    with pytest.raises(InputError, match="'mine' is not known"):
        model_store.short_hash("mine")
    model_store._model_sha1["mine"] = digest
    assert model_store.short_hash("mine") == digest[:8]
    (tmp_path / "mine.params").rename(tmp_path / f"mine-{digest[:8]}.params")
    assert model_store.get_model_file("mine", root=str(tmp_path)).endswith(f"mine-{digest[:8]}.params")
    model_store._model_sha1["mine"] = digest[:8] + "0" * 32
    with pytest.raises(InputError, match="does not have the SHA-1"):
        model_store.get_model_file("mine", root=tmp_path)
    model_store.purge(tmp_path)
    with pytest.raises(FileNotFoundError, match="no weights of mine"):
        model_store.get_model_file("mine", root=tmp_path)


def test_the_url_of_a_file(monkeypatch):
    monkeypatch.setenv("MXNET_GLUON_REPO", "http://localhost:1/files")
    assert gluon.utils._get_repo_url() == "http://localhost:1/files/"
    assert gluon.utils._get_repo_file_url("gluon/dataset", "a.zip") == "http://localhost:1/files/gluon/dataset/a.zip"


def test_arrays_of_a_batch_in_a_context():
    from hybrid_lab.gluon.data.worker_iter import _as_in_context

    first, (second, text) = _as_in_context([nd.ones(2), (nd.zeros(1), "a")], mx.cpu_pinned())
    assert first.context == second.context == mx.cpu_pinned() and text == "a"
    assert np.array_equal(first.asnumpy(), [1, 1])
