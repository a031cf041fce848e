"""Name maps: weights laid out as torchvision, timm and Hugging Face do give the outputs of the same network in torch.

The torch networks are written here with the names of these libraries; `make test-torch` has the libraries themselves.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import nd
from hybrid_lab.diagnostics import LoadMismatchError, SettingError
from hybrid_lab.formats.safetensors import write_safetensors
from hybrid_lab.gluon import nn
from hybrid_lab.gluon.model_zoo import vision
from hybrid_lab.gluon.name_maps import NameMap, name_map, name_maps

torch = pytest.importorskip("torch")
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "name-maps.md").read_text(encoding="utf-8")
RESNETS = {"18": (2, 2, 2, 2), "34": (3, 4, 6, 3), "50": (3, 4, 6, 3), "101": (3, 4, 23, 3), "152": (3, 8, 36, 3)}


def save(model, path, prefix=""):
    """The state of a torch model with values of all kinds, as a safetensors file; returns the model."""
    torch.manual_seed(1)
    for name, value in model.state_dict().items():
        if value.dtype.is_floating_point:
            low, high = (0.5, 1.5) if name.endswith("running_var") else (-0.3, 0.3)
            value.uniform_(low, high)
    model.eval()
    write_safetensors(path, {prefix + name: value.numpy() for name, value in model.state_dict().items()})
    return model


def close(ours, theirs):
    wanted = theirs.detach().numpy()
    np.testing.assert_allclose(ours.asnumpy(), wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


# -- ResNet, as in torchvision.models.resnet ---------------------------------------------------------------------------


class Residual(torch.nn.Module):
    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        layers = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
        layers = layers if bottleneck else [(inputs, width, 3, stride), (width, width, 3, 1)]
        for number, (before, after, kernel, step) in enumerate(layers, 1):
            conv = torch.nn.Conv2d(before, after, kernel, step, padding=kernel // 2, bias=False)
            setattr(self, f"conv{number}", conv)
            setattr(self, f"bn{number}", torch.nn.BatchNorm2d(after))
        self.depth, self.downsample = len(layers), None
        if stride != 1 or inputs != outputs:
            conv = torch.nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = torch.nn.Sequential(conv, torch.nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = x
        for number in range(1, self.depth + 1):
            y = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(y))
            y = torch.relu(y) if number < self.depth else y
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(torch.nn.Module):
    def __init__(self, counts, bottleneck, classes=10):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1, self.maxpool = torch.nn.BatchNorm2d(64), torch.nn.MaxPool2d(3, 2, 1)
        inputs, expansion = 64, 4 if bottleneck else 1
        for stage, count in enumerate(counts):
            width, blocks = 64 << stage, []
            for number in range(count):
                blocks.append(Residual(inputs, width, 2 if stage and not number else 1, bottleneck))
                inputs = width * expansion
            setattr(self, f"layer{stage + 1}", torch.nn.Sequential(*blocks))
        self.fc = torch.nn.Linear(inputs, classes)

    def forward(self, x):
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
        return self.fc(x.mean((2, 3)))


@pytest.mark.parametrize("depth", ["18", "50"])
def test_a_resnet_gives_the_outputs_of_torch(depth, tmp_path):
    path, x = tmp_path / "r.safetensors", np.random.default_rng(0).normal(size=(2, 3, 64, 64)).astype(np.float32)
    theirs = save(ResNet(RESNETS[depth], int(depth) >= 50), path)
    net = vision.get_model(f"resnet{depth}_v1", classes=10, stride_in_3x3=True)
    net.load_parameters(path, map=f"torchvision-resnet{depth}")
    close(net(nd.array(x)), theirs(torch.from_numpy(x)))


@pytest.mark.parametrize("library", ["torchvision", "timm"])
@pytest.mark.parametrize("depth", RESNETS)
def test_every_array_of_a_resnet_has_its_parameter(library, depth):
    names = name_map(f"{library}-resnet{depth}")
    with torch.device("meta"):
        arrays = ResNet(RESNETS[depth], int(depth) >= 50).state_dict()
    found = {names.path(name): tuple(value.shape) for name, value in arrays.items() if not names.leaves_out(name)}
    net = vision.get_model(f"resnet{depth}_v1", classes=10, stride_in_3x3=True)
    net.infer_shape(nd.zeros((1, 3, 64, 64)))
    assert found == {path: parameter.shape for path, parameter in net._collect_params_with_prefix().items()}


# -- BERT and GPT-2, as in transformers --------------------------------------------------------------------------------


def tree(**parts):
    """A module without code, for names: `tree(dense=Linear(2, 3))`."""
    module = torch.nn.Module()
    for name, part in parts.items():
        setattr(module, name, part)
    return module


class HuggingFaceBert(torch.nn.Module):
    def __init__(self, words=100, units=32, layers=2, hidden=64, steps=16):
        super().__init__()
        linear, norm, embed = torch.nn.Linear, lambda: torch.nn.LayerNorm(units, 1e-12), torch.nn.Embedding
        self.embeddings = tree(word_embeddings=embed(words, units), position_embeddings=embed(steps, units),
                               token_type_embeddings=embed(2, units), LayerNorm=norm())  # fmt: skip
        self.embeddings.register_buffer("position_ids", torch.arange(steps)[None])
        self.encoder = tree(layer=torch.nn.ModuleList([tree(
            attention=tree(self=tree(**{name: linear(units, units) for name in ("query", "key", "value")}),
                           output=tree(dense=linear(units, units), LayerNorm=norm())),
            intermediate=tree(dense=linear(units, hidden)),
            output=tree(dense=linear(hidden, units), LayerNorm=norm())) for _ in range(layers)]))  # fmt: skip
        self.pooler = tree(dense=linear(units, units))

    def forward(self, words, types, valid, heads=4):
        e = self.embeddings
        x = e.word_embeddings(words) + e.token_type_embeddings(types)
        x = e.LayerNorm(x + e.position_embeddings(e.position_ids[:, : words.shape[1]]))
        for cell in self.encoder.layer:
            parts = (getattr(cell.attention.self, name)(x) for name in ("query", "key", "value"))
            query, key, value = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
            mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, valid[:, None, None] > 0)
            out = cell.attention.output
            x = out.LayerNorm(x + out.dense(mixed.transpose(1, 2).flatten(2)))
            x = cell.output.LayerNorm(x + cell.output.dense(torch.nn.functional.gelu(cell.intermediate.dense(x))))
        return x, torch.tanh(self.pooler.dense(x[:, 0]))


class Conv1D(torch.nn.Module):
    """transformers' linear layer with a transposed weight."""

    def __init__(self, outputs, inputs):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = torch.nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class HuggingFaceGPT2(torch.nn.Module):
    def __init__(self, words=100, units=32, layers=2, steps=16):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(words, units), torch.nn.Embedding(steps, units)
        self.h = torch.nn.ModuleList([tree(
            ln_1=torch.nn.LayerNorm(units), ln_2=torch.nn.LayerNorm(units),
            attn=tree(c_attn=Conv1D(3 * units, units), c_proj=Conv1D(units, units)),
            mlp=tree(c_fc=Conv1D(4 * units, units), c_proj=Conv1D(units, 4 * units))) for _ in range(layers)
        ])  # fmt: skip
        for cell in self.h:
            cell.attn.register_buffer("bias", torch.ones(1, 1, steps, steps).tril())
        self.ln_f = torch.nn.LayerNorm(units)

    def forward(self, words, heads=4):
        x = self.wte(words) + self.wpe.weight[: words.shape[1]]
        for cell in self.h:
            parts = cell.attn.c_attn(cell.ln_1(x)).chunk(3, -1)
            query, key, value = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
            mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + cell.attn.c_proj(mixed.transpose(1, 2).flatten(2))
            hidden = torch.nn.functional.gelu(cell.mlp.c_fc(cell.ln_2(x)), approximate="tanh")
            x = x + cell.mlp.c_proj(hidden)
        x = self.ln_f(x)
        return x, x @ self.wte.weight.T


