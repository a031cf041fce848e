"""join: an epoch in which workers have different numbers of batches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hybrid_lab.diagnostics.errors import SettingError

from .block import Block
from .trainer import Trainer, trainers
from .worker_gradients import WorkerGradients


@contextlib.contextmanager
def join(*parts: Block | Trainer) -> Iterator[None]:
    """`with mx.distributed.join(net):` around an epoch in which workers have different numbers of batches: a worker
    without further batches takes part in the steps of all, with zeros as gradients, so that no worker waits for ever.

    parts : Trainers, or Blocks whose parameters Trainers update
    Layers that exchange numbers in the forward pass, such as SyncBatchNorm, need the same number of batches: let the
    DistributedSampler fill up the last one, as it does.
    Raises SettingError if no Trainer of several workers is found.
    """
    found: list[tuple[WorkerGradients, Trainer]] = []
    for part in parts:
        own = {id(each) for each in part.collect_params().values()} if isinstance(part, Block) else set()
        for trainer in trainers:
            gradients = trainer._own_store
            takes = trainer is part or any(id(each) in own for each in trainer._params)
            if takes and isinstance(gradients, WorkerGradients):
                found.append((gradients, trainer))
    if not found:
        raise SettingError("join takes a Trainer with kvstore='dist_sync', or a Block that one updates")
    with contextlib.ExitStack() as stack:
        for gradients, trainer in found:
            stack.enter_context(gradients.joined(trainer.step))
        yield
