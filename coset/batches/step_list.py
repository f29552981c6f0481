"""The list of a batch's steps, for the command line, backfills, both DAG factories, tests and the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import groupby
from pathlib import Path

from coset.batches import steps
from coset.batches.ref import BatchRef
from coset.batches.turns import Turns
from coset.reports import next_steps
from coset.sources.counting import Counting, uncounted
from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import Shown


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a step needs beside its batch: the folder of the Data Docs, if there are any, how findings are shown, and
    who is told how far it is."""

    docs: Path | None
    shown: Shown = field(default_factory=next_steps.shown)
    counting: Counting = uncounted


@dataclass(frozen=True, slots=True)
class Planning:
    """The caller plans: before that there is no batch to refer to."""


@dataclass(frozen=True, slots=True)
class RunWaves:
    """A runner does this, wave by wave. Each task group has a turn of its own."""


@dataclass(frozen=True, slots=True)
class OfBatch:
    """A function of the batch. Returns a sentence, or a `page` of Markdown. It is done in the `turn` of this name,
    together with the steps beside it that name the same."""

    do: Callable[[BatchRef, Surroundings], str]
    page: bool = False
    turn: str | None = None


@dataclass(frozen=True, slots=True)
class OfPipeline:
    """A function of the pipeline and its store's root, for all its batches. Returns a sentence."""

    do: Callable[[Pipeline, str], str]


class Trigger(Enum):
    """When Airflow runs a step. If planning is skipped, all later steps are skipped too."""

    ALL_SUCCEEDED = auto()
    # Waves without task groups are skipped.
    ONE_SUCCEEDED_NONE_FAILED = auto()


class Batches(Enum):
    """Which batches have a step."""

    ALL = auto()
    # A pipeline's own batches. Those of a backfill are compared and swapped together instead.
    LIVE = auto()
    ASKED = auto()


@dataclass(frozen=True, slots=True)
class BatchStep:
    """A step: its name; what it does, in words and as a value; when Airflow runs it; and which batches have it.

    Airflow runs it in the task of its name, or in that of the step beside it, `within`: a task of its own would take
    longer to start than most steps take.
    """

    name: str
    what: str
    does: Planning | RunWaves | OfBatch | OfPipeline
    trigger: Trigger = Trigger.ALL_SUCCEEDED
    batches: Batches = Batches.ALL
    within: str = ""

    @property
    def task(self) -> str:
        """The name of its Airflow task."""
        return self.within or self.name


# The name of the step that publishes a batch.
PUBLISH = "publish"
PLAN = BatchStep("plan", "Plan the next batch, or take up the open one.", Planning())
STEPS = (
    PLAN,
    BatchStep("run", "Run the task groups of each wave.", RunWaves(), trigger=Trigger.ONE_SUCCEEDED_NONE_FAILED),
    BatchStep(
        "audit",
        "Make the audit tables from the receipts of all groups.",
        # Two processes would do the same work twice and write the same pages.
        OfBatch(lambda batch, _: steps.audit(batch), turn="check"),
        trigger=Trigger.ONE_SUCCEEDED_NONE_FAILED,
        within="check",
    ),
    BatchStep(
        "check",
        "Let Great Expectations judge the audit tables and the rows, and decide.",
        OfBatch(lambda batch, around: steps.check(batch, around.docs, around.counting), turn="check"),
    ),
    BatchStep(
        PUBLISH,
        "Make rows and offsets visible together.",
        OfBatch(lambda batch, around: steps.publish(batch, around.docs)),
        batches=Batches.LIVE,
    ),
    BatchStep(
        "report",
        "Print what was read, decided and published, and where the Data Docs are.",
        OfBatch(lambda batch, around: steps.report(batch, around.docs, around.shown), page=True),
        batches=Batches.LIVE,
        within=PUBLISH,
    ),
    BatchStep(
        "clean",
        "Remove the files of decided batches that no verdict names.",
        OfPipeline(steps.clean),
        batches=Batches.ASKED,
    ),
)


def steps_of(*, backfill: bool = False, clean: bool = False) -> tuple[BatchStep, ...]:
    """The steps of a batch in their order, of a pipeline's own or of a backfill's batch. `clean` adds cleaning."""
    wanted = {Batches.ALL: True, Batches.LIVE: not backfill, Batches.ASKED: clean}
    return tuple(step for step in STEPS if wanted[step.batches])


def in_turns(
    listed: Iterable[BatchStep], turns: Turns
) -> Iterator[tuple[AbstractContextManager[bool], Iterable[BatchStep]]]:
    """The steps, those beside each other that name one turn together, and the turn to hold while they are done."""
    for turn, together in groupby(listed, key=lambda step: step.does.turn if isinstance(step.does, OfBatch) else None):
        yield turns.turn(turn, wait=True) if turn else nullcontext(True), together
