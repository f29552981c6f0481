"""Coset among Airflow's plugins: Admin > Plugins shows whether a deployment has it."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin


class CosetPlugin(AirflowPlugin):
    """The DAG factories are imported by DAG files; Airflow needs nothing else of Coset."""

    name = "coset"
