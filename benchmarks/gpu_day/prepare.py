"""prepare: kernels of all stages but `tests`, compiled for a GPU that need not be here, and launchers: one archive.

The archive is for the Triton of the environment that made it: a binary's key has Triton's version in it. A stage that
finds DIR/kernels-*.tar.xz unpacks it into its cache folder first and compiles only what is not in it. An archive that
is not for this environment is named with the reason.
"""

from __future__ import annotations

import os
import sysconfig
import tarfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpu_day import kernels, launchers, smoke
from gpu_day.options import Options

#: The end of a launcher's name: for which Python it is.
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX") or ".so"


def prepare(target: str, out: Path, only: str = "", small: bool = False) -> int:
    """Compile for the target and write DIR/kernels-TARGET-tritonVERSION.tar.xz; 0, or 2 if a kernel failed.

    Binaries are kept in DIR/prepared besides, so that an interrupted run goes on where it was.
    """
    os.environ |= {"HYBRID_LAB_CACHE": str(out / "prepared"), "HYBRID_LAB_CPU": "numpy"}
    from hybrid_lab.engines.triton.build import compiling, internals
    from hybrid_lab.engines.triton.build.targets import target_of

    where = target_of(target)
    failures = 0
    signatures: dict[tuple[str, ...], dict[str, Any]] = {}
    try:
        for name in [name for name in names(small) if only in name]:
            began, failed = time.monotonic(), dict[int, str]()
            sources = kernels.sources_of(name, target, small)
            compiling.compile_all(sources, target, failed)
            failures += len(failed)
            said = "".join(f"\n  {text}" for text in sorted({text.splitlines()[0] for text in failed.values()}))
            print(f"{name}: {len(sources)} kernels, {time.monotonic() - began:.0f} s{said}", flush=True)
            for index, source in enumerate(sources):
                if index not in failed:
                    signatures.setdefault(tuple(source.signature.values()), compiling.request_of(source, where))
    finally:  # interrupted, the archive has what there is
        began, problem = time.monotonic(), ""
        if where[0] == "cuda":
            problem = launchers.build(signatures.values(), out / "prepared" / launchers.FOLDER)
        archive = out / f"kernels-{target}-triton{internals.version()}.tar.xz"
        count, built = pack(out / "prepared", archive)
        about = f"{built} of Triton's C modules (launchers for Python's {SUFFIX}, {time.monotonic() - began:.0f} s)"
        print(f"{archive}: {count} binaries, {about}, {archive.stat().st_size / 2**20:.1f} MiB", flush=True)
        if problem:
            print(f"no launchers: {problem}", flush=True)
    return 2 if failures or problem else 0


def names(small: bool = False) -> list[str]:
    """The names of the items to compile, the most important first: the items of `right`, then the networks of `steps`.
    The tiles are last; they are most of the kernels and matter least.
    """
    options = Options("kernels", "", small=small)
    found = [f"smoke: {name}" for name in (smoke.FIRST, *(item.name for item in smoke.items(options)))]
    measured = [item.name.removeprefix("compile: ") for item in kernels.compile_items(options)]
    order = ("network", "memory", "conv", "gemm", "attention", "lstm", "tiles")
    return found + sorted(measured, key=lambda name: order.index(name.partition(":")[0].partition(" ")[0]))


def pack(folder: Path, archive: Path) -> tuple[int, int]:
    """Write all binaries and launchers into an archive, in one rename; how many there are of each."""
    every = sorted(path for path in (folder / "binaries").glob("*") if not path.name.startswith("."))
    built = sorted((folder / launchers.FOLDER).glob(f"*/*{SUFFIX}"))
    archive.parent.mkdir(parents=True, exist_ok=True)
    partial = archive.with_name(f".{archive.name}.{os.getpid()}")
    try:
        with tarfile.open(partial, "w:xz", preset=3) as file:
            for path in every:
                file.add(path, path.name)
            for path in built:
                file.add(path, str(path.relative_to(folder)))
        os.replace(partial, archive)
    finally:
        partial.unlink(missing_ok=True)
    return len(every), len(built)


def unpack(archives: Iterable[Path], cache: Path) -> None:
    """Put the contents of archives into the cache folder of the stages, those of each archive once.

    An archive for another Triton is left out, launchers for another Python too, and a warning says so.
    """
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    for archive in archives:
        stat = archive.stat()
        done = cache / f"{archive.name}.{stat.st_size}.unpacked"
        if done.exists() or is_for_another_triton(archive):
            continue
        folders = {name: cache / name for name in ("hybrid_lab/binaries", "triton")}
        for folder in folders.values():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        others = set()
        with tarfile.open(archive) as file:
            # "data" keeps names inside the folder; owner and rights are those of a cache of this user's own.
            for member in file:
                kind, _, rest = member.name.partition("/")
                if kind != launchers.FOLDER:
                    file.extract(member, folders["hybrid_lab/binaries"], filter=_private)
                elif rest.endswith(SUFFIX):
                    file.extract(member.replace(name=rest, deep=False), folders["triton"], filter=_private)
                elif not member.isdir():
                    others.add(rest.partition(".")[2])
        done.touch()
        print(f"unpacked {archive.name}", flush=True)
        if others:
            print(
                f"WARNING: launchers in {archive.name} are for {', '.join(sorted(others))}, and Python's modules here "
                f"end in {SUFFIX}: a C compiler builds them anew",
                flush=True,
            )


def is_for_another_triton(archive: Path) -> bool:
    """Whether kernels were compiled with another Triton than the one here, which has no use for them; it is said."""
    from hybrid_lab.engines.triton.build import internals

    here = internals.version()
    if archive.name.endswith(f"-triton{here}.tar.xz"):
        return False
    print(
        f"WARNING: {archive.name} is not for Triton {here}, which is here: it is left out, and kernels compile anew",
        flush=True,
    )
    return True


def _private(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    found = tarfile.data_filter(member, folder)
    return found.replace(mode=0o700 if found.isdir() else 0o600, deep=False)
