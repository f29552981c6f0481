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
