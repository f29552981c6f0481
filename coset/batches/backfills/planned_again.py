"""Plans of a backfill: the ranges and files of a batch's stored plan, with the current pipeline and other settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import UNSET

from coset.batches.attempt import Attempt
from coset.batches.backfills.repaired import with_files_of_now
from coset.batches.backfills.swaps import in_force, state_ledger
from coset.batches.code import with_code
from coset.batches.ends import balance, ends_after, ends_before
from coset.batches.history import replayed, statistics
from coset.batches.planning import end_of_day, kept_by, result_columns
from coset.batches.renamed_columns import misread
from coset.sources.discovery import as_of_now
from coset.sources.file_columns import typeless, types_named
from coset.sources.kafka.keys import key_columns_of, read_of_key
from coset.sources.landed_keys import with_made, without_made
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.commands import BackfillAsking, PlanAsking
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.composite_key import key_columns
from partitioning.model.offsets import OffsetRange
from partitioning.model.plan import Plan
from partitioning.model.read_ends import NOTHING, Ends, StreamProgress
from partitioning.model.sources import KafkaSource, LandedSource
from partitioning.model.stage_inputs import PlannedStream
from partitioning.model.streams import Column, Stream
from partitioning.planning.planner import goes_by_times, plan_arrived
from partitioning.values import replace
from spark_jobs.sql.engines import engine
from spark_jobs.sql.left_columns import with_columns


def planned_again(pipeline: Pipeline, ledger: Ledger, batch: int, settings: Settings, asked: BackfillAsking) -> Plan:
    """The plan of a batch in a backfill, as `_planned_again` makes it. A refusal whose next step is an option names the
    whole request, `asked`, with that option."""
    try:
        return _planned_again(pipeline, ledger, batch, settings, asked)
    except Refused as refusal:
        raise refusal.saying(lambda finding: asking_anew(finding, asked)) from None


def asking_anew(finding: Finding, asked: BackfillAsking) -> Finding:
    """The finding, whose next step asks for the backfill instead of for a plan: a backfill makes its plans itself."""
    anew = (
        replace(asked, begin_anew=part.begin_anew or UNSET, go_on=part.go_on or UNSET)
        if isinstance(part, PlanAsking)
        else part
        for part in finding.steps
    )
    return replace(finding, next=tuple(anew))


def _planned_again(pipeline: Pipeline, ledger: Ledger, batch: int, settings: Settings, asked: BackfillAsking) -> Plan:
    """The plan of a batch in a backfill, whose ledger this is. Stores nothing.

    It reads the files of the stored plan or, if the input was `repaired`, the files that hold its offsets now. It
    continues from the state of the batch before it, in the backfill or else before it. Raises Refused with all findings
    if the pipeline cannot be planned, or does not read the streams of the batch.
    """
    assert ledger.original is not None
    stored = ledger.original.plan(batch)
    assert stored is not None
    then = pipeline.expecting(settings.expectations).with_topics_of(stream.declared for stream in stored.streams)
    ends = ends_before(ledger, batch)
    source, before = _goes_on_from(ledger, batch)
    if asked.repaired:
        stored = with_files_of_now(then, stored, _by_type_of_now(then, ends), _lost(ledger.original))
    anew = replace(asked, repaired=True)
    planned = _streams(then, stored, anew)
    stored = replace(stored, streams=tuple(map(as_of_now, planned)))
    stored, results = _with_columns(then, stored, ledger, anew)
    # A preview has not run the batch before it, whose rows the backfill reads by the names of now.
    goes_on = before is not None and (batch == asked.first or before.pipeline == ledger.pipeline)
    read = before.ends.without(stored.forgotten) if before and goes_on else NOTHING
    if wrong := [*misread(then, replayed(stored), results, read)]:
        raise Refused(*wrong)
    plan = plan_arrived(
        then,
        stored.streams,
        results,
        batch=batch,
        parent=digest(before) if before else None,
        published=before,
        shown=_shown(ledger, before),
        ends=ends,
        forgotten=stored.forgotten,
        # The losses of the first run stay accepted, so that they are not unexplained gaps.
        settings=replace(settings, accept_loss=stored.losses),
        statistics=statistics(Attempt.published(Ledger(ledger.store, before.pipeline), before)) if before else None,
        kept=kept_by(source, before) if before else None,
        named=ledger.pipeline,
        day_end=_day_end(stored),
        as_of=stored.as_of,
        earlier=lambda batch: _goes_on_from(ledger, batch)[1],
        engine=engine(then.graph, [column for stream in stored.streams for column in stream.columns], before),
    )
    plan = with_code(with_columns(plan))
    of_backfill = replace(plan, pipeline=ledger.pipeline, starts=stored.starts, losses=stored.losses)
    # Upserted tables hold later batches, so the first batch of a backfill writes all their rows.
    return of_backfill if source is ledger else _anew(of_backfill)


def _with_columns(
    pipeline: Pipeline, stored: Plan, ledger: Ledger, anew: BackfillAsking
) -> tuple[Plan, Mapping[str, tuple[Column, ...]]]:
    """The plan, with columns and types that later batches found if the pipeline or a table needs them, and the columns
    of the result tables. Raises Refused as `result_columns`; for a column that no batch has found the finding names
    what to do."""
    try:
        return stored, result_columns(pipeline, replayed(stored), ledger.store)
    except Refused:
        assert ledger.original is not None
        known = ends_after(ledger.original, ledger.original.standing().published)
        stored = replace(stored, streams=tuple(_with_later(each, known.stream(each.name)) for each in stored.streams))
    try:
        return stored, result_columns(pipeline, replayed(stored), ledger.store)
    except Refused as refusal:
        raise refusal.saying(lambda finding: _from_before(finding, pipeline, stored.batch, anew)) from None


def _with_later(read: PlannedStream, known: StreamProgress | None) -> PlannedStream:
    """A stream of a batch with the columns of later batches, null in its records, and the types that hold their values
    too. An Iceberg table says itself what it has."""
    if known is None or read.ids:
        return read
    declared, types = read.declared, {each.name: each.type for each in read.columns}
    left_out = known.declared.columns.keys() | declared.columns.keys() | declared.cast.keys()
    types |= {each.name: each.type for each in known.columns if each.name not in left_out}
    untyped = tuple(name for name in read.untyped if name not in types)
    return replace(read, columns=tuple(Column(*each) for each in types.items()), untyped=untyped)


def _from_before(finding: Finding, pipeline: Pipeline, batch: int, anew: BackfillAsking) -> Finding:
    if finding.kind is not Kind.SQL_COLUMN:
        return finding
    then = finding.steps
    if any(isinstance(stream.origin, LandedSource) for stream in pipeline.streams):
        then = (*then, "; or, if only files that no batch has read have it, read all files anew: ", anew)
    return replace(finding, where=f"{finding.where}, batch {batch}", next=then)


def _day_end(stored: Plan) -> int | None:
    """The end of the day by which a batch goes: of its own, or of this one if it did not go by times at first."""
    if stored.day_end is not None:
        return stored.day_end
    return None if goes_by_times(stored.graph) else end_of_day()


def _lost(ledger: Ledger) -> list[OffsetRange]:
    """All offsets whose loss was accepted in published batches."""
    return [lost.offsets for lost in balance(ledger, ledger.standing().published).lost]


def _goes_on_from(ledger: Ledger, batch: int) -> tuple[Ledger, Plan | None]:
    """The published plan before a batch, and the ledger with its verdict: the backfill's, or the one that counts
    now."""
    assert ledger.original is not None
    before = ledger.published_before(batch)
    if before is None:
        return ledger.original, None
    source = ledger
    if before.pipeline != ledger.pipeline:
        source = state_ledger(ledger.store, ledger.original.pipeline, before.batch)
    return source, source.plan(before.batch)


def _shown(ledger: Ledger, before: Plan | None) -> Plan | None:
    """The plan before a batch of a backfill whose rows are those of the tables then."""
    if before is None or before.pipeline == ledger.pipeline or ledger.original is None:
        return before
    return in_force(ledger.store, ledger.original.pipeline).top(before.batch).plan(before.batch)


def _anew(plan: Plan) -> Plan:
    """The plan, writing all rows of its upserted tables."""
    stages = (
        replace(stage, writes=tuple(replace(write, anew=write.declared.mode.by_key) for write in stage.writes))
        for stage in plan.stages
    )
    return replace(plan, stages=tuple(stages))


def _streams(pipeline: Pipeline, stored: Plan, anew: BackfillAsking) -> tuple[PlannedStream, ...]:
    """The planned streams of the batch. Raises Refused if the pipeline reads other streams now."""
    declared = {stream.name: stream for stream in pipeline.streams}
    read = {stream.name: stream for stream in stored.streams}
    findings = [
        Finding.of(
            Kind.BACKFILL_INPUT,
            f"stream {name!r} is read by {'the pipeline' if name in declared else f'batch {stored.batch}'} only",
            f"pipeline {pipeline.name!r}, batch {stored.batch}",
            "a backfill reads the streams of its batches: put what is new into another pipeline",
            name=name,
            batch=stored.batch,
        )
        for name in sorted(declared.keys() ^ read.keys())
    ]
    for stream in pipeline.streams:
        of = (_untyped, _keyed, _renamed_key)
        findings += [each for wrong in of for each in wrong(stream, read.get(stream.name), stored, anew)]
    if findings:
        raise Refused(*findings)
    return tuple(_as_declared(stream, read[stream.name]) for stream in pipeline.streams)


def _untyped(stream: Stream, read: PlannedStream | None, stored: Plan, anew: BackfillAsking) -> Iterator[Finding]:
    """A finding for each column of a type that is none, or whose cast is not declared any more: then only its files say
    which type it had."""
    yield from typeless(stream, {**stream.columns, **stream.cast})
    if read is None:
        return
    for name in sorted(read.declared.cast.keys() - stream.cast.keys() - read.declared.columns.keys()):
        kind = read.declared.cast[name]
        what = f"column {name!r} was cast to {kind} by that batch, which is not declared any more"
        declares = f'declare it: `cast={{"{name}": "{kind}"}}`'
        landed = isinstance(stream.origin, LandedSource)
        then = (declares, "; or to take its type from the files: ", anew) if landed else (declares,)
        where = f"stream {stream.name!r}, batch {stored.batch}"
        yield Finding.of(Kind.BACKFILL_INPUT, what, where, then, name=name, batch=stored.batch)


def _keyed(stream: Stream, read: PlannedStream | None, stored: Plan, anew: BackfillAsking) -> Iterator[Finding]:
    """A finding if keys lie in files of their own now, and the batch took them from those of values, or otherwise."""
    if read is None or bool(stream.keys) == bool(read.declared.keys):
        return
    what = "that batch read files of keys, and no keys= is declared any more"
    if stream.keys:
        what = "that batch read no files of keys, and keys= is declared"
    where, then = (
        f"stream {stream.name!r}, batch {stored.batch}",
        ("declare it as it was; or to read keys as it is: ", anew),
    )
    yield Finding.of(Kind.BACKFILL_INPUT, what, where, then, name=stream.name, batch=stored.batch)


def _renamed_key(stream: Stream, read: PlannedStream | None, stored: Plan, anew: BackfillAsking) -> Iterator[Finding]:
    """A finding if the key is of columns that the batch's files do not have. An Iceberg table says what it renamed."""
    if read is None or read.ids or stream.key == read.declared.key or _has_key_bytes(stream):
        return
    there = {*(column.name for column in read.columns), *read.untyped}
    if lacking := [name for name in key_columns(stream.key) if name not in there]:
        named = " and ".join(map(repr, lacking))
        what = f"its key is {stream.key!r} now, and that batch, whose key was {read.declared.key!r}, read no {named}"
        then = f"name the key as it was; or land the files of the batch with column {named}, then "
        where = f"stream {stream.name!r}, batch {stored.batch}"
        yield Finding.of(Kind.BACKFILL_INPUT, what, where, (then, anew), name=stream.name, batch=stored.batch)


