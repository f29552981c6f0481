"""PySpark's daemon, from which Spark on this machine forks its Python processes, with all that their tasks need."""

from __future__ import annotations

# Before PySpark is imported.
import spark_jobs.installed

# isort: split
from pyspark.daemon import manager

import spark_jobs.engine.preloaded  # noqa: F401

if __name__ == "__main__":
    manager()
