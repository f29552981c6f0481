"""docker-compose.yml publishes batches, with executors on the worker's container: `make compose-test`.

It needs the standard library only. COMPOSE is the composer, with its own options, if not `docker compose`;
COMPOSE_BUILD_ARGS is what its `build` is given.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.compose.airflow_api import AirflowApi
from tests.compose.engine import Compose, Failed

DAG = "tail_activity"
# Of a batch, as the DAG's settings say.
GROUPS = 2
SOURCE = "s3://landing/topics"
PASSWORDS = "/airflow/simple_auth_manager_passwords.json.generated"
WORK = "/tmp/spark-work"
WORKERS = ("spark-worker-1", "spark-worker-2")
EXECUTOR = "CoarseGrainedExecutorBackend"
BEGUN_WITHIN_SECONDS = 600
# When it has started: as the limits in docker-compose.yml have it. On a machine that is at its limit, a run that is
# not disturbed may take longer than that to begin its first group: then it is that long.
GOES_ON_WITHIN_SECONDS = 60
# What each service's own process is called: it is the first of its container, so that the container ends with it.
FIRST = {
    "seaweedfs": "weed",
    "spark-master": "deploy.master.Master",
    "spark-worker-1": "deploy.worker.Worker",
    "spark-worker-2": "deploy.worker.Worker",
    "postgres": "postgres",
    "airflow": "airflow standalone",
}


def main() -> int:
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    begun, compose = time.monotonic(), Compose()
    try:
        with compose.project():
            with step("build the image"):
                compose.build()
            _publish_two_batches(compose)
    except Failed as failed:
        print(f"FAILED after {time.monotonic() - begun:.0f} s: {failed}")
        return 1
    print(f"All is as it has to be, after {time.monotonic() - begun:.0f} s; nothing is left of it")
    return 0


def _publish_two_batches(compose: Compose) -> None:
    airflow = _started(compose)
    _check_containers(compose)
    _land(compose, 0)
    _check_secret(compose)
    _land(compose, 1)
    _run_dag(compose, airflow)
    _check_worker(compose)
    with step("stop everything, and keep the data"):
        compose("down")
    airflow = _started(compose)
    _land(compose, 2)
    _run_dag_and_kill_airflow(compose, airflow)
    _check_worker(compose)
    _check_published(compose)


@contextmanager
def step(name: str) -> Iterator[list[str]]:
    """A line for what is done: its name, what is said of it, and its seconds."""
    begun, said = time.monotonic(), list[str]()
    yield said
    print(f"{time.monotonic() - begun:6.1f} s  {': '.join([name, *said])}", flush=True)


def _started(compose: Compose) -> AirflowApi:
    with step("start the containers"):
        compose("up", "--detach", "--no-build")
    airflow = AirflowApi(compose.port)
    _wait(compose, airflow)
    return airflow


def _wait(compose: Compose, airflow: AirflowApi) -> None:
    with step("wait for Airflow and its DAG"):
        airflow.wait_until_started(DAG, lambda: json.loads(compose.inside("airflow", "cat", PASSWORDS))["admin"])


def _check_containers(compose: Compose) -> None:
    with step("look into the containers") as said:
        for service, name in FIRST.items():
            first = _commands(compose, service, "/proc/1/cmdline")
            check(len(first) == 1 and name in first[0], f"process 1 of {service} is {first}")
            told = compose.inside(service, "hostname").strip()
            check(told == service, f"the host name of {service} is {told}")
        for service in ("spark-master", *WORKERS, "postgres"):
            given = [line for line in compose.inside(service, "env").splitlines() if line.startswith("AWS_")]
            check(not given, f"{service} has variables that begin with AWS_")
        well = [compose.inside(service, "python", "-m", "demo.healthy").strip() for service in FIRST]
        for service in (*WORKERS, "airflow"):
            written = compose.tried_inside(service, "touch", "/coset/written")
            check(written.returncode != 0, f"{service} can write to the checkout")
        said.append("own processes first, no AWS_ variables at Spark's, the checkout is read-only")
    print(*(f"            {line}" for line in well), sep="\n")


def _check_secret(compose: Compose) -> None:
    with step("ask for the store with a wrong secret") as said:
        refused = compose.tried_inside(
            "airflow", "coset", "status", DAG, variables={"AWS_SECRET_ACCESS_KEY": "0" * len(compose.secret)}
        )
        check(refused.returncode != 0, f"a wrong secret is accepted: {refused.stdout}")
        check("AWS_SECRET_ACCESS_KEY" in refused.stdout, f"a wrong secret is answered by {refused.stdout}")
        said.append(f"exit code {refused.returncode}")
    with step("ask with the right one"):
        compose.inside("airflow", "coset", "status", DAG)


def _land(compose: Compose, part: int) -> None:
    with step(f"land part {part}") as said:
        said.append(compose.inside("airflow", "python", "-m", "demo.landing", str(part), SOURCE).strip())


def _run_dag(compose: Compose, airflow: AirflowApi) -> None:
    """Run the DAG once. Its groups run together on the workers, and no command line has the secret meanwhile."""
    at_once = [0]

    def look() -> None:
        commands = [command for worker in WORKERS for command in _commands(compose, worker)]
        at_once.append(sum(EXECUTOR in command for command in commands))
        shown = [command for command in [*commands, *_commands(compose, "airflow")] if compose.secret in command]
        check(not shown, "a command line has the secret")

    with step(f"run the DAG {DAG}") as said:
        tasks = airflow.run(DAG, look)
        # A run of the schedule could take a part of what is landed next, and make a batch more of it.
        airflow.pause(DAG, paused=True)
        said.append(f"{len(tasks)} tasks; looked {len(at_once) - 1} times, up to {max(at_once)} executors at once")
    check(max(at_once) > 1, "the task groups ran one after the other")
    check(len(ran := _applications(compose)) == GROUPS, f"{GROUPS} groups ran, and the workers have {ran}")


def _run_dag_and_kill_airflow(compose: Compose, airflow: AirflowApi) -> None:
    """Run the DAG, kill Airflow's container while a group runs, and start it again: it goes on with the same run."""
    airflow.pause(DAG, paused=False)
    asked = time.monotonic()
    run = airflow.start(DAG)
    with step("kill Airflow while a group runs") as said:
        deadline = time.monotonic() + BEGUN_WITHIN_SECONDS
        while not (before := _applications(compose)):
            check(time.monotonic() < deadline, f"no group of run {run} has begun within {BEGUN_WITHIN_SECONDS} seconds")
        within = max(GOES_ON_WITHIN_SECONDS, time.monotonic() - asked)
        compose("kill", "airflow")
        said.append(f"{', '.join(sorted(before))} had begun")
    begun, went_on = time.monotonic(), list[float]()

    def look() -> None:
        if not went_on and _applications(compose) - before:
            went_on.append(time.monotonic() - begun)

    compose("start", "airflow")
    _wait(compose, airflow)
    started = time.monotonic() - begun
    with step(f"let Airflow go on with the run of {DAG}") as said:
        tries = [task["try_number"] for task in airflow.succeeded(DAG, run, look)]
        check(went_on, "no group was run again")
        after = f"{went_on[0]:.0f} s after its start, which took {started:.0f} s"
        said.append(f"it ran a group again {after}; up to {max(tries)} tries of a task")
    check(went_on[0] < started + within, f"it went on {after}, and may take {within:.0f} s more than that")


