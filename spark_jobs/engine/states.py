"""State of a step in one task: the SQL that reads this batch's part of it, and writes the new state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa
from msgspec import UnsetType

from partitioning.model.graph import Op, StateSpec, Step, quote, state_of
from partitioning.model.leaving import BATCH, GONE, TIME, state_columns
from partitioning.model.stage_inputs import StateInput
from partitioning.model.streams import Column
from spark_jobs.engine.relations import Relations

# A column that says whether this batch has records of a row's key.
GOT = "@got"
_GOT = quote(GOT)


def task_state(
    relations: Relations,
    step: Step,
    batch: int,
    day_end: int | UnsetType | None,
    read: StateInput | None,
    known: str | None,
    *,
    whole: bool,
) -> TaskState:
    """The state of a step in the database of its task. `known` is the query for the rows of `read`, if it has rows.

    With `whole` all keys are read, not only those that this batch needs.
    """
    assert step.state
    kind = KeptForTime if step.state.sql else KeptLives if step.state.of_lives else KeptByKey
    return kind(relations, step, step.state, batch, day_end, read, known, whole=whole)


def all_kept(keeps: StateSpec, read: StateInput, known: str, day_end: int | UnsetType | None) -> str:
    """The query for the state of all keys. The table `known` has the rows of all runs."""
    columns = ", ".join(quote(column.name) for column in keeps.columns)
    if keeps.sql:
        return f"SELECT {columns} FROM ({_young(keeps, read, known, day_end)})"
    if keeps.of_lives:
        return f"SELECT {columns} FROM ({_newest(_key(keeps), known)}) WHERE NOT {_is_over(keeps)}"
    return f"SELECT {columns} FROM ({_newest(_key(keeps), known)}) WHERE NOT {quote(GONE.name)}"


def rows_of_now(keeps: StateSpec, read: StateInput, known: str, day_end: int | UnsetType | None) -> str:
    """The query for the rows that count, of all runs' rows, with their marks."""
    if keeps.sql:
        return _young(keeps, read, known, day_end)
    if keeps.of_lives:
        return _young(keeps, read, f"({_newest(_key(keeps), known)})", day_end)
    return f"SELECT * FROM ({_newest(_key(keeps), known)}) WHERE NOT {quote(GONE.name)}"


class TaskState(ABC):
    """The state of a step. Its rows are a relation in SQL, named `<step>.state`."""

    def __init__(
        self,
        relations: Relations,
        step: Step,
        keeps: StateSpec,
        batch: int,
        day_end: int | UnsetType | None,
        read: StateInput | None,
        known: str | None,
        *,
        whole: bool,
    ) -> None:
        nothing = _nulls(state_columns(keeps))
        self._relations = relations
        self._connection = relations.connection
        self.step = step
        self._keeps = keeps
        self._batch = batch
        self._day_end = day_end
        self._read = read
        self._whole = whole
        self._known = known or f"SELECT {nothing} WHERE false"
        if read and (added := [column for column in keeps.columns if column not in read.columns]):
            self._known = f"SELECT *, {_nulls(added)} FROM ({self._known})"
        # Rows of batches after this one are in merged runs, which this task writes again.
        self._unmerged = read.unmerged if read else -1
        self._columns = ", ".join(quote(column.name) for column in keeps.columns)
        self._name = quote(state_of(step.name))
        # The rows that the step needs, or that are written again.
        self._needed = quote(needed_of(step))

    @abstractmethod
    def open(self) -> None:
        """Read the state, and give it its name in SQL. The relations that the step reads exist by then."""

    @abstractmethod
    def left(self) -> str:
        """The query for the rows to write. The step's own relation exists by then."""

    def _is_new(self, relation: str) -> str:
        """The query for rows that are new in this batch."""
        marks = f"{self._batch}::BIGINT AS {quote(BATCH.name)}, false AS {quote(GONE.name)}"
        return f"SELECT {self._columns}, {marks} FROM {relation}"

    def _needs(self, sql: str, of_step: str, *found: str) -> None:
        """Store the needed rows of the relations `found`. The condition `of_step` selects those that the step sees."""
        key = self._keeps.placement.key if self._keeps.placement else ""
        where = f"state of step {self.step.name!r}"
        self._relations.create_by_keys(needed_of(self.step), sql, dict.fromkeys(found, key), where)
        self._connection.execute(
            f"CREATE TEMP VIEW {self._name} AS SELECT {self._columns} FROM {self._needed} {of_step}"
        )

    def _again(self, condition: str) -> str:
        """The query for rows of merged runs, which are written again."""
        columns = f"{self._columns}, {quote(BATCH.name)}, {quote(GONE.name)}"
        return f"SELECT {columns} FROM {self._needed} WHERE {quote(BATCH.name)} > {self._unmerged} AND {condition}"


