"""A step that keeps something is changed: what it kept is gone on from, as the pipeline declares it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.kept import kept_state, rows_kept
from coset.batches.planning import NextBatch, preview
from coset.batches.publication import abandon
from coset.batches.ref import BatchRef
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.diff.table_changes import kept_sentences
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import CosetError, Refused
from partitioning.explain.explain import explain
from partitioning.model.plan import Plan
from partitioning.model.receipt import Role
from partitioning.model.stage_inputs import StateInput
from partitioning.sections import markdown
from tests.examples import few
from tests.histories import Click, History
from tests.running import run_and_publish, run_groups, task_receipts

Build = Callable[[Pipeline, Flow], None]
KEYS = [f"key-{number}" for number in range(12)]


class Changing(History):
    """Batches of clicks, each by a pipeline of its own."""

    def planned(self, build: Build, clicks: list[Click], scheme: str = "cogroup") -> BatchRef:
        """Plan a batch."""
        self._pipeline = lambda source, partitions: pipeline(source, partitions, build)
        self.land(clicks, [], 4)
        return self.plan(Settings.parse(scheme=scheme), 4)

    def batch(self, build: Build, clicks: list[Click], scheme: str = "cogroup", name: str = "totals") -> Plan:
        """Plan, run and publish a batch."""
        ref = self.planned(build, clicks, scheme)
        self.result = self.publish(ref, judged=False)
        self.written = sum(
            file.records
            for task in task_receipts(ref)
            for file in task.left(Role.STATE)
            if file.name == f"{name}.state"
        )
        return ref.load()[1]

    def next(self, settings: Settings) -> NextBatch:
        """What would be planned."""
        return preview(self._pipeline(self._source, 4), self.store, settings)

    def kept(self, step: str = "totals") -> dict[object, tuple[object, ...]]:
        """What a step keeps of each key, by column name in declared order."""
        ledger = Ledger(self.store, "changing")
        with rows_kept(ledger, kept_state(ledger, step)) as rows:
            table = rows.read_all()
        others = [table[name].to_pylist() for name in table.column_names if name != "k"]
        return dict(zip(table["k"].to_pylist(), zip(*others, strict=True), strict=True))


def pipeline(source: str, partitions: int, build: Build) -> Pipeline:
    made = Pipeline("changing", source=source)
    build(made, made.stream("clicks", key="k", partitions=partitions))
    return made


PARTS = {"n": "count(*)::INTEGER AS n", "last": "max(id) AS last", "sum": "sum(id)::BIGINT AS sum"}


def total(columns: str, parts: str = "", name: str = "totals") -> Build:
    """A running combine of these columns, by default of the usual parts under their names."""
    names = re.findall(r" AS (\w+)", columns)

    def build(_: Pipeline, clicks: Flow) -> None:
        parts_ = parts or ", ".join(PARTS[name] for name in names)
        sums = clicks.aggregate(parts_, name="parts").combine(columns, running=True, name=name)
        sums.to_stream().write("made", mode="replace")

    return build


def then(build: Build, step: str = "totals", **changed: object) -> Build:
    """The same pipeline, which says what becomes of what a step kept."""

    def both(made: Pipeline, clicks: Flow) -> None:
        build(made, clicks)
        made.changed(step, **changed)  # type: ignore[arg-type]

    return both


def clicks(*numbers: int, minute: int = 0) -> list[Click]:
    return [Click(KEYS[number], number, minute) for number in numbers]


def reads_of(plan: Plan) -> list[StateInput]:
    return [read for stage in plan.stages for read in stage.inputs if isinstance(read, StateInput)]


def read_by(plan: Plan, step: str = "totals") -> StateInput:
    (read,) = (read for read in reads_of(plan) if read.step == step)
    return read


@pytest.fixture
def history(store: Store, tmp_path: Path) -> Changing:
    return Changing(store, tmp_path)


N, LAST, SUM = "sum(n)::INTEGER AS n", "max(last) AS last", "sum(sum)::BIGINT AS sum"


def test_columns_come_go_and_widen_and_nothing_old_is_written_again(history: Changing) -> None:
    history.batch(total(N), clicks(*range(12)))
    plan = history.batch(then(total(f"{N}, {LAST}"), begins={"last": -1}), clicks(0, 1))
    assert str(read_by(plan).changes[0]) == "last begins as -1"
    assert history.written == 2
    wanted = {key: (2, number) if number < 2 else (1, -1) for number, key in enumerate(KEYS)}
    assert history.kept() == wanted
    # The declaration stays, and changes nothing any more. Two versions lie beside each other, by 3 tasks and 8.
    wide, parts = f"sum(n)::BIGINT AS n, {LAST}", "count(*)::BIGINT AS n, max(id) AS last"
    wider = then(total(wide, parts), begins={"last": -1})
    plan = history.batch(wider, clicks(1, 2), "tasks(3)")
    assert [str(change) for change in read_by(plan).changes] == ["n is BIGINT, before INTEGER"]
    assert (history.written, [run.version for run in read_by(plan).runs]) == (2, [2, 1])
    wanted |= {KEYS[1]: (3, 1), KEYS[2]: (2, 2)}
    assert history.kept() == wanted
    plan = history.batch(total(LAST), clicks(3), "tasks(8)")
    assert [str(change) for change in read_by(plan).changes] == ["n is dropped"]
    # Two small runs of two versions are merged.
    assert history.written == 4
    wanted |= {KEYS[3]: (1, 3)}
    assert history.kept() == {key: (last,) for key, (_, last) in wanted.items()}
    assert [len(version.readings) for version in read_by(plan).versions] == [3, 2, 1]


def test_a_column_is_computed_from_what_was_kept(history: Changing) -> None:
    history.batch(total(f"{N}, {LAST}"), clicks(*range(12)))
    more = then(total(f"{N}, {LAST}, {SUM}"), begins={"sum": "n * last"})
    history.batch(more, clicks(4))
    assert history.kept() == {key: (2, 4, 8) if number == 4 else (1, number, number) for number, key in enumerate(KEYS)}


def test_a_step_keeps_what_it_kept_under_another_name(history: Changing) -> None:
    history.batch(total(N), clicks(*range(12)))
    history.batch(total(N), clicks(1))
    renamed = then(total(N, name="sums"), "sums", was="totals")
    plan = history.batch(renamed, clicks(2), name="sums")
    assert (read_by(plan, "sums").was, history.written) == ("totals", 1)
    wanted = {key: (2,) if number in (1, 2) else (1,) for number, key in enumerate(KEYS)}
    assert history.kept("sums") == wanted
    # Runs of both names are merged.
    plan = history.batch(renamed, clicks(3), name="sums")
    assert [(run.name, run.merged) for run in read_by(plan, "sums").runs] == [
        ("", True),
        ("totals.state", True),
        ("totals.state", False),
    ]
    assert (history.written, history.kept("sums")) == (3, wanted | {KEYS[3]: (2,)})


def test_a_step_under_another_name_is_rebuilt_by_a_backfill_with_a_further_column(history: Changing) -> None:
    history.batch(total(N), clicks(*range(12)))
    history.batch(total(N), clicks(1))
    renamed = then(total(f"{N}, {SUM}", name="sums"), "sums", was="totals")
    made = pipeline(f"{history.store.root}/topics", 4, renamed)
    # Batch 1 goes on from what the backfill's own batch 0 is going to keep, and not from what totals kept.
    assert [reads_of(now) for _, now in actions.preview(made, history.store, Asked(0, 1, DEFAULTS))] == [[], []]


@pytest.mark.long
def test_columns_in_another_order_are_not_mixed_up(history: Changing) -> None:
    def newest(columns: str) -> Build:
        return lambda _, flow: (
            flow.select(columns).latest("seen", name="totals").to_stream().write("made", mode="replace")
        )

    history.batch(newest("id AS a, id * 100 AS b, seen"), clicks(*range(12)))
    history.batch(newest("id * 100 AS b, seen, id AS a"), clicks(4, minute=1))
    plan = history.batch(newest("id * 100 AS b, seen, id AS a, id + 1 AS c"), clicks(5, minute=2))
    assert [str(change) for change in read_by(plan).changes] == ["c begins as null"]
    kept = {key: (b, a, c) for key, (b, _, a, c) in history.kept().items()}
    assert kept == {key: (100 * number, number, 6 if number == 5 else None) for number, key in enumerate(KEYS)}


def test_all_rows_are_written_again_once_by_an_expression(history: Changing) -> None:
    history.batch(total(f"{N}, {LAST}"), clicks(*range(12)))
    history.batch(total(f"{N}, {LAST}"), clicks(1))
    tens = then(total(f"{N}, max(last)::BIGINT AS last, {SUM}"), migrate={"last": "last * 10", "sum": "n + last"})
    plan = history.batch(tens, clicks(2), "tasks(3)")
    assert [str(change) for change in read_by(plan).changes] == ["last becomes last * 10", "sum becomes n + last"]
    assert history.written == 12
    wanted = {key: (1, number * 10, number + 1) for number, key in enumerate(KEYS)}
    wanted |= {KEYS[1]: (2, 10, 3), KEYS[2]: (2, 20, 5)}
    assert history.kept() == wanted
    # The declaration stays, and is done.
    plan = history.batch(tens, clicks(3))
    assert (read_by(plan).changes, history.written) == ((), 1)
    assert history.kept() == wanted | {KEYS[3]: (2, 30, 7)}


def tallied(function: str = "") -> Build:
    """A function that counts, and keeps one column more after it was changed."""

    def build(made: Pipeline, flow: Flow) -> None:
        state = {"k": "VARCHAR", "n": "BIGINT", "last": "BIGINT"} | ({"twice": "BIGINT"} if function else {})
        name = "tests.functions:tallied_twice" if function else "tests.functions:tallied"
        given = flow.process(name, {"k": "VARCHAR", "n": "BIGINT"}, state=state, name="totals")
        given.to_stream().write("made", mode="replace")
        if function:
            made.changed("totals", migrate=f"tests.functions:{function}")

    return build


@pytest.mark.long
def test_all_rows_are_written_again_once_by_a_function(history: Changing) -> None:
    history.batch(tallied(), clicks(*range(12)))
    plan = history.batch(tallied("with_twice"), clicks(1), "tasks(3)")
    assert read_by(plan).migration
    assert history.written == 12
    wanted = {key: (1, number, 2) for number, key in enumerate(KEYS)} | {KEYS[1]: (2, 1, 4)}
    assert history.kept() == wanted
    plan = history.batch(tallied("with_twice"), clicks(2))
    assert (read_by(plan).migration, history.written) == (None, 1)


@pytest.mark.parametrize(
    ("function", "what"),
    [
        ("with_twice_without_one", "row of 12 that were kept"),
        ("with_twice_under_another_key", "but not of the keys that"),
    ],
)
def test_a_migration_that_loses_a_key_is_not_published(function: str, what: str, history: Changing) -> None:
    history.batch(tallied(), clicks(*range(12)))
    ref = history.planned(tallied(function), clicks(1), "tasks(1)")
    with pytest.raises(CosetError) as refused:
        run_and_publish(ref)
    (finding,) = refused.value.findings
    assert "A migration made one row of each row that was kept, under the same key" in str(finding)
    assert what.replace("row of", "11 rows of") in str(finding)
    # It is given up, corrected, and the state is as it was.
    abandon(Ledger(history.store, "changing"), "the function was wrong")
    history.batch(tallied("with_twice"), [])
    assert history.kept()[KEYS[0]] == (1, 0, 2)


def test_a_new_beginning_is_asked_for_in_the_pipeline_once(history: Changing) -> None:
    history.batch(total(N), clicks(*range(12)))
    largest = then(total("max(n)::INTEGER AS n", "max(1)::INTEGER AS n"), anew="only the largest counts")
    plan = history.batch(largest, clicks(1, 1))
    assert plan.anew == ("totals",)
    assert history.kept() == {KEYS[1]: (1,)}
    # It was for that change: the next one is not asked for.
    with pytest.raises(Refused):
        history.batch(
            then(total("min(n)::INTEGER AS n", "min(1)::INTEGER AS n"), anew="only the largest counts"), clicks(1)
        )


def test_a_step_that_did_not_change_begins_anew_if_the_pipeline_says_so(history: Changing) -> None:
    history.batch(total(N), clicks(*range(12)))
    assert history.batch(then(total(N), anew="the topic was made anew"), clicks(1, 1)).anew == ("totals",)
    assert history.kept() == {KEYS[1]: (2,)}
    # Once.
    history.batch(then(total(N), anew="the topic was made anew"), clicks(1, 2))
    assert history.kept() == {KEYS[1]: (3,), KEYS[2]: (1,)}
    # By its name alone nothing begins anew that did not change, and that is told.
    history.land(clicks(1), [], 4)
    taken = history.next(Settings(begin_anew=("totals",)))
    assert taken.plan
    assert not taken.plan.anew
    assert "nothing of totals changed, so what was kept goes on: to begin anew, say `pipeline.ch" in taken.sentence
    assert taken.sentence.endswith("in the pipeline and replan the batch")


@pytest.mark.parametrize(
    ("changed", "parts", "what", "line"),
    [
        (f"{N}, {LAST}", "", "by which last takes no earlier record", 'begins={"last": None}'),
        ("max(n)::INTEGER AS n", "max(1)::INTEGER AS n", "", 'migrate={"n": "n"}'),
        ("sum(n)::SMALLINT AS n", "count(*)::SMALLINT AS n", "n is SMALLINT and was INTEGER", 'migrate={"n": \'"n"\'}'),
    ],
    ids=["new", "other", "narrower"],
)
def test_what_is_not_declared_is_refused_with_the_line_to_write(
    changed: str, parts: str, what: str, line: str, history: Changing
) -> None:
    history.batch(total(N), clicks(*range(3)))
    with pytest.raises(Refused) as refused:
        history.batch(total(changed, parts), clicks(1))
    said = "\n".join(map(str, refused.value.findings))
    assert f'pipeline.changed("totals", {line})' in said
    assert what in said


class Rule:
    """How totals are kept now, and what one process keeps that has seen all batches and carried out all changes."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.name, self.columns, self.wide = "totals", ["n"], False
        self.kept: dict[str, dict[str, int | None]] = {}
        self.declared: dict[str, object] = {}
        self.changes = 0
        self._before: dict[str, int] = {}
        self._were: tuple[str, ...] = ()

    def change(self) -> None:
        """Change one or two things. What was declared before may stay declared."""
        if self._chance.random() < 0.5:
            self.declared = {}
        # What is new in a batch is computed from what was kept before it, whatever else changes.
        self._were = tuple(self.columns)
        self._before = {key: row["n"] or 0 for key, row in self.kept.items()}
        for change in self._chance.sample([self._add, self._drop, self._widen, self._rename, self._migrate], k=2):
            change()

    def _add(self) -> None:
        # A column that goes and comes at once was there all the time.
        lacking = [name for name in ("last", "sum") if name not in (*self.columns, *self._were)]
        if lacking:
            name, value = lacking[0], self._chance.choice([None, 0, "n * 2"])
            self.declared["begins"] = {name: value}
            for key, row in self.kept.items():
                row[name] = 2 * self._before[key] if isinstance(value, str) else value
            self.columns.append(name)

    def _drop(self) -> None:
        if len(self.columns) > 1:
            name = self.columns.pop()
            self.declared.pop("begins", None)
            for row in self.kept.values():
                del row[name]

    def _widen(self) -> None:
        self.wide = True

    def _rename(self) -> None:
        self.declared["was"], self.name = self.name, "sums" if self.name == "totals" else "totals"

    def _migrate(self) -> None:
        # The same text would be the same declaration, which is done.
        self.changes += 1
        self.declared["migrate"] = {"n": f"n + {self.changes}"}
        for row in self.kept.values():
            row["n"] = (row["n"] or 0) + self.changes

    def build(self) -> Build:
        kind = "BIGINT" if self.wide else "INTEGER"
        parts = {"n": f"count(*)::{kind} AS n", "last": PARTS["last"], "sum": PARTS["sum"]}
        columns = {"n": f"sum(n)::{kind} AS n", "last": LAST, "sum": SUM}
        combined, given = (", ".join(of[name] for name in self.columns) for of in (columns, parts))
        made = total(combined, given, self.name)
        return then(made, self.name, **self.declared) if self.declared else made

    def batch(self, records: list[Click]) -> dict[object, tuple[object, ...]]:
        """What is kept after a batch of these records."""
        for click in records:
            row = self.kept.setdefault(str(click.key), dict.fromkeys(self.columns))
            row["n"] = (row["n"] or 0) + 1
            if "last" in row:
                row["last"] = max(-1 if row["last"] is None else row["last"], click.identity)
            if "sum" in row:
                row["sum"] = (row["sum"] or 0) + click.identity
        return {key: tuple(row[name] for name in self.columns) for key, row in self.kept.items()}


