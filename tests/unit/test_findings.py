"""Findings are values: what decides reads their kinds and values; sentences are made where they are shown."""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
from collections.abc import Iterator
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import typer

from coset.airflow.shown import remember, say, shown
from coset.batches.pace import found_by
from coset.cli.main import app
from partitioning import commands, errors
from partitioning.commands import Command, Repeat, Replan, Report, Run, Shown, Then
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.failure import Failed, together
from partitioning.values import replace
from tests.followed import FOLLOWED, IN_WORDS, UNRAISED

ROOT = Path(__file__).parents[2]
FOLDERS = ("coset", "demo", "expectations", "partitioning", "spark_jobs")
NAMES = ("late", "late.backfill-3")
CASES: dict[str, list[Command]] = {
    "Repeat": [Repeat()],
    "Run": [Run(name, again) for name in NAMES for again in (False, True)],
    "Replan": [
        *(Replan(name, repaired) for name in NAMES for repaired in (False, True)),
        Replan("late", take_away=("counts", "totals")),
    ],
    "Status": [commands.Status(name) for name in NAMES],
    "Report": [Report("late", 4)],
    "Records": [commands.Records("late", 4), commands.Records("late", 4, set_aside=True)],
    "Backfills": [commands.Backfills("late"), commands.Backfills("late", 3)],
    "BackfillAsking": [
        commands.BackfillAsking("late", 1),
        commands.BackfillAsking("late", None),
        commands.BackfillAsking("late", 1, 4, repaired=True),
        commands.BackfillAsking("late", 1, cascade=True),
        commands.BackfillAsking("late", 1, begin_anew="counts"),
        commands.BackfillAsking("late", 1, go_on="counts"),
    ],
    "Resume": [commands.Resume("late", 3)],
    "Cancel": [commands.Cancel("late", 3)],
    "SwapAsking": [commands.SwapAsking("late", 3, "sha256:0")],
    "Restore": [commands.Restore("late")],
    "Undo": [commands.Undo("late", 3)],
    "VerifyAsking": [commands.VerifyAsking("late"), commands.VerifyAsking("late", "totals", 4, "3/16")],
    "PlanAsking": [
        commands.PlanAsking("late", begin_anew="counts"),
        commands.PlanAsking("late", go_on="counts"),
        commands.PlanAsking("late", take_away="counts"),
    ],
    "Forget": [
        commands.Forget("late", "views"),
        commands.Forget("late", "views", 3),
        commands.Forget("late", "views", keep_offsets=True),
    ],
    "Land": [commands.Land("views")],
    "Inspect": [commands.Inspect("s3://landing/topics/views"), commands.Inspect("/data/my topics/views")],
    "Iceberg": [commands.Iceberg("late")],
    "AcceptChanges": [commands.AcceptChanges("counts", 17)],
    "MoveTables": [commands.MoveTables("s3://lake/prod"), commands.MoveTables("/data/my tables")],
    "HandOver": [commands.HandOver("counts", before, "late") for before in (None, "early")],
}
ASKED = [command for cases in CASES.values() for command in cases]


@cache
def sources() -> dict[Path, ast.Module]:
    """The product's code."""
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
    return {file: ast.parse(file.read_text()) for file in files}


def found_kinds() -> Iterator[str]:
    """The kinds that code names, apart from where they are listed."""
    for file, tree in sources().items():
        if file.name == "kinds.py":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Kind":
                yield node.attr


def test_every_kind_is_found_somewhere() -> None:
    assert {kind.name for kind in Kind} == set(found_kinds())


def test_the_next_step_of_every_kind_is_followed() -> None:
    tests = (kinds for told in (FOLLOWED, IN_WORDS) for file in told.values() for kinds in file.values())
    assert sorted([*(kind for kinds in tests for kind in kinds), *UNRAISED]) == sorted(Kind)


