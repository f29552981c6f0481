"""The link from a task to its run's tab with the Data Docs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

NAME = "Data Docs"
# The tabs by their addresses in Airflow's pages, where each stands once.
MENU, DAG_TAB, RUN_TAB = "coset", "coset_dag", "coset_run"


class PageLink(BaseOperatorLink):
    """A link to the page of the batch that a run works on. It is relative to Airflow's base path."""

    name = NAME

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        # As Airflow writes them in its own addresses; a tab at another spelling is not marked as the one that is open.
        return f"dags/{quote(ti_key.dag_id, safe='')}/runs/{quote(ti_key.run_id, safe=':+')}/plugin/{RUN_TAB}"


def linked(made: Any) -> Any:
    """A task of a function, with the link."""
    made.operator.operator_extra_links = (PageLink(),)
    return made
