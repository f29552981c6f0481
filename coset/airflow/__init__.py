"""Coset in Airflow: the factories of DAGs, and what DAG files need besides.

A name is imported when it is asked for: Airflow reads its home when it is imported, and takes a second.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coset.airflow.asset import published
    from coset.airflow.backfill_dag import coset_backfill_dag, coset_undo_dag
    from coset.airflow.batch_dag import coset_dag
    from coset.airflow.notifier import CosetNotifier, late
    from coset.airflow.places import Place

__all__ = ["CosetNotifier", "Place", "coset_backfill_dag", "coset_dag", "coset_undo_dag", "late", "published"]

_WHERE = {
    "CosetNotifier": "notifier",
    "Place": "places",
    "coset_backfill_dag": "backfill_dag",
    "coset_dag": "batch_dag",
    "coset_undo_dag": "backfill_dag",
    "late": "notifier",
    "published": "asset",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
