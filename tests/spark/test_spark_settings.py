"""Spark's settings: what tasks on other machines are told."""

from __future__ import annotations

import pytest
from pyspark import SparkConf

from coset.batches.runners.spark_settings import configuration
from partitioning.imports import ALLOWED
from spark_jobs.on_spark import with_store

SECRET = "not to be seen"


@pytest.mark.parametrize("master", ["local[2]", "spark://somewhere:7077"])
def test_executors_may_call_what_this_process_may(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED, "shop,lab.codecs")
    assert configuration(master)["spark.executorEnv.COSET_IMPORTS"] == "shop,lab.codecs"
    monkeypatch.delenv(ALLOWED)
    assert "spark.executorEnv.COSET_IMPORTS" not in configuration(master)


@pytest.mark.parametrize("master", ["local[2]", "spark://somewhere:7077"])
def test_what_becomes_an_argument_has_no_credentials(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SECRET)
    assert SECRET not in str(configuration(master))


def test_executors_elsewhere_are_told_by_the_driver_where_the_store_is_and_who_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    variables = {
        "AWS_ENDPOINT_URL": "http://store:8333",
        "AWS_ACCESS_KEY_ID": "coset",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "eu-west-1",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_PROFILE", "a file of this machine has it")
    told = with_store(settings("spark://somewhere:7077")).getAll()
    assert {name: value for name, value in told if name != "spark.master"} == {
        f"spark.executorEnv.{name}": value for name, value in variables.items()
    }


def test_what_a_deployment_says_of_its_executors_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:8333")
    name = "spark.executorEnv.AWS_ENDPOINT_URL"
    assert (
        with_store(settings("spark://somewhere:7077").set(name, "http://store:8333")).get(name) == "http://store:8333"
    )


def test_executors_of_a_local_master_have_the_environment_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    assert with_store(settings("local[2]")).getAll() == [("spark.master", "local[2]")]


@pytest.mark.parametrize(
    ("master", "on_loopback"),
    [
        ("local[*]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://[::1]:7077", True),
        ("spark://127.0.0.1:7077,spark-master:7077", False),
        ("spark://spark-master:7077", False),
        ("k8s://https://127.0.0.1:6443", False),
        ("yarn", False),
    ],
)
def test_a_driver_listens_on_loopback_if_all_its_executors_are_there(master: str, on_loopback: bool) -> None:
    said = configuration(master)
    address = "127.0.0.1" if on_loopback else None
    assert (said.get("spark.driver.host"), said.get("spark.driver.bindAddress")) == (address, address)


def settings(master: str) -> SparkConf:
    """Settings of a driver with that master and nothing else."""
    return SparkConf(loadDefaults=False).setMaster(master)
