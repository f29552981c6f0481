"""A store is backed up, lost and restored as the guide says: the next batch publishes, and tables are right."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from partitioning.kinds import Kind
from tests.examples import few
from tests.followed import done, told
from tests.forked import coset
from tests.killed import arm
from tests.landed import land_table

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "backups.md"
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
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("COSET_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("COSET_DOCS", str(tmp_path / "docs"))
    return Shop(tmp_path)


@pytest.mark.parametrize("lost", few(("disk", "documents", "a table", "state")))
def test_after_a_loss_the_backup_goes_on(lost: str, shop: Shop) -> None:
    shop.publish()
    shop.publish()
    shop.backed_up()
    shop.publish()
    gone = {"disk": ".", "documents": "shop/verdicts", "a table": "tables/totals", "state": "shop/left"}[lost]
    shutil.rmtree(shop.store / gone)
    shop.restored()
    shop.publish()
    shop.is_right()


@pytest.mark.long
@pytest.mark.parametrize("point", few(("delta.after", "plan.after", "group-0.after", "verdict.after", "commit.before")))
def test_any_moment_is_one_to_back_up(point: str, shop: Shop) -> None:
    shop.publish()
    shop.arrive()
    killed = coset("run", str(shop.file), *RUN, first=partial(arm, point))
    assert killed.returncode == -9, killed
    shop.backed_up()
    done("run", str(shop.file), *RUN)
    shop.publish()
    shop.restored()
    done("run", str(shop.file), *RUN)
    shop.publish()
    shop.is_right()


@pytest.mark.parametrize("part", few(("tables/{}/_delta_log", "tables")))
def test_documents_older_than_the_tables_want_the_tables_of_their_backup(part: str, shop: Shop) -> None:
    shop.publish()
    shop.backed_up()
    shop.publish()
    newer = shop.folder / "newer"
    shutil.copytree(shop.store / "tables", newer)
    shop.restored()
    older = shop.folder / "older"
    (shop.store / "tables").rename(older)
    newer.rename(shop.store / "tables")
    shop.arrive()

    found = told(Kind.TABLE_AHEAD, "run", str(shop.file), *RUN)
    assert "the table holds batch 1, but the ledger's last published batch is batch 0" in found.findings[0]["what"]
    assert "restore its folder `tables/seen` from the backup that `shop/` is from" in found.next
    for folder in {part.format(table) for table in ("seen", "totals")}:
        target = shop.store / folder
        shutil.rmtree(target)
        shutil.copytree(older / Path(folder).relative_to("tables"), target)
    found.again()
    shop.is_right()


@pytest.mark.long
def test_tables_older_than_the_documents_want_the_documents_of_their_backup(shop: Shop) -> None:
    shop.publish()
    shop.backed_up()
    shop.publish()
    newer = shop.folder / "newer"
    shutil.copytree(shop.store / "shop", newer)
    shop.restored()
    older = shop.folder / "older"
    (shop.store / "shop").rename(older)
    newer.rename(shop.store / "shop")
    shop.arrive()

    found = told(Kind.TABLE_BEHIND, "run", str(shop.file), *RUN)
    assert "restore `shop/` from the backup that the table is from" in found.next
    shutil.rmtree(shop.store / "shop")
    older.rename(shop.store / "shop")
    found.again()
    shop.is_right()
