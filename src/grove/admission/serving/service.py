"""Admission as one thing to start and stop: certificates, then the server, then the configurations that point at it.

In that order, because a configuration without a server behind it stops every write of the kinds it names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from grove.admission.certs.authority import service_names
from grove.admission.certs.serving import MODES, CertificateFiles, SharedSecret
from grove.admission.rules.review import Admission
from grove.admission.serving.reader import ClusterReader
from grove.admission.serving.registration import Address, Registration, ServiceAddress, UrlAddress
from grove.admission.serving.server import Seen, WebhookServer
from grove.api.meta import Json, Key
from grove.kube.client import Client
from grove.kube.clock import SYSTEM, Clock

INJECT_CA_FROM = "cert-manager.io/inject-ca-from"


class CertificateModeError(ValueError):
    """The configured way to certificates does not exist or lacks something."""


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    namespace: str
    """Where the operator runs: of its Service, its certificate Secret, its scheduler's account."""
    host: str = ""
    port: int = 9443
    service: str = "grove-operator"
    url: str = ""
    """`https://127.0.0.1:9443` when the operator runs outside the cluster; wins over the Service."""
    mode: str = "auto"
    cert_dir: Path = Path("/etc/grove-operator/webhook-certs")
    secret_name: str = "grove-webhook-server-cert"
    inject_ca_from: str = ""
    """`<namespace>/<certificate>` of cert-manager, in mode cert-manager."""

    @property
    def address(self) -> Address:
        return UrlAddress(self.url) if self.url else ServiceAddress(self.namespace, self.service, self.port)

    @property
    def names(self) -> tuple[str, ...]:
        """What the server is called by its clients, for its certificate."""
        host = urlsplit(self.url).hostname if self.url else None
        return ((host,) if host else ()) + service_names(self.service, self.namespace)


class WebhookService:
    """`start` returns when reviews are answered and the API server was told; `run` keeps it so until cancelled."""

    def __init__(
        self, client: Client, admission: Admission, settings: WebhookSettings, *, clock: Clock = SYSTEM,
        find_set: Callable[[Key], Json | None] = lambda key: None,
        seen: Seen = lambda path, allowed, seconds: None,
    ) -> None:  # fmt: skip
        if settings.mode not in MODES:
            raise CertificateModeError(f"certProvisionMode must be one of {', '.join(MODES)}, not {settings.mode!r}")
        if settings.mode == "cert-manager" and not settings.inject_ca_from:
            raise CertificateModeError("mode cert-manager needs the certificate to inject the CA from (namespace/name)")
        self._settings = settings
        annotations = {INJECT_CA_FROM: settings.inject_ca_from} if settings.mode == "cert-manager" else {}
        self.registration = Registration(client, settings.address, admission.authorizer is not None, annotations)
        self._secret: SharedSecret | None = None
        self._files: CertificateFiles | None = None
        if settings.mode == "auto":
            self._secret = SharedSecret(
                client, settings.namespace, settings.names, secret_name=settings.secret_name, clock=clock
            )
            served = self._secret.served
        else:
            self._files = CertificateFiles(settings.cert_dir)
            served = self._files.served
        reader = ClusterReader(client, find_set)
        self.server = WebhookServer(admission, reader, served, host=settings.host, port=settings.port, seen=seen)

    @property
    def is_ready(self) -> bool:
        return self.server.is_serving

    async def start(self) -> None:
        """Raises `CertificateModeError` when files are missing, `KubeError` when the API server refuses."""
        if self._files is not None:
            try:
                self._files.load()
            except OSError as error:
                raise CertificateModeError(f"certificate files of mode {self._settings.mode}: {error}") from error
            self.registration.ca_bundle = self._files.authorities() if self._settings.mode == "manual" else None
            await self.server.start()
            await self.registration.ensure()
            return
        assert self._secret is not None
        bundle = await self._secret.settle()
        await self.server.start()
        await self.registration.trust(bundle.authorities)
        self._secret.publish = self.registration.trust

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.registration.keep(), name="keep-webhook-configurations")
                if self._secret is not None:
                    tasks.create_task(self._secret.keep(), name="keep-webhook-certificate")
        finally:
            with suppress(OSError):
                await self.server.stop()

    async def stop(self) -> None:
        """For a service that was started but never run."""
        await self.server.stop()
