"""Pages about a backfill: what it would run, how its rows differ from those that readers saw, and what was decided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from coset.batches.backfills.outlook import Outlook, outlook
from coset.batches.backfills.repaired import input_changes
from coset.batches.backfills.swaps import in_force
from coset.reports import batch_index, next_steps
from coset.reports.site import Site
from coset.reports.templates import template
from partitioning.commands import BackfillAsking, Replan, Shown, SwapAsking, Then, Undo
from partitioning.diff.plan_diff import diff
from partitioning.diff.table_changes import known_same
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Finding
from partitioning.model.backfill import (
    Backfill,
    Comparison,
    InputChange,
    StateComparison,
    Swap,
    SwapKind,
    TableComparison,
)
from partitioning.model.plan import Plan
from partitioning.sections import Section, duration, many, markdown, section, size
from partitioning.texts import paragraph

_BATCHES = ("batch", "records", "bytes", "tasks before", "tasks now", "groups before", "groups now", "results")


def preview_sections(
    store: Store,
    pipeline: str,
    pairs: Sequence[tuple[Plan, Plan]],
    shown: Shown | None = None,
) -> tuple[Section, ...]:
    """Each batch as it was planned and as the backfill would plan it, the expected work, and what depends on the
    batches, with the commands for that."""
    shown = shown or next_steps.shown()
    ahead = outlook(store, pipeline, [before for before, _ in pairs])
    first, last = pairs[0][0].batch, pairs[-1][0].batch
    promised = {now.batch: _promised(before, now) for before, now in pairs}
    if ahead.accepted:
        promised[last] += f", but for what others changed in {' and '.join(ahead.accepted)}"
    sections = [
        _batches(f"What a backfill of {pipeline} would run", pairs, promised, _takes(pairs, ahead)),
        *_repairs([change for before, now in pairs for change in input_changes(before, now)]),
        _touched(ahead),
    ]
    if ahead.later:
        sections.append(
            _later(
                ahead,
                last,
                shown.line(BackfillAsking(pipeline, first, cascade=True)) or "",
                shown.says(Replan(pipeline)),
            )
        )
    return tuple(sections)


def comparison_sections(
    found: Comparison,
    blockers: Iterable[Finding] = (),
    shown: Shown | None = None,
) -> tuple[Section, ...]:
    """Which rows differ, the first of them, and the blockers of putting them in place, worded for where it is shown."""
    first = [(str(table.batch), table.table, *rows) for table in found.tables for rows in table.first_columns]
    last = str(found.plans[-1][0])
    first += [(last, state.step, *rows) for state in found.states for rows in state.first_columns]
    columns = ("batch", "table", "key", "before", "now")
    return (
        _tables(found, blockers, shown or next_steps.shown()),
        *_repairs(found.repairs),
        *([section("The first keys that differ", columns, first)] if first else []),
    )


def preview_page(store: Store, pipeline: str, pairs: Sequence[tuple[Plan, Plan]]) -> str:
    """The preview on a page of Markdown."""
    return markdown(preview_sections(store, pipeline, pairs))


def comparison_page(store: Store, backfill: Backfill, found: Comparison, blockers: Iterable[Finding] = ()) -> str:
    """The page for a reviewer: what was asked and why, how it was run, and which rows differ."""
    results = {number: _results(found, number) for number in backfill.batches}
    run_again = _batches("How its batches were run", tuple(_run_again(store, backfill)), results)
    shown = [run_again, *comparison_sections(found, blockers)]
    asked = f"Asked by {backfill.who} at {backfill.at}: {backfill.why or 'no reason was given'}."
    head = f"## B{str(backfill)[1:]}\n\n{paragraph(asked)}\n\n"
    return f"{head}{markdown(shown)}\nThe digest of this comparison is {digest(found)}.\n"


def _run_again(store: Store, backfill: Backfill) -> Iterator[tuple[Plan, Plan]]:
    layers, now = in_force(store, backfill.pipeline), Ledger(store, backfill.name)
    for batch in backfill.batches:
        before, again = layers.top(batch).plan(batch), now.plan(batch)
        assert before is not None
        assert again is not None
        yield before, again


def _batches(
    title: str, pairs: Sequence[tuple[Plan, Plan]], results: Mapping[int, str], notes: Iterable[str] = ()
) -> Section:
    """The batches with their results: those that were compared, or those that their plans promise."""
    rows = [(*_batch(before, now), results[now.batch]) for before, now in pairs]
    return section(title, _BATCHES, rows, notes)


def _promised(before: Plan, now: Plan) -> str:
    if any(input_changes(before, now)):
        return "Other input, so results may differ"
    return str(diff(before, now).results).partition(":")[0]


def _results(found: Comparison, batch: int) -> str:
    """How the tables of a batch differ from before, and after the last one what steps keep."""
    differ = [
        f"{many(table.keys, 'key')} of {table.table} differ"
        for table in found.tables
        if table.batch == batch and not table.same
    ]
    if batch == found.plans[-1][0]:
        differ += [f"{many(state.keys, 'key')} of {state} differ" for state in found.states if not state.same]
    return "; ".join(differ) or "The same"


def _takes(pairs: Sequence[tuple[Plan, Plan]], ahead: Outlook) -> Iterator[str]:
    """How much is read, how long that took, and what must stay the same."""
    read = sum(_bytes(now) for _, now in pairs)
    yield f"It reads {many(sum(now.records for _, now in pairs), 'record')}, {size(read)} of landed files."
    if len(ahead.seconds) == len(pairs):
        worked = duration(sum(ahead.seconds.values()))
        yield f"Expected: {worked} of work, as in the first runs; tasks that run at once share it."
    else:
        yield "It is not known how long the first runs took: receipts are gone."
    if ahead.keeps and not ahead.later:
        last = pairs[-1][0].batch
        yield f"The next batch continues from the state of {', '.join(ahead.keeps)} after batch {last}."
    elif not ahead.keeps:
        yield "No later batch depends on these: no step has state."
    if ahead.accepted:
        named = " and ".join(ahead.accepted)
        yield f"Somebody accepted what others changed in {named}: the backfill asks before it takes that back."


def _touched(ahead: Outlook) -> Section:
    """The tables, and which of their rows a swap exchanges."""
    rows = [
        (touched.write.table, touched.mode, f"{touched.rows:,}", touched.write.mode.swap) for touched in ahead.tables
    ]
    note = "Nothing records who reads them: pipelines read streams, not result tables."
    return section(
        "Tables that these batches write", ("table", "mode", "rows written", "what a swap does"), rows, [note]
    )


def _repairs(changes: Sequence[InputChange]) -> Iterator[Section]:
    """How the input differs from before."""
    if not changes:
        return
    columns = (
        "batch",
        "offsets",
        "files changed or new",
        "files gone",
        "records before",
        "records now",
        "added",
        "first",
    )
    rows = [
        (
            str(change.batch),
            change.range,
            *(f"{count:,}" for count in (*change.files, *change.records)),
            change.added_text,
            ", ".join(path.rpartition("/")[2] for path in change.first),
        )
        for change in changes
    ]
    note = "All other offsets are those of the first run; their records may have other values."
    yield section("The input was repaired", columns, rows, [note], optional=("added",))


def _later(ahead: Outlook, last: int, cascade: str, replan: str) -> Section:
    note = (
        f"They continued from the state of {', '.join(ahead.keeps)} after batch {last}. "
        "If that changes, nothing is put in place unless they are run again too."
    )
    rows = [
        (str(later.batch), "open", f"{replan}, after the swap")
        if later.open
        else (str(later.batch), "published", f"`{cascade}`")
        for later in ahead.later
    ]
    return section("Later batches", ("batch", "is", "is run again by"), rows, [note])


def _batch(before: Plan, now: Plan) -> tuple[str, ...]:
    counts = (_tasks(before), _tasks(now), len(before.groups), len(now.groups))
    return str(before.batch), f"{before.records:,}", size(_bytes(before)), *(f"{count:,}" for count in counts)


def _bytes(plan: Plan) -> int:
    return sum(partition.bytes for stream in plan.streams for partition in stream.partitions)


def _tasks(plan: Plan) -> int:
    return sum(len(stage.tasks) for stage in plan.stages)


def _tables(found: Comparison, blockers: Iterable[Finding], shown: Shown) -> Section:
    sides = [(str(table.batch), table.table, table.rows, table.keys) for table in found.tables]
    last = str(found.plans[-1][0])
    sides += [(last, str(state), state.rows, state.keys) for state in found.states]
    rows = [(batch, name, *(f"{count:,}" for count in (*counts, keys))) for batch, name, counts, keys in sides]
    columns = ("batch", "table", "rows before", "rows now", "keys that differ")
    title = f"Rows of backfill {found.backfill} of {found.pipeline}"
    return section(title, columns, rows, _notes(found, blockers, shown))


def _code(found: Comparison) -> Iterator[str]:
    """What is known of the code of functions."""
    compared = found.code_compared
    if same := [path for path, digests in compared.items() if known_same(*digests)]:
        yield f"Functions have the same code as before: {', '.join(same)}."
    changed = {path: digests for path, digests in compared.items() if all(digests) and not known_same(*digests)}
    if changed:
        listed = ", ".join(f"{path} ({before}, now {now})" for path, (before, now) in changed.items())
        yield f"Functions have other code than before: {listed}."
    unknown = [path for path, digests in compared.items() if not all(digests)]
    if unknown := unknown or ([] if compared else list(found.functions)):
        yield f"Functions whose code was not noted before, so only their names are the same: {', '.join(unknown)}."


def _notes(found: Comparison, blockers: Iterable[Finding], shown: Shown) -> Iterator[str]:
    yield f"Compared: {found}."
    if found.changes:
        yield f"The pipeline was changed: {'; '.join(found.changes)}."
    if found.taken_back:
        yield f"The changes of others in {', '.join(found.taken_back)} would be taken back."
    for was, now in found.engines or ():
        yield f"It was run in DuckDB {now}, before in {was}."
    yield from _code(found)
    for finding in blockers:
        yield f"It cannot be put in place: {finding.what} ({finding.where}). Next: {shown.says(finding.next)}."


def put_comparison(site: Site, found: Comparison, blockers: Sequence[Finding] = (), decided: Swap | None = None) -> str:
    """Write the page, with the blockers of the swap and the last decision on it, and the index. Returns the page's path
    in the folder."""
    written = put_page(site, found, blockers, decided)
    row = {"number": found.backfill, "summary": str(found), "same": found.same, "page": _name(found)}
    batch_index.compare(site, found.pipeline, row, [batch for batch, _, _ in found.plans])
    return written


def put_page(site: Site, found: Comparison, blockers: Sequence[Finding] = (), decided: Swap | None = None) -> str:
    """The same without the index."""
    sides: list[tuple[int, str, TableComparison | StateComparison]]
    sides = [(table.batch, table.table, table) for table in found.tables]
    sides += [(found.plans[-1][0], str(state), state) for state in found.states]
    text = template("backfill.html").render(
        found=found,
        sides=sides,
        blockers=blockers,
        digest=digest(found),
        decided=_said(decided) if decided else "",
        then=_then(found, decided),
        says=next_steps.shown().says,
    )
    site.store.put(f"{found.pipeline}/docs/{_name(found)}", text.encode())
    return str(site.write(found.pipeline, _name(found), text))


def _name(found: Comparison) -> str:
    return f"backfill-{found.backfill}.html"


def _said(decided: Swap) -> str:
    """What was decided, by whom and why."""
    match decided.turn:
        case SwapKind.SWAP:
            what = "It is in place: readers see its rows"
        case SwapKind.UNDO:
            what = "It was taken back: readers see the rows of before it"
        case SwapKind.CANCEL:
            what = "It was cancelled: readers never saw its rows"
    return f"{what}. {decided.who}, {decided.at}" + (f": {decided.why}" if decided.why else "")


def _then(found: Comparison, decided: Swap | None) -> Then:
    """What can be done about it next."""
    put = SwapAsking(found.pipeline, found.backfill, digest(found))
    if decided is None:
        looked = (
            "look at what differs. If it is as it should be, ",
            put,
            " puts it in place. Readers see nothing of it before",
        )
        return looked if found.needs_approval else ""
    match decided.turn:
        case SwapKind.SWAP:
            return Undo(found.pipeline, found.backfill), " takes it back"
        case SwapKind.UNDO:
            return put, " puts it in place again"
        case SwapKind.CANCEL:
            return ""
