"""A tiny HTTPS client for the control plane's own servers, used before any real client can be.

One request per connection: the callers poll servers that come and go, where a kept connection would only mislead.
"""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grove.local.ports import LOOPBACK


class RequestFailed(RuntimeError):
    """The server was not reached, or it answered with something else than success."""


@dataclass(frozen=True)
class Loopback:
    """Talks to one server on this machine with a client certificate."""

    port: int
    authority: Path
    certificate: Path
    key: Path

    def call(self, method: str, path: str, body: object = None, timeout_s: float = 5.0) -> bytes:
        trust = ssl.create_default_context(cafile=str(self.authority))
        trust.load_cert_chain(self.certificate, self.key)
        connection = http.client.HTTPSConnection(LOOPBACK, self.port, timeout=timeout_s, context=trust)
        payload = None if body is None else json.dumps(body)
        try:
            connection.request(method, path, payload, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as problem:
            raise RequestFailed(f"{method} {path}: {problem or type(problem).__name__}") from problem
        finally:
            connection.close()
        if answer.status >= 300:
            raise RequestFailed(f"{method} {path}: {answer.status} {content[:500].decode(errors='replace')}")
        return content

    def call_json(self, method: str, path: str, body: object = None, timeout_s: float = 5.0) -> Any:
        return json.loads(self.call(method, path, body, timeout_s))
