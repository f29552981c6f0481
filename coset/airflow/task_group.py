"""The operator that runs a task group of a plan, or several, on a resident Spark server or by submitting them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from coset.airflow.shown import say, shown
from coset.batches.ref import BatchRef
from coset.batches.runners.given_settings import checked
from coset.batches.runners.runner import KUBERNETES, SERVER
from coset.batches.turns import Turns, group_work
from partitioning.errors import Conflict, CosetError, Refused
from partitioning.kinds import Kind

if TYPE_CHECKING:
    from airflow.sdk import Connection, Context

    from coset.batches.runners.runner import Runner


_READ_WITHIN_SECONDS = 0.2


class TaskGroupOperator(SparkSubmitOperator):
    """Runs a task group where its connection says, and `more` after it. A refusal is not retried.

    A connection to a Spark server (of type `spark_connect`, or with a host `sc://…`) may have the server's token as
    password, and in its extra a `master` for when the server is gone. Any other host is a master, to which the provider
    submits with this environment's Spark; to `k8s://…` Coset does, as there the provider asks for another one and hands
    the variables of the driver to a pod. The extra's `conf` has Spark's settings, before which those of a place count.
    A missing connection is an error, where the provider itself would use `yarn`.
    `batch` is a `BatchRef` as plain data. `location` is where the connection leads, if that is not where this task
    runs.
    """

    def __init__(
        self,
        *,
        batch: Mapping[str, str],
        group: int,
        more: Sequence[int] = (),
        location: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.batch = batch
        self.groups = (group, *more)
        self.location = location
        self._runner: Runner | None = None

    def execute(self, context: Context) -> None:
        from spark_jobs.group import nothing_to_do  # noqa: PLC0415

        connection, started = BaseHook.get_connection(self._conn_id), time.monotonic()
        server = server_of(connection)
        try:
            ref = BatchRef(**self.batch)
            ledger, plan = ref.load()
            for group in self.groups:
                with Turns(ledger, plan).turn(group_work(group), wait=True):
                    if server is not None:
                        self._run_by(self._server(server, connection, context), group)
                    elif (connection.host or "").startswith(KUBERNETES):
                        self._run_by(self._kubernetes(connection), group)
                    elif said := nothing_to_do(ledger, plan, group, ledger.attempt(plan.batch)):
                        say(said)
                    else:
                        self._submit(context, group, connection.host or "", settings_of(connection))
        except CosetError as error:
            raise failure(error) from error
        say(f"{self.name}: done in {time.monotonic() - started:.1f} s")
        until_printed()

    def on_kill(self) -> None:
        if self._runner is None:
            super().on_kill()
        else:
            self._runner.cancel()

    def _run_by(self, runner: Runner, group: int) -> None:
        with runner as self._runner:
            say(runner.group(BatchRef(**self.batch), group))

    def _server(self, server: str, connection: Connection, context: Context) -> Runner:
        from coset.batches.runners.connect import Connect  # noqa: PLC0415

        return Connect(
            server,
            token=connection.password,
            master=connection.extra_dejson.get("master", "local[*]"),
            location=self.location,
            settings=settings_of(connection),
            tell=self._tell,
            retried=context["ti"].try_number > 1,
        )

    def _kubernetes(self, connection: Connection) -> Runner:
        from coset.batches.runners.spark_submit import SparkSubmit  # noqa: PLC0415

        master = f"{connection.host}:{connection.port}" if connection.port else connection.host or ""
        settings = {**settings_of(connection), **(self.conf or {})}
        if namespace := connection.extra_dejson.get("namespace"):
            settings.setdefault("spark.kubernetes.namespace", namespace)
        return SparkSubmit(master, settings=settings, tell=self._tell, location=self.location)

    def _tell(self, _: int, sentence: str) -> None:
        say(f"{self.name}: {sentence}")

    def _submit(self, context: Context, group: int, master: str, settings: Mapping[str, str]) -> None:
        from coset.batches.runners.spark_settings import (  # noqa: PLC0415
            SPARK_SUBMIT,
            check_reach,
            configuration,
            environment,
        )
        from coset.batches.runners.spark_submit import APPLICATION, arguments, failure_name  # noqa: PLC0415
        from spark_jobs.engine.location import LOCATION  # noqa: PLC0415

        ref, failed = BatchRef(**self.batch), failure_name(group)
        check_reach(ref, master)
        self.application = APPLICATION
        self.application_args = arguments(ref, group, failed)
        self.conf = configuration(master, {**settings, **(self.conf or {})})
        here = {LOCATION: self.location} if self.location else {}
        self.env_vars = {**environment(), **here, **(self.env_vars or {})}
        self._spark_binary = SPARK_SUBMIT
        # It has what the group before was submitted with.
        self._hook = None
        try:
            super().execute(context)
        except AirflowException as error:
            found = _found(ref, failed)
            if found is None:
                raise
            # People are told the group's own findings; Airflow's error stays in the log.
            found.__cause__ = error
            raise failure(found) from found
        finally:
            _close(self._hook)


def server_of(connection: Connection) -> str | None:
    """The address of the Spark server of a connection. None if it is to something else."""
    host = connection.host or ""
    if connection.conn_type == "spark_connect" and not host.startswith(SERVER):
        host = f"{SERVER}{host}"
    if not host.startswith(SERVER):
        return None
    port = f":{connection.port}" if connection.port else ""
    secured = "/;use_ssl=true" if connection.extra_dejson.get("use_ssl") else ""
    return f"{host}{port}{secured}"


def settings_of(connection: Connection) -> dict[str, str]:
    """Spark's settings in the extra of a connection. Raises Refused for what nobody may give."""
    where = f"the connection {connection.conn_id}"
    if connection.extra_dejson.get("deploy-mode") == "cluster":
        # Spark's own master takes no Python in it, Airflow's provider hands this machine's variables to Kubernetes, and
        # asks YARN for what becomes of its driver where spark-submit would wait.
        what = "its deploy-mode cluster puts the driver where neither the store's keys nor this Coset are"
        then = (
            "leave it out; on YARN, bring both and put spark.submit.deployMode in its conf; elsewhere use a Spark "
            "server, such as sc://host:15002, for jobs that outlast their task"
        )
        raise Refused.of(Kind.SETTING, what, where, then, connection=connection.conn_id)
    return checked(connection.extra_dejson.get("conf") or {}, where)


def until_printed() -> None:
    """Give Airflow time to read the last output of a task.

    Airflow dates printed lines when it reads them, and orders the log by date: lines that it reads after the task's end
    are hidden among its own folded lines.
    """
    time.sleep(_READ_WITHIN_SECONDS)


def failure(error: CosetError) -> AirflowException:
    """The error as Airflow's. A refusal or conflict is not retried."""
    final = isinstance(error, Refused | Conflict)
    return (AirflowFailException if final else AirflowException)(error.shown(shown()))


def _found(ref: BatchRef, name: str) -> CosetError | None:
    """The error of the group, from the document that it stored. None if it stored none."""
    try:
        ledger, plan = ref.load()
        stored = ledger.failure(plan.batch, name)
    except CosetError as unread:
        return unread
    return None if stored is None else stored.failed.error()


def _close(hook: SparkSubmitHook | None) -> None:
    """Close the pipe to spark-submit, which the provider leaves open."""
    if hook and hook._submit_sp and hook._submit_sp.stdout:
        hook._submit_sp.stdout.close()