@pytest.mark.parametrize(
    ("file", "name"), [(file, name) for told in (FOLLOWED, IN_WORDS) for file, names in told.items() for name in names]
)
def test_what_follows_a_next_step_is_a_test(file: str, name: str) -> None:
    text = (ROOT / file).read_text()
    (made,) = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == name)
    if kinds := FOLLOWED.get(file, {}).get(name):
        # It meets the kind itself, or by its cases, and then runs a command.
        assert {f"Kind.{kind.name}" for kind in kinds} <= set(re.findall(r"Kind\.[A-Z_]+", text))
        called = {ast.unparse(node.func).rpartition(".")[2] for node in ast.walk(made) if isinstance(node, ast.Call)}
        assert called & {"told", "nexts", "coset"}
        assert called & {"follow", "again", "done", "coset", "in_another_shell"}


def test_codes_are_unlike_each_other_and_causes_and_cures_are_sentences() -> None:
    assert len({kind.value for kind in Kind}) == len(Kind)
    for kind in Kind:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*(\.[a-z]+(-[a-z]+)*)?", kind.value)
        assert kind.cause.endswith(".")
        assert kind.cure.endswith(".")


# Findings that are about nothing but what is missing: `where` says it.
ABOUT_NOTHING = {
    "no store is named",
    "it is not said what to do with which backfill",
    "the reason is empty",
    "no pipeline is named",
    "no streams to assign",
    "the task group was ended",
}


def test_every_finding_has_the_values_that_it_is_about() -> None:
    made = [node for tree in sources().values() for node in ast.walk(tree) if isinstance(node, ast.Call)]
    without = {
        ast.unparse(node.args[1]).strip("'")
        for node in made
        if ast.unparse(node.func) == "Finding" and len(node.args) <= Finding.__struct_fields__.index("about")
        if not any(each.arg == "about" for each in node.keywords)
    }
    without |= {
        ast.unparse(node.args[1]).strip("'")
        for node in made
        if re.fullmatch(r"(Finding|Refused|Conflict|Unreachable|OutcomeUnknown)\.of", ast.unparse(node.func))
        if len(node.args) == 4 and not node.keywords
    }
    assert without == ABOUT_NOTHING


def test_no_finding_names_a_command_about_a_pipeline_in_words() -> None:
    """Its words would be wrong for a backfill, in Airflow, or where a pipeline is called by its file."""
    about_pipelines = re.compile(
        r"`coset (run|replan|report|records|status|abandon|backfills?|swap|undo|restore|hand-over) ?"
    )
    told = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file, tree in sources().items()
        if not any(file.is_relative_to(ROOT / folder) for folder in ("coset/cli", "demo"))
        and file.name != "kinds.py"
        and not file.is_relative_to(ROOT / "demo")
        and file.name != "kinds.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and about_pipelines.search(node.value)
        if not _is_docstring(tree, node)
    ]
    assert told == []


def _is_docstring(tree: ast.Module, node: ast.Constant) -> bool:
    holders = [each for each in ast.walk(tree) if isinstance(each, ast.Module | ast.ClassDef | ast.FunctionDef)]
    return any(isinstance(each.body[0], ast.Expr) and each.body[0].value is node for each in holders if each.body)


def test_two_findings_are_one_by_kind_place_and_values_and_not_by_their_words(
    told_apart: list[tuple[str, str]],
) -> None:
    one = Finding(Kind.PROOF, "records are lost", "batch 1", "land them", about(range="views-0@[1,2)"))
    same = Finding(Kind.PROOF, "told in other words", "batch 1", Run("late"), about(range="views-0@[1,2)"))
    others = [
        msgspec.structs.replace(one, kind=Kind.EXPECTATION),
        msgspec.structs.replace(one, where="batch 2"),
        msgspec.structs.replace(one, about=about(range="views-0@[1,3)")),
    ]
    assert one == same
    assert hash(one) == hash(same)
    assert [other for other in others if other == one] == []
    told = together([Refused(one), Refused(same), *(Refused(other) for other in others)])
    assert [finding.what for finding in told.findings] == ["records are lost"] * 4
    assert {frozenset(pair) for pair in told_apart} == {frozenset(("told in other words", "records are lost"))}
    told_apart.clear()


