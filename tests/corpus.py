"""The corpus under tests/documents: a stored document of each format, beside what it says in plain JSON.

`python -m tests.corpus` writes those of the current formats that are not there. What was released is never written
anew: it is what somebody's store may hold. Before a release `python -m tests.corpus --anew` writes all of the current
formats, those that the release does not change just as they were.
"""

from __future__ import annotations

import json
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

import partitioning
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import PartitionerRef, Settings
from partitioning.commands import Replan
from partitioning.documents.document import digest, encode, plain
from partitioning.documents.ledger import LedgerBalance, LeftOut
from partitioning.documents.receipts import GroupLocality
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.backfill import (
    Backfill,
    Comparison,
    InputChange,
    StateComparison,
    Swap,
    SwapKind,
    Swapped,
    TableComparison,
)
from partitioning.model.failure import Failed, Failure
from partitioning.model.incident import Incidents, Passed, Severity, Stopped, Teller, Trouble
from partitioning.model.journal import JournalEntry, Lag, Occasion, Part
from partitioning.model.measures import Measured
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.order import order_of
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.read_ends import Forgetting, Forgotten, What
from partitioning.model.receipt import (
    Artefact,
    Changed,
    HeavyKey,
    Made,
    Offender,
    PartitionReceipt,
    Receipt,
    Role,
    TaskReceipt,
    Violation,
)
from partitioning.model.root_names import TablesAt
from partitioning.model.schemes import elastic, records, tasks
from partitioning.model.streams import Column, Discovered, DiscoveredPartition, InputFile, NullKeys
from partitioning.model.task_engine import Differs, Engine, OtherAnswer
from partitioning.model.verdict import Commit, Decision, GivenUp, Judged, TableVersion, Verdict
from partitioning.model.verification import Verification, Verifications
from partitioning.planning.planner import plan_batch
from partitioning.values import Document, replace
from tests.there import there

FOLDER = Path(__file__).with_name("documents")
ROOT = "s3://lake/coset"
COLUMNS = (Column("ad", "VARCHAR"), Column("seconds", "BIGINT"), Column("_offset", "BIGINT"))
ROWS = Artefact(
    Role.TABLE,
    "seen",
    "tables/seen/data/plan-0/attempt-0-0a1b2c3d/views+clicks-0.parquet",
    1234,
    "etag",
    "sha256:1",
    40,
)
SEALED = replace(ROWS, seal="000000000000000000000000000000aa")
UPSERTED = Made(Role.TABLE, "seen", 40, ((0, 40),), (Changed(0, 3, 5),))
KEYS = Artefact(
    Role.KEYS, "views+clicks", "ads/audits/0/attempt-0/keys-0a1b2c3d/views+clicks-0.parquet", 99, "etag", "sha256:2", 7
)

OTHERWISE = OtherAnswer("levenshtein", Differs.VALUE, ("views",), "levenshtein('é', 'e')", "2::BIGINT", "1::BIGINT")
RAN = Occasion(1_795_514_400_000, 1_795_514_403_250, "worker-3", "airflow", "scheduled__2026-11-24T10:00:00+00:00")
FORGOTTEN = Forgotten(OffsetRange(StreamPartition("views", 3), 0, 17), What.POSITION)


def kinds() -> Iterator[type[Document]]:
    """All kinds of documents in the core."""
    for module in pkgutil.walk_packages(partitioning.__path__, "partitioning."):
        import_module(module.name)
    yield from _below(Document)


def _below(of: type[Document]) -> Iterator[type[Document]]:
    for kind in of.__subclasses__():
        if kind.__module__.startswith("partitioning."):
            yield kind
        yield from _below(kind)


