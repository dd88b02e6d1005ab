"""Certificates: when they are renewed, what replaces what, and that old trust keeps working."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from grove.admission.certs.authority import Bundle, Lifetimes, renewal_time, renewed, service_names
from grove.admission.certs.serving import CertificateFiles, ServedCertificate

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NAMES = service_names("grove-operator", "grove-system")
DAY = timedelta(days=1)


def bundle(now: datetime = NOW, names: tuple[str, ...] = NAMES) -> Bundle:
    made = renewed(None, names, now)
    assert made is not None
    return made


def certificates(pem: bytes) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem)


def test_a_first_bundle_has_the_names_the_api_server_calls() -> None:
    made = bundle()
    server = certificates(made.chain)[0]
    covered = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert covered.get_values_for_type(x509.DNSName) == [
        "grove-operator.grove-system.svc",
        "grove-operator",
        "grove-operator.grove-system",
        "grove-operator.grove-system.svc.cluster.local",
    ]
    authority = certificates(made.authorities)[0]
    assert authority.subject.rfc4514_string() == "CN=Grove-CA,O=Grove"
    assert authority.not_valid_after_utc == NOW + 3650 * DAY
    assert server.not_valid_after_utc == NOW + 365 * DAY
    assert renewal_time(made) == NOW + 275 * DAY


@pytest.mark.parametrize(
    ("later", "want"),
    [
        pytest.param(timedelta(0), "nothing", id="a fresh bundle is left alone"),
        pytest.param(274 * DAY, "nothing", id="91 days before its end"),
        pytest.param(276 * DAY, "server", id="89 days before its end"),
        pytest.param(400 * DAY, "server", id="after its end"),
        pytest.param(3260 * DAY, "both", id="the authority nears its end"),
        pytest.param(4000 * DAY, "both", id="the authority has ended"),
    ],
)
def test_what_is_renewed_when(later: timedelta, want: str) -> None:
    first = bundle()
    second = renewed(first, NAMES, NOW + later)
    if want == "nothing":
        assert second is None
        return
    assert second is not None
    assert (second.authority_key == first.authority_key) is (want == "server")
    assert second.key != first.key
    assert renewed(second, NAMES, NOW + later) is None


@pytest.mark.parametrize(
    ("spoil", "same_authority"),
    [
        pytest.param(lambda b, o: Bundle(b"", b"", b"", b""), False, id="an empty Secret, as a chart makes it"),
        pytest.param(lambda b, o: Bundle(b"rubbish", b"rubbish", b"rubbish", b"rubbish"), False, id="rubbish"),
        pytest.param(lambda b, o: Bundle(o.authorities, b.authority_key, b.chain, b.key), False, id="another CA"),
        pytest.param(lambda b, o: Bundle(b.authorities, b.authority_key, o.chain, o.key), True, id="a foreign server"),
        pytest.param(lambda b, o: Bundle(b.authorities, b.authority_key, b.chain, o.key), True, id="another key"),
        pytest.param(lambda b, o: Bundle(b.authorities, b.authority_key, b"", b""), True, id="no server certificate"),
    ],
)
def test_a_spoilt_bundle_is_replaced_as_far_as_needed(spoil, same_authority: bool) -> None:
    good = bundle()
    healed = renewed(spoil(good, bundle()), NAMES, NOW)
    assert healed is not None
    assert (healed.authority_key == good.authority_key) is same_authority
    assert renewed(healed, NAMES, NOW) is None


def test_a_new_name_needs_a_new_certificate() -> None:
    first = bundle()
    second = renewed(first, ("127.0.0.1", *NAMES), NOW)
    assert second is not None
    assert second.authorities == first.authorities


def test_replicas_with_other_names_do_not_undo_each_other() -> None:
    """In a rollout that changes the address, each process would make the certificate again, as fast as the server
    answers.
    """
    first = bundle()
    second = renewed(first, ("new.example",), NOW)
    assert second is not None
    assert renewed(second, NAMES, NOW) is None
    assert renewed(second, ("new.example",), NOW) is None
    third = renewed(second, ("new.example",), NOW + 300 * DAY)
    assert third is not None
    server = certificates(third.chain)[0]
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["new.example"], "gone when it is renewed in its time"


def test_a_former_authority_is_trusted_until_its_end() -> None:
    lives = Lifetimes(server_renewal=timedelta(days=90))
    first = bundle()
    second = renewed(first, NAMES, NOW + 3300 * DAY, lives)
    assert second is not None
    assert len(certificates(second.authorities)) == 2
    third = renewed(second, NAMES, NOW + 3600 * DAY, lives)
    assert third is not None
    assert len(certificates(third.authorities)) == 2
    fourth = renewed(third, NAMES, NOW + 3900 * DAY, lives)
    assert fourth is not None
    assert len(certificates(fourth.authorities)) == 1


async def handshake(port: int, trusted: bytes) -> bytes:
    """The served certificate (DER), verified against `trusted`."""
    context = ssl.create_default_context(cadata=trusted.decode())
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=NAMES[0])
    served: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return served


async def test_a_new_authority_is_accepted_by_those_who_know_only_the_old_one() -> None:
    today = datetime.now(UTC)
    first = renewed(None, NAMES, today)
    assert first is not None
    # Renewal of the authority is forced by a renewal time longer than its life.
    second = renewed(first, NAMES, today, Lifetimes(authority_renewal=timedelta(days=4000)))
    assert second is not None
    assert second.authority_key != first.authority_key
    served = ServedCertificate()
    served.load(first.chain, first.key)
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0, ssl=served.listening)
    port = server.sockets[0].getsockname()[1]
    async with server:
        before = await handshake(port, first.authorities)
        served.load(second.chain, second.key)
        after = await handshake(port, first.authorities)
        assert before != after
        assert await handshake(port, second.authorities) == after
        with pytest.raises(ssl.SSLError):
            await handshake(port, bundle().authorities)


async def test_renewed_files_are_served_from_the_next_handshake_on(tmp_path: Path) -> None:
    today = datetime.now(UTC)
    first = renewed(None, NAMES, today)
    assert first is not None

    def write(one: Bundle) -> None:
        for name, content in (("tls.crt", one.chain), ("tls.key", one.key), ("ca.crt", one.authorities)):
            (tmp_path / f"{name}.new").write_bytes(content)
            (tmp_path / f"{name}.new").rename(tmp_path / name)

    write(first)
    files = CertificateFiles(tmp_path)
    files.load()
    assert files.authorities() == first.authorities
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0, ssl=files.served.listening)
    port = server.sockets[0].getsockname()[1]
    async with server:
        before = await handshake(port, first.authorities)
        (tmp_path / "tls.crt").write_bytes(b"half written")
        assert await handshake(port, first.authorities) == before
        second = renewed(first, ("new.example", *NAMES), today)
        assert second is not None
        write(second)
        assert await handshake(port, second.authorities) != before


def test_authorities_that_cannot_be_read_are_none(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").mkdir()
    assert CertificateFiles(tmp_path).authorities() is None


async def test_old_protocols_are_not_spoken() -> None:
    made = renewed(None, NAMES, datetime.now(UTC))
    assert made is not None
    served = ServedCertificate()
    served.load(made.chain, made.key)
    assert served.listening.minimum_version == ssl.TLSVersion.TLSv1_2
