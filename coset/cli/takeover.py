"""Taking over from a Samza job: its checkpoints as the `[starts]` of a settings file for the first batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coset.cli import pipelines
from coset.cli.assign import parse_streams
from coset.cli.output import Answer
from coset.sources.discovery import discover
from partitioning.authoring.toml_writer import key
from partitioning.errors import Finding, Refused, noting, refuse
from partitioning.kinds import Kind
from partitioning.samza.checkpoints import Checkpoint, Start, read_checkpoints, starts
from partitioning.sections import many


@dataclass(frozen=True, slots=True)
class Offsets:
    """What a stream partition holds: its first offset and the one after its last, None where that is not known."""

    beginning: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Takeover:
    """Where the first batch starts, beside what the stream partitions hold, by stream.

    Of the streams `untouched` there are no checkpoints; the checkpoints of `others` were not asked for.
    """

    checkpoints: tuple[Checkpoint, ...]
    starts: Mapping[str, tuple[Start, ...]]
    held: Mapping[str, tuple[Offsets, ...]]
    untouched: tuple[str, ...]
    others: tuple[str, ...]

    def all_starts(self) -> Iterator[Start]:
        """The starts of all streams."""
        for of_stream in self.starts.values():
            yield from of_stream

    def settings(self) -> dict[str, int]:
        """The starts that are not the stream partition's own beginning."""
        return {
            str(start.partition): start.offset
            for stream, begun in self.starts.items()
            for start, held in zip(begun, self.held[stream], strict=True)
            if start.offset > held.beginning
        }


def take_over(file: Path, streams: Sequence[str], pipeline: str | None, system: str | None) -> Answer:
    """Where the first batch has to start, as TOML for `--settings`.

    Raises Refused, with all findings, if the file holds something else than checkpoints, if these have no meaning,
    or if they do not fit what has landed.
    """
    checkpoints = _read(file)
    if bool(streams) == (pipeline is not None):
        what = "it is not said which streams there are" if pipeline is None else "the streams are given twice"
        then = "give --stream views=8 for each, or --pipeline PIPELINE"
        raise Refused.of(Kind.ARGUMENT, what, "--stream, --pipeline", then, pipeline=pipeline, streams=streams)
    counted = {name: (Offsets(),) * count for name, count in parse_streams(streams)}
    held = _landed(pipeline) if pipeline is not None else counted
    over = _taken_over(checkpoints, held, system, str(file), all_needed=pipeline is None)
    return Answer(_document(over), _lines(over, file))


def _read(file: Path) -> tuple[Checkpoint, ...]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        then = "name the file that Samza's CheckpointTool printed to"
        what = f"the checkpoints cannot be read: {error}"
        raise Refused.of(Kind.LOCAL_FILE, what, str(file), then, file=file) from error
    return read_checkpoints(text, str(file))


def _landed(named: str) -> dict[str, tuple[Offsets, ...]]:
    """What has landed of a pipeline's streams. Tables are read whole in every batch, so they have no start."""
    declared = [stream for stream in pipelines.load(named).streams if not stream.table]
    return {
        stream.stream: tuple(Offsets(partition.beginning, partition.end) for partition in stream.partitions)
        for stream in discover(declared)
    }


def _taken_over(
    checkpoints: tuple[Checkpoint, ...],
    held: Mapping[str, tuple[Offsets, ...]],
    system: str | None,
    where: str,
    *,
    all_needed: bool,
) -> Takeover:
    """Where the streams start. Those without any checkpoint are a finding, if `all_needed` or if all are so."""
    findings: list[Finding] = []
    begun: dict[str, tuple[Start, ...]] = {}
    untouched: list[str] = []
    for stream, partitions in held.items():
        with noting(findings):
            owner = _system(checkpoints, stream, system, where)
            if owner is None:
                untouched.append(stream)
                continue
            begun[stream] = starts(checkpoints, owner, stream, [partition.beginning for partition in partitions])
            findings.extend(_not_landed(begun[stream], partitions))
    if untouched and (all_needed or not begun):
        findings.extend(_no_checkpoints(untouched, checkpoints, where))
    refuse(findings)
    others = {_name(checkpoint) for checkpoint in checkpoints if checkpoint.stream not in begun}
    return Takeover(checkpoints, begun, held, tuple(untouched), tuple(sorted(others)))


def _system(checkpoints: Sequence[Checkpoint], stream: str, asked: str | None, where: str) -> str | None:
    """Whose stream it is in Samza; None if there is no checkpoint of it. Raises Refused if it is several systems'."""
    owners = {checkpoint.system for checkpoint in checkpoints if checkpoint.stream == stream}
    owners &= {asked} if asked is not None else owners
    if len(owners) > 1:
        what = f"{stream} is a stream of several systems: {', '.join(sorted(owners))}"
        then = "say whose it is with --system"
        raise Refused.of(Kind.CHECKPOINTS, what, where, then, stream=stream, owners=sorted(owners))
    return next(iter(owners), None)


def _no_checkpoints(streams: Sequence[str], checkpoints: Sequence[Checkpoint], where: str) -> Iterator[Finding]:
    names = ", ".join(sorted({_name(checkpoint) for checkpoint in checkpoints})) or "none"
    for stream in streams:
        what = f"there is no checkpoint of {stream}"
        yield Finding.of(Kind.CHECKPOINTS, what, where, f"correct the name; there are those of {names}", stream=stream)


def _name(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.system}.{checkpoint.stream}"


def _not_landed(begun: Sequence[Start], held: Sequence[Offsets]) -> Iterator[Finding]:
    """Starts with which the first batch would be refused."""
    for start, landed in zip(begun, held, strict=True):
        if landed.end is None or landed.beginning <= start.offset <= landed.end:
            continue
        then, wrong = "land the topic up to there", "not landed yet"
        if start.offset < landed.beginning:
            then = f"land what is missing, or go on without it: {key(str(start.partition))} = {landed.beginning}"
            wrong = "not landed any more"
        what = f"{start.partition} has to start at {start.offset}, but [{landed.beginning},{landed.end}) has landed"
        yield Finding.of(
            Kind.CHECKPOINTS,
            what,
            "checkpoints",
            then,
            wrong=wrong,
            partition=start.partition,
            offset=start.offset,
            beginning=landed.beginning,
            end=landed.end,
        )


def _lines(over: Takeover, file: Path) -> Iterator[str]:
    tasks = len({checkpoint.task for checkpoint in over.checkpoints})
    yield f"# From {file.name}: {many(len(over.checkpoints), 'checkpoint')} of {many(tasks, 'task')}."
    yield from (f"# {stream} has no checkpoint: it starts at its beginning." for stream in over.untouched)
    yield from (f"# {stream} has checkpoints, but is none of these streams." for stream in over.others)
    yield "[starts]"
    begun = over.settings()
    for start in over.all_starts():
        yield from (f"# read again: {again}" for again in start.again)
        name = str(start.partition)
        yield f"{key(name)} = {begun[name]}" if name in begun else f"# {name} starts at its beginning"


def _document(over: Takeover) -> dict[str, Any]:
    return {
        "starts": over.settings(),
        "partitions": [
            {
                "partition": str(start.partition),
                "start": start.offset,
                "again": [
                    {"start": again.range.start, "end": again.range.end, "buckets": again.buckets, "of": again.of}
                    for again in start.again
                ],
            }
            for start in over.all_starts()
        ],
        "without_checkpoints": over.untouched,
        "not_asked_for": over.others,
    }
