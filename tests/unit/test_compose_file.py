"""docker-compose.yml, as far as it can be judged without containers. `make compose-test` brings it up."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from coset.batches.runners.given_settings import parsed
from demo.healthy import CHECKS, NotWell, airflow, asked, main, master, s3, worker

ROOT = Path(__file__).parents[2]
FILE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
# Their credentials come with each application, from its driver.
SPARK = ("spark-master", "spark-worker-1", "spark-worker-2")

services = pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)


@pytest.mark.parametrize("name", SPARK)
def test_a_spark_container_has_no_credentials_and_does_not_share_the_hosts_environment(name: str) -> None:
    service = SERVICES[name]
    assert "env_file" not in service
    given = service.get("environment", {})
    assert isinstance(given, dict)
    assert not [variable for variable, value in given.items() if variable.startswith("AWS_") or "$" in str(value)]


@services
def test_the_checkout_is_mounted_read_only(service: dict[str, Any]) -> None:
    assert [volume for volume in service["volumes"] if volume.startswith(".")] == [".:/coset:ro"]


@services
def test_ports_are_published_on_loopback_only(service: dict[str, Any]) -> None:
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


@services
def test_each_container_has_a_name_that_stays(service: dict[str, Any]) -> None:
    assert service["hostname"]


@services
def test_both_composers_can_start_it(service: dict[str, Any]) -> None:
    """podman-compose ignores configs and secrets of the file's own, and health checks need systemd there."""
    assert not {"configs", "secrets"} & (FILE.keys() | service.keys())
    assert isinstance(service.get("depends_on", []), list), "conditions are not waited for everywhere"


@services
def test_each_container_is_asked_by_its_name_whether_it_is_well(service: dict[str, Any]) -> None:
    assert service["healthcheck"]["test"] == ["CMD", "python", "-m", "demo.healthy"]
    assert service["hostname"] in CHECKS


@pytest.mark.parametrize(
    ("judge", "well", "ill"),
    [
        (
            master,
            {"status": "ALIVE", "aliveworkers": 2, "activeapps": []},
            {"status": "STANDBY", "aliveworkers": 0, "activeapps": []},
        ),
        (worker, {"masterurl": "spark://m:7077", "cores": 2, "coresused": 1}, {"masterurl": "", "cores": 2}),
        (
            airflow,
            {part: {"status": "healthy"} for part in ("metadatabase", "scheduler", "dag_processor")},
            {part: {"status": "unhealthy"} for part in ("metadatabase", "scheduler", "dag_processor")},
        ),
    ],
)
def test_what_answers_may_not_be_well(judge: Callable[[str], str], well: object, ill: object) -> None:
    assert judge(json.dumps(well))
    with pytest.raises(NotWell):
        judge(json.dumps(ill))


def test_what_does_not_answer_is_not_well(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("demo.healthy.CHECKS", {"seaweedfs": partial(asked, "http://127.0.0.1:1/", s3)})
    assert main("seaweedfs") == 1
    assert capsys.readouterr().out.startswith("seaweedfs is not well: ")


def test_no_secret_has_a_value_in_the_file() -> None:
    given = SERVICES["seaweedfs"]["environment"]
    assert given == {name: SERVICES["airflow"]["environment"][name] for name in given}
    assert all(value.startswith("${") and ":?" in value for value in given.values())


def test_the_image_with_coset_has_all_packages_of_the_wheel_and_compose_builds_the_other_one() -> None:
    stages = re.split(r"^FROM ", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    names = [stage.partition("\n")[0].rpartition(" AS ")[2] for stage in stages[1:]]
    assert names == ["needs", "coset", "mounted"], "the last one is built unless a target is named"
    copied = set(re.findall(r"^COPY (\w+) \1$", stages[2], re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert copied == {name.rstrip("*") for name in wanted}
    files = re.findall(r"^COPY (.*) \./$", stages[2], re.MULTILINE)[0].split()
    assert all((ROOT / name).exists() for name in files)
    sent = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {f"!{name}" for name in (*copied, *files, "requirements.txt")} <= set(sent)
    (written,) = re.findall(r"printf '(.*)' > /usr/local/bin/executor ", stages[2])
    assert written == r"#!/bin/sh\nexec python -m spark_jobs.executor_pod\n", "as Kubernetes calls it"


def test_manifests_of_the_docs_are_yaml_with_kinds() -> None:
    files = list((ROOT / "docs" / "how-to" / "cluster").glob("*.yml"))
    assert files
    for file in files:
        for each in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            assert each["apiVersion"], file
            assert each["kind"], file


def test_the_page_has_the_masters_that_the_manifests_of_operators_start() -> None:
    folder = ROOT / "docs" / "how-to" / "cluster"
    apache, kubeflow = (
        {each["kind"]: each for each in yaml.safe_load_all((folder / name).read_text(encoding="utf-8"))}
        for name in ("apache-operator.yml", "kubeflow-operator.yml")
    )
    cluster, server, service = apache["SparkCluster"], kubeflow["SparkConnect"], kubeflow["Service"]
    for version in (cluster["spec"]["runtimeVersions"]["sparkVersion"], server["spec"]["sparkVersion"]):
        assert f"pyspark=={version} " in (ROOT / "requirements.txt").read_text(encoding="utf-8").replace("\n", " ")
    page = (folder.parent / "cluster.md").read_text(encoding="utf-8")
    assert f'"spark://{cluster["metadata"]["name"]}-master-svc:7077"' in page
    (port,) = service["spec"]["ports"]
    assert f'"sc://{service["metadata"]["name"]}.default.svc:{port["port"]}/;use_ssl=true"' in page
    pod = server["spec"]["server"]["template"]
    assert pod["metadata"]["labels"] == service["spec"]["selector"]
    (proxy,) = (each for each in pod["spec"]["containers"] if each["name"] == "tls")
    assert proxy["ports"] == [{"containerPort": port["targetPort"]}]
    assert f"listen {port['targetPort']} ssl;" in kubeflow["ConfigMap"]["data"]["default.conf"]


def test_the_pod_of_the_manifest_owns_its_executors_and_no_setting_has_a_key() -> None:
    file = ROOT / "docs" / "how-to" / "cluster" / "kubernetes.yml"
    (job,) = (each for each in yaml.safe_load_all(file.read_text(encoding="utf-8")) if each["kind"] == "CronJob")
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each.get("value") or each["valueFrom"]["fieldRef"] for each in container["env"]}
    settings = parsed(shlex.split(variables["COSET_SPARK"]), file.name)
    assert variables["POD_NAME"] == {"fieldPath": "metadata.name"}
    assert list(variables)[-1] == "COSET_SPARK", "Kubernetes fills in what stands before"
    assert settings["spark.kubernetes.driver.pod.name"] == "$(POD_NAME)"
    assert settings["spark.kubernetes.container.image"] == container["image"], "executors need the same code"
    (secret,) = (each["secretRef"]["name"] for each in container["envFrom"])
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        assert settings[f"spark.kubernetes.executor.secretKeyRef.{name}"] == f"{secret}:{name}"
