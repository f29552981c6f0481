"""The import rule: what each folder may know, held against a bare interpreter and the linter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {"boto3", "botocore", "pyspark", "pyarrow", "duckdb", "deltalake", "airflow", "great_expectations", "numpy"}
# msgspec takes typing_extensions where it is there.
CODEC = {"msgspec", "typing_extensions"}
IN_S3 = "partitioning.documents.s3_store"
MODULES = (path.relative_to(ROOT).with_suffix("") for path in (ROOT / "partitioning").rglob("*.py"))
PURE = sorted({".".join(path.parts).removesuffix(".__init__") for path in MODULES} - {IN_S3})


def loaded(*modules: str) -> set[str]:
    """The packages beside the standard library's that a new interpreter loads to import `modules`."""
    code = f"""
import sys
before = set(sys.modules)
import {", ".join(modules)}
packages = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(*(packages - set(sys.stdlib_module_names)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_core_imports_nothing_but_the_standard_library_and_its_codec() -> None:
    assert {"partitioning.model.plan", "partitioning.planning.stages.waves", "partitioning.explain"} <= set(PURE)
    assert loaded(*PURE) - CODEC == {"partitioning"}


def test_the_store_in_s3_alone_brings_boto3() -> None:
    assert loaded(IN_S3) & HEAVY == {"boto3", "botocore"}
    assert loaded("partitioning.documents.stores") - CODEC == {"partitioning"}


def test_a_file_of_tests_imports_what_its_pipelines_do_and_a_run_the_rest() -> None:
    assert loaded("coset.testing") - CODEC == {"coset", "partitioning"}


@pytest.mark.parametrize("module", sorted(path.stem for path in (ROOT / "dags/pipelines").glob("[!_]*.py")))
def test_a_pipeline_is_pure(module: str) -> None:
    assert loaded(f"dags.pipelines.{module}") - CODEC == {"coset", "dags", "partitioning"}


def test_the_linter_finds_no_import_that_the_design_forbids() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 broken" in done.stdout


def test_commands_that_judge_nothing_do_without_the_seconds_that_great_expectations_takes_to_import() -> None:
    looking = ("backfills", "batches", "metrics", "plans", "state", "status", "trial")
    assert "great_expectations" not in loaded(*(f"coset.cli.{name}" for name in looking))
