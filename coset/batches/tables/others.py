"""Changes by others: finds what somebody other than its pipeline did to the rows of a result table, by the table's
log.

The log is read back to the last batch but one: earlier plans have judged what came before. Optimising, vacuuming and
setting properties change no rows.

Earlier owners: what pipelines that owned a table before have appended to it, by their ledgers. A new owner knows
nothing of that, and reads streams from their start: it would append rows of the same records again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from coset.batches.tables.acceptance import ACCEPTED, accepted_up_to
from coset.batches.tables.delta import newest_in
from coset.batches.tables.live_files import identity
from coset.batches.tables.log_copy import TableLog, actions_in
from coset.batches.tables.logs import Logs, opened
from coset.batches.tables.owners import Owner, check_owner, earlier_owners
from coset.batches.tables.table_rules import check_rules
from coset.sources.s3 import in_python
from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import AcceptChanges, HandOver, Then
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Finding, noting, refuse
from partitioning.kinds import Kind
from partitioning.model.graph import Graph, Write
from partitioning.model.offsets import OffsetRange, Span, StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.read_ends import Ends
from partitioning.model.streams import Discovered, Stream
from partitioning.sections import many
from spark_jobs.tables.table_schema import folder

# What tells a file with its dead rows from others.
_File = tuple[Any, ...]

_HANDED_OVER = "coset.to"


@dataclass(slots=True)
class _Entry:
    """A version of a table: its commit information, and the files that it added and removed with their rows. A file
    with other dead rows is another."""

    version: int
    info: Mapping[str, Any]
    # The application of its transaction. Coset 0.1.0 named the pipeline only there.
    application: str = ""
    added: dict[_File, Mapping[str, Any]] = field(default_factory=dict)
    removed: dict[_File, Mapping[str, Any]] = field(default_factory=dict)

    def is_batch(self, pipeline: str) -> bool:
        return self.is_of(pipeline) and ("coset.plan" in self.info or "coset.pipeline" not in self.info)

    def is_of(self, pipeline: str) -> bool:
        return bool(self.info.get("coset.pipeline", self.application.partition(":")[0]) == pipeline)

    @property
    def accepts(self) -> int:
        """The version up to which somebody accepted changes. -1 if nobody did."""
        return int(self.info.get(ACCEPTED, -1))

    @property
    def is_handed_over(self) -> bool:
        return _HANDED_OVER in self.info


def check_untouched(store: Store, pipeline: str, writes: Sequence[Write], logs: Logs) -> None:
    """Raise Refused with all changes of others to the rows of these tables that nobody has accepted."""
    findings = list[Finding]()
    for write in writes:
        with opened(folder(store, write.table), logs) as table:
            if table is not None:
                findings.extend(_changes(table, write, pipeline))
    refuse(findings)


def stopping(store: Store, pipeline: str, writes: Sequence[Write]) -> tuple[Finding, ...]:
    """What stops the next batch at tables that there are: another owner, rules, or what others did to their rows."""
    logs, found = Logs(), list[Finding]()
    for write in writes:
        with noting(found):
            with opened(folder(store, write.table), logs) as table:
                if table is not None:
                    check_owner(table, write.table, Owner.here(store, pipeline))
                    check_rules(table, takes=not write.mode.only_adds)
            check_untouched(store, pipeline, [write], logs)
    return tuple(found)


def changes(table: TableLog, write: Write, pipeline: str) -> Iterator[str]:
    """What others did to the rows of a table that nobody has accepted, in words."""
    return (finding.what for finding in _changes(table, write, pipeline))


def accepted_changes(store: Store, write: Write, pipeline: str, upto: int | None) -> Sequence[int] | None:
    """The versions, up to one, in which others changed rows of a table and somebody accepted that. None if the log has
    lost one of before."""
    found = list[int]()
    with opened(folder(store, write.table)) as table:
        accepted = -1 if table is None else accepted_up_to(table, write.table)
        for version in range(accepted if upto is None else min(accepted, upto), 0, -1):
            if table is None or (data := table.commit(version)) is None:
                return None
            entry = _entry(version, data)
            found += [version] if (entry.added or entry.removed) and not entry.is_of(pipeline) else []
    return found


def taken_out(table: TableLog, paths: Collection[str], pipeline: str) -> Mapping[str, tuple[str, str]]:
    """What took each of these files out of a table, as far back as its log goes, in words, and how it is taken back; if
    a batch or a swap of the pipeline came after it, that cannot be."""
    left, found, since = set(paths), dict[str, tuple[str, str]](), False
    for version in range(table.version(), -1, -1):
        if not left or (data := table.commit(version)) is None:
            break
        entry = _entry(version, data)
        back = f"take it back: {_restoring(table, version - 1)}; or else " if version and not since else ""
        said = f"version {version} took it out: {_told(entry)}"
        found |= dict.fromkeys(left & _removed(data), (said, back))
        left -= found.keys()
        since = since or entry.is_of(pipeline)
    return found


def _removed(data: bytes) -> set[str]:
    """The files that a version removed, also those whose rows it only moved."""
    return {action["remove"]["path"] for action in actions_in(data) if "remove" in action}


def _restoring(table: TableLog, version: int) -> str:
    return f"`{in_python(table.table_uri, f'restore({version})')}`"


def _changes(table: TableLog, write: Write, pipeline: str) -> Iterator[Finding]:
    entries, lost = _entries(table, write, pipeline)
    name, where, newest = write.table, table.table_uri.rstrip("/"), table.version()
    ours = [entry.version for entry in entries if entry.is_of(pipeline)]
    others = _still_there(entries, pipeline)
    accepted = AcceptChanges(name, newest)
    then: Then = accepted
    if others and not any(version > others[0].version for version in ours):
        # Restoring also restores the owner, so a version that hands the table over is passed.
        handed = {entry.version for entry in entries if entry.is_handed_over}
        before = next(version for version in range(others[0].version - 1, -1, -1) if version not in handed)
        stays = "is to stay until a batch writes over it" if write.mode.by_key else "is to stay"
        then = (f"take it back: {_restoring(table, before)}; or, if it {stays}, ", accepted)
    for entry in others:
        what = f"version {entry.version} of the table is not by pipeline {pipeline!r}: {_told(entry)}"
        yield Finding.of(Kind.TABLE_CHANGED, what, where, then, table=name, version=entry.version)
    if lost is not None:
        what = f"the log has lost version {lost}, so nobody can tell what others did to the table"
        look = ("look at its rows; if they are right, ", accepted)
        yield Finding.of(Kind.TABLE_CHANGED, what, where, look, table=name, lost=lost)


def _entries(table: TableLog, write: Write, pipeline: str) -> tuple[list[_Entry], int | None]:
    """The entries to look at, oldest first, and the version that is gone, if no batch was found after it.

    Handing a table over accepts its rows. A pipeline that has upserted to the table before still gets them as changes:
    its state does not have them, and would overwrite them.
    """
    handing_settles = not write.mode.by_key or newest_in(table, pipeline, write.table) is None
    found, settled, batches = list[_Entry](), -1, 0
    for version in range(table.version(), -1, -1):
        if version <= settled or batches == 2:
            break
        data = table.commit(version)
        if data is None:
            return found[::-1], None if batches else version
        entry = _entry(version, data)
        found.append(entry)
        batches += entry.is_batch(pipeline)
        settled = max(settled, entry.accepts, version if handing_settles and entry.is_handed_over else -1)
    return [entry for entry in found[::-1] if entry.version > settled], None


def _entry(version: int, data: bytes) -> _Entry:
    actions = actions_in(data)
    info: Mapping[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    entry = _Entry(version, info, next((action["txn"]["appId"] for action in actions if "txn" in action), ""))
    for action in actions:
        for kind, files in (("add", entry.added), ("remove", entry.removed)):
            if action.get(kind, {}).get("dataChange"):
                files[identity(action[kind])] = action[kind]
    return entry


def _still_there(entries: Sequence[_Entry], pipeline: str) -> list[_Entry]:
    """The entries of others whose changes were neither taken back nor overwritten by a batch, oldest first."""
    added, removed = dict[_File, _Entry](), dict[_File, _Entry]()
    for entry in entries:
        if entry.is_of(pipeline):
            _write_over(entry, added, removed)
            continue
        for path in entry.removed:
            if added.pop(path, None) is None:
                removed[path] = entry
        for path in entry.added:
            if removed.pop(path, None) is None:
                added[path] = entry
    left = {entry.version: entry for entry in (*added.values(), *removed.values())}
    return [left[version] for version in sorted(left)]


def _write_over(entry: _Entry, added: dict[_File, _Entry], removed: dict[_File, _Entry]) -> None:
    """Remove the earlier changes of others that a batch or a swap overwrites."""
    for path in entry.removed:
        added.pop(path, None)
    if entry.info.get("operationParameters", {}).get("mode") != "Overwrite":
        return
    written = {_partition(file) for file in (*entry.added.values(), *entry.removed.values())}
    for path, other in list(removed.items()):
        if _partition(other.removed[path]) in written:
            del removed[path]


def _partition(file: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((file.get("partitionValues") or {}).items()))


def _told(entry: _Entry) -> str:
    """An entry in words: RESTORE, at 2026-01-02 03:04, by delta-rs; 1 file with 10 rows added, 2 removed."""
    info = entry.info
    mode = info.get("operationParameters", {}).get("mode") if info.get("operation") == "WRITE" else None
    said = [f"{info.get('operation', 'something')}{f' ({mode})' if mode else ''}"]
    if "coset.plan" in info:
        said = [f"batch {info['coset.plan']} of pipeline {info['coset.pipeline']!r}"]
    if stamp := info.get("timestamp"):
        said.append(f"at {datetime.fromtimestamp(stamp / 1000, UTC):%Y-%m-%d %H:%M} UTC")
    if by := info.get("userName") or info.get("engineInfo"):
        said.append(f"by {by}")
    # What moves rows changes none.
    rows = f"; {_files(entry.added)} added, {_files(entry.removed)} removed" if entry.added or entry.removed else ""
    return f"{', '.join(said)}{rows}"


def _files(files: Mapping[_File, Mapping[str, Any]]) -> str:
    rows = [json.loads(file.get("stats") or "{}").get("numRecords") for file in files.values()]
    known = [count for count in rows if count is not None]
    return many(len(files), "file") + (f" with {many(sum(known), 'row')}" if known and len(known) == len(rows) else "")


def appended_again(
    store: Store,
    pipeline: Pipeline,
    discovered: Sequence[Discovered],
    ends: Ends,
    starts: Mapping[str, int],
    logs: Logs,
) -> Iterator[Finding]:
    """A finding for each earlier owner of a table that has appended rows of records which the pipeline is to append
    rows of: those that its next batches read from `ends` and `starts` on. Changes that the log accepts are none.
    """
    for table in [write.table for write in pipeline.writes if write.mode.only_adds]:
        with opened(folder(store, table), logs) as log:
            if log is None or not (earlier := earlier_owners(log)) or not log.get_add_actions().num_rows:
                continue
            unread = _unread(_appended(pipeline.graph, table), discovered, ends, starts)
            accepted, newest = accepted_up_to(log, table), log.version()
            held = {name: newest_in(log, name, table) for name, last in earlier.items() if last > accepted}
        for name, batch in held.items():
            if batch is not None and unread and name != pipeline.name:
                yield from _findings(Ledger(store, name), batch, table, unread, ends, newest, pipeline.name)


def _appended(graph: Graph, table: str) -> tuple[Stream, ...]:
    """The streams whose records a table gets appended rows of, each record once."""
    steps = [write.step for write in graph.writes if write.table == table and write.mode.only_adds]
    names = {name for step in steps for name in graph.above(step)}
    return tuple(stream for stream in graph.streams if stream.name in names and not stream.table)


def _unread(
    streams: Sequence[Stream], discovered: Sequence[Discovered], ends: Ends, starts: Mapping[str, int]
) -> dict[StreamPartition, tuple[Stream, OffsetRange]]:
    """What a pipeline has still to read of each partition of these streams."""
    declared, found = {stream.name: stream for stream in streams}, {}
    for each in (each for each in discovered if each.stream in declared):
        for part in each.partitions:
            partition, known = StreamPartition(each.stream, part.partition), ends.end(each.stream, part.partition)
            start = known.end if known else starts.get(str(partition), part.beginning)
            if start < part.end:
                found[partition] = declared[each.stream], OffsetRange(partition, start, part.end)
    return found


def _findings(
    ledger: Ledger,
    newest_batch: int,
    table: str,
    unread: Mapping[StreamPartition, tuple[Stream, OffsetRange]],
    ends: Ends,
    version: int,
    pipeline: str,
) -> Iterator[Finding]:
    plan, counts, behind = ledger.published_before(newest_batch + 1), dict[str, int](), dict[StreamPartition, int]()
    while plan is not None:
        for partition, upto, records in _overlaps(plan, table, unread):
            counts[partition.stream] = counts.get(partition.stream, 0) + records
            behind[partition] = max(upto, behind.get(partition, 0))
        plan = ledger.published_before(plan.batch)
    if not counts:
        return
    of = " and ".join(f"{many(count, 'record')} of {stream}" for stream, count in counts.items())
    what = (
        f"pipeline {ledger.pipeline!r}, which the table belonged to before, has appended rows of {of}, "
        f"which {pipeline!r} has still to read: it would append rows of them again, and they would count twice"
    )
    begin = ""
    if not any(ends.end(each.stream, each.partition) for each in behind):
        told = [f"{partition} = {behind[partition]}" for partition in sorted(behind, key=str)]
        begin = f"; or begin behind them, with [starts] {', '.join(told)} in the settings"
    then = (
        f"name the pipeline {ledger.pipeline!r} again, and give the table back: ",
        HandOver(table, pipeline, ledger.pipeline),
        f"; or write to a table of another name{begin}; or, if they are to count twice, ",
        AcceptChanges(table, version),
    )
    yield Finding.of(Kind.TABLE_AGAIN, what, folder(ledger.store, table), then, table=table, owner=ledger.pipeline)


def _overlaps(
    plan: Plan, table: str, unread: Mapping[StreamPartition, tuple[Stream, OffsetRange]]
) -> Iterator[tuple[StreamPartition, int, int]]:
    """The partitions of which a plan's batch appended rows of what is unread, up to which offset, and how many."""
    appended = {stream.name for stream in _appended(plan.graph, table)}
    for stream in (stream for stream in plan.streams if stream.name in appended):
        for part in stream.partitions:
            declared, left = unread.get(StreamPartition(stream.name, part.partition), (None, None))
            if declared is None or left is None or not _same_records(declared, stream.declared):
                continue
            span = Span(max(part.start, left.start), min(part.end, left.end))
            if span.start < span.end:
                yield left.partition, span.end, part.within(span).records


def _same_records(one: Stream, other: Stream) -> bool:
    """Whether an offset is of the same record in both streams of a name: a topic is read landed or in its broker."""
    return one.source.rstrip("/") == other.source.rstrip("/") or type(one.origin) is not type(other.origin)
