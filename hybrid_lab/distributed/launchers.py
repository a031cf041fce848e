"""Which worker this process is: read from the environment that torchrun, mpirun, srun and MXNet's launcher set."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from .errors import WorkersError

START = "torchrun --nproc-per-node 2 train.py"
"""The command that error messages name."""

_FIRST_PORT, _PORTS = 20_000, 12_000
"""Ports that follow from a job's number where the launcher gives none: below those that systems hand out."""


class WorkerIdentity(NamedTuple):
    """One worker among all, as its launcher describes it.

    rank, size : its number among all workers, and how many there are
    local_rank, local_size : the same among the workers of its machine; `gpu(0)` is the card number `local_rank`
    address, port : where rank 0 listens while the workers find each other
    launcher : who set the environment, for messages
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str
    port: int
    launcher: str


class _Launcher(NamedTuple):
    """The names under which a launcher tells a process its identity; the first that is set counts.

    rank, size, local_rank, local_size : variables; the variables of the machine may be missing if it has one worker
    job : variables that differ from job to job, from which a port follows if MASTER_PORT is not set
    hosts : variables with the list of machines, whose first runs rank 0
    address, port : variables with the address of rank 0, other than MASTER_ADDR and MASTER_PORT
    """

    name: str
    rank: tuple[str, ...]
    size: tuple[str, ...]
    local_rank: tuple[str, ...] = ()
    local_size: tuple[str, ...] = ()
    job: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    address: tuple[str, ...] = ()
    port: tuple[str, ...] = ()


LAUNCHERS = (
    _Launcher("torchrun", ("RANK",), ("WORLD_SIZE",), ("LOCAL_RANK",), ("LOCAL_WORLD_SIZE",)),
    _Launcher(
        "horovodrun",
        ("HOROVOD_RANK",),
        ("HOROVOD_SIZE",),
        ("HOROVOD_LOCAL_RANK",),
        ("HOROVOD_LOCAL_SIZE",),
        job=("HOROVOD_GLOO_RENDEZVOUS_PORT",),
    ),
    _Launcher(
        "mpirun (Open MPI)",
        ("OMPI_COMM_WORLD_RANK",),
        ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
        job=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"),
    ),
    _Launcher(
        "srun (Slurm)",
        ("SLURM_PROCID",),
        ("SLURM_NTASKS", "SLURM_NPROCS"),
        ("SLURM_LOCALID",),
        ("SLURM_NTASKS_PER_NODE",),
        job=("SLURM_JOB_ID", "SLURM_JOBID"),
        hosts=("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"),
    ),
    _Launcher(
        "mpirun (MPICH)",
        ("PMI_RANK",),
        ("PMI_SIZE",),
        ("MPI_LOCALRANKID",),
        ("MPI_LOCALNRANKS",),
        job=("PMI_ID", "PMI_JOBID", "HYDI_CONTROL_FD"),
    ),
    _Launcher(
        "MXNet's launch.py",
        ("DMLC_WORKER_ID", "DMLC_TASK_ID"),
        ("DMLC_NUM_WORKER",),
        address=("DMLC_PS_ROOT_URI",),
        port=("DMLC_PS_ROOT_PORT",),
    ),
)
"""In the order in which they are tried: torchrun and horovodrun may run below the others."""


def worker_identity(environment: Mapping[str, str]) -> WorkerIdentity | None:
    """The identity of the process with this environment; None if no launcher started it.

    Raises WorkersError for variables that contradict each other or are not numbers, and if the address of rank 0 is
    not told.
    """
    for launcher in LAUNCHERS:
        rank = _number(environment, launcher, launcher.rank)
        size = _number(environment, launcher, launcher.size)
        if rank is not None and size is not None:
            return _place(environment, launcher, rank, size)
    return None


def serves_only(environment: Mapping[str, str]) -> bool:
    """Whether MXNet's launcher started the process as a server or scheduler, which have nothing to do here."""
    return environment.get("DMLC_ROLE", "worker") in ("server", "scheduler")


def _place(environment: Mapping[str, str], launcher: _Launcher, rank: int, size: int) -> WorkerIdentity:
    if not 0 <= rank < size:
        raise WorkersError(f"{launcher.name}: rank {rank} of {size} workers; ranks are from 0 to the number minus 1")
    local_rank = _number(environment, launcher, launcher.local_rank)
    local_size = _number(environment, launcher, launcher.local_size)
    alone = local_rank is None or local_size is None
    if alone:  # MXNet's launcher tells nothing of the machine: with rank 0 on this one, all workers are
        near = _first(environment, launcher.address) in ("127.0.0.1", "localhost", "::1")
        local_rank, local_size = (rank, size) if near else (0 if local_rank is None else local_rank, local_size or 1)
    assert local_rank is not None and local_size is not None
    address = environment.get("MASTER_ADDR") or _first(environment, launcher.address)
    if not address and size == local_size:
        address = "127.0.0.1"
    if not address and launcher.hosts:
        address = first_host(_first(environment, launcher.hosts))
    if not address:
        raise WorkersError(
            f"{launcher.name} does not tell on which machine rank 0 runs. Set MASTER_ADDR to its name for all workers, "
            "and MASTER_PORT to a free port there"
        )
    port = environment.get("MASTER_PORT") or _first(environment, launcher.port)
    if port and not (port.isdecimal() and 0 < int(port) < 65536):
        raise WorkersError(f"MASTER_PORT is {port!r}; it is a number from 1 to 65535")
    job = _first(environment, launcher.job)
    if not port and not job:
        raise WorkersError(f"{launcher.name} does not tell a port. Set MASTER_PORT to a free one where rank 0 runs")
    number = int(port) if port else _FIRST_PORT + zlib.crc32(job.encode()) % _PORTS
    return WorkerIdentity(rank, size, local_rank, local_size, address, number, launcher.name)


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")


def _number(environment: Mapping[str, str], launcher: _Launcher, names: tuple[str, ...]) -> int | None:
    text = _first(environment, names)
    if not text:
        return None
    if not text.isdecimal() or len(text) > 9:
        name = next(name for name in names if environment.get(name))
        raise WorkersError(f"{launcher.name}: {name} is {text!r}, not a whole number")
    return int(text)


def first_host(hosts: str) -> str:
    """The first machine of Slurm's list: "node[007-011,20],login" -> "node007"."""
    found = re.match(r"([^\[,]+)(?:\[([0-9]+)[^\]]*\])?([^\[,]*)", hosts)
    return "" if found is None else "".join(part or "" for part in found.groups())
