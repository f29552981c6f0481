"""What a run found, as Markdown, and its place on the page of the docs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.noticed.outcome import Outcome, Verdict
from bench.noticed.systems import SYSTEMS
from bench.noticed.topics import Fault
from partitioning.sections import Section, markdown
from partitioning.texts import in_markdown

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "who-noticed.md"
_BEGIN, _END = "<!-- written by python -m bench.noticed -->", "<!-- as far as here -->"
_SHOWN = 3

# What came of each fault, by system.
Found = Mapping[str, Mapping[Fault, Outcome]]


def found_as_markdown(found: Found) -> str:
    """A table of all systems, and what those that refused said."""
    columns = ("system", *Fault)
    rows = tuple(
        (SYSTEMS[system][0], *(outcomes[fault].shown for fault in Fault)) for system, outcomes in found.items()
    )
    table = Section("Who noticed", columns, rows, ())
    return "\n".join((markdown([table]), *_refusals(found)))


def written(page: str, found: Found) -> str:
    """The page with what was found in place of what it says. Raises ValueError if it has no place for that."""
    before, _, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f"the page has no lines {_BEGIN!r} and {_END!r}")
    return f"{before}{_BEGIN}\n\n{found_as_markdown(found)}\n{_END}{after}"


def _refusals(found: Found) -> Iterator[str]:
    for system, outcomes in found.items():
        for fault, outcome in outcomes.items():
            if outcome.verdict in (Verdict.REFUSED, Verdict.NAMED):
                yield f"### {SYSTEMS[system][0]}, {fault}\n"
                yield from (f"- {in_markdown(sentence)}" for sentence in outcome.said[:_SHOWN])
                if more := len(outcome.said) - _SHOWN:
                    yield f"- and {more} more findings" if more > 0 else ""
                if outcome.then:
                    yield f"\n{outcome.done}: {outcome.then.shown}.\n"
