"""Errors of requests to an API server.

KubeError
├── ConfigError            kubeconfig, credentials or certificates cannot be used: a person must act
├── ApiError               the server answered with a Status
│   ├── BadRequest         400
│   ├── Unauthorized       401
│   ├── Forbidden          403   (quota and admission refusals too)
│   ├── NotFound           404
│   ├── AlreadyExists      409   the name is taken
│   ├── Conflict           409   a precondition (resourceVersion, uid) did not hold
│   ├── Gone               410   the resourceVersion or continue token is too old
│   ├── Invalid            422
│   ├── TooManyRequests    429   carries retry_after_s; an eviction that a budget forbids looks the same
│   └── Unavailable        5xx   carries retry_after_s when the server named one
├── ConnectionLost         no answer: refused, reset, timed out. The write may or may not have happened
│   └── Unreachable        no connection could be made, so the request did not happen
└── NotLeader              a write was held back because another process holds, or may hold, the lease
Terminal                   raised by a reconcile: a retry cannot help, only a change of the object can
"""

from __future__ import annotations

from typing import Any


class KubeError(Exception):
    """Anything that went wrong between us and an API server."""


class ConfigError(KubeError):
    """The credentials or the address cannot be used; retrying does not help."""


class ConnectionLost(KubeError):
    """No answer came; what was asked may still have happened."""


class Unreachable(ConnectionLost):
    """No connection could be made, so nothing was asked."""


class NotLeader(KubeError):
    """Our lease is not surely ours any more; the write was not sent."""


class Terminal(Exception):
    """A reconcile's verdict that retrying cannot help; the reason is for the person who reads the log."""


class ApiError(KubeError):
    """The server refused; built from the Status body it sent."""

    def __init__(self, message: str, *, code: int = 0, reason: str = "", details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.details = code, reason, details or {}


class BadRequest(ApiError):
    pass


class Unauthorized(ApiError):
    pass


class Forbidden(ApiError):
    pass


class NotFound(ApiError):
    pass


class AlreadyExists(ApiError):
    pass


class Conflict(ApiError):
    pass


class Gone(ApiError):
    pass


class Invalid(ApiError):
    pass


class TooManyRequests(ApiError):
    def __init__(self, message: str, *, retry_after_s: float = 1.0, **kw: Any) -> None:
        super().__init__(message, **kw)
        self.retry_after_s = retry_after_s


class Unavailable(ApiError):
    def __init__(self, message: str, *, retry_after_s: float | None = None, **kw: Any) -> None:
        super().__init__(message, **kw)
        self.retry_after_s = retry_after_s


_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
}


def from_status(code: int, status: dict[str, Any], retry_after_s: float | None = None) -> ApiError:
    """The typed error for a Status body; `code` is the HTTP status and wins over the body's."""
    message = str(status.get("message") or f"HTTP {code}")
    reason = str(status.get("reason") or "")
    kw: dict[str, Any] = {"code": code, "reason": reason, "details": status.get("details") or {}}
    if code == 429:
        return TooManyRequests(message, retry_after_s=1.0 if retry_after_s is None else retry_after_s, **kw)
    if code >= 500:
        return Unavailable(message, retry_after_s=retry_after_s, **kw)
    if reason == "AlreadyExists":
        return AlreadyExists(message, **kw)
    if reason == "Expired":
        return Gone(message, **kw)
    return _BY_CODE.get(code, ApiError)(message, **kw)
