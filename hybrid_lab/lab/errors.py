"""RequestError: why a request of the front end cannot be answered, as docs/protocol.md's `error` body."""

from __future__ import annotations

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.lab.messages.connection import ErrorBody, ErrorCode


class RequestError(HybridLabError):
    """code : one of the protocol's error codes; next : what to do; details : more lines, such as all differences."""

    def __init__(self, code: ErrorCode, message: str, next: str = "", details: list[str] | None = None):
        super().__init__(message)
        self.code, self.message, self.next, self.details = code, message, next, details or []

    def body(self) -> ErrorBody:
        """The `error` body of the protocol."""
        return {"code": self.code, "message": self.message, "next": self.next, "details": self.details}
