"""Whether the service of docker-compose.yml in whose container this runs is well: its health check.

python -m demo.healthy
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from urllib.request import ProxyHandler, build_opener

_WITHIN_SECONDS = 5
_PARTS_OF_AIRFLOW = ("metadatabase", "scheduler", "dag_processor")


class NotWell(Exception):
    """Raised with what a service says that is not well."""


def s3(_: str) -> str:
    """What is said of an S3 server that answers."""
    return "answers"


def master(page: str) -> str:
    """What is said of a Spark master, by its page. Raises NotWell if it accepts no applications."""
    told = json.loads(page)
    if told["status"] != "ALIVE":
        raise NotWell(told["status"])
    return f"{told['aliveworkers']} workers, {len(told['activeapps'])} applications"


def worker(page: str) -> str:
    """What is said of a Spark worker, by its page. Raises NotWell if it has found no master."""
    told = json.loads(page)
    if not told["masterurl"]:
        raise NotWell("no master has accepted it")
    return f"{told['coresused']} of {told['cores']} cores are used"


def airflow(page: str) -> str:
    """What is said of Airflow, by its page. Raises NotWell if a part does not work."""
    told = json.loads(page)
    parts = [f"{part} {told[part]['status']}" for part in _PARTS_OF_AIRFLOW]
    if not all(part.endswith(" healthy") for part in parts):
        raise NotWell(", ".join(parts))
    return ", ".join(parts)


def asked(url: str, judge: Callable[[str], str]) -> str:
    """What is said of a service that answers at this address. Raises OSError if it does not, and NotWell."""
    # The address is of this container, whatever proxy its engine has told it.
    with build_opener(ProxyHandler({})).open(url, timeout=_WITHIN_SECONDS) as answer:
        return judge(answer.read().decode())


def postgres() -> str:
    """What PostgreSQL says. Raises NotWell if it accepts no connections."""
    where = ("--host", "/postgres-socket", "--username", "airflow", "--dbname", "postgres")
    command = ("pg_isready", *where, "--timeout", str(_WITHIN_SECONDS))
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    if told.returncode:
        raise NotWell(told.stdout.strip())
    return told.stdout.strip()


# By the names of services, which are those of their hosts.
CHECKS: Mapping[str, Callable[[], str]] = {
    "seaweedfs": partial(asked, "http://127.0.0.1:8333/healthz", s3),
    "spark-master": partial(asked, "http://127.0.0.1:8080/json/", master),
    "spark-worker-1": partial(asked, "http://127.0.0.1:8081/json/", worker),
    "spark-worker-2": partial(asked, "http://127.0.0.1:8081/json/", worker),
    "postgres": postgres,
    "airflow": partial(asked, "http://127.0.0.1:8080/api/v2/monitor/health", airflow),
}


def main(service: str) -> int:
    """Say in a line how a service is."""
    try:
        print(f"{service}: {CHECKS[service]()}")
    except (OSError, NotWell) as error:
        print(f"{service} is not well: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(socket.gethostname()))
