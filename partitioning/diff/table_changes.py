"""Which result tables and states the steps of a new plan fill differently than those of an old one, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import field

from partitioning.model.graph import How, Op, Step
from partitioning.model.plan import Plan, PlannedWrite
from partitioning.model.stage_inputs import PlannedStream, StateInput
from partitioning.model.streams import renamed
from partitioning.planning.beginnings import Beginning, beginnings, mixing
from partitioning.planning.origins import said
from partitioning.sections import many, size
from partitioning.values import Value, replace

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
    found = {each.step: each for each in mixing(now.graph, before.graph, engine)}
    found |= {each.step: each for each in beginnings(now.graph, before.graph, written)}
    reads = {read.step: read for read in now.states}
    asked = {*now.anew, *now.on}
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
    for read in plan.states:
        if read.changes or read.was:
            way = "migrates" if read.migration else "goes on"
            costs = _costs(read)
            why = "; ".join(_changes(read))
            yield f"What {read.step} keeps {way}: {why}. {costs[0].upper()}{costs[1:]}."
    for step in plan.anew:
        yield f"{step} begins with nothing, {_ASKED}."
    for step in plan.on:
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
    held, writes = plan.held, {write.declared.table: write for write in plan.writes()}
    return "; ".join(_loss(writes[table], held) for table in tables if table in writes)


def _loss(write: PlannedWrite, held: Mapping[str, int]) -> str:
    table = write.declared.table
    rows = many(held[table], "row") if table in held else "rows"
    if write.declared.mode.by_key:
        return f"{table} has {rows} and loses those of keys that do not come in this batch"
    return f"{table} keeps its {rows}; new ones know nothing of earlier batches"


def _why(beginning: Beginning) -> Iterator[str]:
    if beginning.renamed:
        yield f"it does what {beginning.renamed} did"
    elif beginning.tables and not beginning.changes:
        yield "it is new"
    yield from map(said, beginning.changes)


class Results(Value, frozen=True):
    """The tables of a new plan against those of an old one: `changed` gives for each the reasons.

    `functions` are the steps behind tables that stay the same whose functions are not known to have the same code.
    `code` has all functions behind these tables by import path, each with the digests of its code, before and now;
    empty where a plan does not note it. `engines` are the versions of DuckDB before and now, if they differ. Of those
    that are added, some `lack` what came of the records of earlier batches.
    """

    same: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: Mapping[str, tuple[str, ...]]
    functions: tuple[str, ...]
    code: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    engines: tuple[str, str] | None = None
    lack: tuple[str, ...] = ()

    def __str__(self) -> str:
        """What becomes of the results, in a sentence.

        >>> print(Results(("delays",), (), (), {"late": ("SQL of late.filter",)}, ()))
        Results change: late (SQL of late.filter). The others stay the same: delays.
        """
        differences = [
            *(f"{table} ({', '.join(reasons)})" for table, reasons in self.changed.items()),
            *(
                f"{table} is new{', without the records of earlier batches' * (table in self.lack)}"
                for table in self.added
            ),
            *(f"{table} is no longer written" for table in self.removed),
        ]
        unless = [f"the functions of {', '.join(self.functions)} still do the same"] * bool(self.functions)
        if self.engines:
            unless.append("DuckDB {1} answers as {0} did".format(*self.engines))
        provided = f" (provided that {' and '.join(unless)})" if unless else ""
        if not differences:
            return f"Results stay the same: each table comes from the same steps on the same keys{provided}."
        rest = f" The others stay the same: {', '.join(self.same)}{provided}." if self.same else ""
        return f"Results change: {', '.join(differences)}.{rest}"


def results(before: Plan, now: Plan) -> Results:
    """Compare the tables by all that they come from: columns, steps and the declarations of streams.

    How many tasks, groups or exchanges there are makes no difference, nor how merges are nested.
    """
    old, new = _Origins(before), _Origins(now)
    old_tables = {write.declared.table: write for write in before.writes()}
    new_tables = {write.declared.table: write for write in now.writes()}
    reasons = {
        table: tuple(_reasons(old_tables[table], write, old, new))
        for table, write in new_tables.items()
        if table in old_tables
    }
    back = [table for table, rows in now.held.items() if rows and table in new_tables.keys() - old_tables.keys()]
    same = tuple(table for table, why in reasons.items() if not why)
    behind = {name for table in same for name in new.behind(new_tables[table].declared.step)}
    calls = {name: step.function for name, step in new.steps.items() if name in behind and step.function}
    code = {path: (before.code.get(path, ""), now.code.get(path, "")) for path in calls.values()}
    return Results(
        same,
        tuple(table for table in new_tables if table not in {*old_tables, *back}),
        tuple(table for table in old_tables if table not in new_tables),
        {table: why for table, why in reasons.items() if why}
        | dict.fromkeys(back, ("the batch before did not write it",)),
        tuple(name for name, path in calls.items() if not known_same(*code[path])),
        code,
        None if (were := before.planned_for.version) == (are := now.planned_for.version) else (were, are),
    )


def known_same(before: str, now: str) -> bool:
    """Whether two digests of code are those of the same code; what is not known is none."""
    return bool(before) and before == now


def _reasons(before: PlannedWrite, now: PlannedWrite, old: _Origins, new: _Origins) -> list[str]:
    reasons = []
    if before.columns != now.columns:
        reasons.append("its columns")
    if before.declared.lineage != now.declared.lineage:
        reasons.append("lineage columns")
    if before.declared.mode != now.declared.mode:
        reasons.append("its mode")
    if other := before.declared.step != now.declared.step:
        reasons.append(f"it holds {now.declared.step}, before {before.declared.step}")
    for name in new.behind(now.declared.step):
        if known := old.facts(name):
            reasons.extend(f"{fact} of {name}" for fact, value in new.facts(name).items() if value != known.get(fact))
            was, now_is = old.streams.get(name), new.streams.get(name)
            if was and now_is and renamed(was.ids, now_is.ids):
                reasons.append(f"names of columns of {name}")
        elif not other:
            reasons.append(f"{name} is new")
    return reasons


class _Origins:
    """The origins of the steps of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.steps: dict[str, Step] = {step.name: step for step in plan.steps}
        self.streams: dict[str, PlannedStream] = {stream.name: stream for stream in plan.streams}

    def behind(self, name: str) -> list[str]:
        """The stream or step and all that it comes from, sources first; of merges within merges the outer one."""
        seen, order, todo = {name}, [], [name]
        while todo:
            order.append(relation := todo.pop())
            for source in self._sources(relation):
                if source not in seen:
                    seen.add(source)
                    todo.append(source)
        return order[::-1]

    def facts(self, name: str) -> dict[str, object]:
        """What the records of a stream or step depend on, beside its sources' records."""
        if name in self.streams:
            declared = self.streams[name].declared
            return {
                "source": declared.source,
                "key": (declared.key, declared.key_format),
                "offset column": None if declared.counted else declared.offset,
                "format": declared.format,
                "declared columns": tuple(sorted(declared.columns.items())),
                "cast": sorted(declared.cast.items()),
                "form of changes": declared.changes,
                "time": declared.time,
                "bad_records": bool(declared.bad_records),
                "records without a key": declared.null_keys,
                "declaration as a table": declared.table,
            }
        if (step := self.steps.get(name)) is None:
            return {}
        return {
            "SQL": sorted(self._sources(name)) if step.op == "merge" else step.sql,
            # Where a partial step's rows lie, or what state a step has, does not change the rows.
            "key": (step.key, step.key_format, step.rekeys and step.op is not Op.PARTIAL),
            "state": step.state and replace(step.state, placement=None, changed=None, watermark=None),
            # A step gets the keys of what a filter leaves out, too.
            "inputs": step.inputs if step.op is Op.UPSERT else (),
            "function": (step.function, step.columns, step.inputs if step.on_dataframes else ()),
        }

    def _sources(self, name: str) -> list[str]:
        """The inputs of a step; for a merge, the inputs of the merges inside it."""
        if (step := self.steps.get(name)) is None:
            return []
        sources, todo = [], list(step.inputs[::-1])
        while todo:
            source = self.steps.get(input_name := todo.pop())
            if step.op == "merge" and source is not None and source.op == "merge":
                todo.extend(source.inputs[::-1])
            else:
                sources.append(input_name)
        return sources
