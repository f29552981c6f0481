"""Coset: keyed batches over partitioned streams, planned, proved, then published.

The names here are for those who write pipelines, partitioners, groupers and settings; DAG files import `coset.airflow`.
"""

from partitioning.authoring import expect
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import PartitionerRef, Settings
from partitioning.errors import CosetError, Finding, Refused
from partitioning.model.locality import Locality
from partitioning.model.plan import TaskRef
from partitioning.model.reasons import Said
from partitioning.planning.groups.grouping import Grouped, SizedTask
from partitioning.planning.partitioners.key_shares import Share
from partitioning.planning.partitioners.partitioners import Changes, PartitioningContext

__all__ = [
    "Changes",
    "CosetError",
    "Finding",
    "Flow",
    "Grouped",
    "Locality",
    "PartitionerRef",
    "PartitioningContext",
    "Pipeline",
    "Refused",
    "Said",
    "Settings",
    "Share",
    "SizedTask",
    "TaskRef",
    "expect",
]
