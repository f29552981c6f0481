"""What a pipeline, a setting or a command has wrong is corrected as its finding says; then the same command goes on."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from coset.batches.runners.spark_server import SparkServer
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.kinds import Kind
from partitioning.model.verdict import Outcome
from tests.clicked import landed
from tests.commands import coset, succeeded
from tests.followed import done, told

LOCAL = ("--runner", "local")
COUNTED = 'clicks.aggregate("count(*) AS n", name="counted").write("counts")'


@dataclass(frozen=True)
class Case:
    """Lines that are wrong, and a word of what is said of them."""

    kind: Kind
    wrong: str
    said: str
    right: str = COUNTED


CASES = {
    "no pipeline": Case(Kind.PIPELINE_FAILS, "del pipeline", "add: pipeline = Pipeline("),
    "raises": Case(Kind.PIPELINE_FAILS, "clicks.nope()", "correct it"),
    "mode": Case(
        Kind.DECLARATION,
        'clicks.aggregate("count(*) AS n").write("counts", mode="upset")',
        "use append, upsert, replace",
    ),
    "argument": Case(Kind.DECLARATION, 'clicks.distinct("id").write("counts")', "time=, a text"),
    "name": Case(Kind.NAME, f'{COUNTED}; clicks.write("counts")', "write each table once"),
    "key": Case(
        Kind.KEYS_DO_NOT_MEET, 'clicks.rekey("id", name="ids").aggregate("count(*) AS n").write("counts")', "cast it"
    ),
    "sql": Case(Kind.SQL, 'clicks.aggregate("count(* AS n").write("counts")', "DuckDB SQL"),
    "column": Case(Kind.SQL_COLUMN, f'clicks.filter("nope > 1").write("few"); {COUNTED}', "clicks has k, id"),
    "type": Case(Kind.SQL_TYPE, 'clicks.select("id, id AS ID").write("counts")', "otherwise with AS"),
    "table's type": Case(
        Kind.TABLE_COLUMNS, 'clicks.aggregate("max(INTERVAL 1 DAY) AS n").write("counts")', "cast it in the step"
    ),
    "import": Case(Kind.IMPORT, 'clicks.process("elsewhere:f", {"k": "VARCHAR"}).write("counts")', "COSET_IMPORTS"),
    "function": Case(Kind.FUNCTION, 'clicks.process("math:pi", {"k": "VARCHAR"}).write("counts")', "name one"),
}


@pytest.fixture
def file(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a pipeline is to be written; its records have landed."""
    monkeypatch.setenv("CLICKS_SOURCE", f"{store.root}/topics")
    monkeypatch.setenv("COSET_STORE", store.root)
    monkeypatch.setenv("COSET_DOCS", str(tmp_path / "docs"))
    landed(store, 0)
    return tmp_path / "by hand.py"


def written(file: Path, lines: str = COUNTED) -> str:
    """A pipeline with these lines; its name for commands."""
    file.write_text(
        "import os\n"
        "from coset import Pipeline\n"
        'pipeline = Pipeline("clicked", source=os.environ["CLICKS_SOURCE"])\n'
        'clicks = pipeline.stream("clicks", key="k", partitions=2)\n'
        f"{lines}\n"
    )
    return str(file)


@pytest.mark.parametrize("name", CASES)
def test_lines_are_corrected(name: str, file: Path) -> None:
    case = CASES[name]
    found = told(case.kind, "plan", written(file, case.wrong))
    assert case.said in found.next
    written(file, case.right)
    found.again()


