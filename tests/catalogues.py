"""REST catalogues of Iceberg tables: a server with the servlet of Iceberg itself, before catalogues in SQLite."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from demo.kafka_jars import jars_of, java

_HERE = Path(__file__)
_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")
# Makes a catalogue with these of Iceberg's properties, and says its URL.
Made = Callable[..., str]


@contextmanager
def rest_catalogues(folder: Path) -> Iterator[Made]:
    """A server until the block ends, with all that it keeps, and its log, in this folder."""
    jars = jars_of(_HERE.with_suffix(".pom.xml"))
    program = [java(), *_QUICK, "-cp", f"{jars}/*", str(_HERE.with_name("Catalogues.java"))]
    log = folder / "catalogues.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as server,
    ):
        assert server.stdin
        assert server.stdout
        asked, said = server.stdin, server.stdout

        def made(**properties: str) -> str:
            usual = {"uri": f"jdbc:sqlite:{folder}/{uuid4().hex}.db", "jdbc.schema-version": "V1"}
            print(*(f"{name}={value}" for name, value in (usual | properties).items()), file=asked, flush=True)
            port = said.readline().strip()
            assert port, log.read_text()
            return f"http://127.0.0.1:{port}"

        yield made
        # It ends with its input.
