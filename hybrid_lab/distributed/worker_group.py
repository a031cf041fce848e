"""Group: the workers of one training, joined by torch.distributed, and their common operations."""

from __future__ import annotations

import atexit
import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import EngineUnavailable, SettingError
from hybrid_lab.diagnostics.formatting import first_line

from . import launchers
from .errors import WorkerLostError, WorkersError, WorkerTimeoutError
from .launchers import WorkerIdentity
from .watch import Watch

TIMEOUT = 600.0
"""Seconds to wait for workers that are alive. `HYBRID_LAB_WORKERS_TIMEOUT` sets another number."""
START_TIMEOUT = 120.0
"""Seconds in which all workers must have started."""
_LOOK = 0.25
"""Seconds between two looks at who is lost, while a worker waits for the others."""
_POLL = 0.02
"""Seconds between two looks of rank 0 for workers that have not come yet."""
_NAMING = 2.0
"""Seconds to wait for the name of the worker that a broken connection belongs to."""

joining: list[Callable[[], None]] = []
"""Called before this process joins others; one that raises prevents it."""
_group: Group | None = None


class Pending:
    """A sum or a copy between workers that is under way; `wait` ends it."""

    __slots__ = ("_group", "_work")

    def __init__(self, group: Group, work: Any) -> None:
        self._group, self._work = group, work

    def wait(self) -> None:
        """Wait for the end. Raises WorkerLostError, WorkerTimeoutError."""
        if self._work is not None:
            self._group._wait(self._work)
            self._work = None


class Channel:
    """Sums that the workers compute beside their other exchanges, and in an order of their own."""

    def __init__(self, group: Group, joined: Any) -> None:
        self._group, self._joined, self._joinings = group, joined, group.joinings

    @property
    def left(self) -> bool:
        """Whether the workers have joined anew, or left, since it was made: it exchanges nothing then."""
        return self._joinings != self._group.joinings

    @property
    def broken(self) -> bool:
        """Whether it can no longer exchange anything."""
        return self.left or self._group.broken

    def sum(self, tensor: Any) -> Pending:
        """Begin to replace a tensor by its sum over all workers."""
        return self._group._begin("all_reduce", tensor, group=self._joined)


