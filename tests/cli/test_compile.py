"""`hybrid-lab compile` and `net.compile_for`: kernels for GPUs that need not be here, as a table and as objects."""

import json
import sys

import numpy as np
import pytest

pytest.importorskip("triton")

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.cli import main
from hybrid_lab.diagnostics import EngineError, HybridLabError
from hybrid_lab.engines.triton.build import compiling
from hybrid_lab.engines.triton.build.targets import target_of
from hybrid_lab.gluon import nn
from hybrid_lab.insight.kernel_table import least


class Head(gluon.HybridBlock):
    """Two kernels: a sum, and what has a space of its own; a sort, which none holds."""

    def __init__(self, sorts=False, **keywords):
        super().__init__(**keywords)
        self.sorts = sorts
        with self.name_scope():
            self.scale = self.params.get("scale", shape=(1, 8), init="ones")

    def hybrid_forward(self, F, x, scale):
        y = F.tanh(x * scale + 1.0)
        return F.sort(y, axis=1) if self.sorts else y


class Sorting(gluon.HybridBlock):
    """Nothing that a kernel holds."""

    def hybrid_forward(self, F, x):
        return F.sort(x, axis=1)


class Top(gluon.Block):
    """A plain Block around hybrid ones."""

    def __init__(self, **keywords):
        super().__init__(**keywords)
        with self.name_scope():
            self.head = Head()

    def forward(self, x):
        return self.head(x)


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HYBRID_LAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        patched.setenv("HYBRID_LAB_CPU", "numpy")
        yield


def head(**options):
    net = Head(prefix="head_", **options)
    net.initialize()
    return net


# -- net.compile_for ---------------------------------------------------------------------------------------------------


def test_a_net_is_compiled_for_chips_that_are_not_here():
    made = head().compile_for("gfx942", "sm90", inputs=(64, 8))
    (amd,), (nvidia,) = made.on("gfx942"), made.on("sm90")
    assert amd.kind == nvidia.kind == "pointwise"
    assert "amdgcn" in amd.asm and ".target sm_90" in nvidia.asm
    assert "tt.func public" in amd.ttir
    assert amd.resources.registers > 0 and amd.resources.spills == 0
    assert amd.bytes_moved == 64 * 8 * 4 * 2 + 8 * 4
    assert amd.estimate == pytest.approx(amd.bytes_moved / 5300e9)
    assert amd.time is None
    text = str(made)
    assert text.startswith("head for gfx942 and sm90: 1 kernel each")
    assert "MI300X, an estimate by its data sheet" in text and "regs" in text
    assert max(map(len, text.splitlines())) <= 120


def test_a_net_needs_neither_a_call_nor_initialized_parameters_nor_hybridize():
    net = nn.Dense(4, prefix="dense_")
    made = net.compile_for("gfx942", inputs=(16, 32))
    assert [kernel.kind for kernel in made.kernels] == ["product"]
    assert made.kernels[0].flops == 2 * 16 * 32 * 4
    assert net.weight.shape == (4, 32)
    assert not net._graph_calls.programs and not net._active


def test_training_compiles_backward_and_the_trainers_update():
    net = head()
    net(nd.ones((16, 8)))
    made = net.compile_for("gfx942", inputs=(16, 8), train=True)
    assert {kernel.part for kernel in made.kernels} == {"forward", "backward", "update"}
    plain = [kernel for kernel in made.kernels if kernel.part == "update"]
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.1})
    made = net.compile_for("gfx942", inputs=(16, 8), train=True)
    adam = [kernel for kernel in made.kernels if kernel.part == "update"]
    assert trainer is not None and len(adam) == len(plain) == 1
    assert "sqrt" in adam[0].source and "sqrt" not in plain[0].source


def test_arrays_say_dtypes_and_the_last_call_is_the_default():
    net = head()
    with pytest.raises(HybridLabError, match="has not been called yet"):
        net.compile_for("gfx942")
    net(nd.ones((24, 8)))
    (kernel,) = net.compile_for("gfx942").kernels
    assert kernel.generated.sizes["n"] == 24 * 8
    net.cast("float16")
    (half,) = net.compile_for("gfx942", inputs=nd.ones((24, 8), dtype="float16")).kernels
    assert half.dtype == "float16" and half.bytes_moved < kernel.bytes_moved