def documents() -> Mapping[str, Document]:
    """The documents of the current formats, by their names in the folder, to which the format's version is added."""
    plan = by_rule()
    identity, task = digest(plan), TaskRef("views+clicks", 0)
    seen = PartitionReceipt(
        *("views", 0, 0, 50, 50, 40, 1, 0, "00000000000000ff", 0, 1, 0, 7),
        (Offender(Violation.FOREIGN, 0, 3, "ad-9"), Offender(Violation.NULL_KEY, 0, 4, None)),
        (HeavyKey("ad-1", 20),),
    )
    figures = (
        Measured.of("seen", "nulls(seconds)", 0.025),
        Measured.of("seen", "rows", 40),
        Measured.of("seen", "sum(seconds)", None),
    )
    verdict = Verdict(identity, 0, Decision.PUBLISH, 0, Judged(172, 6, 20, 1, 8, 8), (ROWS, KEYS), RAN, figures)
    gone = Finding(Kind.FILE_GONE, "it is gone", "s3://landing/a", ("restore it, or ", Replan("ads")), about(batch=0))
    failed = Failed.of(Refused(gone))
    return {
        "plan": plan,
        "plan.dealt": dealt(),
        "plan.waves": in_waves(),
        "plan.ranges": (ranges := in_ranges()),
        "plan.sparse": (sparse := with_gaps()),
        "plan.remembered": remembering(plan),
        "plan.code": (noted := replace(plan, code={"shop.codecs:country": "sha256:0123456789abcdef"})),
        "plan.engine": replace(plan, engine=Engine("2.0.1", "1.5.5", (OTHERWISE,))),
        "plan.commits": replace(noted, commits={"shop.codecs:country": "0123456789ab"}),
        "order": order_of(plan, identity, task, 0, ROOT, {}),
        "order.range": order_of(ranges, digest(ranges), TaskRef("views", 2), 0, ROOT, {}),
        "order.sparse": order_of(sparse, digest(sparse), TaskRef("views", 0), 0, ROOT, {}),
        "receipt.code": Receipt(identity, 0, 0, (), None, {"shop.codecs:country": ("sha256:0123456789abcdef",)}),
        "receipt.sparse": Receipt(
            digest(sparse), 0, 0, (TaskReceipt(TaskRef("views", 0), (replace(seen, held="ff"),), (), 9),)
        ),
        "receipt.upserted": Receipt(identity, 0, 0, (TaskReceipt(task, (), (), 9, (UPSERTED,)),)),
        "verdict.lost": Verdict(identity, 0, Decision.PUBLISH, 0, Judged(172, 6, 20, 1, 9, 9, lost=150), (ROWS, KEYS)),
        "receipt": Receipt(
            *(identity, 0, 0, (TaskReceipt(task, (seen,), (SEALED,), 1500, cpu_milliseconds=900),), RAN),
            location="host-1",
            keys=KEYS,
        ),
        "verdict": verdict,
        "verdict.abandoned": Verdict(identity, 0, Decision.ABANDON, 1, GivenUp("landed twice"), ()),
        "commit": Commit(identity, 0, digest(verdict), (TableVersion("seen", 1),)),
        "backfill": Backfill("ads", 3, (0, 2), 'scheme = "tasks(24)"\n', "root", "hot", "2026-11-22T15:28:28+00:00"),
        "comparison": (comparison := _comparison()),
        "swap": (
            swap := Swap(
                *("ads", 0, 3, SwapKind.SWAP, (0, 2), True, digest(comparison)),
                *("root", "hot", "2026-11-22T15:30:00+00:00"),
            )
        ),
        "backfill.repaired": Backfill(
            "ads", 4, (1,), "", "root", "landed anew", "2026-11-22T18:28:28+00:00", repaired=True
        ),
        "comparison.engines": replace(comparison, engines=(("1.5.5", "2.0.1"),)),
        "comparison.repaired": replace(
            comparison, input=(InputChange(0, "views-1@[4,16)", (2, 1), ("a", "b"), (4, 10), ((4, 10),)),)
        ),
        "swap.cancel": Swap(
            *("ads", 1, 4, SwapKind.CANCEL, (1,), False, ""), *("root", "not needed", "2026-11-22T18:30:00+00:00")
        ),
        "swapped": Swapped("ads", 0, digest(swap), {"seen": 7}),
        "forget": Forgetting(
            *("ads", 0, 1, (FORGOTTEN, replace(FORGOTTEN, what=What.SOURCE))),
            *("root", "made anew", "2026-11-23T12:30:00+00:00"),
        ),
        "balance": LedgerBalance(
            "ads", 100, (LeftOut(FORGOTTEN.offsets, 0),), (LeftOut(FORGOTTEN.offsets, 3),), {"seen": 99}
        ),
        "tables": TablesAt(0, "s3://lake/prod", "root", "a bucket of its own", "2026-11-25T04:30:00+00:00"),
        "order.tables": order_of(plan, identity, task, 0, ROOT, {}, tables="s3://lake/prod"),
        "failure": Failure(identity, 0, failed),
        "incidents": _incidents(),
        "verifications": Verifications("ads", "seen")
        .after(Verification(0, 1, 3, 0, 1_795_514_400_000, swaps=1))
        .after(Verification(2, 16, 4, 7, 1_795_600_800_000, swaps=2, since=1)),
        "journal": JournalEntry(identity, 0, Part.PLAN, RAN, lag=Lag(172, 50, "views-2", 61_000, "clicks-0")),
        "journal.check": JournalEntry(identity, 0, Part.CHECK, RAN, attempt=1),
        "locality": GroupLocality(0, "host-1", (task, TaskRef("views+clicks", 1))),
    }


