"""The hooks: registered once, by import or by %load_ext; never in the user's way."""

import subprocess
import sys
import threading

import pytest

from hybrid_lab.lab.kernel import hooks
from tests.lab.conftest import CLASS, IMPORTS, MAKE

FRESH = """
import sys
{before}
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.history_manager.enabled = False
shell.run_cell({cell!r}).raise_error()
"""


def fresh(cell, after, before="", **environment):
    """What a new Python prints that runs a cell under IPython and then `after`."""
    import os

    code = FRESH.format(before=before, cell=cell) + after
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


COUNT = "print(len(shell.events.callbacks['pre_run_cell']), 'hybrid_save' in shell.magics_manager.magics['line'])"


def test_import_registers_once_and_lightly(tmp_path):
    heavy = "print([name for name in ('hybrid_lab.gluon', 'onnx', 'onnxruntime', 'torch', 'anywidget')"
    heavy += " if name in sys.modules])"
    cell = "import hybrid_lab\nimport hybrid_lab"
    out = fresh(cell, COUNT + "\n" + heavy, IPYTHONDIR=str(tmp_path))
    *_, count, loaded = out.splitlines()
    assert count == "1 True" and loaded == "[]"


@pytest.mark.parametrize("setting, registered", [("1", "0 False"), ("0", "1 True"), ("", "1 True")])
def test_a_setting_opts_out(tmp_path, setting, registered):
    out = fresh("import hybrid_lab", COUNT, IPYTHONDIR=str(tmp_path), HYBRID_LAB_NO_HOOKS=setting)
    assert out.splitlines()[-1] == registered


def test_load_ext_does_the_same_aloud_and_unload_takes_it_back(shell, capsys):
    def state():
        magics = shell.magics_manager.magics
        ours = [name for kind in ("line", "cell") for name in magics[kind] if name.startswith("hybrid_")]
        return [len(shell.events.callbacks[event]) for event in ("pre_run_cell", "post_run_cell")], sorted(ours)

    hooks.unregister(shell)
    before = state()
    shell.run_cell("%load_ext hybrid_lab").raise_error()
    assert "connected to this notebook" in capsys.readouterr().out
    loaded = state()
    names = ("compare", "diff", "explain", "lint", "load", "load_all", "profile", "save", "save_all")
    assert loaded[1] == [f"hybrid_{name}" for name in names]
    shell.run_cell("%load_ext hybrid_lab").raise_error()
    assert not hooks.register(shell)
    assert state() == loaded
    shell.run_cell("%unload_ext hybrid_lab").raise_error()
    assert state() == before
    shell.run_cell("%load_ext hybrid_lab").raise_error()
    assert state() == loaded


def test_unload_leaves_the_user_s_own_magics(shell):
    shell.register_magic_function(lambda line: "mine", "line", "hybrid_mine")
    hooks.unregister(shell)
    assert "hybrid_mine" in shell.magics_manager.magics["line"]
    hooks.register(shell)


def test_a_failing_hook_does_not_reach_the_cell(shell, run, capsys, monkeypatch):
    lab = hooks.lab_of(shell)
    run(IMPORTS, CLASS, MAKE)
    monkeypatch.setattr(lab, "_drop_stale", lambda: 1 / 0)
    capsys.readouterr()
    assert run("1 + 1") == 2
    assert "Error" not in capsys.readouterr().out + capsys.readouterr().err
    assert not lab.is_busy()


def test_an_error_while_hybridizing_shows_the_user_s_frames(run, shell, capsys):
    """Of this package's only the last one, which IPython always shows."""
    run(IMPORTS, CLASS.replace("self.fc(x)", "x if x.asnumpy().sum() else self.fc(x)"))
    shell.run_cell(MAKE.replace("Net()", "nn.HybridSequential(); net.add(Net())"))
    shown = capsys.readouterr().out
    assert "HybridizeNotImplementedError" in shown and "skipping hidden" in shown
    files = [line for line in shown.splitlines() if line.startswith(("File ", "Cell "))]
    assert len(files) == 3 and [line.startswith("Cell ") for line in files] == [True, True, False]


def test_broken_user_objects_do_not_break_cells(run, shell, capsys):
    run(IMPORTS, CLASS, MAKE)
    run(
        """class Rude(gluon.HybridBlock):
    def __repr__(self):
        raise RuntimeError("no repr")
    def __eq__(self, other):
        raise RuntimeError("no comparison")
    def hybrid_forward(self, F, x):
        return x
rude = Rude(); rude.hybridize(); z = rude(x)
class Proxy:
    @property
    def __class__(self):
        raise RuntimeError("no class")
proxy = Proxy()"""
    )
    names = [entry.name for entry in hooks.lab_of(shell).session.registry.refresh()]
    assert names == ["net", "rude"]
    models = hooks.lab_of(shell).session.models()["models"]
    assert [model["class"] for model in models] == ["Net", "Rude"]
    session = hooks.lab_of(shell).session
    (rude,) = [entry for entry in session.registry.refresh() if entry.id.startswith("m2.")]
    assert "Rude" in session.tree(rude)["root"]["repr"]
    assert "no " not in capsys.readouterr().err


def test_busy_is_while_a_cell_runs(shell, run):
    lab = hooks.lab_of(shell)
    shell.user_ns["lab"] = lab
    assert run("lab.is_busy()") is True
    assert not lab.is_busy()
    run("get_ipython().run_cell('1'); get_ipython().run_cell(' '); still = lab.is_busy()")
    assert shell.user_ns["still"]
    shell.run_cell("1 / 0")
    assert not lab.is_busy()


def test_hooks_run_on_the_main_thread_only(shell):
    lab = hooks.lab_of(shell)
    thread = threading.Thread(target=lambda: lab.before_cell(object()))
    thread.start()
    thread.join()
    assert not lab.is_busy()


def test_the_hook_comes_after_autoreload(shell, run):
    run(IMPORTS, "%load_ext autoreload")
    assert shell.events.callbacks["pre_run_cell"][-1] == hooks.lab_of(shell).before_cell
    run("%autoreload 0", "%unload_ext autoreload")
