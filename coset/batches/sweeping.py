"""Sweeping: finds and removes files of tasks that no document names or will name.

A file counts once a verdict names it. All other files of a decided batch are left over, from runs that were interrupted
or came second, and from failed attempts. Files of open batches stay, and so do files that a damaged document may name.
Keys of rows that a batch replaces count until it is published.
State counts while one of the last published batches wrote or read it, or a backfill that can be put in place. No file
of a cancelled backfill counts.

How far folders were swept is a hint, so that only new batches are listed again. `coset clean --all` finds a file that
comes later into a batch that was swept.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import ClassVar

from msgspec import field

from coset.batches.backfills.request import backfills, comparison_key
from coset.batches.backfills.swaps import cancelled, in_force, swaps
from coset.batches.tables.logs import opened
from coset.batches.tables.owners import earlier_owners
from coset.sources.counting import Counting, each_counted, uncounted
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.document import decode, encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Entry, RememberingStore, Store, at_once
from partitioning.errors import Finding, Refused
from partitioning.model.backfill import name_of, pipeline_of
from partitioning.model.graph import state_of
from partitioning.model.plan import Plan
from partitioning.model.receipt import Artefact, Role
from partitioning.model.root_names import TABLES
from partitioning.model.stage_inputs import StateInput
from partitioning.sections import many, size
from partitioning.values import Document, Value
from spark_jobs.tables.table_schema import folder

# Of the newest batches others may still write: one that was paused, or comes second.
_AGAIN = 10


class Swept(Document, frozen=True):
    """What needs no other look: batches of the pipeline with numbers less than `before` and its first `backfills`, but
    for the batches to look at `again`, by the name of the pipeline or the backfill."""

    FORMAT: ClassVar[str] = "coset.swept/1"

    pipeline: str
    before: int = 0
    backfills: int = 0
    again: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def to_look_at(self, store: Store, newest: int) -> dict[str, set[int]]:
        """The batches whose folders have to be listed, by the name of the pipeline or the backfill."""
        first = max(0, min(self.before, newest + 1 - _AGAIN))
        look = {name: set(batches) for name, batches in self.again.items()}
        look.setdefault(self.pipeline, set()).update(range(first, newest + 1))
        for again in backfills(store, self.pipeline):
            if again.number >= self.backfills:
                look.setdefault(again.name, set()).update(again.batches)
        return look


def swept(store: Store, pipeline: str) -> Swept | None:
    """How far it was swept. None if it never was."""
    data = store.get(_key(pipeline))
    return None if data is None else decode(Swept, data, f"{store.root}/{_key(pipeline)}")


def put_swept(store: Store, pipeline: str, newest: int, kept: Iterable[int]) -> None:
    """Note that all was swept up to the newest batch, and that files of these batches were kept that may go later."""
    stay, ended = set(kept), {turn.backfill for turn in swaps(store, pipeline)}
    known = list(backfills(store, pipeline))
    again: Mapping[str, Collection[int]] = {pipeline: stay} | {
        one.name: stay.intersection(one.batches) if one.number in ended else one.batches for one in known
    }
    listed = {name: tuple(sorted(batches)) for name, batches in again.items() if batches}
    store.put(_key(pipeline), encode(Swept(pipeline, newest + 1, len(known), listed)))


def _key(pipeline: str) -> str:
    return f"{pipeline}/swept.json"


# How many published batches keep their state, for backfills and for looking at it.
STATES_KEPT = 10
# In the folder of a pipeline or a backfill: where tasks leave files, by batch.
_FOLDERS = ("left", "audits", "set-aside")
# The folders in which a run wrote rows, output for later tasks, sampled keys, or records set aside. Audit tables stay.
_BATCH = re.compile(
    r"/data/plan-([0-9]+)/attempt-|/left/([0-9]+)/attempt-|/audits/([0-9]+)/attempt-[0-9]+/keys-"
    r"|/set-aside/([0-9]+)/attempt-"
)


class LeftOver(Value, frozen=True):
    """The files that may be removed, the open batches, and the damaged documents. Files of these batches stay."""

    files: tuple[Entry, ...]
    open: tuple[int, ...]
    damaged: tuple[Finding, ...] = ()

    def __str__(self) -> str:
        files = f"{many(len(self.files), 'file')} ({size(sum(file.size for file in self.files))})"
        said = f"{files} that no verdict names"
        if self.open:
            listed, verb = ", ".join(f"batch {batch}" for batch in self.open), "is" if len(self.open) == 1 else "are"
            said = f"{said}; {listed} {verb} open and left alone"
        if self.damaged:
            verb = "document is" if len(self.damaged) == 1 else "documents are"
            said = f"{said}; {len(self.damaged)} {verb} damaged, and what may be named there is left alone"
        return said


def left_over(
    pipeline: Pipeline, store: Store, *, everything: bool = False, counting: Counting = uncounted
) -> LeftOver:
    """The files of tasks in the pipeline's folders that no document names. Deletes nothing.

    It looks at the batches since the last sweep, and at those of which that kept something, or at `everything`. What
    it goes through is `counting`.
    """
    store = RememberingStore(store)
    return _looked(pipeline, store, _newest(pipeline, store), counting, everything=everything)[0]


def sweep(pipeline: Pipeline, store: Store, *, everything: bool = False, counting: Counting = uncounted) -> LeftOver:
    """Remove what is left over, and return it. Batches may run meanwhile."""
    store = RememberingStore(store)
    newest = _newest(pipeline, store)
    removed, kept = _looked(pipeline, store, newest, counting, everything=everything)
    with counting(len(removed.files), "files removed") as done:
        at_once(each_counted(store.delete, done), [file.key for file in removed.files])
    put_swept(store, pipeline.name, newest, kept)
    return removed


def _looked(
    pipeline: Pipeline, store: Store, newest: int, counting: Counting, *, everything: bool
) -> tuple[LeftOver, set[int]]:
    """What is left over, and the batches with files that are kept, and may be left over later."""
    last = None if everything else swept(store, pipeline.name)
    of_all = _all_prefixes(pipeline, store) if last is None else _prefixes(pipeline, last.to_look_at(store, newest))
    prefixes = list(of_all)
    # Files are listed before documents are read, because a plan is stored before its files.
    with counting(len(prefixes), "folders listed") as done:
        written = chain.from_iterable(at_once(each_counted(lambda prefix: list(store.list(prefix)), done), prefixes))
    by_place: dict[tuple[str, int], list[Entry]] = {}
    for entry in written:
        if match := _BATCH.search(entry.key):
            batch = int(next(filter(None, match.groups())))
            by_place.setdefault((entry.key[: match.start()], batch), []).append(entry)
    ledgers = list(_ledgers(pipeline, store))
    states = _states(store, pipeline.name) | _states_of_backfills(store, pipeline.name)
    files, undecided, damaged = list[Entry](), set[int](), dict[Finding, None]()
    kept = {batch for batch, _ in states}
    with counting(len(by_place), "batches looked at") as done:
        for (place, batch), entries in sorted(by_place.items()):
            try:
                named = _named(ledgers, place, batch)
            except Refused as refusal:
                damaged |= dict.fromkeys(refusal.findings)
                kept.add(batch)
            else:
                if named is None:
                    undecided.add(batch)
                else:
                    # State is left over once it is not kept any more.
                    state = ((key, file.name) for key, file in named.items() if file.role is Role.STATE)
                    over = {key for key, name in state if (batch, name) not in states}
                    files += (each for each in entries if each.key not in named or each.key in over)
            done(1)
    return LeftOver(tuple(files), tuple(sorted(undecided)), tuple(damaged)), kept | undecided


def _newest(pipeline: Pipeline, store: Store) -> int:
    plan = Ledger(store, pipeline.name).standing().plan
    return -1 if plan is None else plan.batch


def _all_prefixes(pipeline: Pipeline, store: Store) -> Iterator[str]:
    for write in pipeline.writes:
        yield f"{TABLES}{write.table}/data/"
    for name in (pipeline.name, *(again.name for again in backfills(store, pipeline.name))):
        yield from (f"{name}/{noun}/" for noun in _FOLDERS)


def _prefixes(pipeline: Pipeline, look: Mapping[str, Collection[int]]) -> Iterator[str]:
    """The folders of these batches."""
    for batch in sorted(set(chain.from_iterable(look.values()))):
        yield from (f"{TABLES}{write.table}/data/plan-{batch}/" for write in pipeline.writes)
    for name, batches in look.items():
        yield from (f"{name}/{noun}/{batch}/" for batch in sorted(batches) for noun in _FOLDERS)


def pipelines_in(store: Store) -> list[str]:
    """The pipelines and backfills that have plans in a store, by name. Each takes a request or two, however many
    objects it has."""
    names, after = list[str](), ""
    while page := store.page("", after, 1).objects:
        name, _, _ = page[0].entry.key.partition("/")
        if store.page(f"{name}/plans/", "", 1).objects:
            names.append(name)
        # Behind all that is in the folder. `late-2` follows, in stores that list by folder; in others it came before.
        after = f"{name}/~"
    return names


def _ledgers(pipeline: Pipeline, store: Store) -> Iterator[tuple[Ledger, Collection[int] | None]]:
    """The ledgers whose verdicts may name files, and the batches of those of backfills.

    Those that have written the pipeline's tables are known by name, whatever a listing leaves out.
    """
    wrote = {pipeline.name, *_earlier(pipeline, store)}
    names, asked, over = wrote | {*pipelines_in(store)}, dict[str, Collection[int]](), set[str]()
    for name in wrote | {of for name in names if (of := pipeline_of(name))}:
        # If the decisions or the requests of a pipeline are damaged, all files count.
        with suppress(Refused):
            over |= {name_of(name, number) for number in cancelled(store, name)}
            asked |= {again.name: again.batches for again in backfills(store, name)}
    names |= asked.keys()
    yield from ((Ledger(store, name), asked.get(name)) for name in sorted(names - over))


def _earlier(pipeline: Pipeline, store: Store) -> Iterator[str]:
    """The pipelines that its tables belonged to before."""
    for write in pipeline.writes:
        with opened(folder(store, write.table)) as log:
            yield from earlier_owners(log) if log is not None else ()


def _states(store: Store, pipeline: str) -> set[tuple[int, str]]:
    """The kept state, as (batch that wrote it, name): that which the last published batches wrote or read, in their
    first runs and in the backfills that are in place."""
    ledger, layers, kept = Ledger(store, pipeline), in_force(store, pipeline), set[tuple[int, str]]()
    plan = ledger.standing().published
    for _ in range(STATES_KEPT):
        if plan is None:
            break
        for name in layers.names(plan.batch):
            again = plan if name == pipeline else Ledger(store, name).plan(plan.batch)
            kept.update(_states_in(again, (plan.batch,)))
        plan = ledger.published_before(plan.batch)
    return kept


def _states_of_backfills(store: Store, pipeline: str) -> set[tuple[int, str]]:
    """The same for backfills that are not compared yet, or whose state the next batch continues from once they are put
    in place: no batch was published after theirs."""
    published, kept = Ledger(store, pipeline).standing().published, set[tuple[int, str]]()
    over = cancelled(store, pipeline)
    for again in (again for again in backfills(store, pipeline) if again.number not in over):
        newest = published is not None and again.batches[-1] >= published.batch
        if newest or store.head(comparison_key(again)) is None:
            for batch in again.batches:
                kept.update(_states_in(Ledger(store, again.name).plan(batch), again.batches))
    return kept


def _states_in(plan: Plan | None, batches: Collection[int]) -> Iterator[tuple[int, str]]:
    """The state that these batches write under a plan, and that which it reads."""
    for stage in plan.stages if plan else ():
        yield from ((batch, state_of(step.name)) for step in stage.steps for batch in batches)
        reads = (read for read in stage.inputs if isinstance(read, StateInput))
        yield from ((run.batch, read.written_as(run)) for read in reads for run in read.runs)


def _named(
    ledgers: Sequence[tuple[Ledger, Collection[int] | None]], place: str, batch: int
) -> dict[str, Artefact] | None:
    """The files of a batch in a place that verdicts name, but for those that have served once it is published. None if
    an open batch with this number writes there.

    A place belongs to a pipeline or a backfill, or is a table's, which several may write. Raises Refused if a document
    that may name files there is damaged.
    """
    table, named = place.removeprefix(TABLES) if place.startswith(TABLES) else None, dict[str, Artefact]()
    asked = [
        ledger
        for ledger, batches in ledgers
        if (table is not None or ledger.pipeline == place) and (batches is None or batch in batches)
    ]
    verdicts = at_once(lambda ledger: ledger.verdict(batch), asked)
    for ledger, verdict in zip(asked, verdicts, strict=True):
        if verdict is not None:
            replaces = any(file.role is Role.REPLACED for file in verdict.artefacts)
            served = {Role.REPLACED} if replaces and ledger.commit(batch) is not None else set[Role]()
            named.update((file.path, file) for file in verdict.artefacts if file.role not in served)
        elif (plan := ledger.plan(batch)) is not None and (table is None or table in plan.tables):
            return None
    return named
