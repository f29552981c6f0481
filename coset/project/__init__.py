"""The project: what coset.toml says of pipelines and environments, for the command line and for Airflow alike."""
