"""`coset init`: the repository that it writes works as it is, without the clone, and goes on from what there is."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.examples import share
from tests.released import clicks, land, place, restore
from tests.wheels import ROOT, UV, installed_in, of_released, run

if TYPE_CHECKING:
    from demo.s3_server import S3Server
import gzip
import io
import subprocess
import sys
import zlib

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from coset.sources.landing import land as land_rows_of
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.stores import store_at
from partitioning.hashes import placement_hash
from tests.forked import coset
from tests.landed import land_file, land_table
from tests.written import snappy_of_java

pytestmark = pytest.mark.long
# What it adds to the repository that `coset init` wrote: a pipeline with a function of its own, and its test.
SCORES = '''"""How each customer scores."""

import pyarrow as pa

from coset import Pipeline


def points(orders: pa.Table) -> pa.Table:
    """Ten points for each unit that was spent."""
    return pa.table({"customer": orders["customer"], "points": [10 * each for each in orders["amount"].to_pylist()]})


pipeline = Pipeline("scores", source="s3://landing/topics")
orders = pipeline.stream("orders", key="customer", partitions=4)
orders.process(points, {"customer": "VARCHAR", "points": "BIGINT"}, name="scored").write("scores", lineage=False)
'''
SCORES_TEST = '''"""How customers score."""

from coset.testing import run
from pipelines.scores import pipeline


def test_each_unit_gives_ten_points() -> None:
    published = run(pipeline, {"orders": [{"customer": "ann", "amount": 3}]})
    assert published["scores"] == [{"customer": "ann", "points": 30}]
'''
# Every file that Python opens below a folder, in any process of an environment, is written down.
WATCH = (
    "import os, sys; sys.addaudithook(lambda event, its: event == 'open' and isinstance(its[0], str) "
    "and os.path.abspath(its[0]).startswith({below!r}) "
    "and os.write(os.open({opened!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND), (its[0] + chr(10)).encode()))\n"
)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that has the wheel with its extras."""
    return installed_in(tmp_path_factory.mktemp("installed"), f"coset[airflow,kafka] @ {wheel.as_uri()}", "pytest")


def rows(environment: Path, folder: Path, pipeline: str, table: str, **variables: str) -> list[dict[str, Any]]:
    told = run([environment / "coset", "rows", pipeline, table, "--limit", 100, "--json"], folder, **variables)
    (shown,) = json.loads(told)
    return shown["first"]


