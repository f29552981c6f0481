"""Columns that come, go or are renamed while batches are run again, taken back or accepted: as a user meets it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from typer.testing import Result

from partitioning.documents.store import Store
from tests.commands import coset, refused, succeeded
from tests.followed import commands
from tests.landed import land_table
from tests.logs import log_of
from tests.there import there

WRITTEN = {
    "append": 'views.write("seen")',
    "upsert": 'views.latest("_offset", name="newest").write("seen", mode="upsert")',
}
BEFORE, BEHIND = [{"ad": f"a{n % 5}", "n": n} for n in range(10)], range(10, 20)


class Project:
    """A folder with a pipeline in a file, and a store in it."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.file = str(folder / "ads.py")

    def declare(self, key: str, written: str, more: str = "") -> None:
        stream = f'pipeline.stream("views", key="{key}", partitions=2{more})'
        made = f'pipeline = Pipeline("ads", source="{self.store.root}/topics")\nviews = {stream}'
        Path(self.file).write_text(f"from coset import Pipeline\n\n{made}\n{written}\n")

    def land(
        self, rows: Sequence[Mapping[str, object]], key: str = "ad", types: Mapping[str, pa.DataType] | None = None
    ) -> None:
        table = pa.Table.from_pylist(list(rows))
        schema = pa.schema([field.with_type((types or {}).get(field.name, field.type)) for field in table.schema])
        land_table(table.cast(schema), "views", f"{self.store.root}/topics", key=key, partitions=2)

    def landed(self) -> list[Path]:
        return sorted(Path(self.store.root.removeprefix("file://"), "topics/views").rglob("*.parquet"))

    def run(self, command: str, *words: str) -> Result:
        """Run a command that succeeds."""
        return succeeded(command, self.file, *words)

    def backfilled(self, *words: str) -> None:
        """Run a backfill, as a command has it, and put it in place as it says."""
        said = succeeded(*words).stdout
        if "It is in place" not in said:
            (swap,) = commands(said)
            succeeded(*swap)

    def whole(self) -> tuple[str, ...]:
        """The backfill that a plan which is refused names."""
        (named,) = (words for words in commands(coset("run", self.file).stderr) if words[0] == "backfill")
        return named

    def rows(self, select: str = "*") -> list[tuple[object, ...]]:
        seen = log_of(self.store, "seen").to_pyarrow_table()  # noqa: F841
        return there(duckdb.sql(f"SELECT {select} FROM seen ORDER BY ALL")).fetchall()


