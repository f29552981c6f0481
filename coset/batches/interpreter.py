"""The interpreter: runs the steps of a batch one after the other, without Airflow."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import assert_never

from coset.batches.pace import Pace, Unbound
from coset.batches.ref import BatchRef
from coset.batches.runners.runner import Runner
from coset.batches.step_list import OfBatch, OfPipeline, Planning, RunWaves, Surroundings, in_turns, steps_of
from coset.batches.turns import Turns, group_work
from coset.sources.counting import Counting, uncounted
from partitioning.errors import CosetError, Refused, docs_unwritten
from partitioning.model.backfill import pipeline_of
from partitioning.model.failure import together
from partitioning.model.plan import Plan

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
    for turn, steps in in_turns(steps_of(backfill=pipeline_of(plan.pipeline) is not None), turns):
        with turn:
            for step in steps:
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
                    case _:
                        assert_never(step.does)


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