@pytest.mark.parametrize("seed", few(range(2)))
def test_any_history_of_changes_keeps_what_one_process_keeps(seed: int, history: Changing) -> None:
    chance = random.Random(seed)
    rule = Rule(chance)
    for batch in range(7):
        if batch and chance.random() < 0.7:
            rule.change()
        records = clicks(*chance.choices(range(12), k=chance.randrange(1, 9)))
        scheme = chance.choice(("cogroup", "elastic(2)", "tasks(1)", "tasks(3)", "tasks(5)", "tasks(12)"))
        if chance.random() < 0.3:
            # What is given up changes nothing that is kept.
            run_groups(history.planned(rule.build(), records, scheme))
            abandon(Ledger(history.store, "changing"), "another plan")
            history.batch(rule.build(), [], name=rule.name)
        else:
            history.batch(rule.build(), records, scheme, name=rule.name)
        assert history.kept(rule.name) == rule.batch(records), f"batch {batch}"


@pytest.mark.long
def test_records_that_are_kept_for_a_time_get_and_lose_columns_and_another_name(history: Changing) -> None:
    minutes: dict[str, Any] = {"within": timedelta(minutes=5), "keep": timedelta(minutes=50)}

    def build(columns: str, given: str, name: str, kind: str, **was: str) -> Build:
        def both(made: Pipeline, flow: Flow) -> None:
            one, other = (flow.select(f"{columns}, id::{kind} AS id, seen", name=side) for side in ("one", "other"))
            near = one.join_within(other, given, times=("one.seen", "other.seen"), name=name, **minutes)
            near.to_stream().write("near", mode="replace")
            once = one.distinct("id", time="seen", name=f"{name}.once", **minutes)
            once.select("id").to_stream().write("once", mode="replace")
            for part, before in was.items():
                made.changed(f"{name}.{part}", was=before)

        return both

    history.batch(build("id * 2 AS twice", "one.twice", "near", "INTEGER"), clicks(*range(6)), name="near.one")
    renamed = {"one": "near.one", "other": "near.other", "once": "near.once"}
    later = build("id * 3 AS thrice", "one.thrice, other.thrice AS t", "close", "BIGINT", **renamed)
    plan = history.batch(later, clicks(2, 7, minute=3), "tasks(3)", name="close.one")
    told = {read.step: ", ".join(map(str, read.changes)) for read in reads_of(plan)}
    assert told == {
        "close.one": "thrice begins as null, id is BIGINT, before INTEGER, twice is dropped",
        "close.other": "thrice begins as null, id is BIGINT, before INTEGER, twice is dropped",
        "close.once": "@identity is BIGINT, before INTEGER",
    }
    # The record of before is near that of now, with null in what is new.
    assert history.result["near"] == [("key-2", 6, 6), ("key-2", 6, None), ("key-2", None, 6), ("key-7", 21, 21)]
    assert history.result["once"] == [("key-7", 7)]


