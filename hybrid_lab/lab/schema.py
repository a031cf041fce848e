"""The requests of the protocol: their fields and types, checked before anything is done."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hybrid_lab.lab.errors import RequestError

TARGET = "hybrid_lab"
"""Name of the comm target."""
PROTOCOL = 1
MAX_BYTES = 4 * 1024 * 1024
MAX_TEXT = 1024

Check = Callable[[str, Any], Any]


def _bad(field: str, wanted: str, value: Any) -> RequestError:
    return RequestError("bad-request", f"the field {field} must be {wanted}, not {json.dumps(value, default=str)[:60]}")


def text(field: str, value: Any) -> str:
    """A short string: names, paths, ids."""
    value = long_text(field, value)
    if len(value) > MAX_TEXT:
        raise RequestError("bad-request", f"the field {field} is longer than {MAX_TEXT} characters")
    return value


def long_text(field: str, value: Any) -> str:
    """A string that can be sent back: without lone surrogates."""
    if not isinstance(value, str) or not _is_sendable(value):
        raise _bad(field, "a string", value)
    return value


def _is_sendable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def boolean(field: str, value: Any) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise _bad(field, "true or false", value)
    return value


def integer(field: str, value: Any) -> int:
    """A whole number."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise _bad(field, "a whole number", value)
    return value


def one_of(*choices: str) -> Check:
    """One of these strings."""

    def check(field: str, value: Any) -> str:
        if value not in choices:
            raise _bad(field, " or ".join(choices), value)
        return value

    return check


def list_of(inner: Check) -> Check:
    """A list of what `inner` accepts."""

    def check(field: str, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _bad(field, "a list", value)
        return [inner(f"{field}[{index}]", item) for index, item in enumerate(value)]

    return check


def record(**fields: Check) -> Check:
    """An object with exactly these fields."""

    def check(field: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _bad(field, "an object", value)
        return check_fields(fields, value, f"{field}.")

    return check


#: request type -> its fields
REQUESTS: dict[str, dict[str, Check]] = {
    "hello": {"front_end": text, "protocol": integer, "notebook": text},
    "models": {},
    "tree": {"model": text},
    "graph": {"model": text, "path": text, "form": one_of("neutral", "compiled")},
    "findings": {"model": text},
    "explain": {"model": text},
    "lint": {"cells": list_of(record(id=text, source=long_text)), "only": list_of(text)},
    "save": {"model": text, "file": text, "overwrite": boolean},
    "reload": {"model": text, "file": text, "graphs": one_of("code", "file")},
    "undo": {"model": text, "undo": text},
    "open": {"file": text, "name": text, "replace": boolean},
    "archives": {},
    "asset": {"name": one_of("graphviz")},
}


def check_fields(fields: dict[str, Check], body: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The body with every field checked. Raises RequestError `bad-request` naming the field."""
    unknown = [key for key in body if key not in fields]
    if unknown:
        name = (prefix + str(unknown[0])[:100]).encode("ascii", "backslashreplace").decode()
        raise RequestError("bad-request", f"there is no field {name}")
    missing = [key for key in fields if key not in body]
    if missing:
        raise RequestError("bad-request", f"the field {prefix}{missing[0]} is missing")
    return {key: check(prefix + key, body[key]) for key, check in fields.items()}


def readable_id(data: Any) -> str:
    """The id of a message, or "" where it has no usable one."""
    identity = data.get("id") if isinstance(data, dict) else None
    usable = isinstance(identity, str) and 1 <= len(identity) <= 64 and _is_sendable(identity)
    return identity if isinstance(identity, str) and usable else ""


def check_envelope(data: Any) -> tuple[str, str, int, dict[str, Any]]:
    """(id, type, version, checked body) of a message.

    Raises RequestError; its `request_id` is the id where one was readable.
    """
    identity = readable_id(data)
    try:
        if not isinstance(data, dict):
            raise _bad("data", "an object", data)
        kind, version, body = data.get("type"), data.get("hybrid_lab"), data.get("body")
        if not identity:
            raise _bad("id", "a string of 1 to 64 characters", data.get("id"))
        if not isinstance(version, int) or isinstance(version, bool):
            raise _bad("hybrid_lab", "the protocol's version", version)
        if version != PROTOCOL and kind != "hello":
            raise RequestError(
                "protocol",
                f"the front end speaks version {version} of the lab's protocol, this kernel version {PROTOCOL}",
                "Upgrade the older side: pip install -U hybrid-lab, then restart the kernel and reload the page.",
            )
        if not isinstance(kind, str) or kind not in REQUESTS:
            raise _bad("type", "a request of the protocol", kind)
        if not isinstance(body, dict):
            raise _bad("body", "an object", body)
        if version != PROTOCOL:  # whatever another version's hello says besides
            body = {key: value for key, value in body.items() if key in REQUESTS["hello"]}
        if len(json.dumps(body)) > MAX_BYTES:
            raise RequestError("too-large", f"the request is larger than {MAX_BYTES // 1024 // 1024} MiB")
        return identity, kind, version, check_fields(REQUESTS[kind], body)
    except RequestError as error:
        error.request_id = identity
        raise
