"""Upgrades: documents of older formats, read as documents of the current formats.

Each step leads from one version of a format to the next, on plain data as stored. A step never changes after its format
was released; a new format adds a step. Nothing is rewritten in a store: a document is read step by step, and its
identity stays the digest of the stored bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import gcd
from typing import Any

Plain = dict[str, Any]
Upgrade = Callable[[Plain], Plain]

# What Coset 0.1.0 wrote as the reason of a verdict to publish.
_JUDGED = re.compile(
    r"(?P<records>[0-9,]+) records? in (?P<partitions>[0-9,]+) stream partitions?, (?P<keys>[0-9,]+) keys? compared"
    r"(?: \(one in (?P<key_sample>[0-9,]+)\))?, all (?P<expectations>[0-9,]+) expectations? met"
)


def steps_from(name: str, version: int) -> Sequence[Upgrade]:
    """The steps that change something in a document of this version of the format `name`, such as `coset.plan`.

    They raise what plain data does that is not of that format.
    """
    return [step for step in STEPS.get(name, ())[version - 1 :] if step is not _same]


def _same(stored: Plain) -> Plain:
    """The next version has more fields, which may be left out, and means the same by those that this one has."""
    return stored


def _plan(stored: Plain) -> Plain:
    """0.1.0 ran plans of one wave, without exchanges, state or functions, and told reasons in sentences."""
    declared = {stream["declared"]["name"]: _stream(stream["declared"]) for stream in stored["streams"]}
    streams = [stream | {"declared": declared[stream["declared"]["name"]]} for stream in stored["streams"]]
    moves = [move | {"why": {"reason": "said", "words": move["why"]}} for move in stored["moves"]]
    stages = [_stage(stage, declared) for stage in stored["stages"]]
    return {**stored, "streams": streams, "stages": stages, "moves": moves, "starts": {}}


def _stream(declared: Plain) -> Plain:
    return _renamed(declared, placement="hash")


def _stage(stage: Plain, declared: Mapping[str, Plain]) -> Plain:
    inputs = [_input(read, declared[read["name"]]) for read in stage["inputs"]]
    kind, _, number = stage["scheme"].rstrip(")").partition("(")
    return {
        **stage,
        "inputs": inputs,
        "steps": [_renamed(step, placement="hash") for step in stage["steps"]],
        "scheme": {"kind": kind, "number": int(number) if number else None},
        "why": _task_count(stage, kind, inputs),
        "given": "; as given" in stage["why"],
        "changes": [],
        "tasks": _tasks(stage, inputs),
    }


def _input(read: Plain, stream: Plain) -> Plain:
    return {
        "kind": read["kind"],
        "name": read["name"],
        "placement": read["placement"],
        "partitions": stream["partitions"],
        "null_keys": stream["null_keys"],
        "only": read["only"],
    }


def _task_count(stage: Plain, kind: str, inputs: Sequence[Plain]) -> Plain:
    if stage["why"].startswith("one task, as "):
        return {"reason": "all together", "steps": [step["name"] for step in stage["steps"]]}
    if kind == "max":
        return {"reason": "one per partition"}
    if kind == "tasks":
        return {"reason": "as asked", "cosets": stage["cosets"]}
    return {"reason": "gcd", "counts": [read["partitions"] for read in inputs], "cosets": stage["cosets"]}


def _tasks(stage: Plain, inputs: Sequence[Plain]) -> Plain:
    """Tasks that differ from the rule did not say for which partitions they account for records without a key."""
    exceptions = {place: _task(task, stage, inputs) for place, task in stage["tasks"]["exceptions"].items()}
    return {**stage["tasks"], "exceptions": exceptions}


def _task(task: Plain, stage: Plain, inputs: Sequence[Plain]) -> Plain:
    if task["null_keys"]:
        return task | {"keyless": task["reads"]}
    keyless = {}
    for read in inputs:
        step = gcd(read["partitions"], stage["cosets"])
        own = {residue % step for residue in task["owns"]}
        numbers = [number for number in task["reads"].get(read["name"], ()) if not own or number % step in own]
        if numbers and read["null_keys"] != "own task":
            keyless[read["name"]] = numbers
    return task | {"keyless": keyless}


def _order(stored: Plain) -> Plain:
    """Tasks left nothing for others."""
    return stored | {"leaves": []}


def _verdict(stored: Plain) -> Plain:
    """0.1.0 told the reason in a sentence, and did not keep digests of files."""
    others = {name: value for name, value in stored.items() if name not in {"files", "why"}}
    artefacts = [_table_file(file) for file in stored["files"]]
    return others | {"why": _why(stored["decision"], stored["why"]), "artefacts": artefacts}


def _why(decision: str, words: str) -> Plain:
    if decision != "publish":
        return {"reason": "given up", "words": words}
    match = _JUDGED.fullmatch(words)
    figures = {name: int((text or "1").replace(",", "")) for name, text in match.groupdict().items()} if match else {}
    none = dict.fromkeys(("records", "partitions", "keys", "key_sample", "expectations"), 0)
    judged = none | figures
    return {"reason": "judged", **judged, "met": judged["expectations"]}


def _table_file(file: Plain) -> Plain:
    others = {name: value for name, value in file.items() if name != "table"}
    path = f"tables/{file['table']}/{file['path']}"
    return others | {"role": "table", "name": file["table"], "path": path, "digest": ""}


def _receipt(stored: Plain) -> Plain:
    """Files were those of tables; that of sampled keys was a name only."""
    return stored | {"tasks": [_task_receipt(task) for task in stored["tasks"]]}


def _task_receipt(task: Plain) -> Plain:
    files = [_table_file(file) for file in task["files"]]
    if task["keys"] is not None:
        keys = {"role": "keys", "name": task["task"]["stage"], "path": task["keys"]}
        sampled = sum(seen["keys"] for seen in task["partitions"])
        files.append(keys | {"size": 0, "etag": "", "digest": "", "records": sampled})
    return {
        "task": task["task"],
        "partitions": [_seen(seen) for seen in task["partitions"]],
        "artefacts": files,
        "milliseconds": round(task["seconds"] * 1000),
    }


def _seen(seen: Plain) -> Plain:
    offenders = [_renamed(offender, rule="violation") for offender in seen["offenders"]]
    return _renamed(seen, stream="input") | {"offenders": offenders}


def _other_digests(stored: Plain) -> Plain:
    """The digest of offsets became another function: those of before can be compared with none, and are left out."""
    tasks = [task | {"partitions": [seen | {"digest": ""} for seen in task["partitions"]]} for task in stored["tasks"]]
    return stored | {"tasks": tasks}


def _commit(stored: Plain) -> Plain:
    """The ranges that it made count are those of the plan that it names."""
    return {name: value for name, value in stored.items() if name != "offsets"}


def _renamed(value: Plain, **names: str) -> Plain:
    return {names.get(name, name): held for name, held in value.items()}


# By format: the steps from version 1 to 2, from 2 to 3 and so on.
def _comparison(stored: Plain) -> Plain:
    """State was compared under the step's present name only."""
    return {**stored, "states": [{**state, "kept_by": state["step"]} for state in stored["states"]]}


STEPS: Mapping[str, Sequence[Upgrade]] = {
    "coset.plan": (_plan, _same),
    "coset.order": (_order, _same),
    "coset.receipt": (_receipt, _other_digests, _same, _same),
    "coset.verdict": (_verdict, _same, _same),
    "coset.commit": (_commit, _same),
    "coset.locality": (_same,),
    "coset.failure": (_same,),
    "coset.comparison": (_comparison,),
}
