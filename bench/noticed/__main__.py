"""`python -m bench.noticed`: the same join of two topics by several systems, with one fault after the other.

Each answer is held against the true join. What was found is printed, and written into docs/internals/who-noticed.md
if all systems ran.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.noticed.outcome import Outcome
from bench.noticed.page import PAGE, found_as_markdown, written
from bench.noticed.systems import SYSTEMS
from bench.noticed.topics import Fault, Topics


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.noticed", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="these systems only")
    asked = parser.parse_args()
    with TemporaryDirectory(prefix="coset-noticed-") as folder:
        found = {system: outcomes(system, Path(folder) / system) for system in asked.only}
    print(found_as_markdown(found))
    if set(found) == set(SYSTEMS):
        PAGE.write_text(written(PAGE.read_text(), found))
    return 0


def outcomes(system: str, folder: Path) -> Mapping[Fault, Outcome]:
    """What a system makes of topics with each fault."""
    _, module, function = SYSTEMS[system]
    with getattr(import_module(module), function)() as run:
        return {fault: run(Topics.of(fault), folder / fault.name.lower()) for fault in Fault}


if __name__ == "__main__":
    sys.exit(main())
