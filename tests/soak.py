"""`python -m tests.soak MINUTES SEED`: all that is done with a pipeline, at once, while all goes wrong.

Each command is a process of its own, and reaches an S3 server through a proxy that spoils requests. Many commands are
killed, alone or with all that they started, or stopped for a while. Beside them somebody reads the tables. Now and then
faults stop: then all that has arrived has to be published once, nothing open, and nothing left over.
"""

from __future__ import annotations

import atexit
import os
import random
import re
import resource
import signal
import statistics
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Lock, Thread
from typing import cast

from coset.batches.backfills.request import backfills, comparison_of
from coset.batches.sweeping import left_over
from coset.cli.pipelines import load
from demo.s3_server import served
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.hashes import placement_hash
from tests import forked
from tests.faults import FaultProxy
from tests.histories import Click, table_of
from tests.landed import land_table
from tests.logs import log_of

PIPELINE = str(Path(__file__).parent / "pipelines" / "soaked.py")
NAME, PARTITIONS, AT_ONCE, ROUNDS = "soaked", 4, 3, 12
# How often each is chosen, of all.
COMMANDS = {"run": 8, "backfill": 3, "swap": 2, "undo": 2, "clean": 1, "compact": 1, "abandon": 1}
# What backfills may leave out: identities that end so.
LEFT_OUT = 7
FAULTS = (
    "before:503 .* . 2%",
    "before:409 put-new . 10%",
    "after:500 .* . 2%",
    "after:lost .* . 2%",
    "after:cut get . 2%",
    "after:short list . 2%",
    "after:own+1s .* . 2%",
    "before:lost+2s put.* . 5%",
)


class Fate:
    """What becomes of a command: after so many seconds it gets a signal, with all that it started or alone."""

    def __init__(self, chance: random.Random) -> None:
        self.signal = chance.choice([0, 0, signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP])
        self.after, self.lasts, self.alone = chance.uniform(0.05, 4), chance.uniform(0.5, 6), chance.random() < 0.5

    def begin(self, used: Path) -> None:
        """Called in the process of the command."""
        _note(used)
        mine = os.getpid()
        if not self.signal or os.fork():
            return
        send = os.kill if self.alone or self.signal == signal.SIGSTOP else os.killpg
        for seconds, sent in ((self.after, self.signal), (self.lasts, signal.SIGCONT)):
            time.sleep(seconds)
            if os.getppid() == mine:
                send(mine, sent)
        os._exit(0)


