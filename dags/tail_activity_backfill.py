"""Airflow: the DAGs that run published batches of the pipeline tail_activity again, and that take that back."""

from dags.pipelines.tail_activity import pipeline
from partitioning import Settings
from plugins.backfill_dag import coset_backfill_dag, coset_undo_dag

backfill = coset_backfill_dag(pipeline, settings=Settings(groups=2))
undo = coset_undo_dag(pipeline)
