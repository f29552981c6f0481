"""Airflow: the DAG of the pipeline origin_weather; once a day it takes the weather that has arrived."""

from dags.pipelines.origin_weather import pipeline
from partitioning import Settings
from plugins.coset_dag import coset_dag

dag = coset_dag(pipeline, schedule="@daily", settings=Settings(groups=1))
