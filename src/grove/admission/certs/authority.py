"""Certificates of the webhook server, made here: an authority of ours, a server certificate, and when to renew them.

Pure, except that keys are random. The time is an argument. The old authority cross-signs a new one, and the server
sends the cross-signed certificate too. So clients that still trust only the old authority keep working. A new authority
costs no failed request, and no person has to act.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_NAME, ORGANISATION = "Grove-CA", "Grove"
BACKDATE = timedelta(hours=1)
"""A clock that runs a little behind ours must not find a certificate of the future."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    authority: timedelta = timedelta(days=3650)
    authority_renewal: timedelta = timedelta(days=400)
    """Before its end; longer than a server certificate lives, so that none outlives its authority."""
    server: timedelta = timedelta(days=365)
    server_renewal: timedelta = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class Bundle:
    """PEM data of the certificate Secret: trusted authorities (ours first), our key, served chain, server's key."""

    authorities: bytes
    authority_key: bytes
    chain: bytes
    key: bytes

    @classmethod
    def from_secret(cls, data: Mapping[str, bytes]) -> Self:
        ca, ca_key, chain, key = (data.get(name, b"") for name in ("ca.crt", "ca.key", "tls.crt", "tls.key"))
        return cls(ca, ca_key, chain, key)

    def to_secret(self) -> dict[str, bytes]:
        return {"ca.crt": self.authorities, "ca.key": self.authority_key, "tls.crt": self.chain, "tls.key": self.key}


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Names under which a Service is called, the one the API server uses first."""
    return (
        f"{service}.{namespace}.svc",
        service,
        f"{service}.{namespace}",
        f"{service}.{namespace}.svc.cluster.local",
    )


def renewed(
    current: Bundle | None, names: Sequence[str], now: datetime, lives: Lifetimes = Lifetimes()
) -> Bundle | None:
    """The bundle to use from now on, or None when the current one is good. Whatever is wrong with it is replaced."""
    authority = _usable_authority(current, now)
    old = authority
    wanted = [_general_name(name) for name in names]
    if authority is None or authority.certificate.not_valid_after_utc - now < lives.authority_renewal:
        authority = _new_authority(now, lives)
    elif current is not None:
        covered = _names_covered(current, authority, now, lives)
        if set(wanted) <= set(covered):
            return None
        # Another replica may have other settings, in a rollout: one certificate for both, or each would undo the other.
        wanted += [name for name in covered if name not in wanted]
    certificate, key = _issue(authority, names[0], wanted, now, lives)
    trusted, chain = [authority.certificate], [certificate]
    if old is not None and old is not authority:
        trusted.append(old.certificate)
        chain.append(_cross_signed(authority, by=old))
    elif current is not None and old is authority:
        # Others may still trust a former authority; it goes when it has expired.
        former = [c for c in _certificates(current.authorities) if c.not_valid_after_utc > now]
        trusted += [c for c in former if c != authority.certificate]
    return Bundle(_pem(*trusted), _private_pem(authority.key), _pem(*chain), _private_pem(key))


def renewal_time(current: Bundle, lives: Lifetimes = Lifetimes()) -> datetime:
    """When `renewed` will have something to do."""
    authority, server = _certificates(current.authorities)[0], _certificates(current.chain)[0]
    return min(
        authority.not_valid_after_utc - lives.authority_renewal, server.not_valid_after_utc - lives.server_renewal
    )


def is_trusted(chain: bytes, authorities: bytes, now: datetime) -> bool:
    """True if a client with these authorities accepts this chain (the server's certificate first).

    Host names are not checked.
    """
    try:
        certificate, *between = _certificates(chain)
        trusted = [authority for authority in _certificates(authorities) if authority.not_valid_after_utc > now]
    except ValueError:
        return False
    while certificate not in trusted and not any(_issued(certificate, by=authority) for authority in trusted):
        issuer = next((candidate for candidate in between if _issued(certificate, by=candidate)), None)
        if issuer is None:
            return False
        between.remove(issuer)
        certificate = issuer
    return True


def _issued(certificate: x509.Certificate, *, by: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(by)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _usable_authority(current: Bundle | None, now: datetime) -> _Authority | None:
    if current is None:
        return None
    try:
        certificate = _certificates(current.authorities)[0]
        key = serialization.load_pem_private_key(current.authority_key, None)
    except (ValueError, TypeError, IndexError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    return _Authority(certificate, key) if certificate.not_valid_after_utc > now else None


def _names_covered(bundle: Bundle, authority: _Authority, now: datetime, lives: Lifetimes) -> list[x509.GeneralName]:
    """The names for which the bundle's certificate serves, in order; none when it is not good, or is to be renewed."""
    try:
        server = _certificates(bundle.chain)[0]
        key = serialization.load_pem_private_key(bundle.key, None)
        server.verify_directly_issued_by(authority.certificate)
        covered = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, IndexError, InvalidSignature, x509.ExtensionNotFound):
        return []
    is_good = (
        isinstance(key, ec.EllipticCurvePrivateKey)
        and key.public_key() == server.public_key()
        and server.not_valid_before_utc <= now + BACKDATE
        and server.not_valid_after_utc - now >= lives.server_renewal
    )
    return list(covered) if is_good else []


def _new_authority(now: datetime, lives: Lifetimes) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(CA_NAME)
    certificate = _authority_builder(subject, key, subject, now, now + lives.authority).sign(key, hashes.SHA256())
    return _Authority(certificate, key)


def _cross_signed(new: _Authority, *, by: _Authority) -> x509.Certificate:
    """The new authority vouched for by the old one, for as long as the old one lives."""
    start = new.certificate.not_valid_before_utc + BACKDATE
    builder = _authority_builder(
        new.certificate.subject, new.key, by.certificate.subject, start, by.certificate.not_valid_after_utc
    )
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(by.key.public_key())
    return builder.add_extension(signer, critical=False).sign(by.key, hashes.SHA256())


def _authority_builder(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, issuer: x509.Name, start: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        _builder(subject, issuer, key.public_key(), start, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _issue(
    authority: _Authority, name: str, names: Sequence[x509.GeneralName], now: datetime, lives: Lifetimes
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(now + lives.server, authority.certificate.not_valid_after_utc)
    certificate = (
        _builder(_name(name), authority.certificate.subject, key.public_key(), now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return certificate, key


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, start: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - BACKDATE)
        .not_valid_after(end)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    organisation = x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANISATION)
    return x509.Name([organisation, x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _certificates(pem: bytes) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem)


def _pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in certificates)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
