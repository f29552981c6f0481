"""What a function says: which changes of its module count."""

from __future__ import annotations

from pathlib import Path

import pytest

from partitioning.imports import code_of, digest_of

SOURCE = '''
"""Scores."""
import math
from shop.rates import (euros, pounds)

RATES = {"eur": 1}
RATES["gbp"] = 2

try:
    import fast
except ImportError:
    fast = None


class Table:
    rows: int = 3


def _times(number: int, *, by: float = 1.0) -> float:
    """So many times."""
    return f"{number!r:>{by}}" and number * RATES["eur"] * math.pi


def scored(rows, table=Table):
    return [euros(_times(row)) for row in rows if (fast is None and table.rows)]


def other(rows):
    return rows
'''

SAME = {
    "a comment": ("return rows\n", "return rows  # all\n"),
    "a docstring": ('"""So many times."""', '"""Times."""'),
    "annotations": ("number: int, *, by: float = 1.0) -> float:", "number, *, by=1.0):"),
    "layout": ("if (fast is None and table.rows)]", "if fast is None\n        and table.rows\n    ]"),
    "another function": ("    return rows\n", "    return rows[:1]\n"),
    "an import of something else": ("(euros, pounds)", "(dollars, euros)"),
    "a function more": ("def other", "def another():\n    pass\n\n\ndef other"),
}
OTHER = {
    "itself": ("euros(_times(row))", "euros(_times(row + 1))"),
    "what it calls": ('RATES["eur"] * math.pi', 'RATES["eur"]'),
    "a format": (":>{by}}", ":<{by}}"),
    "a default": ("by: float = 1.0", "by: float = 2.0"),
    "a constant": ('{"eur": 1}', '{"eur": 3}'),
    "a change of a constant": ('RATES["gbp"] = 2', 'RATES["gbp"] = 3'),
    "where something is imported from": ("from shop.rates", "from shop.other_rates"),
    "a field of a class": ("rows: int = 3", "rows: int = 4"),
    "what is tried": ("import fast", "import faster as fast"),
}


@pytest.mark.parametrize("change", SAME)
def test_what_does_not_change_what_a_function_does_does_not_count(change: str) -> None:
    was, now = SAME[change]
    assert was in SOURCE
    assert digest_of(SOURCE.replace(was, now), "scored") == digest_of(SOURCE, "scored")


@pytest.mark.parametrize("change", OTHER)
def test_what_it_uses_of_its_module_counts(change: str) -> None:
    was, now = OTHER[change]
    assert was in SOURCE
    assert digest_of(SOURCE.replace(was, now), "scored") != digest_of(SOURCE, "scored")


DISPATCHED = """
from functools import lru_cache, singledispatch
import registry
from shop.rates import *


class Row:
    n: int = 1


@singledispatch
def area(shape) -> Row:
    return 0


@area.register
def _(shape: int):
    return shape * 2


@registry.add
def unused(shape):
    return 1


def scored(rows: Row):
    return [area(row) for row in rows]
"""


@pytest.mark.parametrize(
    ("was", "now", "counts"),
    [
        ("shape * 2", "shape * 3", True),
        ("shape: int", "shape: str", True),
        ("@area.register", "@area.register(float)", True),
        ("shop.rates", "shop.other_rates", True),
        # What a type says, or is registered elsewhere, is no part of what a function does.
        ("n: int = 1", "n: int = 2", False),
        ("return 1", "return 2", False),
    ],
)
def test_what_a_function_is_dispatched_to_counts(was: str, now: str, counts: bool) -> None:
    assert DISPATCHED.count(was) == 1
    differs = digest_of(DISPATCHED.replace(was, now), "scored") != digest_of(DISPATCHED, "scored")
    assert differs == counts


def test_each_version_of_python_gives_the_same_digest() -> None:
    # Python 3.11 gave this.
    assert digest_of(SOURCE, "scored") == "says:6abbeeb3da3c3a28"


def test_nothing_is_said_by_a_name_that_is_not_defined() -> None:
    assert digest_of(SOURCE, "nobody") is None


FUNCTIONS = """
from {tools} import tallied, timed
import functools


@timed
def decorated(rows):
    return {said}


made = tallied({said})
partial = functools.partial(decorated, {said})
"""
TOOLS = """
def timed(function):
    def called(*given):
        return function(*given)
    return called


def tallied(number):
    def called(*given):
        return number
    return called
"""


def test_what_other_modules_make_of_a_function_is_what_its_own_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COSET_IMPORTS", "said_one,said_two,said_again")
    (tmp_path / "tools_of_said.py").write_text(TOOLS)
    for module, said in (("said_one", 1), ("said_two", 2), ("said_again", 1)):
        (tmp_path / f"{module}.py").write_text(FUNCTIONS.format(tools="tools_of_said", said=said))
    for name in ("decorated", "made", "partial"):
        one, two, again = (code_of(f"{module}:{name}") for module in ("said_one", "said_two", "said_again"))
        assert one == again != two
