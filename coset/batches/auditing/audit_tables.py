"""The tables of an audit: their columns, and how they lie beside the batch, as Parquet in one ZIP file."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zipfile import BadZipFile, ZipFile, ZipInfo

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from coset.sources.s3 import AGAIN, reaching
from partitioning.commands import Run, Then
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import at_once
from partitioning.errors import Finding, Refused, refuse
from partitioning.kinds import Kind
from partitioning.model.plan import Plan

_ENDING = "/tables.zip"

_TEXTS = {
    *("kind", "name", "step", "stage", "input", "key", "violation", "sentence", "null_keys"),
    *("digest_planned", "digest_found", "stream", "first", "bad_records", "digest_aside", "digest_kept"),
    *("keys_before", "keys_after", "over_keys", "met_keys", "alone_keys", "given_keys"),
}


def _schema(columns: str) -> pa.Schema:
    kinds = {"table": pa.bool_(), "counted": pa.bool_(), "of_keys": pa.bool_()} | dict.fromkeys(_TEXTS, pa.string())
    return pa.schema([(name, kinds.get(name, pa.int64())) for name in columns.split()])


TABLES = {
    "coverage": _schema(
        "stage input partition table null_keys start end planned read_min read_max taken dropped "
        "nulls refused_nulls digest_planned digest_found disorder foreign stray keys "
        "bad_records set_aside kept_aside digest_aside digest_kept copies_differ"
    ),
    "keys": _schema("stage input key task partition offset"),
    "violations": _schema("violation stage task input partition offset key sentence"),
    "moved": _schema("kind name step stage partitions records bytes spared"),
    "gaps": _schema("stream partition gaps looked found first"),
    "produced": _schema("stage task kind name partition counted taken made left"),
    "migrated": _schema("stage task step rows_before rows_after keys_before keys_after"),
    "closed": _schema(
        "stage task step over_rows over_keys met_rows met_keys alone_rows alone_keys late dropped "
        "given_rows given_keys late_versions of_keys"
    ),
}


# Columns of later versions, and what they are in tables of before.
_ADDED = {
    **{"bad_records": "", "set_aside": 0, "kept_aside": 0, "digest_aside": "", "digest_kept": ""},
    "copies_differ": 0,
    **{"dropped": 0, "given_rows": None, "given_keys": None, "late_versions": 0, "of_keys": False},
}


@dataclass(frozen=True)
class Audit:
    """The audit tables of an attempt. `TABLES` has their columns.

    In `coverage`, what tasks say that they set aside stands beside what their files have, as number and digest.
    `copies_differ` counts the tasks that took other records of a hot key than those that share it with them, where all
    have to take the same; otherwise such tasks count as one. `coverage.keys` is the number of sampled keys. `keys`
    holds these keys, up to `judged_keys.KEYS_JUDGED`, first those that more than one task took.
    `partitioning.hashes.read_key` reads their text. `moved` has the output for later tasks, and as `spared` the records
    that a full shuffle would have moved too, by the plan. `produced` is explained in `produced`, `gaps` in
    `second_look`. `migrated` has the rows and keys of each step of which tasks wrote all kept rows again, before and
    after. `closed` has, for each task and step whose records are given when they are over, the rows and keys over, with
    a partner before, and given, and the number of late ones, and of dropped ones among them; of joins as of a time also
    those given with a version, and how many versions came late. What was over is `of_keys` in a step whose keys expire.
    """

    coverage: pd.DataFrame
    keys: pd.DataFrame
    violations: pd.DataFrame
    moved: pd.DataFrame
    produced: pd.DataFrame
    gaps: pd.DataFrame
    migrated: pd.DataFrame
    closed: pd.DataFrame


def load(ledger: Ledger, plan: Plan, attempt: int) -> Audit:
    """Read the stored audit tables. Raises Refused as `load_some`."""
    return Audit(**load_some(ledger, plan, attempt, *TABLES))


def load_some(ledger: Ledger, plan: Plan, attempt: int, *names: str) -> dict[str, pd.DataFrame]:
    """Read some of the audit tables. Batches of older versions do not have all.

    Raises Refused with all findings if one is missing, or has the columns of another version.
    """
    tables, findings = dict[str, pd.DataFrame](), []
    for name, (key, data) in _stored(ledger, plan, attempt, names).items():
        schema = TABLES[name]
        if data is None:
            findings.append(_audit_again(ledger, "the audit table is missing", key))
            continue
        table = parquet(data, ledger.uri(key), AGAIN)
        for added in (field for field in schema if field.name in _ADDED and field.name not in table.schema.names):
            table = table.append_column(added, pa.array([_ADDED[added.name]] * len(table), added.type))
        if not table.schema.equals(schema):
            findings.append(_audit_again(ledger, "the audit table has the columns of another version", key))
        tables[name] = table.to_pandas(use_threads=False)
    refuse(findings)
    return tables


def put(ledger: Ledger, plan: Plan, attempt: int, tables: Mapping[str, pa.Table]) -> None:
    """Store the audit tables of an attempt."""
    ledger.store.put(_key(ledger, plan, attempt), _packed(tables))


def parquet(data: bytes, where: str, then: Then) -> pa.Table:
    """The content of a Parquet file. Raises Refused if it is damaged."""
    with reaching("the file cannot be read", where, then):
        return pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True).read(use_threads=False)


def _stored(ledger: Ledger, plan: Plan, attempt: int, names: Sequence[str]) -> dict[str, tuple[str, bytes | None]]:
    """The stored tables as Parquet, and where each lies. None of one that is not there.

    Raises Refused if their file is damaged.
    """
    key = _key(ledger, plan, attempt)
    packed = ledger.store.get(key)
    if packed is None:
        # Earlier versions have a file for each.
        keys = [f"{key.removesuffix(_ENDING)}/{name}.parquet" for name in names]
        return dict(zip(names, zip(keys, at_once(ledger.store.get, keys), strict=True), strict=True))
    try:
        with ZipFile(io.BytesIO(packed)) as file:
            there = set(file.namelist())
            return {name: (key, file.read(f"{name}.parquet") if f"{name}.parquet" in there else None) for name in names}
    except (BadZipFile, OSError, EOFError) as error:
        raise Refused(_audit_again(ledger, f"the audit tables cannot be read: {error}", key)) from error


def _packed(tables: Mapping[str, pa.Table]) -> bytes:
    """The tables as Parquet in one ZIP file: small files cost a request each."""
    packed = io.BytesIO()
    with ZipFile(packed, "w") as file:
        for name, table in tables.items():
            data = io.BytesIO()
            pq.write_table(table, data, write_page_checksum=True)
            # Without a time, equal tables are equal bytes.
            file.writestr(ZipInfo(f"{name}.parquet"), data.getvalue())
    return packed.getvalue()


def _key(ledger: Ledger, plan: Plan, attempt: int) -> str:
    return f"{ledger.pipeline}/audits/{plan.batch}/attempt-{attempt}{_ENDING}"


def _audit_again(ledger: Ledger, what: str, key: str) -> Finding:
    then = (Run(ledger.pipeline), ": it audits the batch again")
    return Finding.of(Kind.BATCH_UNRUN, what, ledger.uri(key), then, document=key)
