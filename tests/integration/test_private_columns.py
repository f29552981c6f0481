"""Values of private columns are in no document, page, log or answer: a canary is looked for everywhere."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coset.batches import steps
from coset.cli.pipelines import load
from partitioning.documents.folder_store import path_of
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.model.private import MASK, private_names
from tests.commands import coset
from tests.landed import land_file, land_table
from tests.real_batches import ran
from tests.running import run_and_publish
from tests.told import recording

# In names, in keys, and in numbers.
NAME, KEY, AGE = "Zebulon Canary", "canary-key", 987123
# Data files; an audit is a ZIP file of such.
DATA = (".parquet", ".zip", ".arrow")
FOUND = (NAME, KEY, str(AGE), f"{AGE:,}", NAME.upper())

PIPELINE = """
from coset import Pipeline

pipeline = Pipeline("people", source={source!r})
people = pipeline.stream(
    "people", key="id", partitions=2, private=("id", "name", "age"), null_keys="refuse", {more}
)
shown = people.select("upper(name) AS loud, age AS years, city, {column}", name="shown")
shown.write("people", lineage=True, expect={expect!r})
chosen = people.select("age AS seen, name AS latest, city", name="chosen")
chosen.latest("seen", name="counted").write("counted", mode="upsert")
"""
MOVED = """
from coset import Pipeline, expect

pipeline = Pipeline("people", source={source!r}, owner="ana")
people = pipeline.stream("people", key="id", partitions=2, private=("id", "name", "age"), null_keys="drop")
called = people.select("name AS called, age AS years, city", name="named").rekey("called", name="by_name")
called.aggregate("count(*) AS n, ({oldest})::BIGINT AS oldest", name="names").to_stream().write(
    "names", mode="upsert", expect=[{expected}, expect.few_nulls("oldest", at_most=0.5), expect.keys_as_usual()]
)
"""
KEPT = """
from datetime import timedelta
from coset import Pipeline

hour = timedelta(hours=1)
pipeline = Pipeline("people", source={source!r})
time = "make_timestamp(age * 1000000)"
people = pipeline.stream("people", key="city", partitions=2, private=("name", "age"), time=time)
people.distinct("name", time=time, within=hour, name="once").write("once")
people.windows("count(*) AS n", time=time, every=24 * hour, gap=hour, name="visits").write("visits")
each = people.select("1::BIGINT AS n, age::BIGINT AS years", name="each")
columns, seen = "sum(n)::BIGINT AS n, max(years) AS years", "make_timestamp(years * 1000000)"
each.select("n, years").combine(columns, running=True, time=seen, keep=hour, name="totals").to_stream().write("totals")
"""
BETWEEN = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "years", "max_value": 99}}
WRONG = [
    BETWEEN,
    {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "loud", "value_set": ["ANN"]}},
    {"type": "expect_column_max_to_be_between", "kwargs": {"column": "years", "max_value": 99}},
    {"type": "expect_column_distinct_values_to_be_in_set", "kwargs": {"column": "loud", "value_set": ["ANN"]}},
    {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "city", "value_set": ["Rome"]}},
    {"type": "expect_column_values_to_be_between", "kwargs": {"column": "loud", "max_value": 3}},
    {"type": "expect_keys_to_meet_in_one_task", "kwargs": {"key_columns": ["city"], "shown_columns": ["loud"]}},
]


@pytest.fixture
def landed(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """People, one of whom lies in a wrong partition; most records are one person's."""
    monkeypatch.setenv("COSET_STORE", store.root)
    people = [(KEY, NAME, AGE, "Oslo")] * 150 + [(f"{KEY}-{number}", NAME, AGE, "Oslo") for number in range(40)]
    land_table(table_of(people), "people", f"{store.root}/topics", key="id", partitions=2)
    return store


def table_of(people: Sequence[tuple[str | None, str, int, str]]) -> pa.Table:
    return pa.table(dict(zip(("id", "name", "age", "city"), map(list, zip(*people, strict=True)), strict=True)))


def land_wrong(store: Store) -> None:
    """Everybody once more, in both partitions, and somebody without a key."""
    rows = [(f"{KEY}-{number}", NAME, AGE, "Oslo") for number in range(40)]
    for partition in (0, 1):
        files = path_of(store.root).glob(f"topics/people/partition={partition}/*")
        end = sum(1 for _ in files) and _end(store, partition)
        land_file(table_of([*rows, (None, NAME, AGE, "Oslo")]), "people", f"{store.root}/topics", partition, end)


