"""Airflow: the DAG that verifies the tables of the pipeline airport_traffic; each night a part of their keys."""

from coset.airflow import coset_verify_dag
from dags.pipelines.airport_traffic import pipeline

dag = coset_verify_dag(pipeline, schedule="@daily")
