"""Each launcher's environment gives the place of a worker; what is missing or wrong is told."""

from __future__ import annotations

import pytest

from hybrid_lab.distributed.errors import WorkersError
from hybrid_lab.distributed.launchers import LAUNCHERS, first_host, serves_only, worker_identity

MASTER = {"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
CASES = {
    "torchrun": ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", **MASTER}, (3, 8, 1, 2)),
    "horovodrun": (
        {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "2", **MASTER},
        (1, 2, 1, 2),
    ),
    "mpirun (Open MPI)": (
        {
            "OMPI_COMM_WORLD_RANK": "5",
            "OMPI_COMM_WORLD_SIZE": "6",
            "OMPI_COMM_WORLD_LOCAL_RANK": "2",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "3",
            **MASTER,
        },
        (5, 6, 2, 3),
    ),
    "srun (Slurm)": (
        {"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0", "SLURM_NTASKS_PER_NODE": "2", **MASTER},
        (2, 4, 0, 2),
    ),
    "mpirun (MPICH)": (
        {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2", **MASTER},
        (0, 2, 0, 2),
    ),
    "MXNet's launch.py": (
        {
            "DMLC_ROLE": "worker",
            "DMLC_TASK_ID": "1",
            "DMLC_NUM_WORKER": "3",
            "DMLC_NUM_SERVER": "1",
            "DMLC_PS_ROOT_URI": "127.0.0.1",
            "DMLC_PS_ROOT_PORT": "9091",
        },
        (1, 3, 1, 3),
    ),
}


def test_every_launcher_has_a_case():
    assert CASES.keys() == {each.name for each in LAUNCHERS}


@pytest.mark.parametrize("name", CASES)
def test_place(name):
    variables, expected = CASES[name]
    found = worker_identity(variables)
    assert found is not None
    assert found[:4] == expected
    assert found.launcher == name


@pytest.mark.parametrize("name", ["mpirun (Open MPI)", "mpirun (MPICH)", "horovodrun"])
def test_on_one_machine_no_address_is_needed(name):
    variables = {key: value for key, value in CASES[name][0].items() if key not in MASTER}
    launcher = next(each for each in LAUNCHERS if each.name == name)
    on_one = {launcher.local_size[0]: variables[launcher.size[0]], launcher.job[0]: "a job"}
    found = worker_identity({**variables, **on_one})
    assert found.address == "127.0.0.1"
    assert 20_000 <= found.port < 32_000
    assert worker_identity({**variables, **on_one, launcher.job[0]: "another"}).port != found.port


def test_slurm_names_the_first_machine():
    variables = {"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "17"}
    found = worker_identity({**variables, "SLURM_STEP_NODELIST": "gpu[007-008,12],login"})
    assert found.address == "gpu007"


@pytest.mark.parametrize(
    ("hosts", "first"),
    [("a", "a"), ("a,b", "a"), ("n[1-4]", "n1"), ("n[01,04]x,b", "n01x"), ("n[3],m[1-2]", "n3"), ("", "")],
)
def test_first_host(hosts, first):
    assert first_host(hosts) == first


def test_without_a_launcher_there_is_no_place():
    assert worker_identity({}) is None
    assert worker_identity({"RANK": "1"}) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"RANK": "x"}, "RANK is 'x'"),
        ({"RANK": "8"}, "rank 8 of 8"),
        ({"WORLD_SIZE": "-1"}, "WORLD_SIZE is '-1'"),
        ({"MASTER_PORT": "http"}, "MASTER_PORT is 'http'"),
        ({"MASTER_PORT": "0"}, "MASTER_PORT is '0'"),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR"),
        ({"MASTER_PORT": ""}, "MASTER_PORT"),
    ],
)
def test_wrong_variables_are_named(changes, message):
    with pytest.raises(WorkersError, match=message):
        worker_identity({**CASES["torchrun"][0], **changes})


def test_servers_of_mxnets_launcher_have_nothing_to_do():
    assert serves_only({"DMLC_ROLE": "server"})
    assert serves_only({"DMLC_ROLE": "scheduler"})
    assert not serves_only({"DMLC_ROLE": "worker"})
    assert not serves_only({})