@pytest.fixture(scope="module")
def adopted(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository that `coset init` has written, with a second pipeline, and in it which files of the clone are opened
    from then on."""
    folder = tmp_path_factory.mktemp("adopted")
    (site,) = installed.parent.glob("lib/python*/site-packages")
    (site / "watch.pth").write_text(WATCH.format(below=f"{ROOT}/", opened=str(folder / "opened")))
    run([installed / "python", "-c", f"open({str(ROOT / 'README.md')!r})"], folder)
    run([installed / "coset", "init", "shop"], folder)
    assert set(opened_of_clone(folder / "shop")) == {f"{ROOT}/README.md"}
    (folder / "opened").unlink()
    (folder / "shop/dags/pipelines/scores.py").write_text(SCORES)
    (folder / "shop/tests/test_scores.py").write_text(SCORES_TEST)
    return folder / "shop"


def opened_of_clone(adopted: Path) -> list[str]:
    """The files of the clone that were opened."""
    told = adopted.parent / "opened"
    return told.read_text().splitlines() if told.exists() else []


def test_a_new_repository_is_tested_without_the_clone(wheel: Path, installed: Path, adopted: Path) -> None:
    (adopted / "wheels").mkdir()
    shutil.copy(wheel, adopted / "wheels")
    ci = (adopted / ".github/workflows/test.yml").read_text()
    assert re.findall(r"- run: (.*)", ci) == ["python -m pip install -r requirements.txt", "python -m pytest"]
    run([UV, "pip", "install", "--dry-run", "--no-deps", "--target", "there", "-r", "requirements.txt"], adopted)
    told = run([installed / "python", "-m", "pytest", "-q"], adopted)
    assert re.search(r"^\d+ passed", told, re.M)
    assert opened_of_clone(adopted) == []


def test_a_new_repository_is_scheduled_without_the_clone(installed: Path, adopted: Path) -> None:
    run([installed / "coset", "land", "scores", "orders", "orders.csv"], adopted)
    variables = {
        "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[2]"}',
        "AIRFLOW_HOME": str(adopted / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(adopted / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "COSET_ENV": "dev",
        "PATH": f"{installed}:{os.environ['PATH']}",
    }
    run([installed / "airflow", "db", "migrate"], adopted, **variables)
    assert "No data found" in run(
        [installed / "airflow", "dags", "list-import-errors", "--local"], adopted, **variables
    )
    run([installed / "airflow", "dags", "test", "scores"], adopted, **variables)
    assert [row["points"] for row in rows(installed, adopted, "scores", "scores")] == [30, 50, 40, 20]
    assert opened_of_clone(adopted) == []


@pytest.mark.parametrize("state", share(["run", "published"]))
def test_a_new_repository_goes_on_from_what_a_released_version_left(
    state: str, installed: Path, adopted: Path, s3: S3Server
) -> None:
    restore("0.2.0", state)
    at = place("0.2.0", state)
    (adopted / "dags/pipelines/left.py").write_text(of_released(f"{at}/topics"))
    with (adopted / "coset.toml").open("a") as file:
        file.write(f'\n[environments.{state}]\nstore = "{at}/store"\nrunner = "local"\n')
    variables = dict(s3.environment, COSET_ENV=state)
    said = run([installed / "coset", "run", "left"], adopted, **variables)
    assert ("Nothing to do" if state == "published" else "Batch 1 is published") in said
    land(f"{at}/topics", 2)
    assert "Batch 2 is published" in run([installed / "coset", "run", "left"], adopted, **variables)
    total = sum(amount for batch in range(3) for _, _, _, amount, _ in clicks(batch))
    assert sum(row["amount"] for row in rows(installed, adopted, "left", "totals", **variables)) == total
    assert opened_of_clone(adopted) == []


CLONE = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    done = coset("init", "shop", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "Written: shop/.github/workflows/test.yml" in done.stdout
    assert done.stdout.endswith("Next: cd shop && python -m pytest\n")
    return folder / "shop"


def environment() -> dict[str, str]:
    """That of somebody who has installed Coset and set nothing."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COSET_", "AWS_", "SPARK_"))}
    return kept | {"PYTHONPATH": str(CLONE)}


def test_the_commands_of_its_readme_say_what_it_has_landed(made: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (made / "README.md").read_text(), re.DOTALL)
    (block,) = (each for each in blocks if "land" in each)
    said = []
    for line in block.splitlines():
        done = coset(*line.split()[1:], environment=environment(), folder=made)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert re.search(r"ann +2 +8\n", said[2])
    assert said[3].startswith("## spent, batch 0: ✓ proved\n")