def test_findings_of_one_error_are_all_kept_however_alike_they_are(told_apart: list[tuple[str, str]]) -> None:
    alike = [Finding(Kind.PROOF, what, "batch 1", "report it") for what in ("one", "other")]
    told = together([Refused(*alike), Refused(alike[0])])
    assert [finding.what for finding in told.findings] == ["one", "other"]
    told_apart.clear()


# Kinds whose findings have a cause each, however many there are: words of a command, lines of a pipeline, a table.
FEW = """
    OLDER ARGUMENT LOCAL_FILE NUMBER SETTING SECRET LOCATION PIPELINE_UNKNOWN PIPELINE_FAILS DECLARATION NAME
    KEYS_DO_NOT_MEET SQL_COLUMN SQL_TYPE COMBINE_ORDER EXPECTATION_UNKNOWN SCHEME GROUPER PLAN_WAVES BROKER_SETTINGS
    STORE_UNNAMED STORE_ADDRESS STORE_ELSEWHERE STORE_NEW BATCH_UNKNOWN BATCH_UNPUBLISHED BATCH_NONE_OPEN BATCH_OPEN
    BATCH_DECIDED BATCH_UNDECIDED BATCH_WAITS PROOF EXPECTATION EXPECTATION_FAILS TABLE_COLUMNS TABLE_OWNER TABLE_AGAIN
    TABLE_RULE ROWS_TAKEN TABLE_UNKNOWN TABLE_MODE TABLE_PLACE TABLE_BEHIND TABLE_AHEAD TABLE_DIFFERS TABLE_BEGINS
    ICEBERG_TABLE ICEBERG_DENIED ICEBERG_UNREACHABLE STREAM_DELETES
    TABLE_QUERY VERIFY_VERSION STATE_CHANGED STATE_EXCHANGED STATE_NONE BACKFILL_UNKNOWN BACKFILL_HELD BACKFILL_UNEQUAL
    BACKFILL_UNREADY BACKFILL_APPROVAL BACKFILL_TURN BACKFILL_LATER OPEN_FILES EXTRA SHIPPING AIRFLOW_DATES SAMZA DEMO
"""


@cache
def _found_by_the_hundred() -> dict[Kind, set[frozenset[str]]]:
    """The kinds of which one cause makes many findings, with the names of the values that code finds each with."""
    found: dict[Kind, set[frozenset[str]]] = {kind: {frozenset({"file"})} for kind in Kind if kind.each}
    for node in (node for tree in sources().values() for node in ast.walk(tree) if isinstance(node, ast.Call)):
        kind = re.fullmatch(r"Kind\.([A-Z_]+)", ast.unparse(node.args[0])) if node.args else None
        if kind and Kind[kind[1]] in found:
            found[Kind[kind[1]]].add(frozenset(each.arg for each in node.keywords if each.arg))
    return found


def test_a_kind_says_whether_one_cause_of_it_is_found_in_many_places() -> None:
    assert {kind.name for kind in Kind if not kind.each} == set(FEW.split())


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind.each], ids=str)
def test_a_cause_that_is_found_in_300_places_is_one_finding(kind: Kind) -> None:
    for names in _found_by_the_hundred()[kind]:

        def found(number: int, stream: str = "views", names: frozenset[str] = names) -> Finding:
            values = dict.fromkeys(names & set(errors._OF), "a") | {"stream": stream}
            values |= {name: f"{name} {number}" for name in names - values.keys()}
            return Finding.of(kind, f"number {number} is wrong", f"s3://a/{number}", "mend it", **values)

        refused = Refused(*(found(number) for number in range(300)))
        (one,) = refused.findings
        assert len(str(refused).splitlines()) <= 10
        assert "number 0 is wrong" in str(one)
        assert f"s3://a/0, and 299 more {kind.each}s" in one.where
        plain: Any = one.plain(Shown())
        assert (plain["count"], [place["where"] for place in plain["each"]]) == (
            300,
            [f"s3://a/{number}" for number in range(300)],
        )
        # A batch waits by it while places are mended; two tasks tell it once; that of another stream is another.
        fewer = Refused(*(found(number) for number in range(9, 88)))
        assert (one, hash(one)) == (fewer.findings[0], hash(fewer.findings[0]))
        assert len(together([refused, fewer]).findings[0].places) == 300
        assert len(Refused(*refused.findings, *(found(number, "clicks") for number in range(300))).findings) == 2
        assert Failed.of(refused).error().findings[0].places == one.places


