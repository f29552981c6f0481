"""The `coset` command: from plans to published batches, and what is around them; `--help` lists it."""

from __future__ import annotations

import atexit
import faulthandler
import gc
import signal
import sys
from pathlib import Path

from coset.cli import machine

with machine.put_off():
    from coset.cli import machine
    from coset.cli.app import app

    # In the order in which they are listed.
    from coset.cli.commands import batches, backfills, upkeep, trial  # isort: skip

    if Path(__file__).parents[2].joinpath("demo", "demo.py").is_file():
        from coset.cli.commands import checkout

__all__ = ["app", "backfills", "batches", "checkout", "main", "trial", "upkeep"]


def main() -> None:
    """The entry point of the `coset` command."""
    machine.collect_seldom()
    # At its end Python would look through all of them twice more.
    atexit.register(gc.freeze)
    machine.take_over()
    # A crash in C code says in which line of Python it was.
    faulthandler.enable(2)
    machine.hold_while_importing()
    machine.raise_open_files()
    # So that a terminated command, too, ends what it started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with machine.told_by_the_exit_code():
        app()


if __name__ == "__main__":
    main()
