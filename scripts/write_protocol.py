"""Write extension/src/protocol/messages.ts, the front end's types and checks, from hybrid_lab/lab/messages/."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from hybrid_lab.insight.states import STATES
from hybrid_lab.lab import messages
from hybrid_lab.lab.messages import common, connection, errors, findings, requests

TARGET = Path(__file__).resolve().parent.parent / "extension" / "src" / "protocol" / "messages.ts"

HEAD = """\
// Written by scripts/write_protocol.py from hybrid_lab/lab/messages/; a test compares. docs/protocol.md explains it.

import type {{ Checked }} from './check';
import {{
  {}
}} from './check';
"""
IMPORTED = (
    *("anything", "dictionary", "flag", "integer", "list", "nodeId", "nullable", "number", "oneOf", "optional"),
    *("record", "text", "tree"),
)
CHECKS = {str: "text", bool: "flag", int: "integer", float: "number", object: "anything"}
TYPES = {str: "string", bool: "boolean", int: "number", float: "number"}


def fields(kind: type) -> dict[str, object]:
    """Name of a field -> its annotation."""
    return get_type_hints(kind, include_extras=True)


def name_of(kind: type) -> str:
    """`GraphNode` as the name of its check, `graphNode`."""
    return kind.__name__[0].lower() + kind.__name__[1:]


def check(kind: object) -> str:
    """The expression that checks a received value of this type."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is NotRequired:
        return f"optional({check(inner[0])}, {fallback(inner[0])})"
    if origin is Annotated:
        return "nodeId" if kind == common.NodeId else check(inner[0])
    if origin is Literal:
        quoted = [f"'{item}'" for item in inner]
        line = f"oneOf({', '.join(quoted)})"
        return line if len(line) < 100 else "oneOf(\n  " + ",\n  ".join(quoted) + "\n)"
    if origin in (Union, types.UnionType):
        return f"nullable({check(inner[0])})"
    if origin is list:
        return f"list({check(inner[0])})"
    if origin is dict:
        return f"dictionary({check(inner[1])})"
    if isinstance(kind, type) and is_typeddict(kind):
        return name_of(kind)
    return CHECKS[kind]  # type: ignore[index]


def fallback(kind: object) -> str:
    """The value of a field that an older kernel does not send."""
    if get_origin(kind) in (Union, types.UnionType):
        return "null"
    if get_origin(kind) in (list, dict):
        return "[]" if get_origin(kind) is list else "{}"
    return {str: "''", int: "0", bool: "false"}[kind]  # type: ignore[index]


def records(kind: object, found: dict[type, None]) -> dict[type, None]:
    """The records in a type, each after those that it is made of."""
    if isinstance(kind, type) and is_typeddict(kind) and kind not in found:
        for part in fields(kind).values():
            if kind not in _nested(part):
                records(part, found)
        found[kind] = None
    for part in get_args(kind):
        records(part, found)
    return found


def _nested(kind: object) -> tuple[object, ...]:
    return get_args(kind) if get_origin(kind) is list else ()


def declaration(kind: type) -> str:
    """The check of a record, and the type that it returns."""
    name, parts = name_of(kind), fields(kind)
    is_tree = kind in _nested(parts.get("children"))
    lines = _lines(f"{key}: {check(part)}" for key, part in parts.items() if key != "children")
    body = f"record({{\n{lines}\n}})" if lines else "record({})"
    if is_tree:
        body = f"tree(\n{_indented(body)}\n)"
    return f"export const {name} = {body};\nexport type {kind.__name__} = Checked<typeof {name}>;\n"