class Group:
    """The workers of a training. `group()` returns this process's group.

    identity : which worker this is; backend : "gloo", or with GPUs "cpu:gloo,cuda:nccl"
    joinings : how often they have joined, or left
    """

    def __init__(self, identity: WorkerIdentity, backend: str, watch: Watch | None) -> None:
        self.identity, self.backend = identity, backend
        self._watch, self._failure = watch, ""
        self.joinings = 1
        self._timeout = _timeout()

    @property
    def rank(self) -> int:
        """The number of this worker among all."""
        return self.identity.rank

    @property
    def size(self) -> int:
        """How many workers train."""
        return self.identity.size

    def __repr__(self) -> str:
        return f"Group(rank {self.rank} of {self.size}, {self.backend}, started by {self.identity.launcher})"

    # -- what all workers do together ----------------------------------------------------------------------------

    def sum(self, memory: Any) -> Pending:
        """Begin to replace memory by its sum over all workers: a NumPy array, or a tensor on a GPU."""
        return self._begin("all_reduce", tensor_of(memory))

    def broadcast(self, memory: Any, source: int = 0) -> Pending:
        """Begin to replace memory by the memory of one worker."""
        return self._begin("broadcast", tensor_of(memory), source)

    def channel(self) -> Channel:
        """A Channel; all workers call it."""
        import torch.distributed as dist

        self._check()
        try:
            return Channel(self, dist.new_group(timeout=_backend_timeout()))
        except RuntimeError as error:
            raise self._broken(error) from None

    def gather(self, data: object) -> list[Any]:
        """Data that JSON can hold, of all workers in the order of their ranks."""
        own = np.frombuffer(json.dumps(data).encode(), np.uint8)
        sizes = np.zeros(self.size, np.int64)
        sizes[self.rank] = own.size
        self.sum(sizes).wait()
        parts = np.zeros((self.size, max(int(sizes.max()), 1)), np.uint8)
        parts[self.rank, : own.size] = own
        self.sum(parts).wait()
        return [json.loads(part[:size].tobytes()) for part, size in zip(parts, sizes, strict=True)]

    def barrier(self) -> None:
        """Wait until all workers are here. Raises WorkerLostError, WorkerTimeoutError."""
        self.sum(np.zeros(1, np.uint8)).wait()

    # -- faults --------------------------------------------------------------------------------------------------

    def _begin(self, call: str, tensor: Any, *arguments: Any, **options: Any) -> Pending:
        import torch.distributed as dist

        self._check()
        if self.size == 1:
            return Pending(self, None)
        try:
            return Pending(self, getattr(dist, call)(tensor, *arguments, **options, async_op=True))
        except RuntimeError as error:
            raise self._broken(error) from None

    def _wait(self, work: Any) -> None:
        start, ended = time.monotonic(), False
        try:
            while True:
                try:
                    work.wait(timedelta(seconds=_LOOK))
                    ended = True
                    return
                except RuntimeError:
                    if work.is_completed():
                        ended = True
                        try:
                            work.wait()  # it may have ended well just after the time was up
                        except RuntimeError as error:
                            raise self._broken(error) from None
                        return
                self._check()
                if time.monotonic() - start > self._timeout:
                    ended = True
                    raise self._late()
        finally:
            # an interrupt: the data that the other workers get now belong to nothing
            if not ended and not self._failure:
                self._failure = "an exchange between the workers was interrupted"

    def _check(self) -> None:
        """Raise if the workers can no longer exchange anything."""
        watch = self._watch
        if watch is not None and (watch.lost or watch.ended):
            raise self._lost()
        if self._failure:
            raise WorkersError(f"{self._failure}; start the workers again")

    def _lost(self) -> WorkerLostError:
        assert self._watch is not None
        gone = self._watch.lost or self._watch.ended
        why = self._watch.why
        names = ", ".join(
            f"rank {rank} on {host or 'its machine'}" + (f" ({why[rank]})" if rank in why else "")
            for rank, host in sorted(gone.items())
        )
        failed = any(rank in why for rank in gone)
        how = "was lost" if self._watch.lost else "failed" if failed else "has ended its program"
        self._failure = f"a worker {how}: {names}"
        return WorkerLostError(
            f"{self._failure}. The others cannot go on without it; start the workers again, and continue from the "
            "newest checkpoint",
            [*gone],
            [*gone.values()],
        )

    def _broken(self, error: RuntimeError) -> WorkersError:
        """The error for a connection that broke: it names the lost worker if that is known in time."""
        watch = self._watch
        if watch is not None:
            watch.changed.wait(_NAMING)
            if watch.lost or watch.ended:
                return self._lost()
        self._failure = f"a connection between the workers broke ({first_line(error)[:200]})"
        return WorkerLostError(f"{self._failure}. Start the workers again, and continue from the newest checkpoint")

    def _late(self) -> WorkerTimeoutError:
        self._failure = f"rank {self.rank} waited {self._timeout:g} s for the other workers"
        return WorkerTimeoutError(
            f"{self._failure}. They are alive but did not take part: they compute for longer than that, or their code "
            "differs (another number of batches, a branch on the rank). HYBRID_LAB_WORKERS_TIMEOUT sets the seconds"
        )

    @property
    def broken(self) -> bool:
        """Whether this worker can no longer exchange anything with the other workers."""
        watch = self._watch
        return bool(self._failure) or (watch is not None and bool(watch.lost or watch.ended))

    def rejoin(self) -> None:
        """Join the same workers again after an interrupted exchange, at the new MASTER_PORT. All workers call it.
        Raises WorkersError if not all come in time.
        """
        self._leave()
        port = int(os.environ["MASTER_PORT"])
        self.identity = self.identity._replace(port=port)
        self._watch, self._failure = _connect(self.identity, self.backend), ""

    def close(self) -> None:
        """Leave the group: the process may then end, or start another one."""
        global _group
        self._leave()
        if _group is self:
            _group = None

    def _leave(self) -> None:
        import torch.distributed as dist

        self.joinings += 1
        if self._watch is not None:
            error = getattr(sys, "last_value", None)
            self._watch.close("" if error is None else f"{type(error).__name__}: {first_line(error)}")
        if dist.is_initialized():
            dist.destroy_process_group()


def group() -> Group | None:
    """The group of this process; None before `start`."""
    return _group


def joined_workers() -> tuple[int, int]:
    """(the number of this worker, how many have joined); (0, 1) for a process alone."""
    return (0, 1) if _group is None else (_group.rank, _group.size)


def start() -> Group:
    """Join the other workers, as the launcher's environment says, or torch.distributed if it is initialized.

    Returns the same Group at the next call. Raises WorkersError if no launcher started this process or if not all
    workers come in time, EngineUnavailable without torch.
    """
    global _group
    if _group is None:
        _group = _start()
        atexit.register(_leave)
    return _group


def _leave() -> None:
    if _group is not None:
        _group.close()


def _start() -> Group:
    dist = _torch_distributed()
    if dist.is_initialized():
        for ready in joining:
            ready()
        local = launchers.worker_identity({**os.environ, "MASTER_ADDR": "unknown", "MASTER_PORT": "1"})
        rank, size = dist.get_rank(), dist.get_world_size()
        local_rank, local_size = (0, 1) if local is None else (local.local_rank, local.local_size)
        joined = WorkerIdentity(rank, size, local_rank, local_size, "", 0, "torch.distributed")
        return Group(joined, dist.get_backend(), None)
    if launchers.serves_only(os.environ):
        print("hybrid_lab: gradients are summed by the workers themselves; this server ends")
        raise SystemExit(0)
    identity = launchers.worker_identity(os.environ)
    if identity is None:
        raise WorkersError(
            f"this process has no other workers: no launcher started it. Start the script by: {launchers.START}. In a "
            "notebook: mx.lab.workers(2)"
        )
    return join(identity)


