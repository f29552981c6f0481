"""A repository to start with: a pipeline, its DAG, its test, settings, and a file for CI."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from coset.cli.inspection import inspect
from coset.cli.output import Answer
from partitioning.authoring.declared import variable_of
from partitioning.commands import Inspect
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.offsets import check_name
from partitioning.model.placement import OPAQUE
from partitioning.model.sources import FOLDER
from partitioning.version import VERSION

_STARTER = Path(__file__).with_name("starter")
# What is there instead, where the pipeline reads a topic that has landed; of the rest, what is of the pipeline there.
_OF_TOPIC = Path(__file__).with_name("starter_of_topic")
_OF_ORDERS = ("README.md.txt", "orders.csv.txt", "spent.py.txt", "test_spent.py.txt")
_COUNTED = """each = {}.aggregate("count(*) AS records", name="each")
each.combine("sum(records)::BIGINT AS records", running=True, name="counts").write("counted", mode="upsert")"""
# A value of each type that a key may have, as Python writes it.
_EXAMPLES = {
    **dict.fromkeys(("BIGINT", "INTEGER"), "1"),
    "BLOB": 'b"a"',
    "DOUBLE": "1.5",
    "UUID": '"00000000-0000-0000-0000-000000000001"',
    "VARCHAR": '"a"',
}
# A wheel has no files whose names begin with a dot.
_DOTTED = ("airflowignore", "gitignore", "github")


def init(folder: Path, address: str | None) -> Answer:
    """Write the files of a new repository into a folder that is empty or not there. Its pipeline counts the records of
    the topic at `address`, if one is given, declared as `coset inspect` declares it, or has the table of its changes.

    Raises Refused if the folder holds something, if its name is none for a project, if it cannot be written, or if what
    has landed of the topic cannot be read.
    """
    name = check_name(folder.resolve().name, "project")
    said = {"name": name, "version": VERSION, "dev_source": '"landing"', "source": '"s3://landing/topics"'}
    files = {file: file.relative_to(_STARTER) for file in _STARTER.rglob("*.txt")}
    try:
        if folder.exists() and any(folder.iterdir()):
            what, then = "the folder is not empty, and nothing is overwritten", "name a new folder, or an empty one"
            raise Refused.of(Kind.LOCAL_FILE, what, str(folder), then, file=folder)
        if address is not None:
            said |= _of_topic(address)
            files = {file: there for file, there in files.items() if file.name not in _OF_ORDERS}
            files |= {file: file.relative_to(_OF_TOPIC) for file in _OF_TOPIC.rglob("*.txt")}
        written = [_write(folder, file, there, said) for file, there in sorted(files.items(), key=lambda file: file[1])]
    except OSError as error:
        what, then = f"the files cannot be written: {error}", "name a folder that you may write to"
        raise Refused.of(Kind.LOCAL_FILE, what, str(folder), then, file=folder) from error
    text = (*(f"Written: {path}" for path in written), f"Next: cd {folder} && python -m pytest")
    return Answer({"folder": str(folder), "written": map(str, written)}, text)


def _of_topic(address: str) -> Mapping[str, str]:
    """What the files say of a topic. Raises what is wrong with it."""
    answer = inspect(address)
    if answer.wrong is not None:
        raise answer.wrong
    found: Any = answer.value
    if found["changes"] and found["key"]["hash"] == OPAQUE:
        what = f"it has the changes of a table, and nothing tells which column is its key: {found['key']['says'][0]}"
        then = ("name the key in a pipeline of your own, with what is told by ", Inspect(address))
        raise Refused.of(Kind.KEYS_DO_NOT_MEET, what, address, then, topic=address)
    source = json.dumps(found["source"].removeprefix(FOLDER))
    types = {column.name: column.type for column in found["columns"]}
    kinds = {name: "UUID" if found["key"]["key_format"] == "uuid" else types[name] for name in found["key"]["columns"]}
    row = ", ".join(f"{json.dumps(name)}: {_EXAMPLES.get(kind)}" for name, kind in kinds.items())
    variable, table = variable_of(found["stream"]), json.dumps(found["stream"].rpartition(".")[2])
    said = {name: found[name] for name in ("address", "stream", "declaration")}
    said |= {"variable": variable, "row": f"{{{row}}}", "dev_source": source}
    if found["changes"] or found.get("kept"):
        said["about"] = f"The table {found['stream']}, or that it has the changes of."
        said |= {"steps": f'{variable}.write({table}, mode="upsert")', "right": f"len(published[{table}]) == 1"}
    else:
        said["about"] = f"How many records each key of {found['stream']} has, over all batches."
        said |= {"steps": _COUNTED.format(variable), "right": '[row["records"] for row in published["counted"]] == [3]'}
    # A folder of this machine is nowhere else.
    return said if found["source"].startswith(FOLDER) else said | {"source": source}


def _write(folder: Path, file: Path, there: Path, said: Mapping[str, str]) -> Path:
    parts = [
        part.replace("topic", said["variable"]) if "variable" in said else part for part in there.with_suffix("").parts
    ]
    path = folder.joinpath(*(f".{part}" if part in _DOTTED else part for part in parts))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(Template(file.read_text("utf-8")).substitute(said), encoding="utf-8")
    return path
