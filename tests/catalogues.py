"""Catalogues of Iceberg tables: the servlet of Iceberg itself before catalogues in SQLite, Hive's metastore, and moto's
Glue."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from uuid import uuid4

from bench.elsewhere import environment_of
from demo.kafka_jars import jars_of, java

_HERE = Path(__file__)
_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")
# Makes a catalogue with these of Iceberg's properties, and says its URL.
Made = Callable[..., str]


@contextmanager
def rest_catalogues(folder: Path) -> Iterator[Made]:
    """A server until the block ends, with all that it keeps, and its log, in this folder."""
    with _server(folder, *_java("Catalogues")) as (asked, said):

        def made(**properties: str) -> str:
            usual = {"uri": f"jdbc:sqlite:{folder}/{uuid4().hex}.db", "jdbc.schema-version": "V1"}
            print(*(f"{name}={value}" for name, value in (usual | properties).items()), file=asked, flush=True)
            return f"http://127.0.0.1:{said()}"

        yield made


@contextmanager
def metastore(folder: Path, warehouse: Path) -> Iterator[str]:
    """The URL of a metastore with its databases in `warehouse`, until the block ends."""
    with _server(folder, *_java("Metastore"), str(warehouse)) as (_, said):
        yield f"thrift://127.0.0.1:{said()}"


@contextmanager
def glue(folder: Path) -> Iterator[str]:
    """The URL of a Glue, until the block ends."""
    python = environment_of("moto-5.2.5", "moto[glue,server]==5.2.5")
    with _server(folder, str(python), str(_HERE.with_name("glue.py"))) as (_, said):
        yield f"http://127.0.0.1:{said()}"


def _java(program: str) -> list[str]:
    jars = jars_of(_HERE.with_name(f"{program.lower()}.pom.xml"))
    return [java(), *_QUICK, "-cp", f"{jars}/*", str(_HERE.with_name(f"{program}.java"))]


@contextmanager
def _server(folder: Path, *program: str) -> Iterator[tuple[IO[str], Callable[[], str]]]:
    """A server's input, with which it ends, and what gives the next line that it says. Its log is in the folder."""
    log = folder / "server.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder
        ) as server,
    ):
        assert server.stdin

        def said() -> str:
            assert server.stdout
            line = server.stdout.readline().strip()
            assert line, log.read_text()
            return line

        yield server.stdin, said