@pytest.mark.parametrize("prefixes", [("", ""), ("bert.", "transformer.")])
def test_the_snippets_of_the_page_give_the_outputs_of_torch(prefixes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mx.random.seed(0)
    save(ResNet(RESNETS["50"], True, 1000), "resnet50.safetensors")
    bert = save(HuggingFaceBert(), "bert.safetensors", prefixes[0])
    gpt2 = save(HuggingFaceGPT2(), "gpt2.safetensors", prefixes[1])
    cells = torch.nn.ModuleList(tree(dense=torch.nn.Linear(4, 4)) for _ in "ab")
    save(tree(encoder=tree(layer=cells), classifier=torch.nn.Linear(4, 3)), "theirs.safetensors")
    names: dict = {}
    for number, snippet in enumerate(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)):
        exec(compile(snippet, f"snippet {number + 1} of name-maps.md", "exec"), names)
        if "bert" in names and "gpt2" not in names:
            words = torch.from_numpy(names["words"].asnumpy()).long()
            states, pooled = bert(words, torch.zeros_like(words), words > 0)
            close(names["states"][0], states[0])
            close(names["states"][1][:3], states[1, :3])
            close(names["pooled"], pooled)
    states, scores = gpt2(words)
    close(names["states"], states)
    close(names["scores"], scores)


# -- the maps themselves -----------------------------------------------------------------------------------------------


def test_the_page_lists_every_map():
    for name in name_maps():
        library, _, network = name.partition("-")
        assert name in PAGE or re.search(rf"{library}-resnet18.*{network.removeprefix('resnet')}", PAGE), name


def test_an_unknown_map_names_the_nearest(tmp_path):
    write_safetensors(tmp_path / "m.safetensors", {"a": np.ones(2)})
    with pytest.raises(SettingError, match="no map 'torchvision-resnet51'; there are torchvision-resnet"):
        nn.Dense(2).load_parameters(tmp_path / "m.safetensors", map="torchvision-resnet51")


def test_a_star_is_one_part_and_the_longest_beginning_counts():
    paths = {"h.*.norm": "cells.*.norm", "h.*.norm.weight": "cells.*.norm.gamma", "h.1": "last", "*.x.*": "y.*.*"}
    names = NameMap(paths)
    assert names.path("h.0.norm.bias") == "cells.0.norm.bias"
    assert names.path("h.10.norm.weight") == "cells.10.norm.gamma"
    assert names.path("h.1.bias") == "last.bias" and names.path("h.norm") == "h.norm"
    assert names.path("a.x.b.c") == "y.a.b.c" and names.path("other.norm") == "other.norm"
    with pytest.raises(SettingError, match="fewer"):
        NameMap({"h.0": "cells.*"})


def test_a_map_that_gives_a_name_twice_loads_nothing(tmp_path):
    write_safetensors(tmp_path / "m.safetensors", {"a.weight": np.ones((2, 3)), "b.weight": np.ones((2, 3))})
    with pytest.raises(LoadMismatchError, match="two arrays of the file become weight"):
        nn.Dense(2, in_units=3).load_parameters(tmp_path / "m.safetensors", map={"*": ""})
