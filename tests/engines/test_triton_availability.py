"""What is missing for the Triton engine, each with the next step; machines are made up."""

import logging
import re
import subprocess
from types import SimpleNamespace

import pytest

pytest.importorskip("triton")
torch = pytest.importorskip("torch")

from hybrid_lab import engines  # noqa: E402
from hybrid_lab.cli import environment  # noqa: E402
from hybrid_lab.diagnostics.errors import EngineError, EngineUnavailable  # noqa: E402
from hybrid_lab.engines import libraries  # noqa: E402
from hybrid_lab.engines.triton.build import internals, targets  # noqa: E402
from hybrid_lab.engines.triton.run import availability  # noqa: E402
from hybrid_lab.ndarray import context  # noqa: E402


@pytest.fixture(autouse=True)
def no_interpreter(monkeypatch):
    monkeypatch.delenv("HYBRID_LAB_TRITON", raising=False)
    availability._gpu_problem.cache_clear()
    yield
    availability._gpu_problem.cache_clear()


def machine(monkeypatch, name="gfx942", reached=True, compiler=True, tritons=("triton",)):
    """A machine with an AMD GPU."""
    monkeypatch.setattr(libraries, "driver_seen", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: reached)
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(gcnArchName=f"{name}:sramecc+"))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(availability.shutil, "which", lambda name: f"/usr/bin/{name}" if compiler else None)
    monkeypatch.setattr(availability, "triton_distributions", lambda: dict.fromkeys(tritons, "3.6.0"))


def test_nothing_is_missing(monkeypatch):
    machine(monkeypatch)
    assert availability.missing() is None
    assert availability.device_name() == "gfx942"


@pytest.mark.parametrize(
    "how, message",
    [
        ({"reached": False}, "ROCm build.*reaches no GPU; install the torch build"),
        ({"name": "gfx803"}, "a gfx803, which Triton does not compile for.*engine='onnxruntime'"),
        ({"compiler": False}, "finds no C compiler; install gcc or clang"),
    ],
)
def test_what_is_missing_comes_with_the_next_step(monkeypatch, how, message):
    machine(monkeypatch, **how)
    assert re.search(message, availability.missing())


def test_a_gpu_without_a_target_is_told_of_those_that_have_one_and_of_no_other(monkeypatch):
    machine(monkeypatch, name="gfx803")
    found = re.findall(r"\b(?:gfx|sm)\w+", availability.missing())
    assert found[0] == "gfx803" and {"gfx1150", "gfx1201", "sm75"} <= set(found)
    assert found[1:] == [targets.name_of(targets.target_of(name)) for name in found[1:]]


@pytest.mark.parametrize("name", ["gfx1150", "gfx1152", "gfx1153"])
def test_all_of_rdna_3_5_is_compiled_for(monkeypatch, name):
    machine(monkeypatch, name=name)
    assert availability.missing() is None


def test_a_compiler_that_is_not_there_is_named(monkeypatch):
    machine(monkeypatch, compiler=False)
    monkeypatch.setenv("CC", "icc")
    assert "CC names 'icc', which is not there" in availability.missing()


def without(monkeypatch, *modules):
    find = availability.importlib.util.find_spec
    monkeypatch.setattr(availability.importlib.util, "find_spec", lambda name: None if name in modules else find(name))


@pytest.mark.parametrize("modules", [("torch",), ("triton",), ("triton", "torch")])
def test_missing_libraries_are_named_with_the_command_for_either_maker(monkeypatch, modules):
    machine(monkeypatch)
    without(monkeypatch, *modules)
    found = availability.missing()
    assert found.startswith(f"{' and '.join(modules)} {'are' if len(modules) > 1 else 'is'} not installed; NVIDIA: ")
    assert 'pip install "hybrid-lab[cuda]"' in found and "AMD: pip install torch pytorch-triton-rocm --index" in found


def test_where_there_is_no_gpu_nothing_is_to_be_installed_for_one(monkeypatch):
    monkeypatch.setattr(libraries, "driver_seen", lambda: False)
    without(monkeypatch, "triton", "torch")
    found = availability.missing()
    assert found.startswith("no AMD or NVIDIA GPU is seen on this machine") and "pip install" not in found
    assert "net.compile_for('gfx942', inputs=x)" in found


def test_the_interpreter_needs_any_build_of_torch(monkeypatch):
    monkeypatch.setenv("HYBRID_LAB_TRITON", "interpret")
    assert availability.missing() is None
    without(monkeypatch, "torch")
    assert availability.missing() == "torch is not installed; pip install torch"


def test_a_user_who_may_not_open_the_gpu_learns_of_the_groups(monkeypatch):
    machine(monkeypatch, reached=False)
    monkeypatch.setattr(availability, "_may_use_amd", lambda: False)
    assert "this user may not use it (/dev/kfd); sudo usermod -aG render,video" in availability.missing()