def remembering(before: Plan) -> Plan:
    """The batch after it, which reads two of its partitions."""
    pipeline = Pipeline("ads", source="s3://landing/topics")
    pipeline.stream("views", key="ad", partitions=2).select("seconds", name="seen").write("seen")
    plan = _planned(pipeline, {"views": (60, 70)}, published=before)
    return replace(plan, forgotten=(FORGOTTEN,))


def _incidents() -> Incidents:
    """Two that are open, one of them is told, and one that has ended."""
    gone = Finding(Kind.FILE_GONE, "it is gone", "s3://landing/a", ("restore it, or ", Replan("ads")), about(batch=0))
    proof = Finding(Kind.PROOF, "a key lies elsewhere", "batch 1 of ads", "see the report")
    teller = Teller("worker-3", 4711, 1_795_514_000_000, 1_795_514_500_000)
    at, page = 1_795_514_400_000, "ads/docs/batch-1-attempt-0.html"
    first = Incidents("ads").after(Stopped(Trouble.of([gone]), at, "ana"), "a").after(Passed(at + 1, 0), "b")
    second = first.after(Stopped(Trouble.of([proof, proof]), at + 2, "ana", 1, page), "c")
    late = Stopped(Trouble(("late",), "nothing is published", "ads", "look"), at + 3, severity=Severity.WARNING)
    both = second.claimed(teller, lambda _: False, "d").after(late, "e")
    return replace(both, ended=first.ended)


def _comparison() -> Comparison:
    rows = (2, 1), ("00000000000000ff", "0000000000000001"), 1, (("ad-1", '{"ad":"ad-1"}', ""),)
    tables, states = (
        (TableComparison(*rows, batch=0, table="seen"),),
        (StateComparison(*rows, step="newest", kept_by="newest"),),
    )
    return Comparison("ads", 3, ((0, "sha256:1", "sha256:2"),), tables, states, ("seen: its columns",), ("streak",))


def by_rule() -> Plan:
    """A first batch whose tasks are by the coset rule, one of them for records without a key."""
    pipeline = Pipeline("ads", source="s3://landing/topics")
    views = pipeline.stream("views", key="ad", partitions=4, null_keys=NullKeys.OWN_TASK)
    clicks = pipeline.table("clicks", key="ad", partitions=2)
    expect = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "seconds"}}
    views.join(clicks, "views.seconds", name="seen").write("seen", lineage=True, expect=[expect])
    return _planned(
        pipeline,
        {"views": (50, 40, 60, 0), "clicks": (10, 12)},
        settings=Settings(scheme=elastic(2), starts={"views-2": 5}),
    )


def dealt() -> Plan:
    """A second batch whose cosets a partitioner dealt, in other task groups than the first."""
    pipeline = Pipeline("ads", source="s3://landing/topics")
    views = pipeline.stream("views", key="ad", partitions=4, null_keys=NullKeys.DROP, hash="java")
    views.aggregate("count(*) AS views", name="counted").write("seen")
    even = PartitionerRef("partitioning.planning.partitioners.partitioners:Even", {"tasks": 3})
    settings = Settings(scheme=tasks(8), partitioners={"counted": even})
    first = _planned(pipeline, {"views": (9, 9, 9, 9)}, settings=settings)
    later = Settings(scheme=tasks(8), partitioners={"counted": even}, groups=3)
    return _planned(pipeline, {"views": (20, 20, 20, 20)}, settings=later, published=first)


