"""A real S3 server for the demo and the tests: SeaweedFS from PyPI, on loopback and free ports only."""

from __future__ import annotations

import ipaddress
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from coset.batches.runners import children
from coset.batches.runners.children import free_ports
from demo.buckets import wait_for_buckets
from partitioning.errors import Refused, Unreachable
from partitioning.kinds import Kind

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


_ENDED_WITHIN_SECONDS = 2
_START_TRIES = 3
# The variables with its keys, and the parts that trust each other by them.
_SIGNED = ("JWT_SIGNING", "JWT_SIGNING_READ", "JWT_FILER_SIGNING", "JWT_FILER_SIGNING_READ")
_PARTS = ("MASTER", "VOLUME", "FILER", "S3", "CLIENT")


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server. `environment` holds what a client needs: endpoint, credentials, region."""

    process: subprocess.Popen[bytes]
    environment: Mapping[str, str]
    ports: tuple[int, ...]

    def stop(self) -> None:
        """Stop the server; what it stored stays in its folder."""
        # All that it acknowledged is in its files; asked to end, it would serve idle connections for two seconds.
        children.stop(self.process, _ENDED_WITHIN_SECONDS, signal.SIGKILL)
        for port in self.ports:
            for socket_file in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):  # noqa: S108 - the server puts them there
                socket_file.unlink(missing_ok=True)


def start_server(folder: Path, buckets: tuple[str, ...], meanwhile: Callable[[], object] = lambda: None) -> S3Server:
    """Start a server that keeps its data and credentials in `folder` and holds `buckets`; it ends with this process.

    Its parts have ports as well, at which they answer each other and nobody else. `meanwhile` is done while it starts.
    Raises Refused if it does not answer within a minute; its log is `folder/server.log`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    credentials = _credentials(folder)
    for _ in range(_START_TRIES):
        server = _start_once(folder, credentials)
        meanwhile()
        if _answers(server, buckets):
            return server
        # Most likely another process took one of the free ports meanwhile.
        server.stop()
    what, then = "the S3 server does not answer", "read the log, then try again"
    raise Refused.of(Kind.DEMO, what, str(folder / "server.log"), then, folder=folder)


@contextmanager
def served(folder: Path, buckets: tuple[str, ...]) -> Iterator[S3Server]:
    """Such a server, as that of this process's environment, for a while. Raises as `start_server`."""
    server = start_server(folder, buckets)
    try:
        with set_for_a_while(server.environment):
            yield server
    finally:
        server.stop()


@contextmanager
def set_for_a_while(more: Mapping[str, str]) -> Iterator[None]:
    """Set variables; afterwards all are as they were."""
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _start_once(folder: Path, credentials: Mapping[str, str]) -> S3Server:
    ports = free_ports(8)
    master, master_grpc, volume, volume_grpc, filer, filer_grpc, s3, s3_grpc = ports
    command = [
        str(Path(sys.executable).with_name("weed")),
        "-logtostderr=true",
        "server",
        f"-dir={folder / 'data'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-master.port={master}",
        f"-master.port.grpc={master_grpc}",
        # Without it the master waits for others, among which it could elect a leader.
        "-master.peers=none",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=256",
        f"-volume.port={volume}",
        f"-volume.port.grpc={volume_grpc}",
        "-volume.max=0",
        "-volume.preStopSeconds=1",
        f"-filer.port={filer}",
        f"-filer.port.grpc={filer_grpc}",
        # The keys of master and filer. Without them both would answer anyone, and the master would even remove data.
        "-disableHttp",
        "-s3",
        f"-s3.port={s3}",
        f"-s3.port.grpc={s3_grpc}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-s3.iam=false",
        "-s3.autoCreateBucket=false",
        f"-s3.config={folder / 's3.json'}",
    ]
    data = folder / "data"
    data.mkdir(exist_ok=True)
    data.chmod(0o700)
    with (folder / "server.log").open("wb") as log:
        process = children.start(command, os.environ | fresh_keys(folder / "keys"), log, signal.SIGKILL)
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3}",
        "AWS_ACCESS_KEY_ID": credentials["accessKey"],
        "AWS_SECRET_ACCESS_KEY": credentials["secretKey"],
        "AWS_REGION": "us-east-1",
    }
    return S3Server(process, environment, ports)


def _answers(server: S3Server, buckets: tuple[str, ...]) -> bool:
    try:
        wait_for_buckets(buckets, server.environment, lambda: server.process.poll() is None)
    except Unreachable:
        return False
    return True


def _credentials(folder: Path) -> Mapping[str, str]:
    """The server's credentials, made at the first start and readable by the owner only."""
    path = folder / "s3.json"
    if not path.exists():
        fresh = {"accessKey": secrets.token_hex(8), "secretKey": secrets.token_hex(16)}
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        path.touch(mode=0o600)
        path.write_text(json.dumps({"identities": [{"name": "coset", "credentials": [fresh], "actions": actions}]}))
    credentials: Mapping[str, str] = json.loads(path.read_text())["identities"][0]["credentials"][0]
    return credentials


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
