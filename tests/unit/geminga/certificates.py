"""Certificates made for a test: an authority, and what it signs."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Authority:
    """Signs certificates into files of ``directory``; its own is ``trust_file``."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self.trust_file = directory / f"{name}.pem"
        builder = self._builder(self._name, self._key, datetime.now(UTC) + DAY)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.trust_file.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def issue(
        self, name: str, host: str, valid_for: timedelta = DAY, *, is_rsa: bool = False
    ) -> Path:
        """A file with a certificate for ``host``, valid for so long from now, and its key."""
        key: PrivateKey = ec.generate_private_key(ec.SECP256R1())
        if is_rsa:
            key = rsa.generate_private_key(65537, 2048)
        builder = self._builder(_name(name), key, datetime.now(UTC) + valid_for)
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_alternative(host)]), critical=False
        )
        path = self._directory / f"{name}.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        path.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())) + private)
        return path

    def _builder(
        self, subject: x509.Name, key: PrivateKey, end: datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime.now(UTC) - 10 * DAY)
            .not_valid_after(end)
        )


def server_context(certificate: Path, clients: Authority | None = None) -> ssl.SSLContext:
    """How a broker secures connections; with ``clients`` it asks for certificates they signed."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients.trust_file)
    return context


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
