"""Self-signed certificates: trusting one means trusting the holder of its key and nobody else."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_VALID = timedelta(days=365)


def make_certificate(certificate: Path, key: Path, host: str | None = None) -> None:
    """Write a certificate, for a host's IP address if one is named, and its key, which only its owner can read."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "coset")])
    # The clocks of other machines may be behind.
    begins = datetime.now(UTC) - timedelta(days=1)
    described = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + _VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    if host is not None:
        address = x509.IPAddress(ipaddress.ip_address(host))
        described = described.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    signed = described.sign(private, hashes.SHA256())
    certificate.write_bytes(signed.public_bytes(Encoding.PEM))
    key.touch(mode=0o600)
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