@pytest.mark.long
def test_the_commands_of_the_guide_run_in_it(tmp_path: Path) -> None:
    start, backups, others = (
        (CLONE / "docs" / f"{name}.md").read_text() for name in ("guide/start", "how-to/backups", "guide/own-pipeline")
    )
    page = start.partition("## Your own repository")[2].partition("## The demo")[0]
    (scores,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    blocks = re.findall(r"```sh\n(.*?)```", page + backups.partition("## Upgrade")[2] + others, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if not line.startswith("export ")]
    assert lines[:3] == ["coset init shop", "cd shop", "python -m pytest"]
    folder, said = tmp_path, {}
    for line in (lines[0], *lines[3:]):
        done = coset(*line.split()[1:], environment=environment(), folder=folder)
        assert done.returncode == 0, (line, done.stderr)
        said[line], folder = done.stdout, tmp_path / "shop"
        # The page adds it before it lists both.
        (folder / "dags" / "pipelines" / "scores.py").write_text(scores)
    assert re.search(r"ann +2 +8\n", said["coset rows spent"])
    assert "Step parts: 3 rows" in said["coset show spent --step parts --limit 20"]
    assert (folder / "plan.svg").is_file()
    assert re.search(r"ann +30\n", said["coset rows scores"])


def test_its_pipelines_are_listed_with_those_of_the_store(tmp_path: Path) -> None:
    there = environment()
    nothing = coset("list", environment=there, folder=tmp_path)
    assert nothing.stdout.startswith("No pipeline is in dags/pipelines, and none has run in file://")
    assert coset("init", "shop", folder=tmp_path).returncode == 0
    shop = tmp_path / "shop"
    assert re.search(
        r"spent +never run +dags/pipelines/spent.py\n", coset("list", environment=there, folder=shop).stdout
    )
    for words in (("land", "spent", "orders", "orders.csv"), ("run", "spent", "--runner", "local")):
        assert coset(*words, environment=there, folder=shop).returncode == 0
    (shop / "dags" / "pipelines" / "spent.py").rename(shop / "spent.py")
    (shop / "dags" / "pipelines" / "broken.py").write_text("1 / 0\n")
    done = coset("list", environment=there, folder=shop)
    assert done.returncode == 3
    assert re.search(r"spent +✓ proved +0 .*UTC +batch 0, .*UTC +4, .* not in this project\n", done.stdout)
    assert "broken.py: the pipeline's file fails: ZeroDivisionError" in done.stdout
    (row,) = json.loads(coset("list", "--json", environment=there, folder=shop).stdout)
    assert (row["pipeline"], row["newest"]["outcome"], row["file"]) == ("spent", "proved", None)


@pytest.mark.long
def test_its_dags_are_some_that_airflow_loads(made: Path) -> None:
    program = (
        "import scheduled; print(sorted(scheduled.spent.task_ids)); scheduled.spent_backfill, scheduled.spent_undo"
    )
    there = environment() | {"PYTHONPATH": f"{CLONE}:{made / 'dags'}", "COSET_ENV": "prod"}
    there |= {"AIRFLOW_HOME": str(made / ".airflow")}
    done = subprocess.run([sys.executable, "-c", program], env=there, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "'publish'" in done.stdout


def test_nothing_is_overwritten_and_a_name_is_one(made: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    again = coset("init", str(made), folder=tmp_path)
    assert again.returncode == 3
    assert "the folder is not empty, and nothing is overwritten" in again.stderr
    assert {path: path.read_bytes() for path in made.rglob("*") if path.is_file()} == before
    assert coset("init", "a shop", folder=tmp_path).returncode == 3
    assert list(tmp_path.iterdir()) == []


def aiven(number: int) -> dict[str, Any]:
    """A record as Aiven's sink writes its key, offset and value."""
    value = {"n": number, "tags": ["a"], "place": {"x": number / 2}}
    return {"key": f"member-{number % 50}", "offset": number // 2, "timestamp": "2026-11-29T07:00:00Z", "value": value}


def parquet(records: list[dict[str, Any]]) -> bytes:
    pq.write_table(pa.Table.from_pylist(records), sink := io.BytesIO(), compression="zstd")
    return sink.getvalue()


def avro(records: list[dict[str, Any]]) -> bytes:
    fields = [{"name": "key", "type": "string"}, {"name": "offset", "type": "long"}]
    fastavro.writer(sink := io.BytesIO(), {"type": "record", "name": "Record", "fields": fields}, records)
    return gzip.compress(sink.getvalue())


def of_aiven(ending: str, records: list[dict[str, Any]]) -> bytes:
    lines = [json.dumps(record).encode() for record in records]
    match ending:
        case ".parquet":
            return parquet(records)
        case ".avro.gz":
            return avro(records)
        case ".json.zst":
            return bytes(pa.compress(b"[\n" + b",\n".join(lines) + b"\n]", "zstd", asbytes=True))
        case _:
            return snappy_of_java(b"\n".join(lines))


@pytest.mark.parametrize("ending", [".parquet", ".avro.gz", ".json.zst", ".json.snappy"])
def test_what_another_sink_has_landed_is_counted_by_what_it_writes_of_it(ending: str, tmp_path: Path) -> None:
    """Under the template of Aiven's sink that the docs name, with its default envelope."""
    records = [aiven(number) for number in range(200)]
    for partition in range(2):
        mine = [{**each, "offset": n} for n, each in enumerate(r for r in records if places(r["key"]) == partition)]
        store_at(f"{tmp_path}/topics").put(
            f"views-eu/partition={partition}/views-eu+{partition}+{0:020}{ending}", of_aiven(ending, mine)
        )
    made = coset("init", "shop", "--from", "topics/views-eu", environment=environment(), folder=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "Written: shop/dags/pipelines/views_eu.py" in made.stdout
    shop = tmp_path / "shop"
    assert not [path for path in shop.rglob("*") if "spent" in path.name or "$" in path.name]
    for command in (("run", "views_eu"), ("rows", "views_eu", "--json", "--limit", "100")):
        done = coset(*command, environment=environment(), folder=shop)
        assert done.returncode == 0, done.stderr
    (table,) = json.loads(done.stdout)
    assert {row["key"]: row["records"] for row in table["first"]} == {f"member-{n}": 4 for n in range(50)}


def places(key: str) -> int:
    return placement_hash(key) % 2


@pytest.mark.long
def test_the_test_of_a_topic_that_has_landed_passes(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array(range(300), pa.int64()), "amount": range(300)})
    land_table(table, "orders", f"{tmp_path}/topics", key="id", partitions=4, key_format="long")
    assert coset("init", "shop", "--from", "topics/orders", folder=tmp_path).returncode == 0
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"],
        cwd=tmp_path / "shop",
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_topic_that_cannot_be_read_leaves_no_repository(tmp_path: Path) -> None:
    for partition, ending in enumerate(("parquet", "json")):
        store_at(f"{tmp_path}/topics").put(f"views/partition={partition}/views+{partition}+{0:010}.{ending}", b"{}")
    done = coset("init", "shop", "--from", "topics/views", folder=tmp_path)
    assert done.returncode == 3
    assert "files of several formats" in done.stderr
    done = coset("init", "shop", "--from", "topics/clicks", folder=tmp_path)
    assert "name that of a topic: `coset inspect" in done.stderr
    for first, key in enumerate("ab"):
        land_file(pa.table({"id": [key] * 2}), "orders", f"{tmp_path}/topics", 0, first)
    done = coset("init", "shop", "--from", "topics/orders", folder=tmp_path)
    assert done.returncode == 3
    assert "two files hold orders-0@[1,2), and differ from offset 1 on" in done.stderr
    assert not (tmp_path / "shop").exists()


def test_of_a_topic_with_the_changes_of_a_table_its_table_is_written(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"before": None, "after": {"id": n, "name": f"n{n}"}, "op": "c", "ts_ms": n} for n in range(40)
    ]
    for partition in range(2):
        mine = [row for row in rows if zlib.crc32(b'{"id":%d}' % row["after"]["id"]) % 2 == partition]
        lines = "".join(json.dumps({**row, "_offset": n}) + "\n" for n, row in enumerate(mine))
        store_at(f"{tmp_path}/topics").put(
            f"a.b.people/partition={partition}/a.b.people+{partition}+{0:010}.json", lines.encode()
        )
    done = coset("init", "shop", "--from", "topics/a.b.people", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    shop = tmp_path / "shop"
    assert "pipeline.cdc(" in (shop / "dags/pipelines/a_b_people.py").read_text()
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], cwd=shop, capture_output=True, text=True, check=False
    )
    assert tested.returncode == 0, tested.stdout
    for command in (("run", "a.b.people"), ("rows", "a.b.people", "--json", "--limit", "100")):
        done = coset(*command, folder=shop)
        assert done.returncode == 0, done.stderr
    (table,) = json.loads(done.stdout)
    assert (table["table"], len(table["first"])) == ("people", 40)


def test_what_says_which_landing_wrote_a_line_is_no_column(tmp_path: Path) -> None:
    pipeline = Pipeline("shop", source=f"{tmp_path}/topics")
    columns = {"k": "VARCHAR", "n": "BIGINT"}
    stream = pipeline.stream("clicks", key="k", partitions=2, format="json", columns=columns)
    stream.select("n", name="f").write("t")
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"k": f"k{n}", "n": n}) + "\n" for n in range(40)))
    land_rows_of(pipeline.streams[0], rows)
    shown = coset("inspect", "topics/clicks", folder=tmp_path).stdout
    assert "n" in shown
    assert "coset.landed" not in shown
