"""What a run found, as Markdown, and its place on the page of the docs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path

from bench.noticed.outcome import RETRIED, SYSTEMS, Outcome
from bench.noticed.topics import Fault
from partitioning.sections import Section, markdown
from partitioning.texts import in_markdown

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "beside-others.md"
_SHOWN = 1


class Part(StrEnum):
    """The parts of the page that a run writes, each as a whole."""

    TOPICS = "topics"
    TASKS = "tasks"

    @property
    def command(self) -> str:
        """By which its place is marked."""
        return f"python -m bench.noticed: {self}"


def of_topics(found: Mapping[str, Mapping[Fault, Outcome]]) -> str:
    """What systems made of topics with each fault, and what those that refused said."""
    titles = {system: SYSTEMS[system][0] for system in found}
    rows = tuple((titles[system], *(outcomes[fault].shown for fault in Fault)) for system, outcomes in found.items())
    table = Section("Who noticed", ("system", *Fault), rows, ())
    said = (
        line
        for system, outcomes in found.items()
        for fault, outcome in outcomes.items()
        for line in _refusal(f"{titles[system]}, {fault}", outcome)
    )
    return "\n".join((markdown([table]), *said))


def of_tasks(found: Mapping[str, Outcome]) -> str:
    """The same of systems whose tasks were retried under another salt."""
    rows = tuple((RETRIED[system][0], outcome.shown) for system, outcome in found.items())
    table = Section("Who noticed a retried task", ("system", "a task is retried under a random salt"), rows, ())
    said = (line for system, outcome in found.items() for line in _refusal(RETRIED[system][0], outcome))
    return "\n".join((markdown([table]), *said))


def _refusal(title: str, outcome: Outcome) -> Iterator[str]:
    if outcome.said:
        yield f"### {title}\n"
        yield from (f"- {in_markdown(sentence)}" for sentence in outcome.said[:_SHOWN])
        if (more := len(outcome.said) - _SHOWN) > 0:
            yield f"- and {more} more findings"
        yield f"\n{outcome.done}: {outcome.then.shown}.\n" if outcome.then else ""
