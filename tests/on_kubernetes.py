"""The manifest of docs/how-to/cluster.md publishes batches on a real Kubernetes: `make kubernetes-test`.

IMAGE is one that the nodes have or can fetch: of a repository that `coset init shop` wrote, as the page builds it.
KUBECTL is kubectl with its options, if not `kubectl`. All of it happens in a namespace of its own, which is removed.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_MANIFEST = Path(__file__).parents[1] / "docs" / "how-to" / "cluster" / "kubernetes.yml"
_NAMESPACE = "coset-test"
_LIMIT_SECONDS = 300
_IN_MANIFEST = {"registry.example.org/shop:1": None, "=default": f"={_NAMESPACE}", "instances=10": "instances=1"}
_BUCKETS = "import boto3; s3 = boto3.client('s3'); [s3.create_bucket(Bucket=each) for each in ('lake', 'landing')]"
# Ports of all parts but S3's are on loopback.
_WEED = (
    "weed server -dir=/data -ip=127.0.0.1 -ip.bind=127.0.0.1 -master.telemetry=false -master.volumeSizeLimitMB=256"
    " -volume.max=0 -s3 -s3.ip.bind=0.0.0.0 -s3.port=8333 -s3.port.iceberg=0 -s3.port.lance=0 -s3.iam=false"
)

_RUN = ("coset", "run", "spent", "--env", "prod", "--runner", "spark")
_AIRFLOW = {
    "AIRFLOW_HOME": "/tmp/airflow",
    "AIRFLOW__CORE__DAGS_FOLDER": "/shop/dags",
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "k8s://https://kubernetes.default.svc"}),
    "COSET_ENV": "prod",
}


def main() -> int:
    image, key = os.environ.get("IMAGE"), secrets.token_hex(16)
    if not image:
        print("IMAGE has to name an image that the nodes have: docs/how-to/cluster.md says how to build it")
        return 2
    if not shutil.which(_command()[0]):
        print(f"There is no {_command()[0]}: install it, or say with KUBECTL where it is")
        return 2
    _kubectl("create", "namespace", _NAMESPACE, namespace=False)
    try:
        _start_store(image, key)
        manifest = _MANIFEST.read_text(encoding="utf-8")
        for old, new in _IN_MANIFEST.items():
            manifest = manifest.replace(old, new or image)
        _kubectl("apply", "--filename", "-", given=manifest)
        _publish("first", key, kill=False)
        _publish("second", key, kill=True)
        _publish_by_airflow(key)
        _wait_for_room()
        rows = {each["customer"]: (each["orders"], each["spent"]) for each in _rows()}
        assert rows == {"ann": (6, 24), "bob": (3, 12), "eve": (3, 6)}, rows
    finally:
        _kubectl("delete", "namespace", _NAMESPACE, namespace=False)
    print("All is as it has to be; nothing is left of it")
    return 0


def _start_store(image: str, key: str) -> None:
    variables = {"AWS_ENDPOINT_URL": "http://lake:8333", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "coset"}
    variables["AWS_SECRET_ACCESS_KEY"] = key
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "lake"}, "stringData": variables}
    container = {
        "name": "lake",
        "image": image,
        "command": shlex.split(_WEED),
        "envFrom": [{"secretRef": {"name": "lake"}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    pod = {
        **{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lake", "labels": {"app": "lake"}}},
        "spec": {"containers": [container], "volumes": [{"name": "data", "emptyDir": {}}]},
    }
    service = {
        **{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "lake"}},
        "spec": {"selector": {"app": "lake"}, "ports": [{"port": 8333}], "clusterIP": "None"},
    }
    for each in (secret, pod, service):
        _kubectl("apply", "--filename", "-", given=json.dumps(each))
    _kubectl("wait", "--for=condition=Ready", "pod/lake", f"--timeout={_LIMIT_SECONDS}s")
    _until(lambda: _tried("exec", "lake", "--", "python", "-c", _BUCKETS).returncode == 0, "the store answers")


def _publish(job: str, key: str, *, kill: bool) -> None:
    """Land rows and let a job publish them; look at its executors meanwhile, and perhaps kill their driver."""
    begun = time.monotonic()
    _kubectl("exec", "lake", "--", "coset", "land", "spent", "orders", "orders.csv", "--env", "prod")
    _kubectl("create", "job", job, "--from=cronjob/coset-spent")
    _until(lambda: _executors("Running"), "an executor runs")
    pods = _executors()
    assert key not in json.dumps(pods), "the key stands in a pod"
    (driver,) = {owner["name"] for pod in pods for owner in pod["metadata"]["ownerReferences"]}
    if kill:
        _kubectl("delete", "pod", driver, "--grace-period=0", "--force")
        names = {pod["metadata"]["name"] for pod in pods}
        _until(lambda: not names & {pod["metadata"]["name"] for pod in _executors()}, "its executors are removed")
    said = _ended(job, "complete")
    assert "is published" in said, said
    assert key not in said, "the key is in the log"
    _until(lambda: not _executors(), "no executor is left")
    print(f"{time.monotonic() - begun:6.1f} s  job {job}{', whose driver was killed' if kill else ''}", flush=True)


def _publish_by_airflow(key: str) -> None:
    """Land rows and let a DAG publish them, whose groups are submitted to pods."""
    begun = time.monotonic()
    _kubectl("exec", "lake", "--", "coset", "land", "spent", "orders", "orders.csv", "--env", "prod")
    _start("airflow", ["sh", "-c", "airflow db migrate && airflow dags test spent"], _AIRFLOW)
    _until(lambda: _executors("Running"), "an executor runs")
    assert key not in json.dumps(_executors()), "the key stands in a pod"
    said = _ended("airflow", "complete")
    assert "is published" in said, said
    assert key not in said, "the key is in the log"
    print(f"{time.monotonic() - begun:6.1f} s  a DAG of Airflow", flush=True)


def _wait_for_room() -> None:
    """A job whose executors no node has room for ends, and says what Kubernetes says of them."""
    _kubectl("exec", "lake", "--", "coset", "land", "spent", "orders", "orders.csv", "--env", "prod")
    large = "spark.executor.cores=4096"
    _start("large", [*_RUN, "--conf", large, "--conf", "spark.coset.workerTimeout=20s"], {}, tries=0)
    said = _ended("large", "failed")
    for wanted in ("no worker has accepted the job for 15 s; 1 of 1 pods: Unschedulable: ", "Insufficient cpu"):
        assert wanted in said, said
    print("An executor without room is told", flush=True)


def _start(job: str, command: list[str], variables: Mapping[str, str], tries: int = 2) -> None:
    """A job as of the manifest, with another command and more variables."""
    made = json.loads(_kubectl("create", "job", job, "--from=cronjob/coset-spent", "--dry-run=client", "--output=json"))
    made["spec"]["backoffLimit"] = tries
    (container,) = made["spec"]["template"]["spec"]["containers"]
    container["command"] = command
    container["env"] += [{"name": name, "value": value} for name, value in variables.items()]
    _kubectl("apply", "--filename", "-", given=json.dumps(made))


def _ended(job: str, how: str) -> str:
    """The log of a job, once it has ended so."""
    _kubectl("wait", f"--for=condition={how}", f"job/{job}", f"--timeout={_LIMIT_SECONDS}s")
    return _kubectl("logs", f"job/{job}")


def _executors(phase: str = "") -> list[dict[str, Any]]:
    listed = json.loads(_kubectl("get", "pods", "--selector", "spark-role=executor", "--output", "json"))["items"]
    return [each for each in listed if phase in ("", each["status"]["phase"])]


def _rows() -> list[dict[str, Any]]:
    (table,) = json.loads(_kubectl("exec", "lake", "--", "coset", "rows", "spent", "--env", "prod", "--json"))
    rows: list[dict[str, Any]] = table["first"]
    return rows


def _until(is_so: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + _LIMIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"after {_LIMIT_SECONDS} seconds it is not so that {what}"
        time.sleep(0.5)


def _command() -> list[str]:
    return shlex.split(os.environ.get("KUBECTL") or "kubectl")


def _tried(*arguments: str, given: str = "", namespace: bool = True) -> subprocess.CompletedProcess[str]:
    where = ("--namespace", _NAMESPACE) if namespace else ()
    return subprocess.run([*_command(), *where, *arguments], input=given, capture_output=True, text=True, check=False)


def _kubectl(*arguments: str, given: str = "", namespace: bool = True) -> str:
    done = _tried(*arguments, given=given, namespace=namespace)
    assert done.returncode == 0, f"kubectl {shlex.join(arguments)}: {done.stderr}"
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
