"""Airflow: the DAG of the pipeline tail_activity; every hour it takes the flights that have arrived."""

from dags.pipelines.tail_activity import pipeline
from partitioning import Settings
from plugins.coset_dag import coset_dag

dag = coset_dag(pipeline, schedule="@hourly", settings=Settings(groups=2))
