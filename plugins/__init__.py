"""Coset in Airflow: the DAG factory."""