def in_ranges() -> Plan:
    """A second batch in which several tasks read a hot partition, each a range of it."""
    pipeline = Pipeline("ads", source="s3://landing/topics")
    views = pipeline.stream("views", key="ad", partitions=3, null_keys=NullKeys.DROP)
    parts = views.partial("count(*) AS views", by="ad", name="parts")
    parts.combine("sum(views)::BIGINT AS views", name="totals").write("seen")
    first = _planned(pipeline, {"views": (9, 9, 9)})
    dealt = Settings(schemes={"parts": records(20)})
    return _planned(pipeline, {"views": (20, 80, 9)}, settings=dealt, published=first)


def with_gaps() -> Plan:
    """A batch of a stream that lacks offsets, and columns in some files, one of which is cast; some of it is lost."""
    pipeline = Pipeline("ads", source="s3://landing/topics")
    views = pipeline.stream("views", key="ad", partitions=2, offsets="sparse(50)", cast={"seconds": "BIGINT"})
    views.aggregate("count(*) AS views").write("seen")
    files = (
        replace(_file("views", 0, 50), missing=8),
        InputFile("s3://landing/topics/views/partition=0/views+0+0000000200.parquet", 900, "etag-2", 200, 230),
    )
    partitions = DiscoveredPartition(0, files), DiscoveredPartition(1, (_file("views", 1, 9),))
    found = Discovered("views", COLUMNS, partitions, lacking=("seconds",), required=("ad",))
    settings = Settings.parse(accept_loss=["views-0@[50,200)"])
    plan = there(plan_batch(pipeline, [found], {"seen": COLUMNS[:1]}, settings=settings))
    return plan


def in_waves() -> Plan:
    """A second batch in which records move, are combined, are read where they were left, and go on from state."""
    ends = {"views": (9, 9, 9, 9), "sales": (5, 5)}
    first = _planned(_waves(views=4), ends)
    return _planned(_waves(views=6), {"views": (19, 19, 19, 19, 8, 8), "sales": (7, 7)}, published=first)


def _waves(views: int) -> Pipeline:
    pipeline = Pipeline("ads", source="s3://landing/topics")
    seen = pipeline.stream("views", key="ad", partitions=views)
    parts = seen.partial("count(*) AS views, any_value(seconds) AS seconds", by="ad", name="part")
    total = parts.combine("sum(views)::BIGINT AS views, any_value(seconds) AS seconds", running=True, name="totals")
    total.to_stream().write("seen")
    sales = pipeline.stream("sales", key="shop", partitions=2)
    sums = sales.aggregate("sum(seconds)::BIGINT AS seconds, any_value(ad) AS ad", name="sums")
    back = (
        sums.rekey("ad", name="by_ad")
        .aggregate("sum(seconds)::BIGINT AS seconds", name="per_ad")
        .rekey("shop", sql="ad", name="back")
    )
    sums.join(back, "sums.seconds", name="shares").write("shares")
    return pipeline


def _planned(
    pipeline: Pipeline,
    ends: Mapping[str, Sequence[int]],
    settings: Settings | None = None,
    published: Plan | None = None,
) -> Plan:
    plan = there(
        plan_batch(
            pipeline,
            [_arrived(name, counts) for name, counts in ends.items()],
            {write.table: COLUMNS[:2] for write in pipeline.writes},
            batch=published.batch + 1 if published else 0,
            parent=digest(published) if published else None,
            published=published,
            settings=settings or Settings(),
        )
    )
    return plan


def _arrived(stream: str, ends: Sequence[int]) -> Discovered:
    partitions = tuple(
        DiscoveredPartition(number, (_file(stream, number, end),) if end else ()) for number, end in enumerate(ends)
    )
    return Discovered(stream, (Column("shop", "VARCHAR"), *COLUMNS), partitions)


def _file(stream: str, partition: int, end: int) -> InputFile:
    path = f"s3://landing/topics/{stream}/partition={partition}/{stream}+{partition}+0000000000.parquet"
    return InputFile(path, 1000 + partition, f"etag-{partition}", 0, end)


def main(anew: bool) -> None:
    """Write what is missing, or all of the current formats anew."""
    for name, document in documents().items():
        path = FOLDER / f"{name}-{document.FORMAT.rpartition('/')[2]}.json"
        if anew or not path.exists():
            path.write_bytes(encode(document))
            twin = json.dumps(plain(document), indent=1, sort_keys=True, ensure_ascii=False)
            path.with_suffix(".plain.json").write_text(twin + "\n")
            print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main("--anew" in sys.argv)