def test_what_becomes_of_what_steps_keep_is_said_before_and_on_the_page(history: Changing, tmp_path: Path) -> None:
    first = history.batch(total(f"{N}, {LAST}"), clicks(*range(12)))
    both = then(total(f"{N}, {SUM}", name="sums"), "sums", was="totals", begins={"sum": "last"})
    ref = history.planned(both, clicks(1))
    shown = markdown(explain(ref.load()[1], first))
    line = r"goes on from what it kept \| it was totals before; sum begins as last; last is dropped +\| 12 rows \(.*\)"
    assert re.search(line, shown), shown
    run_and_publish(ref, tmp_path)
    said = "What sums keeps goes on: it was totals before; sum begins as last; last is dropped. 12 rows ("
    (page,) = tmp_path.rglob("batch-1-attempt-0.html")
    assert said in page.read_text()
    tens = then(total(f"{N}, {SUM}", name="sums"), "sums", migrate={"n": "n * 10"})
    plan = history.batch(tens, clicks(1), name="sums")
    (sentence,) = kept_sentences(plan)
    assert sentence.startswith("What sums keeps migrates: n becomes n * 10. 13 rows (")
    assert "are read and written again, once, in about 1 s of CPU time; old keys are held against new ones" in sentence
    anew = then(
        total("max(n)::INTEGER AS n", "max(1)::INTEGER AS n", name="sums"), "sums", anew="only the largest counts"
    )
    assert list(kept_sentences(history.planned(anew, clicks(1)).load()[1])) == [
        "sums begins with nothing, as asked for by its name.",
        "Table made may not be its query since batch 3, as asked for.",
    ]
