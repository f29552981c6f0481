"""Finds out which DAGs are Coset's, and of which pipeline, by their names and tags in Airflow's database."""

from __future__ import annotations

from collections.abc import Collection

from partitioning.errors import Refused
from partitioning.model.backfill import pipeline_of
from partitioning.model.offsets import check_name

# The tags of all DAGs of Coset, and of those for backfills.
TAG = "coset"
BACKFILL_TAG = "backfill"
# What the names of a pipeline's backfill DAGs end with.
BACKFILL = "_backfill"
UNDO = "_undo"
# The tag, and the end of the name, of the DAG that verifies a pipeline's tables.
VERIFY_TAG = "verify"
VERIFY = "_verify"


def pipeline_of_dag(dag_id: str, tags: Collection[str]) -> str | None:
    """The pipeline of a DAG with these tags. None if it is not one of Coset's.

    >>> pipeline_of_dag("shop_undo", {"coset", "backfill"}), pipeline_of_dag("shop_undo", {"coset"})
    ('shop', 'shop_undo')
    >>> pipeline_of_dag("shop_verify", {"coset", "verify"})
    'shop'
    """
    if TAG not in tags:
        return None
    endings = [*((BACKFILL, UNDO) if BACKFILL_TAG in tags else ()), *((VERIFY,) if VERIFY_TAG in tags else ())]
    ending = next((each for each in endings if dag_id.endswith(each)), "")
    try:
        name = check_name(dag_id.removesuffix(ending), "pipeline")
    except Refused:
        return None
    # A backfill's own name is not a pipeline's.
    return name if pipeline_of(name) is None else None
