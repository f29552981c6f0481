"""What is said while no worker of Spark accepts the job of a task group, and when waiting ends."""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import urlopen

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from partitioning.commands import Repeat
from partitioning.errors import Unreachable
from partitioning.kinds import Kind

if TYPE_CHECKING:
    from pyspark import SparkContext

# A setting of Spark.
NAMESPACE = "spark.kubernetes.namespace"
_ANSWER_WITHIN_MS = 3_000


def said_of_pods(spark: SparkContext) -> str:
    """Why most of the pods wait, as Kubernetes says it.

    It is asked by the client that Spark brings, in the name of the driver. Raises Py4JError if it does not answer.
    """
    settings, java = spark.getConf(), spark._jvm.io.fabric8.kubernetes.client  # type: ignore[union-attr]
    config = java.Config.autoConfigure(settings.get("spark.kubernetes.context"))
    config.setMasterUrl((spark.master or "").removeprefix("k8s://"))
    config.setRequestTimeout(_ANSWER_WITHIN_MS)
    config.setConnectionTimeout(_ANSWER_WITHIN_MS)
    config.setRequestRetryBackoffLimit(0)
    client = java.KubernetesClientBuilder().withConfig(config).build()
    try:
        there = client.pods().inNamespace(settings.get(NAMESPACE, "default"))
        pods = there.withLabel("spark-app-selector", spark.applicationId).withLabel("spark-role", "executor")
        said = Counter(_state(pod.getStatus()) for pod in pods.list().getItems())
    finally:
        client.close()
    if not said:
        return "it has no pods"
    ((most, count),) = said.most_common(1)
    return f"{count} of {said.total()} pods: {most[:_LONGEST]}"


def _state(status: Any) -> str:
    """A pod's state, with the reason of why it waits or has ended."""
    for condition in status.getConditions():
        if condition.getType() == "PodScheduled" and condition.getStatus() == "False":
            return f"{condition.getReason()}: {condition.getMessage()}"
    for container in status.getContainerStatuses():
        state = container.getState()
        if stopped := state.getWaiting() or state.getTerminated():
            return ": ".join(filter(None, (stopped.getReason(), stopped.getMessage())))
    return str(status.getPhase())


# A setting of Spark: how long a job waits for its first worker.
LIMIT = "spark.coset.workerTimeout"
_USUAL_LIMIT = "10min"
# Spark's own, by which the page of a standalone master is found.
_PAGE = "spark.master.ui.port"
_FIRST_AFTER_SECONDS = 15
_LOOK_EVERY_SECONDS = 1.0
_ANSWER_WITHIN_SECONDS = 3
# As much of an executor's standard error as is looked at.
_BYTES = 8_000
_LINES, _LONGEST = 3, 300

# Before such a sentence in the output of an application that was submitted.
MEANWHILE = "meanwhile: "
# Takes a sentence about something that goes on.
Tell = Callable[[str], None]


def quiet(_: str) -> None:
    """Nobody is told."""


@contextmanager
def waiting_for_workers(spark: SparkContext, name: str, tell: Tell) -> Iterator[None]:
    """While the jobs that this thread starts have no worker, say so after 15 s, and then each time twice as long after.

    Raises Unreachable if the application has no worker for as long as `spark.coset.workerTimeout` says, and ends its
    jobs then; and if its jobs fail because its standalone master does not answer.
    """
    tag, watch = f"coset-{secrets.token_hex(8)}", _Watch(spark, tell)
    spark.addJobTag(tag)
    thread = Thread(target=watch.run, args=(lambda: spark.cancelJobsWithTag(tag),), daemon=True)
    thread.start()
    try:
        yield
    except (PySparkException, Py4JError):
        why = watch.gave_up or _silent(spark.master or "")
        if not why:
            raise
        then = ("start workers, or look at why they do not accept it: docs/how-to/cluster.md; then ", Repeat())
        raise Unreachable.of(Kind.NO_WORKER, why, name, then, job=name) from None
    finally:
        watch.over.set()
        thread.join()
        with suppress(PySparkException, Py4JError):
            spark.removeJobTag(tag)


