"""`coset diff` of two plan files: the tables, the JSON and the refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from coset.cli.main import app
from partitioning.documents.document import digest, encode, pack
from partitioning.model.plan import Plan
from tests.goldens import expect_golden
from tests.shown import tails


def coset(*words: str) -> Result:
    return CliRunner().invoke(app, ["diff", *words])


def stored(folder: Path, name: str, plan: Plan) -> str:
    data = encode(plan)
    (folder / name).write_bytes(pack(data) if name.endswith(".gz") else data)
    return str(folder / name)


def _elastic() -> str:
    return digest(tails("elastic(2)", batch=1))


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A plan and one with twice the tasks, the second as the store keeps it."""
    return stored(tmp_path, "3.json", tails()), stored(tmp_path, "4.json.gz", tails("elastic(2)", batch=1))


def test_two_files_are_compared_as_in_the_golden_file(files: tuple[str, str]) -> None:
    result = coset(*files)
    assert result.exit_code == 0, result.output
    first, _, tables = result.stdout.partition("\n\n")
    assert first == f"tail_activity, batch 0 ({digest(tails())}) → tail_activity, batch 1 ({_elastic()})"
    expect_golden("cli_diff_scheme.txt", tables)


def test_the_json_has_exact_shares_and_all_that_the_tables_say(files: tuple[str, str]) -> None:
    found = json.loads(coset(*files, "--json").stdout)
    assert found["before"] == {"pipeline": "tail_activity", "batch": 0, "digest": digest(tails())}
    assert [(each["name"], each["keys"], each["groups"]) for each in found["handovers"]] == [
        ("flights", "1/2", "0"),
        ("planes", "1/2", "0"),
    ]
    assert found["handovers"][1]["records"] == {"some": 1000, "all": 2000, "exact": True}
    assert found["sentences"][1].startswith("Results stay the same")
    assert found["results"]["same"] == ["tail_activity"]
    assert {"what": "stage flights+planes: tasks", "before": "4", "now": "8"} in found["changes"]


def test_the_json_names_the_tasks_that_move_and_says_why(tmp_path: Path) -> None:
    names = stored(tmp_path, "3.json", tails(groups=2)), stored(tmp_path, "4.json", tails(groups=1, batch=1))
    assert json.loads(coset(*names, "--json").stdout)["moves"] == [
        {"task": f"flights+planes/{number}", "before": 1, "now": 0, "why": "2 task groups → 1"} for number in (1, 3)
    ]


def test_a_plan_compared_with_itself_is_a_sentence(files: tuple[str, str]) -> None:
    assert "No change: both are the same plan." in coset(files[0], files[0]).stdout
    assert json.loads(coset(files[0], files[0], "--json").stdout)["changes"] == []


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["missing.json", "missing.json"], "there is no plan 'missing.json'"),
        (["one.json"], "1 names are not two plans"),
        (["a", "1", "2", "3"], "4 names are not two plans"),
    ],
)
def test_what_is_not_two_plans_is_refused_with_how_to_write_it(words: list[str], what: str) -> None:
    result = coset(*words)
    assert result.exit_code == 3
    assert what in result.stderr
    assert "write `coset diff PIPELINE 3 4`" in result.stderr


def test_a_file_that_is_no_plan_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    result = coset(str(tmp_path / "plan.json"), str(tmp_path / "plan.json"))
    assert result.exit_code == 3
    assert "has no format and digest" in result.stderr
