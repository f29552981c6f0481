"""Stores that released versions wrote, or that were lost and restored from a backup: the next batches go on."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from coset.batches import steps
from coset.batches.backfills import actions as again
from coset.batches.backfills.actions import Asked
from coset.batches.interpreter import silently
from coset.batches.publication import abandon
from coset.batches.runners.local import Local
from coset.cli.main import app
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.plan import Plan
from partitioning.model.verdict import Outcome
from tests.batches import rows
from tests.examples import few
from tests.followed import done, told
from tests.forked import coset
from tests.killed import arm
from tests.landed import land_table
from tests.released import STATES, clicks, first, land, members, place, restore, shop
from tests.running import run_and_publish

Rows = list[tuple[object, ...]]
PIPELINES: dict[str, Callable[[str], Pipeline]] = {"0.1.0": first, "0.2.0": shop}


@pytest.mark.parametrize("state", few(STATES, 2))
@pytest.mark.parametrize("version", PIPELINES)
def test_batches_go_on_from_what_a_released_version_left(version: str, state: str, s3: object, tmp_path: Path) -> None:
    store, pipeline = restore(version, state), PIPELINES[version](f"{place(version, state)}/topics")
    ledger = Ledger(store, pipeline.name)
    before = {entry.key: entry.etag for entry in store.list("")}
    old = planned(ledger, 1)
    if (version, state) == ("0.1.0", "run"):
        with pytest.raises(Refused, match="was run by an older version, whose digests of offsets were others"):
            finish(pipeline, store, tmp_path)
    finish(pipeline, store, tmp_path)
    assert digest(planned(ledger, 1)) == digest(old)
    check(store, version, batches=2)
    later = (2, 3) if state == "published" else (2,)
    for batch in later:
        land(f"{place(version, state)}/topics", batch)
        finish(pipeline, store, tmp_path, Settings.parse(scheme=[f"tasks({batch})"]))
        check(store, version, batches=batch + 1)
    assert [planned(ledger, batch).parent for batch in (1, *later)] == [
        digest(planned(ledger, batch - 1)) for batch in (1, *later)
    ]
    now = {entry.key: entry.etag for entry in store.list("")}
    documents = [key for key in before if key.startswith(f"{pipeline.name}/") and "/docs/" not in key]
    assert {key: now.get(key) for key in documents} == {key: before[key] for key in documents}


@pytest.mark.parametrize("version", PIPELINES)
def test_an_open_batch_of_a_released_version_is_given_up_and_planned_anew(
    version: str, s3: object, tmp_path: Path
) -> None:
    store, pipeline = restore(version, "planned"), PIPELINES[version](f"{place(version, 'planned')}/topics")
    abandon(Ledger(store, pipeline.name), "another version")
    finish(pipeline, store, tmp_path)
    check(store, version, batches=2)


@pytest.mark.long
def test_batches_of_a_released_version_are_run_again_and_swapped(s3: object, tmp_path: Path) -> None:
    # Those of 0.1.0 cannot be compared: the digests of what they read were others.
    version = "0.2.0"
    store, pipeline = restore(version, "published"), shop(f"{place(version, 'published')}/topics")
    backfill = again.begin(pipeline, store, Asked(0, 1, Settings.parse(scheme="tasks(3)"), "hot"))
    with Local(processes=1) as runner:
        again.run(pipeline, store, backfill, runner, tmp_path, silently)
    found = again.comparison(store, backfill)
    assert str(found).startswith("identical: ")
    again.swap(store, backfill, digest(found), "hot")
    check(store, version, batches=2)
    land(f"{place(version, 'published')}/topics", 2)
    finish(pipeline, store, tmp_path)
    check(store, version, batches=3)


# Each version in two states, each state of one version.
SHOWN = (("0.1.0", "planned"), ("0.2.0", "run"), ("0.1.0", "published"), ("0.2.0", "decided"))
COMMANDS = (("status",), ("report",), ("report", "--batch", "0"), ("explain", "--batch", "1"), ("plan", "--json"))


@pytest.mark.parametrize(("version", "state"), few(SHOWN, 2))
def test_commands_show_what_a_released_version_left_and_change_nothing(
    version: str, state: str, s3: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, source = restore(version, state), f"{place(version, state)}/topics"
    monkeypatch.setenv("COSET_STORE", store.root)
    named = tmp_path / "pipeline.py"
    named.write_text(f"from tests import released\npipeline = released.{PIPELINES[version].__name__}({source!r})\n")
    before = {entry.key: entry.etag for entry in store.list("")}
    for command, *words in (*COMMANDS, ("metrics",), ("backfills",)):
        said = CliRunner().invoke(app, [command, str(named), *words])
        # Batch 1 is not decided; its report says so with its exit code too.
        unrun = command == "report" and not words and state in ("planned", "run")
        assert said.exit_code == (Outcome.UNRUN.exit_code if unrun else 0), (command, said.output)
    assert {entry.key: entry.etag for entry in store.list("")} == before


def planned(ledger: Ledger, batch: int) -> Plan:
    plan = ledger.plan(batch)
    assert plan is not None
    return plan


def finish(pipeline: Pipeline, store: Store, docs: Path, settings: Settings | None = None) -> None:
    """Run what is open or new, until nothing is left."""
    while True:
        ref, sentence = steps.plan(pipeline, store.root, settings or Settings())
        if ref is None:
            break
        run_and_publish(ref, docs)
    assert "nothing" in sentence.lower()


def check(store: Store, version: str, batches: int) -> None:
    """Hold each result table against all that landed."""
    wanted = wanted_of_first(batches) if version == "0.1.0" else wanted_of_shop(batches)
    for table, held in wanted.items():
        # An upserted table says behind a row's columns where it lies.
        there = [row[: len(held[0])] for row in rows(store.root, table)]
        assert sorted(there, key=repr) == sorted(held, key=repr), table


def wanted_of_first(batches: int) -> dict[str, Rows]:
    return {"named": named(batches)}


def named(batches: int) -> Rows:
    """Each click with the town of its member as it was in that batch."""
    made: Rows = []
    towns: dict[str, str] = {}
    for batch in range(batches):
        towns.update(members(batch))
        made.extend((member, click, towns[member]) for member, click, *_ in clicks(batch))
    return made


def wanted_of_shop(batches: int) -> dict[str, Rows]:
    landed = [[*clicks(batch)] for batch in range(batches)]
    records = [click for batch in landed for click in batch]
    amounts: dict[str, list[int]] = defaultdict(list)
    for member, _, _, amount, _ in records:
        amounts[member].append(amount)
    newest = {member: max(of_member(records, member), key=lambda click: click[2]) for member in amounts}
    pages: Rows = []
    for batch in landed:
        shown = [page for *_, page in batch]
        pages.extend((page, shown.count(page)) for page in sorted(set(shown)))
    return {
        "totals": [(member, sum(each), len(each)) for member, each in amounts.items()],
        "newest": list(newest.values()),
        "clicks_once": list(dict.fromkeys(records)),
        "named": named(batches),
        "pages": pages,
    }


def of_member(records: Sequence[tuple[str, int, int, int, str]], member: str) -> list[tuple[str, int, int, int, str]]:
    return [record for record in records if record[0] == member]


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "backups.md"
RUN = ("--runner", "local")
PIPELINE = """
from coset import Pipeline

