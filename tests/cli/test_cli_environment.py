"""`hybrid-lab env` reports every part, and a broken part does not stop it."""

import json
from pathlib import Path

from hybrid_lab.cli import environment, main
from hybrid_lab.cli.environment import Component


def test_report_names_the_parts(capsys):
    assert main(["env", "--json"]) == 0
    items = {item["name"]: item for item in json.loads(capsys.readouterr().out)}
    for name in (
        "python",
        "numpy",
        "onnxruntime",
        "torch",
        "triton",
        "GPU",
        "GPU driver",
        "C compiler",
        "compiling",
        "kernel cache",
        "OpenCV",
        "jupyterlab",
        "lab extension",
    ):
        assert name in items
    assert "BLAS" in items["numpy"]["found"]
    missing = [item for item in items.values() if item["found"] is None]
    assert all(item["needed"] and item["get"] for item in missing)


def test_missing_part_says_how_to_get_it():
    text = environment.render(
        [
            Component("onnx", None, "ONNX files", 'pip install "hybrid-lab[cpu]"'),
            Component("python", "3.11"),
        ]
    )
    assert (
        text
        == """\
onnx    missing
          for ONNX files: pip install "hybrid-lab[cpu]"
python  3.11"""
    )


def test_broken_library_is_reported(monkeypatch):
    def _onnx():
        raise RuntimeError("libonnx.so: undefined symbol")

    item = environment._guarded(_onnx)
    assert item.found == "broken: RuntimeError: libonnx.so: undefined symbol"


def test_a_cache_that_cannot_be_written_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("HYBRID_LAB_CACHE", str(tmp_path / "new" / "folder"))
    assert environment._kernel_cache().found.startswith("0 files, 0.0 MiB in ")
    (tmp_path / "file").touch()
    unwritable = [str(tmp_path / "file"), *["/proc/hybrid_lab"] * Path("/proc").is_dir()]  # where root may not either
    for folder in unwritable:
        monkeypatch.setenv("HYBRID_LAB_CACHE", folder)
        assert environment._kernel_cache().found.endswith("cannot be written; HYBRID_LAB_CACHE names another folder")
