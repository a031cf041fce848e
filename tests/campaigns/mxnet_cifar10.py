"""Run MXNet's example/distributed_training/cifar10_dist.py, which you have, unchanged on several workers of this
machine.

python tests/campaigns/mxnet_cifar10.py cifar10_dist.py [--workers 2] [--steps 5]

The images are made up, in a data folder of their own: of each class another color and a disk at another place. Where
there are no four GPUs, as the example needs in each process, `mx.gpu` names parts of the CPU's memory. After so many
steps the values of all workers are compared, and they end; without --steps they train five epochs, which takes hours on
a CPU.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hybrid_lab.gluon import Trainer

ROOT = Path(__file__).resolve().parents[2]
IN_WORKER = "--worker"
TRAIN, TEST = 50_000, 512
"""Images; the example counts on 50,000."""


def write_images(folder: Path) -> None:
    """The files of CIFAR-10."""
    folder.mkdir(parents=True)
    draws = np.random.RandomState(0)
    rows, columns = np.mgrid[:32, :32]
    for name, count in [*((f"data_batch_{part}.bin", TRAIN // 5) for part in range(1, 6)), ("test_batch.bin", TEST)]:
        labels = draws.randint(0, 10, count)
        images = draws.randint(0, 90, (count, 3, 32, 32), dtype=np.uint8)
        for label in range(10):
            disk = (rows - 8 - 4 * (label % 5)) ** 2 + (columns - 8 - 16 * (label // 5)) ** 2 < 36
            images[labels == label, label % 3] += (160 * disk).astype(np.uint8)
        data = np.concatenate([labels.astype(np.uint8)[:, None], images.reshape(count, -1)], axis=1)
        (folder / name).write_bytes(data.tobytes())


class Steps:
    """Ends the training after a number of steps, if the workers have equal values then."""

    def __init__(self, count: int) -> None:
        self.left, self.began = count, time.monotonic()

    def __call__(self, trainer: Trainer) -> None:
        """A step has ended."""
        from hybrid_lab.distributed import group

        self.left -= 1
        joined = group()
        if self.left or joined is None:
            return
        digest = hashlib.sha256()
        for parameter in trainer._params:
            if parameter.grad_req != "null":  # the running statistics are of each worker's own images
                digest.update(parameter.data(parameter.list_ctx()[0]).asnumpy().tobytes())
        digests = joined.gather(digest.hexdigest())
        print(
            f"rank {joined.rank}: {time.monotonic() - self.began:.0f} s, values {digests[joined.rank][:12]}", flush=True
        )
        joined.barrier()
        sys.exit(len(set(digests)) > 1)


def work(script: str, steps: int) -> None:
    """Run the example in this process."""
    import hybrid_lab as mx
    import hybrid_lab.compat  # noqa: F401 - `import mxnet` is this package from now on
    from hybrid_lab.gluon.step import boundary

    if steps:
        boundary.listen(Steps(steps), True)
    if mx.context.num_gpus() < 4:
        mx.gpu = mx.cpu
    sys.argv = [script]
    runpy.run_path(script, run_name="__main__")


def main() -> int:
    """Start the workers."""
    if IN_WORKER in sys.argv:
        work(sys.argv[-2], int(sys.argv[-1]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("script")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        write_images(Path(home, "datasets", "cifar10"))
        environment = {**os.environ, "MXNET_HOME": home, "PYTHONPATH": str(ROOT), "ORT_DISABLE_TELEMETRY": "1"}
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(options.workers)]
        command += [__file__, IN_WORKER, os.path.abspath(options.script), str(options.steps)]
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