def join(identity: WorkerIdentity) -> Group:
    """Join the workers as the given one. Raises WorkersError if not all come in time."""
    for ready in joining:
        ready()
    _torch_distributed()
    backend = _backend(identity)
    return Group(identity, backend, _connect(identity, backend))


def _connect(identity: WorkerIdentity, backend: str) -> Watch | None:
    """Join the other workers; returns the watch over them, or None without other workers."""
    dist = _torch_distributed()
    if identity.local_size == identity.size:
        # gloo may choose an interface that a firewall closes; on one machine none is needed.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", _loopback())
    os.environ.update(
        RANK=str(identity.rank),
        WORLD_SIZE=str(identity.size),
        MASTER_ADDR=identity.address,
        MASTER_PORT=str(identity.port),
    )
    os.environ.setdefault("LOCAL_RANK", str(identity.local_rank))
    # NCCL's own watch over its threads would end a process that waits for longer.
    os.environ.setdefault("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", str(int(_backend_timeout().total_seconds())))
    limit = timedelta(seconds=START_TIMEOUT)
    try:
        store, _, _ = next(dist.rendezvous("env://", timeout=limit))
        store.set_timeout(limit)
        name = "hybrid_lab"
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and identity.size > 1:
            name += _name_of_attempt(dist.PrefixStore("hybrid_lab.attempts", store), identity)
        dist.init_process_group(
            backend,
            store=dist.PrefixStore(name, store),
            rank=identity.rank,
            world_size=identity.size,
            timeout=_backend_timeout(),
        )
        ours = dist.PrefixStore(f"{name}.watch", store)
        if identity.rank == 0:
            ours.set("token", secrets.token_hex(16))
        if identity.size == 1:
            return None
        return Watch(identity.rank, identity.size, ours, identity.address, ours.get("token").decode())
    except (RuntimeError, OSError, ValueError) as error:
        raise WorkersError(
            f"rank {identity.rank} of {identity.size} did not find the others at {identity.address}:{identity.port} "
            f"within {START_TIMEOUT:g} s ({first_line(error)[:200]}). Each worker must be able to reach "
            "that address"
        ) from None


def _name_of_attempt(store: Any, identity: WorkerIdentity) -> str:
    """A name shared by the workers of this attempt and by no earlier workers: torchrun's store outlives its workers,
    and keeps the addresses of replaced workers.

    Each worker asks with a number of its own, and waits for the answer to it, which only a rank 0 that runs now gives.
    """
    if identity.rank:
        own = secrets.token_hex(8)
        store.set(f"ask.{identity.rank}", own)
        name: str = store.get(f"answer.{own}").decode()
        store.set(f"{name}.{identity.rank}", "")
        return name
    name, limit = secrets.token_hex(8), time.monotonic() + START_TIMEOUT
    missing = set(range(1, identity.size))
    while missing:
        for rank in sorted(missing):
            if store.check([f"ask.{rank}"]):
                store.set(f"answer.{store.get(f'ask.{rank}').decode()}", name)
        missing = {rank for rank in missing if not store.check([f"{name}.{rank}"])}
        if missing and time.monotonic() > limit:
            raise WorkersError(f"rank 0 waited for {len(missing)} other workers, of which rank {min(missing)} is one")
        time.sleep(_POLL if missing else 0)
    return name


def _torch_distributed() -> Any:
    try:
        import torch.distributed as dist
    except ImportError:
        raise EngineUnavailable("training in several processes needs torch: pip install 'hybrid-lab[dist]'") from None
    if not dist.is_available():
        raise EngineUnavailable("this build of torch has no torch.distributed")
    return dist


def _backend(identity: WorkerIdentity) -> str:
    import torch

    if not torch.cuda.is_available():
        return "gloo"
    if identity.local_rank < torch.cuda.device_count():
        torch.cuda.set_device(identity.local_rank)  # which is gpu(0) of this process from now on
    return "cpu:gloo,cuda:nccl"


def _timeout() -> float:
    text = os.environ.get("HYBRID_LAB_WORKERS_TIMEOUT", "")
    if not text:
        return TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise SettingError(f"HYBRID_LAB_WORKERS_TIMEOUT is {text!r}; it is a number of seconds above 0")
    return seconds


def _backend_timeout() -> timedelta:
    """When gloo and NCCL give up by themselves, which ends the process in NCCL's case: after this package has."""
    return timedelta(seconds=max(2 * _timeout(), 60))


def _loopback() -> str:
    names: Sequence[tuple[int, str]] = socket.if_nameindex() if hasattr(socket, "if_nameindex") else ()
    return next((name for _, name in names if name in ("lo", "lo0")), "lo")


def tensor_of(memory: Any) -> Any:
    """A NumPy array as a tensor over the same memory; a tensor unchanged."""
    import torch

    if not isinstance(memory, np.ndarray):
        return memory
    if memory.dtype.name == "bfloat16":
        return torch.from_numpy(memory.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(memory)