def _applications(compose: Compose) -> set[str]:
    """The applications of Spark that the workers have had since they were started."""
    return {one for worker in WORKERS for one in compose.inside(worker, "ls", WORK).split()}


def _check_worker(compose: Compose) -> None:
    """Each group was an application with its executors on workers, and no log has the secret."""
    with step("look for the secret in the logs") as said:
        applications = sorted(_applications(compose))
        for service, folder in (
            *((worker, WORK) for worker in WORKERS),
            ("airflow", "/airflow/logs"),
            ("airflow", "/airflow/docs"),
        ):
            searched = compose.tried_inside(service, "grep", "-rlFf", "-", folder, given=f"{compose.secret}\n")
            check(searched.returncode == 1, f"the secret is in {folder} of {service}: {searched.stdout}")
        check(compose.secret not in compose.logs(), "the secret is in what the containers say")
        said.append(f"not there; the workers ran {', '.join(applications)}")


def _check_published(compose: Compose) -> None:
    with step("compare the table with the raw data") as said:
        told: dict[str, Any] = json.loads(compose.inside("airflow", "python", "-m", "tests.compose.published"))
        check(told["equal"] and told["aircraft"] > 0, f"the table differs from the raw data: {told}")
        said.append(f"{told['aircraft']:,} aircraft, {told['different']} differ")
    for number, batch in enumerate(told["published"]):
        at = batch["ran at"]
        check(len(at) == batch["groups"] and {*at} <= {*WORKERS}, f"the groups of batch {number} ran at {at}")
    check(len(told["published"]) == 2, f"two batches were run, and published are {told['published']}")
    check(not told["with the secret"], f"the secret is in {told['with the secret']}")
    print(f"Two batches are published, by groups that ran at the workers; no secret in {told['documents']} documents")


def _commands(compose: Compose, service: str, files: str = "/proc/[0-9]*/cmdline") -> list[str]:
    """The command lines of a container's processes, some of which may end meanwhile."""
    shown = compose.tried_inside(
        service, "sh", "-c", f"for file in {files}; do tr '\\0' ' ' < $file && echo; done 2> /dev/null"
    )
    return [line for line in shown.stdout.splitlines() if line.strip()]


def check(is_so: object, otherwise: str) -> None:
    """Raise Failed, with what is otherwise, if it is not so."""
    if not is_so:
        raise Failed(otherwise)


if __name__ == "__main__":
    sys.exit(main())
