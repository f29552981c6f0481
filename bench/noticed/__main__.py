"""`python -m bench.noticed`: the same join of two topics by several systems, with one fault after the other.

Each answer is held against the true join. What was found is printed; each of its two parts is written into
docs/internals/costs.md if all systems of that part ran.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import shorten

from bench.figures import put
from bench.noticed.outcome import RETRIED, SYSTEMS, Outcome, Run
from bench.noticed.topics import Fault, Topics
from partitioning.sections import Section, markdown
from partitioning.texts import in_markdown

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "costs.md"
_SHOWN, _CUT = 1, 160


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
        yield from (f"- {shorten(in_markdown(sentence), _CUT, placeholder=' …')}" for sentence in outcome.said[:_SHOWN])
        if (more := len(outcome.said) - _SHOWN) > 0:
            yield f"- and {more} more findings"
        yield f"\n{outcome.done}: {outcome.then.shown}.\n" if outcome.then else ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.noticed", description=__doc__)
    known = [*SYSTEMS, *RETRIED]
    parser.add_argument("--only", nargs="+", choices=known, default=known, help="these systems only")
    asked = set(parser.parse_args().only)
    with TemporaryDirectory(prefix="coset-noticed-") as name:
        folder = Path(name)
        if systems := [system for system in SYSTEMS if system in asked]:
            text = of_topics({system: of_each_fault(system, folder / system) for system in systems})
            _tell(Part.TOPICS, text, complete=len(systems) == len(SYSTEMS))
        if systems := [system for system in RETRIED if system in asked]:
            text = of_tasks({system: retried(system, folder / system) for system in systems})
            _tell(Part.TASKS, text, complete=len(systems) == len(RETRIED))
    return 0


def of_each_fault(system: str, folder: Path) -> Mapping[Fault, Outcome]:
    """What a system makes of topics with each fault."""
    with _session(SYSTEMS[system]) as run:
        return {fault: run(Topics.of(fault), folder / fault.name.lower()) for fault in Fault}


def retried(system: str, folder: Path) -> Outcome:
    """What a system makes of right topics while an executor is killed."""
    with _session(RETRIED[system]) as run:
        return run(Topics.of(Fault.NONE), folder)


def _session(system: tuple[str, str, str]) -> AbstractContextManager[Run]:
    _, module, function = system
    session: AbstractContextManager[Run] = getattr(import_module(module), function)()
    return session


def _tell(part: Part, text: str, *, complete: bool) -> None:
    print(text)
    if complete:
        put(PAGE, part.command, (text,))


if __name__ == "__main__":
    sys.exit(main())
