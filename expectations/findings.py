"""Findings: unmet expectations, in sentences for people. Misplaced keys: where they should have been."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from string import Template
from typing import Any

import pandas as pd
from great_expectations.core.expectation_validation_result import (
    ExpectationSuiteValidationResult,
    ExpectationValidationResult,
)
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.expectations.registry import get_expectation_impl
from great_expectations.render.renderer.inline_renderer import InlineRenderer

from coset.sources.databases import connect_to_ask
from coset.sources.rows import Rows, each_row
from expectations.colocation import (
    FITS,
    GREW,
    SECOND,
    SPREAD,
    UNDER,
    ExpectKeysToHashToTheirPartition,
    ExpectKeysToMeetInOneTask,
)
from expectations.continuity import ExpectGapsToBeEmpty
from expectations.coverage import CoverageExpectation, ExpectRecordsToHaveKeys, ExpectRecordsToLieWhereTheirKeysHash
from expectations.judging import TableExpectation
from expectations.key_hashes import schema_id_of
from expectations.production import ExpectRowsOfTablesToBalance
from expectations.questions import Question
from expectations.ready_made import FigureExpectation
from partitioning.commands import BackfillAsking, Command, Records, Replan, Report, Run, backfill_of
from partitioning.errors import About, Finding, about
from partitioning.framed_keys import json_text
from partitioning.hashes import read_key
from partitioning.kinds import Kind
from partitioning.model.composite_key import canonical, key_columns
from partitioning.model.placement import CRC32_CONSISTENT, OPAQUE, hash_schema, json_fields, keeps_empty
from partitioning.model.plan import Plan
from partitioning.model.private import MASK, is_private
from partitioning.model.receipt import Violation
from partitioning.model.streams import Stream
from partitioning.sections import many

# What explains where the keys compared of an input lie: the details of `ExpectKeysToHashToTheirPartition`.
Fits = Mapping[str, Mapping[str, Any]]


def fitting(judged: Iterable[tuple[str, ExpectationSuiteValidationResult]]) -> Fits:
    """The rule by which the compared keys of an input lie, for each input with such a rule; `judged` has the answers
    about each input."""
    found = ((name, each.result.get("details") or {}) for name, answer in judged for each in answer.results)
    return {name: details for name, details in found if any(map(details.get, (FITS, GREW, UNDER, SECOND, SPREAD)))}


def with_ids(plan: Plan, fits: Fits, violations: pd.DataFrame) -> Fits:
    """The explanations of where keys lie, with the schema registry's ids of keys that tasks found elsewhere: few of
    them are among the keys compared where a task reads other keys of their partition."""
    more = dict[str, Mapping[str, Any]]()
    for stage in plan.stages:
        for read in stage.streams:
            placed, of_input = read.placement, (violations["stage"] == stage.name) & (violations["input"] == read.name)
            rows = violations[of_input & (violations["violation"] == Violation.FOREIGN) & (violations["key"] != MASK)]
            rows = rows.drop_duplicates(["partition", "key"])
            keys = [read_key(str(key), placed.key_format) for key in rows["key"]]
            places = [int(partition) % placed.partitions for partition in rows["partition"]]
            under = None if read.name in fits else schema_id_of(keys, places, placed.partitions, placed.hash)
            if under is not None:
                more[read.name] = {UNDER: under}
    return {**fits, **more}


def remedy(streams: Iterable[Stream], fits: Fits) -> str:
    """The remedy for records of these streams that do not lie where their keys hash: declare the hash that fits; if
    none is known to, or the topic has grown, let the records move.

    >>> paid, sent = (Stream(name, "s3://landing/topics", "k", 4) for name in ("paid", "sent"))
    >>> remedy([paid], {"paid": {FITS: "crc32"}})
    'all keys compared of paid lie where crc32 puts them: if their producer hashes so, declare hash="crc32"'
    >>> remedy([sent], {}).partition("; ")[2]
    'to take its records from where they lie, declare hash="opaque" and move them, sent.repartition()'
    >>> remedy([sent], {"sent": {GREW: 3}}).partition(":")[0]
    'the keys of sent that lie elsewhere lie by 3 partitions'
    >>> remedy([sent], {"sent": {SECOND: "fnv1a"}}).partition(":")[0]
    'the keys of sent that do not lie by murmur2 lie by fnv1a'
    >>> remedy([sent], {"sent": {SPREAD: 8}}).partition(",")[0]
    '8 keys compared of sent lie in several partitions'
    >>> remedy([sent], {"sent": {UNDER: 8}}).partition(":")[0]
    'the keys of sent that lie elsewhere lie under schema 8'
    """
    return "; ".join(_remedies(sorted(streams, key=lambda stream: stream.name), fits))


def apart(streams: Iterable[Stream]) -> str:
    """What to do about equal keys in different tasks, which come from these streams of unknown placement.

    >>> apart([Stream("sent", "s3://landing/topics", "k", 4, hash=OPAQUE)])
    'if no hash of the key places the records of sent, move them: sent.repartition()'
    """
    names = [stream.name for stream in streams if stream.hash == OPAQUE]
    moved = " and ".join(f"{name}.repartition()" for name in names)
    return f"if no hash of the key places the records of {' and '.join(names)}, move them: {moved}" if names else ""


def emptied(streams: Iterable[Stream]) -> Iterator[str]:
    """What to know of streams whose producers treat an empty key as none."""
    if names := [stream.name for stream in streams if not keeps_empty(stream.hash)]:
        yield (
            f"an empty key of {' and '.join(names)} counts as none, as librdkafka puts it anywhere: "
            f'if its producer puts it into partition 0, declare hash="{CRC32_CONSISTENT}"'
        )


def _remedies(streams: list[Stream], fits: Fits) -> Iterator[str]:
    for stream in streams:
        name, partitions, found = stream.name, stream.partitions, fits.get(stream.name, {})
        as_they_lie = f'to take its records from where they lie, declare hash="{OPAQUE}" and move them, '
        if fit := found.get(FITS):
            yield (
                f"all keys compared of {name} lie where {fit} puts them: if their producer hashes so, "
                f'declare hash="{fit}"'
            )
        elif before := found.get(GREW):
            yield (
                f"the keys of {name} that lie elsewhere lie by {many(before, 'partition')}: if the topic has {before}, "
                f"declare partitions={before}; if it has {partitions}, so do records from before it grew, if no batch "
                f'had read it then; to take them from where they lie, declare hash="{OPAQUE}" and move them, '
                f"{name}.repartition(); once a batch has read them "
                "all, what is declared now is right, and steps that keep something go on under the same name="
            )
        elif under := found.get(UNDER):
            yield (
                f"the keys of {name} that lie elsewhere lie under schema {under}: if that is one of its keys in the "
                f"registry, add {under} to key_schemas=, the newest last; once a batch has read the last keys of an "
                "older one, leave that out"
            )
        elif second := found.get(SECOND):
            yield (
                f"the keys of {name} that do not lie by {stream.hash} lie by {second}: if two sorts of producers write "
                f"it, let them place keys alike; {as_they_lie}{name}.repartition()"
            )
        elif several := found.get(SPREAD):
            yield (
                f"{many(several, 'key')} compared of {name} lie in several partitions, so no hash of the key places "
                "its records: its producer takes partitions in turn or at random, as kafka-go without a Balancer; "
                f"let it place records by key; {as_they_lie}{name}.repartition()"
            )
    written = (stream for stream in streams if hash_schema(stream.hash) or json_fields(stream.hash))
    yield from (_as_declared(stream) for stream in written if stream.name not in fits)
    if whole := [stream.name for stream in streams if stream.changes and stream.name not in fits]:
        yield (
            f"if Connect writes the keys of {' and '.join(whole)} with their schema beside them, all of it is hashed: "
            f'declare hash="{OPAQUE}", and they are read where they lie'
        )
    if lost := [stream.name for stream in streams if not stream.changes and stream.name not in fits]:
        moved = " and ".join(f"{name}.repartition()" for name in lost)
        yield (
            f"correct the producer of {' and '.join(lost)}, or its hash= and key_format=; to take its records from "
            f'where they lie, declare hash="{OPAQUE}" and move them, {moved}'
        )


def _as_declared(stream: Stream) -> str:
    """How the keys of a stream are written by its declaration, for people to compare."""
    if schema := hash_schema(stream.hash):
        return (
            f"see with which ids the keys of {stream.name} begin, as the registry lists them for its subject: the "
            f"newest declared is {schema}; add others to key_schemas=, the newest last"
        )
    written = ",".join(f"{json_text(name)}:…" for name in json_fields(stream.hash))
    return (
        f"see how the keys of {stream.name} are written: by its declaration as {{{written}}}, with the fields in this "
        "order, no spaces and no others"
    )


def finding(
    plan: Plan,
    question: Question,
    result: ExpectationValidationResult,
    keys: pd.DataFrame,
    violations: pd.DataFrame,
    fits: Fits,
) -> Finding:
    """The finding for an unmet expectation, with the first offenders and the next step. `fits` has what explains where
    the keys of inputs lie."""
    failed = _exception(result)
    most = plan.offenders
    told = failed or _offenders(question, result, keys, violations, most)
    bad = result.result.get("unexpected_count") or 0
    if bad > most:
        told = [*told, f"and more: {bad:,} in all"]
    lines = "".join(f"\n    - {line}" for line in told)
    of_figure = issubclass(_class(result), FigureExpectation) and not failed
    return Finding(
        Kind.EXPECTATION_FAILS if failed else _kind(result),
        told[0] if of_figure else f"{question.title}, not met: {_sentence(result)}{lines}",
        f"batch {plan.batch} of {plan.pipeline}",
        tuple(_next(plan, question, result, remedy(_misplaced(plan, question, result, violations), fits))),
        _about(question, result, violations),
    )


def _is_about_records(result: ExpectationValidationResult) -> bool:
    """Whether single records or rows do not meet it, which `coset records` finds."""
    kind = _class(result)
    if issubclass(kind, CoverageExpectation | ExpectKeysToMeetInOneTask | ExpectKeysToHashToTheirPartition):
        return True
    return bool(result.result.get("partial_unexpected_index_list"))


def _is_about_set_aside(kind: type[Expectation]) -> bool:
    """Whether only records that were set aside do not meet it."""
    return issubclass(kind, CoverageExpectation) and kind.violations == (Violation.SET_ASIDE,)


def is_error(result: ExpectationValidationResult) -> bool:
    """Whether a batch is not published if the expectation is not met."""
    return result.expectation_config is None or result.expectation_config.severity is not FailureSeverity.WARNING


def _next(plan: Plan, question: Question, result: ExpectationValidationResult, placed: str) -> Iterator[str | Command]:
    """What to do about it, first about records that are `placed` elsewhere, if there are any."""
    kind, of = _class(result), backfill_of(plan.pipeline)
    correct = placed or _remedy(plan, question, result) or "if the input or the pipeline is wrong, correct it"
    if of is None:
        yield from (Report(plan.pipeline, plan.batch), " shows it")
        if _is_about_records(result):
            yield from (", ", Records(plan.pipeline, plan.batch, _is_about_set_aside(kind)), " the records")
        yield "; "
    if not is_error(result):
        pipeline = of[0] if of else plan.pipeline
        again = BackfillAsking(pipeline, plan.batch, repaired=_is_about_set_aside(kind))
        yield from (f"{correct}, then ", again, " runs the batch again")
        return
    # A backfill reads newer files only if asked to.
    anew = Replan(plan.pipeline, repaired=issubclass(kind, ExpectGapsToBeEmpty))
    yield from (f"{correct}, then ", anew)
    if question.then:
        yield from ("; or, if they may go, ", question.then)
    if issubclass(kind, FigureExpectation):
        table, column = question.title.removeprefix("Result table ").removesuffix(", figures"), _column(result)
        about_it = f'type = "{_type(result)}"{f", kwargs = {{column = {json.dumps(column)}}}" if column else ""}'
        expect = f'[tables.{json.dumps(table)}]\n      expect = [{{{about_it}, severity = "warning"}}]'
        yield from (f"; or, if that is as it should be, write into a file of settings\n      {expect}\n    and ", anew)
        yield " with `--settings` and that file"
    yield from ("; ", Run(plan.pipeline), " tries the same plan again")


def _kind(result: ExpectationValidationResult) -> Kind:
    """The kind: of the proof, or of the pipeline's own expectations."""
    of_rows = issubclass(_class(result), FigureExpectation) or not issubclass(_class(result), TableExpectation)
    return Kind.EXPECTATION if of_rows else Kind.PROOF


