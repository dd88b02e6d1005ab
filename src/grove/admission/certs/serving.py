"""Where the webhook server's certificate comes from, and how a new one is served without a restart.

`auto`: ours, kept in a Secret that all replicas share. `manual` and `cert-manager`: files that someone else renews.
A handshake always gets the newest certificate; open connections are left alone.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from grove.admission.certs.authority import Bundle, Lifetimes, renewal_time, renewed
from grove.api.core import Secret
from grove.api.labels import COMPONENT, MANAGED_BY, OPERATOR, PART_OF, WEBHOOK
from grove.api.meta import Json
from grove.kube.cache import Cache
from grove.kube.client import Client
from grove.kube.clock import SYSTEM, Clock
from grove.kube.errors import AlreadyExists, Conflict, KubeError, NotFound

MODES = ("auto", "manual", "cert-manager")
RETRY_S = 1.0

log = structlog.get_logger(__name__)


class ServedCertificate:
    """The TLS context to listen with. `renew` runs at every handshake and may call `load` with newer material."""

    def __init__(self, renew: Callable[[ServedCertificate], None] | None = None) -> None:
        self._renew = renew
        self._current: ssl.SSLContext | None = None
        self._pair = (b"", b"")
        self._client_authorities = b""
        self.listening = _context()
        self.listening.sni_callback = self._choose

    @property
    def is_loaded(self) -> bool:
        return self._current is not None

    def load(self, chain: bytes, key: bytes) -> None:
        """Serves this certificate from the next handshake on; raises `ssl.SSLError` if key and certificate differ."""
        context = _context()
        if self._client_authorities:
            context.load_verify_locations(cadata=self._client_authorities.decode())
            context.verify_mode = ssl.CERT_OPTIONAL
        # The ssl module reads certificates from files only.
        with tempfile.TemporaryDirectory(prefix="grove-tls-") as directory:
            chain_file, key_file = Path(directory, "tls.crt"), Path(directory, "tls.key")
            chain_file.write_bytes(chain)
            with os.fdopen(os.open(key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(key)
            context.load_cert_chain(chain_file, key_file)
            if self._current is None:
                self.listening.load_cert_chain(chain_file, key_file)
        self._current, self._pair = context, (chain, key)

    def trust_clients(self, authorities: bytes) -> None:
        """Asks clients for a certificate of these authorities, from the next handshake on; one of others is refused.

        A client that shows none gets through: what it may do is for the server to say.
        """
        self._client_authorities = authorities
        # OpenSSL asks for a certificate if the context that listens says so, and trusts the authorities of the chosen
        # one.
        self.listening.verify_mode = ssl.CERT_OPTIONAL if authorities else ssl.CERT_NONE
        if self.is_loaded:
            self.load(*self._pair)

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        if self._renew is not None:
            self._renew(self)
        if self._current is not None:
            connection.context = self._current


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class CertificateFiles:
    """`tls.crt`, `tls.key` and, if there is one, `ca.crt` in a directory that someone else keeps (a mounted Secret).

    The directory is looked at on each handshake, so a renewed certificate needs no restart and no watching.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: tuple[int, ...] = ()
        self.chain = b""
        """The certificate that is served, with those that vouch for it."""
        self.served = ServedCertificate(lambda served: self.refresh())

    def load(self) -> None:
        """Raises `OSError` or `ssl.SSLError` when the files cannot be used; for the start of a process."""
        self._seen = self._stamp()
        chain = self._read("tls.crt")
        self.served.load(chain, self._read("tls.key"))
        self.chain = chain

    def authorities(self) -> bytes | None:
        """The CA bundle, if the directory has one that can be read."""
        try:
            return self._read("ca.crt") or None
        except OSError:
            return None

    def refresh(self) -> None:
        """Serves what the files hold now, if they can be used."""
        try:
            if self._stamp() != self._seen:
                self.load()
                log.info("webhook certificate reloaded", directory=str(self._directory))
        except (OSError, ssl.SSLError) as error:
            # Half-written files are normal while they are being replaced: the old certificate still serves.
            log.warning("webhook certificate not reloaded", directory=str(self._directory), error=str(error))

    def _stamp(self) -> tuple[int, ...]:
        stats = [os.stat(self._directory / name) for name in ("tls.crt", "tls.key")]
        return tuple(number for stat in stats for number in (stat.st_mtime_ns, stat.st_ino, stat.st_size))

    def _read(self, name: str) -> bytes:
        return (self._directory / name).read_bytes()


