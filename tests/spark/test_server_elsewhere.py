"""A Spark server on another host: its own network, its own folders, and TLS in front of it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from coset.batches.runners.spark_server import TOKEN
from demo.s3_server import S3Server, make_certificate
from partitioning.documents.store import Store
from tests import forked
from tests.commands import PIPELINE, landed  # noqa: F401
from tests.hosts import QUICK, Host
from tests.networks import Network, network
from tests.small import until

ROOTS = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
# Nobody else is at the ports of a network of its own.
SERVER, TLS, S3 = "15002", "443", "8333"


@pytest.fixture
def elsewhere(s3: S3Server, tmp_path: Path) -> Iterator[tuple[Network, Mapping[str, str]]]:
    """A network in which a server listens on loopback, and TLS on its address; with what its clients need."""
    with network(tmp_path) as net:
        host = Host("far", tmp_path, tmp_path / "opt")
        host.install()
        at = urlsplit(s3.environment["AWS_ENDPOINT_URL"])
        store = {**s3.environment, "AWS_ENDPOINT_URL": f"http://{net.here}:{S3}"}
        variables = host.environment({**store, TOKEN: "a token", "PYSPARK_PYTHON": str(host.python)})
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": SERVER,
            "spark.driver.extraJavaOptions": QUICK,
            "spark.ui.enabled": "false",
        }
        conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        kind = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal")
        submit = f"{variables['SPARK_HOME']}/bin/spark-submit"
        server = [*net.inside, *host.apart(), submit, "--master", "local[2]", *conf, *kind]
        net.start(server, variables)
        certificate, key, both = (tmp_path / name for name in ("certificate.pem", "key.pem", "both.pem"))
        make_certificate(certificate, key, net.there)
        both.write_text(certificate.read_text() + key.read_text())
        net.forward((), net.here, S3, str(at.hostname), str(at.port))
        net.forward(net.inside, "0.0.0.0", TLS, "127.0.0.1", SERVER, str(both))
        log = tmp_path / "network.log"
        assert until(lambda: "Spark Connect server started" in log.read_text()), log.read_text()
        yield net, {"SPARK_MASTER": address(net.there), TOKEN: "a token", ROOTS: str(certificate)}


def address(host: str, port: str = TLS) -> str:
    return f"sc://{host}:{port}/;use_ssl=true"


@pytest.mark.long
def test_a_server_on_another_host_is_reached_by_tls_only_and_who_does_not_trust_it_is_refused(
    elsewhere: tuple[Network, Mapping[str, str]],
    landed: Store,  # noqa: F811
    tmp_path: Path,
) -> None:
    net, variables = elsewhere
    variables = {**os.environ, **variables, "COSET_DOCS": str(tmp_path / "docs")}
    stranger = tmp_path / "stranger.pem"
    make_certificate(stranger, tmp_path / "stranger-key.pem", net.there)
    refusals = (
        ({ROOTS: str(stranger)}, "the certificate of the Spark server is not trusted: self signed certificate", ROOTS),
        ({"SPARK_MASTER": address(net.other)}, "certificate of the Spark server is for another host", "that the cert"),
        ({"SPARK_MASTER": address(net.here, S3)}, "the Spark server has no TLS at this port", "a proxy in front of it"),
        ({TOKEN: "another"}, "the Spark server does not accept the token", TOKEN),
    )
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((net.there, int(SERVER)), timeout=10)
    for other, what, then in refusals:
        ended = forked.coset("run", PIPELINE, environment={**variables, **other})
        assert ended.returncode == 3, forked.how(ended)
        assert what in ended.stderr
        assert then in ended.stderr
    ended = forked.coset("run", PIPELINE, environment=variables)
    assert ended.returncode == 0, forked.how(ended)
    assert ", at far" in (told := ended.stdout + ended.stderr)
    assert "submitted instead" not in told
