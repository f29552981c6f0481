"""Random records, some of which cannot be used, batch after batch under random plans, against what is said of each."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coset.batches import steps
from coset.batches.result_rows import set_aside_in
from coset.batches.tables.first_rows import first_rows
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.document import canonical
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.model.schemes import Scheme
from tests.examples import examples
from tests.running import run_and_publish, run_groups
from tests.unusable import PARTITIONS, home, land, line, orders

NAMES = [f"c{number}" for number in range(12)]
# By partition: the lines that landed, and what each is: a customer's amount, or that it cannot be used.
Line = tuple[bytes, tuple[str, int] | None]


def lines_of(chance: random.Random, partition: int, first: int) -> list[Line]:
    """So many lines of a partition as come about: most can be used, some are no JSON, some have an amount that is no
    number."""
    names, lines = [name for name in NAMES if home(name) == partition], list[Line]()
    for offset in range(first, first + chance.randint(0, 9)):
        name, amount, fate = chance.choice(names), chance.randrange(100), chance.random()
        if fate < 0.1:
            lines.append((b'{"customer": "' + name.encode(), None))
        elif fate < 0.2:
            lines.append((line(name, "much", offset), None))
        else:
            lines.append((line(name, str(amount), offset), (name, amount)))
    return lines


def spent(store: Store, limit: int) -> Pipeline:
    """What customers spent in each batch: the amounts become numbers in an aggregate."""
    columns = {"customer": "VARCHAR", "amount": "VARCHAR"}
    flow = orders(store, columns=columns, bad_records=f"set aside up to {limit}")
    flow.aggregate("count(*) AS orders, sum(amount::BIGINT)::BIGINT AS spent", name="totals").write("spent")
    return flow.pipeline


@settings(max_examples=examples(5), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(seed=st.integers(0, 2**40))
def test_each_record_is_in_the_results_or_set_aside_once(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    chance, folder = random.Random(seed), tmp_path_factory.mktemp("aside")
    store, ends = store_at(str(folder / "store")), [0] * PARTITIONS
    expected: dict[str, list[int]] = defaultdict(list)
    for _ in range(chance.randint(1, 3)):
        landed = {partition: lines_of(chance, partition, ends[partition]) for partition in range(PARTITIONS)}
        for partition, lines in landed.items():
            if lines:
                land(store, partition, ends[partition], [text for text, _ in lines])
        places = [
            (partition, ends[partition] + number, known)
            for partition, lines in landed.items()
            for number, (_, known) in enumerate(lines)
        ]
        ends = [end + len(landed[partition]) for partition, end in enumerate(ends)]
        bad = [(partition, offset) for partition, offset, known in places if known is None]
        limit = chance.choice((len(bad), 50, max(len(bad) - 1, 0)))
        asked = Settings(scheme=Scheme.parse(f"tasks({chance.randint(1, 7)})"), groups=chance.randint(1, 3))
        if not any(ends):
            continue
        ref, _ = steps.plan(spent(store, limit), store.root, asked)
        if ref is None:
            continue
        ledger, plan = ref.load()
        if chance.random() < 0.4:
            # Killed between its tasks and its check: another attempt is made.
            run_groups(ref)
            ledger.close_attempt(plan.batch, 0, canonical({"findings": []}))
        if len(bad) > limit:
            with pytest.raises(Refused, match="beyond: set aside up to"):
                run_and_publish(ref, folder)
            return
        run_and_publish(ref, folder)
        for name, amount in (known for _, _, known in places if known is not None):
            expected[name].append(amount)
        found = list(set_aside_in(ledger, plan))
        assert [(record["partition"], record["offset"]) for record in found] == bad
        assert added_up(store) == {name: (len(amounts), sum(amounts)) for name, amounts in expected.items()}


def added_up(store: Store) -> dict[str, tuple[int, int]]:
    """The orders and the sum of each customer over all batches."""
    found = first_rows(store, "spent", 10_000)
    totals: dict[str, tuple[int, int]] = {}
    rows: list[dict[str, Any]] = found.rows.to_pylist() if found is not None else []
    for row in rows:
        count, amount = totals.get(row["customer"], (0, 0))
        totals[row["customer"]] = count + row["orders"], amount + row["spent"]
    return totals
