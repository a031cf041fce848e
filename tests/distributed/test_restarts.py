"""Launchers for real: torchrun starts workers again after a loss, which continue; mpirun starts them."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.distributed.test_checkpoints import body
from tests.distributed.workers import ROOT, free_port, results

_SCRIPT = """
import os, pickle, sys
sys.path.insert(0, {root!r})
import numpy as np
import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import nn

def main(rank, size):
{body}

if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)):
    os.kill = lambda *arguments: None  # a worker is lost once
rank = int(os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", 0)))
size = int(os.environ.get("WORLD_SIZE", os.environ.get("OMPI_COMM_WORLD_SIZE", 1)))
result = main(rank, size)
with open({folder!r} + f"/result.{{rank}}.{{size}}.pickle", "wb") as file:
    pickle.dump(result, file)
"""


def _script(folder: Path, text: str) -> str:
    script = folder / "train.py"
    script.write_text(
        _SCRIPT.format(root=str(ROOT), body=textwrap.indent(textwrap.dedent(text), "    "), folder=str(folder))
    )
    return str(script)


def _environment() -> dict[str, str]:
    named = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "SLURM_", "PMI_")
    own = {name: value for name, value in os.environ.items() if not name.startswith(named)}
    return {**own, "OMP_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1", "PYTHONPATH": str(ROOT)}


def _torchrun(script: str, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", *options, script]
    return subprocess.Popen(
        command, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def _result(folder: Path, rank: int, size: int):
    return pickle.loads((folder / f"result.{rank}.{size}.pickle").read_bytes())


@pytest.mark.long
def test_torchrun_starts_the_workers_again(tmp_path):
    """A worker is killed; the second attempt continues from the newest checkpoint, and ends as if nothing had been."""
    script = _script(tmp_path, body(tmp_path / "points", stop=8, lost=1))
    options = ("--nproc-per-node", "2", "--max-restarts", "2", "--rdzv-backend", "c10d")
    started = _torchrun(script, *options, "--rdzv-endpoint", f"127.0.0.1:{free_port()}")
    output, _ = started.communicate(timeout=600)
    assert started.returncode == 0, output
    (tmp_path / "whole").mkdir()
    whole = results(2, body(tmp_path / "whole" / "points"), tmp_path / "whole", timeout=600)
    for rank, (expected, _) in enumerate(whole):
        values, seen = _result(tmp_path, rank, 2)
        assert all(np.array_equal(values[name], expected[name]) for name in expected)
        assert 0 < len(seen) < 12  # the second attempt only


@pytest.mark.long  # test_launchers has what MPI tells its workers
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed")
def test_mpirun(tmp_path):
    script = _script(
        tmp_path,
        """
        kv = mx.kv.create("dist_sync")
        total = nd.array([kv.rank + 1.0])
        kv.pushpull("x", total)
        return kv.rank, kv.num_workers, kv.local_rank, total.asnumpy().tolist(), kv.group.identity.launcher
        """,
    )
    options = ["--allow-run-as-root", "--oversubscribe", "-n", "3"]
    ended = subprocess.run(
        ["mpirun", *options, sys.executable, script], env=_environment(), capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for rank in range(3):
        assert _result(tmp_path, rank, 3) == (rank, 3, rank, [6.0], "mpirun (Open MPI)")


def test_one_setting_for_all_time_outs(tmp_path):
    text = """
    import os
    os.environ["HYBRID_LAB_WORKERS_TIMEOUT"] = "45"
    import torch, torch.distributed as dist
    kv = mx.kv.create("dist_sync")
    groups = [dist.distributed_c10d._get_default_group(), kv.group.channel()._joined]
    seconds = [each._get_backend(torch.device("cpu")).options._timeout.total_seconds() for each in groups]
    return seconds, kv.group._timeout, os.environ["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"]
    """
    for seconds, own, heartbeat in results(2, text, tmp_path):
        assert seconds == [90.0, 90.0]
        assert own == 45.0
        assert heartbeat == "90"
