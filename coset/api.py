"""Batches from Python, as `coset plan` and `coset run` make them: for scripts, notebooks and other schedulers.

Everything that a batch needs is imported when it is first used: pipelines import this package.

>>> from tempfile import TemporaryDirectory
>>> folder = TemporaryDirectory()
>>> shop = Pipeline("shop", source=f"{folder.name}/topics")
>>> orders = shop.stream("orders", key="who", partitions=1, format="json", columns={"who": "VARCHAR"})
>>> orders.write("orders")
>>> landed = Path(folder.name, "topics/orders/partition=0/orders+0+0000000000.json")
>>> landed.parent.mkdir(parents=True)
>>> landed.write_text('{"who": "ann", "_offset": 0}')
28
>>> plan(shop, f"{folder.name}/store")
PlannedBatch(batch=0, records=1)
>>> run(shop, f"{folder.name}/store").tables
{'orders': 1}
>>> run(shop, f"{folder.name}/store")
>>> folder.cleanup()
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from shlex import quote
from typing import Literal

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.stores import named_root
from partitioning.errors import CosetError, Refused
from partitioning.kinds import Kind

RunnerName = Literal["local", "spark", "spark-submit", "connect"]


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch whose plan is stored: its number, how many records it takes, and the plan as a page of Markdown, which a
    notebook shows."""

    batch: int
    records: int
    page: str = field(repr=False)

    def _repr_markdown_(self) -> str:
        return self.page


@dataclass(frozen=True, slots=True)
class PublishedBatch:
    """A batch that was published: its number, how many records it took, what its verdict says, and the version that
    each of its result tables has since then."""

    batch: int
    records: int
    verdict: str
    tables: Mapping[str, int]


def plan(pipeline: Pipeline, store: str | PathLike[str], settings: Settings = DEFAULTS) -> PlannedBatch | None:
    """Plan the next batch and store its plan; an open batch keeps its own. None if nothing is new.

    `store` is `s3://bucket/prefix` or a folder. Raises Refused, with all findings, and the other errors of this
    package.
    """
    from coset.batches import steps  # noqa: PLC0415

    with _in_store(pipeline, store, settings) as root:
        batch, _ = steps.take_up(pipeline, root, settings)
    return None if batch is None else PlannedBatch(batch.plan.batch, batch.plan.records, steps.plan_page(batch))


def run(
    pipeline: Pipeline,
    store: str | PathLike[str],
    settings: Settings = DEFAULTS,
    *,
    runner: RunnerName = "local",
    master: str = "local[*]",
    memory: str = "1GB",
    docs: str | PathLike[str] | None = None,
) -> PublishedBatch | None:
    """Run the next batch, or go on with the open one, until it is published. None if nothing is new.

    `runner` is what runs the task groups: "local" is processes of this machine without Spark; the others take a
    `master`, or the address of a Spark server. A task may hold so much `memory`. Pages about the batch are written to
    `docs`, if that is given. Raises Refused, with all findings, and the other errors of this package; the batch stays
    open then, and the next call goes on with it.
    """
    from coset.batches import steps  # noqa: PLC0415
    from coset.batches.interpreter import run_batch, silently  # noqa: PLC0415
    from coset.batches.runners.choice import runner as chosen  # noqa: PLC0415
    from coset.batches.runners.runner import RunnerKind, check_runs  # noqa: PLC0415

    if runner not in list(RunnerKind):
        then = f"use {', '.join(RunnerKind)}"
        raise Refused.of(Kind.ARGUMENT, f"unknown runner {runner!r}", "coset.run", then, runner=runner)
    with _in_store(pipeline, store, settings, runner) as root, chosen(RunnerKind(runner), master, memory) as runs:
        check_runs(pipeline.steps, pipeline.name, runs)
        batch, _ = steps.take_up(pipeline, root, settings)
        if batch is None:
            return None
        run_batch(batch, runs, None if docs is None else Path(docs), silently)
    ledger, planned = batch.load()
    verdict, commit = ledger.verdict(planned.batch), ledger.commit(planned.batch)
    assert verdict is not None, "a batch that ran without an error is judged"
    assert commit is not None, "a batch that ran without an error is published"
    tables = {each.table: each.version for each in commit.tables}
    return PublishedBatch(planned.batch, planned.records, str(verdict.why), tables)


@contextmanager
def _in_store(
    pipeline: Pipeline, store: str | PathLike[str], settings: Settings, runner: RunnerName | None = None
) -> Iterator[str]:
    """The store's root. An error says what the commands that it names need, whoever types them."""
    if not isinstance(pipeline, Pipeline):
        then = "give the Pipeline itself, as `from spent import pipeline`"
        raise Refused.of(Kind.ARGUMENT, f"{pipeline!r} is no pipeline", "pipeline", then, pipeline=repr(pipeline))
    if not isinstance(settings, Settings) or isinstance(settings.scheme, str):
        then = "make them by Settings.parse(scheme='tasks(8)'), or Settings.read(text, place) of a TOML file"
        raise Refused.of(Kind.ARGUMENT, f"{settings!r} are no settings", "settings", then, settings=repr(settings))
    if not fspath(store):
        then = "name s3://bucket/prefix, or the path of a folder"
        raise Refused.of(Kind.STORE_ADDRESS, "no store is named", "store", then)
    root = named_root(store)
    try:
        yield root
    except CosetError as error:
        from coset.project.pipeline_files import files_of  # noqa: PLC0415

        # Who loads a script that runs batches runs them.
        script = getattr(sys.modules["__main__"], "__file__", None)
        file = next((each for each in files_of(pipeline) if each != script), None)
        called = f"{quote(file)} for {pipeline.name}" if file else "the pipeline in a file of its own"
        runs = f", those that run tasks --runner {runner}" if runner else ""
        error.add_note(f"commands need --store {quote(root)}{runs}, and {called}")
        raise
