"""`python -m tests.engines 1.5.6 2.0.1` asks versions of DuckDB, the oldest first, the same calls, and writes where the
answers of neighbours differ into `spark_jobs/sql/engine_changes.json`, which Coset ships.

Each version is installed into an environment of its own, by uv. What a version answers otherwise when it is asked again
is left out, and so is what does not return in time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from select import select
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import psutil
from packaging.version import Version

from partitioning.model.task_engine import Differs
from spark_jobs.sql.engines import RARE
from tests.engines.calls import Calls, calls

FILE = Path(__file__).parents[2] / "spark_jobs" / "sql" / "engine_changes.json"
_ANSWERING = Path(__file__).with_name("answering.py")
# Seconds of computing after which a call counts as one that does not return.
_PATIENCE = 5
_LONGEST = 90


class Found(NamedTuple):
    """A call that two versions answer differently."""

    types: str
    shown: str
    was: str
    now: str


class Engine:
    """A version of DuckDB in a process of its own, which is begun anew if a call ends it or does not return."""

    def __init__(self, version: str, folder: Path) -> None:
        uv, there = Path(sys.executable).with_name("uv"), folder / version
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, there], check=True)
        needs = (f"duckdb=={version}", "pytz")
        subprocess.run([uv, "pip", "install", "--quiet", "--python", there / "bin/python", *needs], check=True)
        self._command = [there / "bin/python", _ANSWERING]
        self.version, self.functions = self._begin()
        self.answers: list[list[str]] = []

    def _begin(self) -> Any:
        # Without a buffer, as `select` knows nothing of what is in one.
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def ask(self, asked: Calls) -> list[str]:
        """What it answers: values with their types, errors, crashes, and that it does not return."""
        found, together, ended = list[str](), asked.together, ""
        while (before := len(found)) < len(asked.ways):
            again, ended = ended, self._asked_once(found, together, asked.ways[before:])
            if ended:
                self.close()
                self._begin()
                # Of those that were asked together none is to blame, nor one that was asked for the first time.
                if not together and (again or ended == "hang") and len(found) == before:
                    found.append(ended)
                    ended = ""
            together = ""
        return found

    def _asked_once(self, found: list[str], together: str, ways: Sequence[Sequence[str]]) -> str:
        """Add answers to those that were `found`; how it ended before, if it did."""
        count = len(found) + len(ways)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps([together, ways]).encode() + b"\n")
        except BrokenPipeError:
            return "crash"
        return self._read(found, count)

    def _read(self, found: list[str], count: int) -> str:
        """Add answers to those that were `found`, up to so many; how it ended before, if it did."""
        stream = self._process.stdout
        assert stream is not None
        while len(found) < count:
            began = self._computed()
            while not (there := select([stream], [], [], 1)[0]) and self._computed() - began < _PATIENCE:
                pass
            line = stream.readline() if there else b""
            if not line:
                return "crash" if there else "hang"
            said = json.loads(line)
            found.extend(said if isinstance(said, list) else [] if said is None else [said])
        return ""

    def _computed(self) -> float:
        return float(psutil.Process(self._process.pid).cpu_times().user)

    def close(self) -> None:
        """End its process."""
        self._process.kill()
        self._process.wait()


def differing(was: Engine, now: Engine, asked: Sequence[Calls]) -> Iterator[dict[str, Any]]:
    """What differs between two versions, one entry for each function and way in which it does."""
    gone, new = ({name for name, *_ in engine.functions} for engine in (was, now))
    count, found = Counter[str](), dict[tuple[str, Differs], list[Found]]()
    for some, before, after in zip(asked, was.answers, now.answers, strict=True):
        count[some.name] += len(some.shown)
        # Nobody has called what is new.
        if some.name in new - gone or before == after or (was.ask(some), now.ask(some)) != (before, after):
            continue
        for each in map(Found, [some.types] * len(before), some.shown, before, after):
            if each.was != each.now and "hang" not in each:
                found.setdefault((some.name, _how(each)), []).append(each)
    for (name, how), differs in sorted(found.items()):
        entry = {
            "since": now.version,
            "names": _names(name, was, now),
            "how": how,
            "calls": [len(differs), count[name]],
        }
        types = sorted({each.types for each in differs})
        rare = [set(RARE).intersection(each.split(", ")) for each in types]
        entry |= {"types": types[:6], "rare": sorted(set[str]().union(*rare)) if all(rare) else []}
        if how not in (Differs.CRASHES, Differs.CRASHED):
            first = min(differs, key=lambda each: ("NULL" in each.shown, sum(map(len, each))))
            entry |= {"example": first.shown, "was": _cut(first.was), "now": _cut(first.now)}
        yield entry


def _how(found: Found) -> Differs:
    if "crash" in found:
        return Differs.CRASHES if found.now == "crash" else Differs.CRASHED
    if "error" in found:
        return Differs.REFUSED if found.now == "error" else Differs.ACCEPTED
    same = found.was.rpartition("::")[0] == found.now.rpartition("::")[0]
    return Differs.TYPE if same else Differs.VALUE


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _names(name: str, *engines: Engine) -> list[str]:
    """A function and its aliases."""
    aliases = {each for engine in engines for each, *_, alias in engine.functions if alias == name}
    return [name, *sorted(aliases - {name})]


def asked_of(engines: Iterable[Engine]) -> list[Calls]:
    """The calls of each function of one of the engines, once for a signature: the newest knows parameters by name."""
    there = {(some.name, some.types): some for engine in engines for some in calls(engine.functions)}
    return list(there.values())


def main(versions: Sequence[str], folder: Path) -> None:
    """Ask these versions, and write what differs."""
    engines = [Engine(version, folder) for version in versions]
    asked = asked_of(engines)
    with ThreadPoolExecutor(len(engines)) as pool:
        answers = pool.map(lambda engine: [engine.ask(some) for some in asked], engines)
        for engine, answered in zip(engines, answers, strict=True):
            engine.answers = answered
    for engine in engines:
        bad = {some.name for some, said in zip(asked, engine.answers, strict=True) if {"hang", "crash"} & {*said}}
        total, ended = sum(map(len, engine.answers)), ", ".join(sorted(bad)) or "none"
        print(f"DuckDB {engine.version}: {total:,} calls; not answered: some of {ended}", flush=True)
    stored = json.loads(FILE.read_text()) if FILE.exists() else {"versions": [], "changes": []}
    changes = [each for each in stored["changes"] if each["since"] not in versions[1:]]
    for was, now in pairwise(engines):
        found = list(differing(was, now, asked))
        count, names = sum(each["calls"][0] for each in found), len({each["names"][0] for each in found})
        print(f"{was.version} to {now.version}: {count:,} calls of {names} functions differ", flush=True)
        changes.extend(found)
    known = sorted({*stored["versions"], *versions}, key=Version)
    changes.sort(key=lambda each: (Version(each["since"]), each["names"], each["how"]))
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in changes)
    FILE.write_text(f'{{"versions": {json.dumps(known)},\n"changes": [\n{lines}\n]}}\n')
    for engine in engines:
        engine.close()


if __name__ == "__main__":
    with TemporaryDirectory() as there:
        main(sys.argv[1:], Path(there))
