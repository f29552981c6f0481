"""The seeded faults fit the code: each changes one place, and what it makes of that is Python."""

from __future__ import annotations

import ast

import pytest

from tests.seeded.__main__ import ROOT, Fault, faults

FAULTS = faults()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_stands_in_its_file_once_and_still_parses(fault: Fault) -> None:
    text = (ROOT / fault.file).read_text(encoding="utf-8")
    assert text.count(fault.before) == 1
    again = text.replace(fault.before, fault.after)
    assert ast.dump(ast.parse(again)) != ast.dump(ast.parse(text))


def test_the_names_of_faults_are_their_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.found_by], ids=lambda fault: fault.name)
def test_what_finds_a_fault_is_a_test_that_make_test_runs(fault: Fault) -> None:
    file, _, name = fault.found_by.partition("[")[0].partition("::")
    (test,) = (
        node
        for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name == name.rpartition(".")[2]
    )
    assert "pytest.mark.long" not in map(ast.unparse, test.decorator_list)
    assert name.startswith("test_") or ">>> " in (ast.get_docstring(test) or "")
