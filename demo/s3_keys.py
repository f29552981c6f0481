"""Keys for the parts of the S3 server, so that its data can only be reached by the S3 port, with its credentials."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from demo.certificates import make_certificate

_SIGNED = ("JWT_SIGNING", "JWT_SIGNING_READ", "JWT_FILER_SIGNING", "JWT_FILER_SIGNING_READ")
_PARTS = ("MASTER", "VOLUME", "FILER", "S3", "CLIENT")


def fresh_keys(folder: Path) -> Mapping[str, str]:
    """The variables that make the parts of a server trust each other and nobody else.

    The keys are new each time, and nobody but their owner can read them.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    make_certificate(certificate, key)
    keys = {f"WEED_{name}_KEY": secrets.token_hex(32) for name in _SIGNED}
    keys["WEED_GRPC_CA"] = str(certificate)
    for part in _PARTS:
        keys |= {f"WEED_GRPC_{part}_CERT": str(certificate), f"WEED_GRPC_{part}_KEY": str(key)}
    return keys
