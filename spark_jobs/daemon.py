"""PySpark's daemon with the engine imported. A local Spark forks its Python workers from it."""

from __future__ import annotations

# This has to come before PySpark is imported.
import spark_jobs.installed

# isort: split
from pyspark.daemon import manager

import spark_jobs.engine.preloaded  # noqa: F401

if __name__ == "__main__":
    manager()
