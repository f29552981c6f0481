"""Mirroring: commits the published offsets of topics to a consumer group in their brokers, for lag tools.

The ledger decides. Coset never reads these offsets back.
"""

from __future__ import annotations

from collections import defaultdict

from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.errors import CosetError
from partitioning.model.offsets import StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.read_ends import Ends
from partitioning.model.sources import IcebergSource, KafkaSource, LandedSource

Offsets = dict[StreamPartition, int]


def mirror(ledger: Ledger, planned: Plan) -> str:
    """Commit the ends of the last published batch to the pipeline's consumer group, after the publication of a batch.
    Returns a clause about it, empty if that reads no stream from a broker. A failure is only mentioned: the next batch
    commits again."""
    if not any(isinstance(stream.declared.origin, KafkaSource) for stream in planned.streams):
        return ""
    published = ledger.standing().published
    by_cluster: dict[KafkaSource, Offsets] = defaultdict(dict)
    # Topics that are not read any more are left out: their brokers may be gone.
    for read in Ends.by(published.batch, published.streams).streams if published else ():
        match read.declared.origin:
            case LandedSource() | IcebergSource():
                pass
            case KafkaSource() as source:
                by_cluster[source] |= {StreamPartition(read.name, end.partition): end.end for end in read.ends}
    if published is None or not by_cluster:
        return ""
    from coset.sources.kafka.cluster import commit, group_of  # noqa: PLC0415  few pipelines read from brokers

    group, note = group_of(ledger.pipeline), f"batch {published.batch} of plan {digest(published)}"
    try:
        for source, ends in by_cluster.items():
            commit(source, group, ends, note)
    except CosetError as error:
        finding = error.findings[0]
        return f"; the consumer group {group} was not updated, the next batch tries again ({finding.what})"
    return f"; the consumer group {group} is updated"
