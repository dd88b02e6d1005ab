"""Our identity for an API server: a fixed token, a token file that Kubernetes rotates, or a plugin that returns a
token.

The client calls `current()` before every request, so it must be cheap while its last answer is valid. It returns the
same `Credential` object as long as nothing changed. The client builds headers and TLS state again only for a new one.
"""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import msgspec

from grove.kube.clock import SYSTEM, Clock
from grove.kube.errors import ConfigError

EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
EXEC_TIMEOUT_S = 60.0
ANSWER_BUFFER = 64 * 1024
"""Bytes that are read from a plugin at a time."""
EXPIRY_MARGIN = timedelta(seconds=10)
"""A credential is renewed this long before it ends, so that it does not end on the way to the server."""
TOKEN_FILE_AGE_S = 60.0
"""The kubelet replaces a projected token when 80 % of its life is over: a minute late is early enough."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A bearer token, a client certificate (PEM), both or nothing."""

    token: str = field(default="", repr=False)
    cert: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)


class CredentialSource(Protocol):
    async def current(self) -> Credential: ...

    def reject(self) -> bool:
        """Called when the server answered 401. Returns whether `current` may now return another credential."""
        ...


class Fixed:
    """A credential that never changes."""

    def __init__(self, credential: Credential = Credential()) -> None:
        self._credential = credential

    async def current(self) -> Credential:
        return self._credential

    def reject(self) -> bool:
        return False


class TokenFile:
    """A token in a file that another process replaces; read again every minute and after a 401."""

    def __init__(self, path: Path, base: Credential = Credential()) -> None:
        self._path, self._credential = path, base
        self._read_at: float | None = None

    async def current(self) -> Credential:
        now = asyncio.get_running_loop().time()
        if self._read_at is None or now - self._read_at >= TOKEN_FILE_AGE_S:
            self._read(now)
        return self._credential

    def reject(self) -> bool:
        before = self._credential.token
        self._read_at = None
        try:
            return self._token() != before
        except ConfigError:
            return False

    def _read(self, now: float) -> None:
        try:
            token = self._token()
        except ConfigError:
            # In the middle of a rotation the old token is better than none; it is good until the server says no.
            if not self._credential.token:
                raise
            return
        self._read_at = now
        if token != self._credential.token:
            self._credential = Credential(token, self._credential.cert, self._credential.key)

    def _token(self) -> str:
        try:
            token = self._path.read_text().strip()
        except (OSError, UnicodeDecodeError) as err:
            raise ConfigError(f"cannot read the token file {self._path}: {_why(err)}") from err
        if not token:
            raise ConfigError(f"the token file {self._path} is empty")
        return token


class _ExecStatus(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecAnswer(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _ExecStatus | None = None


_exec_decoder = msgspec.json.Decoder(_ExecAnswer)


class ExecPlugin:
    """A command that prints an ExecCredential; asked again shortly before its answer expires and after a 401."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        api_version: str,
        env: Mapping[str, str] | None = None,
        install_hint: str = "",
        cluster: Mapping[str, Any] | None = None,
        cwd: Path | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        if api_version not in EXEC_VERSIONS:
            known = " and ".join(EXEC_VERSIONS)
            raise ConfigError(f"exec plugin {command[0]}: apiVersion {api_version!r} is not served, only {known}")
        self._command, self._api_version, self._hint, self._cwd = list(command), api_version, install_hint, cwd
        spec: dict[str, Any] = {"interactive": False}
        if cluster is not None:
            spec["cluster"] = dict(cluster)
        info = {"apiVersion": api_version, "kind": "ExecCredential", "spec": spec}
        self._env = {**(env or {}), "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
        self._clock = clock
        self._credential: Credential | None = None
        self._expires: datetime | None = None
        self._asking = asyncio.Lock()

    async def current(self) -> Credential:
        if self._is_good() and self._credential is not None:
            return self._credential
        async with self._asking:  # many requests may find it expired at once; one of them asks
            if not self._is_good() or self._credential is None:
                await self._ask()
            assert self._credential is not None
            return self._credential

    def reject(self) -> bool:
        self._credential = None
        return True

    def _is_good(self) -> bool:
        if self._credential is None:
            return False
        return self._expires is None or self._clock.now() + EXPIRY_MARGIN < self._expires

    async def _ask(self) -> None:
        name = self._command[0]
        status = self._parse(await self._run())
        if not status.token and not status.client_certificate_data:
            raise ConfigError(f"exec plugin {name}: the answer has neither a token nor a client certificate")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise ConfigError(f"exec plugin {name}: a client certificate and its key come together or not at all")
        credential = Credential(status.token, status.client_certificate_data.encode(), status.client_key_data.encode())
        self._expires = status.expiration_timestamp
        self._credential = credential

    async def _run(self) -> bytes:
        name = self._command[0]
        loop = asyncio.get_running_loop()
        try:
            # As asyncio.create_subprocess_exec, which does not give its transport to us.
            transport, protocol = await loop.subprocess_exec(
                lambda: SubprocessStreamProtocol(ANSWER_BUFFER, loop),
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **self._env},
                cwd=self._cwd,
            )
        except OSError as err:
            hint = f"; {' '.join(self._hint.split())}" if self._hint else ""
            raise ConfigError(f"cannot run the exec plugin {name}: {_why(err)}{hint}") from err
        child = Process(transport, protocol, loop)
        try:
            async with asyncio.timeout(EXEC_TIMEOUT_S):
                out, errors = await child.communicate()
        except TimeoutError as err:
            raise ConfigError(f"exec plugin {name}: no answer in {EXEC_TIMEOUT_S:g} s") from err
        finally:
            # Kills it if it still runs. Does not read its pipes to their end: its own children may keep them open.
            transport.close()
            await child.wait()
        if child.returncode != 0:
            lines = errors.decode(errors="replace").strip().splitlines()
            raise ConfigError(f"exec plugin {name}: exit code {child.returncode}{': ' + lines[-1] if lines else ''}")
        return out

    def _parse(self, out: bytes) -> _ExecStatus:
        name = self._command[0]
        try:
            answer = _exec_decoder.decode(out)
        except msgspec.DecodeError as err:
            raise ConfigError(f"exec plugin {name}: the answer is not an ExecCredential: {err}") from err
        if answer.kind != "ExecCredential" or answer.api_version != self._api_version:
            raise ConfigError(
                f"exec plugin {name}: asked for ExecCredential {self._api_version}, "
                f"got {answer.kind or 'no kind'} {answer.api_version or 'without apiVersion'}"
            )
        if answer.status is None:
            raise ConfigError(f"exec plugin {name}: the answer has no status")
        return answer.status


def _why(err: Exception) -> str:
    return str(err.strerror) if isinstance(err, OSError) and err.strerror else str(err)
