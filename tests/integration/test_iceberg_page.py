"""The steps of docs/how-to/iceberg.md do what they say, with tables that other engines made."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from bench.elsewhere import python_of, variables_of
from bench.party import JARS, PARTIES
from coset.sources.iceberg.named_catalogue import catalogue
from tests import forked
from tests.catalogues import rest_catalogues
from tests.readers import reader

ROOT = Path(__file__).parents[2]
PAGE, README = ((ROOT / name).read_text() for name in ("docs/how-to/iceberg.md", "README.md"))
URI = "PYICEBERG_CATALOG__LAKE__URI"
OLD = [("ann", 1.5), ("bob", 2.0), ("eve", 4.0)]


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


class Shell:
    """A shell in a folder, whose variables stay."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables = {name: value for name, value in os.environ.items() if not name.startswith("COSET_")}

    def run(self, steps: str) -> str:
        """What the last of these steps prints; all succeed."""
        said = ""
        for line in steps.splitlines():
            program, *words = line.replace("$PWD", str(self.folder)).split()
            match program:
                case "export":
                    name, _, value = words[0].partition("=")
                    self.variables[name] = value
                case "pyiceberg":
                    command = [str(Path(sys.executable).with_name(program)), *words]
                    subprocess.run(command, cwd=self.folder, env=self.variables, capture_output=True, check=True)
                case "coset":
                    ended = forked.coset(*words, environment=self.variables, folder=self.folder)
                    assert ended.returncode == 0, forked.how(ended)
                    said = ended.stdout
                case _:
                    raise AssertionError(line)
        return said


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell in a folder with the README's files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.csv").write_text(blocks("csv", README)[0])
    (tmp_path / "spent.py").write_text(blocks("python", README)[0])
    return Shell(tmp_path)


def test_the_first_steps_of_the_page_make_a_table(shell: Shell) -> None:
    shell.run("coset land spent.py orders orders.csv")
    shell.run(blocks("sh", PAGE)[0])
    assert load_catalog("lake", uri=f"sqlite:///{shell.folder}/lake.db").load_table("shop.spent").scan().count() == 3


Ask = Callable[[str], list[tuple[object, ...]]]


@contextmanager
def by_pyiceberg(folder: Path, environment: pytest.MonkeyPatch) -> Iterator[Ask]:
    """A table that PyIceberg made in SQLite, and what reads another one."""
    environment.setenv(URI, f"sqlite:///{folder}/lake.db")
    environment.setenv(URI.replace("URI", "WAREHOUSE"), f"file://{folder}/lake")
    lake = catalogue("lake")
    lake.create_namespace("shop")
    made = pa.Table.from_pylist([{"customer": who, "amount": amount} for who, amount in OLD])
    lake.create_table("shop.orders", made.schema).append(made)
    yield lambda table: [tuple(row.values()) for row in lake.load_table(table).scan().to_arrow().to_pylist()]


@contextmanager
def by_spark(folder: Path, environment: pytest.MonkeyPatch) -> Iterator[Ask]:
    """A table in buckets, of which Spark has deleted a row, and what reads another one."""
    with rest_catalogues(folder) as made:
        environment.setenv(URI, made(warehouse=f"{folder}/lake"))
        with reader(
            "iceberg-spark", str(python_of(PARTIES["iceberg"])), variables_of(PARTIES["iceberg"])[JARS]
        ) as spark:
            ask = partial(spark, "", None)
            ask("CREATE NAMESPACE lake.shop")
            ask(
                "CREATE TABLE lake.shop.orders (customer STRING, amount DOUBLE) USING iceberg "
                "PARTITIONED BY (bucket(4, customer)) TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')"
            )
            ask(f"INSERT INTO lake.shop.orders VALUES {', '.join(map(str, [*OLD, ('gus', 5.0)]))}")
            ask("DELETE FROM lake.shop.orders WHERE customer = 'gus'")
            yield lambda table: [tuple(row) for row in ask(f"SELECT * FROM lake.{table}")]


@pytest.mark.parametrize("engine", [by_pyiceberg, pytest.param(by_spark, marks=pytest.mark.long)])
def test_a_table_of_another_engine_is_taken_over_as_the_page_says(
    engine: Callable[[Path, pytest.MonkeyPatch], AbstractContextManager[Ask]],
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = PAGE.partition("## Take a table over\n")[2].partition("\n## ")[0]
    (look, take), (program,) = blocks("sh", text), blocks("python", text)
    csv = [line.split(",") for line in (shell.folder / "orders.csv").read_text().split()[1:]]
    new = [(who, float(amount)) for who, amount in csv]
    with engine(shell.folder, monkeypatch) as ask:
        shell.variables |= {**os.environ, "COSET_ICEBERG": "lake.shop"}
        (count,) = re.findall(r'"orders_before",\s+key="customer",\s+partitions=(\d+)', shell.run(look))
        (shell.folder / "orders.py").write_text(program.replace("partitions=1)", f"partitions={count})"))
        assert "Table orders is its query" in shell.run(take)
        assert sorted(ask("shop.orders")) == sorted(OLD + new)
        shell.run("\n".join(take.splitlines()[:2]))
        assert sorted(ask("shop.orders")) == sorted(OLD + new + new)
        before, after = (catalogue("lake").load_table(f"shop.{name}").schema() for name in ("orders_before", "orders"))
        assert str(before) == str(after)
        # And back.
        catalogue("lake").drop_table("shop.orders")
        shell.run("pyiceberg --catalog lake rename shop.orders_before shop.orders")
        assert sorted(ask("shop.orders")) == OLD
