"""Modules of torch that packages bring: torchvision, timm and transformers, small or with small images."""

from __future__ import annotations

from functools import partial

import torch

from tests.torch.networks import NETWORKS


def _image(size=64):
    return (torch.randn(2, 3, size, size),)


def _tokens():
    return (torch.randint(1, 90, (2, 12)),)


def _vision(name, **options):
    import torchvision

    return getattr(torchvision.models, name)(**options)


def _timm(name, **options):
    import timm

    return timm.create_model(name, **options)


def _transformer(config, model, **sizes):
    import transformers

    return getattr(transformers, model)(getattr(transformers, config)(**sizes))


_SMALL = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
PACKAGES = {
    "torchvision resnet18": (partial(_vision, "resnet18"), _image),
    "torchvision resnet50": (partial(_vision, "resnet50"), _image),
    "torchvision mobilenet_v2": (partial(_vision, "mobilenet_v2"), _image),
    "torchvision mobilenet_v3_small": (partial(_vision, "mobilenet_v3_small"), _image),
    "torchvision efficientnet_b0": (partial(_vision, "efficientnet_b0"), _image),
    "torchvision convnext_tiny": (partial(_vision, "convnext_tiny"), _image),
    "torchvision vit_b_32": (partial(_vision, "vit_b_32", image_size=64), _image),
    "torchvision swin_t": (partial(_vision, "swin_t"), _image),
    "timm resnet18d": (partial(_timm, "resnet18d"), _image),
    "timm mobilenetv3_small_050": (partial(_timm, "mobilenetv3_small_050"), _image),
    "timm efficientnet_b0": (partial(_timm, "efficientnet_b0"), _image),
    "timm convnext_atto": (partial(_timm, "convnext_atto"), _image),
    "timm vit_tiny_patch16_224": (partial(_timm, "vit_tiny_patch16_224", img_size=64), _image),
    "timm swin_tiny": (
        partial(_timm, "swin_tiny_patch4_window7_224", img_size=56, depths=(2, 2), num_heads=(3, 6), embed_dim=48),
        partial(_image, 56),
    ),
    "transformers BERT": (partial(_transformer, "BertConfig", "BertModel", **_SMALL), _tokens),
    "transformers GPT-2": (
        partial(_transformer, "GPT2Config", "GPT2LMHeadModel", vocab_size=99, n_embd=32, n_layer=2, n_head=4,
                use_cache=False),
        _tokens,
    ),
    "transformers Llama": (
        partial(_transformer, "LlamaConfig", "LlamaForCausalLM", **_SMALL, num_key_value_heads=2, use_cache=False),
        _tokens,
    ),
    "LSTM": NETWORKS["lstm"],
    "GRU": NETWORKS["gru"],
    "U-Net": NETWORKS["u-net"],
}  # fmt: skip
"""Name -> a function that makes the module, with random weights, and one that makes its example inputs."""
