"""`hybrid-lab convert` of models that the real MXNet exported: to ONNX, PyTorch source, archives and weights."""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from hybrid_lab import gluon, nd
from hybrid_lab.cli import main, parser
from hybrid_lab.cli.convert import CONVERSIONS, OPTIONS
from hybrid_lab.formats.mxnet import read_params
from hybrid_lab.formats.safetensors import read_safetensors
from tests.written import written_module

FOLDER = Path(__file__).parent.parent / "golden" / "exported"
MODELS = sorted(path.stem for path in FOLDER.glob("*.npz"))
LABELS = ("softmax_label", "lin_label", "label")
#: The outputs of a model for training that prediction has, too.
KEPT = {"ssd_training": [0, 2]}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def arrays(name):
    """The inputs but labels, and MXNet's outputs."""
    kept = np.load(FOLDER / f"{name}.npz")
    inputs = {key[3:]: kept[key] for key in kept if key.startswith("in_") and key[3:] not in LABELS}
    outputs = [kept[key] for key in sorted(kept) if key.startswith("out_")]
    return inputs, [outputs[index] for index in KEPT.get(name, range(len(outputs)))]


def convert(name, target, *options):
    shapes = [f"--shape={key}={','.join(map(str, array.shape))}" for key, array in arrays(name)[0].items()]
    return main(["convert", str(FOLDER / f"{name}-symbol.json"), target, *shapes, *options])


def check(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_there_are_twelve_models():
    assert len(MODELS) == 12


@pytest.mark.parametrize("name", MODELS)
def test_onnx_gives_what_mxnet_gave(name, capsys):
    runtime = pytest.importorskip("onnxruntime")
    assert convert(name, "model.onnx") == 0, capsys.readouterr().err
    assert "compared in ONNX Runtime with random inputs: the largest difference is " in capsys.readouterr().out
    inputs, outputs = arrays(name)
    session = runtime.InferenceSession("model.onnx")
    assert [item.name for item in session.get_inputs()] == list(inputs)
    check(session.run(None, inputs), outputs)


@pytest.mark.parametrize("name", MODELS)
def test_pytorch_source_gives_what_mxnet_gave(name, capsys):
    torch = pytest.importorskip("torch")
    assert convert(name, "model.py") == 0, capsys.readouterr().err
    assert "compared in torch with random inputs: the largest difference is " in capsys.readouterr().out
    module = written_module("model.py")
    assert "hybrid_lab" not in Path("model.py").read_text()
    inputs, outputs = arrays(name)
    with torch.no_grad():
        found = module.load()(*map(torch.from_numpy, inputs.values()))
    check([item.numpy() for item in (found if isinstance(found, tuple) else [found])], outputs)


@pytest.mark.parametrize("name", MODELS)
def test_an_archive_can_be_converted_further(name):
    assert convert(name, "model.hlab") == 0
    inputs, outputs = arrays(name)
    found = gluon.load("model.hlab")(*map(nd.array, inputs.values()))
    check([item.asnumpy() for item in (found if isinstance(found, (list, tuple)) else [found])], outputs)
    assert main(["convert", "model.hlab", "again.onnx"]) == 0
    assert main(["convert", "model.hlab", "again.py"]) == 0


def test_source_is_a_tree_by_names_with_one_line_for_each_layer():
    pytest.importorskip("torch")
    assert convert("resnet", "model.py") == 0
    text = Path("model.py").read_text()
    assert "        self.stage2.unit1.conv1 = nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False)\n" in text
    assert "        x = self.stage2.unit1.conv1(" in text
    assert max(map(len, text.splitlines())) <= 120
    assert "stage2.unit1.conv1.weight" in read_safetensors("model.safetensors")


def test_labels_and_losses_are_told(caplog):
    with caplog.at_level("INFO"):
        assert convert("ssd_training", "model.onnx") == 0
    assert "imported without label, which only training reads, and without the outputs loc_loss_output" in caplog.text


def test_a_shape_that_follows_from_a_parameter_need_not_be_given():
    pytest.importorskip("onnxruntime")
    assert main(["convert", str(FOLDER / "regression-symbol.json"), "model.onnx"]) == 0


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("lenet", [], r"give it: --shape data=1,1,HEIGHT,WIDTH"),
        ("lstm", [], r"give it: --shape data=1,LENGTH"),
        ("lenet", ["--shape", "image=1,1,28,28"], r"the inputs of .* are data$"),
        ("lenet", ["--shape", "data"], r"NAME=SIZES is needed, such as --shape data=1,3,224,224"),
        (
            "lenet",
            ["--shape", "data=1,1,28,28", "--epoch", "9"],
            r"no lenet-0009\.params .* the epochs 3",
        ),
        ("lenet", ["--shape", "data=1,1,28,28", "--dtype", "float7"], r"--dtype float7"),
        ("lenet", ["--shape", "data=0,1,28,28"], r"0 is no size; each is at least 1"),
        ("lenet", ["--shape", "data=1,1,28,99999999999"], r"is no size"),
        ("lenet", ["--shape", "data=²,1,28,28"], r"NAME=SIZES is needed"),
        (
            "lenet",
            ["--shape", "data=1,1,28,28", "--shape", "softmax_label=1"],
            r"is a label, which prediction does not",
        ),
        ("quantized", ["--shape", "data=1,1,28,28"], r"has quantized to 8 bits.*load the float model"),
    ],
)
@pytest.mark.parametrize("target", ["model.onnx", "model.py"])
def test_what_cannot_be_converted_says_what_to_do(name, options, message, target, folder, capsys):
    assert main(["convert", str(FOLDER / f"{name}-symbol.json"), target, *options]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error.strip()), error
    assert not list(folder.iterdir())