pipeline = Pipeline("shop", source="{source}")
clicks = pipeline.stream("clicks", key="k", partitions=2)
clicks.write("seen")
clicks.aggregate("sum(n)::BIGINT AS n").combine("sum(n)::BIGINT AS n", running=True, name="totals").write(
    "totals", mode="upsert"
)
"""


class Shop:
    """A store in a folder of its own, which is backed up and restored by the commands of the page."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store, self.landed = folder, folder / "store", 0
        self.file = folder / "shop.py"
        self.file.write_text(PIPELINE.format(source=f"file://{folder}/topics"))

    def arrive(self) -> None:
        rows = pa.table({"k": [f"k{n}" for n in range(20)], "n": pa.array([self.landed + 1] * 20, pa.int64())})
        land_table(rows, "clicks", f"file://{self.folder}/topics", key="k", partitions=2)
        self.landed += 1

    def publish(self) -> None:
        self.arrive()
        done("run", str(self.file), *RUN)

    def backed_up(self) -> None:
        self._does("back up")

    def restored(self) -> None:
        self._does("restore")

    def _does(self, heading: str) -> None:
        (commands,) = re.findall(rf"^## {heading}.*?^```sh\n(.*?)^```", PAGE.read_text(), re.M | re.S | re.I)
        here = commands.replace("/srv/coset", str(self.store)).replace("/backup", str(self.folder / "backup"))
        (self.folder / "backup").mkdir(exist_ok=True)
        subprocess.run(["bash", "-euc", here], check=True)

    def is_right(self) -> None:
        """Each record was seen once, and is in the totals once."""
        seen = self._rows("seen")
        assert sorted((row["k"], row["n"]) for row in seen) == sorted(
            (f"k{key}", batch + 1) for key in range(20) for batch in range(self.landed)
        )
        total = sum(range(1, self.landed + 1))
        assert {row["k"]: row["n"] for row in self._rows("totals")} == {f"k{key}": total for key in range(20)}

    def _rows(self, table: str) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = DeltaTable(str(self.store / "tables" / table)).to_pyarrow_table().to_pylist()
        return rows