def _has_key_bytes(stream: Stream) -> bool:
    """Whether the columns of keys are read from the bytes of these, whatever they are named."""
    return bool(stream.key_bytes) or (isinstance(stream.origin, KafkaSource) and not stream.changes)


def uncast(pipeline: Pipeline, ends: Ends) -> Iterator[Finding]:
    """A finding for each column to cast that no record has which batches have read."""
    for stream in pipeline.streams:
        read = ends.stream(stream.name)
        known = [*(column.name for column in read.columns), *read.untyped] if read else []
        for name in sorted(stream.cast.keys() - {*known}) if known else ():
            what = f"there is no column {name!r} to cast in what batches have read"
            where, then = f"stream {stream.name!r}", f"correct its name; there are {', '.join(known)}"
            yield Finding.of(Kind.DECLARATION, what, where, then, name=name)


def _by_type_of_now(pipeline: Pipeline, ends: Ends) -> Ends:
    """The ends without the columns of streams whose types are declared otherwise since."""
    now = {stream.name: (stream.cast, stream.columns) for stream in pipeline.streams}
    streams = (
        read if now.get(read.name) == (read.declared.cast, read.declared.columns) else replace(read, columns=())
        for read in ends.streams
    )
    return replace(ends, streams=tuple(streams))


def _as_declared(stream: Stream, read: PlannedStream) -> PlannedStream:
    """The stream that a batch read, with the columns and types that are declared of it now."""
    lies = _as_it_lay(stream, read.declared)
    were, are = read.declared.columns, lies.columns
    types = types_named({**are, **lies.cast})
    stay = {column.name: column.type for column in read.columns if column.name not in were.keys() - are.keys()}
    known = {*stay, *are, *read.untyped}
    named = stay | {name: kind for name, kind in types.items() if name in known}
    columns = tuple(Column(name, kind) for name, kind in named.items())
    if lies.key != read.declared.key:
        columns = without_made(read.declared, columns)
        if _has_key_bytes(lies) and _has_key_bytes(read.declared):
            were_keys = read_of_key(read.declared)
            columns = (*key_columns_of(lies), *(column for column in columns if column.name not in were_keys))
        columns = with_made(lies, columns)
    return replace(read, declared=lies, columns=columns)


def _as_it_lay(stream: Stream, then: Stream) -> Stream:
    """The stream as it is declared now, but for what says where and how the files of the batch lie. Brokers may have
    other names by now."""
    if isinstance(stream.origin, KafkaSource) and isinstance(then.origin, KafkaSource):
        return stream
    lay = replace(stream, source=then.source, layout=then.layout, offset=then.offset, counted=then.counted)
    if stream.format is then.format:
        return lay
    return replace(lay, format=then.format, columns=then.columns, schema=then.schema)
