"""Coset's Airflow plugin. Admin > Plugins shows whether a deployment has it."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from coset.airflow.page_link import DAG_TAB, MENU, NAME, RUN_TAB

# Relative to Airflow's base path.
_PAGES = "coset"


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
