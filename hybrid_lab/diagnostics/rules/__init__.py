"""The rules HL001 to HL199 of the linter and the trace, for code that cannot become part of a graph.

Each rule is a page beside this file, `HL101.md`: its text is for people, and a comment at its top, in TOML, has the
message to be filled in for one place in the code. The linter's checks are in `lint/checks`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ..finding import Severity

_PAGES = Path(__file__).parent
_FORM = re.compile(
    r"""<!--\n(?P<data>.*?)-->\n\n
    \#[ ]HL\d\d\d[ ](?P<name>[a-z-]+)\n\n
    (?P<summary>[^\n]+)\n\n
    Severity:[ ](?P<severity>\w+)(?P<portability>,[ ]only[ ]with[ ]`target='mxnet'`)?\.
    (?P<softer_in_forward>[ ]A[ ]warning[ ]in[ ]a[ ]2\.x-style[ ]`forward`\.)?\n\n
    \*\*Why\.\*\*[ ](?P<reason>[^\n]+)\n\n
    \#\#[ ]Bad\n\n```python\n(?P<bad>.*?)\n```\n\n
    \#\#[ ]Instead\n\n```python\n(?P<instead>.*?)\n```\n
    .*""",
    re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True)
class Rule:
    """A rule, as its page says it.

    message : one sentence. `{tensor}` becomes "the tensor `x`" (or "a tensor"), `{x}` its name, and other names the
        facts about one place in the code, with `defaults` if a place gives none.
    rewrite : what to write instead, with the same names; `rewrites` has further texts, for some values of the facts
        `call`, `attribute` and `construct`.
    error : the name of the built-in exception that a HybridizeError of this rule also is, or None
    portability : whether it only matters for code that must also run on MXNet; reported with `target="mxnet"` alone
    softer_in_forward : whether it is a warning in a 2.x-style `forward`, where the trace can do it, with a guard
    """

    code: str
    name: str
    summary: str
    reason: str
    bad: str
    instead: str
    severity: Severity
    message: str
    rewrite: str
    rewrites: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    portability: bool = False
    softer_in_forward: bool = False

    def message_for(self, tensor: str | None = None, **facts: object) -> str:
        """The message about one place."""
        return self._filled(self.message, tensor, facts)

    def rewrite_for(self, tensor: str | None = None, **facts: object) -> str:
        """The code that a finding at one place suggests instead."""
        keys = (str(facts.get(fact)) for fact in ("call", "attribute", "construct"))
        template = next((self.rewrites[key] for key in keys if key in self.rewrites), self.rewrite)
        return self._filled(template, tensor, facts)

    def _filled(self, template: str, tensor: str | None, facts: Mapping[str, object]) -> str:
        given = {name: fact for name, fact in facts.items() if fact is not None}
        named = {"tensor": f"the tensor `{tensor}`" if tensor else "a tensor", "x": tensor or "x"}
        try:
            return template.format_map({**self.defaults, **given, **named})
        except KeyError as missing:
            message = f"{self.code}.md: {missing} is in a message, and neither the mark nor `defaults` has it"
            raise ValueError(message) from None


@cache
def get(code: str) -> Rule:
    """The rule with this code, such as "HL101". Raises KeyError if no rule has it."""
    import tomllib  # most programs break no rule

    path = _PAGES / f"{code}.md"
    try:
        page = path.read_text(encoding="utf-8")
    except OSError:
        raise KeyError(code) from None
    match = _FORM.fullmatch(page)
    if match is None:
        raise ValueError(f"{path} does not have the form of a rule's page")
    return Rule(
        code,
        match["name"],
        match["summary"],
        match["reason"],
        match["bad"],
        match["instead"],
        Severity(match["severity"]),
        portability=match["portability"] is not None,
        softer_in_forward=match["softer_in_forward"] is not None,
        **tomllib.loads(match["data"]),
    )


def page(code: str) -> str:
    """The page of a rule, in Markdown, without the data at its top. Raises KeyError if no rule has the code."""
    get(code)
    return (_PAGES / f"{code}.md").read_text(encoding="utf-8").partition("-->\n")[2].strip()


@cache
def all() -> list[Rule]:  # noqa: A001 - read as `rules.all()`
    """Every rule, ordered by code."""
    return [get(path.stem) for path in sorted(_PAGES.glob("HL*.md"))]
