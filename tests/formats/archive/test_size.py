"""Archives of many Blocks and of large ones: work that grows with the number of Blocks, memory for one model only."""

import gc
import os
import sys
import time
import tracemalloc
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.formats import atomic, background
from hybrid_lab.formats.archive import container
from hybrid_lab.formats.archive.container import Container, ContainerWriter
from hybrid_lab.gluon import nn


class Scaled(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.fc = nn.Dense(3, in_units=3)

    def hybrid_forward(self, F, x):
        return self.fc(x) * F.array([0.5, 0.25, 1.0])


def model(count):
    net = nn.HybridSequential()
    for _ in range(count):
        net.add(Scaled())
    net.initialize()
    net.hybridize(engine="numpy")
    return net


def lines_of(function):
    """How many lines of Python run, loops counted by each of their rounds."""
    count = 0

    def look(frame, event, argument):
        nonlocal count
        count += event == "line"
        return look

    before = sys.gettrace()
    gc.collect()
    gc.disable()  # a collection runs the finalizers of other tests' models
    sys.settrace(look)
    try:
        function()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


@pytest.mark.long
def test_work_grows_with_the_number_of_blocks_not_with_its_square(tmp_path):
    x = mx.nd.ones((2, 3))
    found = {}
    for count in (1, 20, 40, 60):  # the first warms what is made once
        net, other = model(count), model(count)
        path = tmp_path / f"{count}.hlab"
        steps = {
            "first call": lambda net=net: net(x),
            "save": lambda net=net, path=path: net.save(path),
            "load": lambda other=other, path=path: other.load(path),
            "load graphs": lambda other=other, path=path: other.load(path, graphs="file"),
            "open": lambda path=path: gluon.load(path),
        }
        found[count] = {name: lines_of(step) for name, step in steps.items()}
        loaded = gluon.load(path)
        found[count]["first call of the loaded model"] = lines_of(lambda loaded=loaded: loaded(x))
        assert np.array_equal(loaded(x).asnumpy(), net(x).asnumpy())
    for name, lines in found[60].items():
        limit = 1.1 if "call" in name else 1.005
        assert lines - found[40][name] < limit * (found[40][name] - found[20][name]), name
    assert found[60]["first call of the loaded model"] <= found[60]["first call"]


@pytest.mark.parametrize("layers", [1, 16])
def test_saving_and_loading_hold_the_model_once(tmp_path, layers):
    size = 32 << 20
    width = int((size / 4 / layers) ** 0.5)
    net = nn.HybridSequential()
    for _ in range(layers):
        net.add(nn.Dense(width, in_units=width, use_bias=False))
    net.initialize()
    net.collect_params().setattr("grad_req", "null")
    net.hybridize(engine="numpy")
    net(mx.nd.ones((1, width)))
    path = tmp_path / "m.hlab"
    kept = []
    limits = {"save": 0.1, "load": 1.1, "open": 1.1}
    steps = {
        "save": lambda: net.save(path),
        "load": lambda: net.load(path),
        "open": lambda: kept.append(gluon.load(path)),
    }
    for name, step in steps.items():
        tracemalloc.start()
        try:
            step()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < limits[name] * size, name


def test_a_save_waits_for_threads_that_hash_slowly(tmp_path, monkeypatch):
    """It held a copy of the whole model when other processes took the processors from the threads."""

    class Slow:
        def update(self, block):
            time.sleep(0.001 * len(block) / background.BLOCK)

        def hexdigest(self):
            return "0" * 64

    monkeypatch.setattr(container, "hashlib", types.SimpleNamespace(sha256=lambda *given: Slow()))
    arrays = {str(index): np.zeros((1 << 19,), "f4") for index in range(32)}
    tracemalloc.start()
    try:
        with open(tmp_path / "a", "w+b") as file:
            ContainerWriter(file).add_tensors("w", arrays)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


def test_arrays_that_are_not_in_order_are_copied_one_by_one(tmp_path):
    arrays = {str(index): np.arange(1 << 20, dtype="f8").reshape(1024, 1024).T + 0.0 for index in range(8)}
    arrays = {name: array.T for name, array in arrays.items()}
    tracemalloc.start()
    try:
        with open(tmp_path / "a", "w+b") as file:
            writer = ContainerWriter(file)
            writer.add_tensors("w", {name: array[::-1] for name, array in arrays.items()})
            writer.finish({})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 48 << 20  # four threads and the writer have a copy each
    archive = Container.open(tmp_path / "a")
    archive.verify()
    assert np.array_equal(archive.tensors("w")["3"], arrays["3"][::-1])


def test_threads_write_the_same_bytes_and_find_the_same_damage(tmp_path, monkeypatch):
    net = model(2)
    net(mx.nd.ones((1, 3)))
    plain = net.save(tmp_path / "plain.hlab")
    monkeypatch.setattr(background, "WORTH_THREADS", 0)
    monkeypatch.setattr(background, "WORTH_A_TASK", 0)
    threads = net.save(tmp_path / "threads.hlab")
    data = (tmp_path / "plain.hlab").read_bytes()
    assert plain != threads and (tmp_path / "threads.hlab").read_bytes() == data
    assert net.load(threads).graphs
    start = data.index(b"weights.safetensors")
    for position in range(start, start + 1200, 31):
        (tmp_path / "bad.hlab").write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        with pytest.raises(ArchiveError):
            net.load(tmp_path / "bad.hlab")


@pytest.mark.parametrize("order", ["followed", "refused"])
def test_large_files_are_sent_to_the_disk_early_and_have_the_same_bytes(order, tmp_path, monkeypatch):
    net = model(2)
    net(mx.nd.ones((1, 3)))
    data = Path(net.save(tmp_path / "whole.hlab")).read_bytes()
    monkeypatch.setattr(atomic, "LARGE", 0)
    monkeypatch.setattr(atomic, "_PIECE", 10)
    sent = []

    def order_to_disk(descriptor, start, size, *advice):
        if order == "refused":
            raise OSError(95, "Operation not supported")
        sent.append(size)

    monkeypatch.setattr(os, "posix_fadvise", order_to_disk, raising=False)
    if order == "refused":
        monkeypatch.setattr(os, "posix_fallocate", order_to_disk, raising=False)
    assert Path(net.save(tmp_path / "pieces.hlab")).read_bytes() == data
    assert order == "refused" or sys.platform != "linux" or (min(sent) >= 10 and sum(sent) > len(data) / 10)


def test_small_tensors_of_a_large_archive_are_left_to_the_caller_s_thread(tmp_path, monkeypatch):
    """Handing each of them to a thread took longer than its work, six times as long for 20,000 tensors of a KiB."""
    monkeypatch.setattr(background, "WORTH_THREADS", 1 << 20)
    tasks = []

    class Pool(ThreadPoolExecutor):
        def submit(self, *arguments):
            tasks.append(arguments)
            return super().submit(*arguments)

    monkeypatch.setattr(background, "thread_pool", Pool)
    arrays = {str(index): np.full((64,), index, "f4") for index in range(5000)}
    arrays |= {"large": np.ones((background.WORTH_A_TASK // 8,), "f8")}
    with open(tmp_path / "a", "w+b") as file:
        writer = ContainerWriter(file)
        writer.add_tensors("w", arrays)
        writer.finish({})
    assert len(tasks) == 1
    found = Container.open(tmp_path / "a").read_tensors("w")
    assert found.keys() == arrays.keys() and all(np.array_equal(found[name], arrays[name]) for name in arrays)
