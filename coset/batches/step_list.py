"""The steps of a batch, as one list: the command line, backfills, both DAG factories, tests and the benchmark go
through it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

from coset.batches import steps
from coset.batches.ref import BatchRef
from coset.batches.turns import Turns
from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import Shown


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a step needs besides its batch: the folder of the Data Docs, and how findings are shown."""

    docs: Path
    shown: Shown = field(default_factory=Shown)


@dataclass(frozen=True, slots=True)
class Planning:
    """Done by whoever chooses the batch, before there is one to refer to."""


@dataclass(frozen=True, slots=True)
class RunWaves:
    """Done by a runner, wave by wave; each task group takes a turn of its own."""


@dataclass(frozen=True, slots=True)
class OfBatch:
    """Done for the batch: gives a sentence, or a `page` of Markdown; `turn` is the work whose turn it takes, if any."""

    do: Callable[[BatchRef, Surroundings], str]
    page: bool = False
    turn: str | None = None

    def perform(self, batch: BatchRef, around: Surroundings, turns: Turns | None = None) -> str:
        """Do it, by the runner with these `turns`; what it says. Raises what it raises."""
        if self.turn is None:
            return self.do(batch, around)
        with (turns or Turns(*batch.load())).turn(self.turn, wait=True):
            return self.do(batch, around)


@dataclass(frozen=True, slots=True)
class OfPipeline:
    """Done for all batches of the pipeline in the store of that root. Returns a sentence."""

    do: Callable[[Pipeline, str], str]


class Trigger(Enum):
    """When Airflow runs a step. If planning is skipped, so is all that follows, in either case."""

    ALL_SUCCEEDED = auto()
    # Waves without task groups are skipped.
    ONE_SUCCEEDED_NONE_FAILED = auto()


class Batches(Enum):
    """Which batches have a step."""

    ALL = auto()
    # Those that are published: a backfill's batches are compared and swapped together instead.
    LIVE = auto()
    ASKED = auto()


@dataclass(frozen=True, slots=True)
class BatchStep:
    """A step: its name, which is its Airflow task's too; what it does, in words and as a value; when Airflow runs it;
    which batches have it."""

    name: str
    what: str
    does: Planning | RunWaves | OfBatch | OfPipeline
    trigger: Trigger = Trigger.ALL_SUCCEEDED
    batches: Batches = Batches.ALL


# The name of the step after which a batch is published.
PUBLISH = "publish"
PLAN = BatchStep("plan", "Plan the next batch, or take up the open one.", Planning())
STEPS = (
    PLAN,
    BatchStep("run", "Run the task groups of each wave.", RunWaves(), trigger=Trigger.ONE_SUCCEEDED_NONE_FAILED),
    BatchStep(
        "audit",
        "Make the audit tables from the receipts of all groups.",
        OfBatch(lambda batch, _: steps.audit(batch)),
        trigger=Trigger.ONE_SUCCEEDED_NONE_FAILED,
    ),
    BatchStep(
        "check",
        "Let Great Expectations judge the audit tables and the rows, and decide.",
        # Two who judge at once would do the same work twice, and write the same pages.
        OfBatch(lambda batch, around: steps.check(batch, around.docs), turn="check"),
    ),
    BatchStep(
        PUBLISH,
        "Make rows and offsets visible together.",
        OfBatch(lambda batch, _: steps.publish(batch)),
        batches=Batches.LIVE,
    ),
    BatchStep(
        "report",
        "Print what was read, decided and published, and where the Data Docs are.",
        OfBatch(lambda batch, around: steps.report(batch, around.docs, around.shown), page=True),
        batches=Batches.LIVE,
    ),
    BatchStep(
        "clean",
        "Remove the files of decided batches that no verdict names.",
        OfPipeline(steps.clean),
        batches=Batches.ASKED,
    ),
)


def steps_of(*, backfill: bool = False, clean: bool = False) -> tuple[BatchStep, ...]:
    """The steps of a batch in their order: of a pipeline's own or of a backfill's, with cleaning if it is asked for."""
    wanted = {Batches.ALL: True, Batches.LIVE: not backfill, Batches.ASKED: clean}
    return tuple(step for step in STEPS if wanted[step.batches])
