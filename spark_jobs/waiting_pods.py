"""What Kubernetes says of an application's executors, of which none has begun."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

# A setting of Spark.
NAMESPACE = "spark.kubernetes.namespace"
_ANSWER_WITHIN_MS = 3_000
_LONGEST = 300


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
