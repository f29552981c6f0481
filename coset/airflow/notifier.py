"""The notifier of Coset's DAGs: tells people once when a pipeline fails, and once when that has ended.

A task's callbacks run where the task ran, and get its error. An error in a callback does not change the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook, BaseNotifier

from coset.airflow.deployment import store_root
from coset.airflow.shown import say, shown
from coset.batches.watch import Channel, Notice, Untold, Watch, addresses, from_environment
from partitioning.errors import CosetError
from partitioning.model.incident import WatchedRuns

if TYPE_CHECKING:
    from airflow.sdk import Context

    from partitioning.authoring.pipeline import Pipeline

# An Airflow callback, and lists of them by their names in `default_args`.
Callbacks = dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class Watched:
    """The runs to watch: those of a pipeline, of its backfills, or of its verifications."""

    pipeline: str
    owner: str = ""
    runs: WatchedRuns = WatchedRuns.BATCHES

    @classmethod
    def of(cls, pipeline: Pipeline, runs: WatchedRuns = WatchedRuns.BATCHES) -> Watched:
        """These runs of a pipeline."""
        return cls(pipeline.name, pipeline.owner, runs)


class CosetNotifier(BaseNotifier):
    """Tells the addresses in COSET_NOTIFY, and those in the password of the connection `conn_id`, about incidents.

    Notifiers of Airflow's providers in `also` are called for the same messages; in their templates `coset` has `title`,
    `text` and `link`. DAG factories take it as `notify=`. In a DAG of your own, `CosetNotifier(pipeline=…)` is an
    `on_failure_callback`, and with `passed=True` the `on_success_callback` of the task that publishes.
    """

    def __init__(
        self,
        *,
        conn_id: str | None = None,
        also: Sequence[BaseNotifier] = (),
        pipeline: Pipeline | None = None,
        passed: bool = False,
    ) -> None:
        super().__init__()
        self.conn_id = conn_id
        self.also = tuple(also)
        self.passed = passed
        self.published = True
        self.tasks: frozenset[str] | None = None
        self.watched = Watched.of(pipeline) if pipeline else None

    def notify(self, context: Context) -> None:
        """Airflow calls this. It raises nothing."""
        if self.watched is None or (self.tasks is not None and context["ti"].task_id not in self.tasks):
            return
        try:
            watch = _watch(self.watched, [*_channels(self.conn_id), *(_Provided(each, context) for each in self.also)])
        except (CosetError, Untold) as error:
            say(f"Incidents of {self.watched.pipeline}: nobody could be told: {error}")
            return
        if self.passed:
            watch.passed(published=self.published)
        else:
            watch.failed(_error(context.get("exception")))

    def callbacks(self, watched: Watched, published: str, nothing_to_do: str | None = None) -> Callbacks:
        """The callbacks for a DAG's `default_args`. A failure of any task begins an incident; success of the task
        `published`, or skipping the task `nothing_to_do`, ends it."""
        given = {"on_failure_callback": [self._as(watched)]}
        given["on_success_callback"] = [self._as(watched, passed=True, tasks=frozenset({published}))]
        if nothing_to_do is not None:
            skipped = self._as(watched, passed=True, published=False, tasks=frozenset({nothing_to_do}))
            given["on_skipped_callback"] = [skipped]
        return given

    def _as(self, watched: Watched, **changed: Any) -> CosetNotifier:
        other = copy(self)
        for name, value in (changed | {"watched": watched}).items():
            setattr(other, name, value)
        return other


def late(pipeline: str, context: Mapping[str, Any] | None = None, owner: str = "", conn_id: str | None = None) -> None:
    """The callback of a deadline alert: a run has not ended in time. It makes an incident with the severity warning."""
    run = (context or {}).get("dag_run") or {}
    where = f"run {run.get('run_id') or run.get('dag_run_id') or '?'} of the DAG {run.get('dag_id') or pipeline}"
    watch = _watch(Watched(pipeline, owner), [*_channels(conn_id)])
    watch.late("nothing is published by the deadline", where)


def with_callbacks(default_args: Mapping[str, Any], callbacks: Callbacks) -> dict[str, Any]:
    """The `default_args` with our callbacks before the given ones."""
    given = dict(default_args)
    for name, ours in callbacks.items():
        theirs = given.get(name) or []
        given[name] = [*ours, *(theirs if isinstance(theirs, list | tuple) else [theirs])]
    return given


def _watch(watched: Watched, channels: Sequence[Channel]) -> Watch:
    return Watch(watched.pipeline, watched.owner, store_root(), channels, shown(), say, watched.runs)


def _channels(conn_id: str | None) -> Iterator[Channel]:
    yield from from_environment()
    if conn_id is not None:
        try:
            listed = BaseHook.get_connection(conn_id).password
        except Exception as error:
            raise Untold(f"the connection {conn_id} cannot be read: {type(error).__name__}") from None
        yield from addresses(listed or "")


@dataclass(frozen=True, slots=True)
class _Provided:
    """A notifier of a provider, as a channel."""

    notifier: BaseNotifier
    context: Context

    @property
    def name(self) -> str:
        return type(self.notifier).__name__

    def tell(self, notice: Notice) -> None:
        told = {"title": notice.title, "text": notice.text, "link": notice.link}
        # Calling a notifier renders its templates in place, so this calls a copy.
        copy(self.notifier)({**self.context, "coset": told})


def _error(raised: object) -> BaseException | None:
    """Coset's error behind the error that a task raised, else that error."""
    error = raised if isinstance(raised, BaseException) else None
    cause = error.__cause__ if error else None
    return cause if isinstance(cause, CosetError) else error
