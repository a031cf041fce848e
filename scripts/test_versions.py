"""The tests with the oldest and the newest versions of the packages that pyproject.toml allows, and with every Python
that is found. Each environment is a folder in .versions/; it is made once and used again.

    python scripts/test_versions.py                    the short set of tests in every environment
    python scripts/test_versions.py --whole            all Python tests
    python scripts/test_versions.py --only oldest      environments by name
    python scripts/test_versions.py --torch torch==2.13.0 --only newest-3.13     with torch and triton, too
    python scripts/test_versions.py --list             the environments and what would be installed
    python scripts/test_versions.py --browser          browser tests, oldest and newest JupyterLab and Notebook 7

`uv python install 3.14` brings an interpreter that a system lacks; so does a folder made by debootstrap of a newer
Debian, inside which this command is run.

Without --torch the environments have neither torch nor triton, and the tests that need them are skipped. On Linux a
plain `torch` brings gigabytes of CUDA libraries.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from pytest_runs import ROOT, Result, run_pytest, table  # noqa: E402

FOLDER = ROOT / ".versions"
#: Releases of Python for which there is an environment where an interpreter is found.
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
#: What the tests themselves need.
TOOLS = ("pytest", "pytest-timeout", "pytest-xdist", "nbclient", "nbconvert", "packaging", "safetensors")
#: Every room, but for what compiles kernels or takes long.
SHORT = (
    *("tests/diagnostics", "tests/ops/test_golden.py", "tests/ops/test_records.py", "tests/ops/test_dtypes.py"),
    *("tests/ops/test_extremes.py", "tests/graph", "tests/engines/test_processors.py", "tests/engines/test_samples.py"),
    *("tests/engines/test_numpy.py", "tests/engines/test_onnxruntime.py", "tests/engines/test_sessions.py"),
    *("tests/engines/test_triton_samples.py", "tests/engines/test_torch.py", "tests/ndarray", "tests/gluon"),
    "tests/hybridize",
    *("tests/contrib", "tests/formats", "tests/hostile", "tests/lint", "tests/cli", "tests/lab", "tests/insight"),
    *("tests/test_metric.py", "tests/test_optimizer.py", "tests/test_initializer.py", "tests/test_viz.py"),
)
BROWSER = ("tests/browser",)
WHOLE = ("tests", "--ignore", "tests/browser", "--ignore", "tests/packaging")


@dataclass(frozen=True)
class Environment:
    """An interpreter with packages. requirements : what pip installs"""

    name: str
    python: str
    requirements: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def interpreter(self) -> Path:
        return self.folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"


def project() -> dict[str, Any]:
    """The table `project` of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def declared() -> list[str]:
    """The requirements of the package and of its extras lab, cpu and images."""
    extras = project()["optional-dependencies"]
    return [*project()["dependencies"], *extras["lab"], *extras["cpu"], *extras["images"]]


def oldest(requirement: str) -> str:
    """The requirement with its lower bound as the only version: "numpy>=2.1" as "numpy==2.1.0.*"."""
    name, version = re.fullmatch(r"([\w-]+)>=([\d.]+).*", requirement).groups()  # type: ignore[union-attr]
    return f"{name}=={version}{'.0' * (2 - version.count('.'))}.*"  # OpenCV's packages have a fourth number


def interpreters() -> dict[str, str]:
    """A command for each release of Python that is found on the PATH, or among those of pyenv and of uv."""
    found = {}
    for release in PYTHONS:
        pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{release}.*/bin/python"))
        uv = sorted((Path.home() / ".local" / "share" / "uv" / "python").glob(f"cpython-{release}.*/bin/python3"))
        named = shutil.which(f"python{release}")
        for command in (*filter(None, [named]), *map(str, pyenv), *map(str, uv)):
            code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2], sys.executable)"
            done = subprocess.run([command, "-c", code], capture_output=True, text=True)
            if done.stdout.startswith(f"{release} "):
                found[release] = done.stdout.split(maxsplit=1)[1].strip()
                break
    return found


def environments(torch: str | None) -> Iterator[Environment]:
    """The oldest packages on the oldest Python that is found, the newest on each."""
    found = interpreters()
    for release in PYTHONS:
        if release not in found:
            print(f"Python {release}: no interpreter found, so nothing is tested with it")
    more = (*TOOLS, *([torch, "triton"] if torch else []))
    requirements = declared()
    if found:
        first = min(found, key=PYTHONS.index)
        yield Environment("oldest", found[first], (*map(oldest, requirements), *more))
    for release, command in found.items():
        yield Environment(f"newest-{release}", command, (*requirements, *more))