class KeptForTime(TaskState):
    """State of rows with a time. New rows are added; a row goes when its time is over."""

    def open(self) -> None:
        found = quote(found_of(self.step))
        # DuckDB may scan the input of a window twice, and an intake can be read only once.
        if self._keeps.newest:
            self._connection.execute(f"CREATE TEMP TABLE {found} AS {self._known}")
        rows = found if self._keeps.newest else f"({self._known})"
        stored = [found_of(self.step)] if self._keeps.newest else []
        self._needs(_young(self._keeps, self._read, rows, self._day_end), "", *stored)
        self._connection.execute(f"DROP TABLE IF EXISTS {found}")

    def left(self) -> str:
        return f"{self._is_new(f'({self._keeps.sql})')} UNION ALL {self._again('true')}"


class KeptByKey(TaskState):
    """State by key. The new rows of a key replace all its earlier rows.

    A key without rows any more gets a row that says so, while older runs may have rows of it. A key of the relations
    `but` stays as it is, whatever has come of it.
    """

    but: Sequence[str] = ()
    # Spares the state's other rows the way into SQL, if only those of some keys, or of later batches than one, count.
    narrow: Callable[[pa.Array, int], None] | None = None

    @property
    def _key(self) -> str:
        return _key(self._keeps)

    @property
    def made(self) -> str:
        """The name of the relation with the new state of this batch's keys."""
        is_another = self.step.function or self.step.op is Op.TABLE
        return f"{self.step.name}.state@made" if is_another else self.step.name

    @property
    def rows(self) -> str:
        """That relation in SQL."""
        return quote(self.made)

    @property
    def both(self) -> tuple[str, str]:
        """The queries for the rows of this batch's keys, as they are and as they were, in the columns that are kept."""
        now, was = (f"SELECT {self._columns} FROM {rows}" for rows in (self.rows, self._name))
        return now, was

    def open(self) -> None:
        found = quote(found_of(self.step))
        if self._whole:
            self._find("true")
        else:
            if self.narrow and self._key != "0":
                self.narrow(self._connection.sql(self._came()).to_arrow_table()[0].combine_chunks(), self._unmerged)
            self._find(f"{_GOT} OR {quote(BATCH.name)} > {self._unmerged}")
        self._needs(_newest(self._key, found), f"WHERE {_GOT} AND NOT {quote(GONE.name)}", found_of(self.step))
        self._connection.execute(f"DROP TABLE {found}")

    def _find(self, needed: str) -> None:
        """Store the rows of all runs that are `needed`, each with whether this batch has its key."""
        # A join would perhaps hold all rows that are kept, to look for the few keys among them. And DuckDB may scan the
        # input of a window twice, and an intake can be read only once.
        came = f"SELECT 1 FROM ({self._came()}) AS got WHERE {self._of('known')} IS NOT DISTINCT FROM got.{_GOT}"
        marked = f"SELECT known.*, EXISTS ({came}) AS {_GOT} FROM ({self._known}) AS known"
        self._connection.execute(
            f"CREATE TEMP TABLE {quote(found_of(self.step))} AS SELECT * FROM ({marked}) WHERE {needed}"
        )

    def _came(self) -> str:
        """The query for the keys of this batch."""
        if self._key == "0":
            return f"SELECT 0 AS {_GOT}"
        keys = [f"SELECT DISTINCT {self._key} AS {_GOT} FROM {quote(name)}" for name in self.step.inputs]
        return " UNION ".join(keys) + "".join(f" EXCEPT SELECT * FROM {unseen}" for unseen in self.but)

    def begin_anew(self, name: str, more: str) -> None:
        """Add the keys that were kept, and did not come, to an input, with the columns `more`: they come now."""
        self._connection.execute(f"UPDATE {self._needed} SET {_GOT} = true")
        gone = f"SELECT {self._key}, {more} FROM {self._name} ANTI JOIN {quote(name)} USING ({self._key})"
        self._connection.execute(f"INSERT INTO temp.{quote(name)} BY NAME {gone}")

    def leave_equal(self, name: str) -> None:
        """Let keys of an input of which the same row came that was kept be such of which none came."""
        now, was = self.both
        equal = quote(f"{name}@equal")
        self._connection.execute(f"CREATE TEMP TABLE {equal} AS SELECT {self._key} FROM ({now} INTERSECT {was})")
        for relation in (self.rows, quote(name)):
            self._connection.execute(f"DELETE FROM temp.{relation} WHERE {self._key} IN (FROM {equal})")
        self._connection.execute(
            f"UPDATE {self._needed} SET {_GOT} = false WHERE {self._key} NOT IN "
            f"(SELECT {self._key} FROM temp.{quote(name)} WHERE {self._key} IS NOT NULL)"
        )

    def left(self) -> str:
        # Without older runs, a key that has no row has no state.
        older = self._unmerged >= 0
        again = self._again(f"NOT {_GOT}" if older else f"NOT {_GOT} AND NOT {quote(GONE.name)}")
        return " UNION ALL ".join([self._is_new(self.rows), again, *([self._dropped] if older else [])])

    def all(self, since: int | None = None) -> str:
        """The query for the new state of all keys, with a row for each dropped key.

        The column `GOT` says whether this batch has the row's key, or a batch `since` another one has brought the row.
        The other columns are those of `left`.
        """
        columns = f"{self._columns}, {quote(BATCH.name)}, {quote(GONE.name)}"
        others = f"SELECT {columns}, {_came(since)} FROM {self._needed} WHERE NOT {_GOT} AND NOT {quote(GONE.name)}"
        got = f"SELECT *, true AS {quote(GOT)} FROM ({self._is_new(self.rows)} UNION ALL {self._dropped})"
        return f"{got} UNION ALL {others}"

    def replaced(self, since: int | None = None) -> str:
        """The query for the rows that those with `GOT` take the place of."""
        again = f"FROM {self._needed} WHERE NOT {_GOT} AND NOT {quote(GONE.name)} AND {_came(since)}"
        return f"SELECT * FROM {self._name} UNION ALL SELECT {self._columns} {again}"

    def rows_of_all(self) -> str:
        """The query for the new state of all keys, in the step's own columns."""
        return f"SELECT {self._columns} FROM ({self.all()}) WHERE NOT {quote(GONE.name)}"

    @property
    def _dropped(self) -> str:
        """The query for the keys that had state and have none any more."""
        columns = ", ".join(
            self._key if quote(column.name) == self._key else _nulls([column]) for column in self._keeps.columns
        )
        made = f"SELECT 1 FROM {self.rows} AS made WHERE {self._of('made')} IS NOT DISTINCT FROM {self._of('needed')}"
        keys = f"SELECT DISTINCT {self._key} FROM {self._needed} WHERE {_GOT}"
        return f"SELECT {columns}, {self._batch}::BIGINT, true FROM ({keys}) AS needed WHERE NOT EXISTS ({made})"

    def _of(self, relation: str) -> str:
        return self._key if self._key == "0" else f"{relation}.{self._key}"


