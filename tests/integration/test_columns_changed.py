"""What is changed in a pipeline that has published batches, as a user meets it: columns that come, go or are renamed
while batches are run again, taken back or accepted; a running step, of which nothing is emptied until that is asked
for; and tables that are added, of which what they lack is asked for by their name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner, Result

from coset.batches.backfills.actions import Asked, begin
from coset.cli.main import app
from coset.testing.runs import Trial
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.diff.plan_diff import diff
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.kinds import Kind
from tests.asked_of_duckdb import is_its_query
from tests.begun import Begun
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


CODE = """
from coset import Pipeline
pipeline = Pipeline("worth", source="{source}")
orders = pipeline.stream("orders", key="customer", partitions=4)
worth = orders.filter("{condition}").aggregate("{of_orders}")
worth.combine("{running}", running=True, name="{name}").write("worth", mode="upsert")
"""
WORTH = "sum(amount)::BIGINT AS worth", "sum(worth)::BIGINT AS worth"
COUNTED = f"{WORTH[0]}, count(*) AS orders", f"{WORTH[1]}, sum(orders)::BIGINT AS orders"


BATCHES = range(80), range(40, 120)


class Shop:
    """A pipeline in a file that its owner edits, and commands as they are typed."""

    def __init__(self, store: Store, folder_: Path) -> None:
        self._store = store
        self._file = folder_ / "worth.py"
        self._docs = folder_ / "docs"
        self.edit(WORTH, "totals")

    def edit(self, columns: tuple[str, str], name: str, condition: str = "amount > 0") -> None:
        source, (of_orders, running) = f"{self._store.root}/topics", columns
        self._file.write_text(
            CODE.format(source=source, condition=condition, of_orders=of_orders, running=running, name=name)
        )

    def leave_out(self) -> None:
        """Write nothing but the orders, to another table."""
        whole = self._file.read_text()
        self._file.write_text(f'{whole[: whole.index("worth = ")]}orders.write("all_orders")\n')

    def order(self, customers: range) -> None:
        table = pa.table({"customer": [f"c{number}" for number in customers], "amount": [10] * len(customers)})
        land_table(table, "orders", f"{self._store.root}/topics", key="customer", partitions=4)

    def typed(self, command: str, *words: str) -> Result:
        runs = ("--runner", "local", "--docs", str(self._docs)) if command in {"run", "backfill"} else ()
        return CliRunner().invoke(app, [command, str(self._file), *words, *runs, "--store", self._store.root])

    def done(self, command: str, *words: str) -> str:
        result = self.typed(command, *words)
        assert result.exit_code == 0, result.output
        return plain(result)

    def rows(self) -> dict[str, tuple[int, ...]]:
        """What readers see of each customer."""
        delta = log_of(self._store, "worth")
        columns = [name for name in ("worth", "orders") if name in delta.to_pyarrow_table().schema.names]
        rows = delta.to_pyarrow_table(columns=["customer", *columns]).to_pylist()
        return {row["customer"]: tuple(row[name] for name in columns) for row in rows}


@pytest.fixture
def shop(begun: Begun, tmp_path: Path) -> Shop:
    """120 customers in two batches, 40 of them in both; an order more has arrived."""
    shop = Shop(begun.by(two_batches), tmp_path)
    shop.order(range(1))
    return shop


def two_batches(store: Store) -> None:
    with TemporaryDirectory() as folder:
        shop = Shop(store, Path(folder))
        for customers in BATCHES:
            shop.order(customers)
            shop.done("run")


def plain(result: Result) -> str:
    return re.sub(r"\s+", " ", result.output)


def expected(*batches: range, counted: bool) -> dict[str, tuple[int, ...]]:
    orders = [f"c{number}" for batch in batches for number in batch]
    return {who: (10 * orders.count(who), orders.count(who))[: 1 + counted] for who in orders}


def swap_that_is_named(shown: str) -> tuple[str, ...]:
    (command,) = set(re.findall(r"`coset swap \S+ ([^`]+)`", shown))
    return ("swap", *command.split())


@pytest.mark.parametrize(
    ("name", "why", "compared"),
    [
        ("totals", "its columns changed from", "what totals keeps for worth"),
        ("sums", "the step has no state yet and would begin with nothing", "what sums keeps for worth, before totals"),
    ],
)
def test_a_further_column_is_refused_rebuilt_and_gone_on_from(shop: Shop, name: str, why: str, compared: str) -> None:
    shop.edit(COUNTED, name)
    refused = shop.typed("run")
    assert refused.exit_code == 3
    assert why in plain(refused)
    assert "table 'worth' has 120 rows and would have only those of keys that come from now on" in plain(refused)
    (command,) = set(re.findall(r"`coset backfill \S+ (--from 0 --cascade [^`]+)`", plain(refused)))
    shown = shop.done("backfill", *command.split())
    assert f"different: 120 keys of what {name} keeps" in shown
    assert f"1 {compared} 120 120 120" in shown
    assert shop.rows() == expected(*BATCHES, counted=False)
    assert "It is in place: worth at version" in shop.done(*swap_that_is_named(shown))
    assert shop.rows() == expected(*BATCHES, counted=True)
    shop.done("run")
    assert shop.rows() == expected(*BATCHES, range(1), counted=True)


def test_a_step_whose_input_means_something_else_is_rebuilt_without_a_difference(shop: Shop) -> None:
    shop.edit(("sum(abs(amount))::BIGINT AS worth", WORTH[1]), "totals")
    refused = shop.typed("run")
    assert refused.exit_code == 3
    assert "--from 0 --cascade" in plain(refused)
    shown = shop.done("backfill", "--from", "0", "--cascade")
    assert "identical: 0 rows of 2 batches, and 120 that steps keep" in shown
    assert "at version 3" in shop.done(*swap_that_is_named(shown))
    assert "at version 4" in shop.done("undo", "0")
    assert shop.typed("run").exit_code == 3
    shop.done(*swap_that_is_named(shown))
    shop.done("run")
    assert shop.rows() == expected(*BATCHES, range(1), counted=False)
    assert "it changes the state of totals, on which later batches, up to 2, depend" in plain(shop.typed("undo", "0"))


@pytest.mark.long
def test_what_is_taken_back_is_gone_on_from_as_it_was(shop: Shop) -> None:
    shop.edit(COUNTED, "sums")
    shop.done(*swap_that_is_named(shop.done("backfill", "--from", "0", "--cascade")))
    shop.done("undo", "0")
    shop.edit(WORTH, "totals")
    shop.done("run")
    assert shop.rows() == expected(*BATCHES, range(1), counted=False)


@pytest.mark.long
def test_a_step_that_has_only_another_name_is_rebuilt_without_a_difference(shop: Shop) -> None:
    shop.edit(WORTH, "sums")
    shown = shop.done("backfill", "--from", "0", "--cascade")
    assert "Compared: identical: 0 rows of 2 batches, and 120 that steps keep." in shown
    shop.done(*swap_that_is_named(shown))
    shop.done("run")
    assert shop.rows() == expected(*BATCHES, range(1), counted=False)


@pytest.mark.long
def test_a_new_step_goes_nowhere_unless_all_later_batches_have_it(shop: Shop) -> None:
    shop.edit(COUNTED, "sums")
    for more, what in (
        ((), "it has no column orders yet: it would have rows of both queries"),
        (("--go-on", "worth"), "it changes the state of sums, on which later batches, up to 1, depend"),
    ):
        refused = shop.typed("backfill", "--from", "0", *more)
        assert refused.exit_code == 3
        assert what in plain(refused)
        assert "--from 0 --cascade --store " in plain(refused)


@pytest.mark.long
def test_a_table_that_was_left_out_of_a_batch_is_whole_again_when_it_comes_back(shop: Shop) -> None:
    shop.leave_out()
    shop.order(range(1, 30))
    shop.done("run", "--begin-anew", "all_orders")
    assert shop.rows() == expected(*BATCHES, counted=False)
    shop.edit(WORTH, "totals")
    shop.order(range(200, 203))
    refused = shop.typed("run")
    assert refused.exit_code == 3
    assert "table 'worth' has 120 rows" in plain(refused)
    (command,) = set(re.findall(r"`coset backfill \S+ (--from 0 --cascade [^`]+)`", plain(refused)))
    shop.done(*swap_that_is_named(shop.done("backfill", *command.split())))
    assert shop.rows() == expected(*BATCHES, range(30), counted=False)
    shop.done("run")
    assert shop.rows() == expected(*BATCHES, range(30), range(200, 203), counted=False)


@pytest.mark.long
def test_a_backfill_from_a_later_batch_names_itself_with_what_it_needs_beside(shop: Shop) -> None:
    shop.edit(("sum(abs(amount))::BIGINT AS worth", WORTH[1]), "totals")
    refused = plain(shop.typed("backfill", "--from", "1", "--cascade"))
    (words,) = re.findall(r"`coset backfill \S+ ([^`]+ --go-on totals[^`]*)`", refused)
    assert words.startswith("--from 1 --cascade --go-on totals --")
    shown = shop.done("backfill", *words.split())
    shop.done(*swap_that_is_named(shown))
    shop.done("run")
    assert shop.rows() == expected(*BATCHES, range(1), counted=False)


# ---- by name


@pytest.mark.parametrize("command", [("run",), ("plan",), ("explain",), ("diff", "1", "next")])
def test_a_renamed_step_empties_no_table_until_it_is_asked_for_by_name(shop: Shop, command: tuple[str, ...]) -> None:
    shop.edit(WORTH, "sums")
    refused = shop.typed(*command)
    assert refused.exit_code == 3, refused.output
    disposition = "table 'worth' has 120 rows and would have only those of keys that come from now on"
    assert f"the step has no state yet and would begin with nothing; {disposition}" in plain(refused)
    assert "name it 'totals' again, as it does the same, or say in the pipeline that it is that one" in plain(refused)
    line = 'pipeline.changed("sums", was="totals"); or make what it would have kept by a backfill of all batches'
    assert line in plain(refused)
    assert re.search(r"worth\.py --begin-anew sums --store \S+`", plain(refused))
    assert len(shop.rows()) == 120


def test_what_is_asked_for_by_name_is_said_first_and_done(shop: Shop) -> None:
    shop.edit(WORTH, "sums")
    shown = shop.done("explain", "--begin-anew", "sums")
    assert shown.index("State that does not simply go on") < shown.index("Streams")
    assert "begins with nothing" in shown
    shown = shop.done("diff", "1", "next", "--begin-anew", "sums")
    assert shown.index("State that does not simply go on") < shown.index("Changes")
    assert len(shop.rows()) == 120


def test_a_comparison_with_the_next_plan_may_take_away_what_is_named(shop: Shop) -> None:
    shop.done("diff", "1", "next", "--take-away", "worth")
    refused = shop.typed("diff", "1", "next", "--take-away", "worthless")
    assert "'worthless' is no table or step of the pipeline" in plain(refused)


@pytest.mark.long
def test_a_filter_that_is_corrected_is_seen_and_gone_on_with_by_name(shop: Shop) -> None:
    shop.edit(WORTH, "totals", "amount >= 0")
    refused = plain(shop.typed("run"))
    assert "changed from filter amount > 0 to filter amount >= 0" in refused
    assert "worth.py --go-on totals --store " in refused
    shop.done("run", "--go-on", "totals")
    assert shop.rows() == expected(*BATCHES, range(1), counted=False)


@pytest.mark.long
def test_all_batches_may_be_made_anew_with_what_was_changed_by_a_backfill(shop: Shop) -> None:
    shop.done("run")
    shop.edit(WORTH, "totals", "amount > 100")
    shop.done(*swap_that_is_named(shop.done("backfill", "--from", "0", "--cascade")))
    shop.order(range(2, 3))
    shop.done("run")
    assert shop.rows() == {}


BEGIN = datetime.fromisoformat("2026-11-01")
SUMS = "sum(n)::BIGINT AS n"
Add = Callable[[Pipeline, dict[str, Flow]], None]


def records(batch: int, keys: range) -> list[dict[str, object]]:
    return [{"k": f"k{key}", "n": key, "t": BEGIN + timedelta(days=batch, minutes=key)} for key in keys]


def pipeline(*adds: Add, newest: str = "newest") -> Pipeline:
    made = Pipeline("p", source="s3://lake")
    flows = {
        "s": made.stream("s", key="k", partitions=2, time="t"),
        "u": made.table("u", key="k", partitions=2, kept=True),
    }
    flows["newest"] = flows["s"].latest("t", name=newest)
    flows["newest"].write("newest", mode="upsert")
    flows["s"].join(flows["u"], "s.n AS n, u.n AS m", name="both").write("both")
    for add in adds:
        add(made, flows)
    return made


def lands(batch: int, **more: range) -> dict[str, list[dict[str, object]]]:
    """Each batch has other keys of the stream, and other keys of the table."""
    keys = {"s": range(4 * batch, 4 * batch + 6), "u": range(3 * batch, 3 * batch + 5)} | more
    return {name: records(batch, of) for name, of in keys.items()}


@pytest.fixture
def place() -> Iterator[Trial]:
    with Trial.made(pipeline()) as trial:
        trial.land(lands(0))
        trial.run()
        yield trial


def asked(place: Trial, settings: Settings = DEFAULTS) -> list[tuple[object, object]]:
    """Which tables a plan asks about, each with the steps that begin with it."""
    with pytest.raises(Refused) as refused:
        place.run(settings)
    assert {finding.kind for finding in refused.value.findings} == {Kind.TABLE_BEGINS}
    return [(about["table"], about["steps"]) for about in (dict(finding.about) for finding in refused.value.findings)]


def windows(flow: Flow) -> Flow:
    return flow.windows("count(*) AS c", time="t", every=timedelta(hours=1), name="hours")


LACKS: dict[str, tuple[Add, tuple[str, ...]]] = {
    "the newest": (lambda _, of: of["s"].latest("n", name="most").write("x", mode="upsert"), ("most",)),
    "records": (lambda _, of: of["s"].filter("n >= 0").write("x"), ()),
    "a changelog": (lambda _, of: of["newest"].write("x", mode="changelog"), ()),
    "windows": (lambda _, of: windows(of["s"]).write("x"), ("hours.s",)),
    "some of the newest": (
        lambda _, of: of["newest"].filter("n >= 0", name="some").write("x", mode="upsert"),
        ("x.upsert",),
    ),
}


@pytest.mark.parametrize("name", LACKS)
def test_a_table_that_would_lack_earlier_records_is_begun_by_its_name(name: str, place: Trial) -> None:
    add, steps = LACKS[name]
    place.go_on_with(pipeline(add))
    place.land(lands(1))
    assert asked(place) == [("x", steps)]
    # Another name is no answer.
    assert asked(place, Settings(begin_anew=("newest",), go_on=("x",))) == [("x", steps)]
    place.run(Settings(begin_anew=("x",)))
    ledger = Ledger(store_at(place.root), "p")
    before, now = (ledger.plan(batch) for batch in (0, 1))
    assert before
    assert now
    assert "x is new, without the records of earlier batches" in str(diff(before, now).results)
    # It is asked once.
    place.land(lands(2))
    assert place.run().startswith("Batch 2")
    assert not is_its_query(place, "x")


def of_batch(flow: Flow) -> Flow:
    return flow.aggregate("sum(n)::BIGINT AS n", name="counts")


OF_BATCH: dict[str, tuple[Add, tuple[str, ...]]] = {
    "a row for each batch": (lambda _, of: of_batch(of["s"]).write("x"), ()),
    "totals, of the last batch alone": (
        lambda _, of: of_batch(of["s"]).combine(SUMS, running=True, name="sums").to_stream().write("x", mode="replace"),
        ("sums",),
    ),
}


@pytest.mark.parametrize("name", OF_BATCH)
def test_a_table_of_a_batch_that_lacks_what_earlier_batches_gave_is_asked_about_too(name: str, place: Trial) -> None:
    add, steps = OF_BATCH[name]
    place.go_on_with(pipeline(add))
    place.land(lands(1))
    assert asked(place) == [("x", steps)]
    place.run(Settings(begin_anew=("x",)))


def new_stream(made: Pipeline, of: dict[str, Flow]) -> None:
    made.stream("v", key="k", partitions=2, time="t").join(of["u"], "v.n AS n, u.n AS m", name="seen").write("x")


WHOLE: dict[str, Add] = {
    "all of a table": lambda _, of: of["u"].write("x", mode="replace"),
    "all of a table, upserted": lambda _, of: of["u"].write("x", mode="upsert"),
    "some of a table": lambda _, of: of["u"].filter("n > 1").write("x", mode="replace"),
    "what a step keeps": lambda _, of: of["newest"].write("x", mode="upsert"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_table_that_is_whole_at_once_is_not_asked_about(name: str, place: Trial) -> None:
    place.go_on_with(pipeline(WHOLE[name]))
    place.land(lands(1))
    place.run()
    assert is_its_query(place, "x")
    place.land(lands(2))
    place.run()
    assert is_its_query(place, "x")


def test_a_table_of_a_stream_that_no_batch_read_is_whole_at_once(place: Trial) -> None:
    place.go_on_with(pipeline(new_stream))
    place.land(lands(1, v=range(5)))
    place.run()
    rows = [(row["k"], row["n"], row["m"]) for row in place.tables()["x"]]
    assert rows == [(f"k{n}", n, n) for n in range(5)]


def test_what_the_last_batch_alone_makes_is_right_at_once(place: Trial) -> None:
    place.go_on_with(pipeline(lambda _, of: of_batch(of["s"]).write("x", mode="replace")))
    place.land(lands(1))
    place.run()
    assert [row["k"] for row in place.tables()["x"]] == [f"k{key}" for key in range(4, 10)]


def test_a_step_that_begins_for_a_table_with_rows_begins_for_the_new_one_too(place: Trial) -> None:
    place.go_on_with(pipeline(lambda _, of: of["newest"].filter("n > 2").write("x", mode="upsert"), newest="most"))
    place.land(lands(1))
    with pytest.raises(Refused) as refused:
        place.run()
    (finding,) = refused.value.findings
    assert (finding.kind, dict(finding.about)["step"]) == (Kind.STATE_BEGINS, "most")
    assert "table 'x', which that batch did not write, would lack them too" in finding.what
    place.run(Settings(begin_anew=("most",)))


def appended(table: str) -> Add:
    return lambda _, of: of["s"].select("n", name="all").write(table)


def test_a_renamed_table_is_named_as_it_was() -> None:
    with Trial.made(pipeline(appended("x"))) as place:
        place.land(lands(0))
        place.run()
        place.go_on_with(pipeline(appended("y")))
        place.land(lands(1))
        with pytest.raises(Refused) as refused:
            place.run()
        (finding,) = refused.value.findings
        assert dict(finding.about)["renamed"] == "x"
        assert finding.then.startswith("write 'all' to 'x' again, as it does the same; or to have it whole, make it ")


def test_a_table_that_was_left_out_goes_on_by_its_name_if_it_lacks_something() -> None:
    with Trial.made(pipeline(appended("x"))) as place:
        place.land(lands(0))
        place.run()
        place.go_on_with(pipeline())
        place.land(lands(1))
        place.run()
        place.go_on_with(pipeline(appended("x")))
        place.land(lands(2))
        with pytest.raises(Refused, match="it was left out since batch 0, and its 6 rows lack what") as refused:
            place.run()
        assert refused.value.findings[0].then.endswith("by its name: `coset plan p --go-on x`")
        place.run(Settings(go_on=("x",)))
        assert not is_its_query(place, "x")


def test_a_table_that_was_replaced_is_appended_to_by_its_name() -> None:
    """It has the rows of one batch."""
    replaced = pipeline(lambda _, of: of["s"].select("n", name="all").to_stream().write("x", mode="replace"))
    with Trial.made(replaced) as place:
        for batch in range(2):
            place.land(lands(batch))
            place.run()
        place.go_on_with(pipeline(appended("x")))
        place.land(lands(2))
        assert asked(place) == [("x", ())]
        with pytest.raises(Refused, match="those of the batches before the last are in no file of it") as refused:
            begin(place.pipeline, store_at(place.root), Asked(0, None, DEFAULTS))
        assert [finding.then for finding in refused.value.findings] == [
            "keep its mode, or write to a table of another name"
        ]
        place.run(Settings(go_on=("x",)))
        assert not is_its_query(place, "x")


def test_a_table_that_was_left_out_with_its_stream_lacks_nothing(place: Trial) -> None:
    place.go_on_with(pipeline(new_stream))
    place.land(lands(1, v=range(5)))
    place.run()
    place.go_on_with(pipeline())
    place.land(lands(2))
    place.run()
    place.go_on_with(pipeline(new_stream))
    place.land(lands(3, v=range(5, 7)))
    place.run()
    assert [row["n"] for row in place.tables()["x"]] == [*range(7)]


def test_a_plan_that_was_given_up_is_no_batch_that_wrote_the_table(place: Trial) -> None:
    place.go_on_with(pipeline(appended("x")))
    place.land(lands(1))
    place.run(Settings(begin_anew=("x",)), twice=True)
    assert len(place.tables()["x"]) == 6
    plan = Ledger(store_at(place.root), "p").standing().published
    assert plan is not None
    assert plan.batch > 0