def _about(question: Question, result: ExpectationValidationResult, violations: pd.DataFrame) -> About:
    """The expectation, its table, and the difference, apart from its wording."""
    assert result.expectation_config is not None
    kind, seen = _class(result), result.result
    values = {name: seen[name] for name in ("unexpected_count", "observed_value") if seen.get(name) is not None}
    unexpected = [str(value) for value in seen.get("partial_unexpected_list") or ()]
    if issubclass(kind, CoverageExpectation):
        broken = violations[violations["violation"].isin(kind.violations)].drop(columns="sentence")
        unexpected += [" ".join(map(str, row)) for row in broken.itertuples(index=False)]
    return about(
        **values, unexpected=unexpected, table=question.title, expectation=_type(result), column=_column(result)
    )


def _column(result: ExpectationValidationResult) -> str | None:
    assert result.expectation_config is not None
    column: str | None = result.expectation_config.kwargs.get("column")
    return column


def _type(result: ExpectationValidationResult) -> str:
    assert result.expectation_config is not None
    kind: str = result.expectation_config.type
    return kind


def _class(result: ExpectationValidationResult) -> type[Expectation]:
    return get_expectation_impl(_type(result))


def _remedy(plan: Plan, question: Question, result: ExpectationValidationResult) -> str:
    """The expectation's own advice, if any."""
    kind = _class(result)
    if issubclass(kind, ExpectKeysToMeetInOneTask):
        read = {each.name for stage in plan.stages if stage.name == question.stage for each in stage.inputs}
        return apart(stream.declared for stream in plan.streams if stream.name in read)
    if issubclass(kind, ExpectRowsOfTablesToBalance):
        return (
            "if others changed a table, take that back or accept it; if the input or the pipeline is wrong, correct it"
        )
    if not issubclass(kind, CoverageExpectation):
        return ""
    streams = [stream.declared for stream in plan.streams] if kind is ExpectRecordsToHaveKeys else []
    return "; ".join([kind.remedy, *emptied(streams)])


