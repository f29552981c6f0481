"""Kept states: the steps whose state does not simply continue between two plans, and the cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from partitioning.model.graph import Mode
from partitioning.model.kept_change import How
from partitioning.model.plan import Plan, PlannedWrite
from partitioning.model.stage_inputs import StateInput
from partitioning.planning.beginnings import Beginning, beginnings, mixing
from partitioning.planning.origins import graph_of, said
from partitioning.sections import many, size
from partitioning.values import Value

_ASKED = "as asked for by its name"
# Rows that a core reads, makes anew and writes in a second, as `python -m bench.in_time` measures it.
MIGRATED_A_SECOND = 600_000


class StateChange(Value, frozen=True):
    """A step that keeps something: its fate, the reason, the tables that come from it, and the cost."""

    step: str
    outcome: str
    why: tuple[str, ...]
    tables: tuple[str, ...]
    costs: str = ""


def state_changes(before: Plan, now: Plan) -> Iterator[StateChange]:
    """The steps that begin with nothing although a table depends on them, or continue although something before them
    changed, or continue from other columns or under another name."""
    written = {write.declared.table: None for write in before.writes()}
    engine = now.planned_for if now.planned_for.was == before.planned_for.version else None
    found = {each.step: each for each in mixing(graph_of(now), graph_of(before), engine)}
    found |= {each.step: each for each in beginnings(graph_of(now), graph_of(before), written)}
    reads = {read.step: read for stage in now.stages for read in stage.inputs if isinstance(read, StateInput)}
    asked = {*(now.anew or ()), *(now.on or ())}
    changed = [read.step for read in reads.values() if read.changes or read.was]
    for step in dict.fromkeys([*sorted(asked), *found, *changed]):
        known = found.get(step, Beginning(step, ()))
        read = reads.get(step)
        outcome = "migrates what it kept" if read and read.migration else "goes on from what it kept"
        why = (*_why(known), *([_ASKED] if step in asked else []), *(_changes(read) if read else ()))
        tables = tuple(write.table for write in known.tables)
        if read:
            yield StateChange(step, outcome, why, tables, _costs(read) if step in changed else "")
        else:
            yield StateChange(step, "begins with nothing", why, tables, _loses(now, tables))


def kept_sentences(plan: Plan) -> Iterator[str]:
    """What becomes in a batch of what changed steps kept, a sentence or two each, as the plan itself says."""
    for read in (read for stage in plan.stages for read in stage.inputs if isinstance(read, StateInput)):
        if read.changes or read.was:
            way = "migrates" if read.migration else "goes on"
            costs = _costs(read)
            why = "; ".join(_changes(read))
            yield f"What {read.step} keeps {way}: {why}. {costs[0].upper()}{costs[1:]}."
    for step in plan.anew or ():
        yield f"{step} begins with nothing, {_ASKED}."
    for step in plan.on or ():
        yield f"{step} goes on from what it kept, {_ASKED}, although something before it changed."
    yield from plan.as_asked.values()


def _changes(read: StateInput) -> Iterator[str]:
    if read.was:
        yield f"it was {read.was} before"
    if read.migration and read.migration.function:
        yield f"{read.migration.function} makes new rows of old ones"
    yield from (str(change) for change in read.changes if change.sql or change.how is not How.MIGRATED)


def _costs(read: StateInput) -> str:
    """What is read, and what is written, because the step was changed."""
    runs = [run for run in read.runs if read.migration or run.version]
    rows, amount = sum(run.records for run in runs), sum(run.bytes for run in runs)
    sized = many(rows, "row") + (f" ({size(amount)})" if amount else "")
    if read.migration:
        seconds = f"about {max(1, round(rows / MIGRATED_A_SECOND)):,} s of CPU time"
        return f"{sized} are read and written again, once, in {seconds}; old keys are held against new ones"
    if not read.changes:
        return "nothing is written again"
    return f"{sized} in {many(len(runs), 'run')} are read so from now on; none of them is written again for it"


def _loses(plan: Plan, tables: tuple[str, ...]) -> str:
    """What tables lose if a step before them begins with nothing."""
    held, writes = plan.rows_held, {write.declared.table: write for write in plan.writes()}
    return "; ".join(_loss(writes[table], held) for table in tables if table in writes)


def _loss(write: PlannedWrite, held: Mapping[str, int]) -> str:
    table = write.declared.table
    rows = many(held[table], "row") if table in held else "rows"
    if write.declared.mode is Mode.UPSERT:
        return f"{table} has {rows} and loses those of keys that do not come in this batch"
    return f"{table} keeps its {rows}; new ones know nothing of earlier batches"


def _why(beginning: Beginning) -> Iterator[str]:
    if beginning.renamed:
        yield f"it does what {beginning.renamed} did"
    elif beginning.tables and not beginning.changes:
        yield "it is new"
    yield from map(said, beginning.changes)
