"""What-if: the mapping of streams to tasks under a scheme, without any data or store."""

from __future__ import annotations

from collections.abc import Sequence

from coset.cli.output import Answer, Table, console, say
from partitioning.cosets import Assignment, assign
from partitioning.errors import Finding, refuse
from partitioning.explain.explain import assignment_document
from partitioning.kinds import Kind
from partitioning.model.schemes import Scheme
from partitioning.model.schemes import tasks as tasks_scheme
from partitioning.sections import many


def parse_streams(texts: Sequence[str]) -> list[tuple[str, int]]:
    """`views=8` as name and partition count. Raises Refused, with all findings, for anything else.

    >>> parse_streams(["views=8", "clicks=12"])
    [('views', 8), ('clicks', 12)]
    """
    streams, findings = [], []
    for text in texts:
        name, _, count = text.rpartition("=")
        if name and count.isascii() and count.removeprefix("-").isdigit():
            streams.append((name, int(count)))
        else:
            then = "write it as views=8: name=partitions"
            findings.append(Finding.of(Kind.ARGUMENT, f"{text!r} is no stream", "--stream", then, text=text))
    refuse(findings)
    return streams


def what_if(streams: Sequence[str], scheme: str | None, tasks: int | None) -> tuple[Assignment, str | None]:
    """The assignment, and a warning if `tasks` took the place of a scheme that was named too.

    Raises Refused for malformed streams, an unknown scheme or a number of tasks below 1.
    """
    chosen = Scheme.parse(scheme) if scheme and scheme != "tasks" else None
    if tasks is None:
        return assign(parse_streams(streams), chosen or Scheme.parse(scheme or "cogroup")), None
    asked = tasks_scheme(tasks)
    warning = (
        f"--tasks {tasks} replaces --scheme {chosen}: the scheme is {asked}" if chosen not in (None, asked) else None
    )
    return assign(parse_streams(streams), asked), warning


def dealt(streams: Sequence[str], scheme: str | None, tasks: int | None) -> Answer:
    """The mapping: a row per task, or the documented JSON."""
    assignment, warning = what_if(streams, scheme, tasks)
    if warning:
        say(console(stderr=True), warning)
    names = [name for name, _ in parse_streams(streams)]
    rows = [
        [
            str(task.task),
            *(", ".join(str(number) for number in task.reads.get(name, ())) or "–" for name in names),
            "; ".join(f"{name}: {kept}" for name, kept in task.filters.items()) or "none",
        ]
        for task in assignment.tasks
    ]
    title = f"Scheme {assignment.scheme}: {many(len(assignment.tasks), 'task')}"
    return Answer(assignment_document(assignment), [Table(title, ["task", *names, "filter"], rows)])
