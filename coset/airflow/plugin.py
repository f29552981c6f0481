"""Coset's Airflow plugin, and the links to its tabs. Admin > Plugins shows whether a deployment has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.plugins_manager import AirflowPlugin
from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

NAME = "Data Docs"
# The addresses of the tabs in Airflow's pages.
MENU, DAG_TAB, RUN_TAB = "coset", "coset_dag", "coset_run"
# Relative to Airflow's base path.
_PAGES = "coset"


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


class CosetPlugin(AirflowPlugin):
    """The Data Docs in Airflow: a tab for each run and DAG, and a menu entry."""

    name = "coset"
    external_views = [  # noqa: RUF012 - Airflow declares a list
        {"name": "Coset", "href": f"{_PAGES}/", "destination": "nav", "category": "browse", "url_route": MENU},
        {"name": NAME, "href": f"{_PAGES}/dags/{{DAG_ID}}/index.html", "destination": "dag", "url_route": DAG_TAB},
        {
            "name": NAME,
            "href": f"{_PAGES}/dags/{{DAG_ID}}/run?run_id={{RUN_ID}}",
            "destination": "dag_run",
            "url_route": RUN_TAB,
        },
    ]

    @property
    def fastapi_apps(self) -> list[Any]:  # type: ignore[override]
        """The routes. All processes of Airflow load plugins, but only the web server reads this property."""
        from coset.airflow.page_routes import app  # noqa: PLC0415

        return [{"app": app, "url_prefix": f"/{_PAGES}", "name": "Coset"}]
