"""Expectations on keys: on any table of keys with the task or partition where they were found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from great_expectations.compatibility import pydantic

from expectations.judging import TableExpectation, TableRecords
from expectations.key_hashes import hashes_or_why, schema_id_of
from partitioning.hashes import hash_of
from partitioning.model.placement import (
    HASHES_OF_BYTES,
    KNOWN_HASHES,
    MURMUR2,
    HashName,
    KeyFormat,
    any_of,
    each_of,
    hash_schema,
    is_known,
    json_fields,
    keeps_empty,
    possible_hashes,
    schema_hash,
)
from partitioning.sections import many

_HOME = "the partition it belongs in"
# The detail of a result that names the hash by which all keys lie where they do.
FITS = "hash that fits"
# The detail of a result that names the fewer partitions by which all other keys lie where they do.
GREW = "partitions before"
# The detail of a result that names the id of the registry's schema under which all other keys lie where they do.
UNDER = "schema of the others"
# The detail of a result that names the hash by which all other keys lie where they do.
SECOND = "hash of the others"
# The detail of a result that says how many keys lie in several partitions, if no hash explains where they lie.
SPREAD = "keys in several partitions"
# Fewer keys may lie so by chance.
_ENOUGH = 10
_SURELY = 10_000
# A hash that places so large a part of keys explains where they lie.
_MOST = 0.75


class ExpectKeysToMeetInOneTask(TableExpectation):
    """Expect rows with equal keys to be in one task.

    Args:
        key_columns: the column or columns that make a key; rows where one of them is null are not judged.
        task_column: the column that says which task a row was in.
        shown_columns: further columns to show with an offender, such as its partition and offset.

    A result table written with `lineage=True` has the task of each row in `_task`.
    """

    sentence = "Rows with the same $key_columns are in the same $task_column."
    args_keys: ClassVar[tuple[str, ...]] = ("key_columns", "task_column", "shown_columns")
    success_keys: ClassVar[tuple[str, ...]] = args_keys

    key_columns: list[str] = pydantic.Field(min_items=1)
    task_column: str = "_task"
    shown_columns: list[str] = pydantic.Field(default_factory=list)

    def needs(self) -> list[str]:
        return [*self.key_columns, self.task_column, *self.shown_columns]

    def _judge(self, frame: pd.DataFrame) -> tuple[str, int, int, Iterable[str]]:
        # Not pandas' groupby, which compares keys only up to a NUL.
        judged = frame[[*self.key_columns, self.task_column]].dropna(subset=self.key_columns)
        # 0.0 and -0.0 are one key in SQL and two in Arrow.
        signed = judged[self.key_columns].select_dtypes("floating").columns
        plain = judged.assign(**{column: judged[column] + 0.0 for column in signed})
        # Of few keys, threads would take longer to begin.
        keyed = pa.Table.from_pandas(plain, preserve_index=False, nthreads=1)
        keys = keyed.group_by(self.key_columns, use_threads=False).aggregate(
            [(self.task_column, "count_distinct", pc.CountOptions(mode="all"))]
        )
        split = keys.filter(pc.greater(keys[f"{self.task_column}_count_distinct"], 1)).select(self.key_columns)
        seen = f"{many(len(keys), 'key')} in {many(frame[self.task_column].nunique(), 'task')}"
        return seen, len(keys), len(split), (self._sentence(frame, key) for key in split.to_pylist())

    def _sentence(self, frame: pd.DataFrame, key: dict[str, Any]) -> str:
        rows = frame
        for column, value in key.items():
            rows = rows[rows[column] == value]
        first = rows.drop_duplicates(self.task_column).head(3)
        places = [f"{self.task_column} {row[self.task_column]}{self._shown(row)}" for _, row in first.iterrows()]
        return f"{', '.join(repr(value) for value in key.values())} is in {' and in '.join(places)}"

    def _shown(self, row: pd.Series) -> str:
        shown = ", ".join(f"{column} {row[column]}" for column in self.shown_columns)
        return f" ({shown})" if shown else ""


class ExpectKeysToHashToTheirPartition(TableExpectation):
    """Expect each key to lie where its producer puts it: in partitions ≡ `hash` of the key, mod `partitions`.

    Args:
        key_column: the column of keys; rows where it is null are not judged.
        partition_column: the column that says in which partition a row was found.
        partitions: how many partitions the topic has.
        key_format: how the producer serialises keys: string, long, int, double, uuid or bytes.
        hash: how the producer places them: murmur2, crc32, fnv1a or another that a stream declares by name, or of keys
            of several columns that it writes as a JSON object `murmur2 of json(customer, country)`.
        shown_columns: further columns to show with an offender, such as its offset.
    """

    sentence = "Each $key_column, as a Kafka $key_format key, hashes by $hash to its $partition_column of $partitions."
    args_keys: ClassVar[tuple[str, ...]] = (
        "key_column",
        "partition_column",
        "partitions",
        "key_format",
        "hash",
        "shown_columns",
    )
    success_keys: ClassVar[tuple[str, ...]] = args_keys

    key_column: str
    partition_column: str = "_partition"
    partitions: int = pydantic.Field(ge=1)
    key_format: str = "string"
    hash: str = MURMUR2
    shown_columns: list[str] = pydantic.Field(default_factory=list)

    @pydantic.validator("key_format")
    def _known(cls, key_format: str) -> str:  # noqa: N805
        if key_format not in tuple(KeyFormat):
            raise ValueError(f"unknown key format {key_format!r}; use one of {', '.join(KeyFormat)}")
        return key_format

    @pydantic.validator("hash")
    def _known_hash(cls, hash: str) -> str:  # noqa: N805
        if not is_known(hash):
            raise ValueError(f"unknown hash {hash!r}; use one of {', '.join(KNOWN_HASHES)}")
        return hash

    def needs(self) -> list[str]:
        return [self.key_column, self.partition_column, *self.shown_columns]

    def _validate(self, metrics: dict[str, Any], *given: Any, **named: Any) -> dict[str, Any]:
        judged = super()._validate(metrics, *given, **named)
        result = judged["result"]
        if result.get("unexpected_count") and result["element_count"] >= _ENOUGH:
            rows = self._distinct(metrics[TableRecords.metric_name])
            fits = self._fitting(rows)
            result["details"] = {FITS: fits, GREW: self._before(rows), SECOND: None, SPREAD: None}
            if not any(result["details"].values()):
                if under := self._under(rows):
                    result["details"][UNDER] = under
                else:
                    result["details"] |= {SECOND: self._second(rows), SPREAD: self._spread(rows)}
        return judged

    def _judge(self, frame: pd.DataFrame) -> tuple[str, int, int, Iterable[str]]:
        rows = self._distinct(frame)
        bad = self._misplaced(rows, self.hash)
        seen = f"{many(len(rows), 'key')} in {many(rows[self.partition_column].nunique(), 'partition')}"
        return seen, len(rows), len(bad), (self._sentence(row) for _, row in bad.iterrows())

    def _others(self) -> Iterable[tuple[str, str]]:
        """The hashes that keys may lie by, and how a stream declares each of them."""
        if schemas := list(filter(None, map(hash_schema, each_of(self.hash)))):
            return [(each, any_of([schema_hash(each, schema) for schema in schemas])) for each in HASHES_OF_BYTES]
        return possible_hashes(self.key_format, json_fields(self.hash))

    def _fitting(self, rows: pd.DataFrame) -> str | None:
        """The hash by which all keys lie where they do."""
        return next((name for name, hash in self._others() if self._misplaced(rows, hash).empty), None)

    def _second(self, rows: pd.DataFrame) -> str | None:
        """The hash by which all keys lie that the declared one puts elsewhere."""
        bad = self._misplaced(rows, self.hash)
        # Of fewer, all may lie so by chance.
        return self._fitting(bad) if self.partitions ** (len(bad) - 1) >= _SURELY else None

    def _under(self, rows: pd.DataFrame) -> int | None:
        """The id of the schema under which all keys lie that lie elsewhere than by those declared."""
        bad = self._misplaced(rows, self.hash)
        places = [int(place) % self.partitions for place in bad[self.partition_column]]
        return schema_id_of(bad[self.key_column].tolist(), places, self.partitions, HashName(self.hash))

    def _spread(self, rows: pd.DataFrame) -> int | None:
        """How many keys lie in several partitions, if no hash explains where most of them lie."""
        several = sum(places > 1 for places in Counter(rows[self.key_column]).values())
        explained = max(len(rows) - len(self._misplaced(rows, hash)) for _, hash in self._others())
        return several if several and explained < _MOST * len(rows) else None

    def _distinct(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Each key once in each partition."""
        rows = frame[frame[self.key_column].notna()]
        # As tuples, because pandas compares texts only up to a NUL.
        rows = rows[
            ~pd.Series(zip(rows[self.key_column], rows[self.partition_column], strict=True)).duplicated().values
        ]
        if self.key_format in {"long", "int"}:
            # pandas turns integers beside nulls into floats.
            rows = rows.assign(**{self.key_column: rows[self.key_column].convert_dtypes()})
        return rows

    def _misplaced(self, rows: pd.DataFrame, hash: str) -> pd.DataFrame:
        """The rows that a hash, or each of several, puts elsewhere, with where they belong by the last."""
        *earlier, hash = each_of(hash)
        for each in earlier:
            rows = self._misplaced(rows, each)
        if not keeps_empty(hash):
            rows = rows[np.array([key not in ("", b"") for key in rows[self.key_column]], np.bool_)]
        hashed = hashes_or_why(rows[self.key_column].tolist(), self.key_format, hash, self.key_column)
        homes = rows.assign(**{_HOME: [h if isinstance(h, str) else h % self.partitions for h in hashed]})
        return homes[homes[_HOME] != homes[self.partition_column] % self.partitions]

    def _before(self, rows: pd.DataFrame) -> int | None:
        """The partition count under which the keys were placed that lie elsewhere, if all lie right by a lower one."""
        bad = self._misplaced(rows, self.hash)
        # Of fewer, all may lie so by chance.
        if self.partitions ** (len(bad) - 1) < _SURELY or any(isinstance(home, str) for home in bad[_HOME]):
            return None
        hashed = hash_of(self.hash, self.key_column)
        lying = zip(bad[self.key_column], bad[self.partition_column], strict=True)
        there = [(hashed(key, self.key_format), at) for key, at in lying]
        counts = range(max(at for _, at in there) + 1, self.partitions)
        return next((count for count in counts if all(h % count == at for h, at in there)), None)

    def _sentence(self, row: pd.Series) -> str:
        if isinstance(home := row[_HOME], str):
            return home
        shown = "".join(f", {column} {row[column]}" for column in self.shown_columns)
        place = f"{self.partition_column} {row[self.partition_column]}{shown}"
        return f"{row[self.key_column]!r} is in {place}, but belongs in {row[_HOME]}"
