"""Each stage of scripts/gpu_day.py in miniature, on a simulated GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from gpu_day import cases, kernels, layers, prepare, report, sanitize, smoke, steps
from gpu_day.options import Options
from gpu_day.results import Results
from gpu_day.tests import breadth_first
from gpu_day.worker import Skip

from hybrid_lab.engines.triton.kernels import kernels_of_graphs
from tests.engines.small_tiles import TILES

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "gpu_day.py"
OPTIONS = Options("smoke", "nowhere")


def gpu_day(folder: Path, *arguments: str, **environment: str) -> str:
    """What the script prints."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("HYBRID_LAB", "TRITON"))}
    command = [sys.executable, str(SCRIPT), *arguments, "--out", str(folder / "out"), "--cache", str(folder / "cache")]
    done = subprocess.run(command, env=plain | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    "stage, only, names",
    [
        ("smoke", "1 x 1 convolution, small, float32", ["1 x 1 convolution, small, float32"]),
        (
            "tests",
            "tests/engines/test_triton.py::test_dropout",
            ["tests/engines/test_triton.py::test_dropout_masks_are_bit_equal"],
        ),
        ("kernels", "gemm 512, tf32", ["compile: gemm 512, tf32", "gemm 512, tf32"]),
    ],
)
def test_a_stage_runs_and_is_skipped_when_it_runs_again(tmp_path, stage, only, names):
    text = gpu_day(tmp_path, stage, "--simulate", "sm90", "--only", only)
    results = Results(tmp_path / "out", stage)
    assert list(results.items) == names and results.counts() == {"passed": len(names)}, text
    assert results.machine["gpu"] == "simulated sm90"
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == [f"{stage}.jsonl", f"{stage}.log"]
    if stage == "smoke":
        assert "0 of 1 items to run" in gpu_day(tmp_path, stage, "--simulate", "sm90", "--only", only)


@pytest.mark.long
def test_kernels_that_travel_are_those_that_a_step_launches(tmp_path):
    """Nothing is compiled where `prepare` has been, in an environment with the same Triton."""
    gpu_day(tmp_path, "prepare", "--target", "sm90", "--small", "--only", "network: lenet, float32")
    (archive,) = (tmp_path / "out").glob("kernels-sm90-triton*.tar.xz")
    with tarfile.open(archive) as file:
        packed = set(file.getnames())
    name = "train, lenet, hybrid captured, float32"
    gpu_day(tmp_path, "steps", "--simulate", "sm90", "--only", name, SIMULATED_COMPILE="1")
    found = Results(tmp_path / "out", "steps").items[name]["result"]
    assert found["launches"]["replays"] and found["ms"] > 0
    binaries = tmp_path / "cache" / "hybrid_lab" / "binaries"
    assert {path.name for path in binaries.iterdir()} == packed
    assert {path.stat().st_mode & 0o77 for path in binaries.rglob("*")} == {0}


def test_what_the_archive_has_outside_its_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("text")
    with tarfile.open(tmp_path / "kernels-sm90.tar.xz", "w:xz") as file:
        file.add(tmp_path / "file", "../../../outside")
    with pytest.raises(tarfile.OutsideDestinationError):
        prepare.unpack([tmp_path / "kernels-sm90.tar.xz"], tmp_path / "cache")
    assert not list(tmp_path.rglob("outside"))


def test_smoke_has_every_kind_of_kernel():
    found = set()
    for case in cases.CASES.values():
        kinds = set()
        for shapes in case.shapes[1:]:
            graphs = layers.graphs_of(case.block, list(shapes), part="every")
            kinds |= {kernel.kind for kernel in kernels_of_graphs(graphs)[0]}
        assert set(case.kinds) <= kinds, case
        found |= kinds
    assert found - {"update"} == set(TILES)


