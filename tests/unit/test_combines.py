"""Combines that give the same in any order and groups, and balanced trees of unifiers."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coset.testing import check_combine
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Refused
from partitioning.model.leaving import unifier_groups, unifier_levels

ROWS = [{"k": f"k{number % 7}" if number % 5 else None, "x": (number * 37 % 101) / 7} for number in range(80)]


def stream() -> Flow:
    return Pipeline("p", source="s3://landing/topics").stream("s", key="k", partitions=3)


def combined(partial: str, combine: str, by: str | None = None) -> Flow:
    return stream().partial(partial, by=by, name="parts").combine(combine, name="whole")


def said(flow: Flow, **how: int) -> str:
    with pytest.raises(Refused) as refused:
        check_combine(flow, ROWS, **how)
    return str(refused.value)


@pytest.mark.parametrize("by", [None, "k"])
@pytest.mark.parametrize(
    ("partial", "combine"),
    [
        ("sum(x) AS total, count(*) AS n", "sum(total) AS total, sum(n)::BIGINT AS n"),
        ("min(x) AS least, max(k) AS last", "min(least) AS least, max(last) AS last"),
        ("bool_or(x > 14) AS high", "bool_or(high) AS high"),
        ("{'n': count(*), 'x': sum(x)} AS pair", "{'n': sum(pair.n)::BIGINT, 'x': sum(pair.x)} AS pair"),
    ],
)
def test_what_gives_the_same_however_it_is_combined_passes(partial: str, combine: str, by: str | None) -> None:
    check_combine(combined(partial, combine, by), ROWS)
    check_combine(combined(partial, combine, by), pa.Table.from_pylist(ROWS), seed=1)


@pytest.mark.parametrize("by", [None, "k"])
@pytest.mark.parametrize(
    ("partial", "combine"),
    [
        ("count(*) AS n", "count(*) AS n"),
        ("avg(x) AS mean", "avg(mean) AS mean"),
        ("first(x) AS x", "first(x) AS x"),
        ("sum(x) AS x", "max(x) AS x"),
        ("sum(x) AS x", "sum(x) + 1 AS x"),
        ("list(x) AS xs", "flatten(list(xs)) AS xs"),
        ("max(x) AS x", "max(x) - min(x) AS x"),
    ],
    ids=["counts counted", "means", "the first", "another aggregate", "more each time", "order", "not its own input"],
)
def test_what_depends_on_groups_or_order_is_found(partial: str, combine: str, by: str | None) -> None:
    assert "step 'whole' on the records" in said(combined(partial, combine, by))


def test_a_combine_that_follows_no_partial_step_is_tried_on_its_own_input() -> None:
    rekeyed = stream().rekey("j", sql="k").select("x")
    check_combine(rekeyed.combine("sum(x) AS x", name="right"), [{"j": row["k"], "x": row["x"]} for row in ROWS])
    with pytest.raises(Refused, match="step 'wrong'"):
        check_combine(rekeyed.combine("avg(x) AS x", name="wrong"), [{"j": "a", "x": row["x"]} for row in ROWS])


def test_the_grouping_that_differs_is_told_with_few_records() -> None:
    text = said(combined("count(*) AS n", "count(*) AS n"))
    assert re.match(r"combined as \([^;]*\) it gives \(\d,\), and of all at once \(1,\)\n", text)
    assert text.count("'k': ") <= 4
    assert said(combined("count(*) AS n", "count(*) AS n")) == text
    assert said(combined("count(*) AS n", "count(*) AS n"), seed=1) != text


def test_sums_of_floating_point_numbers_may_differ_in_their_last_digits_only() -> None:
    drifting = "sum(x) * (1 + 1e-6) AS x"
    assert "it gives" in said(combined("sum(x) AS x", drifting))


def test_what_is_no_combine_or_cannot_be_run_is_refused() -> None:
    with pytest.raises(Refused, match=r"s\.filter is no combine"):
        check_combine(stream().filter("x > 0"), ROWS)
    with pytest.raises(Refused, match=r"SQL failed: Binder Error.*y"):
        check_combine(combined("sum(y) AS y", "sum(y) AS y"), ROWS)


VECTORS = Path(__file__).parents[1] / "vectors" / "apex"
CASES = json.loads((VECTORS / "cascade_shapes.json").read_text())


@dataclass(frozen=True)
class Tree:
    """What each source part passes: `fan_ins` by level (parts that pass on alone are no unifiers), last the task's."""

    fan_ins: tuple[tuple[int, ...], ...]

    @property
    def unifiers(self) -> int:
        return sum(fan_in > 1 for level in self.fan_ins[:-1] for fan_in in level)

    @property
    def depth(self) -> int:
        return len(self.fan_ins) - 1

    @property
    def busiest(self) -> int:
        return max(fan_in for level in self.fan_ins for fan_in in level)

    @property
    def path(self) -> int:
        """Inputs that the busiest unifiers of all levels take, one after the other."""
        return sum(max(level) for level in self.fan_ins)


