"""What-if: the mapping of streams to tasks under a scheme, without any data or store."""

from __future__ import annotations

from collections.abc import Sequence

from coset.cli.output import show_json, show_table
from partitioning.cosets.assignment import Assignment, assign
from partitioning.errors import Finding, Refused, about
from partitioning.explain.explain import assignment_document
from partitioning.kinds import Kind
from partitioning.model.schemes import Scheme
from partitioning.model.schemes import tasks as tasks_scheme


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
            findings.append(
                Finding(
                    Kind.ARGUMENT,
                    f"{text!r} is no stream",
                    "--stream",
                    "write it as views=8: name=partitions",
                    about(text=text),
                )
            )
    if findings:
        raise Refused(*findings)
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


def show_assignment(assignment: Assignment, streams: Sequence[str], *, as_json: bool) -> None:
    """Print the mapping: a row per task, or the documented JSON."""
    if as_json:
        show_json(assignment_document(assignment))
        return
    names = [name for name, _ in parse_streams(streams)]
    rows = [
        [
            str(task.task),
            *(", ".join(str(number) for number in task.reads.get(name, ())) or "–" for name in names),
            "; ".join(f"{name}: {kept}" for name, kept in task.filters.items()) or "none",
        ]
        for task in assignment.tasks
    ]
    count = len(assignment.tasks)
    show_table(f"Scheme {assignment.scheme}: {count} task{'s' * (count != 1)}", ["task", *names, "filter"], rows)
