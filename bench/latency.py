"""`python -m bench.latency`: where each second of a small batch goes, from the command to published.

It starts an S3 server and runs batches of some thousand records: one by the `coset` command in a process of its own,
with all that it imports and starts, and others in this process, which has run one before. It shows each step of both,
what is imported for how long, and what S3 is asked for. With `--page` the figures of the steps go into that page.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from bench import running_totals
from bench.ageing import land
from bench.asked import STORE, SUBJECTS, Asked, Request, by_subject, counted
from bench.figures import put, table
from coset.batches import steps
from coset.batches.interpreter import run_batch
from coset.batches.runners.local import Local

_RECORDS = 4_000
_RESIDENT = 5
_STEP = re.compile(r"^ok +(\S.*?) +([\d.]+) s ", re.MULTILINE)
_IMPORT = re.compile(r"^import time: +(\d+) \| +\d+ \| +(\w+)", re.MULTILINE)
# What is imported, by the process that does it, in the order in which that does it.
_COMMAND = ("coset.cli.main", "coset.cli.batches", "coset.batches.planning", "coset.batches.publication")
_JUDGING, _TASKS = ("expectations.checkpoint",), ("spark_jobs.engine.preloaded",)
_PACKAGES = 12
_KINDS = (("wall", 2), ("cpu", 2), ("requests", 0))
# Of <linux/prctl.h>: whoever is left by a process that ended is this one's child.
_PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.latency", description=__doc__)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    with counted() as s3, TemporaryDirectory() as folder:
        cold, imports = list(_cold(s3, Path(folder))), list(_imports())
        resident, subjects = _resident(s3, Path(folder))
    load = f"{os.getloadavg()[0]:.0f}"
    said = f"{_RECORDS:,} records in {running_totals.PARTITIONS} files, two tables, and totals that go on; "
    lines = [f"{said}{os.cpu_count()} cores with a load of {load} while it ran.", *cold, *resident]
    print("\n".join((*lines, *imports, *subjects)))
    if asked.page:
        put(asked.page, "make bench-latency", lines)
    return 0


def _cold(s3: Asked, folder: Path) -> Iterator[str]:
    """The second batch of the command, as the first makes what stays: tables, and compiled code."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    command = [sys.executable, "-m", "coset.cli.main", "run", running_totals.__file__, "--runner", "local"]
    for number in range(2):
        land(number, _RECORDS)
        s3.since()
        began, here = time.monotonic(), set(psutil.Process().children())
        with (folder / "said").open("w+") as said:
            options = ["--store", STORE, "--docs", str(folder / "docs")]
            process = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=said)
            own = os.wait4(process.pid, 0)[2]
            wall = time.monotonic() - began
            # What it started for tasks ends after it.
            left = [os.wait4(child.pid, 0)[2] for child in psutil.Process().children() if child not in here]
            said.seek(0)
            stepped = [(name, float(seconds)) for name, seconds in _STEP.findall(said.read())]
        process.returncode = 0
    cpu, of_tasks = own.ru_utime + own.ru_stime, sum(each.ru_utime + each.ru_stime for each in left)
    rest = wall - sum(seconds for _, seconds in stepped)
    yield from _table(
        f"Cold: `coset run` takes {wall:.1f} s and {cpu + of_tasks:.1f} CPU s, of which {of_tasks:.1f} in the "
        f"processes of tasks, and asks S3 {s3.since().total():,} times",
        ("", "wall s"),
        [
            *((name, f"{seconds:.1f}") for name, seconds in stepped),
            ("the interpreter, the command's imports, the report, and the end", f"{rest:.1f}"),
        ],
    )


def _imports() -> Iterator[str]:
    of = {
        "the command": _imported(_COMMAND, ()),
        "the check": _imported(_JUDGING, _COMMAND),
        "the processes of tasks, once": _imported(_TASKS, ()),
    }
    most = sum(of.values(), Counter[str]()).most_common(_PACKAGES)
    rows = [("all", *(f"{each.total():.1f}" for each in of.values()))]
    rows += [(package, *(f"{each[package]:.1f}" for each in of.values())) for package, _ in most]
    yield from _table("What imports take, in CPU s, and the packages that take most of it", ("", *of), rows)


def _imported(modules: Iterable[str], before: Iterable[str]) -> Counter[str]:
    """CPU seconds of importing modules after those `before`, by package."""
    program = (
        "import sys, time; from importlib import import_module as bring\n"
        f"for name in {tuple(before)!r}: bring(name)\n"
        "print('begin', file=sys.stderr, flush=True); began = time.process_time()\n"
        f"for name in {tuple(modules)!r}: bring(name)\n"
        "print(time.process_time() - began)"
    )
    command = [sys.executable, "-X", "importtime", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    own = Counter[str]()
    for microseconds, package in _IMPORT.findall(done.stderr.partition("\nbegin\n")[2]):
        own[package] += int(microseconds)
    cpu, wall = float(done.stdout), own.total()
    return Counter({package: cpu * each / wall for package, each in own.items()})


def _resident(s3: Asked, folder: Path) -> tuple[list[str], list[str]]:
    """What steps take, and what they ask S3 for."""
    spent, requests = defaultdict[tuple[str, str], float](float), Counter[Request]()

    @contextmanager
    def step(name: str) -> Iterator[list[str]]:
        began, of_cpu, before = time.monotonic(), time.process_time(), dict(spent)
        yield []
        asked = s3.since()
        requests.update(asked)
        for kind, much in (("wall", time.monotonic() - began), ("cpu", time.process_time() - of_cpu)):
            # Without what steps within it took.
            within = sum(n - before.get((one, of), 0) for (one, of), n in spent.items() if of == kind)
            spent[name, kind] += much - within
        spent[name, "requests"] += asked.total()

    # The first of this process imports, as a command does, and is not counted.
    for number in range(2, 3 + _RESIDENT):
        if number == 3:
            spent.clear()
            requests.clear()
        land(number, _RECORDS)
        s3.since()
        with step("the report, and between the steps"):
            with step("plan"):
                ref, said = steps.take_up(running_totals.pipeline, STORE)
            assert ref is not None, said
            with Local(processes=1) as runner:
                run_batch(ref, runner, folder / "docs", step, show_page=lambda _: None)
    total = {of: sum(n for (_, kind), n in spent.items() if kind == of) / _RESIDENT for of in ("wall", "cpu")}
    steps_taken = _table(
        f"Resident, mean of {_RESIDENT}: {total['wall']:.2f} s, {total['cpu']:.2f} CPU s, "
        f"{requests.total() / _RESIDENT:.0f} requests",
        ("", "wall s", "CPU s", "requests"),
        [
            (name, *(f"{spent[name, kind] / _RESIDENT:.{digits}f}" for kind, digits in _KINDS))
            for name in dict.fromkeys(name for name, _ in spent)
        ],
    )
    each = Counter({request: round(count / _RESIDENT) for request, count in requests.items()})
    return list(steps_taken), list(_table("What these ask S3 for", SUBJECTS, by_subject(each)))


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table of Markdown."""
    yield from ("", f"{title}:", "", *table(columns, *rows))


if __name__ == "__main__":
    raise SystemExit(main())
