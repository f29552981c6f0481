"""What stops a batch is mended, or the command that its finding names is run; then the batch goes on."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from coset.cli.main import app
from partitioning.documents.folder_store import path_of
from partitioning.documents.store import Store
from partitioning.kinds import Kind
from spark_jobs.sql import engines
from tests.commands import coset
from tests.faults import FaultProxy
from tests.followed import commands, done, in_another_shell, told
from tests.landed import land_table
from tests.logs import log_of

LOCAL = ("--runner", "local")
COUNTED = 'clicks.aggregate("count(*) AS n").write("counts")'
TOTALS = (
    'clicks.filter("n >= 0").aggregate("sum(n)::BIGINT AS n")'
    '.combine("sum(n)::BIGINT AS n", running=True, name="totals").write("counts", mode="upsert")'
)
SOME = 'clicks.filter("n >= {}", name="some").write("counts")'
OTHERS = (
    TOTALS.replace('"totals"', '"others"')
    .replace('"counts"', '"other_counts"')
    .replace('>= 0")', '>= 0", name="other")')
)


class Shop:
    """A pipeline in a file that no folder of pipelines has, its name not that of the file, and what arrives for it."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self._folder = store, folder
        # What the variables say, in words.
        self.at, self.pages = ("--store", store.root), ("--docs", str(folder / "docs"))

    def written(self, lines: str = COUNTED, name: str = "clicked") -> str:
        file = self._folder / f"by hand, {name}.py"
        file.write_text(
            "from coset import Pipeline\n"
            f'pipeline = Pipeline("{name}", source="{self.store.root}/topics")\n'
            f'clicks = pipeline.stream("clicks", key="k", partitions=2)\n{lines}\n'
        )
        return str(file)

    def arrive(self, count: int = 120) -> None:
        table = pa.table({"k": [f"k{n}" for n in range(count)], "n": pa.array(range(count), pa.int64())})
        land_table(table, "clicks", f"{self.store.root}/topics", key="k", partitions=2)

    def published(self, lines: str = COUNTED, name: str = "clicked") -> str:
        """Publish a batch; the next has arrived."""
        self.arrive()
        file = self.written(lines, name)
        done("run", file, *LOCAL)
        self.arrive(10)
        return file

    @contextmanager
    def without(self, pattern: str, instead: bytes | None = None) -> Iterator[None]:
        """Objects are gone, or hold something else, and are put back."""
        keys = [entry.key for entry in self.store.list("") if re.search(pattern, entry.key)]
        assert keys, pattern
        before = {key: self.store.get(key) or b"" for key in keys}
        for key in keys:
            self.store.delete(key)
            if instead is not None:
                self.store.put(key, instead)
        yield
        for key, data in before.items():
            self.store.put(key, data)

    def table(self) -> DeltaTable:
        return log_of(self.store, "counts")


