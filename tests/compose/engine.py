"""The container engine: docker-compose.yml, brought up beside whatever else runs, and always taken down again."""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_PROJECT = "coset-test"
_ROOT = Path(__file__).parents[2]
_LINES_OF_A_LOG = 40
_BUILT_WITHIN_SECONDS = 3600
_DONE_WITHIN_SECONDS = 300


class Failed(Exception):
    """Raised when something is not as it has to be; says what."""


class Compose:
    """The commands of Docker Compose, or of what stands in for it, on a project with credentials of its own."""

    def __init__(self) -> None:
        self._command = [*shlex.split(os.environ.get("COMPOSE") or "docker compose"), "--project-name", _PROJECT]
        self.secret = secrets.token_hex(16)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._environment = os.environ | {
            "COSET_ACCESS_KEY": secrets.token_hex(8),
            "COSET_SECRET_KEY": self.secret,
            "AIRFLOW_PORT": str(self.port),
        }

    def build(self) -> None:
        """Build the image, with the arguments that COMPOSE_BUILD_ARGS has for it."""
        self("build", *shlex.split(os.environ.get("COMPOSE_BUILD_ARGS", "")), within_seconds=_BUILT_WITHIN_SECONDS)

    def __call__(self, *arguments: str, within_seconds: float = _DONE_WITHIN_SECONDS) -> str:
        """Run a command; all that it says. Raises Failed, with that, if it fails."""
        done = self.tried(*arguments, within_seconds=within_seconds)
        if done.returncode:
            raise Failed(f"{shlex.join(arguments)} ended with exit code {done.returncode}:\n{done.stdout}")
        return done.stdout

    def tried(
        self, *arguments: str, given: str = "", within_seconds: float = _DONE_WITHIN_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, which may fail. Raises Failed if it cannot be run, or does not end."""
        try:
            return subprocess.run(
                [*self._command, *arguments],
                env=self._environment,
                cwd=_ROOT,
                input=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=within_seconds,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Failed(f"{shlex.join(arguments)}: {error}") from error

    def inside(self, service: str, *command: str) -> str:
        """Run a command in the container of a service. Raises Failed if it fails."""
        return self("exec", "-T", service, *command)

    def tried_inside(
        self, service: str, *command: str, given: str = "", variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the container of a service, with other variables; it may fail."""
        changed = [part for name, value in (variables or {}).items() for part in ("-e", f"{name}={value}")]
        return self.tried("exec", "-T", *changed, service, *command, given=given)

    def logs(self) -> str:
        return self("logs")

    @contextmanager
    def project(self) -> Iterator[None]:
        """A project without anything from an earlier one, and nothing left of it. What fails shows the logs."""
        self("down", "--volumes")
        try:
            yield
        except Exception:
            for service in ("seaweedfs", "spark-master", "spark-worker-1", "spark-worker-2", "postgres", "airflow"):
                lines = self.tried("logs", service).stdout.splitlines()[-_LINES_OF_A_LOG:]
                print(f"--- log of {service}", *lines, sep="\n")
            raise
        finally:
            self("down", "--volumes")
