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

from gpu_day import cases, kernels, launchers, layers, prepare, report, sanitize, smoke, steps, worker
from gpu_day.options import Options
from gpu_day.results import Results
from gpu_day.tests import breadth_first
from gpu_day.worker import Skip

from hybrid_lab.engines.triton.build import compiling, internals
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
@pytest.mark.parametrize(
    "prepared, stage, name",
    [
        ("network: lenet, float32", "steps", "train, lenet, hybrid captured, float32"),
        ("smoke: dense, small, float32", "smoke", "dense, small, float32"),
    ],
)
def test_kernels_and_launchers_that_travel_are_those_that_a_stage_launches(tmp_path, prepared, stage, name):
    """Nothing is compiled where `prepare` has been, in an environment with the same Triton."""
    gpu_day(tmp_path, "prepare", "--target", "sm90", "--small", "--only", prepared)
    with tarfile.open(archive_of(tmp_path / "out")) as file:
        packed = {name for name in file.getnames() if not name.startswith("launchers/")}
        built = {name.removeprefix("launchers/") for name in file.getnames()} - packed
    assert bool(built) == internals.builds_launchers("cuda")
    gpu_day(tmp_path, stage, "--simulate", "sm90", "--only", name, SIMULATED_COMPILE="1")
    found = Results(tmp_path / "out", stage).items[name]["result"]
    if stage == "steps":
        assert found["launches"]["replays"] and found["ms"] > 0 and found["compiled"] == 0
    binaries, modules = tmp_path / "cache" / "hybrid_lab" / "binaries", tmp_path / "cache" / "triton"
    assert {path.name for path in binaries.iterdir()} == packed
    assert {str(path.relative_to(modules)) for path in modules.rglob("*.so")} == built
    assert {path.stat().st_mode & 0o77 for path in binaries.rglob("*")} == {0}


def archive_of(folder: Path) -> Path:
    (archive,) = folder.glob("kernels-sm90-triton*.tar.xz")
    return archive


@pytest.mark.parametrize("target", ["sm90", "gfx942"])
def test_prepare_builds_a_launcher_for_each_list_of_types_of_nvidia(tmp_path, monkeypatch, target, capsys):
    """AMD's launchers hold the path of the driver's library, which is the other machine's."""
    built = []
    for name in ("HYBRID_LAB_CACHE", "HYBRID_LAB_CPU"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(compiling, "compile_all", lambda sources, target, failed: [None] * len(sources))
    monkeypatch.setattr(launchers, "build", lambda requests, folder: built.extend(requests) or "")
    assert prepare.prepare(target, tmp_path, "smoke: dense, small, float", small=True) == 0
    printed = capsys.readouterr().out
    assert "smoke: dense, small, float32: " in printed and "smoke: dense, small, float16: " in printed
    types = [tuple(request["signature"].values()) for request in built]
    assert len(types) == len(set(types)) and bool(types) == (target == "sm90")


def test_names_of_prepare_are_those_of_all_stages():
    """`tests` has kernels that its tests alone know of, `steps` and `sanitize` have kernels of the other stages."""
    found = prepare.names()
    assert len(set(found)) == len(found)
    assert {f"smoke: {item.name}" for item in smoke.items(OPTIONS)} <= set(found)
    assert {item.name for item in kernels.items(OPTIONS)} - {"ceilings"} <= set(found)


def test_launchers_of_another_python_and_kernels_of_another_triton_are_left_out_loudly(tmp_path, capsys):
    folder = tmp_path / "prepared"
    for name in ("binaries/one", f"launchers/KEY/launcher{prepare.SUFFIX}", "launchers/KEY/launcher.cpython-399.so"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    here = tmp_path / f"kernels-sm90-triton{internals.version()}.tar.xz"
    assert prepare.pack(folder, here) == (1, 1)
    with tarfile.open(here, "w:xz") as file:  # as another Python makes it, too
        file.add(folder / "binaries" / "one", "one")
        file.add(folder / "launchers", "launchers")
    (tmp_path / "kernels-sm90-triton0.0.1.tar.xz").write_bytes(here.read_bytes())
    cache = tmp_path / "cache"
    prepare.unpack(sorted(tmp_path.glob("kernels-*")), cache)
    assert {str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file()} == {
        "hybrid_lab/binaries/one", f"triton/KEY/launcher{prepare.SUFFIX}",
        f"{here.name}.{here.stat().st_size}.unpacked",
    }  # fmt: skip
    text = capsys.readouterr().out
    assert "WARNING: kernels-sm90-triton0.0.1.tar.xz is not for Triton" in text
    assert f"WARNING: launchers in {here.name} are for cpython-399.so" in text


@pytest.mark.parametrize("name", ["../../../outside", "launchers/../../../../outside.so"])
def test_what_the_archive_has_outside_its_folder_is_refused(tmp_path, name, monkeypatch):
    monkeypatch.setattr(prepare, "SUFFIX", ".so")
    (tmp_path / "file").write_text("text")
    archive = tmp_path / f"kernels-sm90-triton{internals.version()}.tar.xz"
    with tarfile.open(archive, "w:xz") as file:
        file.add(tmp_path / "file", name)
    with pytest.raises(tarfile.OutsideDestinationError):
        prepare.unpack([archive], tmp_path / "cache")
    assert not list(tmp_path.rglob("outside*"))


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


def test_a_worker_knows_that_its_gpu_does_not_answer_any_more(monkeypatch):
    torch = pytest.importorskip("torch")

    def lost():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", lost)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert not worker.is_lost()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert worker.is_lost()


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
        each = {
            "ms": ms,
            "first s": 1.0,
            "compiled": 7,
            "host ms": 0.5,
            "launches": {"kernels": 4},
            "host us a launch": 125.0,
        }
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
        "| train, lenet, hybrid, float32 | 1.00 | 7 | 0.5 | 4 kernels | 125.0 |  | 9 |",
        "- steps, train, lenet, torch.compile, float32: late; too long",
    ):
        assert line in text, text
    assert report.write(tmp_path / "empty", tmp_path) == 1
