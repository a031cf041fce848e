"""Where files are kept."""

import os

from hybrid_lab.engines.cache import cache_folder


def test_a_relative_folder_stays_where_it_was_when_the_process_goes_elsewhere(monkeypatch, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    for variable, inner in (("HYBRID_LAB_CACHE", ""), ("XDG_CACHE_HOME", "hybrid_lab")):
        monkeypatch.delenv("HYBRID_LAB_CACHE", raising=False)
        name = f"relative-{variable}-{os.getpid()}"
        monkeypatch.setenv(variable, name)
        monkeypatch.chdir(first)
        expected = first / name / inner / "kernels"
        assert cache_folder("kernels") == expected
        monkeypatch.chdir(second)
        assert cache_folder("kernels") == expected


def test_an_empty_name_keeps_nothing(monkeypatch):
    monkeypatch.setenv("HYBRID_LAB_CACHE", "")
    assert cache_folder("kernels") is None
