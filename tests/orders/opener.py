"""A process without the networks' code that opens files and calls what is in them: `python -m tests.orders.opener`.

It reads pickled requests (kind, path, [(path of a Block, arguments)]) from its parent, a test, and answers with one
result for each call: the arrays of the outputs, or the text of an error.
"""

from __future__ import annotations

import logging
import pickle
import struct
import sys
from typing import Any

import numpy

from hybrid_lab import gluon, nd, np


def encoded(item: Any) -> Any:
    """Arguments or results as data: an array becomes ("nd" or "np", its values)."""
    if hasattr(item, "asnumpy"):
        return "np" if getattr(item, "is_np", False) else "nd", item.asnumpy()
    if isinstance(item, (list, tuple)):
        return type(item).__name__, [encoded(part) for part in item]
    if isinstance(item, dict):
        return "dict", {key: encoded(part) for key, part in item.items()}
    return "value", item


def decoded(item: Any) -> Any:
    """The arguments that `encoded` describes."""
    kind, content = item
    if kind in ("nd", "np"):
        return (np if kind == "np" else nd).array(content, dtype=content.dtype)
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(decoded(part) for part in content)
    if kind == "dict":
        return {key: decoded(part) for key, part in content.items()}
    return content


def arrays_of(item: Any) -> list[numpy.ndarray]:
    """The arrays in `encoded` data, in order."""
    kind, content = item
    if kind in ("nd", "np"):
        return [content]
    if kind == "dict":
        content = list(content.values())
    return [array for part in content for array in arrays_of(part)] if isinstance(content, list) else []


def opened(kind: str, path: str) -> Any:
    """The model in a file: an archive, or the two files of MXNet at this prefix."""
    if kind == "hlab":
        return gluon.load(path)
    if kind == "onnx":
        from hybrid_lab import onnx

        return onnx.imports(path)
    arrays = gluon.SymbolBlock.imports(path + "-symbol.json", _inputs(path), path + "-0000.params")
    return arrays


def _inputs(path: str) -> list[str]:
    from hybrid_lab import symbol

    known = {name.split(":")[1] for name in nd.load(path + "-0000.params")}
    return [name for name in symbol.load(path + "-symbol.json").list_inputs() if name not in known]


def answer(kind: str, path: str, calls: list[tuple[str, Any]]) -> list[Any]:
    """One result for each call."""
    try:
        model = opened(kind, path)
    except Exception as error:
        return [f"not opened: {type(error).__name__}: {error}"] * len(calls)
    results: list[Any] = []
    for place, arguments in calls:
        try:
            block = model
            for name in place.split(".") if place else ():
                block = block._children[name]
            given = decoded(arguments)
            if kind == "mxnet":
                given = [decoded((sort, array)) for sort, array in _flat(arguments)]
            results.append(arrays_of(encoded(block(*given))))
        except Exception as error:
            results.append(f"{type(error).__name__}: {error}")
    return results


def _flat(item: Any) -> list[Any]:
    kind, content = item
    if kind in ("nd", "np"):
        return [("nd", content)]
    if kind == "dict":
        content = list(content.values())
    return [leaf for part in content for leaf in _flat(part)] if isinstance(content, list) else []


def main() -> None:
    """Answer requests until the input ends."""
    logging.disable(logging.CRITICAL)
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while size := source.read(8):
        request = pickle.loads(source.read(struct.unpack("<Q", size)[0]))
        data = pickle.dumps(answer(*request))
        target.write(struct.pack("<Q", len(data)) + data)
        target.flush()


if __name__ == "__main__":
    main()
