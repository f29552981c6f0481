"""The demo: real flights, an S3 server, Airflow and Spark on one machine."""
