"""Reports as pages: the history of a pipeline and the overview of all, without Great Expectations, Spark or Airflow."""
