"""Spark's settings: what tasks on other machines are told."""

from __future__ import annotations

import pytest

from batches.runners.spark_settings import configuration
from partitioning.imports import ALLOWED


@pytest.mark.parametrize("master", ["local[2]", "spark://somewhere:7077"])
def test_executors_may_call_what_this_process_may(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED, "shop,lab.codecs")
    assert configuration(master)["spark.executorEnv.COSET_IMPORTS"] == "shop,lab.codecs"
    monkeypatch.delenv(ALLOWED)
    assert "spark.executorEnv.COSET_IMPORTS" not in configuration(master)
