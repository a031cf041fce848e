"""The filter of the widget's picture: whatever refers to something outside of it goes, in every spelling of CSS."""

from __future__ import annotations

import itertools
import random
import re

import pytest

pytest.importorskip("nh3")
from hybrid_lab.lab.views import svg  # noqa: E402
from hybrid_lab.lab.views.svg import clean_svg  # noqa: E402

#: Attributes whose values CSS reads.
CSS_ATTRIBUTES = sorted(svg._ATTRIBUTES - svg._TEXTS)


def spellings(name: str, chance: random.Random) -> str:
    """A CSS function's name with escapes, comments, case and entities in random places."""
    found = []
    for letter in name:
        code = f"{ord(letter):x}"
        ways = [
            *(
                letter,
                letter.upper(),
                f"\\{code} ",
                f"\\{code:0>6}",
                f"\\{letter}" if letter not in "abcdef" else letter,
            ),
            *(f"&#{ord(letter)};", f"&#x{code};", f"/**/{letter}", f"{letter}\\\n"),
        ]
        found.append(chance.choice(ways))
    return "".join(found)


def hostile_values() -> list[str]:
    chance = random.Random(7)
    values = []
    for name in (
        "url",
        "src",
        "image-set",
        "-webkit-image-set",
        "cross-fade",
        "element",
        "expression",
        "paint",
        "attr",
    ):
        for gap in ("", " ", "\t", "\n", "&Tab;", "&#10;", "/**/", "\u00a0"):
            values.append(f"{name}{gap}(http://evil/x)")
            values += [f"{spellings(name, chance)}{gap}('http://evil/x')" for _ in range(4)]
    values += [
        "x;background:url(http://evil)",
        "x}*{background:red",
        "-moz-binding:url(http://evil)",
        "@import 'http://evil'",
    ]
    values += ["red;behavior:url(x)", "red!important", "javascript:alert(1)", "data:text/html,x", "rgb(1,2,3) url(x)"]
    values += [
        "rgb(url(http://evil))",
        "var(--x, url(http://evil))",
        "\\75rl(http://evil)",
        "u\\72l(http://evil)",
        "x\0url(y)",
    ]
    return values


def attributes_of(picture: str) -> dict[str, str]:
    return dict(re.findall(r'\s([\w:-]+)="([^"]*)"', picture.partition("<rect")[2]))


@pytest.mark.parametrize("attribute", CSS_ATTRIBUTES)
def test_no_value_refers_to_anything_outside(attribute):
    for value, quote in itertools.product(hostile_values(), "\"'"):
        if quote in value:
            continue
        picture = clean_svg(f"<svg><rect {attribute}={quote}{value}{quote}/></svg>")
        assert attributes_of(picture) == {}, value


@pytest.mark.parametrize(
    "inner",
    [
        *("<style>@import 'http://evil';</style>", "<style>rect{fill:\\75rl(x)}</style>", "<script>evil()</script>"),
        *("<foreignObject><iframe src='http://evil'/></foreignObject>", "<a href='javascript:evil()'><rect/></a>"),
        *("<animate attributeName='href' to='javascript:evil()'/>", "<set attributeName='onload' to='evil()'/>"),
        *("<image href='http://evil'/>", "<image xlink:href='http://evil'/>", "<use href='http://evil#x'/>"),
        *("<rect onload='evil()'/>", "<g xml:base='http://evil'/>", "<rect style='fill:url(http://evil)'/>"),
        *(
            "<rect filter='url(http://evil)'/>",
            "<rect mask='url(http://evil)'/>",
            "<rect clip-path='url(http://evil)'/>",
        ),
        *(
            "<feImage href='http://evil'/>",
            "<linearGradient href='http://evil'/>",
            "<title><img src=http://evil></title>",
        ),
        *(
            "<metadata><evil/></metadata>",
            "<!--<evil>--><desc>evil</desc>",
            "<![CDATA[<evil>]]>",
            "<?xml-stylesheet evil?>",
        ),
        *("<text><tspan href='http://evil'/></text>", "<switch><evil/></switch>", "<rect href='http://evil'/>"),
    ],
)
def test_elements_and_attributes_that_load_or_run_something_go(inner):
    picture = clean_svg(f"<svg>{inner}</svg>")
    assert not re.search(
        r"(?i)https?:|javascript|<(?!/?(svg|g|title|rect|text|tspan)\b)|on\w+=|style|href|base", picture
    )


@pytest.mark.parametrize(
    "attribute, value",
    [
        *(("fill", "#abc"), ("fill", "rgb(1, 2, 3)"), ("stroke", "RGBA(1,2,3,.5)"), ("fill", "var(--jp-ui, #fff)")),
        *(("transform", "translate(1,2) scale(.5)"), ("transform", "matrix(1 0 0 1 0 0)"), ("d", "M0,0L1.5e-3-2z")),
        *(
            ("points", "1,2 3,4"),
            ("font-family", "'Segoe UI', sans-serif"),
            ("stroke-dasharray", "5,2"),
            ("id", "n:0/1"),
        ),
        *(("class", "kernel a"), ("aria-label", "block a: 3 layers (dense)"), ("preserveAspectRatio", "xMidYMid meet")),
    ],
)
def test_what_pictures_need_stays(attribute, value):
    picture = clean_svg(f'<svg><rect {attribute}="{value}"/></svg>')
    assert attributes_of(picture) == {attribute: value}
