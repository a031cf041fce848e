"""`hybrid-lab tutorial` copies without destroying a user's work, and hands other options to JupyterLab."""

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