def jupyter_environments() -> Iterator[Environment]:
    """JupyterLab, Notebook 7 and the widgets' packages, oldest and newest, on this Python."""
    extras = project()["optional-dependencies"]
    # Notebook 7 is made of JupyterLab's parts: its minor versions belong to those of JupyterLab.
    yield Environment("jupyter-oldest", sys.executable, tuple(map(oldest, [*extras["lab"], "notebook>=7.2"])))
    for minor in ("4.4", "4.5"):
        notebook = f"notebook==7.{minor[-1]}.*"
        others = [text for text in extras["lab"] if not text.startswith("jupyterlab")]
        requirements = (f"jupyterlab=={minor}.*", *others, notebook)
        yield Environment(f"jupyter-{minor}", sys.executable, requirements)
    newest = [text for text in extras["test"] if text.startswith("notebook")]
    yield Environment("jupyter-newest", sys.executable, (*extras["lab"], *newest))


def make(environment: Environment) -> str | None:
    """Make the environment, unless it is there with the same requirements. Returns what went wrong, or None."""
    stamp, wanted = environment.folder / "requirements.txt", "\n".join(environment.requirements)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return None
    shutil.rmtree(environment.folder, ignore_errors=True)
    pip = [str(environment.interpreter), "-m", "pip", "--disable-pip-version-check"]
    for command in (
        [environment.python, "-m", "venv", str(environment.folder)],
        [*pip, "install", "-q", "--no-compile", "--only-binary=:all:", *environment.requirements],
    ):
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        if done.returncode:
            return (done.stderr or done.stdout).strip().splitlines()[-1]
    stamp.write_text(wanted, encoding="utf-8")
    return None


def run(environment: Environment, tests: Sequence[str], jobs: int) -> Result:
    """The tests in one environment, which is made first."""
    if problem := make(environment):
        return Result(0, 0, [f"not made: {problem}"], 0)
    return run_pytest(str(environment.interpreter), tests, jobs, environment.folder)


def run_in_browser(environment: Environment, front_end: str, tests: Sequence[str]) -> Result:
    """The browser tests, in this Python; server and kernel run in the environment, with other packages from here."""
    if problem := make(environment):
        return Result(0, 0, [f"not made: {problem}"], 0)
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    place = subprocess.run([str(environment.interpreter), "-c", code], capture_output=True, text=True, check=True)
    (Path(place.stdout.strip()) / "others.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    variables = {
        "JUPYTER_PYTHON": str(environment.interpreter),
        "HYBRID_LAB_FRONT_ENDS": front_end,
        "HYBRID_LAB_ALL": "1",
    }
    return run_pytest(sys.executable, tests, 1, environment.folder / front_end, variables)


def versions(environment: Environment) -> str:
    """What was installed, for the table's foot."""
    names = {re.split(r"[<>=;]", text)[0] for text in (*declared(), *environment.requirements)} - set(TOOLS)
    code = (
        f"import platform, importlib.metadata as m; names = {sorted(names)};"
        "have = {d.name for d in m.distributions()};"
        "print('Python', platform.python_version(), *(f'{n} {m.version(n)}' for n in names if n in have))"
    )
    done = subprocess.run([str(environment.interpreter), "-c", code], capture_output=True, text=True)
    return done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--whole", action="store_true", help="all Python tests but the browser's and the wheel's")
    parser.add_argument("--browser", action="store_true", help="the browser tests, in each front end")
    parser.add_argument("--list", action="store_true", help="print the environments and make none")
    parser.add_argument("--only", action="append", default=[], help="an environment by name; may be repeated")
    parser.add_argument("--torch", help="a requirement of pip, for environments with torch and triton")
    parser.add_argument("--tests", nargs="+", help="files or folders in place of the set")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes of pytest")
    parser.add_argument("arguments", nargs="*", help="passed to pytest, after --")
    options = parser.parse_args()
    known = list(jupyter_environments() if options.browser else environments(options.torch))
    if unknown := set(options.only) - {item.name for item in known}:
        parser.error(f"{', '.join(sorted(unknown))}: not among {', '.join(item.name for item in known)}")
    results, installed = {}, []
    for item in known:
        if options.only and item.name not in options.only:
            continue
        if options.list:
            print(f"{item.name} ({item.python}): {' '.join(item.requirements)}")
            continue
        chosen = BROWSER if options.browser else WHOLE if options.whole else SHORT
        tests = [*(options.tests or chosen), *options.arguments]
        print(f"{item.name} ...", flush=True)
        if options.browser:
            results |= {f"{item.name}, {page}": run_in_browser(item, page, tests) for page in ("lab", "notebook")}
        else:
            results[item.name] = run(item, tests, options.jobs)
        installed.append(f"{item.name}: {versions(item)}")
    if options.list:
        return 0
    print(table("environment", results), *installed, sep="\n")
    return int(not results or any(result.failed for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