def test_a_function_of_a_file_alone_is_moved(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = file.with_name("by_hand.py")
    function = "def same(clicks):\n    return clicks.select(['k'])\n"
    step = 'clicks.process(same, {"k": "VARCHAR"}).write("same", lineage=False)'
    found = told(Kind.IMPORT, "run", written(alone, f"{function}{step}"), *LOCAL)
    assert "into a file of its own, name that in COSET_IMPORTS and its folder in PYTHONPATH" in found.next
    file.with_name("moved.py").write_text(function)
    written(alone, f"from moved import same\n{step}")
    monkeypatch.setenv("COSET_IMPORTS", "moved")
    monkeypatch.setenv("PYTHONPATH", f"{file.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    found.again()


ENVIRONMENTS = {
    "COSET_COPIES_BYTES": (Kind.LOCATION, "many", "write it in digits", "1000000"),
    "COSET_COPIES": (Kind.LOCATION, "/dev/null/copies", "name another one", None),
    "AWS_ACCESS_KEY_ID": (Kind.STORE_DENIED, "somebody", "check AWS_ACCESS_KEY_ID", None),
}


@pytest.mark.usefixtures("s3")
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_variables_are_corrected(name: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, wrong, said, right = ENVIRONMENTS[name]
    monkeypatch.setenv("COSET_COPIES", str(file.parent / "copies"))
    before = os.environ.get(name)
    monkeypatch.setenv(name, wrong)
    found = told(kind, "run", written(file), *LOCAL)
    assert said in found.next
    monkeypatch.setenv(name, right if right is not None else before or "")
    found.again()


WORDS = {
    "no value": (Kind.ARGUMENT, ("assign", "--stream", "views"), "views=8", ("assign", "--stream", "views=8")),
    "memory": (Kind.ARGUMENT, ("run", "FILE", "--memory", "much"), "512MB", ("run", "FILE", "--memory", "512MB")),
    "too small": (Kind.NUMBER, ("plan", "FILE", "--groups", "0"), "1 or more", ("plan", "FILE", "--groups", "1")),
    "too large": (
        Kind.NUMBER,
        ("assign", "--stream", "views=8", "--tasks", "99999999999"),
        "or less",
        ("assign", "--stream", "views=8", "--tasks", "8"),
    ),
    "scheme": (
        Kind.SCHEME,
        ("plan", "FILE", "--scheme", "max"),
        "use cogroup, elastic(F) or tasks(L)",
        ("plan", "FILE", "--scheme", "tasks(2)"),
    ),
    "file": (Kind.LOCAL_FILE, ("explain", "FILE", "--svg", "/nowhere/a.svg"), "name a file", ("explain", "FILE")),
    "pipeline": (Kind.PIPELINE_UNKNOWN, ("plan", "nowhere"), "or a file", ("plan", "FILE")),
    "plan": (Kind.BATCH_UNKNOWN, ("diff", "FILE", "0", "next"), "the newest", ("explain", "FILE")),
    "store": (
        Kind.STORE_ADDRESS,
        ("plan", "FILE", "--store", "s3:/test"),
        "write it as s3://bucket/prefix",
        ("plan", "FILE"),
    ),
    "bucket": (Kind.STORE_ADDRESS, ("plan", "FILE", "--store", "s3://nowhere"), "correct the URI", ("plan", "FILE")),
    "step": (Kind.STATE_NONE, ("plan", "FILE", "--begin-anew", "sums"), "no", ("plan", "FILE")),
    "loss": (
        Kind.LOSS_UNFOUNDED,
        ("plan", "FILE", "--accept-loss", "clicks-0@[1,2)"),
        "leave it out",
        ("plan", "FILE"),
    ),
}


@pytest.mark.usefixtures("s3")
@pytest.mark.parametrize("name", WORDS)
def test_words_of_a_command_are_corrected(name: str, file: Path) -> None:
    kind, wrong, said, right = WORDS[name]
    named = written(file)
    found = told(kind, *(word.replace("FILE", named) for word in wrong))
    assert said in found.next
    done(*(word.replace("FILE", named) for word in right))


SETTINGS = {
    "setting": (Kind.SETTING, "groups = 'two'", "use 1 or more", "groups = 2"),
    "no such key": (Kind.SETTING, "group = 2", "groups", "groups = 2"),
    "partitioner": (
        Kind.PARTITIONER,
        'steps.counted.partitioner = "tests.integration.test_next_steps_pipelines:of_nothing"',
        "name a class or function that gives one",
        "",
    ),
    "grouper": (Kind.GROUPER, 'grouper = "tests.groupers:careless"', "correct the grouper", 'grouper = "round-robin"'),
}


def of_nothing(*_: object, **__: object) -> None:
    """A partitioner that deals nothing."""


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_are_corrected(name: str, file: Path, tmp_path: Path) -> None:
    kind, wrong, said, right = SETTINGS[name]
    settings = tmp_path / "settings.toml"
    settings.write_text(wrong)
    found = told(kind, "plan", written(file), "--settings", str(settings))
    assert said in found.next
    settings.write_text(right)
    found.again()


# What is seen only when a batch is run: the batch is planned, and goes on with the same plan or is planned anew.
EXPECTED = 'clicks.aggregate("count(*) AS n", name="counted").write("counts", expect=[{}])'
BETWEEN = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "max_value": 0}}


@pytest.mark.parametrize(
    ("kind", "expectation", "said"),
    [
        (Kind.EXPECTATION_UNKNOWN, BETWEEN | {"type": "expect_the_best"}, "as Great Expectations names it"),
        (Kind.EXPECTATION_FAILS, BETWEEN | {"kwargs": {"column": "nope", "max_value": 0}}, "coset report"),
        (Kind.EXPECTATION, BETWEEN, "coset report"),
    ],
)
def test_expectations_are_corrected_and_the_batch_is_planned_anew(
    kind: Kind, expectation: dict[str, object], said: str, file: Path
) -> None:
    code = Outcome.UNJUDGED.exit_code if kind is Kind.EXPECTATION_FAILS else Outcome.FAILED.exit_code
    found = told(kind, "run", written(file, EXPECTED.format(expectation)), *LOCAL, code=code)
    assert said in found.next
    if kind is not Kind.EXPECTATION_UNKNOWN:
        assert "Result table counts" in found.follow()
    written(file)
    found.follow(which=[words[0] for words in found.commands].index("replan"))
    found.again()


@pytest.mark.parametrize(
    ("body", "how"),
    [("raise ValueError('too small')", "failed: ValueError: too small"), ("os._exit(7)", "ended with exit code 7")],
)
def test_a_function_is_corrected_and_the_same_command_goes_on(
    body: str, how: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("COSET_IMPORTS", "scoring")
    scoring = folder / "scoring.py"
    scoring.write_text(f"import os\ndef score(table):\n    {body}\n")
    named = written(file, 'clicks.process("scoring:score", {"k": "VARCHAR", "id": "BIGINT"}).write("counts")')
    raised = "raise" in body
    found = told(Kind.FUNCTION if raised else Kind.RUN_ENDED, "run", named, *LOCAL, code=3 if raised else 1)
    assert how in str(found.findings)
    assert not raised or f"{scoring}:3 `{body}`, step " in str(found.findings)
    assert "replan" not in found.next
    assert "run the same command again" in found.next
    scoring.write_text("def score(table):\n    return table.select(['k', 'id'])\n")
    found.again()


def test_a_step_on_data_frames_needs_a_runner_that_has_spark(
    file: Path, spark_server: SparkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubled = 'spark("tests.frames:doubled", {"k": "VARCHAR", "twice": "BIGINT"})'
    frames = f'clicks.select("id AS v").{doubled}.write("counts")'
    found = told(Kind.RUNNER, "run", written(file, frames), *LOCAL)
    assert "choose --runner spark, spark-submit or connect" in found.next
    for name, value in spark_server.environment.items():
        monkeypatch.setenv(name, value)
    done(*found.words[:2], "--runner", "connect")


def test_a_table_keeps_its_columns_types(file: Path) -> None:
    done("run", written(file, 'clicks.select("id").write("counts")'), *LOCAL)
    landed(store_at(os.environ["COSET_STORE"]), 1)
    widened = 'clicks.select("id / 1 AS id")'
    found = told(Kind.TABLE_COLUMNS, "plan", written(file, f'{widened}.write("counts")'))
    (finding,) = found.findings
    assert finding["what"] == "column 'id' is BIGINT in the table, DOUBLE in the plan"
    assert finding["next"].endswith("cast it to DOUBLE and write to a table of another name")
    (cast,) = re.findall("`([^`]+)`", finding["next"])
    written(file, f'{widened}.select({cast!r}, name="narrowed").write("counts")')
    # Whether it gives the numbers of before is for the author to say.
    found.again("--go-on", "counts")


def test_an_upserted_table_whose_key_has_another_name_now_is_another_table(file: Path) -> None:
    total = 'aggregate("count(*) AS n").combine("sum(n)::BIGINT AS n", running=True, name="totals")'
    lines = 'clicks.rekey("{}", sql="id % 3 || \'\'").' + total + '.write("{}", mode="upsert")'
    done("run", written(file, lines.format("third", "counts")), *LOCAL)
    landed(store_at(os.environ["COSET_STORE"]), 1)
    found = told(Kind.TABLE_COLUMNS, "plan", written(file, lines.format("rest", "counts")))
    (finding,) = found.findings
    assert finding["what"] == "the table has no column 'rest', its key now; the plan has no 'third'"
    # As it says, and with nothing that it does not say.
    written(file, lines.format("rest", "others"))
    compared = found.follow(*LOCAL)
    (swap,) = re.findall(r"`coset (swap [^`]+)`", compared)
    done(*shlex.split(swap))
    found.again()


def test_a_table_keeps_its_mode_or_another_one_is_named(file: Path) -> None:
    done("run", written(file), *LOCAL)
    landed(store_at(os.environ["COSET_STORE"]), 1)
    upserted = COUNTED.replace('.write("counts")', '.to_stream().write("counts", mode="upsert")')
    found = told(Kind.TABLE_MODE, "plan", written(file, upserted))
    assert "keep the mode, or write to a table of another name" in found.next
    written(file)
    found.again()


def test_a_process_may_open_more_files(file: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    try:
        result = coset("assign", "--stream", "views=8", "--json")
        (finding,) = json.loads(result.stderr)["findings"]
        (limit,) = re.findall(r"`ulimit -n (\d+)`", finding["next"])
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(limit), hard))
        succeeded("assign", "--stream", "views=8")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (finding["kind"], "run the same command again" in finding["next"]) == (Kind.OPEN_FILES, True)
