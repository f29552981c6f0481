"""Names: a public class name stands once in the product, so that a name says which class is meant."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("coset", "expectations", "partitioning", "spark_jobs")

CLASSES = {
    "Asked": "what is asked of a backfill, and of the comparison of sizes: each within its own module",
    "Audit": "the tables of a batch, and the port that makes them",
    "Compared": "two plans, and two candidates: each within its own module",
    "Exchange": "a plan's, and that of a table's files for others",
    "Gap": "missing offsets, and batches that a backfill leaves out",
}


def test_a_public_class_name_stands_once() -> None:
    found = defaultdict(list)
    for file in (file for folder in PRODUCT for file in (ROOT / folder).rglob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in found.items() if len(files) > 1 and name not in CLASSES} == {}
