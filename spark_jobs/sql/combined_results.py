"""Combined results: the proof, by its parse tree, that a combine of results is the combine of all records. Results are
its own, or those of tasks and batches, in any order.

A combine keeps the columns that its aggregates read. Each has to be an aggregate of that column alone: a sum of sums is
the sum of all records. Its other columns are made of these aggregates and are not read again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.composite_key import key_parts
from partitioning.model.graph import Op, Step
from partitioning.model.mark_columns import CHANGE
from spark_jobs.sql.database import described
from spark_jobs.sql.expressions import Rules, Tree, columns_named, function, parse
from spark_jobs.sql.relation_columns import KnownRelations

# Aggregates that make of their own results what they make of all records; and those of which a sum does.
_OF_RESULTS = {"sum", "min", "max", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor"}
_COUNTS = {"count", "count_star", "count_if", "countif"}
# So do lists of lists that are sorted, perhaps without what is equal, and perhaps cut behind the first of them.
_LISTS = {"list", "array_agg"}
_MEANS = {"avg", "mean"}
_AROUND = re.compile(r"((list_slice\(1, \d+\) )?list_(reverse_)?sort\([^()]*\) (list_distinct\(\) )?)?(flatten\(\) )?")
# The order of records decides the last digits of floating-point numbers of these, and nothing else.
_OF_ANY_ORDER = {
    *(_OF_RESULTS | _COUNTS),
    *("approx_count_distinct", "avg", "bitstring_agg", "corr", "covar_pop", "covar_samp", "decimal_average", "entropy"),
    *("favg", "fsum", "histogram", "histogram_exact", "kahan_sum", "mad", "mean", "median"),
    *("product", "quantile", "quantile_cont", "quantile_disc", "regr_avgx", "regr_avgy", "regr_count", "regr_sxx"),
    *("regr_intercept", "regr_r2", "regr_slope", "regr_sxy", "regr_syy", "sem", "skewness", "stddev", "stddev_pop"),
    *("stddev_samp", "sum_no_overflow", "sumkahan", "var_pop", "var_samp", "variance"),
}
_COMPARING = re.compile("arg_?(max|min)(_nulls?(_last)?)?|(max|min)_by")
_SAY_WHICH = (
    "say which is meant: max(page), list_sort(list(page)), list(page ORDER BY seen, page), "
    "arg_max(page, (seen, page)), or an exact quantile"
)
_GREATEST = (
    "make one column of both before it, {'seen': seen, 'page': page} AS last of each record, combine "
    "max(last) AS last, and take last.page in a select behind it"
)
_OF_ALL = "aggregate the records themselves by that key: those of a batch, or all that ever come, kept()"
_WHOLE = re.compile("U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)")
_DECIMAL = re.compile(r"DECIMAL\(\d+,(\d+)\)")
# What is wrong, each with what to write instead.
_Wrong = Iterator[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Call:
    """The call of an aggregate: how it aggregates, what, and whether a FILTER leaves records out."""

    how: str
    node: Tree
    given: Tree | None = None
    filters: bool = False

    @property
    def told(self) -> str:
        return f"{'count(*)' if self.how == 'count_star' else self.how}{' with FILTER' * self.filters}"

    @property
    def is_of_results(self) -> bool:
        """Whether that of its own results is that of all records."""
        return (self.how in _OF_RESULTS or self.how.startswith("list_")) and not self.filters

    def adds_up(self, part: _Call | None) -> bool:
        """Whether that of results of `part` is that of all records."""
        if part is None or not self.is_of_results:
            return False
        counted, listed = self.how == "sum" and part.how in _COUNTS, self.how[-4:] == part.how == "list"
        return part.how == self.how or counted or listed


class Aggregated:
    """Expressions that aggregate rows of these columns, by name, for each of the keys."""

    def __init__(self, rules: Rules, tree: Tree, columns: Collection[str], keys: Collection[str]) -> None:
        self._rules, self._columns = rules, columns
        items = {self._name(item): item for item in tree["select_list"]}
        # Of each column the calls of aggregates, and the columns outside of them, that it is made of.
        made_of = list[tuple[str, _Call | str]]()
        for item in tree["select_list"]:
            for found in self._within(item):
                # An expression may name one before it, unless there is such a column.
                before = [each for name, each in made_of if name == found and name not in columns]
                made_of += [(self._name(item), each) for each in before or [found]]
        self._calls = [(name, each) for name, each in made_of if isinstance(each, _Call)]
        self._bare = [(name, each) for name, each in made_of if isinstance(each, str)]
        self._groups = {name for name, item in items.items() if self._column(item) == name}.union(map(str.lower, keys))
        self._alone = {name: call for name, item in items.items() if (call := self._call(_uncast(item)))}
        self.casts = {name: items[name]["child"] for name in self._alone if items[name]["class"] == "CAST"}

    def of_own_results(self) -> _Wrong:
        """What it makes otherwise of its own results than of all records."""
        kept = {name: call.how for name, call in self._alone.items() if self._column(call.given) == name}
        wrong = [
            (name, f"{column} is in no aggregate", "") for name, column in self._bare if column not in self._groups
        ]
        for name, call in self._calls:
            column = self._column(call.given)
            if not call.is_of_results:
                wrong.append((name, f"{call.told} of those is not that of all records", call.how))
            elif column is None or kept.get(column) != call.how:
                is_not = f"is not {call.how} of {column} alone" if column else "is no column"
                wrong.append((name, f"what {call.how} reads {is_not}", call.how))
        for name, why, how in wrong:
            yield f"a combine is applied to its own results, and would make another {name}: {why}", _instead(name, how)

    def of_parts(self, parts: Aggregated, step: str, keys: Collection[str], *, is_told: bool) -> _Wrong:
        """What it makes otherwise of a step's results of parts of the records, given by these `keys`, than of all.
        A fault of any results is left out if it `is_told` already."""
        several = {name: call.told for name, call in parts._calls}
        for column in sorted({*keys, *(column for _, column in self._bare)} & several.keys()):
            what = f"rows are combined by {column}, which step {step!r} makes by {several[column]} of a part of them"
            yield what, f"combine them by columns of the records; or {_OF_ALL}"
        for _, call in self._calls:
            column = self._column(call.given) or "an expression"
            if call.adds_up(part := parts._alone.get(column)) or (is_told and not call.is_of_results):
                continue
            made = part.told if part else "no aggregate alone"
            what = f"{column} is {made} in step {step!r}, and {call.told} of that is not that of all records"
            then = f"make {column} there by {call.how} alone{', or by count' * (call.how == 'sum')}, and calculate"
            then = f"{then} of each record before it, or in a select behind the combine; or {_OF_ALL}"
            yield what, then if call.is_of_results else _instead(column, call.how)

    def of_order(self) -> _Wrong:
        """What it makes otherwise of the same records in another order."""
        for _, call in self._calls:
            if not self._is_of_any_order(call):
                yield f"the order of records decides what {call.told} makes of them, and these have none", _SAY_WHICH

    def _is_of_any_order(self, call: _Call) -> bool:
        orders = [each["expression"] for each in call.node["order_bys"]["orders"]]
        given = _given(call.node)
        if _COMPARING.fullmatch(function(call.node)):
            given, orders = given[:1], given[1:2]
        decided = bool(orders) and _decide(orders, given)
        return decided or call.how.startswith("list_") or self._rules.called(call.node) <= _OF_ANY_ORDER

    def _within(self, tree: Any) -> Iterator[_Call | str]:
        """The outermost calls of aggregates in expressions, and the columns outside of them."""
        if isinstance(tree, list):
            for child in tree:
                yield from self._within(child)
        elif isinstance(tree, dict):
            if tree.get("class") in {"COLUMN_REF", "STAR"}:
                yield self._column(tree) or ".".join(tree.get("column_names", "*")).lower()
            elif call := self._call(tree):
                yield call
            else:
                yield from self._within(list(tree.values()))

    def _call(self, node: Tree) -> _Call | None:
        if node.get("class") != "FUNCTION":
            return None
        if (listed := _listed(node)) or not self._rules.called(node):
            return listed
        given, is_ordered = _given(node), bool(node["order_bys"]["orders"])
        words = (" DISTINCT", node["distinct"]), (" ORDER BY", is_ordered), (" of several values", len(given) > 1)
        how = function(node) + "".join(word for word, is_said in words if is_said)
        return _Call(how, node, given[0] if given else None, node["filter"] is not None)

    def _name(self, item: Tree) -> str:
        return str(item["alias"]).lower() or self._column(item) or ""

    def _column(self, node: Tree | None) -> str | None:
        """The column that an expression is, perhaps behind the name of its flow."""
        if node is None or node["class"] != "COLUMN_REF":
            return None
        *flow, name = map(str.lower, node["column_names"])
        is_one = name in self._columns and (not flow or (len(flow) == 1 and flow[0] not in self._columns))
        return name if is_one else None


class CombinedResults:
    """What steps of a pipeline make otherwise of results, or of rows that change, than of all records."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, pipeline: Pipeline, rules: Rules, relations: KnownRelations
    ) -> None:
        self._connection, self._pipeline, self._rules, self._relations = connection, pipeline, rules, relations

    def findings(self, step: Step, trees: Sequence[Tree]) -> Iterator[Finding]:
        """Those on a step that aggregates by these expressions; none of another."""
        if step.op is Op.COMBINE:
            yield from self._regrouped(step)
        elif step.op in {Op.AGGREGATE, Op.COGROUP}:
            yield from self._reordered(step, trees)

    def _regrouped(self, step: Step) -> Iterator[Finding]:
        """Why a combine of results, its own or those of tasks and batches, is not that of all records."""
        handed = [*self._handed(step, step.inputs[0], bool(step.state))]
        # Settings may limit the fan-in of any that gets the results of tasks.
        if not (step.state or step.fan_in or handed):
            return
        found = {**dict(self._aggregated(step).of_own_results()), **dict(self._lost(step))}
        for reads, made, keys in handed:
            parts = self._aggregated(made), made.name, keys
            found.update(self._aggregated(reads).of_parts(*parts, is_told=reads is step))
            found.update(self._lost(made))
        for what, then in found.items():
            yield Finding.of(Kind.SQL, what, f"step {step.name!r}: {step.expressions[0]}", then, wrong=what)

    def _handed(
        self, reads: Step, name: str, running: bool, keys: frozenset[str] = frozenset()
    ) -> Iterator[tuple[Step, Step, frozenset[str]]]:
        """The steps whose results a step reads: of tasks or, for a running combine, of batches. Each with its reader
        and the columns by which rows were re-keyed on the way; and then those that it reads."""
        made = self._pipeline.step_of(name)
        if made is None or CHANGE in made.sql:
            return
        if made.op in {Op.REKEY, Op.REPARTITION, Op.MERGE}:
            named = columns_named([parse(self._connection, text) for text in made.expressions])
            by = frozenset(parts[-1].lower() for parts in named)
            for each in made.inputs:
                yield from self._handed(reads, each, running, keys | by)
        elif made.op is Op.PARTIAL or (running and self._pipeline.meaning_of(name).adds_up):
            yield reads, made, keys
            yield from self._handed(made, made.inputs[0], running)

    def _aggregated(self, step: Step) -> Aggregated:
        """What a step aggregates: of a combine's expressions, the second is a time."""
        said = step.expressions[:1] if step.op is Op.COMBINE else step.expressions
        tree = parse(self._connection, ", ".join(said))
        return Aggregated(self._rules, tree, self._relations[step.inputs[0]].names, {step.key, *key_parts(step.key)})

    def _lost(self, step: Step) -> Iterator[tuple[str, str]]:
        """What casts of a step's aggregates may lose each time."""
        if not (casts := self._aggregated(step).casts):
            return
        sqls = (step.sql.replace(step.expressions[0], self._rules.written(casts)), step.sql)
        given, kept = ({each.name.lower(): each.type for each in described(self._connection, sql)} for sql in sqls)
        for name in casts:
            if loses(of := given[name], to := kept[name]):
                what = f"{name} is {of} before step {step.name!r} casts it to {to}, which may lose something each time"
                kept_as = {"FLOAT": "DOUBLE", "BOOLEAN": "BIGINT"}.get(to, to)
                yield (
                    what,
                    f"cast what it aggregates, of each record, to {kept_as}; or {name} in a select behind the combine",
                )

    def _reordered(self, step: Step, trees: Sequence[Tree]) -> Iterator[Finding]:
        """What an aggregate of rows that change makes otherwise of them in another order: they have none."""
        texts = step.expressions if step.op is Op.COGROUP else (", ".join(step.expressions),)
        for name, text, tree in zip(step.inputs, texts, trees, strict=False):
            reads = self._pipeline.step_of(name)
            if reads and reads.op is Op.ROWS:
                for what, then in Aggregated(self._rules, tree, self._relations[name].names, ()).of_order():
                    yield Finding.of(Kind.SQL, what, f"step {step.name!r}: {text}", then, wrong=what)


