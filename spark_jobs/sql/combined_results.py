"""Combined results: what a combine makes otherwise of results, its own or those of tasks and batches, than of the
records themselves.

A sum of sums is that of all records, as is the least of the least. A sum of what is greatest is not: it goes by which
records came together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spark_jobs.sql.expressions import OF_ALL, Tree, columns_named, nodes

# Aggregates whose results are combined by themselves, by what they are combined with; a count is added up.
_COMBINED_BY = {
    **dict.fromkeys(("sum", "sum_no_overflow", "fsum", "sumkahan", "kahan_sum"), "sum"),
    **dict.fromkeys(("count", "count_star", "count_if", "countif"), "sum"),
    **dict.fromkeys(("max", "bool_or"), "max"),
    **dict.fromkeys(("min", "bool_and"), "min"),
    **{name: name for name in ("bit_and", "bit_or", "bit_xor", "product")},
}
# Of the same value once more they give something else.
_ADDING = {"sum", "bit_xor", "product"}


def of_own_results(tree: Tree) -> Iterator[tuple[str, str]]:
    """What a combine makes otherwise of its own results, each with its remedy."""
    # By what each column is combined, if it is by itself.
    kept = {alias: _COMBINED_BY[name] if column == alias else "" for alias, name, column in _alone(tree)}
    for item in tree["select_list"]:
        alias = str(item["alias"]).lower()
        of_itself = {names[-1].lower() for names in columns_named([item])} == {alias}
        for node in _aggregates(item):
            name, column = _name(node), _column(node)
            if column and kept.get(column, _COMBINED_BY[name]) != _COMBINED_BY[name]:
                what = f"a combine is applied to its own results, and {column} is not the {name} in those"
                yield what, "make a column for it before, and combine each by itself"
            adds = not column and _COMBINED_BY[name] in _ADDING
            if of_itself and (adds or _calculates(item) or any(map(_calculates, _given(node)))):
                what = f"a combine is applied to its own results, and would calculate {item['alias']} of those again"
                yield what, f"calculate it of each record before, or of the results behind it: {name}({item['alias']})"


def of_parts(tree: Tree, parts: Tree) -> Iterator[tuple[str, str]]:
    """The columns that a combine takes together by something else than what made them of the records of a task or
    batch, each with its remedy."""
    made = {str(item["alias"]).lower(): {*map(_name, _aggregates(item))} for item in parts["select_list"]}
    for item in tree["select_list"]:
        for node in _aggregates(item):
            name, column = _name(node), _column(node)
            for other in sorted(made.get(column, ())):
                if _COMBINED_BY[other] != _COMBINED_BY[name]:
                    what = f"{column} is {other} in one task or batch, and {name} of that is not that of all records"
                    yield what, OF_ALL


def _alone(tree: Tree) -> Iterator[tuple[str, str, str]]:
    """The columns that are a known aggregate of a column, and nothing else; with both."""
    for item in tree["select_list"]:
        node = _bare(item)
        if (name := _name(node)) in _COMBINED_BY and (column := _column(node)):
            yield str(item["alias"]).lower(), name, column


def _aggregates(tree: Any) -> Iterator[Mapping[str, Any]]:
    """The known aggregates in expressions. What is compared says only whether there is some."""
    compared = {id(each) for node in nodes(tree) if node["class"] == "COMPARISON" for each in nodes(node)}
    yield from (node for node in nodes(tree) if id(node) not in compared and _name(node) in _COMBINED_BY)


def _name(node: Mapping[str, Any]) -> str:
    return str(node.get("function_name", "")).lower()


def _column(node: Mapping[str, Any]) -> str:
    """The column that an aggregate is of, if it is of one alone and of all its values."""
    given = _given(node)
    if not given or node["filter"] or given[0]["class"] != "COLUMN_REF":
        return ""
    return str(given[0]["column_names"][-1]).lower()


def _given(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [_bare(each["expression"]) for each in node["arguments"]]


def _calculates(expression: Mapping[str, Any]) -> bool:
    """Whether an operator makes another value."""
    return bool(_bare(expression).get("is_operator"))


def _bare(expression: Mapping[str, Any]) -> Mapping[str, Any]:
    """The expression without casts, and without what is given in place of null."""
    while True:
        if expression["class"] == "CAST":
            expression = expression["child"]
        elif expression["type"] == "OPERATOR_COALESCE":
            expression = expression["children"][0]
        else:
            return expression
