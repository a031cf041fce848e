"""Compiling kernels in processes: distinct ones once, kept on disk, safe among writers, damage, crashes, interrupts."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("triton")

from hybrid_lab.diagnostics import EngineError, EngineUnavailable
from hybrid_lab.engines.triton.build import binaries, compiling, internals
from hybrid_lab.engines.triton.build.compiling import compile_all, divisible, request_of
from hybrid_lab.engines.triton.build.resources import resources_of
from hybrid_lab.engines.triton.build.targets import CHIPS, TARGETS, target_of
from hybrid_lab.engines.triton.write.source import KernelSource
from hybrid_lab.graph.node import input_node
from tests.triton_device import SIMULATED

TEXT = '''\
import triton
import triton.language as tl


@triton.jit
def scaled(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """x times a number."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside, other=0)
    tl.store(out_ptr + offsets, x * FACTOR, mask=inside)
'''


def source(factor=2.0, n=4096, line=None):
    """A kernel that multiplies by `factor`; `line` stands in the place of its last one."""
    text = TEXT.replace("FACTOR", repr(factor))
    if line is not None:
        text = text[: text.rindex("    tl.store")] + f"    {line}\n"
    x, y = (input_node(name, shape=(n,), dtype="float32") for name in ("x", "y"))
    head, lines = text.split("):\n")
    arguments = [argument.split(":")[0].strip() for argument in head[head.index("(") + 1 :].split(",")]
    return KernelSource(
        "scaled", "pointwise", arguments, f"{head}):".splitlines(), lines.splitlines(), lambda: ("", ()), (x,), (y,),
        (), {"n": n}, {"BLOCK": 1024}, {"BLOCK": n}, (("n", "BLOCK"),),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HYBRID_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(binaries.BINARIES, "_memory", {})
    return tmp_path / "cache" / "binaries"


@pytest.fixture
def started(monkeypatch):
    """The compile processes that were started."""
    found = []

    class Counted(compiling._Process):
        def __init__(self, folder):
            super().__init__(folder)
            found.append(self)

    monkeypatch.setattr(compiling, "_Process", Counted)
    return found


def gone(process):
    """Whether neither the process nor what it started is at work any more."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = entry.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(group) == process.pipe.pid and state != "Z":
            return False
    return True


# -- what is compiled --------------------------------------------------------------------------------------------------


def test_equal_kernels_are_compiled_once_and_another_batch_not_at_all(started):
    first = compile_all([source(n=4096), source(n=4096), source(n=8192)], "gfx942")
    assert len({binary.key for binary in first}) == 1 and len(started) == 1
    assert started[0].errors.closed and gone(started[0])
    assert "amdgcn" in first[0].assembly and first[0].code[:4] == b"\x7fELF"
    compile_all([source(n=1024)], "gfx942")
    assert len(started) == 1


def test_a_size_that_is_no_multiple_of_what_is_loaded_together_has_a_binary_of_its_own():
    large = [in_rows(compiling.SMALL + more) for more in (4, 16, 3)]
    assert [divisible(item) for item in large] == [((0, 16), (1, 16), (2, 4))] * 2 + [((0, 16), (1, 16))]
    even, _, odd = compile_all(large, "gfx942")
    assert "buffer_load_dwordx4" in even.assembly
    assert "buffer_load_dwordx4" not in odd.assembly


def test_of_sizes_that_decide_nothing_a_binary_knows_nothing():
    assert divisible(source(n=4096)) == ((0, 16), (1, 16), (2, 16)), "who says nothing about sizes gets all of them"
    assert divisible(replace(source(n=1 << 20), together={})) == ((0, 16), (1, 16))
    assert divisible(in_rows(4096)) == ((0, 16), (1, 16)), "too few elements for it to matter"
    assert divisible(in_rows(4096, 8)) == ((0, 16), (1, 16), (2, 4)), "so it is for any number of rows"


def in_rows(n, row=1):
    """A kernel of n elements of which 4 are loaded at once."""
    return replace(source(n=n), together={"n": 4}, outputs=(input_node("y", shape=(n // row, row), dtype="float32"),))


def test_what_is_loaded_is_neither_looked_for_nor_loaded_again(monkeypatch):
    loads, looked = [], []
    monkeypatch.setattr(internals, "target_here", lambda: target_of("gfx942"))
    monkeypatch.setattr(internals, "load_binary", lambda *arguments: loads.append(arguments[0]) or object())
    monkeypatch.setattr(compiling, "_handles", {})
    compiling.prepare([source(n=4096)])
    handle = compiling.load(source(n=4096))
    monkeypatch.setattr(compiling, "key_of", lambda *arguments: looked.append(arguments) or "")
    compiling.prepare([source(n=8192), source(n=1024)])
    assert compiling.load(source(n=8192)) is handle is compiling.load(source(n=1024))
    assert len(loads) == 1 and not looked


def test_launchers_of_several_signatures_are_built_at_the_same_time(monkeypatch):
    """One for each signature, by threads that wait for a C compiler; a failure comes again where it is used."""
    both, built = threading.Barrier(2, timeout=60), []

    def build(kernel):
        both.wait()
        built.append(kernel)
        if kernel == "broken":
            raise RuntimeError

    narrow, broken = source(), source(factor=3.0)
    broken.__dict__["signature"] = {**narrow.signature, "x_ptr": "*fp16"}
    monkeypatch.setattr(internals, "builds_launchers", lambda: True)
    monkeypatch.setattr(internals, "build_launcher", build)
    monkeypatch.setattr(compiling, "load", lambda source: "broken" if source is broken else "kernel")
    monkeypatch.setattr(compiling, "_launchers", set())
    monkeypatch.setattr(compiling, "_processors", lambda: 2)
    compiling._build_launchers([narrow, source(factor=4.0), broken], target_of("sm90"))
    assert sorted(built) == ["broken", "kernel"]
    assert compiling._launchers == {tuple(narrow.signature.values())}
    compiling._build_launchers([narrow, broken], target_of("sm90"))  # one alone is built where it is used
    assert len(built) == 2


@pytest.mark.parametrize("change", [{"warps": 8}, {"stages": 1}, {"blocks": {"BLOCK": 512}}])
def test_whatever_is_compiled_differently_has_another_key(change):
    target = target_of("sm90")
    assert request_of(source(), target)["key"] != request_of(replace(source(), **change), target)["key"]
    assert request_of(source(), target)["key"] != request_of(source(), target_of("sm80"))["key"]
    loaded = [compiling._alike(*of) for of in ((source(), target), (replace(source(), **change), target),
                                               (source(), target_of("sm80")))]  # fmt: skip
    assert len(set(loaded)) == 3


def test_resources_of_both_vendors():
    amd, nvidia = compile_all([source()], "gfx90a")[0].resources, compile_all([source()], "sm80")[0].resources
    for found in (amd, nvidia):
        assert found.registers > 4 and found.spills == 0 and found.warps == 4 and found.binary_bytes > 500
    assert amd.scalar_registers > 4
    assert "none spilled" in str(amd)


def test_spills_are_read_from_assembly_and_from_the_log():
    amd = ".vgpr_count\n    .private_segment_fixed_size: 24\n    .vgpr_count: 256\n    .vgpr_spill_count: 5\n"
    found = resources_of(amd, "", {"shared": 64, "num_warps": 8}, 9)
    assert (found.registers, found.spills, found.scratch, found.shared, found.warps) == (256, 5, 24, 64, 8)
    aside = amd.replace("size: 24", "size: 0") + "    .sgpr_spill_count: 12\n"
    found = resources_of(aside, "", {}, 9)
    assert (found.spills, found.scalar_spills, found.scratch) == (0, 12, 0)
    log = "ptxas info: 16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\nptxas info: Used 255 registers"
    found = resources_of("// ptx", log, {}, 9)
    assert (found.registers, found.spills, found.scratch) == (255, 3, 16)


@pytest.mark.long
def test_a_kernel_that_spills_gets_more_threads():
    """36 rows that are all alive at once: too much for the registers of 128 threads."""
    lines = [f"x{row} = tl.load(x_ptr + offsets + {row} * n, mask=inside, other=0)" for row in range(36)]
    lines += [f"x{row} = tl.exp(x{row}) * x{35 - row}" for row in range(36)]
    lines += [f"tl.store(out_ptr + offsets + {row} * n, x{row}, mask=inside)" for row in range(36)]
    wide = source(line="\n    ".join(lines))
    (found,) = compile_all([wide], "sm90")
    assert found.resources.spills == 0
    assert found.resources.warps > 4


def test_every_target_of_the_tables_is_known():
    assert {target_of(name)[0] for name in TARGETS} == {"hip", "cuda"}
    assert target_of("GFX942") == target_of("gfx942:sramecc+:xnack-") == ("hip", "gfx942", 64)
    assert target_of("sm90a") == target_of("sm_90") == target_of("SM90") == ("cuda", 90, 32)
    assert set(CHIPS) == set(TARGETS)
    assert CHIPS["sm90"].seconds(3.35e9, 0, "float32") == pytest.approx(1e-3)
    with pytest.raises(EngineError, match="gfx942"):
        target_of("sm35")


def test_a_binary_becomes_a_kernel_of_triton_without_its_text():
    target = target_of("sm90")
    loaded = compiling.load(source(n=4096), target)
    assert loaded is compiling.load(source(n=8192), target)
    assert loaded.name == "scaled" and loaded.metadata.num_warps == 4
    assert loaded.src.constants == {(3,): 1024}
    if not SIMULATED:  # where one binary stands in for all
        assert loaded.kernel == compile_all([source()], "sm90")[0].code


# -- the disk ----------------------------------------------------------------------------------------------------------


def test_binaries_are_found_on_disk(cache, started):
    (first,) = compile_all([source()], "gfx942")
    (again,) = compile_all([source()], "gfx942")
    assert len(started) == 1 and again.code == first.code and again.resources == first.resources
    (text,) = (cache.parent / "kernels").iterdir()
    assert "tl.store(out_ptr + offsets, x * 2.0" in text.read_text() and text.name in first.assembly


@pytest.mark.parametrize(
    "damage", ["flip", "cut", *(pytest.param(how, marks=pytest.mark.long) for how in ("empty", "remove"))]
)
def test_a_damaged_binary_is_compiled_again(cache, started, damage):
    (first,) = compile_all([source()], "gfx942")
    (path,) = cache.iterdir()
    good = path.read_bytes()
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 1
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes({"flip": flipped, "cut": good[:-7], "empty": b""}[damage])
    (again,) = compile_all([source()], "gfx942")
    assert again.code == first.code and len(started) == 2
    assert [*cache.iterdir()] == [path] and binaries.BINARIES.find(first.key) == again


def test_another_version_of_triton_has_other_keys(monkeypatch):
    before = request_of(source(), target_of("sm90"))["key"]
    monkeypatch.setattr(compiling, "_version", lambda: "3.4.0")
    assert request_of(source(), target_of("sm90"))["key"] != before


def test_two_processes_compile_the_same_at_once(cache, tmp_path):
    script = (
        "from tests.engines.test_triton_compiling import source, compile_all;"
        "print(compile_all([source(5.0), source(6.0)], 'gfx942')[1].binary_bytes)"
    )
    run = [sys.executable, "-c", script]
    both = [subprocess.Popen(run, stdout=subprocess.PIPE, text=True, cwd=os.getcwd()) for _ in range(2)]
    sizes = [process.communicate(timeout=120)[0] for process in both]
    assert sizes[0] == sizes[1] != ""
    assert len(list(cache.iterdir())) == 2


def test_without_a_cache_nothing_stays_on_disk(monkeypatch, started):
    monkeypatch.setenv("HYBRID_LAB_CACHE", "")
    (first,) = compile_all([source()], "gfx942")
    compile_all([source()], "gfx942")
    assert len(started) == 1 and first.code


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_a_kernel_that_does_not_compile_is_named_with_the_reason():
    wrong = source(line="tl.store(out_ptr + offsets, nothing_known, mask=inside)")
    message = r"(?s)the kernel scaled could not be compiled for sm90.*nothing_known"
    with pytest.raises(EngineError, match=message) as error:
        compile_all([source(), wrong], "sm90")
    assert "Traceback" not in str(error.value)


def test_a_kernel_that_needs_more_shared_memory_than_there_is_is_refused(monkeypatch):
    from hybrid_lab.engines.triton.build import targets

    monkeypatch.setitem(targets.SHARED, 75, -1)
    with pytest.raises(EngineError, match="scaled .*sm75: .*0 bytes of shared memory"):
        compile_all([source(9.5)], "sm75")


def test_failures_can_be_collected(started):
    wrong = source(line="tl.store(out_ptr + offsets, nothing_known, mask=inside)")
    failed = {}
    good, bad = compile_all([source(3.5), wrong], "gfx942", failed)
    assert good is not None and bad is None
    assert list(failed) == [1] and "nothing_known" in failed[1]


def crashing(tmp_path, monkeypatch, lines):
    """Let compile processes run this instead."""
    script = tmp_path / "process.py"
    script.write_text("import os, signal, sys, time\nline = sys.stdin.readline()\n" + lines)
    monkeypatch.setattr(compiling, "_SCRIPT", script)


def test_a_crash_in_a_compile_process_names_the_kernel(tmp_path, monkeypatch, started):
    lines = "print('half way', file=sys.stderr, flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)"
    crashing(tmp_path, monkeypatch, lines)
    with pytest.raises(EngineError, match=r"the kernel scaled could not be .*was ended by SIGSEGV:\nhalf way"):
        compile_all([source()], "gfx942")
    assert all(map(gone, started))


def test_a_process_that_dies_between_kernels_does_not_stop_the_others(tmp_path, monkeypatch):
    crashing(tmp_path, monkeypatch, "sys.exit(3)")
    failed = {}
    assert compile_all([source(float(number)) for number in range(4)], "gfx942", failed) == [None] * 4
    assert all("ended with status 3" in text for text in failed.values())


def test_a_killed_process_does_not_hang(tmp_path, monkeypatch, started):
    crashing(tmp_path, monkeypatch, "time.sleep(10_000)")

    def kill():
        while not started:
            time.sleep(0.01)
        started[0].pipe.send_signal(signal.SIGKILL)

    threading.Thread(target=kill).start()
    with pytest.raises(EngineError, match="the kernel scaled .* SIGKILL, .*memory runs out: close other programs"):
        compile_all([source()], "gfx942")


def test_a_kernel_that_takes_forever_is_given_up(tmp_path, monkeypatch, started):
    crashing(tmp_path, monkeypatch, "time.sleep(100)")
    monkeypatch.setattr(compiling, "LIMIT", 0.3)
    with pytest.raises(EngineError, match="took more than 0 seconds"):
        compile_all([source()], "gfx942")
    assert all(map(gone, started))


def test_an_interrupt_ends_the_processes_and_the_next_call_works(tmp_path, monkeypatch, started):
    with monkeypatch.context() as patched:
        # It starts a process of its own, as Triton starts ptxas.
        crashing(tmp_path, patched, "import subprocess\nsubprocess.run(['sleep', '100'])")

        def interrupt():
            while not started:
                time.sleep(0.01)
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            compile_all([source()], "gfx942")
    assert started
    while not all(map(gone, started)):  # the system ends killed processes in its own time
        time.sleep(0.01)
    assert compile_all([source()], "gfx942")[0] is not None


def test_no_triton_is_a_plain_error(monkeypatch):
    monkeypatch.setattr(compiling.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EngineUnavailable, match="Triton.*not installed"):
        compile_all([source()], "gfx942")


def test_where_the_cache_cannot_be_written_binaries_last_as_long_as_the_process(tmp_path, monkeypatch, caplog, started):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("HYBRID_LAB_CACHE", str(tmp_path / "file"))
    for _ in range(2):
        (first, second) = compile_all([source(2.5), source(3.5)], "gfx942")
        assert first.code and second.code
    assert len(started) == 1
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1 and "HYBRID_LAB_CACHE names another folder" in warnings[0]


def test_a_binary_that_cannot_be_written_for_triton_to_read_is_an_error(tmp_path, monkeypatch):
    target = target_of("sm90")
    compile_all([source(4.5)], target)
    monkeypatch.setattr(internals.tempfile, "tempdir", str(tmp_path / "nothing here"))
    with pytest.raises(EngineError, match="the kernel scaled could not be loaded.*TMPDIR names another"):
        compiling.load(source(4.5), target)


def test_the_environment_of_compile_processes_has_no_interpreter(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "TRITON_INTERPRET" not in compiling._environment()
    assert json.dumps(request_of(source(), target_of("gfx942")))
    assert compile_all([source(7.5)], "gfx942")[0] is not None