def test_another_batch_compiles_nothing(monkeypatch):
    net = head()
    net.compile_for("gfx942", inputs=(256, 8))
    monkeypatch.setattr(compiling, "_Process", None)
    assert net.compile_for("gfx942", inputs=(512, 8)).kernels[0].resources.registers > 0


def test_a_pointwise_kernel_of_many_loads_spills_nothing():
    made = nn.GlobalAvgPool2D().compile_for("sm80", "gfx942", inputs=(32, 512, 7, 7))
    assert [kernel.resources.spills for kernel in made.kernels] == [0] * len(made.kernels)


def test_tf32_is_compiled_where_the_chip_has_it():
    net = nn.Dense(64, in_units=64)
    net.hybridize(engine="numpy", tf32=True)
    amd, old, nvidia = net.compile_for("gfx942", "gfx90a", "sm90", inputs=(64, 64)).kernels
    assert 'input_precision="tf32"' in amd.source and 'input_precision="tf32"' in nvidia.source
    assert 'input_precision="ieee"' in old.source


def test_targets_have_one_name():
    made = head().compile_for("sm_90", "sm90", inputs=(16, 8))
    assert made.targets == ("sm90",) and made.summary("sm90").chip == "H100 SXM"
    (kernel,) = made.kernels
    assert kernel.on("sm_80").target == "sm80" and kernel.on("sm_80").estimate is not None
    with pytest.raises(EngineError, match="there is no target 'h100'"):
        kernel.on("h100")


@pytest.mark.parametrize(
    "card, target",
    [
        ("MI300X", "gfx942"),
        ("AMD Instinct MI250X", "gfx90a"),
        ("Radeon RX 7900 XTX", "gfx1100"),
        ("rx9070xt", "gfx1201"),
        ("H100", "sm90"),
        ("GeForce RTX 4090", "sm89"),
        ("a100", "sm80"),
    ],
)
def test_a_card_is_answered_with_its_target(card, target):
    with pytest.raises(EngineError, match=f"there is no target {card!r}; a card of this name is {target!r}"):
        target_of(card)
    assert target_of(target)


def test_a_card_that_triton_does_not_compile_for_is_told_so():
    with pytest.raises(EngineError, match="'RX 6800'.*Triton"):
        target_of("RX 6800")


@pytest.mark.parametrize("name", ["gfx942:sramecc+:xnack-", "amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-"])
def test_a_target_may_have_the_features_that_rocm_prints(name):
    assert target_of(name) == ("hip", "gfx942", 64)


def test_operators_without_a_kernel_are_listed():
    made = head(sorts=True).compile_for("gfx942", inputs=(16, 8))
    assert "sort in forward has no kernel" in str(made)
    assert [item.operator for _, item in made.fallbacks] == ["sort"]


def test_a_shape_takes_no_memory(monkeypatch):
    """Of more bytes than any machine has."""
    found = head().compile_for("gfx942", inputs=(2**57, 8))
    assert "8589934592.0 GiB moved" in str(found)


def test_empty_arrays_need_no_kernel():
    for targets in ((), ("gfx942",)):
        made = head().compile_for(*targets, inputs=(0, 8))
        assert not made.kernels and not made.fallbacks
        reason = "no kernel: nothing is computed, but for views and empty arrays"
        assert str(made).splitlines()[1:] == ["", f"    {reason}"]
        assert reason in made._repr_html_() and "<table" not in made._repr_html_()


def test_a_net_of_which_no_operator_has_a_kernel_says_so():
    made = Sorting().compile_for("gfx942", inputs=(4, 8))
    assert "no kernel: none of its operators has one" in str(made) and "sort in forward has no kernel" in str(made)


def test_a_plain_block_names_the_children_that_compile():
    with pytest.raises(HybridLabError, match="top is a Top, .*compile_for .*head"):
        Top(prefix="top_").compile_for("gfx942", inputs=(4, 8))
    with pytest.raises(HybridLabError, match="has no graph to compile$"):
        nn.Sequential().compile_for("gfx942")


def test_arrays_and_sizes_of_numpy_are_inputs():
    for inputs in (np.ones((16, 8), np.float32), (np.int64(16), 8), [np.ones((16, 8), np.float32)]):
        (kernel,) = head().compile_for(inputs=inputs).kernels
        assert kernel.generated.sizes["n"] == 16 * 8


