"""Certificates: their signers, their names, and who may read the keys."""

from __future__ import annotations

import ipaddress
import stat
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from grove.local.pki import Authority, service_account_keys, write_private


def test_a_client_certificate_carries_user_and_groups() -> None:
    authority = Authority("test")
    certificate = x509.load_pem_x509_certificate(authority.client("joe", ["devs", "ops"]).certificate)
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.pair.certificate))
    names = {
        oid: [str(one.value) for one in certificate.subject.get_attributes_for_oid(oid)]
        for oid in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME)
    }
    assert names == {NameOID.COMMON_NAME: ["joe"], NameOID.ORGANIZATION_NAME: ["devs", "ops"]}
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_a_server_certificate_is_good_for_loopback_and_the_service() -> None:
    certificate = x509.load_pem_x509_certificate(Authority("test").server("kube-apiserver").certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert ipaddress.ip_address("127.0.0.1") in names.get_values_for_type(x509.IPAddress)
    assert {"localhost", "kubernetes.default.svc"} <= set(names.get_values_for_type(x509.DNSName))
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_service_account_keys_belong_together() -> None:
    private, public = service_account_keys()
    key = serialization.load_pem_private_key(private, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert serialization.load_pem_public_key(public) == key.public_key()


def test_keys_are_for_their_owner_even_if_the_file_was_open_to_all(tmp_path: Path) -> None:
    path = tmp_path / "loose.key"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    _, key = Authority("test").pair.write(tmp_path, "ca")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
