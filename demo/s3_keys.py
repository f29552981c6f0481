"""Keys for the parts of the S3 server, so that nobody gets at its data past the S3 port and its credentials."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_VALID = timedelta(days=365)
_SIGNED = ("JWT_SIGNING", "JWT_SIGNING_READ", "JWT_FILER_SIGNING", "JWT_FILER_SIGNING_READ")
_PARTS = ("MASTER", "VOLUME", "FILER", "S3", "CLIENT")


def fresh_keys(folder: Path) -> Mapping[str, str]:
    """What a server needs in its environment so that its parts trust each other and nobody else.

    The keys are new each time, and nobody but their owner can read them.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    _make_certificate(certificate, key)
    keys = {f"WEED_{name}_KEY": secrets.token_hex(32) for name in _SIGNED}
    keys["WEED_GRPC_CA"] = str(certificate)
    for part in _PARTS:
        keys |= {f"WEED_GRPC_{part}_CERT": str(certificate), f"WEED_GRPC_{part}_KEY": str(key)}
    return keys


def _make_certificate(certificate: Path, key: Path) -> None:
    """One that signs itself: what shows it is a part of this server."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "coset")])
    # Clocks may be set back.
    begins = datetime.now(UTC) - timedelta(days=1)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + _VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key.touch(mode=0o600)
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
