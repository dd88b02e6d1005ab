"""TLS: who is trusted, who we say we are, and one clear line when it does not work."""

import dataclasses
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.kube.api import FakeApi, Thing, serving

from grove.kube.connection import ClusterConfig
from grove.kube.credentials import Credential, Fixed
from grove.kube.errors import ConfigError, ConnectionLost
from grove.kube.http import HttpClient
from grove.local import pki
from grove.local.pki import Authority


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("test-ca")


@pytest.fixture
async def secure(authority: Authority, tmp_path: Path) -> AsyncIterator[FakeApi]:
    """A server that asks for client certificates of the same authority but takes anyone."""
    async with serving(FakeApi(), ssl_context=server_context(authority, tmp_path)) as api:
        api.put("a")
        yield api


def server_context(authority: Authority, folder: Path, names: tuple[str, ...] = ("127.0.0.1",)) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.server("server", names).write(folder, "server"))
    context.load_verify_locations(cadata=authority.pair.certificate.decode())
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def config(api: FakeApi, authority: Authority, **changes: object) -> ClusterConfig:
    made = ClusterConfig(server=api.url, ca=authority.pair.certificate)
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def user_of(api: FakeApi) -> str:
    assert api.requests[-1].transport is not None
    peer = api.requests[-1].transport.get_extra_info("peercert") or {}
    return str(dict(part[0] for part in peer.get("subject", ())).get("commonName", ""))


async def test_a_client_certificate_says_who_we_are(secure: FakeApi, authority: Authority) -> None:
    jane = authority.client("jane")
    credentials = Fixed(Credential("", jane.certificate, jane.key))
    async with HttpClient(config(secure, authority, credentials=credentials)) as client:
        await client.get(Thing, "a", "ns")
        assert user_of(secure) == "jane"


async def test_a_new_certificate_from_a_plugin_is_used_for_new_connections(
    secure: FakeApi, authority: Authority
) -> None:
    class Rotating:
        def __init__(self) -> None:
            self.user = "first"
            self.made = {name: authority.client(name) for name in ("first", "second")}
            self.held = {n: Credential("", p.certificate, p.key) for n, p in self.made.items()}

        async def current(self) -> Credential:
            return self.held[self.user]

        def reject(self) -> bool:
            return False

    source = Rotating()
    async with HttpClient(config(secure, authority, credentials=source)) as client:
        await client.get(Thing, "a", "ns")
        assert user_of(secure) == "first"
        source.user = "second"
        await client.get(Thing, "a", "ns")
        assert user_of(secure) == "second"


async def test_a_key_that_does_not_fit_is_reported_in_one_line(secure: FakeApi, authority: Authority) -> None:
    one, other = authority.client("one"), authority.client("other")
    credentials = Fixed(Credential("", one.certificate, other.key))
    async with HttpClient(config(secure, authority, credentials=credentials)) as client:
        with pytest.raises(ConfigError, match="certificate and key do not fit together"):
            await client.get(Thing, "a", "ns")


async def test_a_server_we_do_not_trust(secure: FakeApi) -> None:
    async with HttpClient(config(secure, Authority("somebody else"))) as client:
        with pytest.raises(ConfigError, match=f"{secure.url}: the server's certificate is not trusted: .*"):
            await client.get(Thing, "a", "ns")
    assert not secure.requests


async def test_an_authority_that_is_no_pem(secure: FakeApi, authority: Authority) -> None:
    async with HttpClient(config(secure, authority, ca=b"nonsense")) as client:
        with pytest.raises(ConfigError, match="the certificate authority is not valid PEM"):
            await client.get(Thing, "a", "ns")


async def test_insecure_means_what_it_says(secure: FakeApi) -> None:
    async with HttpClient(ClusterConfig(server=secure.url, insecure=True)) as client:
        await client.get(Thing, "a", "ns")


async def test_the_name_on_the_certificate_may_be_given(authority: Authority, tmp_path: Path) -> None:
    context = server_context(authority, tmp_path, names=("kube.internal",))
    async with serving(FakeApi(), ssl_context=context) as api:
        api.put("a")
        async with HttpClient(config(api, authority)) as client:
            with pytest.raises(ConfigError, match="is not trusted: IP address mismatch"):
                await client.get(Thing, "a", "ns")
        async with HttpClient(config(api, authority, tls_server_name="kube.internal")) as client:
            await client.get(Thing, "a", "ns")


async def test_an_expired_server_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pki, "LIFETIME", timedelta(seconds=-30))
    ended = Authority("ended")
    context = server_context(ended, tmp_path)
    monkeypatch.setattr(pki, "LIFETIME", timedelta(days=1))
    async with serving(FakeApi(), ssl_context=context) as api, HttpClient(config(api, ended)) as client:
        with pytest.raises(ConfigError, match="not trusted: certificate has expired"):
            await client.get(Thing, "a", "ns")


async def test_plain_http_where_tls_is_spoken(secure: FakeApi, authority: Authority) -> None:
    plain = ClusterConfig(server=secure.url.replace("https", "http"))
    async with HttpClient(plain, attempts=1) as client:
        with pytest.raises(ConnectionLost):
            await client.get(Thing, "a", "ns")
    api = FakeApi()
    async with serving(api), HttpClient(ClusterConfig(server=api.url.replace("http", "https")), attempts=1) as client:
        with pytest.raises((ConfigError, ConnectionLost)):
            await client.get(Thing, "a", "ns")
