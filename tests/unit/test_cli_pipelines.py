"""A pipeline's file on the command line: whatever it does, the command's own output and exit code stay right."""

from __future__ import annotations

from pathlib import Path

import pytest

from coset.cli.pipelines import load, shown
from partitioning.commands import Status
from partitioning.errors import Refused

PIPELINE = """
from coset import Pipeline
pipeline = Pipeline("views_of_users", source="s3://landing/topics")
pipeline.stream("views", key="user", partitions=2).write("views")
"""


def test_what_a_file_prints_does_not_come_before_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "loud.py"
    file.write_text(f"print('hello')\n{PIPELINE}")
    assert load(str(file)).name == "views_of_users"
    out, err = capsys.readouterr()
    assert (out, err) == ("", "hello\n")


def test_a_file_that_ends_the_process_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "leaves.py"
    file.write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(Refused, match="the pipeline's file fails: SystemExit: 0") as caught:
        load(str(file))
    assert caught.value.findings[0].where == f"{file}:2"


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    file = tmp_path / "pipeline"
    file.write_text(PIPELINE)
    assert load(str(file)).name == "views_of_users"


def test_the_next_step_names_the_pipeline_as_the_user_does(tmp_path: Path) -> None:
    file = tmp_path / "my views.py"
    file.write_text(PIPELINE)
    load(str(file))
    assert shown().says(("see ", Status("views_of_users"))) == f"see `coset status '{file}'`"
    # Another pipeline, of which the finding is, has its own name.
    assert shown().says(Status("views_of_nobody")) == "`coset status views_of_nobody`"


@pytest.mark.parametrize(
    ("source", "line"),
    [(b"x = 1\0\n", ""), (b"# coding: nonsense\nx = 1\n", ""), (b"\xff\xfe x = 1\n", ":1"), (b"x = (\n", ":1")],
)
def test_a_file_that_is_no_python_is_named(source: bytes, line: str, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_bytes(source)
    with pytest.raises(Refused, match="the pipeline's file fails: SyntaxError: ") as caught:
        load(str(file))
    assert caught.value.findings[0].where == f"{file}{line}"