def _misplaced(
    plan: Plan, question: Question, result: ExpectationValidationResult, violations: pd.DataFrame
) -> Iterator[Stream]:
    """The streams with records that do not lie where their keys hash. What lies so elsewhere, tasks left
    there."""
    kind, found = _class(result), set[str]()
    if issubclass(kind, ExpectKeysToHashToTheirPartition):
        found = {question.input}
    elif issubclass(kind, ExpectRecordsToLieWhereTheirKeysHash):
        found = set(violations[violations["violation"] == Violation.FOREIGN]["input"])
    return (stream.declared for stream in plan.streams if stream.name in found)


def _sentence(result: ExpectationValidationResult) -> str:
    """The expectation, as Great Expectations words it."""
    config = result.expectation_config
    assert config is not None
    if config.description:
        return f"{config.description.rstrip('.')}."
    value = InlineRenderer(render_object=config).get_rendered_content()[0].value
    values = {name: _number(param["value"]) for name, param in (value.params or {}).items()}
    return f"{Template(value.template or config.type).safe_substitute(values).rstrip('.')}."


def _number(value: Any) -> Any:
    """Great Expectations makes 500 from JSON a 500.0."""
    return f"{value:,.15g}" if isinstance(value, int | float) and not isinstance(value, bool) else value