class _Watch:
    def __init__(self, spark: SparkContext, tell: Tell) -> None:
        self._spark = spark
        self._tell = tell
        self.over = Event()
        self.gave_up: str | None = None

    def run(self, end: Callable[[], None]) -> None:
        """Look at the application until it is over, or until it has waited for too long."""
        if self._local:
            return
        since, next_word = time.monotonic(), _FIRST_AFTER_SECONDS
        limit = int(self._scala.conf().getTimeAsSeconds(LIMIT, _USUAL_LIMIT))
        while not self.over.wait(_LOOK_EVERY_SECONDS):
            waited = int(time.monotonic() - since)
            with suppress(PySparkException, Py4JError):
                if self._workers():
                    since, next_word = time.monotonic(), _FIRST_AFTER_SECONDS
                elif waited >= limit:
                    self.gave_up = self._sentence(waited)
                    return end()
                elif waited >= next_word:
                    next_word *= 2
                    self._tell(self._sentence(waited))

    @property
    def _scala(self) -> Any:
        return self._spark._jsc.sc()

    @property
    def _local(self) -> bool:
        return bool(self._scala.isLocal())

    def _workers(self) -> int:
        """How many executors the application has."""
        # One of them is the driver.
        return len(self._scala.statusTracker().getExecutorInfos()) - 1

    def _sentence(self, waited: int) -> str:
        return f"no worker has accepted the job for {waited} s; {self._why()}"

    def _why(self) -> str:
        """What the cluster manager says of its workers."""
        master, app = self._spark.master or "", self._spark.applicationId
        if master.startswith("k8s://"):
            see = f"see its pods: kubectl get pods -n {self._namespace} -l spark-app-selector={app}"
            with suppress(PySparkException, Py4JError):
                return f"{said_of_pods(self._spark)}; {see}"
            return see
        if not master.startswith("spark://"):
            return f"the application is {app} of {master}"
        pages = [f"http://{host.rpartition(':')[0]}:{self._page}" for host in master[len("spark://") :].split(",")]
        for page in pages:
            with suppress(OSError, ValueError):
                return f"the master at {master} has {_workers_of(_json(page), app)}"
        return _silent(master) or f"its page {' or '.join(pages)} does not answer ({_PAGE} is its port)"

    @property
    def _namespace(self) -> str:
        return str(self._spark.getConf().get(NAMESPACE, "default"))

    @property
    def _page(self) -> str:
        return str(self._spark.getConf().get(_PAGE, "8080"))


def _workers_of(master: Any, app: str) -> str:
    """A standalone master's words on its workers, and the last output of an application's ended executors."""
    workers = [worker for worker in master["workers"] if worker["state"] == "ALIVE"]
    cores = sum(worker["coresfree"] for worker in workers)
    memory = max((worker["memoryfree"] for worker in workers), default=0)
    said = f"{len(workers)} worker{'' if len(workers) == 1 else 's'}"
    if workers:
        said += f", with {cores} free cores and at most {memory} MB of free memory each"
    for worker in workers:
        with suppress(OSError, ValueError, KeyError):
            ended = [each for each in _json(worker["webuiaddress"])["finishedexecutors"] if each["appid"] == app]
            if ended:
                newest = max(int(each["id"]) for each in ended)
                log = f"{worker['webuiaddress']}/log/?appId={app}&executorId={newest}&logType=stderr"
                return f"{said}; {len(ended)} executors have ended on {worker['host']}: {_said_last(log)}"
    return said


def _said_last(log: str) -> str:
    """The end of an executor's standard error: the cause of its last exception, else its last lines. Raises OSError if
    its worker does not give it."""
    with urlopen(f"{log}&byteLength={_BYTES}", timeout=_ANSWER_WITHIN_SECONDS) as answer:  # noqa: S310 - a worker's
        lines = [line.strip() for line in answer.read().decode(errors="replace").splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    return causes[-1] if causes else " ".join(lines[-_LINES:])[-_LONGEST:]


def _json(page: str) -> Any:
    with urlopen(f"{page}/json/", timeout=_ANSWER_WITHIN_SECONDS) as answer:  # noqa: S310 - a master's or worker's
        return json.load(answer)


def _silent(master: str) -> str:
    """A sentence if none of the hosts of a standalone master can be reached."""
    if not master.startswith("spark://"):
        return ""
    why = ""
    for host in master[len("spark://") :].split(","):
        at = urlsplit(f"spark://{host}")
        try:
            socket.create_connection((at.hostname or "", at.port or 7077), _ANSWER_WITHIN_SECONDS).close()
        except OSError as error:
            why = f"the master at {master} does not answer: {error.strerror or error}"
        else:
            return ""
    return why
