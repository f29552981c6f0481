"""The words of messages about incidents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from partitioning.commands import Report, Shown
from partitioning.model.incident import Incident, Message, News, Severity
from partitioning.model.journal import as_time
from partitioning.sections import many
from partitioning.texts import indented, visible

_MOST_IN_A_TITLE = 120


def cause(incident: Incident) -> str:
    """What is wrong, on one line."""
    return visible(incident.trouble.what.partition("\n")[0])


def title(pipeline: str, message: Message, environment: str = "") -> str:
    """The message on one line, as the subject of a mail."""
    match message.news:
        case News.OPENED if message.incident.severity is Severity.WARNING:
            said = "warning"
        case News.OPENED:
            said = "failed"
        case News.ENDED:
            said = "works again"
        case _:
            assert_never(message.news)
    return visible(
        f"Coset{f' {environment}' if environment else ''}, {pipeline} {said}: {cause(message.incident)}",
        _MOST_IN_A_TITLE,
    )


def text(pipeline: str, message: Message, link: str, shown: Shown, environment: str = "") -> str:
    """The whole message: what is wrong, where, the next step, and its subject."""
    incident = message.incident
    match message.news:
        case News.OPENED:
            said = list(_opened(pipeline, incident, shown))
        case News.ENDED:
            said = list(_ended(incident))
        case _:
            assert_never(message.news)
    return "\n".join([*said, "", *_about(pipeline, incident, link, environment)])


def _opened(pipeline: str, incident: Incident, shown: Shown) -> Iterator[str]:
    trouble = incident.trouble
    yield indented(trouble.what)
    yield f"  where: {visible(trouble.where)}"
    yield f"  next:  {visible(shown.says(trouble.then))}"
    if trouble.more:
        there = "" if incident.batch is None else f": `{shown.line(Report(pipeline, incident.batch))}`"
        yield f"There {'is' if trouble.more == 1 else 'are'} {many(trouble.more, 'finding')} more{there}"


def _ended(incident: Incident) -> Iterator[str]:
    how = "nothing is wrong any more" if incident.published is None else f"batch {incident.published} is published"
    yield f"It has ended: {how}."
    yield f"It was: {indented(incident.trouble.what)}"


def _about(pipeline: str, incident: Incident, link: str, environment: str) -> Iterator[str]:
    yield f"Pipeline: {visible(pipeline)}"
    if environment:
        yield f"Environment: {visible(environment)}"
    if incident.batch is not None:
        yield f"Batch: {incident.batch}"
    yield f"Since: {as_time(incident.began)}, {many(incident.failures, 'failure')}"
    if incident.ended is not None:
        yield f"Until: {as_time(incident.ended)}"
    if incident.owner:
        yield f"Owner: {visible(incident.owner)}"
    if link:
        yield f"Page: {visible(link)}"
