"""`coset assign`: the documented JSON, a table for people, and refusals that name what, where and next."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import pytest
from typer.testing import CliRunner, Result

from coset.cli.main import app
from tests.goldens import expect_golden

VIEWS_AND_CLICKS = ("--stream", "views=8", "--stream", "clicks=12")


def assign(*words: str, streams: Sequence[str] = VIEWS_AND_CLICKS) -> Result:
    return CliRunner().invoke(app, ["assign", *streams, *words])


def test_the_json_has_the_documented_form() -> None:
    result = assign("--scheme", "cogroup", "--json")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert json.loads(result.stdout) == {
        "scheme": "cogroup",
        "tasks": [
            {"task": task, "reads": {"views": [task, task + 4], "clicks": [task, task + 4, task + 8]}, "filters": {}}
            for task in range(4)
        ],
    }


def test_a_stream_that_needs_a_filter_has_one_in_the_json() -> None:
    tasks = json.loads(assign("--tasks", "6", "--json").stdout)["tasks"]
    assert tasks[5] == {
        "task": 5,
        "reads": {"views": [1, 3, 5, 7], "clicks": [5, 11]},
        "filters": {"views": {"modulus": 6, "residue": 5}},
    }


@pytest.mark.parametrize("scheme", ["cogroup", "max", "elastic(2)", "tasks(6)"])
def test_the_table_reads_as_the_golden_file(scheme: str) -> None:
    result = assign("--scheme", scheme)
    assert result.exit_code == 0
    expect_golden(f"cli_assign_{scheme.translate(str.maketrans('()', '_ ')).strip()}.txt", result.stdout)


def test_cogroup_is_the_scheme_if_none_is_named() -> None:
    assert assign("--json").stdout == assign("--scheme", "cogroup", "--json").stdout


def test_tasks_is_the_scheme_of_that_number() -> None:
    assert assign("--tasks", "6").stdout == assign("--scheme", "tasks(6)").stdout
    assert assign("--scheme", "tasks", "--tasks", "6").stdout == assign("--scheme", "tasks(6)").stdout


def test_tasks_beside_another_scheme_counts_and_says_so() -> None:
    result = assign("--scheme", "cogroup", "--tasks", "6", "--json")
    assert json.loads(result.stdout)["scheme"] == "tasks(6)"
    assert result.stderr == "--tasks 6 replaces --scheme cogroup: the scheme is tasks(6)\n"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--scheme", "spread"), "unknown scheme 'spread'"),
        (("--scheme", "spread", "--tasks", "4"), "unknown scheme 'spread'"),
        (("--scheme", "tasks"), "scheme 'tasks' has the wrong form"),
        (("--scheme", "elastic(0)"), "elastic(0) asks for 0 tasks"),
        (("--tasks", "0"), "tasks(0) asks for 0 tasks"),
        (("--tasks", "-3"), "tasks(-3) asks for -3 tasks"),
    ],
)
def test_a_scheme_that_there_is_not_is_refused(words: Sequence[str], what: str) -> None:
    result = assign(*words)
    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "Refused",
        what,
        "  where: scheme",
        "  next:  use max, cogroup, elastic(F), tasks(L) or records(N) with F, L and N at least 1",
    ]


def test_all_malformed_streams_are_named_at_once() -> None:
    result = assign(streams=("--stream", "views", "--stream", "clicks=many", "--stream", "=3"))
    assert result.exit_code == 3
    assert result.stderr.startswith(
        "Refused: 3 findings\n'views' is no stream\n  where: --stream\n  next:  write it as"
    )
    assert "'clicks=many' is no stream" in result.stderr
    assert "'=3' is no stream" in result.stderr


@pytest.mark.parametrize(
    ("streams", "what"),
    [
        (("views=0",), "stream 'views' has 0 partitions"),
        (("views=8", "views=4"), "stream 'views' is named twice"),
        (("a b=4",), "'a b' is no name for a stream"),
    ],
)
def test_streams_that_cannot_be_are_refused(streams: Sequence[str], what: str) -> None:
    result = assign(streams=[word for stream in streams for word in ("--stream", stream)])
    assert result.exit_code == 3
    assert what in result.stderr


def test_with_json_the_findings_are_json_too() -> None:
    result = assign("--tasks", "0", "--json")
    assert result.exit_code == 3
    assert result.stdout == ""
    assert json.loads(result.stderr) == {
        "error": "Refused",
        "findings": [
            {
                "kind": "scheme",
                "who": "author",
                "what": "tasks(0) asks for 0 tasks",
                "where": "scheme",
                "next": "use max, cogroup, elastic(F), tasks(L) or records(N) with F, L and N at least 1",
                "about": {"scheme": "tasks(0)"},
            }
        ],
    }


def test_nothing_heavy_is_imported() -> None:
    program = (
        "import sys; sys.argv = ['coset', 'assign', '--stream', 'views=8']\n"
        "from coset.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'boto3', 'duckdb', 'pyarrow', 'pandas', 'numba', 'pyspark', 'great_expectations', 'airflow'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_a_command_does_not_look_for_garbage_when_it_ends() -> None:
    program = (
        "import atexit, gc, sys; sys.argv = ['coset', 'assign', '--stream', 'views=8']\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 10_000, file=sys.stderr))\n"
        "from coset.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "True\n"
