"""The interpreter: lists the steps of a batch, for all who run one, and runs them in order, without Airflow."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryFile

from coset.batches import steps
from coset.batches.pace import Pace, Unbound
from coset.batches.ref import BatchRef
from coset.batches.runners.runner import Runner
from coset.batches.turns import Turns, group_work
from coset.reports import next_steps
from coset.sources.counting import Counting, uncounted
from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import Shown
from partitioning.errors import CosetError, Refused, docs_unwritten
from partitioning.model.backfill import pipeline_of
from partitioning.model.failure import together
from partitioning.model.plan import Plan


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
    for turn, beside in groupby(listed, key=lambda step: step.does.turn if isinstance(step.does, OfBatch) else None):
        yield turns.turn(turn, wait=True) if turn else nullcontext(True), beside


# Shows the name of some work while it is done, then the words that were put into the list.
Show = Callable[[str], AbstractContextManager[list[str]]]


@contextmanager
def silently(_: str) -> Iterator[list[str]]:
    """Shows nothing."""
    yield []


def run_batch(
    batch: BatchRef,
    runner: Runner,
    docs: Path | None,
    show: Show,
    pace: Pace | None = None,
    show_page: Callable[[str], None] | None = None,
    counting: Counting = uncounted,
) -> None:
    """Run all steps of a planned batch. Steps that are done are found done.

    Other processes that run the same batch meanwhile share its task groups. The `pace` says when groups may start.
    Without `show_page` no page is shown, without `docs` none is made. A step that goes through many rows is `counting`.
    Raises the errors of the steps, and of a wave all findings of its groups.
    Raises Refused before anything runs if the folder `docs` cannot be written to.
    """
    batch = batch.in_hand()
    ledger, plan = batch.load()
    if docs is not None:
        _check_docs(docs)
    turns, around = Turns(ledger, plan), Surroundings(docs, counting=counting)
    for turn, listed in in_turns(steps_of(backfill=pipeline_of(plan.pipeline) is not None), turns):
        with turn:
            for step in listed:
                match step.does:
                    case Planning() | OfPipeline():
                        # The caller, who has the pipeline, does these.
                        pass
                    case RunWaves():
                        for groups in plan.waves:
                            _run_wave(batch, plan, groups, runner, turns, show, pace or Unbound())
                    case OfBatch(page=True) as does:
                        if show_page is not None:
                            show_page(does.do(batch, around))
                    case OfBatch() as does:
                        with show(step.name) as said:
                            said.append(does.do(batch, around))


def _run_wave(
    batch: BatchRef, plan: Plan, groups: tuple[int, ...], runner: Runner, turns: Turns, show: Show, pace: Pace
) -> None:
    """Run the groups that no other process runs, then wait for the others."""
    busy, errors = list[int](), dict[int, CosetError]()

    def run(number: int) -> None:
        with kept(number):
            pace.wait(plan, number)
            with turns.turn(group_work(number), wait=False) as ours:
                if ours:
                    with show(f"run group {number}") as said:
                        said.extend((runner.group(batch, number), *pace.done(plan, number)))
                else:
                    busy.append(number)

    def wait(number: int) -> None:
        with kept(number), show(f"wait for group {number}") as said, turns.turn(group_work(number), wait=True):
            said.extend((runner.group(batch, number), *pace.done(plan, number)))

    @contextmanager
    def kept(number: int) -> Iterator[None]:
        try:
            yield
        except CosetError as error:
            errors[number] = error

    pool = ThreadPoolExecutor(pace.at_once(runner.at_once))
    try:
        deque(pool.map(run, groups), maxlen=0)
        deque(pool.map(wait, sorted(busy)), maxlen=0)
    except BaseException:
        # After Ctrl-C or SIGTERM the pool would wait for running groups, so they are ended.
        pace.cancel()
        turns.cancel()
        runner.cancel()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    if errors:
        raise together([errors[number] for number in sorted(errors)])


def _check_docs(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Refused(docs_unwritten(folder, error)) from error
