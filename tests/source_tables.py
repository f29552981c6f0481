"""Tables of a real PostgreSQL and what Debezium's engine says of their changes, landed as a sink lands it.

python -m tests.source_tables makes tests/vectors/debezium anew.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psycopg2  # type: ignore[import-untyped]

from coset.batches.runners.children import free_ports
from demo.kafka_jars import jars_of, java
from partitioning.documents.stores import store_at
from tests.postgres import postgres
from tests.small import until
from tests.typed_changes import files_of

VECTORS = Path(__file__).parent / "vectors" / "debezium"
# As topics are called: a prefix, the schema and the table.
TOPIC = "shop.public."
_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")
_MARKS = f"{TOPIC}marks"
Event = Mapping[str, Any]


@dataclass(slots=True)
class SourceTables:
    """A database, and all events of its changes so far."""

    ask: Callable[[str], list[tuple[Any, ...]]]
    events: list[Event] = field(default_factory=list)
    _marks: int = 0

    def settle(self) -> None:
        """Wait until the events of all changes so far are there."""
        self._marks += 1
        self.ask(f"INSERT INTO marks VALUES ({self._marks})")
        last = f'{{"n":{self._marks}}}'
        assert until(lambda: any(each["key"] == last for each in self.events if each["topic"] == _MARKS)), self.events

    def of(self, table: str) -> list[Event]:
        """The events of a table's topic, without those that nobody's sink was given."""
        return [each for each in self.events if each["topic"] == f"{TOPIC}{table}"]


@contextmanager
def source_tables(log: Path, sql: str, *settings: str) -> Iterator[SourceTables]:
    """A database in which this was run, and Debezium with these settings beside it. It says in `log` what is wrong."""
    (port,) = free_ports(1)
    with postgres("wal_level=logical", "listen_addresses=127.0.0.1", port=port):
        connection = psycopg2.connect(host="127.0.0.1", port=port, user="airflow", dbname="postgres")
        connection.autocommit = True

        def ask(sql: str) -> list[tuple[Any, ...]]:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall()) if cursor.description else []

        tables = SourceTables(ask)
        ask("CREATE TABLE marks (n bigint PRIMARY KEY)")
        ask(sql)
        where = ("database.hostname=127.0.0.1", f"database.port={port}", "database.user=airflow")
        program = [java(), *_QUICK, "-cp", f"{jars_of(VECTORS / 'debezium.pom.xml')}/*", str(VECTORS / "Changes.java")]
        command = [*program, *where, "database.dbname=postgres", *settings]
        with log.open("wb") as errors, subprocess.Popen(command, stdin=-1, stdout=-1, stderr=errors) as debezium:
            assert debezium.stdin
            assert debezium.stdout
            reader = threading.Thread(target=_read, args=(debezium.stdout, tables.events))
            reader.start()
            try:
                active = "SELECT 1 FROM pg_replication_slots WHERE active"
                assert until(lambda: bool(ask(active)) or debezium.poll() is not None), log.read_text()
                tables.settle()
                yield tables
            finally:
                # It ends with its input.
                debezium.stdin.close()
                debezium.wait(30)
                reader.join()
                connection.close()


def _read(lines: IO[bytes], events: list[Event]) -> None:
    events.extend(map(json.loads, lines))


def land(events: Sequence[Event], form: str, partitions: int, source: str, ends: dict[int, int]) -> None:
    """Land events of a topic as a sink does: each in the partition of its key, with its offset, tombstones left out.

    `ends` are the offsets behind those that landed before.
    """
    landed = dict[int, list[tuple[int, Event]]]()
    for event in events:
        partition = event["hash"] % partitions
        offset = ends.get(partition, 0)
        ends[partition] = offset + 1
        if event["unwrapped" if "unwrapped" in form else "value"] is not None:
            landed.setdefault(partition, []).append((offset, event))
    topic = events[0]["topic"]
    for partition, some in landed.items():
        for start, data in _files(some, form):
            name = f"{topic}/partition={partition}/{topic}+{partition}+{start:010}.{format_of(form)}"
            store_at(source).put(name, data)


def format_of(form: str) -> str:
    """The format of files with events in a form."""
    return next((each for each in ("avro", "parquet") if each in form), "json")


def _files(events: Sequence[tuple[int, Event]], form: str) -> Iterator[tuple[int, bytes]]:
    if format_of(form) != "json":
        yield from files_of(events, form)
        return
    yield events[0][0], "".join(f"{with_offset(event[form], offset)}\n" for offset, event in events).encode()


def with_offset(value: str, offset: int) -> str:
    """A value as InsertField leaves it: it has the offset behind its other fields."""
    end = value[-2:] if value.startswith('{"schema"') else value[-1:]
    return f'{value.removesuffix(end)},"_offset":{offset}{end}'


# How Debezium is told to write decimals and times, by the name of the vectors.
SETTINGS = {
    "usual": (),
    "texts": (
        "decimal.handling.mode=string",
        "time.precision.mode=connect",
        "interval.handling.mode=string",
        "converter.replace.null.with.default=false",
    ),
    "doubles": ("decimal.handling.mode=double", "time.precision.mode=adaptive_time_microseconds"),
}


def _vectors(log: Path) -> Iterator[tuple[str, Sequence[Event]]]:
    for name, settings in SETTINGS.items():
        more = ("skipped.operations=none", "provide.transaction.metadata=true") if name == "usual" else ()
        with source_tables(log, (VECTORS / "types.sql").read_text(), *settings, *more) as tables:
            # What was there before, as a snapshot has it.
            if not more:
                yield name, [_only(each, "value") for each in tables.of("types")]
                continue
            for sql in (VECTORS / "changes.sql").read_text().splitlines():
                tables.ask(sql)
            tables.settle()
            yield name, [_only(each, "value") for each in tables.of("types")]
            yield "schema", [_only(tables.of("types")[0], "with_schema")]
            yield "customers", [_only(each, "value", "with_schema", "unwrapped") for each in tables.of("customers")]
            others = [each for each in tables.events if not each["topic"].startswith(TOPIC)]
            yield "others", [_only(each, "value") for each in others]


def _places(log: Path) -> Sequence[Event]:
    """Of a database with PostGIS (postgresql-15-postgis-3 of Debian)."""
    with source_tables(log, (VECTORS / "places.sql").read_text()) as tables:
        tables.ask("UPDATE places SET at = ST_SetSRID(ST_MakePoint(1, 2), 4326) WHERE id = 2")
        tables.ask("DELETE FROM places WHERE id = 3")
        tables.settle()
        print(
            tables.ask(
                "SELECT id, ST_AsEWKB(at)::text, ST_AsEWKB(area)::text, ST_AsEWKB(spot::geometry)::text FROM places"
            )
        )
        return [_only(each, "value", "with_schema", "unwrapped") for each in tables.of("places")]


def _write_avro() -> None:
    """What AvroData makes of the record with its schema, in Avro and in Parquet."""
    jars = jars_of(VECTORS / "avro.pom.xml")
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as lines:
        lines.write(json.loads((VECTORS / "schema.jsonl").read_text())["with_schema"])
        lines.flush()
        program = [java(), "-cp", f"{jars}/*", str(VECTORS / "AsAvro.java"), lines.name, "types"]
        subprocess.run(program, check=True, cwd=VECTORS)


def _only(event: Event, *forms: str) -> Event:
    return {name: event[name] for name in ("topic", "key", "hash", *forms)}


if __name__ == "__main__":
    log = Path("debezium.log")
    for name, events in (*_vectors(log), ("places", _places(log))):
        lines = [json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in events]
        (VECTORS / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    _write_avro()
