"""PostgreSQL, as most have it under Airflow, or as a source: Debian's, with a folder and a socket of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGQUIT

from coset.batches.runners import children
from tests.small import until

_DEBIANS = Path("/usr/lib/postgresql")
# It does not run as root.
_INSTEAD_OF_ROOT = "nobody"


@contextmanager
def postgres(*settings: str, port: int = 5432) -> Iterator[str]:
    """A server that ends with this process, with these settings; gives the address of its database for SQLAlchemy. It
    forgets all in the end."""
    programs = max(_DEBIANS.glob("*/bin"), key=lambda folder: float(folder.parent.name), default=None)
    assert programs, "Tests of Airflow as people run it, and of Debezium, need PostgreSQL: apt-get install postgresql"
    # Folders of tests are closed to other users.
    folder = Path(tempfile.mkdtemp(prefix="coset-postgres-"))
    as_user, data = [], str(folder / "data")
    if os.geteuid() == 0:
        user = pwd.getpwnam(_INSTEAD_OF_ROOT)
        as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--pdeathsig=QUIT"]
        shutil.chown(folder, user.pw_uid, user.pw_gid)
    init = [*as_user, str(programs / "initdb"), "-D", data, "--username=airflow", "--auth=trust", "--no-sync"]
    own = ("listen_addresses=", f"unix_socket_directories={folder}", f"port={port}", "fsync=off")
    options = [f"-c{setting}" for setting in (*own, *settings)]
    try:
        subprocess.run(init, cwd=folder, check=True, capture_output=True)
        with (folder / "log").open("wb") as log:
            server = children.start(
                [*as_user, str(programs / "postgres"), "-D", data, *options], os.environ, log, SIGQUIT
            )
        try:
            ready = [str(programs / "pg_isready"), "-h", str(folder), "-p", str(port)]
            assert until(lambda: subprocess.run(ready, capture_output=True, check=False).returncode == 0), (
                folder / "log"
            ).read_text()
            yield f"postgresql+psycopg2://airflow@/postgres?host={folder}"
        finally:
            children.stop(server, within_seconds=10, asked=SIGQUIT)
    finally:
        shutil.rmtree(folder)
