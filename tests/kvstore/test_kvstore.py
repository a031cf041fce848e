"""Stores of arrays by key, in one process."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab.diagnostics.errors import ArchiveError
from hybrid_lab.kvstore import KVStoreError


@pytest.fixture(params=[3, "weight"])
def key(request):
    return request.param


def test_a_pushed_array_replaces_the_stored_one(key):
    kv = mx.kv.create()
    kv.init(key, mx.nd.zeros((2, 3)))
    kv.push(key, [mx.nd.ones((2, 3)), mx.nd.ones((2, 3), ctx=mx.cpu(1)) * 2])
    out = [mx.nd.zeros((2, 3)), mx.nd.zeros((2, 3), ctx=mx.cpu(1))]
    kv.pull(key, out=out)
    assert all((each.asnumpy() == 3).all() for each in out)


def test_several_keys_at_once():
    kv = mx.kv.create("device")
    kv.init([1, 2], [mx.nd.ones(2), mx.nd.ones(3)])
    out = [mx.nd.zeros(2), mx.nd.zeros(3)]
    kv.pushpull([1, 2], [[mx.nd.ones(2)] * 2, [mx.nd.ones(3)] * 4], out=out)
    assert out[0].asnumpy().tolist() == [2, 2] and out[1].asnumpy().tolist() == [4, 4, 4]


def test_a_function_updates(key):
    kv = mx.kv.create("local")
    kv.init(key, mx.nd.ones(2))
    seen = []

    def update(name, pushed, stored):
        seen.append(name)
        stored += 2 * pushed

    kv.set_updater(update)
    kv.push(key, mx.nd.ones(2))
    kv.push(key, mx.nd.ones(2))
    out = mx.nd.zeros(2)
    kv.pull(key, out)
    assert out.asnumpy().tolist() == [5, 5] and seen == [key, key]


def test_an_optimizer_goes_on_with_saved_states(tmp_path):
    def store():
        kv = mx.kv.create("local")
        kv.init("w", mx.nd.ones(3))
        kv.set_optimizer(mx.optimizer.Adam(learning_rate=0.1))
        return kv

    def value(kv):
        out = mx.nd.zeros(3)
        kv.pull("w", out)
        return out

    first, second = store(), store()
    first.push("w", mx.nd.array([1, 2, 3]))
    first.save_optimizer_states(str(tmp_path / "adam.states"), dump_optimizer=True)
    second._arrays["w"][:] = value(first)
    second.load_optimizer_states(str(tmp_path / "adam.states"))
    for kv in (first, second):
        kv.push("w", mx.nd.array([3, -1, 0]))
    np.testing.assert_array_equal(value(first).asnumpy(), value(second).asnumpy())


def test_states_of_mxnet_are_refused_because_they_are_pickles(tmp_path):
    kv = mx.kv.create()
    kv.set_optimizer(mx.optimizer.SGD())
    path = tmp_path / "mxnet.states"
    path.write_bytes(b"\x80\x04}q\x00.")
    with pytest.raises(ArchiveError, match="pickle"):
        kv.load_optimizer_states(path)
    path.write_bytes(b"nothing")
    with pytest.raises(ArchiveError):
        kv.load_optimizer_states(path)


def test_states_of_another_optimizer_are_refused(tmp_path):
    kv = mx.kv.create()
    with pytest.raises(KVStoreError, match="no optimizer"):
        kv.save_optimizer_states(tmp_path / "states")
    kv.set_optimizer(mx.optimizer.SGD(momentum=0.9))
    kv.save_optimizer_states(tmp_path / "states")
    kv.set_optimizer(mx.optimizer.Adam())
    with pytest.raises(ArchiveError, match="SGD"):
        kv.load_optimizer_states(tmp_path / "states")


def test_keys_are_of_one_kind_and_known(key):
    kv = mx.kv.create()
    kv.init(key, mx.nd.ones(2))
    other = "a" if key == 3 else 5
    for call in (kv.init, kv.push, kv.pull):
        with pytest.raises(mx.MXNetError, match="keys of this store"):
            call(other, mx.nd.ones(2))
    with pytest.raises(KVStoreError, match="already"):
        kv.init(key, mx.nd.ones(2))
    with pytest.raises(KVStoreError, match="call init"):
        kv.pull(4 if key == 3 else "b", mx.nd.ones(2))


def test_rows_are_pulled_into_row_sparse_arrays():
    kv = mx.kv.create()
    kv.init([3, 5], [mx.nd.ones((3, 2)), mx.nd.ones((3, 2)).tostype("row_sparse")])
    outs = [mx.nd.zeros((3, 2), stype="row_sparse") for _ in range(3)]
    kv.row_sparse_pull(
        [3, 5], [outs[:2], outs[2:]], row_ids=[[mx.nd.array([2, 2]), mx.nd.array([0])], mx.nd.array([1])]
    )
    assert [out.indices.asnumpy().tolist() for out in outs] == [[2], [0], [1]]
    with pytest.raises(KVStoreError, match="is default"):
        kv.row_sparse_pull(3, out=mx.nd.ones((3, 2)), row_ids=mx.nd.array([0]))
    with pytest.raises(KVStoreError, match="2 row_ids"):
        kv.row_sparse_pull(3, out=outs[:1], row_ids=[mx.nd.array([0]), mx.nd.array([1])])
    with pytest.raises(mx.MXNetError, match="row_ids="):
        kv.row_sparse_pull(3, out=outs)


def test_what_needs_several_processes_says_so():
    for name in ("dist", "dist_sync", "dist_device_sync", "dist_sync_device", "horovod"):
        with pytest.raises(mx.distributed.WorkersError, match="torchrun --nproc-per-node 2 train.py"):
            mx.kv.create(name)
    for name in ("dist_async", "dist_device_async", "p3", "byteps", "dist_nonsense"):
        with pytest.raises(KVStoreError, match="'dist_sync' sums the gradients of all workers"):
            mx.kv.create(name)
    assert mx.kv.create("nccl").num_workers == 1
    with pytest.raises(KVStoreError, match="local, "):
        mx.kv.create("lokal")
    kv = mx.kv.create("local_allreduce_cpu")
    assert (kv.type, kv.rank, kv.num_workers) == ("local_allreduce_cpu", 0, 1)
    with pytest.raises(KVStoreError, match="not compressed"):
        kv.set_gradient_compression({"type": "2bit"})