def test_an_operator_without_source_is_named_and_nothing_is_written(folder, capsys):
    from hybrid_lab import sym

    net = gluon.SymbolBlock(sym.linalg.potrf(sym.var("data")), sym.var("data"))
    net.hybridize()
    net(nd.array(np.eye(3)))
    net.export("net")
    capsys.readouterr()
    Path("net-0000.params").exists() or nd.save("net-0000.params", {})
    assert main(["convert", "net-symbol.json", "model.py", "--shape", "data=3,3"]) == 2
    assert "_linalg_potrf" in capsys.readouterr().err
    assert not Path("model.py").exists() and not Path("model.safetensors").exists()


def test_an_open_size_and_another_dtype():
    runtime = pytest.importorskip("onnxruntime")
    path = str(FOLDER / "attention-symbol.json")
    assert main(["convert", path, "model.onnx", "--shape", "data=n,time,8", "--dtype", "float16"]) == 0
    (item,) = runtime.InferenceSession("model.onnx").get_inputs()
    assert (item.shape, item.type) == (["n", "time", 8], "tensor(float16)")


@pytest.mark.parametrize("sizes", ["data=n,3,height,width", "data=1,3,size,size"])
def test_open_sizes_get_numbers_that_the_network_takes(sizes, caplog):
    """A network with a window of 20 takes neither 2 nor 16 pixels; both open sizes are run with two numbers."""
    from hybrid_lab import sym

    runtime = pytest.importorskip("onnxruntime")
    data = sym.Convolution(sym.var("data"), kernel=(20, 20), stride=(4, 4), num_filter=2, name="wide")
    net = gluon.SymbolBlock(sym.mean(data, axis=(2, 3)), sym.var("data"))
    net.initialize()
    net(nd.ones((1, 3, 32, 32)))
    net.hybridize()
    net(nd.ones((1, 3, 32, 32)))
    net.export("wide")
    assert main(["convert", "wide-symbol.json", "m.onnx", "--shape", sizes]) == 0
    (item,) = runtime.InferenceSession("m.onnx").get_inputs()
    assert item.shape[2:] == sizes.split(",")[2:]


def test_the_shape_of_an_archive_is_used(capsys):
    runtime = pytest.importorskip("onnxruntime")
    assert convert("lenet", "model.hlab") == 0
    assert main(["convert", "model.hlab", "m.onnx", "--shape", "data=5,1,28,28"]) == 0
    assert main(["convert", "model.hlab", "named.onnx", "--shape", "data=rows,1,28,28"]) == 0
    assert runtime.InferenceSession("named.onnx").get_inputs()[0].shape == ["rows", 1, 28, 28]
    assert main(["convert", "model.hlab", "m.py", "--shape", "data=5,1,28,28"]) == 0
    assert "Written for data 5x1x28x28" in Path("m.py").read_text()
    capsys.readouterr()
    assert main(["convert", "model.hlab", "x.onnx", "--shape", "image=5,1,28,28"]) == 2
    assert "the inputs of model.hlab are data" in capsys.readouterr().err
    assert main(["convert", "model.hlab", "x.params", "--shape", "data=5,1,28,28"]) == 2
    assert "--shape: a conversion from .hlab to .params does not take it" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [{}, {"multi_output": True}, {"preserve_shape": True}], ids=str)
