"""What each file may import, held against a bare interpreter and the linter, and how it may be named."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {"boto3", "botocore", "pyspark", "pyarrow", "duckdb", "deltalake", "airflow", "great_expectations", "numpy"}
EXTRAS = {"airflow", "confluent_kafka", "grpc", "httpx2", "pyiceberg", "pyspark"}
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


def test_no_light_import_brings_a_heavy_one() -> None:
    assert loaded(IN_S3) & HEAVY == {"boto3", "botocore"}
    assert loaded("partitioning.documents.stores") - CODEC == {"partitioning"}
    assert loaded("coset.testing") - CODEC == {"coset", "partitioning"}
    looking = ("backfills", "batches", "metrics", "plans", "state", "status", "trial")
    assert "great_expectations" not in loaded(*(f"coset.cli.{name}" for name in looking))


def test_commands_need_no_extra_before_they_use_it() -> None:
    files = (path.relative_to(ROOT).with_suffix("") for path in (ROOT / "coset/cli").rglob("[!_]*.py"))
    modules = {".".join(path.parts) for path in files} - {"coset.cli.registered_keys"}
    code = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS})); import {', '.join(sorted(modules))}"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize("module", sorted(path.stem for path in (ROOT / "dags/pipelines").glob("[!_]*.py")))
def test_a_pipeline_is_pure(module: str) -> None:
    assert loaded(f"dags.pipelines.{module}") - CODEC == {"coset", "dags", "partitioning"}


def test_the_linter_finds_no_import_that_the_design_forbids() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 broken" in done.stdout


PRODUCT = ("coset", "expectations", "partitioning", "spark_jobs")
# An import in a program that a test writes as text, for a process of its own.
IMPORT = re.compile(
    r"^ *(?:.*; *)?from ((?:coset|expectations|partitioning|spark_jobs|tests)[.\w]*) import (\w[\w, ]*)", re.M
)


def test_no_files_import_each_other_in_a_circle() -> None:
    modules = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in _files()}
    imports = {name: set(_imported(ast.parse(file.read_text()))) & modules.keys() for name, file in modules.items()}
    TopologicalSorter(imports).prepare()


def test_programs_that_are_text_import_names_that_exist() -> None:
    texts = "\n".join(text for file in sorted((ROOT / "tests").rglob("*.py")) for text in _texts(file))
    imports = [
        (module, names.replace(",", " ").split()) for line in texts.split(";") for module, names in IMPORT.findall(line)
    ]
    assert len(imports) > 50
    assert [(module, name) for module, names in imports for name in names if not _has(module, name)] == []


CLASSES = {
    "Asked": "what is asked of a backfill, of its batches, and of a command: each within its own module",
    "Exchange": "a plan's, and that of a table's files for others",
    "Gap": "missing offsets, and batches that a backfill leaves out",
}
_ABOUT_BATCHES = "what batches do about the word of the model, or expectations judge"
_COMMANDS = "a command as it is typed, and what it does"
FILES = {
    "__init__.py": "a package",
    **dict.fromkeys(("continuity.py", "table_rows.py", "watermarks.py"), _ABOUT_BATCHES),
    **dict.fromkeys(("backfills.py", "batches.py", "trial.py"), _COMMANDS),
}


def test_public_class_names_and_file_names_stand_once() -> None:
    places = defaultdict(list)
    for file in _files():
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(file)
    assert _repeated(places, CLASSES) == {}
    places = defaultdict(list)
    for file in _files():
        places[file.name].append(file)
    assert _repeated(places, FILES) == {}


def _imported(node: ast.AST) -> Iterator[str]:
    """What a file imports, in functions too, but for its types."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.ImportFrom):
            yield from (each.module or "", *(f"{each.module}.{name.name}" for name in each.names))
        elif not (isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING"):
            yield from _imported(each)


def _texts(file: Path) -> list[str]:
    nodes = ast.walk(ast.parse(file.read_text()))
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _has(module: str, name: str) -> bool:
    place = ROOT / module.replace(".", "/")
    files = [file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()]
    return (place / f"{name}.py").is_file() or any(name in re.findall(r"\w+", file.read_text()) for file in files)


def _files() -> list[Path]:
    return [file for folder in PRODUCT for file in sorted((ROOT / folder).rglob("*.py"))]


def _repeated(places: Mapping[str, list[Path]], allowed: Mapping[str, str]) -> dict[str, list[str]]:
    return {name: [str(f) for f in files] for name, files in places.items() if len(files) > 1 and name not in allowed}
