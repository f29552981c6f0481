"""Airflow: the DAG of the pipeline tail_activity; every hour it takes the flights that have arrived."""

from coset import Settings
from coset.airflow import coset_dag
from dags.pipelines.tail_activity import pipeline

dag = coset_dag(pipeline, schedule="@hourly", settings=Settings(groups=2))