def balanced(parts: int, fan_in: int | None) -> Tree:
    fan_ins = []
    for width in unifier_levels(parts, fan_in):
        fan_ins.append(tuple(len(group) for group in unifier_groups(parts, width)))
        parts = width
    return Tree((*fan_ins, (parts,)))


def apex(parts: int, limit: int) -> tuple[list[tuple[range, int]], list[range]]:
    """Apex's rule: full groups become a unifier, a short last one is passed up. Unifiers with level; what is left."""
    unifiers: list[tuple[range, int]] = []
    left = [(range(part, part + 1), 0) for part in range(parts)]
    while limit > 1 and len(left) > limit:
        full = len(left) // limit * limit
        made = []
        for start in range(0, full, limit):
            taken = left[start : start + limit]
            made.append((range(taken[0][0].start, taken[-1][0].stop), 1 + max(level for _, level in taken)))
        unifiers += made
        left = made + left[full:]
    return unifiers, [covered for covered, _ in left]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_each_part_passes_one_unifier_of_a_level_within_the_limit_as_in_no_worse_a_tree_than_apex(
    case: dict[str, Any],
) -> None:
    parts, limit = case["fan_in"], case["limit"]
    found = [each for each in case["unifiers"] if each["kind"] == "cascade"]
    last = [each["fan_in"] for each in case["unifiers"] if each["kind"] == "mxn"] or [1]
    unifiers, left = apex(parts, limit)
    names = {f"cascade:B_C/L{level}[{covered.start}..{covered.stop - 1}]" for covered, level in unifiers}
    assert ({each["name"] for each in found}, last) == (names, [len(left)])

    tree = balanced(parts, limit)
    assert tree.busiest <= max([limit if found else 1, *last])
    assert tree.depth <= max((level for _, level in unifiers), default=0)


def test_no_tree_is_deeper_busier_or_slower_than_apex_and_few_have_a_unifier_more() -> None:
    more = set()
    for limit in range(2, 20):
        for parts in range(1, 200):
            unifiers, left = apex(parts, limit)
            depth = max((level for _, level in unifiers), default=0)
            tree = balanced(parts, limit)
            assert tree.depth <= depth
            assert tree.busiest <= max(limit if unifiers else 1, len(left))
            assert tree.path <= depth * limit + len(left)
            more.add(tree.unifiers - len(unifiers))
            assert tree.unifiers - len(unifiers) <= tree.depth
            assert limit > 2 or tree.unifiers == len(unifiers)
    assert min(more) == 0


def test_every_part_is_taken_once_at_every_level() -> None:
    for fan_in in range(2, 9):
        for parts in range(1, 130):
            left = parts
            for width in unifier_levels(parts, fan_in):
                taken = unifier_groups(left, width)
                assert [part for group in taken for part in group] == list(range(left))
                assert {len(group) for group in taken} <= {left // width, -(-left // width)}
                assert 1 <= max(map(len, taken)) <= fan_in
                left = width
            assert 1 <= left <= fan_in


def test_without_a_limit_there_are_no_levels_and_what_combines_nothing_is_refused() -> None:
    assert unifier_levels(1_000, None) == ()
    with pytest.raises(Refused) as refusal:
        unifier_levels(0, 1)
    assert len(refusal.value.findings) == 2
