"""Sizes on the command line: schemes compared, what is proposed and why, and hot keys. Nothing is stored.

The proposal may be written to a settings file, for the next batch to be planned by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from coset.batches.ends import known_after
from coset.batches.history import history
from coset.cli import pipelines
from coset.cli.candidates import Basis, Compared, Row, basis, compare
from coset.cli.machine import writing
from coset.cli.output import Answer, Block, Table
from partitioning.authoring.settings import Settings
from partitioning.authoring.toml_writer import to_toml
from partitioning.commands import Option, Run
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.model.plan import Plan
from partitioning.model.schemes import HotKeys, Scheme
from partitioning.model.statistics import Statistics
from partitioning.sections import many, percent, size
from partitioning.sizing.hotkeys import HotKey, HotOwn, HotPartition, HotSplit, hot_keys
from partitioning.sizing.proposal import Proposal, Targets
from partitioning.sizing.workload import LEFT, Footprint
from partitioning.values import Value

# How many batches back the proposal looks, if no longer cool-down is asked for.
_BATCHES = 10
_MOST_HOT = 20


def schemes(
    named: str, root: str, settings: Settings, asked: Sequence[str], targets: Targets, write: Path | None
) -> Answer:
    """Compare schemes on what the next batch would read; else on what the open or last batch reads. Those that are
    `asked` for come beside those that always are. The proposal is written to a file if one is named."""
    pipeline = pipelines.load(named)
    store = store_at(root)
    ledger = Ledger(store, pipeline.name)
    standing = ledger.standing()
    past = history(ledger, standing.published, max(_BATCHES, targets.cooldown + 1))
    compared_on = basis(pipeline, standing, known_after(ledger, standing.published).ends, past, settings)
    if isinstance(compared_on, str):
        sentence = f"Nothing to compare: {compared_on}"
        lists = ("stages", "hot_partitions", "hot_keys", "hot_splits", "hot_joins", "hot_own")
        nothing: dict[str, Any] = {name: [] for name in lists} | {"hot_keys": None}
        return Answer({"sentence": sentence, **nothing}, [sentence])
    compared = compare(compared_on, settings, asked, targets)
    hot = _hot(standing.published, past, targets)
    written = []
    if write:
        _write(write, pipeline.name, compared.proposal, settings)
        line = pipelines.shown().line(Run(pipeline.name), Option("--settings", (str(write),)))
        written = ["", f"Written to {write}: `{line}` plans by what is proposed"]
    return Answer(partial(_document, compared_on, compared, hot), chain(told(compared_on, compared, hot), written))


def _write(file: Path, pipeline: str, proposal: Proposal, settings: Settings) -> None:
    """Write the settings that are proposed, the others as they are, with the reasons as comments."""
    reasons = [f"# {sized.stage}: {sized.before} -> {sized.tasks} tasks, {sized.why}" for sized in proposal.stages]
    head = f"# Proposed by `coset schemes {pipeline}`."
    text = "\n".join([head, *reasons, f"# groups: {proposal.why}", "", to_toml(proposal.settings(settings))])
    with writing(file, "the settings"):
        file.write_text(text, encoding="utf-8")


def _hot(published: Plan | None, past: Sequence[Statistics], targets: Targets) -> tuple[HotKey, ...] | None:
    """The hot keys of the last published batch; None if its receipts are not there."""
    if published is None or not past or past[-1].batch != published.batch:
        return None
    return hot_keys(published, past[-1], targets.max_tasks)


def told(compared_on: Basis, compared: Compared, hot: tuple[HotKey, ...] | None) -> Iterator[Block]:
    """A table for each stage, what is proposed and why, the hot partitions if there are any, and the hot keys."""
    yield from (f"{compared_on.sentence}.", *([] if compared_on.history else [_NO_HISTORY]), _LEGEND, "")
    for sized in compared.proposal.stages:
        rows = compared.rows[sized.stage]
        notes = [f"Proposed: {sized.scheme or 'no change'}. {_sentence(sized.why)}"]
        yield Table(f"Stage {sized.stage}", _COLUMNS, map(_cells, rows), notes)
        for row in rows:
            for finding in row.findings:
                yield from (f"{', '.join(row.names)} is refused: {finding.what}", "")
    proposal = compared.proposal
    yield from (f"Task groups: {proposal.groups} proposed. {_sentence(proposal.why)}", "")
    if compared.hot:
        yield _hot_partitions(compared)
    yield _hot_keys(hot)
    if compared.splits:
        yield _hot_splits(compared.splits)
    if compared.joins:
        yield _hot_own("Hot keys of joins, split", HotKeys.SPLIT, "would have tasks", compared.joins)
    if compared.own:
        yield _hot_own("Hot keys, each in a task of its own", HotKeys.OWN_TASK, "would have task", compared.own)


_NO_HISTORY = "No batch was published yet, so the proposal goes by bytes only."
_COLUMNS = (
    "scheme",
    "tasks",
    "reads",
    "× size",
    "filter",
    "mean",
    "heaviest",
    "× mean",
    "work",
    "task",
    "exchanges",
    "moved",
    "groups × mean",
)
_LEGEND = (
    "Tasks read `× size` of what there is, the mean and the heaviest so many bytes; `filter` of them leave records to "
    f"others. `work` counts a byte so left as {float(LEFT)}: the hardest-working `task` has so much."
)


def _cells(row: Row) -> tuple[object, ...]:
    name, figures = ", ".join(row.names), row.figures
    if figures is None:
        return (f"{name}: refused", *[None] * (len(_COLUMNS) - 1))
    return (
        name,
        figures.tasks,
        figures.reads,
        _times(figures.amplification),
        figures.filtering,
        size(round(figures.mean)),
        size(figures.heaviest),
        _times(figures.heaviest / figures.mean) if figures.mean else 1.0,
        size(figures.work),
        str(figures.worst),
        figures.exchanges,
        _moved(figures),
        _times(figures.skew),
    )


def _times(share: Fraction) -> float:
    return round(float(share), 2)


def _moved(figures: Footprint) -> str:
    if not figures.exchanges:
        return "nothing"
    records, moved = figures.moved.records, figures.moved.bytes
    if records is None or moved is None:
        return "unknown"
    return f"{many(records, 'record')}, {size(moved)}"


def _sentence(why: str) -> str:
    return f"{why[0].upper()}{why[1:]}."


def _hot_partitions(compared: Compared) -> Table:
    columns = ("partition", "stage", "records", "× mean", "setting", "what it does, or what to do first")
    rows = [
        (str(hot), hot.stage, hot.records, _times(hot.of_mean), _setting(hot, row), _spread(row))
        for hot, row in compared.hot[:_MOST_HOT]
    ]
    return Table("Hot partitions", columns, rows, _heaviest(len(compared.hot)))


def _hot_splits(splits: Sequence[HotSplit]) -> Table:
    columns = ("partition", "stage", "task", "holds", "key", "has", "split in", "longest task", "moves at most")
    rows = [
        (
            str(split),
            split.stage,
            str(split.task),
            percent(split.of_stage),
            split.key,
            percent(split.of_key),
            split.tasks,
            _shorter(split.longest),
            f"+{size(split.moves)}",
        )
        for split in splits[:_MOST_HOT]
    ]
    notes = ['`hot_keys = "split"` in a settings file plans the next batch so.', *_heaviest(len(splits))]
    return Table("Hot keys, split", columns, rows, notes)


def _hot_own(title: str, hot_keys: HotKeys, would_have: str, keys: Sequence[HotOwn]) -> Table:
    columns = ("key", "stage", "has", "is in task", would_have, "longest task", "reads again at most")
    rows = [
        (
            own.key,
            own.stage,
            percent(own.of_stage),
            str(own.beside),
            str(own.task) if own.tasks == 1 else f"{own.task} to {own.task + own.tasks - 1}",
            _shorter(own.longest),
            f"+{size(own.reads_again)}",
        )
        for own in keys[:_MOST_HOT]
    ]
    notes = [f'`hot_keys = "{hot_keys}"` in a settings file plans the next batch so.', *_heaviest(len(keys))]
    return Table(title, columns, rows, notes)


def _shorter(longest: Fraction) -> str:
    """How much shorter the longest task would be."""
    return f"−{percent(max(Fraction(0), 1 - longest))}"


def _heaviest(count: int) -> list[str]:
    return [f"The heaviest {_MOST_HOT} of {count}."] if count > _MOST_HOT else []


def _setting(hot: HotPartition, row: Row) -> str:
    return f"--scheme '{hot.stage}={hot.scheme}'" if row.figures is not None else "none"


def _spread(row: Row) -> str:
    """What the setting does; where it is refused, what has to be done first."""
    if row.figures is None:
        return "; ".join(dict.fromkeys(pipelines.shown().says(finding.next) for finding in row.findings))
    return f"{many(row.figures.tasks, 'task')}, the heaviest of which reads {size(row.figures.heaviest)}"


def _hot_keys(hot: tuple[HotKey, ...] | None) -> Block:
    if hot is None:
        return "Hot keys: unknown, as there are no receipts of a published batch."
    columns = ("key", "stage", "task", "records", "of its task", "of a mean task", "remedy", "why")
    rows = [
        (
            key.key,
            key.stage,
            str(key.task),
            key.records,
            percent(key.of_task),
            percent(key.of_mean),
            f"{key.remedy}: {key.scheme}" if key.scheme else key.remedy,
            key.why,
        )
        for key in hot[:_MOST_HOT]
    ]
    none = "Hot keys: none in the last published batch."
    return Table("Hot keys of the last published batch", columns, rows, _heaviest(len(hot)), empty=none)


def _document(compared_on: Basis, compared: Compared, hot: tuple[HotKey, ...] | None) -> dict[str, Any]:
    proposal = compared.proposal
    return {
        "sentence": compared_on.sentence,
        "history": [batch.batch for batch in compared_on.history],
        "stages": [
            {
                "stage": sized.stage,
                "proposed": _text(sized.scheme),
                "tasks": sized.tasks,
                "before": sized.before,
                "why": sized.why,
                "schemes": [_plain(row) for row in compared.rows[sized.stage]],
            }
            for sized in proposal.stages
        ],
        "groups": {"proposed": proposal.groups, "why": proposal.why},
        "hot_partitions": [
            _fields(hot) | {"scheme": _text(hot.scheme), "refused": pipelines.told(row.findings)}
            for hot, row in compared.hot
        ],
        "hot_keys": None
        if hot is None
        else [{"key": key.key} | _fields(key) | {"scheme": _text(key.scheme)} for key in hot],
        "hot_splits": list(map(_fields, compared.splits)),
        "hot_joins": list(map(_fields, compared.joins)),
        "hot_own": [{name: value for name, value in _fields(own).items() if name != "tasks"} for own in compared.own],
    }


def _plain(row: Row) -> dict[str, Any]:
    findings = pipelines.told(row.findings)
    figures = row.figures
    if figures is None:
        return {"names": row.names, "refused": findings}
    return {
        "names": row.names,
        "refused": findings,
        "tasks": figures.tasks,
        "reads": figures.reads,
        "amplification": float(figures.amplification),
        "filtering": figures.filtering,
        "bytes": {"mean": float(figures.mean), "heaviest": figures.heaviest},
        "work": {"heaviest": figures.work, "task": figures.worst},
        "exchanges": figures.exchanges,
        "moved": {"records": figures.moved.records, "bytes": figures.moved.bytes},
        "groups": {"count": figures.groups, "skew": float(figures.skew)},
    }


def _fields(hot: Value) -> dict[str, Any]:
    fields: dict[str, Any] = to_builtins(hot, enc_hook=float)
    return fields


def _text(scheme: Scheme | None) -> str | None:
    return None if scheme is None else str(scheme)
