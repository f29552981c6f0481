"""Code: what a plan notes of the functions that it calls, so that people see when one was changed. Columns of Iceberg
tables that have other names now.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from msgspec import UNSET, UnsetType

from coset.batches.attempt import Attempt
from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import BackfillAsking, Command, Forget
from partitioning.errors import Finding
from partitioning.imports import code_of
from partitioning.kinds import Kind
from partitioning.model.plan import Plan
from partitioning.model.read_ends import Ends
from partitioning.model.streams import PART, Column, Discovered, Stream, renamed
from partitioning.values import replace
from spark_jobs.sql.left_columns import PASSING, columns_needed


def with_code(plan: Plan) -> Plan:
    """The plan with a digest of the code of each function that it calls. Those that are not found here have none."""
    found = {path: code for path in plan.functions if (code := code_of(path)) is not None}
    commits = {path: commit for path in found if (commit := _commit_of(path)) is not None}
    return replace(plan, code=found or UNSET, commits=commits or UNSET)


def changed_code(plan: Plan) -> tuple[str, ...]:
    """The functions whose code here is known, and is not the one that the plan notes."""
    here = {path: code_of(path) for path in plan.code_noted}
    return tuple(path for path, noted in plan.code_noted.items() if here[path] not in {None, noted})


def as_run(plan: Plan | None, ran: Attempt | None) -> Plan | None:
    """The plan, if it is that of an attempt, with the code that all tasks of this had: a batch that failed may have
    gone on with other code than was planned."""
    if plan is None or ran is None or not plan.code_noted or plan != ran.plan:
        return plan
    had = defaultdict[str, set[str]](set)
    for receipt in ran.receipts.values():
        for path, codes in (receipt.code if isinstance(receipt.code, dict) else {}).items():
            had[path].update(codes)
    same = {path: code for path, (code, *others) in had.items() if not others}
    return replace(plan, code=plan.code_noted | same) if same else plan


def _commit_of(path: str) -> str | None:
    """The commit of the repository in which a function's module is kept, and whether files of it were changed since.
    None if no repository has the module, or if Git is not there."""
    found = find_spec(path.partition(":")[0])
    program = shutil.which("git")
    if found is None or found.origin is None or program is None:
        return None
    file = Path(found.origin)

    def git(*words: str) -> str:
        command = [program, "-C", str(file.parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", file.name)
        return git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*") or None
    except (OSError, subprocess.SubprocessError):
        return None


Results = Mapping[str, tuple[Column, ...]]


def misread(pipeline: Pipeline, found: Sequence[Discovered], results: Results, ends: Ends) -> Iterator[Finding]:
    """The columns, and parts of columns, of which rows that are kept or published have the values of others, or have
    them by other names. Columns that the pipeline does not use have no finding."""
    streams = {stream.name: stream for stream in pipeline.streams}
    given = {column.name for columns in results.values() for column in columns}
    for each in found:
        stream, read = streams[each.stream], ends.stream(each.stream)
        read_ids = read.ids if read and not isinstance(read.ids, UnsetType) else {}
        if not (differing := renamed(read_ids, each.ids)):
            continue
        used = _used(pipeline, stream, each.columns, results)
        shown = used if _keeps_rows(pipeline, stream) else used & given
        for name, was in differing.items():
            column = name.partition(PART)[0]
            if column in shown or (column in used and name in read_ids):
                yield _finding(pipeline, stream, name, was)


def _used(pipeline: Pipeline, stream: Stream, columns: Sequence[Column], results: Results) -> set[str]:
    given = [column for some in results.values() for column in some]
    return {*columns_needed(pipeline.steps, given, stream.key, columns)}


def _keeps_rows(pipeline: Pipeline, stream: Stream) -> bool:
    """Whether a step keeps records of a stream with the names of their columns."""
    keeping = (step for step in pipeline.steps if step.state and step.op in PASSING)
    return any(stream in pipeline.streams_of(step.name) for step in keeping)


def _finding(pipeline: Pipeline, stream: Stream, name: str, was: str) -> Finding:
    shown, was = name.replace(PART, "."), was.replace(PART, ".")
    called = f"was named {was!r}" if was else "is a new one, and another had that name"
    what = f"{stream.name}: column {shown!r} {called} when the rows were read that are kept or published"
    then: list[str | Command] = [f"let the table's engine name it {f'{was!r} again' if was else 'otherwise'}"]
    if stream.table and name != stream.key:
        then += "; or begin anew with the table: ", Forget(pipeline.name, stream.name)
    then += "; or run all batches again by the names of now: ", BackfillAsking(pipeline.name, 0, cascade=True)
    values = {"stream": stream.name, "name": shown}
    return Finding.of(Kind.STREAM_COLUMNS, what, stream.source, tuple(then), **values)
