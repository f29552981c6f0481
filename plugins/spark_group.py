"""The operator that runs one task group of a plan with spark-submit."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from partitioning.errors import Conflict, Refused

if TYPE_CHECKING:
    from airflow.sdk import Context

_NO_RETRY = (Refused.exit_code, Conflict.exit_code)


class SparkGroupOperator(SparkSubmitOperator):
    """SparkSubmitOperator that submits with this environment's Spark and does not retry what was refused.

    The provider takes `yarn` where the connection is missing; here that is an error.
    """

    def execute(self, context: Context) -> None:
        from batches.runners.spark_submit import APPLICATION, configuration, environment  # noqa: PLC0415

        master = BaseHook.get_connection(self._conn_id).host or ""
        self.application = APPLICATION
        self.conf = {**configuration(master), **(self.conf or {})}
        self.env_vars = {**environment(), **(self.env_vars or {})}
        self._spark_binary = str(Path(sys.executable).with_name("spark-submit"))
        started = time.monotonic()
        try:
            super().execute(context)
        except AirflowException as error:
            if _exit_code(self._hook) in _NO_RETRY:
                raise AirflowFailException(str(error)) from error
            raise
        finally:
            _close(self._hook)
        print(f"{self.name}: done in {time.monotonic() - started:.1f} s")


def _exit_code(hook: SparkSubmitHook | None) -> int | None:
    return hook._submit_sp.returncode if hook and hook._submit_sp else None


def _close(hook: SparkSubmitHook | None) -> None:
    """Close what the provider leaves open: the pipe to spark-submit."""
    if hook and hook._submit_sp and hook._submit_sp.stdout:
        hook._submit_sp.stdout.close()


def arguments(plan_uri: str, digest: str, group: int, label: str) -> Mapping[str, Any]:
    """What one mapped SparkGroupOperator gets: the plan's address, never the plan itself."""
    from batches.runners import spark_submit as submission  # noqa: PLC0415

    return {"name": label, "application_args": submission.arguments(plan_uri, digest, group)}