class KeptLives(KeptByKey):
    """State by key of which rows expire. The step also sees those that expire in this batch, and leaves none of them.

    The time tells what was over before, so nothing has to say that a key has no rows any more.
    """

    def open(self) -> None:
        # A row counts only if no newer run has its key, and any row may be over: all of them are looked at.
        self._find("true")
        found, over = quote(found_of(self.step)), _is_over(self._keeps)
        young = _young(self._keeps, self._read, f"({_newest(self._key, found)})", self._day_end)
        needed = f"{_GOT} OR {over} OR {quote(BATCH.name)} > {self._unmerged}"
        self._needs(f"SELECT * FROM ({young}) WHERE {needed}", f"WHERE {_GOT} OR {over}", found_of(self.step))
        stay = f"SELECT {self._key} FROM ({young}) WHERE NOT {_GOT} AND NOT {over}"
        self._connection.execute(f"CREATE TEMP VIEW {self.unseen} AS {stay}")

    @property
    def unseen(self) -> str:
        """The relation with the keys of lives that stay and that the step does not see, as none of their records came.
        Another life of theirs may be over."""
        return quote(f"{self.step.name}.state@unseen")

    def left(self) -> str:
        stays = f"NOT {_is_over(self._keeps)}"
        new = self._is_new(f"(SELECT * FROM {self.rows} WHERE {stays})")
        return f"{new} UNION ALL {self._again(f'NOT {_GOT} AND {stays}')}"


def found_of(step: Step) -> str:
    """The relation with the rows of all runs of a step's state, each with its batch."""
    return f"{state_of(step.name)}@found"


def needed_of(step: Step) -> str:
    """The relation with the rows of a step's state that it needs, or that are written again."""
    return f"{state_of(step.name)}@needed"


def _came(since: int | None) -> str:
    """Whether a row came after a batch."""
    return "false" if since is None else f"{quote(BATCH.name)} > {since}"


def _is_over(keeps: StateSpec) -> str:
    """Whether a row of a life is over by the watermark of this batch."""
    now = keeps.watermark.now if keeps.watermark else None
    return "false" if now is None else f"({quote(TIME.name)} < {now - keeps.microseconds})"


def _young(keeps: StateSpec, read: StateInput | None, relation: str, day_end: int | UnsetType | None) -> str:
    """The query for the rows whose time is not over; of versions also the newest of each key that is older."""
    since, time = keeps.since(read.latest if read else None, day_end), quote(TIME.name)
    if since is None:
        return f"SELECT * FROM {relation}"
    if keeps.newest:
        older = f"max({time}) FILTER ({time} < {since}) OVER (PARTITION BY {_key(keeps)})"
        return f"SELECT * FROM {relation} QUALIFY {time} >= {since} OR {time} = {older}"
    return f"SELECT * FROM {relation} WHERE {time} >= {since}"


def _nulls(columns: Iterable[Column]) -> str:
    """A SELECT list of null columns."""
    return ", ".join(f"NULL::{column.type} AS {quote(column.name)}" for column in columns)


def _newest(key: str, relation: str) -> str:
    """The query for each key's rows in the newest run that has the key."""
    batch = quote(BATCH.name)
    return f"SELECT * FROM {relation} QUALIFY {batch} = max({batch}) OVER (PARTITION BY {key})"


def _key(keeps: StateSpec) -> str:
    """The SQL of the key. Without a key column there is one key, 0."""
    key = keeps.placement.key if keeps.placement else ""
    return quote(key) if key else "0"
