"""Saves while another thread writes to the arrays of the model: the file is intact."""

import threading

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.formats.archive.summary import verify
from hybrid_lab.gluon import nn


@pytest.mark.parametrize("writes_in_main", [False, True])
def test_a_file_is_intact_whoever_writes_to_the_arrays(tmp_path, writes_in_main):
    net = nn.HybridSequential()
    net.add(nn.Dense(900, in_units=900), nn.BatchNorm(in_channels=900))
    net.initialize()
    net.hybridize(engine="numpy")
    x = nd.ones((2, 900))
    trainer = gluon.Trainer(net.collect_params(), "adam")
    with autograd.record():
        loss = net(x).sum()
    loss.backward()
    trainer.step(1)
    _, arrays = trainer.get_states()
    aux = {"mine": nd.zeros((900, 900))}
    ended, files = threading.Event(), [tmp_path / f"{number}.hlab" for number in range(3)]

    def write():
        while not ended.is_set():
            with autograd.record():
                net(x)
            for array in [aux["mine"], *(parameter.data() for parameter in net.collect_params().values())]:
                array += 1
            for array in arrays.values():
                np.add(array, 1, out=array)

    def save():
        try:
            for file in files:
                net.save(file, trainer=trainer, aux=aux)
            mx.save_cached_graphs(net, tmp_path / "graphs.hlab")
        finally:
            ended.set()

    thread = threading.Thread(target=save if writes_in_main else write)
    thread.start()
    try:
        (write if writes_in_main else save)()
    finally:
        ended.set()
        thread.join()
    for file in [*files, tmp_path / "graphs.hlab"]:
        verify(file)
        gluon.load(file)