def test_items_have_names_of_their_own_and_come_in_order_of_worth():
    for stage in (smoke, kernels, steps, sanitize):
        names = [item.name for item in stage.items(OPTIONS)]
        assert len(set(names)) == len(names) > 30
    assert [item.name for item in steps.items(OPTIONS)][:4] == [
        "train, resnet18, hybrid, float32",
        "train, resnet18, hybrid captured, float32",
        "train, resnet18, torch eager, float32",
        "train, encoder 6 layers, hybrid, float32",
    ]
    assert breadth_first(["f[1]", "f[2]", "f[3]", "g", "h[1]", "h[2]"]) == ["f[1]", "g", "h[1]", "f[2]", "h[2]", "f[3]"]


def test_every_layer_has_a_name_that_is_understood():
    for name in layers.names():
        layer = layers.layer(name)
        assert (layer.flops == 0) == name.startswith("memory"), name


def test_a_missing_sanitizer_skips_and_its_errors_fail():
    with pytest.raises(Skip, match="not installed"):
        sanitize.run("memcheck: dense, small, float32", OPTIONS)
    clean = "========= COMPUTE-SANITIZER\nitem passed\n========= ERROR SUMMARY: 0 errors\n"
    assert sanitize.judged(clean) == {"errors": 0}
    with pytest.raises(AssertionError, match="Invalid __global__ read"):
        sanitize.judged("========= Invalid __global__ read of size 4\n========= ERROR SUMMARY: 2 errors\n")
    with pytest.raises(AssertionError, match="Race reported"):
        sanitize.judged("========= Error: Race reported\n========= RACECHECK SUMMARY: 1 hazard displayed\n")
    with pytest.raises(Skip, match="does not work here"):
        sanitize.judged("========= Error: Device not supported.\n")


def test_the_tables_have_what_was_measured(tmp_path):
    machine = {"gpu": "GPU 1", "target": "sm90", "memory MiB": 1, "multiprocessors": 2, "L2 MiB": 3, "cores": 4}
    filled = Results(tmp_path, "kernels")
    filled.describe(machine)
    filled.add("ceilings", {"status": "passed", "result": {"copy GB/s": 1000.0, "tf32 TFLOP/s": 100.0}})
    kernel = {"name": "k", "kind": "product", "bytes": 10**6, "flops": 10**9, "times": 2, "left_out": {"64": "spills"}}
    kernel["seconds"] = {"rule": 2e-5, "vendor": 1e-5}
    result = {"flops": 2 * 10**9, "kernels": [kernel], "torch": {"torch NCHW": 3e-5, "torch NHWC": "refused"}}
    filled.add("gemm 512, tf32", {"status": "passed", "result": result})
    filled.add("tiles: gemm 512, tf32", {"status": "passed", "result": {"flops": 1, "kernels": [kernel]}})
    filled.add("network: lenet, tf32", {"status": "passed", "result": {"kernels": [kernel]}})
    stepped = Results(tmp_path, "steps")
    for runtime, ms in (("hybrid", 2.0), ("torch eager", 3.0)):
        each = {"ms": ms, "first s": 1.0, "host ms": 0.5, "launches": {"kernels": 4}, "host us a launch": 125.0}
        each |= {"kernels": None, "memory MiB": 9.0}
        stepped.add(f"train, lenet, {runtime}, float32", {"status": "passed", "result": each})
    stepped.add("train, lenet, torch.compile, float32", {"status": "late", "error": "it took\ntoo long"})
    assert report.write(tmp_path, tmp_path) == 0
    text = (tmp_path / "gpu-1.md").read_text()
    for line in (
        "| gemm 512, tf32 | 40.0 | 20.0 | NCHW 30.0 | 0.75 | 50.0 | 2.00 |",
        "| lenet, tf32 | k | product | 2 | 20.0 | 2.00 |",
        "| gemm 512, tf32, k | rule 20.0, vendor 10.0 (faster) | 64: spills |",
        "| train, lenet, float32 | 2 |  | 3 |  | 1.50 |  |",
        "| train, lenet, hybrid, float32 | 1.00 | 0.5 | 4 kernels | 125.0 |  | 9 |",
        "- steps, train, lenet, torch.compile, float32: late; too long",
    ):
        assert line in text, text
    assert report.write(tmp_path / "empty", tmp_path) == 1
