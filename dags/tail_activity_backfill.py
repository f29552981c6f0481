"""Airflow: the DAGs that run published batches of the pipeline tail_activity again, and that take that back."""

from coset import Settings
from coset.airflow import coset_backfill_dag, coset_undo_dag
from dags.pipelines.tail_activity import pipeline

backfill = coset_backfill_dag(pipeline, settings=Settings(groups=2))
undo = coset_undo_dag(pipeline)
