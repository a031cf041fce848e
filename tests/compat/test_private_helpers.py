"""MXNet's private helpers that public code imports: at MXNet's places, and with its results (those of MXNet 1.9.1)."""

import pytest

from tests.compat.test_finder import run

IMPORTED = {
    "gluon.model_zoo.vision.densenet": "_make_dense_block _make_dense_layer _make_transition",
    "gluon.model_zoo.vision.resnet": "_conv3x3",
    "gluon.rnn.rnn_cell": "_format_sequence _get_begin_state _mask_sequence_variable_length _cells_begin_state "
    "_cells_state_info _reverse_sequences",
    "gluon.utils": "_indent _brief_print_list _get_repo_url _get_repo_file_url",
    "gluon.block": "_flatten _regroup _BlockScope",
    "gluon.loss": "_apply_weighting _reshape_like",
    "gluon.nn.conv_layers": "_Conv _Pooling _infer_weight_shape",
    "gluon.data.dataset": "_DownloadedDataset",
    "gluon.data.dataloader": "_MultiWorkerIter _as_in_context",
    "base": "_as_list",
    "model": "_create_kvstore _create_sparse_kvstore _initialize_kvstore _update_params _update_params_on_kvstore "
    "_multiple_callbacks BatchEndParam",
    "executor_manager": "_split_input_slice _check_arguments _load_data _load_label _load_general",
    "module.executor_group": "_load_data _load_label _load_general",
    "module.base_module": "_check_input_names _check_names_match _parse_data_desc _as_list",
    "io": "_init_data _has_instance",
    "io.utils": "_init_data _has_instance _getdata_by_idx",
    "image.image": "_get_interp_method",
    "ndarray.ndarray": "_STORAGE_TYPE_STR_TO_ID",
    "symbol": "_internal",
}
"""MXNet's module -> names that an index of public code shows in imports, and those that stand beside them in MXNet."""


def test_they_are_at_mxnets_places():
    lines = "\n".join(f"from mxnet.{module} import {', '.join(names.split())}" for module, names in IMPORTED.items())
    run(f"import hybrid_lab.compat\n{lines}\nimport mxnet\nmxnet.model._create_kvstore")


def test_sequences():
    run("""
        import hybrid_lab.compat
        import mxnet as mx
        from mxnet.gluon.rnn.rnn_cell import _cells_begin_state, _cells_state_info, _format_sequence, _get_begin_state
        from mxnet.gluon.rnn.rnn_cell import _mask_sequence_variable_length, _reverse_sequences
        x = mx.nd.arange(12).reshape((2, 3, 2))
        steps, axis, F, batch = _format_sequence(3, x, "NTC", False)
        assert [s.shape for s in steps] == [(2, 2)] * 3 and (axis, F, batch) == (1, mx.nd, 2)
        whole, axis, F, batch = _format_sequence(3, steps, "TNC", True)
        assert whole.shape == (3, 2, 2) and axis == 0 and batch == 2
        assert _format_sequence(3, x, "TNC", None, "NTC")[0].shape == (3, 2, 2)
        symbols, _, F, batch = _format_sequence(3, mx.sym.var("x"), "NTC", False)
        assert len(symbols) == 3 and F is mx.sym and batch == 0
        for wrong in (x, steps):
            try:
                _format_sequence(4, wrong, "NTC", False)
            except ValueError:
                continue
            raise AssertionError(wrong)
        lengths = mx.nd.array([1, 3])
        masked = _mask_sequence_variable_length(mx.nd, steps, 3, lengths, 1, True)
        assert masked[0].asnumpy().tolist() == [[0, 1], [0, 0], [0, 0]]
        assert len(_mask_sequence_variable_length(mx.nd, x, 3, lengths, 1, False)) == 3
        assert _reverse_sequences(steps, 3)[0] is steps[2]
        turned = _reverse_sequences(steps, 3, lengths)
        assert turned[0].asnumpy().tolist() == [[0, 1], [10, 11]]
        cells = [mx.gluon.rnn.LSTMCell(2), mx.gluon.rnn.GRUCell(3)]
        assert [s.shape for s in _cells_begin_state(cells, batch_size=2)] == [(2, 2), (2, 2), (2, 3)]
        assert [i["shape"] for i in _cells_state_info(cells, 4)] == [(4, 2), (4, 2), (4, 3)]
        assert [s.shape for s in _get_begin_state(cells[0], mx.nd, None, x, 2)] == [(2, 2)] * 2
        assert _get_begin_state(cells[0], mx.nd, [x], x, 2) == [x]
    """)