@pytest.fixture
def backed_up_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("COSET_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("COSET_DOCS", str(tmp_path / "docs"))
    return Shop(tmp_path)


@pytest.mark.parametrize("lost", few(("disk", "documents", "a table", "state")))
def test_after_a_loss_the_backup_goes_on(lost: str, backed_up_shop: Shop) -> None:
    backed_up_shop.publish()
    backed_up_shop.publish()
    backed_up_shop.backed_up()
    backed_up_shop.publish()
    gone = {"disk": ".", "documents": "shop/verdicts", "a table": "tables/totals", "state": "shop/left"}[lost]
    shutil.rmtree(backed_up_shop.store / gone)
    backed_up_shop.restored()
    backed_up_shop.publish()
    backed_up_shop.is_right()


@pytest.mark.long
@pytest.mark.parametrize("point", few(("delta.after", "plan.after", "group-0.after", "verdict.after", "commit.before")))
def test_any_moment_is_one_to_back_up(point: str, backed_up_shop: Shop) -> None:
    backed_up_shop.publish()
    backed_up_shop.arrive()
    killed = coset("run", str(backed_up_shop.file), *RUN, first=partial(arm, point))
    assert killed.returncode == -9, killed
    backed_up_shop.backed_up()
    done("run", str(backed_up_shop.file), *RUN)
    backed_up_shop.publish()
    backed_up_shop.restored()
    done("run", str(backed_up_shop.file), *RUN)
    backed_up_shop.publish()
    backed_up_shop.is_right()


def put_apart(shop: Shop, part: str) -> Path:
    """Publish once more behind a backup that is restored: but this part of the store is of now. Gives what it was."""
    shop.publish()
    shop.backed_up()
    shop.publish()
    older, newer = shop.folder / "older", shop.folder / "newer"
    shutil.copytree(shop.store / part, newer)
    shop.restored()
    (shop.store / part).rename(older)
    newer.rename(shop.store / part)
    shop.arrive()
    return older


@pytest.mark.parametrize("part", few(("tables/{}/_delta_log", "tables")))
def test_documents_older_than_the_tables_want_the_tables_of_their_backup(part: str, backed_up_shop: Shop) -> None:
    older = put_apart(backed_up_shop, "tables")
    found = told(Kind.TABLE_AHEAD, "run", str(backed_up_shop.file), *RUN)
    assert "the table holds batch 1, but the ledger's last published batch is batch 0" in found.findings[0]["what"]
    assert "restore its folder `tables/seen` from the backup that `shop/` is from" in found.next
    for folder in {part.format(table) for table in ("seen", "totals")}:
        target = backed_up_shop.store / folder
        shutil.rmtree(target)
        shutil.copytree(older / Path(folder).relative_to("tables"), target)
    found.again()
    backed_up_shop.is_right()


@pytest.mark.long
def test_tables_older_than_the_documents_want_the_documents_of_their_backup(backed_up_shop: Shop) -> None:
    older = put_apart(backed_up_shop, "shop")
    found = told(Kind.TABLE_BEHIND, "run", str(backed_up_shop.file), *RUN)
    assert "restore `shop/` from the backup that the table is from" in found.next
    shutil.rmtree(backed_up_shop.store / "shop")
    older.rename(backed_up_shop.store / "shop")
    found.again()
    backed_up_shop.is_right()
