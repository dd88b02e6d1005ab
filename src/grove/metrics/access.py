"""Who sends a request, and whether this user may do it.

The aggregator calls an aggregated API. It proves its identity with a client certificate and names the user in headers.
The headers count only with that certificate, because any client can write a header. A SubjectAccessReview asks the API
server what the user may do. The answer is kept for a few seconds.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import msgspec

from grove.api.core import SUBJECT_ACCESS_REVIEW
from grove.api.meta import Json
from grove.kube.client import Client

AUTHENTICATION_NAMESPACE, AUTHENTICATION_CONFIG = "kube-system", "extension-apiserver-authentication"
MASTERS = "system:masters"
"""May do everything, on every API server."""
ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED = "system:anonymous", "system:authenticated", "system:unauthenticated"
REMEMBERED_S, REMEMBERED = 10.0, 4096


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Aggregator:
    """How the aggregator proves its identity, as the API server publishes it. Without authorities every request is
    refused.
    """

    authorities: bytes = b""
    allowed_names: tuple[str, ...] = ()
    """Common names of its certificate; none named means that the authority alone is enough."""
    user_headers: tuple[str, ...] = ("X-Remote-User",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)

    @classmethod
    def of(cls, data: Mapping[str, str]) -> Aggregator:
        """From the ConfigMap `extension-apiserver-authentication`."""
        default = cls()
        return cls(
            data.get("requestheader-client-ca-file", "").encode(),
            _words(data.get("requestheader-allowed-names", "")),
            _words(data.get("requestheader-username-headers", "")) or default.user_headers,
            _words(data.get("requestheader-group-headers", "")) or default.group_headers,
            _words(data.get("requestheader-extra-headers-prefix", "")) or default.extra_prefixes,
        )

    def find_user(self, certificate: Mapping[str, Any] | None, headers: Sequence[tuple[str, str]]) -> User | None:
        """The user of a request; None if its sender is not the aggregator.

        `certificate` is that of the connection, verified against our authorities by TLS, as `ssl` describes it.
        """
        if not self.authorities or not certificate:
            return None
        if self.allowed_names and _common_name(certificate) not in self.allowed_names:
            return None
        names = _values(headers, self.user_headers)
        if not names:
            return None
        extra: dict[str, list[str]] = {}
        for header, value in headers:
            for prefix in self.extra_prefixes:
                if header.lower().startswith(prefix.lower()):
                    extra.setdefault(unquote(header[len(prefix) :].lower()), []).append(value)
        groups = _with_authenticated(names[0], _values(headers, self.group_headers))
        return User(names[0], groups, tuple((key, tuple(values)) for key, values in sorted(extra.items())))


def _with_authenticated(name: str, groups: Sequence[str]) -> tuple[str, ...]:
    """Adds the group of all authenticated users, which may read discovery. The API server leaves that to us."""
    if name == ANONYMOUS or UNAUTHENTICATED in groups or AUTHENTICATED in groups:
        return tuple(groups)
    return (*groups, AUTHENTICATED)


def _words(text: str) -> tuple[str, ...]:
    try:
        words = msgspec.json.decode(text, type=list[str]) if text else []
    except msgspec.DecodeError:
        return ()
    return tuple(words)


def _common_name(certificate: Mapping[str, Any]) -> str:
    pairs = (pair for part in certificate.get("subject", ()) for pair in part)
    return next((str(value) for key, value in pairs if key == "commonName"), "")


def _values(headers: Sequence[tuple[str, str]], names: Sequence[str]) -> list[str]:
    wanted = [name.lower() for name in names]
    return [value for want in wanted for header, value in headers if header.lower() == want and value]


@dataclass(frozen=True, slots=True)
class Ask:
    """The request of a user: a path (discovery), or a metric of an object."""

    path: str = ""
    api: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""

    def attributes(self) -> Json:
        if self.path:
            return {"nonResourceAttributes": {"path": self.path, "verb": "get"}}
        named = {"name": self.name, "subresource": self.subresource}
        return {
            "resourceAttributes": {
                # As the API server itself reads such a path: a metric of pods `*` is got, one without an object listed.
                "verb": "get" if self.name else "list",
                "group": self.api,
                "version": self.version,
                "namespace": self.namespace,
                "resource": self.resource,
                **{key: value for key, value in named.items() if value},
            }
        }


@dataclass(slots=True)
class Authorizer:
    """Asks the API server, and remembers its answers for `REMEMBERED_S`."""

    client: Client
    _known: OrderedDict[tuple[User, Ask], tuple[float, bool]] = field(default_factory=OrderedDict)

    async def may(self, user: User, ask: Ask) -> bool:
        """Raises `KubeError` when the API server does not say."""
        if MASTERS in user.groups:
            return True
        now = asyncio.get_running_loop().time()
        remembered = self._known.get((user, ask))
        if remembered is not None and now - remembered[0] < REMEMBERED_S:
            return remembered[1]
        spec: Json = {"user": user.name, "groups": list(user.groups), **ask.attributes()}
        if user.extra:
            spec["extra"] = {key: list(values) for key, values in user.extra}
        body = {"apiVersion": SUBJECT_ACCESS_REVIEW.api_version, "kind": SUBJECT_ACCESS_REVIEW.kind, "metadata": {}}
        answer = await self.client.create(SUBJECT_ACCESS_REVIEW, {**body, "spec": spec})
        allowed = (answer.get("status") or {}).get("allowed") is True
        self._known[user, ask] = (now, allowed)
        self._known.move_to_end((user, ask))
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return allowed