def loses(given: str, kept: str) -> bool:
    """Whether a cast of what aggregates give to the type that is kept may lose something and not fail.

    >>> loses("HUGEINT", "BIGINT"), loses("DECIMAL(38,2)", "DECIMAL(18,2)"), loses("DOUBLE", "BIGINT")
    (False, False, True)
    """
    if given == kept or (_WHOLE.fullmatch(given) and _WHOLE.fullmatch(kept)):
        return False
    of, to = _DECIMAL.fullmatch(given), _DECIMAL.fullmatch(kept)
    if not _WHOLE.fullmatch(given) and not of:
        return True
    return kept != "DOUBLE" and not (to and int(to[1]) >= int(of[1] if of else 0))


def _listed(node: Tree) -> _Call | None:
    """A list of all that there is, sorted in whatever way, or not at all."""
    around, given = "", _given(node)
    while function(node) not in _LISTS:
        if not given or any(each["class"] != "CONSTANT" for each in given[1:]):
            return None
        constants = ", ".join(str(each["literal"].get("text")) for each in given[1:])
        around += f"{function(node).replace('array_', 'list_')}({constants}) "
        node, given = given[0], _given(given[0])
    if node["distinct"] or node["order_bys"]["orders"] or not _AROUND.fullmatch(around):
        return None
    return _Call(f"{around.removesuffix('flatten() ')}list", node, given[0], node["filter"] is not None)


