"""Nothing is sent, and files are written to the named places only: ONNX Runtime's telemetry, and the tutorial under
strace, without a network.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from hybrid_lab.system import telemetry as _telemetry

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "given, wanted",
    [
        *((None, "1"), ("", "1"), ("2", "1"), ("1", "1"), ("true", "true"), ("ON", "ON")),
        *((kept, kept) for kept in ("0", "false", "No", "off")),
    ],
)
def test_telemetry_is_off_unless_the_environment_keeps_it(given, wanted):
    environment = {} if given is None else {_telemetry.VARIABLE: given}
    stopped = []
    imported = {"onnxruntime": SimpleNamespace(disable_telemetry_events=lambda: stopped.append(True))}
    _telemetry.switch_off(environment, imported)
    assert environment[_telemetry.VARIABLE] == wanted
    assert bool(stopped) is _telemetry.is_off(environment) is (wanted.lower() not in ("0", "false", "no", "off"))


def test_one_module_imports_onnxruntime():
    """`engines/libraries.py` switches its telemetry off first; everyone else asks that module for it."""
    found = set()
    for path in (ROOT / "hybrid_lab").rglob("*.py"):
        if "onnxruntime" not in (text := path.read_text(encoding="utf-8")):
            continue
        for node in ast.walk(ast.parse(text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
                names += [item.value for item in node.args if isinstance(item, ast.Constant)]
            if any(name.split(".")[0] == "onnxruntime" for name in names):
                found.add(path.relative_to(ROOT).as_posix())
    assert found == {"hybrid_lab/engines/libraries.py"}


def _run(home: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    unset = (_telemetry.VARIABLE, "XDG_CACHE_HOME", "HYBRID_LAB_CACHE", "HYBRID_LAB_CPU")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"HOME": str(home), "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run([sys.executable, "-c", code], cwd=home, env=environment, capture_output=True, text=True)


USES = {
    "a session": "import hybrid_lab as mx\nfrom hybrid_lab.gluon import nn\nn = nn.Dense(2)\nn.initialize()\n"
    "n.hybridize(engine='onnxruntime')\nn(mx.nd.ones((2, 3)))",
    "the newest opset": "from hybrid_lab.onnx.opsets import newest\nnewest()",
    "hybrid-lab env": "from hybrid_lab.cli import main\nmain(['env'])",
    "the user's own import": "import hybrid_lab\nimport onnxruntime",
    "another process": "import hybrid_lab, subprocess, sys\n"
    "subprocess.run([sys.executable, '-c', 'import onnxruntime'], check=True)",
}


@pytest.mark.skipif(sys.platform != "linux", reason="the telemetry's files are in ~/.cache on Linux")
@pytest.mark.parametrize("use", USES)
def test_onnxruntime_leaves_no_device_id(use, tmp_path):
    pytest.importorskip("onnxruntime")
    done = _run(tmp_path, USES[use])
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / ".cache" / "Microsoft").exists()


# -- the tutorial ------------------------------------------------------------------------------------------------------

_CHANGES = re.compile(r"(?<![a-z])(openat|open|creat|mkdir|mkdirat|rename\w*|link\w*|symlink\w*|mknod\w*)\(")
_PATH = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ADDRESS = re.compile(r"sa_family=AF_INET6?,.*?(?:inet_addr\(\"|inet_pton\(AF_INET6?, \")([^\"]+)")


def _written(line: str) -> list[str]:
    """The paths that a system call in a line of strace makes or changes."""
    call = _CHANGES.search(line)
    if call is None or re.search(r"= -1 E\w+", line):
        return []
    if call[1].startswith(("open", "creat")) and not re.search(r"O_WRONLY|O_RDWR|O_CREAT", line):
        return []
    return _PATH.findall(line)


@pytest.fixture
def traced(tmp_path):
    """Runs Python in a folder of its own under strace, without a network: (folder, output, lines of strace)."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("needs strace (Debian: apt-get install strace)")
    alone = ["unshare", "--map-root-user", "--net"]
    if subprocess.run([*alone, strace, "-o", os.devnull, "true"], capture_output=True).returncode:
        pytest.skip("strace or unshare is not permitted here")

    def run(*command: str) -> tuple[str, list[str]]:
        work, trace = tmp_path / "work", tmp_path / "trace"
        for folder in ("home", "ipython", "matplotlib", "temporary"):
            (work / folder).mkdir(parents=True)
        unset = (_telemetry.VARIABLE, "XDG_CACHE_HOME", "HYBRID_LAB_CACHE", "HYBRID_LAB_CPU")
        environment = {name: value for name, value in os.environ.items() if name not in unset}
        places = {"HOME": "home", "IPYTHONDIR": "ipython", "MPLCONFIGDIR": "matplotlib", "TMPDIR": "temporary"}
        environment |= {name: str(work / folder) for name, folder in places.items()}
        environment |= {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg"}
        tracing = [*alone, strace, "-f", "-qq", "-s", "500", "-e", "trace=%network,%file", "-o", str(trace)]
        done = subprocess.run(
            [*tracing, sys.executable, *command], cwd=work, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout, trace.read_text(errors="replace").splitlines()

    return run


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="strace traces Linux's system calls")
def test_the_tutorial_connects_to_nothing_and_writes_where_it_says(traced, tmp_path):
    for module in ("onnxruntime", "IPython", "sklearn", "matplotlib"):
        pytest.importorskip(module)
    output, lines = traced("-m", "tests.isolated_tutorial")
    assert "largest difference 0.0" in output and "test accuracy" in output
    _connects_to_nothing(lines)
    _writes_only_here(lines, tmp_path / "work")


#: The packages of pyproject.toml's extras for users, and what the tests drive the browser with.
DEPENDENCIES = (
    *("numpy", "graphviz", "platformdirs", "tqdm", "jupyterlab", "jupyter_server", "ipywidgets", "anywidget", "nh3"),
    *(
        "onnx",
        "onnxruntime",
        "ml_dtypes",
        "torch",
        "triton",
        "cv2",
        "sklearn",
        "matplotlib.pyplot",
        "playwright.sync_api",
        "pygls.lsp.server",
        "ipyparallel",
    ),
)
IMPORTS = """
import contextlib, importlib, pkgutil
import hybrid_lab
for name in {names}:
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
for item in pkgutil.walk_packages(hybrid_lab.__path__, "hybrid_lab."):
    if not item.name.endswith(("__main__", "compile_process", "documents.reader")):
        with contextlib.suppress(ImportError, FileNotFoundError):
            importlib.import_module(item.name)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="strace traces Linux's system calls")
def test_imports_of_the_package_and_its_dependencies_connect_to_nothing(traced, tmp_path):
    _, lines = traced("-c", IMPORTS.format(names=DEPENDENCIES))
    _connects_to_nothing(lines)
    _writes_only_here(lines, tmp_path / "work")


def test_the_list_of_dependencies_is_that_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    extras = {
        name: lines for name, lines in extras.items() if name not in ("docs", "lite", "test")
    }  # to work on the package
    wanted = [*project["dependencies"], *(line for lines in extras.values() for line in lines)]
    modules = {
        "opencv-python-headless": "cv2",
        "scikit-learn": "sklearn",
        "matplotlib": "matplotlib.pyplot",
        "pytorch-triton-rocm": "triton",
        "pygls": "pygls.lsp.server",
    }
    names = {re.match(r"[\w-]+", line)[0] for line in wanted}
    assert {modules.get(name, name) for name in names} <= set(DEPENDENCIES)


def _connects_to_nothing(lines: list[str]) -> None:
    """No system call names an address of another machine."""
    addresses = {address for line in lines for address in _ADDRESS.findall(line)}
    assert {address for address in addresses if not re.match(r"127\.|::1$|0\.0\.0\.0$|::$", address)} == set()


def _writes_only_here(lines: list[str], work: Path) -> None:
    """Files are made below `work` alone, and of its home folder in the cache folder."""
    # The system's caches of fonts are fontconfig's, which matplotlib asks for the names of the fonts.
    allowed = (str(work), "/dev/", "/proc/", "/var/cache/fontconfig")
    written = {path for line in lines for path in _written(line) if os.path.isabs(path)}
    assert {path for path in written if not path.startswith(allowed)} == set()
    home = work / "home"
    folders = {path.relative_to(home).parts[:2] for path in home.rglob("*") if path.is_file()}
    assert folders <= {(".cache", "hybrid_lab"), (".cache", "fontconfig")}
