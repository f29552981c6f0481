"""Coset in a deployment of Airflow: its store, the folder of the Data Docs, and which DAGs are those of a pipeline."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from airflow.configuration import AIRFLOW_HOME, conf

from coset.project.here import enter
from partitioning.errors import Refused
from partitioning.kinds import Kind
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


def store_root() -> str:
    """The root of the store. Raises Refused if neither COSET_STORE nor coset.toml names one."""
    root = _variable("COSET_STORE")
    if not root:
        then = "set it, as COSET_STORE=s3://coset"
        raise Refused.of(Kind.STORE_UNNAMED, "no store is named", "environment variable COSET_STORE", then)
    return root


def docs_folder() -> Path:
    """The folder of the Data Docs."""
    return Path(_variable("COSET_DOCS") or Path(AIRFLOW_HOME) / "coset" / "docs")


def _variable(name: str) -> str | None:
    """A variable of this process; else what the environment of the project around the folder of DAGs says of it, which
    a process that reads no DAG file, as the web server, does not know yet."""
    if not os.environ.get(name):
        enter(Path(conf.get("core", "dags_folder")))
    return os.environ.get(name)


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
