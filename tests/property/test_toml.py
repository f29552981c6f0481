"""Settings that were written as TOML are read back as they were."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coset import PartitionerRef, Refused, Settings
from partitioning.authoring.toml_writer import to_toml
from partitioning.model.allowance import Allowance
from partitioning.model.measures import as_text
from partitioning.model.schemes import COGROUP, MAX, elastic, tasks

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
schemes = st.one_of(st.just(MAX), st.just(COGROUP), st.integers(1, 99).map(elastic), st.integers(1, 99).map(tasks))
plain = st.one_of(
    names, st.booleans(), st.integers(), st.floats(allow_nan=False), st.just(datetime(2026, 1, 2, tzinfo=UTC))
)
values = st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3))
arguments = st.dictionaries(names.filter(lambda name: name != "use"), values, max_size=3)
partitioners = st.builds(PartitionerRef, st.just("shop.parts:ByBytes"), arguments)
expectations = st.builds(
    lambda kind, column, severity: as_text({"type": kind, "kwargs": {"column": column}, **severity}),
    st.sampled_from(["expect_few_nulls", "expect_column_values_to_be_null"]),
    names,
    st.sampled_from([{}, {"severity": "warning"}]),
)
settings = st.builds(
    Settings,
    scheme=st.none() | schemes,
    schemes=st.dictionaries(names, schemes, max_size=3),
    partitioners=st.dictionaries(names, partitioners, max_size=3),
    fan_in=st.dictionaries(names, st.integers(2, 99), max_size=3),
    groups=st.integers(1, 99),
    grouper=st.sampled_from(["balanced-sticky", "round-robin", "shop.groups:mine"]),
    limit=st.none() | st.integers(1, 10**12),
    starts=st.dictionaries(names, st.integers(0, 10**12), max_size=3),
    begin_anew=st.lists(names, max_size=2).map(tuple),
    go_on=st.lists(names, max_size=2).map(tuple),
    expectations=st.dictionaries(names, st.lists(expectations, max_size=2).map(tuple), max_size=2),
    allowance=st.builds(
        Allowance, st.integers(0, 10**9), st.integers(0, 100), st.lists(names, max_size=3, unique=True).map(tuple)
    ),
)


@given(settings)
def test_settings_are_read_back_as_they_were_written(given: Settings) -> None:
    assert Settings.read(to_toml(given), "settings.toml") == given


@pytest.mark.parametrize("argument", [None, {"inner": [None]}, object()])
def test_what_toml_cannot_hold_is_refused(argument: Any) -> None:
    ref = PartitionerRef("shop.parts:ByBytes", {"limit": argument})
    with pytest.raises(Refused, match="cannot be written as TOML"):
        to_toml(Settings(partitioners={"views": ref}))


def test_a_partitioner_given_by_its_path_alone_is_read_back_as_a_partitioner() -> None:
    text = to_toml(Settings(partitioners={"views": "shop.parts:ByBytes"}))
    assert Settings.read(text, "settings.toml").partitioners == {"views": PartitionerRef("shop.parts:ByBytes")}
