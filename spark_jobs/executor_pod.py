"""What the pod of an executor runs on Kubernetes, as `python -m spark_jobs.executor_pod`.

Spark gives such a pod the one word `executor`, a program that its image has to have, and says all else by variables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_SAID = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
_OPTION = "SPARK_JAVA_OPT_"


def command(variables: Mapping[str, str]) -> list[str]:
    """The command of the executor that the variables describe.

    >>> said = {name: name.removeprefix("SPARK_").lower() for name in _SAID.values()}
    >>> said |= {"SPARK_HOME": "/spark", "SPARK_EXECUTOR_MEMORY": "1g", "SPARK_CONF_DIR": "/conf"}
    >>> made = command({**said, "SPARK_JAVA_OPT_10": "-Da=b c", "SPARK_JAVA_OPT_9": "-server"})
    >>> made[:7]
    ['java', '-server', '-Da=b c', '-Xms1g', '-Xmx1g', '-cp', '/conf:/spark/jars/*']
    >>> made[8:12]
    ['--driver-url', 'driver_url', '--executor-id', 'executor_id']
    """
    home, memory = variables.get("JAVA_HOME"), variables["SPARK_EXECUTOR_MEMORY"]
    options = sorted(
        (name for name in variables if name.startswith(_OPTION)), key=lambda name: int(name[len(_OPTION) :])
    )
    folders = (variables.get("SPARK_CONF_DIR"), variables.get("SPARK_CLASSPATH"), f"{variables['SPARK_HOME']}/jars/*")
    return [
        f"{home}/bin/java" if home else "java",
        *(variables[name] for name in options),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        ":".join(filter(None, folders)),
        _BACKEND,
        *(word for option, name in _SAID.items() for word in (option, variables[name])),
    ]


if __name__ == "__main__":
    made = command(os.environ)
    os.execvp(made[0], made)  # noqa: S606 - Spark says what an executor is