def test_updates():
    run("""
        import hybrid_lab.compat
        import mxnet as mx
        from mxnet.model import _create_kvstore, _initialize_kvstore, _update_params, _update_params_on_kvstore
        weights = [[mx.nd.ones(2), mx.nd.ones(2)], [mx.nd.ones(3), mx.nd.ones(3)]]
        gradients = [[mx.nd.ones(2), mx.nd.ones(2) * 2], [None, None]]
        first = {"a": weights[0][0], "b": weights[1][0]}
        calls = []
        def updater(numbers, gradients, weights):
            calls.append((numbers, [g.asnumpy().tolist() for g in gradients]))
        _update_params(weights, gradients, updater, 2)
        assert calls == [([0], [[1, 1]]), ([1], [[2, 2]])]
        store, on_store = _create_kvstore("local", 2, first)
        assert on_store and _create_kvstore("local", 1, first) == (None, False) == _create_kvstore(None, 2, {})
        _initialize_kvstore(store, weights, first, ["a", "b"], False)
        calls.clear()
        _update_params(weights, gradients, updater, 2, store, ["a", "b"])
        assert calls == [([0], [[3, 3]]), ([1], [[3, 3]])]
        store, _ = _create_kvstore("local", 2, first)
        store.set_optimizer(mx.optimizer.create("sgd", learning_rate=0.5))
        _initialize_kvstore(store, weights, first, ["a", "b"], True)
        gradients[0] = [mx.nd.ones(2), mx.nd.ones(2) * 2]
        _update_params_on_kvstore(weights, gradients, store, ["a", "b"])
        assert weights[0][1].asnumpy().tolist() == [-0.5, -0.5] and weights[1][0].asnumpy().tolist() == [1, 1, 1]
    """)


@pytest.mark.parametrize(
    ("batch", "loads", "edges"),
    [(10, [1, 2], [0, 3, 10]), (5, [1, 3, 1], [0, 1, 4, 5]), (9, [1, 1], [0, 4, 9]), (2, [1, 1, 1], None)],
)
def test_parts_of_batches(batch, loads, edges):
    from hybrid_lab.mxnet.compat.batch_helpers import _split_input_slice

    if edges is None:
        with pytest.raises(ValueError, match="cannot be divided between 3 contexts"):
            _split_input_slice(batch, loads)
        return
    assert _split_input_slice(batch, loads) == [slice(a, b) for a, b in zip(edges, edges[1:], strict=False)]


def test_batches_and_layers(tmp_path):
    run("""
        import hybrid_lab.compat
        import mxnet as mx, pytest
        from mxnet.executor_manager import _check_arguments, _load_general
        from mxnet.module.base_module import _check_input_names, _parse_data_desc
        from mxnet.io import _has_instance, _init_data
        from mxnet.gluon.utils import _brief_print_list, _indent
        from mxnet.gluon.nn.conv_layers import _infer_weight_shape, _Pooling
        from mxnet.gluon.model_zoo.vision.densenet import _make_dense_block
        net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc")
        _check_arguments(net)
        _check_input_names(net, ["data"], "data", True)
        with pytest.raises(ValueError, match="its inputs are data"):
            _check_input_names(net, ["image"], "data", True)
        data, label = _parse_data_desc(["data"], [], [("data", (2, 3))], None)
        assert data[0].shape == (2, 3) and label is None
        with pytest.raises(ValueError, match="shapes describe other"):
            _parse_data_desc(["data"], [], [("other", (2, 3))], None)
        named = _init_data([mx.nd.ones(1), mx.nd.ones(2)], False, "data")
        assert [n for n, _ in named] == ["_0_data", "_1_data"] and _has_instance(named, mx.nd.NDArray)
        assert _init_data(None, True, "data") == []
        targets = [mx.nd.zeros((2, 2)), mx.nd.zeros((1, 2))]
        _load_general([mx.nd.ones((3, 2))], [[(slice(0, 2), targets[0]), (slice(2, 3), targets[1])]])
        assert all((t == 1).asnumpy().all() for t in targets)
        assert _indent("a\\nb", 2) == "a\\n  b" and _brief_print_list(range(9), 4) == "'0', '1', ..., '7', '8'"
        assert _infer_weight_shape("Convolution", (0, 3, 0, 0), {"kernel": (3, 3), "num_filter": 8})[1] == (8, 3, 3, 3)
        pool = _Pooling((2, 2), None, 0, False, False, "avg", "NCHW")
        assert pool(mx.nd.ones((1, 1, 4, 4))).shape == (1, 1, 2, 2)
        block = _make_dense_block(2, 4, 3, 0, 1)
        block.initialize()
        assert block(mx.nd.ones((1, 5, 4, 4))).shape == (1, 11, 4, 4)
    """)
