"""A next step acts where and how the command before it did, wherever it is typed: in another shell, read on a page."""

from __future__ import annotations

import html
import re
import socket
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from partitioning.documents.folder_store import path_of
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.kinds import Kind
from tests import forked
from tests.clicked import landed
from tests.followed import commands, done, in_another_shell, told
from tests.there import there

LOCAL = ("--runner", "local")
TOTALS = """
from coset import Pipeline

pipeline = Pipeline("totalled", source="{source}")
clicks = pipeline.stream("clicks", key="k", partitions=2)
parts = clicks.filter("id >= 0").aggregate("count(*) AS n")
parts.combine("sum(n)::BIGINT AS n", running=True, name="sums").write("counts", mode="upsert"{expected})
"""


class Desk:
    """A folder with a pipeline in q.py, of which production and a trial have published a batch, and more arrives."""

    def __init__(self, folder: Path, production: Store) -> None:
        self.folder, self.production = folder, production
        self.trial = store_at(str(folder / "trial"))
        self.written()
        landed(production, 0)

    def written(self, condition: str = "id >= 0", expected: str = "") -> None:
        text = TOTALS.format(source=f"{self.production.root}/topics", expected=expected)
        (self.folder / "q.py").write_text(text.replace("id >= 0", condition))

    def batches(self, store: Store) -> int:
        """How many batches are planned there."""
        return sum(1 for _ in store.list("totalled/plans/"))

    def run(self, *words: str) -> str:
        return done("run", "q.py", *LOCAL, *words, folder=self.folder)


