"""`hybrid-lab tutorial` and `hybrid-lab lab`: the notebooks of the package, and JupyterLab on them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from .command import CommandError, Commands, has_module, install_hint

FIRST_NOTEBOOK = "01_tutorial.ipynb"
DEFAULT_FOLDER = "hybrid-lab-tutorial"
#: JupyterLab asks pypi.org for its newest version, and offers to read news. Later options of the user's replace these
#: options.
QUIET = ("--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.news_url=None")
#: Defaults of JupyterLab's settings: whatever the server is told, the page asks whether it may read news until the
#: setting says so. The user's own settings win.
SETTINGS = Path(__file__).parent / "jupyter_config"


def add_commands(commands: Commands) -> None:
    """Register `tutorial` and `lab`; options neither knows are JupyterLab's."""
    tutorial = commands.add_parser(
        "tutorial",
        help="copy the tutorial notebooks to a folder and open them in JupyterLab",
        description="Copies the notebooks and opens the first one. A file you changed is kept, never overwritten "
        "without --force. Other options go to JupyterLab, such as --no-browser or --port 8899.",
        allow_abbrev=False,
    )
    tutorial.add_argument("--folder", type=Path, default=Path(DEFAULT_FOLDER), help=f"default: ./{DEFAULT_FOLDER}")
    tutorial.add_argument("--copy-only", action="store_true", help="only copy, do not open JupyterLab")
    tutorial.add_argument("--force", action="store_true", help="overwrite changed notebooks with the package's")
    tutorial.set_defaults(run=run_tutorial, passes_on=True)

    lab = commands.add_parser(
        "lab",
        help="open JupyterLab; all options are JupyterLab's",
        description="Opens JupyterLab in the current folder, or on the notebook named. All options go to JupyterLab.",
        allow_abbrev=False,
    )
    lab.set_defaults(run=lambda arguments: open_lab(arguments.rest), passes_on=True)


def notebooks_folder() -> Path:
    """Folder of the shipped notebooks: inside the installed package, or beside it in a clone of the repository."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "notebooks", package.parent / "notebooks"):
        if (folder / FIRST_NOTEBOOK).is_file():
            return folder
    raise CommandError(
        f"no {FIRST_NOTEBOOK} in or beside {package}: the installation is incomplete, reinstall hybrid-lab"
    )


def shipped_files(folder: Path) -> Iterator[Path]:
    """The notebooks, relative to `folder`: they need no other file; in a clone, their outputs are beside them."""
    for path in sorted(folder.glob("*.ipynb")):
        if path.is_file() and not path.name.startswith("."):
            yield path.relative_to(folder)


def copy_notebooks(source: Path, target: Path, force: bool = False) -> dict[str, list[Path]]:
    """Copy the notebooks; returns the relative paths `copied`, `kept` (there and different) and `same`."""
    outcome: dict[str, list[Path]] = {"copied": [], "kept": [], "same": []}
    for relative in shipped_files(source):
        destination = target / relative
        if destination.exists() and not destination.is_file():
            raise CommandError(f"{destination} is not a file; rename it, or name another folder with --folder")
        if destination.exists() and destination.read_bytes() == (source / relative).read_bytes():
            outcome["same"].append(relative)
        elif destination.exists() and not force:
            outcome["kept"].append(relative)
        else:
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / relative, destination)
            outcome["copied"].append(relative)
    return outcome


def run_tutorial(arguments: Namespace) -> int:
    """Copy, say what was copied and kept, open the first notebook."""
    if arguments.rest and arguments.copy_only:
        raise CommandError(f"--copy-only does not start JupyterLab, which alone could use {' '.join(arguments.rest)}")
    target = arguments.folder.expanduser()
    if target.exists() and not target.is_dir():
        raise CommandError(f"{target} is not a folder; name another one with --folder")
    outcome = copy_notebooks(notebooks_folder(), target, arguments.force)
    count = len(outcome["copied"])
    print(f"{target.absolute()}: {f'{count} copied' if count else 'nothing to copy'}")
    for path in outcome["kept"]:
        print(f"  kept yours: {path} (differs from the package's; --force overwrites it)")
    if arguments.copy_only:
        return 0
    # JupyterLab also prints the address of the notebook, for --no-browser and machines far away.
    return open_lab([f"--LabApp.default_url=/lab/tree/{FIRST_NOTEBOOK}", *arguments.rest], folder=target)


def open_lab(options: list[str], folder: Path | None = None) -> int:
    """Run JupyterLab in `folder` (default: here) until it ends; returns its exit status."""
    if not has_module("jupyterlab"):
        raise CommandError(f"JupyterLab is not installed: {install_hint('lab')}")
    if hasattr(os, "geteuid") and os.geteuid() == 0 and "--allow-root" not in options:
        # In a container root is the only user there is, and JupyterLab would refuse to start.
        options = ["--allow-root", *options]
    places = filter(None, (os.environ.get("JUPYTER_CONFIG_PATH"), str(SETTINGS)))
    environment = os.environ | {"JUPYTER_CONFIG_PATH": os.pathsep.join(places)}
    process = subprocess.Popen([sys.executable, "-m", "jupyterlab", *QUIET, *options], cwd=folder, env=environment)
    with _handing_on_signals(process):
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                # The terminal sent the interrupt to JupyterLab as well, which asks before it stops.
                continue


@contextlib.contextmanager
def _handing_on_signals(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Who ends this command, or closes its terminal, means JupyterLab. A signal that is ignored (nohup) stays so."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    numbers = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    before = {
        number: signal.signal(number, lambda *_, number=number: process.send_signal(number)) for number in numbers
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
