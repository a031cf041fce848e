"""Name maps with the libraries they are named after, where these are installed (`make test-torch`)."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from hybrid_lab import nd
from hybrid_lab.formats.safetensors import write_safetensors
from hybrid_lab.gluon.model_zoo import vision

torch = pytest.importorskip("torch")
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "name-maps.md").read_text(encoding="utf-8")


def close(ours, theirs):
    wanted = theirs.detach().numpy()
    np.testing.assert_allclose(ours.asnumpy(), wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def randomized(model):
    """The model in prediction, its BatchNorms with statistics that are not 0 and 1."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.5, 2)
    return model.eval()


@pytest.mark.parametrize("depth", [18, 34, 50, 101, 152])
@pytest.mark.parametrize("library", ["torchvision", "timm"])
def test_resnets(library, depth, tmp_path):
    installed = pytest.importorskip(library)
    torch.manual_seed(0)
    make = getattr(installed.models, f"resnet{depth}") if library == "torchvision" else None
    theirs = randomized(make() if make else installed.create_model(f"resnet{depth}"))
    path = tmp_path / "r.safetensors"
    write_safetensors(path, {name: value.numpy() for name, value in theirs.state_dict().items()})
    net = vision.get_model(f"resnet{depth}_v1", stride_in_3x3=True)
    net.load_parameters(path, map=f"{library}-resnet{depth}")
    x = np.random.default_rng(0).normal(size=(2, 3, 96, 96)).astype(np.float32)
    close(net(nd.array(x)), theirs(torch.from_numpy(x)))


@pytest.fixture
def page():
    """The classes that the page defines."""
    names: dict = {}
    for snippet in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(re.split(r"\n(?:net|other|bert|gpt2) = ", snippet)[0], names)
    return names


WORDS = torch.tensor([[1, 5, 7, 2], [1, 9, 2, 0]])


@pytest.mark.parametrize("name", ["BertModel", "BertForSequenceClassification", "BertForMaskedLM"])
def test_bert(name, page, tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=16,
    )  # fmt: skip
    model = getattr(transformers, name)(config).eval()
    model.save_pretrained(tmp_path)
    net = page["Bert"](words=100, units=32, layers=2, heads=4, hidden=64, steps=16)
    pooled = name != "BertForMaskedLM"
    if not pooled:
        net.pooler.initialize()
    net.load_parameters(
        tmp_path / "model.safetensors", map="huggingface-bert", ignore_extra=True, allow_missing=not pooled
    )
    valid = (WORDS > 0).float()
    wanted = getattr(model, "bert", model)(WORDS, attention_mask=valid)
    states, pool = net(nd.array(WORDS.numpy()), nd.zeros((2, 4)), nd.array(valid.numpy()))
    close(states[0], wanted.last_hidden_state[0])
    close(states[1][:3], wanted.last_hidden_state[1, :3])
    if pooled:
        close(pool, wanted.pooler_output)


@pytest.mark.parametrize("name", ["GPT2Model", "GPT2LMHeadModel"])
def test_gpt2_in_parts(name, page, tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=4, n_positions=16)
    model = getattr(transformers, name)(config).eval()
    model.save_pretrained(tmp_path, max_shard_size="30KB")
    net = page["GPT2"](words=100, units=32, layers=2, heads=4, steps=16)
    net.load_parameters(tmp_path / "model.safetensors.index.json", map="huggingface-gpt2")
    states, scores = net(nd.array(WORDS.numpy()))
    if name == "GPT2Model":
        close(states, model(WORDS).last_hidden_state)
    else:
        close(scores, model(WORDS).logits)
