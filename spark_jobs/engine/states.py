"""State of a step in one task: what it kept, as far as this batch has to do with it, and what it keeps from now on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

import duckdb

from partitioning.model.graph import Op, StateSpec, Step, quote, state_of
from partitioning.model.leaving import BATCH, GONE, TIME, state_columns
from partitioning.model.plan import StateInput
from partitioning.model.streams import Column

# Whether this batch has the key of a row.
GOT = "@got"
_GOT = quote(GOT)


def task_state(
    connection: duckdb.DuckDBPyConnection,
    step: Step,
    batch: int,
    read: StateInput | None,
    known: str | None,
    *,
    whole: bool,
) -> TaskState:
    """The state of a step, in the database of its task; `known` selects the rows of `read`, if there are any.

    It is `whole` if all of it is asked for, and not only what has to do with this batch.
    """
    assert step.state
    kind = KeptForTime if step.state.sql else KeptByKey
    return kind(connection, step, step.state, batch, read, known, whole=whole)


def all_kept(keeps: StateSpec, read: StateInput, known: str) -> str:
    """The query for all that is kept, of whatever key; the table `known` has the rows of all runs."""
    columns = ", ".join(quote(column.name) for column in keeps.columns)
    if keeps.sql:
        return f"SELECT {columns} FROM ({_young(keeps, read, known)})"
    return f"SELECT {columns} FROM ({_newest(_key(keeps), known)}) WHERE NOT {quote(GONE.name)}"


class TaskState(ABC):
    """What a step kept and keeps. It is a relation of its own in SQL, named `<step>.state`."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        step: Step,
        keeps: StateSpec,
        batch: int,
        read: StateInput | None,
        known: str | None,
        *,
        whole: bool,
    ) -> None:
        nothing = _nulls(state_columns(keeps))
        self._connection = connection
        self._step = step
        self._keeps = keeps
        self._batch = batch
        self._read = read
        self._whole = whole
        self._known = known or f"SELECT {nothing} WHERE false"
        if read and (added := [column for column in keeps.columns if column not in read.columns]):
            self._known = f"SELECT *, {_nulls(added)} FROM ({self._known})"
        # What was left since that batch is left anew.
        self._unmerged = read.unmerged if read else -1
        self._columns = ", ".join(quote(column.name) for column in keeps.columns)
        self._name = quote(state_of(step.name))
        # What is needed of it: by the step, or to be left anew.
        self._needed = quote(f"{step.name}.state@needed")

    @abstractmethod
    def open(self) -> None:
        """Read what was kept. What the step reads has its name in SQL."""

    @abstractmethod
    def left(self) -> str:
        """The query for the rows to leave; the step has its name in SQL too."""

    def _is_new(self, relation: str) -> str:
        """The query for rows that this batch leaves first."""
        marks = f"{self._batch}::BIGINT AS {quote(BATCH.name)}, false AS {quote(GONE.name)}"
        return f"SELECT {self._columns}, {marks} FROM {relation}"

    def _needs(self, sql: str, of_step: str) -> None:
        """Keep the rows that are needed, of which the step is given some."""
        self._connection.execute(f"CREATE TEMP TABLE {self._needed} AS {sql}")
        self._connection.execute(
            f"CREATE TEMP VIEW {self._name} AS SELECT {self._columns} FROM {self._needed} {of_step}"
        )

    def _again(self, condition: str) -> str:
        """The query for rows that are left anew."""
        columns = f"{self._columns}, {quote(BATCH.name)}, {quote(GONE.name)}"
        return f"SELECT {columns} FROM {self._needed} WHERE {quote(BATCH.name)} > {self._unmerged} AND {condition}"


class KeptForTime(TaskState):
    """Rows that stay beside those that were kept before, until their time is over."""

    def open(self) -> None:
        self._needs(_young(self._keeps, self._read, f"({self._known})"), "")

    def left(self) -> str:
        return f"{self._is_new(f'({self._keeps.sql})')} UNION ALL {self._again('true')}"


