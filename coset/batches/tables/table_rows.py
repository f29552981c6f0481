"""Counts the rows of result tables, by their own logs, before and after a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from coset.batches.tables.acceptance import accepted_up_to
from coset.batches.tables.dead_rows import DeadRows, count_dying, dying, without_keys
from coset.batches.tables.delta import newest_in
from coset.batches.tables.live_files import LiveFile, has_vectors, live_files
from coset.batches.tables.log_copy import TableLog
from coset.batches.tables.logs import Logs, opened, opened_whole
from coset.batches.tables.others import changes
from coset.batches.tables.table_reader import live_rows
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.model.composite_key import key_columns
from partitioning.model.graph import Write, quote
from partitioning.model.plan import Plan, PlannedWrite
from partitioning.model.receipt import MODULUS, Artefact, Made, Role, TaskReceipt, files_of
from partitioning.model.table_mode import Updates
from partitioning.model.table_parts import TablePart
from partitioning.sections import many
from partitioning.values import replace
from spark_jobs.tables.table_schema import RESIDUE, folder, keyed


def rows_held(store: Store, writes: Iterable[Write], logs: Logs | None = None) -> dict[str, int]:
    """The number of rows of each existing table."""
    held = dict[str, int]()
    for write in writes:
        with opened(folder(store, write.table), logs) as table:
            if table is not None:
                held[write.table] = sum(_by_partition(table).values())
    return held


def parts_held(store: Store, writes: Iterable[Write], logs: Logs | None = None) -> dict[str, tuple[TablePart, ...]]:
    """The partitions of each existing table beside whose rows new ones may be written."""
    held = dict[str, tuple[TablePart, ...]]()
    for write in (write for write in writes if write.updates is Updates.BESIDE):
        with opened(folder(store, write.table), logs) as table:
            if table is not None:
                parts = parts_of(live_files(table))
                # Rows that others changed stay as they are until their partition is written again.
                kept = accepted_up_to(table, write.table) < 0
                held[write.table] = parts if kept else tuple(replace(part, base=None) for part in parts)
    return held


def parts_of(files: Iterable[LiveFile]) -> tuple[TablePart, ...]:
    """The partitions of an upserted table, of which these are the files."""
    by_number = dict[int, list[LiveFile]]()
    for file in files:
        by_number.setdefault(file.partition, []).append(file)
    return tuple(_part(number, some) for number, some in sorted(by_number.items()))


def _part(number: int, files: Sequence[LiveFile]) -> TablePart:
    dead, largest = sum(each.dead for each in files), max(files, key=lambda each: each.written)
    base = largest.batch
    if base is None:
        # Files that were put together came before the batches of others.
        base = min((each.batch - 1 for each in files if each.batch is not None), default=None)
    return TablePart(number, len(files), sum(each.written for each in files) - dead, dead, base)


def rows_kept(ledger: Ledger, plan: Plan, left: Sequence[Artefact], logs: Logs) -> list[dict[str, object]]:
    """A row for each table that batches do not only append to: its name, and its rows `before` and `after` the batch.

    `asked` says whether the user allowed rows to go, or made the table's step begin anew. A backfill's batch has no
    rows here: its result is compared before it is put in place.
    """
    rows = list[dict[str, object]]()
    asked = {*plan.allowance.named, *plan.anew}
    for write in plan.writes() if ledger.original is None else ():
        table = write.declared.table
        if write.declared.mode.only_adds:
            continue
        files = files_of(left, table)
        with opened(folder(ledger.store, table), logs) as log:
            before = sum(_by_partition(log).values()) if log is not None else 0
            stay = _stay(ledger.store, write, log, files)
        after = stay + sum(file.records for file in files if file.role is Role.TABLE)
        rows.append(
            {"table": table, "before": before, "after": after, "asked": bool({table, write.declared.step} & asked)}
        )
    return rows


def rows_balanced(ledger: Ledger, plan: Plan, tasks: Sequence[TaskReceipt], logs: Logs) -> Iterator[dict[str, object]]:
    """A row for each partition of an upserted table in which a batch has keys, one for its others, and one for any
    other table: its rows `before` the batch, by the log; those `gone` and `come`, by the receipts; and those `after`
    it, as steps made them. Where new rows are written beside others, the rows after it are those before without those
    that have a replaced key in the table itself, and the new ones.

    `others` says what others did to the table since the last batch, and `wrong` that rows of other keys would go than
    those that were replaced, in its first row. `unheld` says why a table's numbers are missing or agree by
    construction. A table that has the batch has no row, nor has one of a backfill's batch, as it holds later batches.
    """
    for write in plan.writes() if ledger.original is None else ():
        name = write.declared.table
        with opened(folder(ledger.store, name), logs) as log:
            newest = newest_in(log, plan.pipeline, name) if log is not None else None
            if newest is not None and newest >= plan.batch:
                continue
            others = "; ".join(changes(log, write.declared, plan.pipeline)) if log is not None else ""
            accepted = log is not None and accepted_up_to(log, name) >= 0
            held = _by_partition(log) if log is not None else Counter[int]()
            left = files_of((file for task in tasks for file in task.artefacts), name)
            rows = dying(log, ledger.store, write, left) if log is not None else []
        dead = count_dying(rows)
        beside = {number: held[number] - dead[number] for number in held if write.is_beside(number)}
        made = [each for task in tasks for each in task.made or () if (each.role, each.name) == (Role.TABLE, name)]
        wrong = "" if accepted else _other_keys(write, rows, made)
        for number, row in enumerate(_balanced(write, held, beside, made, accepted=accepted)):
            yield {"table": name, "others": "" if number else others, "wrong": "" if number else wrong} | row


def _other_keys(write: PlannedWrite, rows: Sequence[DeadRows], made: Sequence[Made]) -> str:
    """What is wrong if the rows that would be dead are not those of the keys that steps replaced. Empty if nothing
    is."""
    told = [each.replaced for each in made if each.replaced]
    if not told:
        return ""
    found = keyed(write, [batch for each in rows for batch in each.rows.to_batches()])
    digest = sum(int(each.digest, 16) for each in told) % MODULUS
    if (sum(each.rows for each in told), f"{digest:016x}") == (found.rows, found.digest):
        return ""
    count = sum(each.rows for each in told)
    replaced = f"{many(count, 'key')} {'was' if count == 1 else 'were'} replaced"
    # A digest does not say which version of Coset made it.
    unless = ", unless tasks ran in another version of Coset: a new attempt tells" if count == found.rows else ""
    return f"{replaced}, and {many(found.rows, 'row')} of the table would go, which are not theirs alone{unless}"


def _balanced(
    write: PlannedWrite, held: Counter[int], beside: Mapping[int, int], made: Sequence[Made], *, accepted: bool
) -> Iterator[dict[str, object]]:
    if not write.declared.mode.by_key or write.anew:
        # What it has then is what steps made, or that beside what it has: nothing else tells how many rows that is.
        before, come = held.total(), sum(each.records for each in made)
        kept = before if write.declared.mode.only_adds else 0
        how = write.declared.mode.happens
        yield {"before": before, "gone": before - kept, "come": come, "after": kept + come, "unheld": how}
    elif accepted:
        again = "is counted again once all its rows are written anew, as a backfill up to the newest batch does"
        yield {"unheld": f"has rows that somebody accepted, and {again}"}
    elif any(each.changed is None for each in made):
        yield {"unheld": "was counted by an earlier version"}
    else:
        yield from _by_changes(held, beside, made)


def _by_changes(held: Counter[int], beside: Mapping[int, int], made: Sequence[Made]) -> Iterator[dict[str, object]]:
    """A row for each partition of which steps made rows anew, or whose rows went, and one for all others. `beside` has
    the rows that stay where new ones are written beside them."""
    gone, come, after = Counter[int](), Counter[int](), Counter[int]()
    for each in made:
        after.update(dict(each.parts))
        for part in each.changed or ():
            gone[part.partition] += part.gone
            come[part.partition] += part.come
    numbers = sorted(gone.keys() | after.keys())
    for number in numbers:
        rows = {"before": held[number], "gone": gone[number], "come": come[number]}
        rows["after"] = beside.get(number, 0) + after[number]
        yield {"partition": number, "unheld": ""} | rows
    others = held.total() - sum(held[number] for number in numbers)
    if others or not numbers:
        yield {"before": others, "gone": 0, "come": 0, "after": others, "unheld": ""}


def rows_left(
    store: Store, write: PlannedWrite, files: Sequence[Artefact], logs: Logs | None = None
) -> tuple[int, Callable[[Sequence[str]], Iterator[pa.RecordBatch]]]:
    """How many rows stay of an upserted table beside these files of a batch, and how to read columns of them."""
    where = folder(store, write.declared.table)
    with opened(where, logs) as log:
        count = _stay(store, write, log, files)

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if not count:  # To open it takes a request for each commit.
            return
        with opened_whole(where) as log:
            if log is not None:
                written = ", ".join(map(str, sorted(_written(write, files))))
                stay = f"{quote(RESIDUE)} NOT IN ({written})" if written else "true"
                needed = list(dict.fromkeys([*columns, *key_columns(write.declared.key)]))
                yield from without_keys(live_rows(log, needed, stay), store, write, files, columns)

    return count, read


def _stay(store: Store, write: PlannedWrite, log: TableLog | None, files: Sequence[Artefact]) -> int:
    """How many of a table's rows the batch leaves in place."""
    if log is None or write.anew or not write.declared.mode.keeps:
        return 0
    written = _written(write, files)
    stay = sum(rows for partition, rows in _by_partition(log).items() if partition not in written)
    return stay - count_dying(dying(log, store, write, files)).total()


def _written(write: PlannedWrite, files: Sequence[Artefact]) -> set[int]:
    """The partitions that a batch writes again, whole."""
    return {part.partition for file in files for part in file.parts if not write.is_beside(part.partition)}


def _by_partition(table: TableLog) -> Counter[int]:
    """The number of rows of each partition, by the log."""
    rows = Counter[int]()
    if has_vectors(table):
        for each in live_files(table):
            rows[each.partition] += each.written - each.dead
        return rows
    for file in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        rows[file.get(f"partition.{RESIDUE}") or 0] += file.get("num_records") or 0
    return rows
