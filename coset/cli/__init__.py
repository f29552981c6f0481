"""The `coset` command: the same actions without Airflow."""
