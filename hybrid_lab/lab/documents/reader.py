"""A process that reads one model file for the Jupyter server, which a damaged or huge file then cannot harm.

`python -P -m hybrid_lab.lab.documents.reader PATH` answers one JSON request a line with one JSON reply a line, until
its input ends.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

MEMORY = 6 << 30
"""Bytes of address space that the process may use."""


def limit_memory() -> None:
    """Keep the process within MEMORY, if the operating system can (not on Windows)."""
    try:
        import resource
    except ImportError:
        return
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (limit, most))
    except (ValueError, OSError):  # macOS knows the limit and does not keep it
        return


def main(path: str) -> None:
    """Answer requests about the file until the input ends."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no reply
    limit_memory()
    from hybrid_lab.lab.documents.contents import Document
    from hybrid_lab.lab.errors import RequestError
    from hybrid_lab.lab.kernel.comm import finite

    document: Document | None = None
    for line in sys.stdin.buffer:
        reply: dict[str, Any]
        try:
            document = document or Document(path)
            request = json.loads(line)
            reply = {"ok": finite(document.answer(request["type"], request["body"]))}
        except RequestError as error:
            reply = {"error": error.body()}
        except MemoryError:
            message = f"the file needs more than {MEMORY >> 30} GiB of memory to be shown"
            reply = {"error": RequestError("too-large", message, "Load it in a notebook instead.").body()}
        except Exception as error:  # a damaged file may fail in any parser
            reply = {"error": RequestError("corrupt", f"{type(error).__name__}: {error}").body()}
        replies.write(json.dumps(reply).encode() + b"\n")
        replies.flush()


if __name__ == "__main__":
    main(sys.argv[1])
