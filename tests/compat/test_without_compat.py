"""`import mxnet` after `import hybrid_lab` alone: an error that names compat, whatever way it is imported."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(code, folder):
    script = folder / "script.py"
    script.write_text(textwrap.dedent(code))
    paths = f"import sys; sys.path.insert(0, {str(ROOT)!r}); exec(open({str(script)!r}).read())"
    done = subprocess.run([sys.executable, "-c", paths], capture_output=True, text=True, cwd=folder, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "statement",
    ["import mxnet as mx", "from mxnet import gluon", "import mxnet.gluon.nn", "importlib.import_module('mxnet.nd')"],
)
def test_the_error_names_compat(statement, tmp_path):
    told = run(
        f"""
        import importlib, hybrid_lab
        try:
            {statement}
        except ModuleNotFoundError as error:
            print(error.name, error)
        """,
        tmp_path,
    )
    assert told.startswith("mxnet No module named 'mxnet'.") and "import hybrid_lab.compat" in told


def test_libraries_that_ask_whether_it_is_there_hear_no(tmp_path):
    run(
        """
        import importlib.util, pkgutil, hybrid_lab
        assert importlib.util.find_spec("mxnet") is None
        try:
            import mxnet
        except ImportError:
            mxnet = None
        assert mxnet is None
        try:
            import no_such_module
        except ModuleNotFoundError as error:
            assert "compat" not in str(error)
        """,
        tmp_path,
    )


def test_compat_and_a_module_of_that_name_come_first(tmp_path):
    run(
        """
        import hybrid_lab, hybrid_lab.compat, mxnet
        assert mxnet.nd is hybrid_lab.nd
        hybrid_lab.compat.uninstall()
        """,
        tmp_path,
    )
    (tmp_path / "mxnet.py").write_text("here = True\n")
    run(
        """
        import sys; sys.path.insert(0, ".")
        import hybrid_lab, mxnet
        assert mxnet.here
        """,
        tmp_path,
    )
