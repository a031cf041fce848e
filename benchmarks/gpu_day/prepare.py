"""prepare: kernels of the benchmark networks and layers, compiled for a GPU that need not be here, as one archive.

The archive is for the Triton of the environment that made it: a binary's key has Triton's version in it. A stage that
finds DIR/kernels-*.tar.xz unpacks it into its cache folder first and compiles only what is not in it.
"""

from __future__ import annotations

import os
import tarfile
import time
from collections.abc import Iterable
from pathlib import Path

from gpu_day import kernels
from gpu_day.options import Options


def prepare(target: str, out: Path, only: str = "", small: bool = False) -> int:
    """Compile for the target and write DIR/kernels-TARGET-tritonVERSION.tar.xz; 0, or 2 where a kernel failed.

    Binaries are kept in DIR/prepared besides, so that an interrupted run goes on where it was.
    """
    os.environ |= {"HYBRID_LAB_CACHE": str(out / "prepared"), "HYBRID_LAB_CPU": "numpy"}
    from hybrid_lab.engines.triton.build import internals
    from hybrid_lab.engines.triton.build.targets import target_of

    target_of(target)
    names = [item.name.removeprefix("compile: ") for item in kernels.compile_items(Options("kernels", str(out)))]
    # Networks first: `steps` runs those alone. Tiles last: they are most, and the least worth.
    order = ("network", "memory", "conv", "gemm", "attention", "lstm", "tiles")
    names = sorted(names, key=lambda name: order.index(name.partition(":")[0].partition(" ")[0]))
    names = [name for name in names if only in name]
    failures = 0
    try:
        for name in names:
            began = time.monotonic()
            found = kernels.compile_for(name, target, small)
            failures += len(found["failed"])
            failed = "".join(f"\n  {text}" for text in found["failed"])
            print(f"{name}: {found['kernels']} kernels, {time.monotonic() - began:.0f} s{failed}", flush=True)
    finally:  # interrupted, the archive has what there is
        archive = out / f"kernels-{target}-triton{internals.version()}.tar.xz"
        count = pack(out / "prepared" / "binaries", archive)
        print(f"{archive}: {count} binaries, {archive.stat().st_size / 2**20:.1f} MiB", flush=True)
    return 2 if failures else 0


def pack(folder: Path, archive: Path) -> int:
    """Write all binaries into an archive, in one rename; how many there are."""
    every = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    partial = archive.with_name(f".{archive.name}.{os.getpid()}")
    try:
        with tarfile.open(partial, "w:xz", preset=3) as file:
            for path in every:
                file.add(path, path.name)
        os.replace(partial, archive)
    finally:
        partial.unlink(missing_ok=True)
    return len(every)


def unpack(archives: Iterable[Path], cache: Path) -> None:
    """Put the binaries of archives into the cache folder of the stages, those of each archive once."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    for archive in archives:
        stat = archive.stat()
        done = cache / f"{archive.name}.{stat.st_size}.unpacked"
        if done.exists():
            continue
        folder = cache / "hybrid_lab" / "binaries"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tarfile.open(archive) as file:
            # "data" keeps names inside the folder; owner and rights are those of a cache of this user's own.
            file.extractall(folder, filter=_private)
        done.touch()
        print(f"unpacked {archive.name}", flush=True)


def _private(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    found = tarfile.data_filter(member, folder)
    return found.replace(mode=0o700 if found.isdir() else 0o600, deep=False)