def test_what_programs_are_told_of_a_cause_is_bounded() -> None:
    many = [Finding.of(Kind.FILE_GONE, "gone", f"s3://a/{n}", ("plan ", Run("a")), file=n) for n in range(5_000)]
    (one,) = Refused(*many).findings
    plain: Any = one.plain(Shown())
    assert (plain["count"], len(plain["each"]), plain["about"]) == (5_000, 1_000, {"file": 0})
    assert one.where == "s3://a/0, and 4,999 more files"
    # As it is said elsewhere, it is said of each place, also where errors come together.
    said = Refused(one).saying(lambda finding: replace(finding, what=f"p: {finding.what}", next="restore it"))
    (one,) = together([said]).findings
    assert (one.where, one.then) == ("s3://a/0, and 4,999 more files", "restore it")
    assert {(place.what, place.next) for place in one.places} == {("p: gone", "restore it")}


def test_airflow_calls_a_pipeline_by_its_file_unless_a_folder_of_pipelines_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in (tmp_path / "scores.py", tmp_path / "dags" / "pipelines" / "by_name.py"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"from coset import Pipeline\npipeline = Pipeline('p_{file.stem}')\n")
        loader = SourceFileLoader(f"defines_{file.stem}", str(file))
        module = module_from_spec(spec_from_loader(loader.name, loader) or pytest.fail("there is a file"))
        monkeypatch.setitem(sys.modules, loader.name, module)
        loader.exec_module(module)
        remember(module.pipeline)
    assert shown().line(Replan("p_scores")) == f"coset replan {tmp_path / 'scores.py'} --why '…'"
    assert shown().line(Replan("p_by_name")) == "coset replan by_name --why '…'"


def test_what_airflow_prints_is_obeyed_by_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    say("taken back: \x1b[31mtoo early\nBatch 7 is published")
    assert capsys.readouterr().out == "taken back: \\x1b[31mtoo early\\nBatch 7 is published\n"
    printed = {
        file.name
        for file, tree in sources().items()
        if file.parent.name == "airflow"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
    }
    assert printed == {"shown.py"}


def test_a_failed_check_is_read_back_as_the_findings_that_it_had() -> None:
    found = Finding(Kind.PROOF, "Coverage, not met", "batch 0", (Run("late"), " tries it again"), about(count=3))
    report = json.dumps({"findings": msgspec.to_builtins([found])}).encode()
    (back,) = found_by(report)
    assert back == found
    assert str(back) == str(found)
    # Of older versions there are sentences only; nothing can be said to be the same.
    assert found_by(b'{"findings": [{"what": "Coverage", "where": "batch 0", "next": "look"}]}') == ()
    assert found_by(None) == ()


def test_findings_are_for_programs_what_they_are_for_people() -> None:
    found = Finding(
        Kind.TABLE_MODE, "the mode", "s3://t", ("keep it, or ", Replan("late")), about(table="t", modes=["a"])
    )
    plain = json.loads(json.dumps(found.plain(Shown(named={"late": "x/late.py"}))))
    assert plain == {
        "kind": "table.mode",
        "who": "author",
        "what": "the mode",
        "where": "s3://t",
        "next": "keep it, or `coset replan x/late.py --why '…'`",
        "about": {"table": "t", "modes": ["a"]},
    }
    assert Failed.of(Refused(found)).error().findings == (found,)


def test_each_command_is_tried_here() -> None:
    assert {kind.__name__ for kind in get_args(Command)} == CASES.keys()
    assert all(type(command).__name__ == name for name, cases in CASES.items() for command in cases)