def plain(kind: object) -> str:
    """A type that the front end sends."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return plain(inner[0])
    if origin is Literal:
        return " | ".join(f"'{item}'" for item in inner)
    if origin is list:
        return f"{plain(inner[0])}[]"
    if isinstance(kind, type) and is_typeddict(kind):
        return kind.__name__
    return TYPES[kind]  # type: ignore[index]


def request(kind: type) -> str:
    """The fields of a request, or of a record in one."""
    parts = fields(kind)
    return "{\n" + "\n".join(map(_field, parts.items())) + "\n}" if parts else ""


def _field(entry: tuple[str, object]) -> str:
    key, kind = entry
    if get_origin(kind) is NotRequired:
        return f"  {key}?: {plain(get_args(kind)[0])};"
    return f"  {key}: {plain(kind)};"


def quoted(text: str) -> str:
    """A string of TypeScript as prettier writes it."""
    mark = '"' if "'" in text else "'"
    return f"{mark}{text}{mark}"


def _lines(entries: Iterable[str]) -> str:
    return _indented(",\n".join(entries))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def page() -> str:
    """The text of messages.ts."""
    found: dict[type, None] = {}
    for _, reply in (requests.REQUESTS | requests.DOCUMENT_REQUESTS).values():
        records(reply, found)
    for kind in (connection.ErrorBody, connection.Progress, connection.WorkPush, connection.Envelope, errors.CellError):
        records(kind, found)
    parts = [
        f"export const PROTOCOL = {connection.PROTOCOL};\nexport const TARGET = '{connection.TARGET}';\n",
        *(declaration(kind) for kind in found),
        "/** The checks of the replies, by type of request. */\nexport const REPLIES = {\n"
        + _lines(f"{name}: {name_of(reply)}" for name, (_, reply) in requests.REQUESTS.items())
        + "\n} as const;\n",
        "/** How the states of Blocks are called, and what they mean. */\n"
        "export const STATES: Record<BlockNode['state'], { word: string; meaning: string }> = {\n"
        + _lines(
            f"{state}: {{ word: {quoted(word)}, meaning: {quoted(meaning)} }}"
            for state, (word, meaning) in STATES.items()
        )
        + "\n};\n",
        "export type RequestType = keyof typeof REPLIES;\n"
        "export type Reply<T extends RequestType> = Checked<(typeof REPLIES)[T]>;\n",
        "/** The same for requests about a model file, which the Jupyter server answers. */\n"
        "export const DOCUMENT_REPLIES = {\n"
        + _lines(f"{name}: {name_of(reply)}" for name, (_, reply) in requests.DOCUMENT_REQUESTS.items())
        + "\n} as const;\n",
        "export type DocumentRequestType = keyof typeof DOCUMENT_REPLIES;\n"
        "export type DocumentAnswer<T extends DocumentRequestType> = Checked<(typeof DOCUMENT_REPLIES)[T]>;\n",
        f"export interface CellSource {request(findings.CellSource)}\n",
        "/** The bodies of the requests. */\nexport interface Requests {\n"
        + "\n".join(
            _indented(f"{name}: {request(body) or 'Record<string, never>'};")
            for name, (body, _) in requests.REQUESTS.items()
        )
        + "\n}\n",
        "/** The bodies of the requests about a model file. */\nexport interface DocumentRequests {\n"
        + "\n".join(
            _indented(f"{name}: {request(body) or 'Record<string, never>'};")
            for name, (body, _) in requests.DOCUMENT_REQUESTS.items()
        )
        + "\n}\n",
    ]
    body = "\n".join(parts)
    used = [name for name in IMPORTED if re.search(rf"\b{name}\(|: {name}\b|[(]{name}[),]", body)]
    return HEAD.format(",\n  ".join(used)) + "\n" + body


def without_request() -> list[str]:
    """The names of the requests and replies in hybrid_lab/lab/messages/ that no table of requests has."""
    kinds = [
        kind
        for module in pkgutil.iter_modules(messages.__path__)
        for kind in vars(importlib.import_module(f"{messages.__name__}.{module.name}")).values()
        if is_typeddict(kind) and kind.__name__.endswith(("Request", "Reply"))
    ]
    used = {kind for pair in (requests.REQUESTS | requests.DOCUMENT_REQUESTS).values() for kind in pair}
    bases = {base for kind in kinds for base in getattr(kind, "__orig_bases__", ())}
    return sorted({kind.__name__ for kind in kinds if kind not in used | bases})


def main() -> None:
    """Write the file. Exits with status 1 if a request is declared that no table has, and so is not in the file."""
    TARGET.write_text(page(), encoding="utf-8")
    print(f"wrote {TARGET}")
    if names := without_request():
        sys.exit(f"{', '.join(names)}: no request has them; add the request to REQUESTS in {requests.__file__}")


if __name__ == "__main__":
    main()