class Soak:
    """A pipeline, what has arrived, and what was done and seen."""

    def __init__(self, seed: int, folder: Path, endpoint: str) -> None:
        self.chance, self.folder, self.store = random.Random(seed), folder, store_at("s3://soak/store")
        self.proxy, self.ledger = FaultProxy(endpoint), Ledger(self.store, NAME)
        self.landed: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        self.keys, self.done, self.met, self.refusals = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
        self.looks, self.reached, self.counted = 0, [0] * PARTITIONS, Counter[str]()
        self.memory = defaultdict[str, list[float]](list)
        self.rests = list[dict[str, float]]()
        self._ranges = dict[int, dict[int, tuple[int, int]]]()
        self.one_at_a_time, self.wrong = Lock(), cast(BaseException | None, None)
        os.environ.update(COSET_STORE=self.store.root, COSET_DOCS=str(folder / "docs"))
        self.pipeline = load(PIPELINE)

    # ---- what is done

    def land(self) -> None:
        first = sum(self.keys.values())
        many = self.chance.choice([12, 20, 60])
        clicks = [Click(f"key-{self.chance.randrange(40)}", first + number, 0) for number in range(many)]
        for click in clicks:
            self.landed[placement_hash(str(click.key), "string") % PARTITIONS].append(click.identity)
            self.keys[str(click.key)] += 1
        land_table(table_of(clicks), "clicks", f"{self.store.root}/topics", key="k", partitions=PARTITIONS)

    def chosen(self) -> tuple[list[str], dict[str, str]]:
        """The next command, and what its environment has beside."""
        chance, batches, known = self.chance, self.published(), list(backfills(self.store, NAME))
        what, beside, more = chance.choices(list(COMMANDS), list(COMMANDS.values()))[0], dict[str, str](), "--yes"
        match what:
            case "run":
                more = f"--runner local --groups {chance.randint(1, 3)}"
            case "backfill" if batches:
                more = f"--from {chance.choice(batches[-4:])} --scheme tasks({chance.randint(1, 4)}) --runner local"
                more += " --wait-for-live 0 --go-on clicked"
                beside = {"SOAKED_WITHOUT": str(LEFT_OUT)} if chance.random() < 0.4 else {}
            case "swap" | "undo" if known:
                again = chance.choice(known[-6:])
                found = comparison_of(self.store, again)
                approved = f" --approve {digest(found) if found else 'none'}"
                more = f"{again.number}{approved if what == 'swap' else ''}"
            case "compact":
                more += " --keep-days 1"
            case "abandon":
                more += " --why soaked"
            case "backfill" | "swap" | "undo":
                return [], {}
            case _:
                pass
        return [what, PIPELINE, *more.split()], beside

    def published(self) -> list[int]:
        return sorted(
            int(entry.key.rpartition("/")[2].partition(".")[0]) for entry in self.store.list(f"{NAME}/commits/")
        )

    def command(self, asked: list[str], beside: dict[str, str], fate: Fate | None = None) -> str:
        """Run a command, which may end in any way that users are told of. Its standard output."""
        used = self.folder / f"used-{random.getrandbits(64)}"
        environment = os.environ | beside | {"AWS_ENDPOINT_URL": self.proxy.url}
        first = partial(fate.begin if fate else _note, used)
        ended = forked.coset(*asked, environment=environment, first=first)
        code, what = ended.returncode, asked[0]
        if used.exists():
            self.memory[what].append(int(used.read_text()) / 1024)
            used.unlink()
        killed = fate is not None and fate.signal == signal.SIGKILL == -code
        assert killed or code in ((0, 3, 4, 5, 6, 7) if fate else (0,)), forked.how(ended)
        assert not re.search("Traceback|backup", ended.stderr), forked.how(ended)
        self.done[f"{what} {'killed' if killed else 'done' if code == 0 else f'ended with {code}'}"] += 1
        if code > 0:
            self.refusals[f"{what}: {re.sub(r'[0-9]+|[0-9a-f]{8,}', 'N', ' '.join(ended.stderr.split()[:14]))}"] += 1
        if fate and fate.signal == signal.SIGSTOP:
            self.done["stopped"] += 1
        return ended.stdout

    def round(self) -> None:
        """Some commands at once, of which most meet something."""
        self.land()
        several = [(*self.chosen(), Fate(self.chance)) for _ in range(self.chance.randint(1, AT_ONCE))]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for _ in pool.map(lambda each: each[0] and self.command(*each), several):
                pass

    # ---- what is seen

    def look(self) -> None:
        """What readers see is whole batches, each once, and never less than before."""
        with self.one_at_a_time:
            self.looks += 1
            if any(True for _ in self.store.list("tables/clicked/_delta_log/", 1)):
                self.look_at_clicks()
            if any(True for _ in self.store.list("tables/totals/_delta_log/", 1)):
                self.look_at_totals()

    def look_at_clicks(self) -> None:
        rows = log_of(self.store, "clicked").to_pyarrow_table(columns=["id", "_batch"])
        seen = defaultdict[int, list[int]](list)
        for identity, batch in zip(rows["id"].to_pylist(), rows["_batch"].to_pylist(), strict=True):
            seen[batch].append(identity)
        reached = [0] * PARTITIONS
        for batch, found in sorted(seen.items()):
            expected = list[int]()
            for part, (start, end) in self.ranges(batch).items():
                assert start == reached[part], f"batch {batch} begins at {start} of {part}, not at {reached[part]}"
                expected += self.landed[part][start:end]
                reached[part] = end
            fewer = [identity for identity in expected if identity % 10 != LEFT_OUT]
            assert sorted(found) in (sorted(expected), sorted(fewer)), f"batch {batch} has {sorted(found)}"
        assert all(now >= before for now, before in zip(reached, self.reached, strict=True)), "rows are gone"
        self.reached = reached

    def look_at_totals(self) -> None:
        totals = log_of(self.store, "totals").to_pyarrow_table(columns=["k", "n"])
        now = Counter(dict(zip(totals["k"].to_pylist(), totals["n"].to_pylist(), strict=True)))
        assert len(now) == totals.num_rows, "a key has two totals"
        assert self.counted <= now <= self.keys, "totals are wrong"
        self.counted = now

    def ranges(self, batch: int) -> dict[int, tuple[int, int]]:
        if batch not in self._ranges:
            plan = self.ledger.plan(batch)
            assert plan is not None
            self._ranges[batch] = {part.partition: (part.start, part.end) for part in plan.stream("clicks").partitions}
        return self._ranges[batch]

    def looking(self, ended: Event) -> None:
        """Look until it has ended."""
        while not ended.wait(1):
            try:
                self.look()
            except OSError as error:
                # What a version had that is older than --keep-days may go while it is read.
                self.done[f"reader: {type(error).__name__}"] += 1
            except BaseException as error:
                self.wrong = error
                return

    def rest(self) -> None:
        """Faults stop: whoever comes next brings all to its end, and nothing is left over."""
        self.met += Counter({fault.partition(" of seed ")[0]: times for fault, times in self.proxy.heal().items()})
        # Until what is late or stopped goes on.
        time.sleep(8)
        runs = 0
        while "Nothing to do" not in self.command(["run", PIPELINE, "--runner", "local"], {}):
            assert (runs := runs + 1) < 20, "there is always something to do"
        self.command(["clean", PIPELINE, "--yes", "--all"], {})
        self.command(["compact", PIPELINE, "--yes", "--keep-days", "1"], {})
        self.look()
        assert self.reached == [len(each) for each in self.landed.values()], "not all is published"
        assert self.counted == self.keys, "the totals are not those of all"
        assert not self.ledger.standing().open, "a batch is open"
        over = left_over(self.pipeline, self.store, everything=True)
        assert not over.files, f"left over: {over.files[:3]}"
        self.measure()

    def measure(self) -> None:
        """Neither memory nor files grow but with the batches and what was done to their tables."""
        batches, objects = len(self.published()), Counter(entry.key.split("/")[0] for entry in self.store.list(""))
        versions = sum(log_of(self.store, table).version() + 1 for table in ("clicked", "totals"))
        now = {
            "documents a batch": objects[NAME] / batches,
            "objects a version of a table": objects["tables"] / versions,
            "temporary files": sum(1 for _ in (self.folder / "temp").iterdir()),
            "MB of a run": statistics.median(self.memory["run"][-30:]),
        }
        print(f"{time.strftime('%H:%M:%S')} {batches} batches,", *(f"{what} {n:.1f}," for what, n in now.items()))
        self.rests.append(now)
        grown = {what: n for what, n in now.items() if n > 1.5 * self.rests[0][what] + 2}
        assert not grown, f"{grown} has grown from {self.rests[0]}"

    def go(self, minutes: float) -> None:
        until, ended = time.monotonic() + 60 * minutes, Event()
        reader = Thread(target=self.looking, args=(ended,))
        reader.start()
        try:
            while time.monotonic() < until:
                self.proxy.spoil(*(f"{fault} of seed {self.chance.randrange(10**6)}" for fault in FAULTS))
                for _ in range(ROUNDS):
                    self.round()
                    if self.wrong:
                        raise self.wrong
                self.rest()
        finally:
            ended.set()
            reader.join()
            self.proxy.stop()
        if self.wrong:
            raise self.wrong


def _note(used: Path) -> None:
    atexit.register(lambda: used.write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)))


def soak(minutes: float, seed: int) -> Soak:
    """Raises AssertionError if anything is lost, doubled, left open or over, or grows."""
    with TemporaryDirectory(prefix="coset-soak-") as name, served(Path(name) / "s3", ("soak",)) as server:
        folder = Path(name)
        (folder / "temp").mkdir()
        os.environ["TMPDIR"] = str(folder / "temp")
        forked.preload()
        found = Soak(seed, folder, server.environment["AWS_ENDPOINT_URL"])
        try:
            found.go(minutes)
        finally:
            for counter in (found.done, found.met, found.refusals):
                print(*(f"{times:6,} {what}" for what, times in sorted(counter.items())), sep="\n")
            print(f"{sum(found.keys.values()):,} records, {found.looks:,} looks at the tables, seed {seed}", flush=True)
        return found


if __name__ == "__main__":
    soak(float(sys.argv[1]), int(sys.argv[2]))
