"""Airflow: the DAG of the pipeline origin_weather; once a day it takes the weather that has arrived."""

from coset import Settings
from coset.airflow import coset_dag
from dags.pipelines.origin_weather import pipeline

dag = coset_dag(pipeline, schedule="@daily", settings=Settings(groups=1))
