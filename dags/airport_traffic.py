"""Airflow: the DAG of the pipeline airport_traffic; every hour it takes the flights that have arrived."""

from dags.pipelines.airport_traffic import pipeline
from partitioning import Settings
from plugins.coset_dag import coset_dag

dag = coset_dag(pipeline, schedule="@hourly", settings=Settings(groups=2))
