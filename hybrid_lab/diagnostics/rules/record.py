"""The form of a rule: one class holding its text, its check on source and its fix."""

from __future__ import annotations

import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ..finding import Severity

if TYPE_CHECKING:
    from .checking import Checking, Mark

_SECTION = re.compile(r"^(Why|Bad|Instead|Fix|Note):[ ]?", re.MULTILINE)
_records: dict[str, Rule] = {}

RuleClass = TypeVar("RuleClass", bound="type[Rule]")


class Rule:
    """Base of the records. The docstring is the rule's page: a summary, then `Why:`, `Bad:`, `Instead:`, `Fix:`.

    message: one sentence; `{tensor}` becomes "the tensor `x`" (or "a tensor"), other names are the site's facts, with
    `defaults` where a site gives none. rewrite: what to write instead, with the same names; if empty, the `Instead:`
    section; `rewrites` has others, for some values of the facts `call`, `attribute` and `construct`.
    `at(node, checking)` looks at every syntax node of the annotated types inside a checked method and yields marks;
    its absence means that the rule is found elsewhere (class structure, or only while tracing).
    """

    code: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[Severity]
    error: ClassVar[type[Exception] | None]
    portability: ClassVar[bool]
    message: ClassVar[str] = ""
    rewrite: ClassVar[str] = ""
    rewrites: ClassVar[dict[str, str]] = {}
    defaults: ClassVar[dict[str, Any]] = {}
    softer_in_forward: ClassVar[bool] = False
    """In a 2.x-style `forward` the trace can do it, with a guard: a warning there."""

    summary: ClassVar[str]
    reason: ClassVar[str]
    bad: ClassVar[str]
    instead: ClassVar[str]
    fix_text: ClassVar[str]
    note: ClassVar[str]
    nodes: ClassVar[tuple[type, ...]] = ()

    at: Callable[[Any, Checking], Iterator[Mark]] | None = None

    def format(self, template: str, tensor: str | None = None, **facts: object) -> str:
        """Fill a message or rewrite; a name without a fact stands as it is written."""
        values = _Facts(self.defaults)
        values.update({key: value for key, value in facts.items() if value is not None})
        values["tensor"] = f"the tensor `{tensor}`" if tensor else "a tensor"
        values["x"] = tensor or "x"
        return template.format_map(values)

    def message_for(self, tensor: str | None = None, **facts: object) -> str:
        """The message about one place."""
        return self.format(self.message, tensor, **facts)

    def rewrite_for(self, tensor: str | None = None, **facts: object) -> str:
        """What to write instead in one place."""
        keys = (facts.get("call"), facts.get("attribute"), facts.get("construct"))
        template = next((self.rewrites[key] for key in keys if key in self.rewrites), self.rewrite)
        return self.format(template, tensor, **facts)

    def __repr__(self) -> str:
        return f"<rule {self.code} {self.name}>"


class _Facts(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return key


def rule(
    code: str,
    name: str,
    severity: Severity,
    *,
    error: type[Exception] | None = None,
    portability: bool = False,
) -> Callable[[RuleClass], RuleClass]:
    """Register a rule. error: the built-in exception a HybridizeError of this rule also is; portability: only matters
    where the code must also run on MXNet, reported with `target="mxnet"` alone."""

    def register(cls: RuleClass) -> RuleClass:
        if code in _records:
            raise ValueError(f"two rules are called {code}")
        cls.code, cls.name, cls.severity, cls.error, cls.portability = code, name, severity, error, portability
        sections = _sections(inspect.cleandoc(cls.__doc__ or ""))
        cls.summary = sections["Summary"]
        cls.reason = _sentence(sections.get("Why", ""))
        cls.bad, cls.instead = sections.get("Bad", ""), sections.get("Instead", "")
        cls.fix_text, cls.note = _sentence(sections.get("Fix", "")), _sentence(sections.get("Note", ""))
        cls.rewrite = cls.rewrite or _escape(cls.instead)
        if cls.at is not None:
            cls.nodes = _node_types(cls.at)
        _records[code] = cls()
        return cls

    return register


def get(code: str) -> Rule:
    """The record of a code such as "HL101"; KeyError if there is none."""
    return _records[code]


def all() -> list[Rule]:  # noqa: A001 - read as `rules.all()`
    """Every record, ordered by code."""
    return [_records[code] for code in sorted(_records)]


def _sections(text: str) -> dict[str, str]:
    parts = _SECTION.split(text)
    sections = {"Summary": parts[0].strip()}
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        first, _, rest = body.partition("\n")
        sections[title] = (first.strip() + "\n" if first.strip() else "") + textwrap.dedent(rest).rstrip()
        sections[title] = sections[title].strip("\n")
    return sections


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text[:1].upper() + text[1:]


def _escape(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _node_types(at: Callable[..., object]) -> tuple[type, ...]:
    annotation = next(value for key, value in inspect.get_annotations(at, eval_str=False).items() if key == "node")
    return annotation.__args__ if isinstance(annotation, types.UnionType) else (annotation,)