@pytest.fixture
def desk(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setenv("COSET_STORE", store.root)
    desk = Desk(tmp_path, store)
    desk.run()
    return desk


@pytest.fixture
def changed(desk: Desk) -> Desk:
    """A trial store has a batch too, and what the pipeline keeps has changed since."""
    desk.run("--store", str(desk.folder / "trial"), "--new-store")
    desk.written("id > 0")
    landed(desk.production, 1)
    return desk


def test_what_is_refused_in_a_trial_is_asked_for_there_and_not_in_production(changed: Desk) -> None:
    trial = str(changed.folder / "trial")
    found = told(Kind.STATE_CHANGED, "plan", "q.py", "--store", trial, folder=changed.folder)
    assert found.commands[-1] == ("plan", "q.py", "--begin-anew", "sums", "--store", trial)
    # Here COSET_STORE names production.
    done(*found.commands[-1], folder=changed.folder)
    assert [changed.batches(store) for store in (changed.trial, changed.production)] == [2, 1]


WORDS = {
    "--store": "trial",
    "--scheme": "tasks(2)",
    "--groups": "1",
    "--limit": "2",
    "--settings": "my settings.toml",
    "--runner": "local",
    "--memory": "512MB",
    "--docs": "pages",
}
VARIABLES = {
    "--store": "COSET_STORE",
    "--settings": "COSET_SETTINGS",
    "--runner": "COSET_RUNNER",
    "--docs": "COSET_DOCS",
}


@pytest.mark.parametrize("variables", [{}, VARIABLES], ids=["words", "variables"])
def test_what_a_command_was_asked_is_in_its_next_step(
    variables: Mapping[str, str], changed: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    (changed.folder / "my settings.toml").write_text('grouper = "round-robin"')
    words = [word for name, value in WORDS.items() if name not in variables for word in (name, value)]
    for name, variable in variables.items():
        monkeypatch.setenv(variable, WORDS[name])
    found = told(Kind.STATE_CHANGED, "run", "q.py", *words, folder=changed.folder)
    rebuilt, planned = found.commands[-2:]
    assert options(planned) == {"--begin-anew": "sums"} | {
        name: WORDS[name] for name in WORDS if name not in {"--runner", "--memory", "--docs"}
    }
    assert options(rebuilt) == {"--from": "0"} | {name: WORDS[name] for name in WORDS if name != "--limit"}
    in_another_shell(*rebuilt, "--preview", folder=changed.folder)
    in_another_shell(*planned, folder=changed.folder)
    plan = there(Ledger(changed.trial, "totalled").plan(1))
    assert (len(plan.groups), [len(stage.tasks) for stage in plan.stages], plan.records) == (1, [2], 4)
    assert plan.grouper == "round-robin"
    assert changed.batches(changed.production) == 1


def options(words: tuple[str, ...]) -> dict[str, str]:
    """The options of a command that have a value."""
    return {name: value for name, value in pairwise(words) if name.startswith("--") and value[0] != "-"}


def test_a_backfill_is_asked_for_again_with_its_pace_and_its_spark(changed: Desk) -> None:
    asked = {
        "--store": "trial",
        "--why": "the filter was wrong",
        "--groups-at-once": "1",
        "--window": "22:00-06:00 UTC",
        "--wait-for-live": "0",
        "--runner": "spark",
        "--master": "local[2]",
        "--conf": "spark.x.y=a b",
    }
    words = [word for pair in asked.items() for word in pair]
    key = min(entry.key for entry in changed.production.list("topics/"))
    landed_file = there(changed.production.get(key))
    changed.production.delete(key)
    found = told(Kind.FILE_GONE, "backfill", "q.py", "--from", "0", "--preview", *words, folder=changed.folder)
    changed.production.put(key, landed_file)
    assert options(found.commands[-1]) == asked | {"--from": "0", "--input": "repaired"}
    in_another_shell(*found.commands[-1], "--preview", folder=changed.folder)


def test_a_page_and_a_message_say_where_their_commands_act(
    desk: Desk, tmp_path_factory: pytest.TempPathFactory
) -> None:
    desk.written(expected=', expect=[{"type": "expect_table_row_count_to_equal", "kwargs": {"value": 3}}]')
    landed(desk.production, 1)
    failed = forked.coset(
        "run", "q.py", "--store", "trial", "--new-store", *LOCAL, "--docs", "pages", folder=desk.folder
    )
    assert failed.returncode == 3, forked.how(failed)
    page = (desk.folder / "pages/totalled/batch-0-attempt-0.html").read_text()
    said = {words[0]: words for words in commands(html.unescape(re.sub("</?code>", "`", page)))}
    somewhere = tmp_path_factory.mktemp("somewhere")
    file, at, pages = (str(desk.folder / each) for each in ("q.py", "trial", "pages"))
    assert said["report"] == ("report", file, "--batch", "0", "--store", at, "--docs", pages)
    assert said["run"] == ("run", file, "--store", at, *LOCAL, "--docs", pages, "--new-store")
    in_another_shell(*said["report"], folder=somewhere)
    desk.written()
    in_another_shell(*said["replan"], folder=somewhere)
    in_another_shell(*said["run"], folder=somewhere)
    published = there(Ledger(desk.trial, "totalled").standing().published)
    assert (published.batch, desk.batches(desk.production)) == (1, 1)
    assert not list(somewhere.iterdir())


# ---- a store that does not know the pipeline


PROJECT = """
default = "dev"
[environments.dev]
store = "{dev}"
[environments.prod]
store = "{prod}"
"""


def variable(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable names the store that is known, as before."""


def folder(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COSET_STORE")
    (desk.folder / ".coset").mkdir(exist_ok=True)
    (desk.folder / ".coset/store").symlink_to(path_of(desk.production.root))


def environment(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COSET_STORE")
    (desk.folder / "coset.toml").write_text(PROJECT.format(dev=f"{desk.folder}/dev", prod=desk.production.root))


@pytest.mark.parametrize("names", [variable, folder, environment])
def test_a_store_that_does_not_know_the_pipeline_is_asked_about(
    names: Callable[[Desk, pytest.MonkeyPatch], None], desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed(desk.production, 1)
    names(desk, monkeypatch)
    found = told(Kind.STORE_NEW, "plan", "q.py", "--store", "trial", "--groups", "1", folder=desk.folder)
    assert not list(desk.trial.list(""))
    known = f"{desk.folder}/.coset/store" if names is folder else path_of(desk.production.root)
    of = ("--env", "prod") if names is environment else ()
    assert found.commands == [
        ("plan", "q.py", "--store", str(known), *of, "--groups", "1"),
        ("plan", "q.py", "--new-store", "--store", "trial", "--groups", "1"),
    ]
    explained = done("explain", "q.py", "--store", "trial", folder=desk.folder)
    assert "no batch of totalled was ever planned in this store" in explained
    assert set(commands(explained)) == {(verb, "q.py", "--new-store", "--store", "trial") for verb in ("plan", "run")}
    for verb in ("status", "rows"):
        said = done(verb, "q.py", "--store", "trial", folder=desk.folder)
        assert "Next: coset run q.py --new-store --store trial\n" in said
    # Both ways can be gone, and then there is nothing to ask.
    for command, store in zip(found.commands, (desk.production, desk.trial), strict=True):
        before = desk.batches(store)
        in_another_shell(*command, folder=desk.folder)
        assert desk.batches(store) == before + 1
    assert not desk.batches(store_at(f"{desk.folder}/dev"))
    done("plan", "q.py", "--store", "trial", folder=desk.folder)


def test_a_store_that_does_not_answer_keeps_nobody_from_a_first_batch(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "it")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "is not asked for")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("COSET_STORE", "s3://lake/coset")
        began = time.monotonic()
        planned = forked.coset("plan", "q.py", "--store", "trial", folder=desk.folder)
    assert planned.returncode == 0, forked.how(planned)
    assert time.monotonic() - began < 60
    assert "Whether s3://lake/coset has batches of totalled is not known: it does not answer" in planned.stderr


def test_a_store_that_nobody_may_ask_is_not_said_to_be_silent(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(desk.folder / "none"))
    monkeypatch.setenv("COSET_STORE", "s3://lake/coset")
    planned = forked.coset("plan", "q.py", "--store", "trial", folder=desk.folder)
    assert planned.returncode == 0, forked.how(planned)
    (said,) = (line for line in planned.stderr.splitlines() if line.startswith("Whether s3://lake/coset"))
    assert "credentials" in said
    assert "does not answer" not in said
