"""Invisible characters in names that come from code or files are shown as escapes, and break no picture."""

import json
import re
import unicodedata

import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.diagnostics.formatting import visible, visible_lines
from hybrid_lab.gluon import nn
from hybrid_lab.lab.models.tree import block_tree
from hybrid_lab.lab.picture.graph_view import graph_view
from hybrid_lab.lab.views.static_html import block_html

INVISIBLE = [chr(code) for code in (0, 7, 27, 0x7F, 0x9B, 0x200B, 0x200F, 0x2028, 0x202E, 0x2066, 0xFEFF, 0xE0041)]
HARMLESS = "weight_0 größe 数据 🙂 a\u00a0b"


def shown_texts(reply):
    """All texts of a picture that are drawn."""
    for item in (*reply["nodes"], *reply["boxes"]):
        yield from (item["label"], item.get("op", ""), item.get("class", ""), item.get("summary", ""))
        yield from item.get("attributes", {}).values()
        yield from (badge["name"] for badge in item.get("badges", ()))
    yield from (*reply["dot"].split("\n"), *reply["text"].split("\n"), reply["summary"], reply["missing"])


def is_visible(text):
    return not any(unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp") for character in text)


@pytest.mark.parametrize("character", INVISIBLE, ids=lambda character: f"U+{ord(character):04X}")
def test_a_name_with_an_invisible_character(character):
    name = f"a{character}b"

    class Odd(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.identity(F.relu(x, name=f"{name}_op"), name=f'{name}"\\')

    net, inner = nn.HybridSequential(prefix=f"{name}_"), Odd(prefix=f"{name}_inner_")
    net.register_child(inner, name)
    net.add(nn.Dense(2, prefix=f"{name}_dense_"))
    type(inner).__name__ = f"Odd{character}" if character != "\0" else "Odd"
    net.initialize()
    net.hybridize(engine="numpy")
    with mx.autograd.record():
        net(mx.nd.ones((2, 3))).backward()
    for program in [item["id"] for item in graph_view(net, "")["programs"]]:
        reply = graph_view(net, "", program)
        assert all(map(is_visible, shown_texts(reply)))
        assert any(repr(character)[1:-1] in box["label"] for box in reply["boxes"])
        assert re.search(r"[\x00-\x08]", json.dumps(reply["dot"])) is None
    (row, _) = block_tree(net, "net")["children"]
    assert all(is_visible(row[key]) for key in ("attr", "name", "class", "repr", "why"))
    assert character not in block_html(net)


def test_what_is_visible_stays():
    assert visible(HARMLESS) == HARMLESS and visible_lines("a\nb\x00\n") == "a\nb\\x00\n"
    assert visible("a\nb\u202ec") == "a\\nb\\u202ec"