class KeptByKey(TaskState):
    """Rows that take the place of whatever was kept of the keys that this batch has.

    A key of which nothing is kept any more has a row that says so, as long as older runs may have others.
    """

    @property
    def _key(self) -> str:
        return _key(self._keeps)

    @property
    def rows(self) -> str:
        """The relation that holds what the step keeps of the keys it got."""
        is_another = self._step.function or self._step.op is Op.TABLE
        return quote(f"{self._step.name}.state@made" if is_another else self._step.name)

    def open(self) -> None:
        got = f"SELECT DISTINCT {self._key} AS {_GOT} FROM {quote(self._step.inputs[0])}"
        if self._key == "0":
            got = f"SELECT 0 AS {_GOT}"
        batch, found = quote(BATCH.name), quote(f"{self._step.name}.state@found")
        joined = f"({self._known}) AS known LEFT JOIN (SELECT *, true AS is_got FROM ({got})) AS got"
        needed = "true" if self._whole else f"is_got OR known.{batch} > {self._unmerged}"
        # DuckDB may look twice at what a window is over, and what is read is read once.
        self._connection.execute(
            f"CREATE TEMP TABLE {found} AS SELECT known.*, is_got IS NOT NULL AS {_GOT} FROM {joined} "
            f"ON {self._of('known')} IS NOT DISTINCT FROM got.{_GOT} WHERE {needed}"
        )
        self._needs(_newest(self._key, found), f"WHERE {_GOT} AND NOT {quote(GONE.name)}")
        self._connection.execute(f"DROP TABLE {found}")

    def left(self) -> str:
        # Where nothing older is left, a key without rows is one of which nothing is kept.
        older = self._unmerged >= 0
        again = self._again(f"NOT {_GOT}" if older else f"NOT {_GOT} AND NOT {quote(GONE.name)}")
        return " UNION ALL ".join([self._is_new(self.rows), again, *([self._dropped] if older else [])])

    def all(self) -> str:
        """The query for all rows that are kept now, and one for each key that was dropped.

        Beside the columns of what is left, `GOT` says which of them are of keys that this batch has.
        """
        columns = f"{self._columns}, {quote(BATCH.name)}, {quote(GONE.name)}"
        others = f"SELECT {columns}, false FROM {self._needed} WHERE NOT {_GOT} AND NOT {quote(GONE.name)}"
        got = f"SELECT *, true AS {quote(GOT)} FROM ({self._is_new(self.rows)} UNION ALL {self._dropped})"
        return f"{got} UNION ALL {others}"

    def rows_of_all(self) -> str:
        """The query for all rows that are kept now, without any marks."""
        return f"SELECT {self._columns} FROM ({self.all()}) WHERE NOT {quote(GONE.name)}"

    @property
    def _dropped(self) -> str:
        """The query for the keys of which something was kept, and is not any more."""
        columns = ", ".join(
            self._key if quote(column.name) == self._key else _nulls([column]) for column in self._keeps.columns
        )
        made = f"SELECT 1 FROM {self.rows} AS made WHERE {self._of('made')} IS NOT DISTINCT FROM {self._of('needed')}"
        keys = f"SELECT DISTINCT {self._key} FROM {self._needed} WHERE {_GOT}"
        return f"SELECT {columns}, {self._batch}::BIGINT, true FROM ({keys}) AS needed WHERE NOT EXISTS ({made})"

    def _of(self, relation: str) -> str:
        return self._key if self._key == "0" else f"{relation}.{self._key}"


def _young(keeps: StateSpec, read: StateInput | None, relation: str) -> str:
    """The query for the rows whose time is not over."""
    since = keeps.since(read.latest if read else None)
    young = "true" if since is None else f"{quote(TIME.name)} >= {since}"
    return f"SELECT * FROM {relation} WHERE {young}"


def _nulls(columns: Iterable[Column]) -> str:
    """A SELECT's list of columns without values."""
    return ", ".join(f"NULL::{column.type} AS {quote(column.name)}" for column in columns)


def _newest(key: str, relation: str) -> str:
    """The query for the rows of the newest run that has their key."""
    batch = quote(BATCH.name)
    return f"SELECT * FROM {relation} QUALIFY {batch} = max({batch}) OVER (PARTITION BY {key})"


def _key(keeps: StateSpec) -> str:
    """What tells keys apart: without a key column there is but one."""
    key = keeps.placement.key if keeps.placement else ""
    return quote(key) if key else "0"