def _exception(result: ExpectationValidationResult) -> list[str]:
    """Why the expectation could not be evaluated, if so."""
    info = result.exception_info or {}
    infos = [info] if "raised_exception" in info else list(info.values())
    why = (f"it cannot be evaluated: {one['exception_message']}" for one in infos if one.get("raised_exception"))
    return list(dict.fromkeys(why))


def _offenders(
    question: Question, result: ExpectationValidationResult, keys: pd.DataFrame, violations: pd.DataFrame, most: int
) -> list[str]:
    """The first offenders, in sentences, with key, partition and offset if known."""
    seen, kind = result.result, _class(result)
    if issubclass(kind, TableExpectation):
        told = [str(value) for value in seen.get("partial_unexpected_list", [])][:most]
        wanted = kind.violations if issubclass(kind, CoverageExpectation) else ()
        told += violations[violations["violation"].isin(wanted)]["sentence"].head(most).tolist()
        return told or ([str(seen.get("observed_value"))] if most else [])
    if "observed_value" in seen:
        return [f"observed: {seen['observed_value']}"]
    rows = seen.get("partial_unexpected_index_list") or []
    values = seen.get("partial_unexpected_list") or []
    # Only rows of result tables are judged by others' expectations.
    assert isinstance(question.rows, Rows)
    there = question.rows.at(rows[:most])
    shown = list(zip(rows, values, strict=False))[:most]
    return [f"{value!r} {_row(question, there[row], keys)}" for row, value in shown]


def _row(question: Question, row: Mapping[str, Any], keys: pd.DataFrame) -> str:
    """The origin of a result row: its key, its lineage columns, and where the audit saw that key first."""
    columns = key_columns(question.key or "")
    key = row[columns[0]] if len(columns) == 1 else _canonical([row[name] for name in columns])
    lineage = [f"{name} {value}" for name, value in row.items() if name.startswith("_")]
    seen = keys[(keys["stage"] == question.stage) & (keys["key"] == str(key))]
    places = [f"{record.input}-{record.partition} at offset {record.offset:,}" for record in each_row(seen)]
    known = "; ".join([", ".join(lineage)] * bool(lineage) + [f"its key is in {', '.join(places[:3])}"] * bool(places))
    said = MASK if is_private(question.key or "", question.private) else repr(key)
    return f"of key {said}" + f" ({known})" * bool(known)


def _canonical(values: Sequence[Any]) -> str:
    """The key of several columns with these values, as audit tables write it."""
    names = [f"part{number}" for number in range(len(values))]
    given = ", ".join(f"? AS {name}" for name in names)
    with connect_to_ask() as connection:
        ((made,),) = connection.execute(f"SELECT {canonical(names)} FROM (SELECT {given})", values).fetchall()
    return str(made)