def _end(store: Store, partition: int) -> int:
    return sum(
        pq.read_metadata(file).num_rows for file in path_of(store.root).glob(f"topics/people/partition={partition}/*")
    )


def pipeline(
    store: Store, folder: Path, *, expect: Sequence[object] = (), more: str = "", column: str = "1 AS one"
) -> str:
    made = folder / "people.py"
    made.write_text(PIPELINE.format(source=f"{store.root}/topics", expect=list(expect), more=more, column=column))
    return str(made)


def quoted(store: Store, *folders: Path) -> set[str]:
    """Where the canary is, in documents and pages, though compressed: data files have records, keys and rows."""
    found = set()
    for root in (path_of(store.root), *folders):
        for file in (file for file in root.rglob("*") if file.is_file() and file.suffix not in DATA):
            text = file.read_bytes()
            if file.suffix == ".gz":
                text = gzip.decompress(text)
            if (
                "/left/" not in str(file)
                and "/state/" not in str(file)
                and any(each.encode() in text for each in FOUND)
            ):
                found.add(str(file.relative_to(root)))
    return found


def said(*words: str) -> str:
    answer = coset(*words)
    for text in (answer.stdout, answer.stderr):
        assert [each for each in FOUND if each in text] == [], f"{words}: {text}"
    return answer.output