@pytest.fixture
def ads(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("COSET_STORE", store.root)
    monkeypatch.setenv("COSET_DOCS", str(tmp_path / "docs"))
    monkeypatch.setenv("COSET_RUNNER", "local")
    return Project(store, tmp_path)


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_batches_from_before_a_column_are_run_again_with_nulls_in_it(written: str, ads: Project) -> None:
    ads.declare("ad", written)
    ads.land(BEFORE)
    ads.run("run")
    ads.land([{"ad": f"a{n % 4}", "n": n, "page": f"p{n}"} for n in BEHIND])
    ads.run("run")
    before = ads.rows("ad, n, page")
    assert any(row[2] is None for row in before)
    for words in (("--to", "0"), ("--cascade",)):
        ads.backfilled("backfill", ads.file, "--from", "0", *words, "--scheme", "tasks(3)")
        assert ads.rows("ad, n, page") == before
        ads.run("verify")


def test_a_table_that_is_newer_than_a_wider_type_is_made_whole_by_a_backfill(ads: Project) -> None:
    counted = 'views.aggregate("count(*) AS records").write("counted")'
    ads.declare("ad", counted)
    ads.land(BEFORE, types={"n": pa.int32()})
    ads.run("run")
    ads.land([{"ad": "a1", "n": 2**40}])
    ads.run("run")
    ads.declare("ad", f"{counted}\n{WRITTEN['append']}")
    ads.land([{"ad": "a2", "n": 1}])
    ads.run("run", "--begin-anew", "seen")
    ads.backfilled("backfill", ads.file, "--from", "0", "--cascade")
    ads.run("verify")
    assert ads.rows("max(n), count(*)") == [(2**40, 12)]


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_records_of_a_key_that_is_renamed_are_landed_again_as_the_plan_says(written: str, ads: Project) -> None:
    ads.declare("ad", written)
    ads.land(BEFORE)
    ads.run("run")
    ads.land([{"ad_id": f"a{n % 5}", "n": n} for n in BEHIND], key="ad_id")
    ads.declare("ad_id", written)
    refused(coset("run", ads.file), "land the files of earlier batches with column 'ad_id', then `coset backfill ")
    whole = ads.whole()
    # Nothing is run of what cannot be.
    refused(coset("backfill", ads.file, "--from", "0", "--cascade"), "its key is 'ad_id' now", "read no 'ad_id'")
    for file in ads.landed():
        held = pq.read_table(file, partitioning=None)
        pq.write_table(held.rename_columns([{"ad": "ad_id"}.get(name, name) for name in held.column_names]), file)
    ads.backfilled(*whole)
    ads.run("run")
    ads.run("verify")
    assert {row[0] for row in ads.rows("ad_id")} == {f"a{n}" for n in range(5)}


def test_a_key_that_is_read_from_its_bytes_is_renamed_by_a_backfill(ads: Project) -> None:
    for key in ("ad", "id"):
        ads.declare(key, WRITTEN["upsert"], ', key_bytes="raw"')
        ads.land([{"raw": f"a{n % 5}", "n": n} for n in BEHIND], key="raw")
        if key == "ad":
            ads.run("run")
    ads.backfilled(*ads.whole())
    ads.run("run")
    ads.run("verify")
    assert [row[0] for row in ads.rows("id")] == [f"a{n}" for n in range(5)]


def test_a_column_that_only_unread_files_have_is_read_by_the_backfill_that_the_plan_names(ads: Project) -> None:
    sums = 'views.aggregate("{}").combine("{}", running=True, name="totals").write("seen", mode="upsert")'
    ads.declare("ad", sums.format("sum(n)::BIGINT AS n", "sum(n)::BIGINT AS n"))
    ads.land(BEFORE)
    ads.run("run")
    ads.land([{"ad": "a0", "n": 1, "clicks": 7}])
    both = "sum(n)::BIGINT AS n, sum(clicks)::BIGINT AS clicks"
    ads.declare("ad", sums.format(both, both))
    refused(coset("backfill", ads.file, "--from", "0"), "there is no column 'clicks'", "--input repaired")
    ads.backfilled(*ads.whole())
    ads.run("run")
    ads.run("verify")
    assert [row for row in ads.rows("ad, n, clicks") if row[2]] == [("a0", 6, 7)]


@pytest.mark.parametrize(
    ("mode", "which"),
    [("append", ("--cascade",)), ("append", ("--to", "0", "--go-on", "seen")), ("upsert", ("--cascade",))],
)
def test_an_undo_takes_back_the_columns_of_a_backfill(mode: str, which: tuple[str, ...], ads: Project) -> None:
    written = f'views.latest("_offset", name="newest").write("seen", mode="{mode}")'
    if mode == "append":
        written = 'views.select("n{}").write("seen")'
    ads.declare("ad", written.format(""))
    for batch in (BEFORE, [{"ad": "a1", "n": 10}]):
        ads.land(batch)
        ads.run("run")
    before = ads.rows()
    ads.declare("ad", written.format(", n * 2 AS double"))
    if mode == "upsert":
        ads.declare("ad", f'made = views.select("n, n * 2 AS double, _offset")\n{written.replace("views", "made")}')
    ads.backfilled("backfill", ads.file, "--from", "0", *which)
    assert [row for row in ads.rows("n, double") if row[0] == 9] == [(9, 18)]
    ads.run("undo", "0", "--why", "too early")
    assert ads.rows() == before
    # As it was before, the pipeline goes on.
    ads.declare("ad", written.format(""))
    ads.land([{"ad": "a2", "n": 11}])
    ads.run("run")
    ads.run("verify")


@pytest.mark.parametrize("by", ["others", "a batch before the table was left"])
def test_an_undo_leaves_a_column_that_others_or_later_batches_filled(by: str, ads: Project) -> None:
    written, other = 'views.select("n{}").write("seen")', 'views.select("n", name="more").write("more")'
    ads.declare("ad", f"{written.format('')}\n{other}")
    ads.land(BEFORE)
    ads.run("run")
    ads.declare("ad", f"{written.format(', n * 2 AS double')}\n{other}")
    ads.backfilled("backfill", ads.file, "--from", "0", "--go-on", "seen", "--go-on", "more")
    if by == "others":
        rows = pa.table({"ad": ["a1"], "n": [10], "double": [20]})
        write_deltalake(log_of(ads.store, "seen").table_uri, rows, mode="append")
    else:
        ads.land([{"ad": "a1", "n": 10}])
        ads.run("run", "--go-on", "seen")
        ads.declare("ad", other)
        ads.land([{"ad": "a1", "n": 11}])
        ads.run("run")
    ads.run("undo", "0", "--why", "too early")
    assert [row for row in ads.rows("n, double") if row[1] is not None] == [(10, 20)]
