"""Steps on DataFrames: what functions do wrong, what Spark could lose, and what a group leaves for them."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from coset.batches.auditing.audit import audit
from coset.batches.backfills.request import backfills
from coset.batches.interpreter import silently
from coset.batches.ref import BatchRef
from coset.batches.restoring import restore
from coset.batches.runners.local import Local
from coset.batches.runners.spark import Spark
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from partitioning.errors import CosetError, Refused
from partitioning.model.failure import Answer, Done, Failed
from partitioning.model.order import Order
from partitioning.model.reasons import OwnTasks
from partitioning.model.receipt import Role
from partitioning.model.task_engine import MEMORY
from partitioning.values import replace
from spark_jobs.engine.kernel import run_orders
from spark_jobs.finishing import Finishing, finishing
from spark_jobs.frames import Frames, _given
from spark_jobs.given import PLACE, Given
from spark_jobs.group import answered, orders_of, steps_on_dataframes
from spark_jobs.row_routing import ORDER, RowRouting, routing
from tests import frames
from tests.hot import HOT, Skewed, skewed
from tests.landed import land_table
from tests.running import check_production, next_batch, publish_unjudged, task_receipts

VIEWS = pa.table(
    {
        "k": [f"key-{n % 67}" if n % 50 else None for n in range(300)],
        "page": [f"page-{n * 11 % 23}" for n in range(300)],
        "v": list(range(300)),
    }
)
COLUMNS = {"k": "VARCHAR", "v": "BIGINT"}


@pytest.fixture(scope="module")
def spark() -> Iterator[Spark]:
    with Spark("local[2]") as runner:
        yield runner


def planned(
    store: Store, function: str, *, groups: int = 1, hash: str = "murmur2", private: Sequence[str] = (), **more: str
) -> BatchRef:
    """A batch whose five tasks are of one step."""
    source = f"{store.root}/topics"
    land_table(VIEWS, "views", source, key="k", partitions=4)
    pipeline = Pipeline("scores", source=source)
    views = pipeline.stream("views", key="k", partitions=4, null_keys="own task", hash=hash, private=private)
    views.spark(f"tests.frames:{function}", COLUMNS | more, name="scored").write("t")
    return next_batch(pipeline, store.root, Settings(groups=groups))


GROUP, TASK = "step 'scored', group 0 of batch 0 of scores", "step 'scored', task views/"
WRONG: Mapping[str, tuple[str, str]] = {
    "nothing": ("returned NoneType, not a DataFrame", GROUP),
    "failing": ("the function tests.frames:failing failed: ValueError: not today", GROUP),
    "misspelt": ("failed: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable", GROUP),
    "failing_on_one": ("the function tests.frames:failing_on_one failed: ValueError: 213 is not allowed", GROUP),
    "dividing": ("failed: [DIVIDE_BY_ZERO] Division by zero.", GROUP),
    "without_key": ("returned no column k; it has page, v, _offset, _partition", GROUP),
    "twice_the_key": ("returned more than one column k; it has k, k, v", GROUP),
    "in_words": ("does not have the declared types: Failed to parse string: 'many'", TASK),
    "in_latin_1": ("returned text in column 'k' that is not UTF-8", TASK),
    "lower_keys": ("returned the key 'KEY-1", TASK),
}

# The line of their file that is to be named, where Spark says it: here, or in a worker.
LINES = {"failing": 'raise ValueError("not today")', "failing_on_one": 'raise ValueError(f"{v} is not allowed")'}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_function_does_wrong_is_said(name: str, spark: Spark, store: Store) -> None:
    what, where = WRONG[name]
    ref = planned(store, name)
    with pytest.raises(Refused) as refused:
        spark.group(ref, 0)
    finding = refused.value.findings[0]
    assert what in finding.what
    assert where in finding.where
    if line := LINES.get(name):
        assert re.match(rf"{re.escape(frames.__file__)}:\d+ `{re.escape(line)}`, step 'scored'", finding.where)
    assert "correct the function, then run the same command again" in finding.then
    assert not task_receipts(ref)


@pytest.mark.parametrize("name", ["telling", "failing_on_one", "dividing", "in_words", "lower_keys"])
def test_a_function_that_fails_on_a_private_value_tells_nobody(
    name: str, spark: Spark, store: Store, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    canary = re.compile(r"\b213\b|'many'|KEY-\d|key-\d")
    ref = planned(store, name, private=("k", "page", "v"))
    with pytest.raises(Refused) as refused:
        spark.group(ref, 0)
    told = "".join(traceback.format_exception(refused.value))
    keys = (entry.key for entry in store.list("scores/"))
    stored = [store.get(key) or b"" for key in keys if key.endswith(".json")]
    # How long the records have waited may be any number.
    said = [re.sub(r'"milliseconds":\d+', "", each.decode()) for each in stored]
    for text in (told, *said, *capfd.readouterr(), caplog.text):
        # The function's own line, where it raises, has no value.
        assert [line for line in text.splitlines() if canary.search(line) and "views.filter" not in line] == []


def test_a_key_of_another_group_is_refused(spark: Spark, store: Store) -> None:
    ref, refused = planned(store, "others_keys", groups=2), list[str]()
    for group in (0, 1):
        try:
            spark.group(ref, group)
        except Refused as error:
            refused.append(error.findings[0].what)
    (what,) = refused
    assert "returned the key 'key-1', which is not in its input" in what


def test_where_keys_do_not_tell_whose_rows_are_the_function_is_called_for_each_task(spark: Spark, store: Store) -> None:
    ref = planned(store, "counted", hash="opaque")
    assert "and wrote 68 rows" in spark.group(ref, 0)
    assert len(set(VIEWS["k"].to_pylist())) == 68


def test_a_runner_without_spark_says_which_have_it(store: Store) -> None:
    with pytest.raises(Refused) as refused, Local(processes=1) as runner:
        runner.group(planned(store, "doubled", twice="BIGINT"), 0)
    (finding,) = refused.value.findings
    assert finding.what == "scored is a function on Spark's DataFrames, and this runner has no Spark"
    assert finding.where == "group 0 of batch 0 of scores"
    assert finding.then == "choose --runner spark, spark-submit or connect"


def test_lost_state_that_only_spark_makes_is_not_begun_without_it(spark: Spark, store: Store) -> None:
    source = f"{store.root}/topics"
    land_table(VIEWS, "views", source, key="k", partitions=4)
    pipeline = Pipeline("scores", source=source)
    views = pipeline.stream("views", key="k", partitions=4, null_keys="drop")
    views.spark("tests.frames:doubled", COLUMNS | {"twice": "BIGINT"}, name="scored").latest("v").to_stream().write("t")
    ref = next_batch(pipeline, store.root)
    ledger, plan = ref.load()
    for group in plan.groups:
        spark.group(ref, group.group)
    publish_unjudged(ledger, plan)
    verdict = ledger.published(0)
    assert verdict is not None
    lost = next(file for file in verdict.artefacts if file.role is Role.STATE)
    store.delete(lost.path)
    with Local(processes=1) as runner, pytest.raises(Refused, match="scored is a function on Spark's DataFrames"):
        restore("scores", store, runner, silently)
    assert list(backfills(store, "scores")) == []
    assert [file.path for file in restore("scores", store, spark, silently)] == [lost.path]


def test_receipts_name_what_a_step_was_given(spark: Spark, store: Store) -> None:
    ref = planned(store, "without_some")
    assert "and wrote 0 rows, attempt 0" in spark.group(ref, 0)
    for task in task_receipts(ref):
        (given,) = task.left(Role.GIVEN)
        assert given.name == "scored.given-0"
        assert given.records == sum(partition.taken for partition in task.partitions)
        assert not task.left(Role.TABLE)


@pytest.mark.parametrize("hash", ["murmur2", "opaque"])
def test_what_steps_on_dataframes_are_given_and_make_is_counted(spark: Spark, store: Store, hash: str) -> None:
    ref = planned(store, "counted", hash=hash)
    spark.group(ref, 0)
    ledger, plan = ref.load()
    produced = audit(ledger, plan, 0).produced
    check_production(produced)
    left = produced.groupby("name")["left"].sum()
    assert left.to_dict() == {"scored.given-0": 300, "t": 68}
    assert (produced["taken"].notna() == (produced["kind"] == "given")).all()


def orders(ref: BatchRef) -> Sequence[Order]:
    ledger, plan = ref.load()
    return [order for together in orders_of(plan, plan.groups[0], 0, ledger.store.root, {}) for order in together]


def given_by(ref: BatchRef) -> list[Given]:
    """What the tasks of the group leave for the step."""
    together = orders(ref)
    done = {ran.receipt.task: ran.receipt for ran in run_orders(together)}
    return _given("scored.given-0", together, done)


def test_rows_that_spark_loses_or_doubles_before_the_function_sees_them_are_noticed(spark: Spark, store: Store) -> None:
    ref = planned(store, "doubled", twice="BIGINT")
    given, (step,) = given_by(ref), steps_on_dataframes(ref.load()[1], ref.load()[1].groups[0])
    with spark._dataframes("a test") as session:
        asked = Frames(session, "a test", MEMORY, answered, lambda _: ())
        frame = asked._read(step, 0, given)
        asked._check_counts(frame, given)
        for wrong in (frame.filter("`@row` <> 7"), frame.union(frame), lost_and_doubled(frame)):
            with pytest.raises(CosetError, match=r"Spark read .* rows, which are not the"):
                asked._check_counts(wrong, given)


def lost_and_doubled(frame: DataFrame) -> DataFrame:
    """As many rows as there were."""
    return frame.filter("`@row` <> 7").union(frame.filter("`@row` = 5"))


def test_a_file_that_is_not_the_one_that_was_left_is_not_read(store: Store) -> None:
    (given, *_) = given_by(planned(store, "doubled", twice="BIGINT"))
    assert sum(len(batch) for batch in given.batches()) == given.file.records
    with pytest.raises(Refused, match="rows were read"):
        list(replace(given, file=replace(given.file, records=1)).batches())
    with pytest.raises(Refused, match="has changed since the task wrote it"):
        list(replace(given, file=replace(given.file, etag="other")).batches())


def finished(ref: BatchRef, spoil: str | None = None) -> list[Answer]:
    """What the tasks answer if the function gives back all it was given, and Spark loses or doubles something."""
    together, given = orders(ref), given_by(ref)
    step = next(step for step in together[0].steps if step.name == "scored")
    rows = [batch.select(["k", "v"]) for one in given for batch in one.batches()]
    marked = pa.Table.from_batches(list(routing(RowRouting.of(step, together))(iter(rows))))
    answers = []
    for place, order in enumerate(together):
        mine = marked.filter(pa.compute.equal(marked[PLACE], place))
        if spoil and place == 0:
            mine = mine.slice(1) if spoil == "lost" else pa.concat_tables([mine.slice(0, 1), mine])
        document = msgspec.json.encode(Finishing(order, "scored", (given[place],)))
        sent = pa.table({PLACE: pa.array([place], pa.int32()), ORDER: pa.array([document], pa.binary())})
        batches = pa.concat_tables([mine, sent], promote_options="default").to_batches()
        (answer,) = finishing(answered, MEMORY)(iter(batches))
        assert answer[PLACE].to_pylist() == [place]
        answers.append(msgspec.json.decode(answer["answer"][0].as_py(), type=Answer))
    return answers


def test_rows_go_to_the_tasks_that_have_their_keys(store: Store) -> None:
    ref = planned(store, "counted")
    written = [
        file.records
        for done in finished(ref)
        if isinstance(done, Done)
        for task in done.receipts
        for file in task.left(Role.TABLE)
    ]
    assert written == [given.file.records for given in given_by(ref)]
    assert sum(written) == len(VIEWS)
    assert len(written) == 5


@pytest.mark.parametrize("spoil", ["lost", "doubled"])
def test_rows_that_are_lost_or_doubled_on_their_way_to_tasks_are_noticed(spoil: str, store: Store) -> None:
    failed, *others = finished(planned(store, "counted"), spoil)
    assert isinstance(failed, Failed)
    assert "Spark lost or doubled rows" in failed.findings[0].what
    assert not any(isinstance(answer, Failed) for answer in others)


def test_a_hot_key_with_its_own_task_is_read_by_a_later_stage(spark: Spark, store: Store) -> None:
    """Its results, as those of all keys, lie where the later stage looks for them."""
    skew = Skewed(store, totals_of_doubled)
    for seed in (1, 2):
        skew.land(skewed(3_000, seed))
        ref, plan = skew.planned("own task", "tasks(3)")
        for group in plan.groups:
            spark.group(ref, group.group)
        publish_unjudged(*ref.load())
    first, later = plan.stages
    assert isinstance(first.why, OwnTasks)
    assert [key.key for key in first.why.keys] == [HOT]
    assert [read.step for read in later.inputs] == ["doubled"]
    assert skew.rows() == skew.direct("SELECT k, count(*), sum(2 * v) FROM views GROUP BY k")


def totals_of_doubled(views: Flow) -> Flow:
    doubled = views.spark("tests.frames:doubled", COLUMNS | {"twice": "BIGINT"}, name="doubled")
    return doubled.aggregate("count(*) AS n, sum(twice)::BIGINT AS v", name="totals")
