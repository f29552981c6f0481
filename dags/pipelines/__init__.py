"""Pipelines as pure values; no Airflow in here."""
