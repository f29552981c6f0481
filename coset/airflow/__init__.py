"""Coset in Airflow: the DAG factories, and what else DAG files need.

Each name is imported when it is first used: importing Airflow takes a second, and reads its home.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coset.airflow.asset import published
    from coset.airflow.backfill_dag import coset_backfill_dag, coset_undo_dag
    from coset.airflow.batch_dag import coset_dag
    from coset.airflow.notifier import CosetNotifier, late
    from coset.airflow.places import Place
    from coset.airflow.project_dags import coset_dags, coset_verify_dag

__all__ = [
    "CosetNotifier",
    "Place",
    "coset_backfill_dag",
    "coset_dag",
    "coset_dags",
    "coset_undo_dag",
    "coset_verify_dag",
    "late",
    "published",
]

_WHERE = {
    "CosetNotifier": "notifier",
    "Place": "places",
    "coset_backfill_dag": "backfill_dag",
    "coset_dag": "batch_dag",
    "coset_dags": "project_dags",
    "coset_undo_dag": "backfill_dag",
    "coset_verify_dag": "project_dags",
    "late": "notifier",
    "published": "asset",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