@dataclass(slots=True)
class SharedSecret:
    """Keeps the `auto` bundle in a Secret: made by the first replica, renewed by the first that wakes, read by all."""

    client: Client
    namespace: str
    names: Sequence[str]
    publish: Callable[[bytes], None] = lambda authorities: None
    """Called with the authorities that sign the served certificate. Clients that trust only the former authorities
    still accept it, so the caller does not wait.
    """
    secret_name: str = "grove-webhook-server-cert"
    clock: Clock = SYSTEM
    lives: Lifetimes = field(default_factory=Lifetimes)
    served: ServedCertificate = field(default_factory=ServedCertificate)
    bundle: Bundle | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def settle(self) -> Bundle:
        """Reads, makes or renews the bundle, then publishes and serves it. Replicas that race agree on one."""
        bundle = await self._agree()
        if bundle != self.bundle:
            self.served.load(bundle.chain, bundle.key)
            self.bundle = bundle
            self.publish(bundle.authorities)
            log.info("webhook certificate served", renewal=renewal_time(bundle, self.lives).isoformat())
        return bundle

    async def _agree(self) -> Bundle:
        while True:
            try:
                secret = await self.client.get(Secret, self.secret_name, self.namespace)
            except NotFound:
                made = renewed(None, self.names, self.clock.now(), self.lives)
                assert made is not None
                try:
                    await self.client.create(Secret, self._secret(made))
                    return made
                except AlreadyExists:
                    continue
            current = _decoded(secret)
            wanted = renewed(current, self.names, self.clock.now(), self.lives)
            agreed = wanted or current
            assert agreed is not None
            has_label = secret.metadata.labels.get(MANAGED_BY) == OPERATOR
            if wanted is None and not has_label:
                return agreed
            patch: Json = {"metadata": {"resourceVersion": secret.metadata.resource_version}}
            if has_label:  # an earlier version gave it the label of what is made for sets
                patch["metadata"]["labels"] = {MANAGED_BY: None}
            if wanted is not None:
                patch["data"] = _encoded(wanted)
            try:
                await self.client.patch(Secret, self.secret_name, patch, self.namespace)
                return agreed
            except (Conflict, NotFound):
                continue  # another replica renewed it: take what it made

    async def keep(self) -> None:
        """Follows the Secret and renews in time, for as long as it runs."""
        cache = Cache(self.client)
        cache.add(Secret, namespace=self.namespace, fields=f"metadata.name={self.secret_name}")
        cache.on_event(Secret, lambda old, new: self._changed.set())
        async with cache:
            while True:
                pause = RETRY_S
                self._changed.clear()
                try:
                    bundle = await self.settle()
                    due = renewal_time(bundle, self.lives) - self.clock.now()
                    pause = max(due.total_seconds(), RETRY_S)
                except (KubeError, ssl.SSLError) as error:
                    log.warning("webhook certificate could not be settled", error=str(error))
                try:
                    async with asyncio.timeout(pause):
                        await self._changed.wait()
                except TimeoutError:
                    pass

    def _secret(self, bundle: Bundle) -> Json:
        labels = {PART_OF: "grove", COMPONENT: WEBHOOK}
        metadata = {"name": self.secret_name, "namespace": self.namespace, "labels": labels}
        return Secret.RESOURCE.manifest(metadata, type="kubernetes.io/tls", data=_encoded(bundle))


def _encoded(bundle: Bundle) -> dict[str, str]:
    return {name: base64.b64encode(value).decode() for name, value in bundle.to_secret().items()}


def _decoded(secret: Secret) -> Bundle | None:
    try:
        return Bundle.from_secret({name: base64.b64decode(value) for name, value in secret.data.items()})
    except binascii.Error:
        return None