@pytest.mark.parametrize("command", ASKED, ids=str)
@pytest.mark.parametrize("named", ["late", "my pipelines/late.py"])
def test_a_command_is_one_that_the_command_line_takes(command: Command, named: str) -> None:
    line = Shown(named={"late": shlex.quote(named)}).line(command)
    if line is None:
        assert command == Repeat()
        return
    # N is for the reader to choose.
    program, verb, *words = shlex.split(line.replace("--from N", "--from 1"))
    assert program == "coset"
    group: Any = typer.main.get_command(app)
    # A command keeps the names of its help option from the first time that it is asked.
    with group.commands[verb].make_context(verb, words, **group.context_settings) as context:
        called = context.params.get("pipeline", context.params.get("to"))
        match command:
            case commands.HandOver(_, _, to):
                assert called == to
            case commands.AcceptChanges(table, version):
                assert (context.params["table"], context.params["up_to"]) == (table, version)
            case commands.MoveTables(to):
                assert called == to
            case commands.Inspect(address):
                assert context.params["address"] == address
            case commands.Land(stream):
                assert (called, context.params["stream"]) == ("PIPELINE", stream)
            case _:
                assert called == named


@pytest.mark.parametrize("command", ASKED, ids=str)
def test_a_backfill_is_never_told_to_give_up_the_live_batch(command: Command) -> None:
    for where in (Shown(), Shown(airflow=True)):
        said = where.says(command)
        if "backfill-3" in str(getattr(command, "pipeline", "")):
            assert "replan" not in said
            assert "coset run" not in said
            assert "backfill-3" not in said


@pytest.mark.parametrize(
    ("then", "on_a_terminal", "in_airflow"),
    [
        (Repeat(), "run the same command again", "clear the failed task"),
        (Run("late"), "`coset run late`", "start the DAG late (`coset run late`)"),
        (
            Run("late", again=True),
            "`coset run late --again`",
            "start the DAG late, with Again (`coset run late --again`)",
        ),
        (
            Run("late.backfill-3"),
            "`coset backfill late --resume 3`",
            "start the DAG late_backfill, with Backfill 3 (`coset backfill late --resume 3`)",
        ),
        (Replan("late"), "`coset replan late --why '…'`", "`coset replan late --why '…'`"),
        (
            ("land it again; ", Replan("late.backfill-3", repaired=True)),
            "land it again; `coset backfill late --cancel 3` and ask for the backfill again, with `--input repaired`",
            "land it again; `coset backfill late --cancel 3` and ask for the backfill again, with `--input repaired`",
        ),
        (
            commands.PlanAsking("late", begin_anew="sums"),
            "`coset plan late --begin-anew sums`",
            "start the DAG late, with Begin anew sums (`coset plan late --begin-anew sums`)",
        ),
        (
            commands.BackfillAsking("late", 1, 4, go_on="sums"),
            "`coset backfill late --from 1 --to 4 --go-on sums`",
            "start the DAG late_backfill, with From batch 1 and To batch 4 and Go on sums "
            "(`coset backfill late --from 1 --to 4 --go-on sums`)",
        ),
        (
            commands.BackfillAsking("late", 0, cascade=True),
            "`coset backfill late --from 0 --cascade`",
            "start the DAG late_backfill, with From batch 0 and To batch the newest "
            "(`coset backfill late --from 0 --cascade`)",
        ),
        (
            commands.VerifyAsking("late", sample="3/16"),
            "`coset verify late --sample 3/16`",
            "start the DAG late_verify, with Sample 3/16 (`coset verify late --sample 3/16`)",
        ),
        (
            commands.VerifyAsking("late", "totals", 4),
            "`coset verify late --table totals --as-of 4`",
            "`coset verify late --table totals --as-of 4`",
        ),
        (
            commands.Undo("late", 3),
            "`coset undo late 3`",
            "start the DAG late_undo, with Backfill 3 (`coset undo late 3`)",
        ),
    ],
    ids=str,
)
def test_advice_is_in_the_words_of_where_it_is_shown(then: Then, on_a_terminal: str, in_airflow: str) -> None:
    assert Shown().says(then) == on_a_terminal
    assert Shown(airflow=True).says(then) == in_airflow