def _given(node: Tree) -> list[Tree]:
    """What a call of a function gets."""
    return [each["expression"] for each in node.get("arguments", ())]


def _uncast(item: Tree) -> Tree:
    """The expression that is cast. A cast that gives NULL instead of failing stays."""
    child: Tree = item["child"] if item["class"] == "CAST" and not item["try_cast"] else item
    return child


def _decide(orders: Sequence[Tree], given: Sequence[Tree]) -> bool:
    """Whether what is equal by these orders is equal: it is one of them, or names only columns that are."""
    by = [part for each in orders for part in (_given(each) if function(each) in {"row", "struct_pack"} else [each])]
    columns, texts = {*columns_named([each for each in by if each["class"] == "COLUMN_REF"])}, [*map(_text, by)]
    return all(_text(each) in texts or {*columns_named(each)} <= columns for each in given)


def _text(tree: Tree) -> str:
    """An expression, wherever it is and whatever it is called."""
    return re.sub(r'"(query_location(_length)?": \d+|alias": "[^"]*")', "", json.dumps(tree))


def _instead(name: str, how: str) -> str:
    if how in _COUNTS:
        return f"count before it, 1::BIGINT AS {name} of each record, and add up: sum({name})::BIGINT AS {name}"
    if _COMPARING.match(how):
        return _GREATEST
    if how in _MEANS:
        return f"combine a sum and a count, each by sum, and divide them in a select behind it; or {_OF_ALL}"
    alone = f"combine {name} by an aggregate alone, as sum(n) AS n, max(n) AS n or list_sort(flatten(list(n))) AS n"
    return f"{alone}, and calculate in a select behind it, or before it of each record; or {_OF_ALL}"