@pytest.fixture
def shop(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("COSET_STORE", store.root)
    monkeypatch.setenv("COSET_DOCS", str(tmp_path / "docs"))
    return Shop(store, tmp_path)


# ---- what was lost or spoilt is restored

LOST = {
    "verdict": (Kind.TABLE_AHEAD, r"/(verdicts|commits)/", None),
    "verdict before an open batch": (Kind.DOCUMENT_MISSING, r"/(verdicts|commits)/0", None),
    "damaged plan": (Kind.DOCUMENT_DAMAGED, r"/plans/1", b"{}"),
    "table": (Kind.TABLE_BEHIND, r"^tables/counts/_delta_log/", None),
}


@pytest.mark.long
@pytest.mark.parametrize("name", LOST)
def test_what_is_gone_is_restored_from_a_backup(name: str, shop: Shop) -> None:
    kind, pattern, instead = LOST[name]
    file = shop.published()
    if name in {"damaged plan", "verdict before an open batch"}:
        done("plan", file)
    with shop.without(pattern, instead):
        found = told(kind, "plan", file)
        assert "restore" in found.next
        assert "backup" in found.next
    found.again()


# ---- tables


def test_a_table_of_another_pipeline_is_handed_over(shop: Shop) -> None:
    shop.published(name="first")
    shop.arrive()
    found = told(Kind.TABLE_OWNER, "plan", shop.written(name="second"))
    found.follow()
    # It reads what is appended already.
    again = told(Kind.TABLE_AGAIN, *found.words)
    assert "120 records of clicks" in again.findings[0]["what"]
    assert "[starts] clicks-0 = " in again.next
    again.follow()
    told(Kind.TABLE_OWNER, *found.words).follow()
    told(Kind.TABLE_AGAIN, *found.words).follow(which=1)
    found.again()


def test_what_others_did_is_accepted_by_name(shop: Shop) -> None:
    file = shop.published('clicks.filter("n >= 0").write("counts")')
    shop.table().delete("k = 'k3'")
    assert "accept-changes" in coset("verify", file).stderr
    found = told(Kind.TABLE_CHANGED, "plan", file)
    found.follow()
    found.again()


@pytest.mark.long
def test_tables_that_are_to_lie_elsewhere_are_copied_and_moved(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = shop.published()
    shop.arrive()
    monkeypatch.setenv("COSET_TABLES", f"file://{tmp_path}/lake")
    found = told(Kind.TABLE_PLACE, "run", file, "--runner", "local")
    shutil.copytree(path_of(shop.store.uri("tables")), tmp_path / "lake")
    found.follow()
    found.again()


def test_a_table_that_there_is_not_is_named_otherwise(shop: Shop) -> None:
    shop.published()
    words = ("--up-to", "2", "--why", "it is right")
    refused = coset("accept-changes", "nothing", *words)
    assert refused.exit_code == 3
    assert Kind.TABLE_UNKNOWN.cause[:-1].casefold() in refused.stderr.casefold()
    assert "correct the name" in refused.stderr
    shop.table().delete("k = 'k3'")
    assert shop.table().version() == 2
    done("accept-changes", "counts", *words)


def test_a_rule_of_a_table_is_dropped_as_it_is_said(shop: Shop) -> None:
    file = shop.published()
    shop.table().alter.add_constraint({"few": "n < 1000000"})
    found = told(Kind.TABLE_RULE, "plan", file)
    (drop,) = re.findall(r"\.alter\.drop_constraint\('(\w+)'\)", found.next)
    shop.table().alter.drop_constraint(drop)
    found.again()


# ---- state


@pytest.mark.long
def test_a_renamed_step_begins_anew_or_is_named_as_it_was(shop: Shop) -> None:
    file = shop.published(TOTALS)
    shop.written(TOTALS.replace('name="totals"', 'name="sums"'))
    found = told(Kind.STATE_BEGINS, "plan", file)
    rebuilt, anew = found.commands
    assert rebuilt == ("backfill", file, "--from", "0", "--cascade", *shop.at, *shop.pages)
    assert anew == ("plan", file, "--begin-anew", "sums", *shop.at)
    in_another_shell(*rebuilt, "--preview")
    in_another_shell("explain", *anew[1:])
    shop.written(TOTALS)
    found.again()


def test_what_a_changed_step_is_to_do_is_said_by_name(shop: Shop) -> None:
    file = shop.published(TOTALS)
    shop.written(TOTALS.replace("n >= 0", "n > 0"))
    found = told(Kind.STATE_CHANGED, "plan", file)
    for number, command in enumerate(found.commands):
        if command[0] == "plan":
            in_another_shell("explain", *command[1:])
        assert command[0] in {"plan", "backfill"}, number
    found.follow()


def test_what_another_version_of_duckdb_was_to_run_is_planned_anew(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    file = shop.written()
    shop.arrive()
    with monkeypatch.context() as before:
        before.setattr(engines, "HERE", "1.4.9")
        assert CliRunner().invoke(app, ["plan", file]).exit_code == 0
    told(Kind.ENGINE, "run", file, *LOCAL).follow()
    done("run", file, *LOCAL)


def test_the_next_step_plans_as_the_command_was_asked_to(shop: Shop) -> None:
    file = shop.published(f"{TOTALS}\n{OTHERS}")
    shop.written(f"{TOTALS}\n{OTHERS}".replace("n >= 0", "n > 0"))
    found = told(Kind.STATE_CHANGED, "plan", file, "--scheme", "tasks(3)", "--limit", "9", "--begin-anew", "totals")
    planned, rebuilt, anew = found.commands
    asked = (*shop.at, "--scheme", "tasks(3)", "--limit", "9", "--begin-anew", "totals")
    again = (*shop.at, "--scheme", "tasks(3)", "--begin-anew", "totals", *shop.pages)
    assert planned == ("plan", file, "--go-on", "others", *asked)
    assert rebuilt == ("backfill", file, "--from", "0", "--cascade", *again)
    assert anew == ("plan", file, "--begin-anew", "others", *asked)
    in_another_shell(*anew)


def test_a_backfill_asks_again_as_it_was_asked(shop: Shop) -> None:
    file = shop.published(f"{TOTALS}\n{OTHERS}")
    shop.written(f"{TOTALS}\n{OTHERS}".replace("n >= 0", "n > 0"))
    done("run", file, *LOCAL, "--begin-anew", "totals", "--begin-anew", "others")
    shop.arrive(10)
    done("run", file, *LOCAL)
    shop.written(f"{TOTALS}\n{OTHERS}".replace("n >= 0", "n > 1"))
    words = ("backfill", file, "--from", "2", "--preview", "--scheme", "tasks(3)", "--begin-anew", "totals")
    found = told(Kind.STATE_CHANGED, *words)
    in_another_shell(*found.commands[-1], "--preview")


def test_a_backfill_that_was_compared_is_put_in_place_before_the_next_batch(shop: Shop) -> None:
    file = shop.published(TOTALS)
    shop.written(TOTALS.replace("n >= 0", "n > 0"))
    done("backfill", file, "--from", "0", "--cascade", *LOCAL)
    found = told(Kind.STATE_CHANGED, "run", file, *LOCAL)
    (swap,) = [command for command in found.commands if command[0] != "plan"]
    assert swap[:4] == ("swap", file, "0", "--approve")
    shop.written(TOTALS.replace("n >= 0", "n > 1"))
    other = told(Kind.STATE_CHANGED, "run", file, *LOCAL)
    assert ("backfill", file, "--from", "0", "--cascade", *shop.at, *LOCAL, *shop.pages) in other.commands
    shop.written(TOTALS.replace("n >= 0", "n > 0"))
    in_another_shell(*swap)
    found.again()


def test_rows_that_may_go_are_named(shop: Shop) -> None:
    running = TOTALS.replace('.write("counts"', '.write("sums"')
    file = shop.published(f"{COUNTED}\n{running}")
    shop.written(COUNTED)
    found = told(Kind.ROWS_TAKEN, "plan", file)
    assert found.commands == [("plan", file, "--take-away", "totals", *shop.at)]
    found.follow()


@pytest.mark.long
def test_lost_state_is_made_anew(shop: Shop) -> None:
    file = shop.published(TOTALS)
    with shop.without("/left/"):
        found = told(Kind.STATE_GONE, "run", file, *LOCAL)
        found.follow()
        found.again()


def test_a_table_that_is_not_its_query_is_made_anew(shop: Shop) -> None:
    file = shop.published('clicks.filter("n >= 0").write("counts")')
    shop.written('clicks.filter("n >= 7").write("counts")')
    found = told(Kind.TABLE_DIFFERS, "verify", file)
    (swap,) = (words for words in commands(found.follow(*LOCAL)) if words[0] == "swap")
    done(*swap)
    found.again()


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize(
    ("was", "now", "kind", "answer"),
    [
        (
            TOTALS,
            f'clicks.filter("n >= 0", name="all").write("others")\n{TOTALS}',
            Kind.TABLE_BEGINS,
            ("--begin-anew", "others"),
        ),
        (SOME.format(0), SOME.format(7), Kind.TABLE_QUERY, ("--go-on", "counts")),
    ],
)
def test_a_table_that_lacks_rows_is_made_whole_or_goes_on_by_its_name(
    was: str, now: str, kind: Kind, answer: tuple[str, str], asked: bool, shop: Shop
) -> None:
    file = shop.published(was)
    shop.arrive(10)
    shop.written(now)
    found = told(kind, "plan", file)
    whole, named = found.commands
    assert whole == ("backfill", file, "--from", "0", "--cascade", *shop.at, *shop.pages)
    assert named == ("plan", file, *answer, *shop.at)
    in_another_shell("explain", *named[1:])
    if asked:
        in_another_shell(*named)
        done("run", file, *LOCAL)
        told(Kind.TABLE_DIFFERS, "verify", file, "--table", answer[1])
        return
    (swap,) = (words for words in commands(in_another_shell(*whole, *LOCAL)) if words[0] == "swap")
    # Until it is in its place, the swap is what is left to do.
    assert swap in told(kind, "plan", file).commands
    in_another_shell(*swap)
    assert "Batch 1 is planned" in found.again()
    done("run", file, *LOCAL)
    done("verify", file)


def test_files_are_put_back_that_a_query_needs(shop: Shop) -> None:
    file = shop.published('clicks.filter("n >= 0").write("counts")')
    with shop.without(r"^topics/clicks/.*\+0+\.parquet$"):
        found = told(Kind.VERIFY_INPUT, "verify", file)
    found.again()


def test_a_version_that_is_gone_is_that_of_a_later_batch(shop: Shop) -> None:
    file = shop.published(TOTALS)
    done("run", file, *LOCAL)
    shop.table().vacuum(0, dry_run=False, enforce_retention_duration=False)
    found = told(Kind.VERIFY_VERSION, "verify", file, "--as-of", "0")
    assert found.commands == [("verify", file, "--table", "counts", "--as-of", "1", *shop.at)]
    assert "Table counts is its query up to batch 1, as version 2 has it" in found.follow()


# ---- batches


def test_a_batch_that_is_open_is_finished_first(shop: Shop) -> None:
    file = shop.published()
    done("plan", file)
    found = told(Kind.BATCH_OPEN, "forget", file, "clicks", "--why", "it was made anew")
    found.follow(*LOCAL)
    found.again()


def test_batches_are_named_that_are_published(shop: Shop) -> None:
    shop.arrive()
    file = shop.written()
    found = told(Kind.BATCH_UNKNOWN, "report", file)
    found.follow(*LOCAL)
    found.again()


# ---- the store


def test_a_store_that_answers_again_is_asked_again(shop: Shop, proxy: FaultProxy) -> None:
    file = shop.published()
    proxy.spoil("before:503 get|list plans")
    found = told(Kind.STORE_UNREACHABLE, "status", file, code=6)
    proxy.heal()
    found.again()


@pytest.mark.long
def test_a_write_whose_end_nobody_knows_is_settled_by_the_same_command(shop: Shop, proxy: FaultProxy) -> None:
    file = shop.published()
    proxy.spoil("before:503 put.* plans/1")
    found = told(Kind.STORE_UNKNOWN, "plan", file, code=5)
    proxy.heal()
    assert "Batch 1 is planned" in found.again()


# ---- backfills


@pytest.mark.long
def test_what_later_batches_went_on_from_is_run_too(shop: Shop) -> None:
    file = shop.published(TOTALS)
    done("run", file, *LOCAL)
    shop.written(TOTALS.replace("n >= 0", "n > 5"))
    later = told(Kind.BACKFILL_LATER, "backfill", file, "--from", "0", *LOCAL)
    later.follow()
    found = told(Kind.BACKFILL_APPROVAL, "swap", file, "1", "--approve", "sha256:0")
    (digest,) = re.findall(r"Its digest is (\S+)", found.follow())
    done(*found.words[:-1], digest)


def test_a_backfill_under_later_batches_is_taken_back_by_another(shop: Shop) -> None:
    file = shop.published(SOME.format(0))
    shop.written(SOME.format(7))
    (swap,) = (words for words in commands(done("backfill", file, "--from", "0", *LOCAL)) if words[0] == "swap")
    done(*swap)
    shop.arrive(10)
    done("run", file, *LOCAL)
    found = told(Kind.BACKFILL_LATER, "undo", file, "0", "--why", "too many are left out")
    # What it names first.
    shop.written(SOME.format(0))
    (swap,) = (words for words in commands(found.follow(*LOCAL)) if words[0] == "swap")
    done(*swap)
    done("verify", file)