def test_a_kernel_that_does_not_compile_is_a_row(monkeypatch):
    def fails(sources, target, failed=None):
        failed[0] = "the kernel could not be compiled: because"
        return [None for _ in sources]

    monkeypatch.setattr(compiling, "compile_all", fails)
    made = head().compile_for("gfx942", inputs=(16, 8))
    assert "does not compile" in str(made) and "because" in str(made)
    assert made.summary("gfx942").problems == 1
    assert made.kernels[0].asm is None and "because" in str(made.kernels[0])


@pytest.mark.parametrize(
    "targets, inputs, message",
    [
        (("mi300",), (4, 8), "there is no target 'mi300'.*gfx942"),
        ((["gfx942"],), (4, 8), r"a target is a name such as 'gfx942' or 'sm90', not \['gfx942'\]"),
        ((90,), (4, 8), "a target is a name .*, not 90"),
        (("gfx942",), "8", "an array or a shape"),
        (("gfx942",), [], "an array or a shape"),
        (("gfx942",), (2.5, 8), "an array or a shape"),
        (("gfx942",), [None], "an array or a shape"),
        (("gfx942",), (-4, 8), r"a shape cannot have negative sizes: \(-4, 8\)"),
        (("gfx942",), (2**40, 2**40), "no array can be that large; give the sizes of a real call"),
    ],
)
def test_bad_requests_say_what_to_do(targets, inputs, message):
    with pytest.raises((EngineError, HybridLabError), match=message):
        head().compile_for(*targets, inputs=inputs)


def test_without_a_target_kernels_are_written_and_triton_need_not_be_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    made = head().compile_for(inputs=(16, 8))
    assert made.targets == () and made.headline == f"{head().name}: 1 kernel, not compiled"
    (kernel,) = made.kernels
    assert "tl.store" in kernel.source and kernel.resources is None and kernel.name in str(made)
    assert kernel.name in made._repr_html_() and made.data()["kernels"][0]["target"] is None


def test_html_has_a_table_without_scripts_or_fixed_colours():
    page = head().compile_for("gfx942", inputs=(16, 8))._repr_html_()
    assert "<table" in page and "<script" not in page and "tl.store" in page
    assert "color:inherit" in page and "#" not in page.split("<pre")[0]


def test_plain_data_for_the_lab():
    data = head().compile_for("gfx942", inputs=(16, 8)).data()
    assert json.loads(json.dumps(data)) == data
    (kernel,) = data["kernels"]
    assert kernel["resources"]["registers"] > 0 and kernel["nodes"][0]["block"].startswith("head")
    assert data["targets"][0]["chip"] == "MI300X"


# -- kernel objects ----------------------------------------------------------------------------------------------------