def test_triton_is_for_linux(monkeypatch):
    monkeypatch.setattr(availability.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(availability.sys, "platform", "darwin")
    assert "Triton runs on Linux, not on darwin" in availability.missing()


def test_two_tritons_are_warned_about(monkeypatch, caplog):
    machine(monkeypatch, tritons=("triton", "pytorch-triton-rocm"))
    logging.getLogger("hybrid_lab").addHandler(caplog.handler)
    try:
        assert availability.missing() is None
    finally:
        logging.getLogger("hybrid_lab").removeHandler(caplog.handler)
    assert "triton 3.6.0 and pytorch-triton-rocm 3.6.0 are installed" in caplog.text
    assert "pip uninstall triton pytorch-triton-rocm" in caplog.text
    assert "pip uninstall" in environment._triton().found


@pytest.mark.parametrize(
    "distribution, hip, extra",
    [
        ("pytorch-triton-rocm", "6.4", "rocm"),  # PyTorch's index, torch up to 2.9
        ("triton-rocm", "7.1", "amd"),  # from 2.10 on
        ("triton", "7.0", "amd"),  # AMD's own wheels
        ("triton", None, "cuda"),
    ],
)
def test_the_report_names_the_distribution_and_the_extra_that_fits(monkeypatch, distribution, hip, extra):
    machine(monkeypatch, tritons=(distribution,))
    monkeypatch.setattr(torch.version, "hip", hip)
    assert environment._triton().found == f"3.6.0 from {distribution}, for hybrid-lab[{extra}]"


def test_the_report_tells_of_a_missing_compiler(monkeypatch):
    machine(monkeypatch, compiler=False)
    item = environment._compiler()
    assert item.found is None and "apt-get install gcc" in item.get
    monkeypatch.setenv("CC", "icc")
    assert "unset CC=icc" in environment._compiler().get


def test_the_report_tells_of_a_gpu_without_a_target(monkeypatch):
    machine(monkeypatch)
    found = SimpleNamespace(name="Radeon RX 580", gcnArchName="gfx803", total_memory=8 << 30, major=8, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: found)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert environment._gpus_by_torch() == ["Radeon RX 580 (gfx803, which Triton does not compile for, 8 GiB)"]


def test_the_report_tells_whether_kernels_can_be_compiled_for_gpus_elsewhere(monkeypatch):
    assert environment._compiling().found.startswith("for gfx90a, gfx942, gfx1100, sm80, sm90 and others, no GPU")
    monkeypatch.setattr(environment, "has_module", lambda name: False)
    item = environment._compiling()
    assert item.found is None and item.get.startswith("pip install triton (Linux only") and "compile_for" in item.needed


def test_a_launcher_that_cannot_be_built_names_the_header_files():
    class Compiled:
        @property
        def run(self):
            raise subprocess.CalledProcessError(1, ["/usr/bin/gcc", "main.c"])

    with pytest.raises(EngineError, match="gcc ended with status 1, .* apt-get install python3-dev"):
        internals.handles(Compiled())


def test_another_value_of_the_variable_is_told_wherever_the_engine_is_asked_for(monkeypatch):
    machine(monkeypatch)
    monkeypatch.setenv("HYBRID_LAB_TRITON", "Interpret")
    message = "HYBRID_LAB_TRITON=Interpret: the variable takes interpret, or nothing"
    with pytest.raises(EngineUnavailable, match=f"the engine 'triton' cannot run here: {message}"):
        engines.get("triton")
    with pytest.raises(EngineUnavailable, match=f"^{message}"):
        engines.default()
    with pytest.raises(EngineUnavailable, match=re.escape(f"gpu(0) cannot be used: {message}")):
        context.require(context.gpu(0))
    found = {item.name: item.found for item in environment._engines()}
    assert found["default engine"] == f"none: {message}" and message in found["engine triton"]
    monkeypatch.delenv("HYBRID_LAB_TRITON")
    assert "default engine" not in {item.name for item in environment._engines()}


@pytest.fixture
def second_of_three(monkeypatch):
    """A process that has called torch.cuda.set_device(1), on a machine with three GPUs."""
    cached = (availability.device_index, availability.torch_device)
    for function in cached:
        function.cache_clear()
    monkeypatch.setattr(availability, "device", lambda: availability.Device("sm90", "cuda", False))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    yield
    for function in cached:
        function.cache_clear()


def test_the_gpu_of_a_process_is_the_one_that_torch_has_for_current(monkeypatch, second_of_three):
    assert availability.torch_device() == torch.device("cuda", 1)
    assert [availability.card(number) for number in range(3)] == [1, 0, 2]
    for number, index in ((0, 1), (1, 0)):
        assert context.device_of(context.gpu(number)) == torch.device("cuda", index)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=5, device_index=1))
    assert availability.current_stream() == 5
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=5, device_index=2))
    with pytest.raises(EngineError, match="computes on GPU 1 .* and GPU 2 is torch's current one now"):
        availability.current_stream()


def test_where_nobody_has_chosen_a_gpu_it_is_the_first(monkeypatch):
    availability.device_index.cache_clear()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert availability.device_index() == 0
    availability.device_index.cache_clear()
