"""Coset: keyed batches over partitioned streams, planned, proved, then published.

The names here are for those who write pipelines, partitioners, groupers and settings, or run batches from Python; DAG
files import `coset.airflow`, tests `coset.testing`.
"""

from typing import TYPE_CHECKING, Any

from partitioning.authoring import expect, words
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import PartitionerRef, Settings
from partitioning.errors import Conflict, CosetError, Finding, OutcomeUnknown, Refused, Unjudged, Unreachable
from partitioning.model.plan import TaskRef
from partitioning.model.reasons import Said
from partitioning.model.statistics import Locality
from partitioning.planning.groups.grouping import Grouped, SizedTask
from partitioning.planning.partitioners.key_shares import Share
from partitioning.planning.partitioners.partitioners import Changes, PartitioningContext
from partitioning.version import VERSION

if TYPE_CHECKING:
    from coset.api import PlannedBatch, PublishedBatch, plan, run

__all__ = [
    "Changes",
    "Conflict",
    "CosetError",
    "Finding",
    "Flow",
    "Grouped",
    "Locality",
    "OutcomeUnknown",
    "PartitionerRef",
    "PartitioningContext",
    "Pipeline",
    "PlannedBatch",
    "PublishedBatch",
    "Refused",
    "Said",
    "Settings",
    "Share",
    "SizedTask",
    "TaskRef",
    "Unjudged",
    "Unreachable",
    "__version__",
    "expect",
    "plan",
    "run",
    "words",
]

__version__ = VERSION
_OF_BATCHES = ("PlannedBatch", "PublishedBatch", "plan", "run")


def __getattr__(name: str) -> Any:
    # A module of pipelines runs no batch.
    if name not in _OF_BATCHES:
        raise AttributeError(name)
    from coset import api  # noqa: PLC0415

    return getattr(api, name)
