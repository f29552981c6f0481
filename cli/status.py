"""Where a pipeline stands: committed and latest offsets, lag, and what an open batch still needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from batches.waiting import waits_for
from cli import pipelines
from cli.output import as_plain, show_error, show_json, show_table
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger, Standing
from partitioning.documents.store import S3Store
from partitioning.errors import CosetError, plan_anew
from partitioning.model.offsets import StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.streams import Discovered
from sources.landed import discover


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a stream partition is. None is not zero: nothing was committed yet, or the latest is unknown.

    The lag is unknown, too, where what lies there ends before what is committed.
    """

    partition: str
    committed: int | None
    latest: int | None
    lag: int | None

    @property
    def gone(self) -> str | None:
        """A sentence if less lies there than is committed."""
        if self.committed is None or self.latest is None or self.latest >= self.committed:
            return None
        lies = f"its files end at offset {self.latest:,}" if self.latest else "no file is left of it"
        return f"{self.partition} is committed up to offset {self.committed:,}, but {lies}."


def show_status(named: str, root: str, *, as_json: bool) -> int:
    """Print where the pipeline stands; the exit code is that of what is wrong with the landed files, or 0."""
    pipeline = pipelines.load(named)
    ledger = Ledger(S3Store(root), pipeline.name)
    standing = ledger.standing()
    discovered, wrong = _discover(pipeline, standing.published)
    partitions = list(_progress(pipeline, standing.published, discovered))
    batch, needs, then = _newest(ledger, standing)
    if as_json:
        findings = [as_plain(finding) for finding in wrong.findings] if wrong else []
        show_json(
            {
                "pipeline": pipeline.name,
                "newest": {"batch": standing.plan.batch, "open": standing.open, "needs": needs}
                if standing.plan
                else None,
                "published": standing.published.batch if standing.published else None,
                "partitions": [asdict(progress) for progress in partitions],
                "findings": findings,
            }
        )
        return wrong.exit_code if wrong else 0
    rows = [
        (
            progress.partition,
            _known(progress.committed, "none yet"),
            _known(progress.latest, "unknown"),
            _known(progress.lag, "unknown"),
        )
        for progress in partitions
    ]
    lags = [progress.lag for progress in partitions]
    total = "unknown" if None in lags else f"{sum(lag for lag in lags if lag is not None):,}"
    gone = [progress.gone for progress in partitions if progress.gone]
    notes = [batch, *needs, *([then] if then else []), *gone, f"Lag: {total} in {len(partitions)} stream partitions."]
    show_table(f"Pipeline {pipeline.name}", ("stream partition", "committed", "latest", "lag"), rows, notes)
    if wrong:
        show_error(wrong, as_json=False)
        return wrong.exit_code
    return 0


def _discover(pipeline: Pipeline, published: Plan | None) -> tuple[dict[str, Discovered], CosetError | None]:
    """What has arrived, and what is wrong with it: what is committed can be shown without."""
    try:
        return {discovered.stream: discovered for discovered in discover(pipeline.streams, published)}, None
    except CosetError as error:
        return {}, error


def _progress(pipeline: Pipeline, published: Plan | None, discovered: dict[str, Discovered]) -> Iterator[Progress]:
    committed = {
        (stream.name, partition.partition): partition.end
        for stream in (published.streams if published else ())
        for partition in stream.partitions
    }
    for stream in pipeline.streams:
        for number in range(stream.partitions):
            done, latest, lag = committed.get((stream.name, number)), None, None
            if stream.name in discovered:
                here = discovered[stream.name].partitions[number]
                latest = here.end
                start = here.beginning if done is None else done
                lag = sum(file.held(start, file.end) for file in here.files) if latest >= start else None
            yield Progress(str(StreamPartition(stream.name, number)), done, latest, lag)


def _newest(ledger: Ledger, standing: Standing) -> tuple[str, list[str], str | None]:
    """The newest batch in a sentence, what it still needs, and the next command if it needs something."""
    plan = standing.plan
    if plan is None:
        return "No batch was planned yet.", [], f"Next: coset run {ledger.pipeline}"
    if not standing.open:
        decision = standing.verdict.decision if standing.verdict else ""
        return f"Batch {plan.batch} is closed ({decision}).", [], None
    if standing.verdict is None and (wrong := waits_for(ledger, plan.batch)):
        needs = ["It waits: the checks of its last two attempts failed in the same way.", *wrong]
        return f"Batch {plan.batch} is open.", needs, f"Next: correct it, then {plan_anew(ledger.pipeline)}"
    return f"Batch {plan.batch} is open.", list(_needs(ledger, standing, plan)), f"Next: coset run {ledger.pipeline}"


def _needs(ledger: Ledger, standing: Standing, plan: Plan) -> Iterator[str]:
    if standing.verdict is not None:
        yield f"It is decided ({standing.verdict.decision}); its publication is not finished."
        return
    attempt = ledger.attempt(plan.batch)
    if attempt:
        yield f"The checks of attempt {attempt - 1} failed; attempt {attempt} is next."
    missing = [group.group for group in plan.groups if ledger.receipt(plan.batch, attempt, group.group) is None]
    if missing:
        yield f"Still to run: {len(missing)} of {len(plan.groups)} task groups ({', '.join(map(str, missing))})."
    else:
        yield "All task groups have run; it is not checked yet."


def _known(value: int | None, otherwise: str) -> str:
    return otherwise if value is None else f"{value:,}"
