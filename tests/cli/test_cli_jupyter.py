"""`hybrid-lab tutorial` copies without destroying a user's work, and hands other options to JupyterLab."""

import os
import signal
import subprocess
import sys

import pytest

from hybrid_lab.cli import jupyter, main


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    folder = tmp_path / "shipped"
    (folder / ".ipynb_checkpoints").mkdir(parents=True)
    (folder / "01_tutorial.ipynb").write_text("{}")
    for written in ("dispersed.py", "dispersed_check.npz", "net.hlab", "model-0001.params", "model-symbol.json"):
        (folder / written).write_text("what a run of the notebook leaves in a clone")
    (folder / ".ipynb_checkpoints" / "01_tutorial.ipynb").write_text("old")
    monkeypatch.setattr(jupyter, "notebooks_folder", lambda: folder)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def opened(monkeypatch):
    calls = []
    monkeypatch.setattr(jupyter, "open_lab", lambda options, folder=None: calls.append((options, folder)) or 0)
    return calls


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_copies_the_notebooks_and_nothing_that_lies_beside_them(shipped, tmp_path, opened):
    assert main(["tutorial", "--copy-only"]) == 0
    assert files(tmp_path / "hybrid-lab-tutorial") == ["01_tutorial.ipynb"]
    assert opened == []


def test_keeps_changed_files_and_says_so(shipped, tmp_path, opened, capsys):
    main(["tutorial", "--copy-only"])
    mine = tmp_path / "hybrid-lab-tutorial" / "01_tutorial.ipynb"
    mine.write_text('{"mine": 1}')
    assert main(["tutorial", "--copy-only"]) == 0
    assert mine.read_text() == '{"mine": 1}'
    assert "kept yours: 01_tutorial.ipynb" in capsys.readouterr().out
    assert main(["tutorial", "--copy-only", "--force"]) == 0
    assert mine.read_text() == "{}"


def test_other_options_go_to_jupyterlab(shipped, tmp_path, opened):
    assert main(["tutorial", "--no-browser", "--port", "8899"]) == 0
    ((options, folder),) = opened
    assert options == ["--LabApp.default_url=/lab/tree/01_tutorial.ipynb", "--no-browser", "--port", "8899"]
    assert folder.name == "hybrid-lab-tutorial"


def test_jupyterlab_is_started_without_its_requests_to_the_network(monkeypatch, tmp_path):
    pytest.importorskip("jupyterlab")
    from jupyterlab import NeverCheckForUpdate
    from jupyterlab.labapp import LabApp

    commands = []
    environments = []
    monkeypatch.setattr(
        jupyter.subprocess,
        "Popen",
        lambda command, cwd, env: commands.append(command) or environments.append(env) or Ended(),
    )
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "/of/mine")
    assert main(["lab", "--port", "8899"]) == 0
    ((*_, quiet_updates, quiet_news),) = [commands[0][3:5]]
    app = LabApp()
    app.parse_command_line([quiet_updates, quiet_news])
    assert app.check_for_updates_class is NeverCheckForUpdate and app.news_url is None
    assert commands[0][-2:] == ["--port", "8899"]

    # The page asks about news unless its settings say no: these are defaults, and the user's own folders come first.
    from jupyterlab_server.settings_utils import _get_overrides

    monkeypatch.setenv("JUPYTER_CONFIG_PATH", environments[0]["JUPYTER_CONFIG_PATH"])
    overrides, error = _get_overrides(str(tmp_path))
    assert not error
    assert overrides["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"
    assert environments[0]["JUPYTER_CONFIG_PATH"].split(os.pathsep)[0] == "/of/mine"


class Ended:
    """A process that has ended well."""

    def wait(self):
        return 0


@pytest.mark.skipif(os.name != "posix", reason="signals of Unix")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_ends_the_command_ends_jupyterlab(tmp_path, name):
    (tmp_path / "jupyterlab").mkdir()
    (tmp_path / "jupyterlab" / "__init__.py").touch()
    (tmp_path / "jupyterlab" / "__main__.py").write_text("import time; print('up', flush=True); time.sleep(600)")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = subprocess.Popen(
        [sys.executable, "-m", "hybrid_lab", "lab"],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # the tests may run under nohup
    )
    with command:
        assert command.stdout.readline() == b"up\n"
        command.send_signal(getattr(signal, name))
        assert command.stdout.read() == b""  # ends when no process holds it open any more
    assert command.returncode != 0


def test_target_that_is_a_file_is_refused(shipped, tmp_path, opened, capsys):
    (tmp_path / "taken").write_text("")
    assert main(["tutorial", "--folder", "taken"]) == 2
    assert "taken is not a folder" in capsys.readouterr().err


def test_missing_jupyterlab_names_the_extra(monkeypatch, capsys):
    monkeypatch.setattr(jupyter, "has_module", lambda name: False)
    assert main(["lab"]) == 2
    assert 'pip install "hybrid-lab[lab]"' in capsys.readouterr().err


def test_unknown_option_elsewhere_is_an_error(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["env", "--colour"])
    assert "--colour" in capsys.readouterr().err