def test_a_hybridized_net_shows_its_kernels(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("HYBRID_LAB_TRITON", "interpret")
    net = head()
    net.hybridize(engine="triton")
    (kernel,) = mx.explain(net, nd.ones((4, 8))).kernels
    assert "tl.store" in kernel.source
    assert [node.operator for node in kernel.nodes][-1] == "tanh"
    assert kernel.nodes[0].line.startswith("test_compile.py:") and kernel.nodes[0].type == "f32[4,8]"
    assert kernel.why[0].startswith("together: 3 operators")
    assert kernel.ttir is kernel.asm is kernel.resources is kernel.time is None
    assert "amdgcn" in kernel.on("gfx942").asm
    monkeypatch.delenv("HYBRID_LAB_TRITON")


def test_kernels_show_themselves_as_a_table_and_one_as_its_text():
    net = nn.HybridSequential(prefix="net_")
    net.add(nn.Dense(32, in_units=16), nn.LayerNorm(in_channels=32), nn.Dense(32, in_units=32))
    kernels = net.compile_for(inputs=(16, 16)).kernels
    first, *rows = repr(kernels).splitlines()
    assert first.split() == ["kernel", "kind", "part", "ops", "moved"] and len(rows) == len(kernels) == 3
    page = kernels._repr_html_()
    assert page.count("<details") == 3 and "<script" not in page and "tl.store" in page
    assert isinstance(kernels[1:], type(kernels)) and len(repr(kernels[1:]).splitlines()) == 3
    one = kernels[1]._repr_html_()
    assert "@triton.jit" in one and "&lt; net.1" in one and "<summary" in one and "color:inherit" in one
    assert "regs" in repr(net.compile_for("gfx942", inputs=(16, 16)).kernels)


def test_a_net_without_kernels_says_what_it_runs_on():
    net = head()
    assert repr(mx.explain(net).kernels).startswith("no kernels here: head was not called hybridized so far.")
    net.hybridize(engine="numpy")
    shown = mx.explain(net, nd.ones((4, 8))).kernels
    assert shown == [] and "head runs on NumPy on the CPU. head.compile_for('gfx942'" in repr(shown)


def test_a_time_below_a_nanosecond_is_not_nothing():
    assert [least(seconds) for seconds in (2e-3, 3.2e-6, 1.4e-9, 4e-10, 0.0)] == [
        "2.0 ms", "3.2 µs", "1 ns", "< 1 ns", "0 ns",
    ]  # fmt: skip
    made = nn.HybridLambda("relu").compile_for("gfx942", inputs=(4, 8))
    assert "256 B moved; < 1 ns (MI300X" in str(made)


def test_why_says_what_keeps_neighbours_apart():
    net = nn.HybridSequential(prefix="net_")
    net.add(nn.Dense(32, in_units=16), nn.LayerNorm(in_channels=32))
    kernels = net.compile_for("gfx942", inputs=(16, 16)).kernels
    assert any("apart" in line for kernel in kernels for line in kernel.why)


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def archive(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net = head()
    net.hybridize()
    net(nd.ones((16, 8)))
    net.save("model.hlab")
    return tmp_path


def test_an_archive_is_compiled(archive, capsys):
    assert main(["compile", "model.hlab", "--target", "gfx942", "--target", "sm90", "--out", "out"]) == 0
    shown = capsys.readouterr().out
    assert "model for gfx942 and sm90" in shown and "files written to out" in shown
    names = {path.suffix for path in (archive / "out" / "gfx942" / "model").iterdir()}
    assert {".py", ".ttir", ".amdgcn", ".hsaco", ".json"} <= names
    rows = json.loads((archive / "out" / "sm90" / "model" / "kernels.json").read_text())
    assert rows[0]["target"] == "sm90" and rows[0]["file"].startswith("000_")


def test_train_batch_and_json(archive, capsys):
    assert main(["compile", "model.hlab", "--target", "gfx942", "--train", "--batch", "64", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert {kernel["part"] for kernel in found["kernels"]} == {"forward", "backward", "update"}
    assert "f32[64,8]" in {node["type"] for kernel in found["kernels"] for node in kernel["nodes"]}


def test_blocks_below_a_plain_one_are_compiled(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    net = Top(prefix="top_")
    net.initialize()
    net.hybridize()
    net(nd.ones((16, 8)))
    net.save("top.hlab")
    assert main(["compile", "top.hlab", "--target", "gfx942"]) == 0
    assert capsys.readouterr().out.startswith("head for gfx942")


@pytest.mark.parametrize(
    "options, message",
    [
        ([], "name at least one GPU with --target"),
        (["--target", "gfx0"], "there is no target 'gfx0'"),
        (["--target", "gfx942", "--input", "8xx"], "write a shape as numbers joined by x"),
        (["--target", "gfx942", "--batch", "0"], "at least one row"),
        (["--target", "gfx942", "--block", "tail"], "has no block 'tail'"),
    ],
)
def test_bad_commands_say_what_to_do(archive, capsys, options, message):
    assert main(["compile", "model.hlab", *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "file, message",
    [
        (".", "'.' is a folder; give the path of a file in it: 'model.hlab'"),
        ("empty", "'empty' is a folder; give the path of a file\n"),
        ("modle.hlab", "there is no file 'modle.hlab'; did you mean 'model.hlab'?"),
        ("other.hlab", "; the folder has 'model.hlab'\n"),
        ("plain", "plain.hlab has no HybridBlock"),
    ],
)
def test_what_is_no_archive_with_graphs_is_told_so(archive, capsys, file, message):
    (archive / "empty").mkdir()
    if file == "plain":
        gluon.nn.Sequential().save("plain.hlab")
    assert main(["compile", file, "--target", "gfx942"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("option, message", [("--into", "not a .hlab archive"), ("--out", "text.json is a file")])
def test_a_place_that_cannot_be_written_to_is_told_at_once(archive, capsys, monkeypatch, option, message):
    (archive / "text.json").write_text("{}")
    monkeypatch.setattr(compiling, "compile_all", None)
    assert main(["compile", "model.hlab", "--target", "gfx942", option, "text.json"]) == 2
    assert message in capsys.readouterr().err
