"""Names: a public class name and a file name stand once in the product, so that a name says what is meant."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("coset", "expectations", "partitioning", "spark_jobs")

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


def test_a_public_class_name_stands_once() -> None:
    places = defaultdict(list)
    for file in _files():
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(file)
    assert _repeated(places, CLASSES) == {}


def test_a_file_name_stands_once() -> None:
    places = defaultdict(list)
    for file in _files():
        places[file.name].append(file)
    assert _repeated(places, FILES) == {}


def _files() -> list[Path]:
    return [file for folder in PRODUCT for file in sorted((ROOT / folder).rglob("*.py"))]


def _repeated(places: Mapping[str, list[Path]], allowed: Mapping[str, str]) -> dict[str, list[str]]:
    return {name: [str(f) for f in files] for name, files in places.items() if len(files) > 1 and name not in allowed}
