"""Admission as one thing to start and stop: certificates, then the server, then the configurations that point at it.

In that order, because a configuration without a server behind it stops every write of the kinds it names. Every replica
serves; the configurations are the leader's affair.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from grove.admission.certs.authority import is_trusted, service_names
from grove.admission.certs.serving import MODES, CertificateFiles, SharedSecret
from grove.admission.rules.review import Admission
from grove.admission.serving.reader import ClusterReader
from grove.admission.serving.registration import Address, Registration, ServiceAddress, UrlAddress
from grove.admission.serving.server import WebhookServer
from grove.kube.client import Client
from grove.kube.clock import SYSTEM, Clock
from grove.kube.handover import HAND_OVER_S, HandOver
from grove.kube.tracing import Traces

INJECT_CA_FROM = "cert-manager.io/inject-ca-from"
FILES_S = 10.0
"""How often the leader looks for renewed certificate files; a kubelet brings them a minute late anyway."""


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
        """The host names that clients use for the server, for its certificate."""
        host = urlsplit(self.url).hostname if self.url else None
        return ((host,) if host else ()) + service_names(self.service, self.namespace)


class WebhookService:
    """`start` returns when reviews are answered, `keep` keeps it so until cancelled, and `stop` ends it.

    `run` does what `keep` and `stop` do. `lead` has the API server ask us. A process that is stopped uses `hand_over`.

    `leader_client` writes the configurations: one that holds writes back once the lease is lost.
    """

    def __init__(
        self,
        client: Client,
        admission: Admission,
        settings: WebhookSettings,
        *,
        leader_client: Client | None = None,
        clock: Clock = SYSTEM,
        traces: Traces | None = None,
    ) -> None:
        if settings.mode not in MODES:
            raise CertificateModeError(f"certProvisionMode must be one of {', '.join(MODES)}, not {settings.mode!r}")
        if settings.mode == "cert-manager" and not settings.inject_ca_from:
            raise CertificateModeError("mode cert-manager needs the certificate to inject the CA from (namespace/name)")
        self._settings, self._clock = settings, clock
        annotations = {INJECT_CA_FROM: settings.inject_ca_from} if settings.mode == "cert-manager" else {}
        self.registration = Registration(
            leader_client or client, settings.address, admission.authorizer is not None, annotations, admission.dialects
        )
        self._secret: SharedSecret | None = None
        self._files: CertificateFiles | None = None
        if settings.mode == "auto":
            self._secret = SharedSecret(
                client,
                settings.namespace,
                settings.names,
                self.registration.trust,
                secret_name=settings.secret_name,
                clock=clock,
            )
            served = self._secret.served
        else:
            self._files = CertificateFiles(settings.cert_dir)
            served = self._files.served
        # A client that has our address and not a Service's finds no other replica.
        self.hand_over = HandOver(0.0 if settings.url else HAND_OVER_S)
        self.server = WebhookServer(
            admission,
            ClusterReader(client),
            served,
            host=settings.host,
            port=settings.port,
            traces=traces,
            hand_over=self.hand_over,
        )

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
            if self._settings.mode == "manual":
                self.registration.is_good_bundle = self._is_trusted_by
                self.registration.trust(self._files.authorities())
        else:
            assert self._secret is not None
            await self._secret.settle()
        await self.server.start()

    async def run(self) -> None:
        try:
            await self.keep()
        finally:
            await self.stop()

    async def keep(self) -> None:
        """Renews the certificate until cancelled."""
        if self._secret is not None:
            await self._secret.keep()
        await asyncio.Event().wait()

    async def lead(self) -> None:
        """Keeps the webhook configurations until cancelled. For the leader alone, or for the only replica."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.registration.keep(), name="keep-webhook-configurations")
            if self._files is not None and self._settings.mode == "manual":
                tasks.create_task(self._follow(self._files), name="follow-webhook-authorities")

    async def _follow(self, files: CertificateFiles) -> None:
        """Publishes renewed authorities. Handshakes bring renewed files too, but perhaps only to other replicas."""
        while True:
            files.refresh()
            if (authorities := files.authorities()) != self.registration.ca_bundle:
                self.registration.trust(authorities)
            await asyncio.sleep(FILES_S)

    def _is_trusted_by(self, authorities: bytes) -> bool:
        assert self._files is not None
        return is_trusted(self._files.chain, authorities, self._clock.now())

    async def stop(self) -> None:
        """Stops listening, lets reviews under way finish."""
        with suppress(OSError):
            await self.server.stop()