def test_nobody_is_told_a_value_of_a_batch_that_is_refused(
    landed: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    land_wrong(landed)
    named = pipeline(landed, tmp_path, expect=WRONG)
    docs = tmp_path / "docs"
    ref = ran(landed, load(named))
    steps.audit(ref)
    with pytest.raises(Refused) as refused:
        steps.check(ref, docs)
    told = [finding.what.partition(",")[0] for finding in refused.value.findings]
    assert {
        "Coverage",
        "Placement",
        "Keys of stage people",
        "Keys of people in stage people",
        "Result table people",
    } <= {*told}
    assert [each for each in FOUND if each in str(refused.value)] == []
    assert MASK in str(refused.value)
    assert [each for each in FOUND if each in caplog.text] == []
    assert quoted(landed, docs) == set()
    shown = said("records", named, "--batch", "0", "--offenders")
    assert MASK in shown
    assert "Oslo" in shown
    said("records", named, "--batch", "0", "--offenders", "--json")
    assert f"REPLACE ('{MASK}' AS " in said("records", named, "--batch", "0", "--offenders", "--sql")
    for words in (
        ("report", named),
        ("report", named, "--json"),
        ("status", named),
        ("incidents", named),
        ("metrics", named),
    ):
        said(*words)
    # It fails in the same way, and waits.
    assert "waits" in said("run", named, "--runner", "local", "--docs", str(docs)) + said(
        "run", named, "--runner", "local", "--docs", str(docs)
    )
    assert quoted(landed, docs) == set()


def test_nobody_is_told_a_value_of_a_batch_that_is_published(landed: Store, tmp_path: Path) -> None:
    named, docs = pipeline(landed, tmp_path), tmp_path / "docs"
    run_and_publish(ran(landed, load(named)), docs)
    shown = said("rows", named)
    assert MASK in shown
    assert "Oslo" in shown
    for words in (
        ("rows", named, "--json"),
        ("state", named, "counted"),
        ("state", named, "counted", "--json"),
        ("state", named, "counted", "--parquet", str(tmp_path / "state.parquet")),
        ("records", named, "--batch", "0"),
        ("records", named, "--batch", "0", "--json"),
        ("records", named, "--batch", "0", "--sql"),
        ("schemes", named),
        ("schemes", named, "--json"),
        ("explain", named, "--batch", "0"),
        ("report", named),
        ("report", named, "--html", str(docs / "page.html")),
        ("metrics", named),
    ):
        said(*words)
    assert quoted(landed, docs) == set()
    # The data is as it was.
    assert coset("records", named, "--batch", "0", "--key", KEY, "--json").stdout.count(MASK) > 3


@pytest.mark.parametrize("step", ["once", "visits.people", "totals"])
def test_what_a_step_keeps_of_private_columns_for_a_time_is_not_told(store: Store, tmp_path: Path, step: str) -> None:
    table = table_of([("one", NAME, AGE, "Oslo")])
    land_table(table, "people", f"{store.root}/topics", key="city", partitions=2)
    named = tmp_path / "people.py"
    named.write_text(KEPT.format(source=f"{store.root}/topics"))
    run_and_publish(ran(store, load(str(named))), tmp_path / "docs")
    for more in ((), ("--json",)):
        shown = said("state", str(named), step, *more, "--store", store.root)
        assert "Oslo" in shown
        assert MASK in shown
        assert "1970" not in shown


@pytest.mark.parametrize(
    ("more", "column"),
    [
        ("", "city::INTEGER AS wrong"),
        ("", "name::INTEGER AS wrong"),
        ("", "error(name) AS wrong"),
        ('cast={"age": "TINYINT"}', "1 AS one"),
    ],
)
def test_a_task_that_fails_on_a_value_does_not_tell_it(landed: Store, tmp_path: Path, more: str, column: str) -> None:
    named = pipeline(landed, tmp_path, more=more, column=column)
    answer = said("run", named, "--runner", "local", "--docs", str(tmp_path / "docs"))
    assert "Batch 0 is planned" in answer
    assert "is not shown" in answer
    said("records", named, "--batch", "0")
    said("records", named, "--batch", "0", "--key", "another", "--json")
    assert quoted(landed, tmp_path / "docs") == set()


def test_nobody_is_told_a_value_that_moves_or_is_run_again(
    landed: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Names are keys of an exchange; a backfill differs; a batch is refused; catalogues and people are told."""
    docs = tmp_path / "docs"

    def written(oldest: str = "max(years)", most: int = 10**9) -> str:
        made = tmp_path / "people.py"
        expected = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "oldest", "max_value": most}}
        made.write_text(MOVED.format(source=f"{landed.root}/topics", oldest=oldest, expected=expected))
        return str(made)

    def run(word: str, *words: str) -> str:
        return said(word, *words, "--runner", "local", "--docs", str(docs))

    with recording() as events, recording() as notices:
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{events.port}")
        monkeypatch.setenv("COSET_NOTIFY", notices.address)
        assert "is published" in run("run", written())
        assert "different: 1 key" in run("backfill", written("max(years + 1)"), "--from", "0")
        said("backfills", written(), "0")
        said("backfills", written(), "0", "--json")
        land_table(
            table_of([(f"{KEY}-b", NAME, AGE, "Rome")]), "people", f"{landed.root}/topics", key="id", partitions=2
        )
        assert MASK in run("run", written(most=5))
        said("diff", written(), "0", "1")
        said("records", written(), "--batch", "1", "--offenders")
        told = json.dumps([events.messages, notices.messages], ensure_ascii=False)
    assert (len(events.messages), len(notices.messages)) == (4, 1)
    assert [each for each in FOUND if each in told] == []
    assert told.count(MASK) > 2
    assert [each for each in FOUND if each in caplog.text] == []
    assert quoted(landed, docs) == set()


def test_a_private_column_that_is_not_there_is_refused(landed: Store, tmp_path: Path) -> None:
    named = Path(pipeline(landed, tmp_path))
    named.write_text(named.read_text().replace('"age")', '"aeg")'))
    assert "there is no column 'aeg' to be private" in said("plan", str(named))


def test_what_is_made_of_a_private_column_is_private_too(landed: Store, tmp_path: Path) -> None:
    made = load(pipeline(landed, tmp_path))
    assert private_names(made.streams, made.steps) == {"id", "name", "age", "loud", "years", "latest", "seen"}
    assert ran(landed, made).load()[1].private == made.private


def test_what_is_not_private_is_found_by_these_tests(landed: Store, tmp_path: Path) -> None:
    land_wrong(landed)
    named = Path(pipeline(landed, tmp_path, expect=WRONG))
    named.write_text(named.read_text().replace('private=("id", "name", "age"), ', ""))
    ref = ran(landed, load(str(named)))
    steps.audit(ref)
    with pytest.raises(Refused, match=NAME.upper()):
        steps.check(ref, tmp_path / "docs")
    found = quoted(landed, tmp_path / "docs")
    for part in ("receipts/0", "audits/0", "people/docs/", "people/batch-0"):
        assert [file for file in found if part in file], part
