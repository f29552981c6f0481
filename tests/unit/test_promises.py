"""The page of promises is what its sources say, and names what there is."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

from tests.model import explore, invariants, lasting
from tests.promises import CLASSES, MET, PAGE, PROMISES, page, there
from tests.specification.guards import GUARDS

TESTS = Path(__file__).parents[1]


def test_the_page_is_what_its_command_writes() -> None:
    assert PAGE.read_text() == page()


def test_each_invariant_is_of_one_promise_and_each_property_of_the_specification_is_there() -> None:
    sources = "".join(Path(str(module.__file__)).read_text() for module in (explore, invariants, lasting))
    of_promises = Counter(name for _, _, names in PROMISES for name in names)
    assert of_promises == Counter(set(re.findall(r"\bi[1-9]_[a-z_]+", sources)))
    properties = {name for _, names, _ in PROMISES for name in names}
    specified = (TESTS / "specification" / "Batches.tla").read_text()
    assert {guarded.fails for guarded in GUARDS} <= properties
    assert all(f"\n{name} == " in specified for name in properties)


def test_all_classes_of_faults_have_a_test_that_is_there() -> None:
    assert len(CLASSES) == 38
    where, met = there(), json.loads(MET.read_text())
    assert [name for names in CLASSES.values() for name in names.split() if name not in where] == []
    assert [name for names in CLASSES.values() for name in names.split() if met[name].startswith("0,")] == []