@pytest.mark.parametrize("target", ["m.onnx", "m.py", "m.hlab"])
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 5)], ids=str)
def test_softmax_output_of_any_rank(flags, target, shape):
    """The softmax runs over all axes but the first, over axis 1 or over the last one."""
    from hybrid_lab import sym

    net = sym.SoftmaxOutput(sym.var("data") * sym.var("scale"), sym.var("softmax_label"), name="softmax", **flags)
    Path("net-symbol.json").write_text(net.tojson())
    nd.save("net-0000.params", {"arg:scale": nd.ones((1,))})
    sizes = ",".join(map(str, shape))
    assert main(["convert", "net-symbol.json", target, "--shape", f"data={sizes}"]) == 0
    assert main(["convert", "net-symbol.json", "again.hlab", "--shape", f"data={sizes}"]) == 0
    values = np.random.RandomState(0).rand(*shape).astype("float32")
    rows = np.exp(values)
    axes = (1,) if "multi_output" in flags else (-1,) if "preserve_shape" in flags else tuple(range(1, len(shape)))
    found = gluon.load("again.hlab")(nd.array(values)).asnumpy()
    np.testing.assert_allclose(found, rows / rows.sum(axis=axes, keepdims=True), rtol=1e-5)


LENET = ["--shape", "data=1,1,28,28"]


