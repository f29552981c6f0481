"""Mirroring: what a pipeline has published of topics is told to their brokers too, so that lag tools agree with it.

The ledger decides; what brokers are told follows it, and is read by nobody here.
"""

from __future__ import annotations

from collections import defaultdict

from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.errors import CosetError
from partitioning.model.offsets import StreamPartition
from partitioning.model.read_ends import Ends
from partitioning.model.sources import KafkaSource, LandedSource

Offsets = dict[StreamPartition, int]


def mirror(ledger: Ledger) -> str:
    """Commit where the last published batch ended to the pipeline's consumer group, and say so; empty if no topic is
    read from its broker. What fails is only said: the next batch does it again."""
    published = ledger.standing().published
    by_cluster: dict[KafkaSource, Offsets] = defaultdict(dict)
    # Of a topic that is not read any more its brokers may be gone.
    for read in Ends.by(published.batch, published.streams).streams if published else ():
        match read.declared.origin:
            case LandedSource():
                pass
            case KafkaSource() as source:
                by_cluster[source] |= {StreamPartition(read.name, end.partition): end.end for end in read.ends}
    if published is None or not by_cluster:
        return ""
    from coset.sources.kafka.groups import commit, group_of  # noqa: PLC0415  few pipelines read from brokers

    group, note = group_of(ledger.pipeline), f"batch {published.batch} of plan {digest(published)}"
    try:
        for source, ends in by_cluster.items():
            commit(source, group, ends, note)
    except CosetError as error:
        finding = error.findings[0]
        return f"; the consumer group {group} was not told, which the next batch makes good ({finding.what})"
    return f"; the consumer group {group} is told"
