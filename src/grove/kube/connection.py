"""Where the API server is and how to speak to it: the answer (`ClusterConfig`) and what is built from it.

How one is found (flags, environment, files, in-cluster) is `grove.kube.config`.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import tempfile
import urllib.request
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlsplit

from grove.kube.credentials import Credential, CredentialSource, Fixed
from grove.kube.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """One API server and our identity there."""

    server: str
    credentials: CredentialSource = field(default_factory=Fixed)
    ca: bytes = b""
    """PEM of the authorities we trust; empty means the machine's own."""
    insecure: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    namespace: str = "default"
    impersonate: str = ""
    compress: bool = False
    """Ask for gzip: worth it over a long line only; inside a cluster it costs the API server more than the network."""
    source: str = ""
    """Where this came from, for messages: a path and a context, or "in-cluster"."""

    @property
    def is_loopback(self) -> bool:
        host = urlsplit(self.server).hostname or ""
        if host == "localhost":
            return True
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    def proxy(self) -> str | None:
        """The proxy to use: the configured one, else the environment's, which is never asked about loopback."""
        if self.proxy_url:
            return self.proxy_url
        if self.is_loopback:
            return None
        parts = urlsplit(self.server)
        proxy = urllib.request.getproxies().get(parts.scheme)
        if not proxy or urllib.request.proxy_bypass(parts.hostname or ""):
            return None
        return proxy

    def ssl_context(self) -> ssl.SSLContext | None:
        """A fresh TLS context, without a client certificate; None for plain HTTP."""
        if not self.server.startswith("https:"):
            return None
        try:
            context = ssl.create_default_context(cadata=self.ca.decode() if self.ca else None)
        except (ssl.SSLError, ValueError) as err:
            raise ConfigError(
                f"{self.source or self.server}: the certificate authority is not valid PEM: {err}"
            ) from err
        # 3.13 turned this on; certificates of many a private cluster authority lack what it asks for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def load_client_cert(context: ssl.SSLContext, credential: Credential, source: str) -> None:
    """Makes new connections show this certificate; refuses one that is over, since the server would only say 401."""
    check_not_expired(credential.cert, source)
    # The ssl module loads certificates from files only: a private one for as long as that takes.
    fd, path = tempfile.mkstemp(prefix="grove-", suffix=".pem")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(credential.cert + b"\n" + credential.key)
        context.load_cert_chain(path)
    except (ssl.SSLError, ValueError) as err:
        raise ConfigError(f"{source}: client certificate and key do not fit together: {err}") from err
    finally:
        os.unlink(path)


def check_not_expired(cert: bytes, source: str) -> None:
    # The import takes 25 ms, and most credentials are tokens.
    from cryptography import x509  # noqa: PLC0415

    try:
        ends = x509.load_pem_x509_certificate(cert).not_valid_after_utc
    except ValueError as err:
        raise ConfigError(f"{source}: the client certificate is not valid PEM") from err
    if ends <= datetime.now(UTC):
        raise ConfigError(f"{source}: the client certificate expired on {ends:%Y-%m-%d %H:%M} UTC")
