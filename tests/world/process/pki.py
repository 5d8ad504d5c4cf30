"""Certificates for the local control plane: one authority, and what it signs.

Keys are elliptic: an RSA key costs about 100 ms each, and a control plane needs five. Certificates live a week, which is
longer than any test session and short enough that a forgotten one is worth nothing.
"""

from __future__ import annotations

import datetime
import ipaddress
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Certificate(NamedTuple):
    """Paths of a PEM certificate and its PEM key."""

    certificate: str
    key: str


class Authority:
    """A certificate authority whose files all live in one folder."""

    def __init__(self, folder: pathlib.Path, name: str) -> None:
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            self._unsigned(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_may_sign_certificates(), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem: bytes = certificate.public_bytes(serialization.Encoding.PEM)
        self.file: str = self._write("ca.crt", self.pem)

    def issue(self, common_name: str, organization: str | None = None, hosts: Sequence[str] = ()) -> Certificate:
        """A certificate good for a server (`hosts`) and for a client (`common_name` is the user, `organization` the group)."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if organization:
            subject.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        both_uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = self._unsigned(x509.Name(subject), key).add_extension(both_uses, critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        return Certificate(self._write(f"{common_name}.crt", pem), self._write_key(common_name, key))

    def bare_key(self, name: str) -> str:
        """A private key without a certificate; the path of its file."""
        return self._write_key(name, ec.generate_private_key(ec.SECP256R1()))

    def _unsigned(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=7))
        )

    def _write_key(self, name: str, key: ec.EllipticCurvePrivateKey) -> str:
        # "EC PRIVATE KEY", not PKCS#8: the API server refuses the latter as --service-account-key-file.
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        return self._write(f"{name}.key", pem)

    def _write(self, name: str, content: bytes) -> str:
        path = self._folder / name
        path.write_bytes(content)
        path.chmod(0o600)
        return str(path)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _may_sign_certificates() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
