"""The link from a task to the tab of its run with the Data Docs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

NAME = "Data Docs"
# The addresses of the tabs in Airflow's pages.
MENU, DAG_TAB, RUN_TAB = "coset", "coset_dag", "coset_run"


class PageLink(BaseOperatorLink):
    """A link to the page of a run's batch. It is relative to Airflow's base path."""

    name = NAME

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        # This is Airflow's own spelling of addresses. With another one the open tab would not be marked.
        return f"dags/{quote(ti_key.dag_id, safe='')}/runs/{quote(ti_key.run_id, safe=':+')}/plugin/{RUN_TAB}"


def linked(made: Any) -> Any:
    """Add the link to the task of a function."""
    made.operator.operator_extra_links = (PageLink(),)
    return made