@pytest.mark.parametrize(
    ("symbol_file", "params", "options"),
    [
        ("lenet.json", "lenet.params", []),
        ("symbol.json", "weights.params", []),
        ("lenet_symbol.json", "lenet-0001.params", []),
        ("lenet-symbol.json", "lenet-12.params", []),
        ("lenet-symbol.json", "lenet-12.params", ["--epoch", "12"]),
        ("a model (1)-symbol.json", "a model (1)-0000.params", []),
        ("lenet.json", "lenet.parameters", ["--params", "lenet.parameters"]),
    ],
)
def test_files_of_other_names_are_found(symbol_file, params, options, capsys):
    shutil.copy(FOLDER / "lenet-symbol.json", symbol_file)
    shutil.copy(FOLDER / "lenet-0003.params", params)
    assert main(["convert", symbol_file, "model.hlab", *LENET, *options]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(("options", "right"), [([], 12), (["--epoch", "3"], 3)])
@pytest.mark.parametrize("key", ["28", "(28, 28)"])
def test_graphs_of_a_bucketing_module_share_their_parameters(key, options, right, capsys):
    """It writes PREFIX-KEY-symbol.json for each bucket, and one PREFIX-0012.params for all of them."""
    for number in (3, 12):
        shutil.copy(FOLDER / f"{'lenet' if number == right else 'mlp'}-0003.params", f"lenet-{number:04d}.params")
    shutil.copy(FOLDER / "mlp-0003.params", "mlp-0003.params")
    shutil.copy(FOLDER / "lenet-symbol.json", f"lenet-{key}-symbol.json")
    assert main(["convert", f"lenet-{key}-symbol.json", "m.hlab", *LENET, *options]) == 0, capsys.readouterr().err
    assert f"parameters of lenet-{right:04d}.params" in capsys.readouterr().out


def test_the_parameters_that_are_there_are_listed(capsys):
    shutil.copy(FOLDER / "lenet-symbol.json", "net-symbol.json")
    for name in ("one", "two"):
        shutil.copy(FOLDER / "lenet-0003.params", f"{name}.params")
    assert main(["convert", "net-symbol.json", "model.hlab", *LENET]) == 2
    assert "no net-0000.params beside it; its folder has one.params, two.params; name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("lenet-symbol.json", "m.pth", "does not write .pth; write NAME.py, the source of a PyTorch module"),
        ("lenet-symbol.json", "m.tflite", "does not write .tflite; write NAME.onnx"),
        ("lenet-symbol.json", "m.xyz", "does not know the ending"),
        ("lenet-0003.params", "m.onnx", "has weights alone, without a network"),
        ("lenet", "m.onnx", "this is the prefix of a model's files; give the file .*lenet-symbol.json"),
        ("m.onnx", "m.py", "convert to .hlab first, and the .hlab file to .py"),
    ],
)
def test_what_there_is_in_place_of_a_conversion_is_named(source, target, message, capsys):
    assert main(["convert", str(FOLDER / source), target]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_parameters_of_another_model_are_refused(capsys):
    symbol_file, params = (str(FOLDER / name) for name in ("lenet-symbol.json", "resnet-0003.params"))
    assert main(["convert", symbol_file, "model.hlab", "--params", params, *LENET]) == 2
    error = capsys.readouterr().err
    assert "whose parameters conv1_weight, conv1_bias, conv2_weight, conv2_bias and 2 more it lacks" in error
    assert "Name the right file with --params" in error


def test_parameters_that_the_network_does_not_read_are_left_out_and_named(capsys):
    arrays = {name: nd.array(array) for name, array in read_params(FOLDER / "lenet-0003.params").items()}
    nd.save("more.params", arrays | {"arg:fc9_weight": nd.ones((2, 2))})
    symbol_file = str(FOLDER / "lenet-symbol.json")
    assert main(["convert", symbol_file, "model.hlab", "--params", "more.params", *LENET]) == 0
    assert "left out, because the network does not read them: fc9_weight" in capsys.readouterr().out


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize(("option", "written"), [([], None), (["--dtype", "float32"], "float32")])
def test_the_dtype_of_the_parameters_decides(dtype, option, written):
    arrays = read_params(FOLDER / "lenet-0003.params")
    nd.save("other.params", {name: nd.array(array, dtype=dtype) for name, array in arrays.items()})
    symbol_file = str(FOLDER / "lenet-symbol.json")
    assert main(["convert", symbol_file, "model.hlab", "--params", "other.params", *LENET, *option]) == 0
    parameter = next(iter(gluon.load("model.hlab").collect_params().values()))
    assert np.dtype(parameter.dtype) == (written or dtype)


def test_float64_that_onnxruntime_cannot_run_has_a_next_step(capsys):
    pytest.importorskip("onnxruntime")
    assert convert("lenet", "model.onnx", "--dtype", "float64") == 1
    assert "--dtype float32 writes the network in float32" in capsys.readouterr().err
    assert convert("lenet", "again.onnx", "--dtype", "float32") == 0


@pytest.mark.parametrize("sizes", ["2,3,28,28", "28,28", "2,1,2,2"])
def test_a_shape_that_does_not_fit_leads_to_one_that_does(sizes, capsys):
    assert main(["convert", str(FOLDER / "lenet-symbol.json"), "model.hlab", "--shape", f"data={sizes}"]) == 2
    error = capsys.readouterr().err
    assert f"does not take --shape data={sizes}; its inputs look like --shape data=1,1,HEIGHT,WIDTH" in error


def test_weights_alone():
    source = str(FOLDER / "lenet-symbol.json")
    assert main(["convert", source, "weights.safetensors"]) == 0
    wanted = read_params(FOLDER / "lenet-0003.params")
    found = read_safetensors("weights.safetensors")
    assert sorted(found) == sorted(name.partition(":")[2] for name in wanted)


@pytest.mark.parametrize("name", ["lenet-symbol.json", "lenet-0003.params"])
def test_inspect_and_diff_of_mxnets_files(name, capsys):
    path = str(FOLDER / name)
    assert main(["inspect", path, "--tensors"]) == 0
    assert "conv1_weight" in capsys.readouterr().out
    assert main(["inspect", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"].startswith("MXNet's ")
    assert main(["diff", path, path]) == 0
    assert capsys.readouterr().out == "no differences\n"
    assert main(["diff", path, str(FOLDER / name.replace("lenet", "mlp"))]) == 1
    assert "fc1_weight" in capsys.readouterr().out


def test_inspect_and_diff_of_the_converted_files(capsys):
    assert convert("lenet", "model.onnx") == 0
    assert convert("lenet", "model.hlab") == 0
    assert main(["convert", "model.hlab", "model.safetensors"]) == 0
    capsys.readouterr()
    assert main(["inspect", "model.onnx"]) == 0
    assert "\ninputs: data\noutputs: output\n" in capsys.readouterr().out
    assert main(["inspect", "model.safetensors"]) == 0
    assert "8 tensors" in capsys.readouterr().out
    for other in ("model.onnx", "model.hlab", str(FOLDER / "lenet-0003.params")):
        assert main(["diff", "model.safetensors", other]) == 0, other


@pytest.mark.parametrize(
    ("found", "wanted"),
    [([np.nan, np.nan], [1, 2]), ([1, 2], [1, np.nan]), ([9e-5, 0], [1e-5, 2e-5]), ([np.inf, 0], [1, 0])],
)
def test_a_difference_is_found_whatever_its_size(found, wanted):
    from hybrid_lab.cli.check_converted import compared
    from hybrid_lab.cli.command import CommandError

    pytest.importorskip("onnxruntime")
    arrays = [[np.array(each, np.float32)] for each in (found, wanted)]
    runs = [([], arrays[1])]
    with pytest.raises(CommandError, match="do not use the file"):
        compared(Path("model.onnx"), "ONNX Runtime", lambda *_: arrays[0], "model.onnx", runs, False)
    with pytest.raises(CommandError, match="gives 2 outputs, this package 1"):
        compared(Path("model.onnx"), "ONNX Runtime", lambda *_: arrays[0] * 2, "model.onnx", runs, False)
    with pytest.raises(CommandError, match="cannot run it: no kernel"):
        compared(
            Path("model.onnx"), "ONNX Runtime", _raising(RuntimeError("no kernel\nfor this")), "model.onnx", runs, False
        )
    with pytest.raises(CommandError, match="cannot run it: NotImplementedError$"):
        compared(Path("model.onnx"), "ONNX Runtime", _raising(NotImplementedError()), "model.onnx", runs, False)


def _raising(error):
    def run(*arguments):
        raise error

    return run


def test_the_largest_difference_of_all_runs_is_told():
    from hybrid_lab.cli.check_converted import compared

    wanted = [np.array([1], np.float32)]
    runs = [([nd.array([1 + 5e-5])], wanted), ([nd.array([1])], wanted)]
    line = compared(Path("m.py"), "a fresh Block", lambda _, inputs: [inputs[0].asnumpy()], "m.py", runs, False)
    assert line.endswith("the largest difference is 5.0e-05 of the largest output")


def test_source_of_many_outputs_and_of_two_dtypes(tmp_path):
    """Long lines are broken inside brackets; layers keep their own dtypes."""
    from hybrid_lab import sym
    from hybrid_lab.gluon import nn

    torch = pytest.importorskip("torch")
    data = sym.var("data")
    parts = sym.SliceChannel(data, num_outputs=24, axis=1, name="a_rather_long_name_of_a_split", squeeze_axis=True)
    total = sym.add_n(
        *[part * (1.5 + index) for index, part in enumerate(parts)], name="the_sum_of_all_of_them_at_once"
    )
    block = gluon.SymbolBlock(total, data)
    values = np.random.RandomState(0).rand(3, 24).astype("float32")
    wanted = [block(nd.array(values)).asnumpy()]
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=24), nn.BatchNorm(in_channels=4), nn.Dense(2, in_units=4))
    net.initialize()
    net.cast("float16")
    net.hybridize()
    half = values.astype("float16")
    wanted.append(net(nd.array(half, dtype="float16")).asnumpy())
    for each, given, want in ((block, values, wanted[0]), (net, half, wanted[1])):
        from hybrid_lab.torch.source.write import write_source

        write_source(each, "a folder.py", nd.array(given, dtype=given.dtype))
        module = written_module(tmp_path / "a folder.py")
        with torch.no_grad():
            np.testing.assert_allclose(module.load()(torch.from_numpy(given)).numpy(), want, rtol=1e-2, atol=1e-3)


def test_source_of_unrolled_cells_takes_another_batch():
    torch = pytest.importorskip("torch")
    assert convert("cells", "model.py") == 0
    assert "data.shape[0]" in Path("model.py").read_text()
    module = written_module("model.py")
    with torch.no_grad():
        assert module.load()(torch.zeros(7, 5)).shape == (35, 20)


@pytest.mark.parametrize("attributes", [None, [], {}, {"mxnet_version": 3}, {"mxnet_version": ["int"]}])
def test_inspect_of_a_symbol_without_a_version(attributes, capsys):
    document = json.loads((FOLDER / "mlp-symbol.json").read_text())
    document["attrs"] = attributes
    Path("m-symbol.json").write_text(json.dumps(document))
    main(["inspect", "m-symbol.json"])
    assert "Traceback" not in capsys.readouterr().err


class _Recorder(argparse.Namespace):
    """Arguments that note which of them were read."""

    def __getattribute__(self, name):
        if not name.startswith("_"):
            super().__getattribute__("__dict__").setdefault("_read", set()).add(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize("kinds", CONVERSIONS, ids=" to ".join)
def test_the_options_of_a_conversion_are_those_that_it_reads(kinds):
    pytest.importorskip("onnxruntime")
    source = str(FOLDER / "lenet-symbol.json")
    if kinds[0] == "-symbol.json":
        path = source
    else:
        path = f"source{kinds[0]}"
        assert main(["convert", source, path, *(LENET if kinds[0] in (".hlab", ".onnx") else [])]) == 0
    given = LENET if kinds in OPTIONS["shape"].conversions else []
    arguments = parser().parse_args(["convert", path, f"made{kinds[1]}", *given])
    arguments.style = "torch"
    recorder = _Recorder(**vars(arguments))
    CONVERSIONS[kinds](recorder)
    taken = {name for name, option in OPTIONS.items() if kinds in option.conversions}
    assert recorder._read - {"source", "target"} == taken


def test_an_option_that_a_conversion_does_not_take_is_refused(folder, capsys):
    net = gluon.nn.Dense(2, in_units=3)
    net.initialize()
    net.hybridize()
    net(nd.ones((1, 3)))
    net.save("n.hlab")
    values = {"shape": "data=1,3", "epoch": "0", "opset": "17", "style": "torch"}
    assert main(["convert", "n.hlab", "w.params"]) == 0
    for name, option in OPTIONS.items():
        given = [f"--{name}"] if name == "flat" else [f"--{name}", values.get(name, "nosuch")]
        for source, target in [("n.hlab", "m.params"), ("n.hlab", "m.onnx"), ("w.params", "m.safetensors")]:
            if (Path(source).suffix, Path(target).suffix) not in option.conversions:
                assert main(["convert", source, target, *given]) == 2, (name, target)
                error = capsys.readouterr().err
                assert f"--{name}: a conversion from " in error and "Leave --" in error
    assert sorted(path.name for path in folder.iterdir()) == ["n.hlab", "w.params"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--params", str(FOLDER / "lenet-0003.params"), "--epoch", "3"], "--params names the .params file already"),
        (["--dtype", "float16"], "--dtype float16 needs the shapes of the inputs: .*--shape data=1,1,HEIGHT,WIDTH"),
    ],
)
def test_an_option_that_another_one_decides_is_refused(options, message, folder, capsys):
    assert main(["convert", str(FOLDER / "lenet-symbol.json"), "m.hlab", *options]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not list(folder.iterdir())


def test_inspect_of_a_symbol_in_utf16(capsys):
    text = (FOLDER / "mlp-symbol.json").read_text()
    Path("m-symbol.json").write_bytes(text.encode("utf-16"))
    assert main(["inspect", "m-symbol.json"]) == 0
    assert "inputs: data" in capsys.readouterr().out


def saved(name, net, arrays):
    """A network and its arrays in MXNet's two files. arrays : name -> array, or shape of random float32 numbers"""
    Path(f"{name}-symbol.json").write_text(net.tojson())
    random = np.random.RandomState(0)
    made = {key: random.randn(*value) if isinstance(value, tuple) else value for key, value in arrays.items()}
    nd.save(f"{name}-0000.params", {key: nd.array(value, dtype=getattr(arrays[key], "dtype", "float32"))
                                    for key, value in made.items()})  # fmt: skip


@pytest.mark.parametrize("target", ["m.onnx", "m.py"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_network_that_computes_in_float16_between_casts_may_round(target, dtype, capsys):
    """Its input and its output are float32, as MXNet's examples for float16 have them."""
    from hybrid_lab import sym

    data = sym.Cast(sym.var("data"), dtype="float16")
    for index in range(3):
        data = sym.FullyConnected(data, num_hidden=64, name=f"fc{index}", no_bias=True)
    arrays = {f"fc{index}_weight": np.random.RandomState(index).randn(64, 64).astype(dtype) for index in range(3)}
    if dtype == "float32":  # as converted by amp
        data = sym.Cast(sym.FullyConnected(sym.var("data"), num_hidden=64, name="fc0", no_bias=True), dtype="float16")
        data, arrays = data * 1.1, {"fc0_weight": arrays["fc0_weight"]}
    saved("half", sym.Cast(data, dtype="float32"), {f"arg:{name}": array for name, array in arrays.items()})
    assert main(["convert", "half-symbol.json", target, "--shape", "data=4,64"]) == 0, capsys.readouterr().err


def test_dtypes_that_the_file_declares_are_those_of_the_inputs():
    from hybrid_lab import sym

    runtime = pytest.importorskip("onnxruntime")
    image, rows = sym.var("image", dtype="uint8"), sym.var("rows", dtype="int32")
    data = sym.FullyConnected(sym.Cast(image, dtype="float32") / 255.0, num_hidden=3, name="fc")
    saved("typed", sym.take(data, rows), {"arg:fc_weight": (3, 4), "arg:fc_bias": (3,)})
    shapes = ["--shape", "image=2,4", "--shape", "rows=5"]
    assert main(["convert", "typed-symbol.json", "m.onnx", *shapes]) == 0
    types = [item.type for item in runtime.InferenceSession("m.onnx").get_inputs()]
    assert types == ["tensor(uint8)", "tensor(int32)"]
    assert main(["convert", "typed-symbol.json", "f.onnx", *shapes, "--dtype", "float32"]) == 0
    assert {item.type for item in runtime.InferenceSession("f.onnx").get_inputs()} == {"tensor(float)"}


@pytest.mark.parametrize("kind", ["selfatt", "encdec"])
def test_source_of_interleaved_attention(kind):
    """As GluonNLP exports BERT and transformers."""
    from hybrid_lab import sym

    pytest.importorskip("torch")
    data = [sym.var("queries"), sym.var("keys")] if kind == "encdec" else [sym.var("data")]
    scores = getattr(sym.contrib, f"interleaved_matmul_{kind}_qk")(*data, heads=2)
    values = getattr(sym.contrib, f"interleaved_matmul_{kind}_valatt")(data[-1], sym.softmax(scores), heads=2)
    saved("attention", sym.Group([values, scores]), {})
    shapes = {"queries": "5,3,12", "keys": "7,3,24"} if kind == "encdec" else {"data": "5,3,36"}
    options = [f"--shape={name}={sizes}" for name, sizes in shapes.items()]
    assert main(["convert", "attention-symbol.json", "m.py", *options]) == 0


def test_inspect_takes_the_inputs_from_the_parameters_beside_it(capsys):
    from hybrid_lab import sym

    saved("own", sym.broadcast_add(sym.var("data"), sym.var("pos")), {"arg:pos": (1, 5)})
    assert main(["inspect", "own-symbol.json"]) == 0
    assert "inputs: data\n" in capsys.readouterr().out


def test_diff_of_models_with_unread_arrays_and_with_a_prefix(capsys):
    from hybrid_lab import sym

    net = sym.FullyConnected(sym.var("data"), num_hidden=3, name="net0_fc")
    saved("own", net, {"arg:net0_fc_weight": (3, 4), "arg:net0_fc_bias": (3,), "arg:net0_unread": (2,)})
    assert main(["convert", "own-symbol.json", "m.hlab"]) == 0
    assert main(["convert", "own-symbol.json", "w.safetensors"]) == 0
    assert main(["diff", "m.hlab", "own-symbol.json"]) == 0
    capsys.readouterr()
    assert main(["diff", "w.safetensors", "m.hlab"]) == 1
    assert capsys.readouterr().out == "- net0_unread: float32[2]\n"


def test_an_array_that_only_the_loss_reads_is_no_sign_of_another_model(capsys):
    from hybrid_lab import sym

    label = sym.var("softmax_label")
    features = sym.FullyConnected(sym.mean(sym.var("data"), axis=(2, 3)), num_hidden=3, name="fc", flatten=False)
    scores = sym.FullyConnected(features, num_hidden=5, name="fc7") - sym.one_hot(label, depth=5)
    whole = sym.Group([sym.BlockGrad(features), sym.SoftmaxOutput(scores, label)])
    names = {"fc_weight": (3, 2), "fc_bias": (3,), "fc7_weight": (5, 3), "fc7_bias": (5,)}
    saved("face", whole, {f"arg:{name}": shape for name, shape in names.items()})
    assert main(["convert", "face-symbol.json", "m.onnx"]) == 2
    assert "of another model" not in capsys.readouterr().err
