"""Networks: a host whose network is its own, which others reach by its address only."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from coset.batches.runners import children
from tests.small import until


@dataclass(frozen=True)
class Network:
    """The network of a host. `here` is this machine's address in it, `there` and `other` are those of the host."""

    here: str
    there: str
    other: str
    inside: Sequence[str]
    log: Path
    ends: ExitStack

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a program that runs until the end of the network, and writes to its log."""
        with self.log.open("ab") as to:
            process = children.start(command, environment, to)
        self.ends.callback(children.stop, process, within_seconds=5)
        return process

    def forward(self, within: Sequence[str], *words: str) -> None:
        """Pass connections on, as `tests.forwarding` says, from here or, with `inside`, from the host."""
        self.start([*within, sys.executable, "-m", "tests.forwarding", *words], os.environ)


@contextmanager
def network(folder: Path) -> Iterator[Network]:
    """A network of its own, which ends with all that was started in it. Skips the test where two may not be joined."""
    if os.geteuid():
        pytest.skip("only root may join two networks")
    with ExitStack() as ends, (folder / "network.log").open("wb") as log:
        first = children.start(["unshare", "--net", "sleep", "infinity"], os.environ, log)
        ends.callback(children.stop, first, within_seconds=5)
        ours, theirs = Path("/proc/self/ns/net"), Path(f"/proc/{first.pid}/ns/net")
        assert until(lambda: os.readlink(theirs) != os.readlink(ours)), (folder / "network.log").read_text()
        # Networks of other tests are beside it.
        link, net = f"coset{first.pid}", f"10.203.{first.pid % 256}"
        inside = ["nsenter", f"--net={theirs}"]
        joined = f"ip link add {link} type veth peer name eth0 netns {first.pid}"
        if subprocess.run(joined.split(), check=False, timeout=10).returncode:
            pytest.skip("this machine lets nobody join two networks")
        for command in (
            f"ip address add {net}.1/24 dev {link}",
            f"ip link set {link} up",
            *(f"{' '.join(inside)} ip {words}" for words in _of_host(net)),
        ):
            subprocess.run(command.split(), check=True, timeout=10)
        yield Network(f"{net}.1", f"{net}.2", f"{net}.3", inside, folder / "network.log", ends)


def _of_host(net: str) -> tuple[str, ...]:
    addresses = (f"address add {net}.{last}/24 dev eth0" for last in (2, 3))
    return ("link set lo up", *addresses, "link set eth0 up")
