"""Requests of the front end, checked against the types of `messages` before anything is done.

By hand, not by a library: msgspec would replace `check` and `check_fields`, 45 lines, but it takes unknown fields of
TypedDicts, and strings with lone surrogates, which no reply can repeat. `docs/rooms/lab.md` has the measurements.
"""

from __future__ import annotations

import functools
import json
from typing import Any, Literal, NotRequired, cast, get_args, get_origin, get_type_hints

from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.messages.common import LongText
from hybrid_lab.lab.messages.connection import PROTOCOL, HelloRequest
from hybrid_lab.lab.messages.requests import REQUESTS

MAX_BYTES = 4 * 1024 * 1024
MAX_TEXT = 1024


def _bad(field: str, wanted: str, value: object) -> RequestError:
    return RequestError("bad-request", f"the field {field} must be {wanted}, not {json.dumps(value, default=str)[:60]}")


def _is_sendable(text: str) -> bool:
    """Whether a string has no lone surrogates, so that it can be sent back."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@functools.cache
def _fields(record: type) -> dict[str, object]:
    return get_type_hints(record, include_extras=True)


def check(kind: object, field: str, value: object) -> object:
    """Check that a value has this type, and return it. Raises RequestError `bad-request`, which names the field."""
    if kind in (str, LongText):
        # Code that is not Unicode is an unparsable cell; the other cells are still checked.
        if not isinstance(value, str) or not (kind is LongText or _is_sendable(value)):
            raise _bad(field, "a string", value)
        if kind is str and len(value) > MAX_TEXT:
            raise RequestError("bad-request", f"the field {field} is longer than {MAX_TEXT} characters")
    elif kind is bool:
        if not isinstance(value, bool):
            raise _bad(field, "true or false", value)
    elif kind is int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise _bad(field, "a whole number", value)
    elif get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise _bad(field, " or ".join(get_args(kind)), value)
    elif get_origin(kind) is list:
        if not isinstance(value, list):
            raise _bad(field, "a list", value)
        for index, item in enumerate(value):
            check(get_args(kind)[0], f"{field}[{index}]", item)
    elif isinstance(value, dict):
        check_fields(cast(type, kind), value, f"{field}.")
    else:
        raise _bad(field, "an object", value)
    return value


def check_fields(record: type, body: dict[str, object], prefix: str = "") -> dict[str, Any]:
    """Check that a body has exactly the fields of the record, and return it. Raises RequestError `bad-request`."""
    fields = _fields(record)
    unknown = [key for key in body if key not in fields]
    if unknown:
        name = (prefix + str(unknown[0])[:100]).encode("ascii", "backslashreplace").decode()
        raise RequestError("bad-request", f"there is no field {name}")
    missing = [key for key, kind in fields.items() if key not in body and get_origin(kind) is not NotRequired]
    if missing:
        raise RequestError("bad-request", f"the field {prefix}{missing[0]} is missing")
    for key, kind in fields.items():
        if key in body:
            check(get_args(kind)[0] if get_origin(kind) is NotRequired else kind, prefix + key, body[key])
    return body


def readable_id(data: object) -> str:
    """The id of a message, or "" if it has no usable one."""
    identity = data.get("id") if isinstance(data, dict) else None
    return identity if isinstance(identity, str) and 1 <= len(identity) <= 64 and _is_sendable(identity) else ""


def _check_kernel(named: object, kernel: str) -> None:
    """A request is answered by the process that it was meant for. `hello`, which asks for the id, is for any."""
    if not isinstance(named, str):
        raise _bad("kernel_id", "the id of the kernel that the request is meant for", named)
    if named != kernel:
        raise RequestError(
            "wrong-kernel",
            "this request was meant for another kernel, or for this one before it was restarted; nothing was done",
            "Look at the models that the panel shows now, and repeat the action.",
        )


def check_envelope(data: object, kernel: str = "") -> tuple[str, str, dict[str, Any]]:
    """(id, type, checked body) of a message to the kernel with this id. Raises RequestError."""
    identity = readable_id(data)
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
    if kind != "hello":
        _check_kernel(data.get("kernel_id"), kernel)
    if not isinstance(kind, str) or kind not in REQUESTS:
        raise _bad("type", "a request of the protocol", kind)
    if not isinstance(body, dict):
        raise _bad("body", "an object", body)
    if version != PROTOCOL:  # fields that another version added to hello
        body = {key: value for key, value in body.items() if key in _fields(HelloRequest)}
    if len(json.dumps(body)) > MAX_BYTES:
        raise RequestError("too-large", f"the request is larger than {MAX_BYTES // 1024 // 1024} MiB")
    return identity, kind, check_fields(REQUESTS[kind][0], body)
