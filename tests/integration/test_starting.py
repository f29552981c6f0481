"""`coset init`: the repository that it writes works as it is."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shlex
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coset.sources.landing import land
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.stores import store_at
from partitioning.hashes import placement_hash
from tests.forked import coset
from tests.landed import land_file, land_table
from tests.written import snappy_of_java

ROOT = Path(__file__).parents[2]


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
    return kept | {"PYTHONPATH": str(ROOT)}


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
    page, backups, others = (
        (ROOT / "docs" / "guide" / f"{name}.md").read_text() for name in ("own-repository", "backups", "own-pipeline")
    )
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
    there = environment() | {"PYTHONPATH": f"{ROOT}:{made / 'dags'}", "COSET_ENV": "prod"}
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


def test_a_topic_with_the_changes_of_a_table_is_declared_and_not_counted(tmp_path: Path) -> None:
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
    assert done.returncode == 3
    assert "the topic has the changes of a database's table" in done.stderr
    (command,) = re.findall("`coset (inspect [^`]+)`", done.stderr)
    assert "pipeline.cdc(" in coset(*shlex.split(command), folder=tmp_path).stdout
    assert not (tmp_path / "shop").exists()


def test_what_says_which_landing_wrote_a_line_is_no_column(tmp_path: Path) -> None:
    pipeline = Pipeline("shop", source=f"{tmp_path}/topics")
    columns = {"k": "VARCHAR", "n": "BIGINT"}
    stream = pipeline.stream("clicks", key="k", partitions=2, format="json", columns=columns)
    stream.select("n", name="f").write("t")
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"k": f"k{n}", "n": n}) + "\n" for n in range(40)))
    land(pipeline.streams[0], rows)
    shown = coset("inspect", "topics/clicks", folder=tmp_path).stdout
    assert "n" in shown
    assert "coset.landed" not in shown
