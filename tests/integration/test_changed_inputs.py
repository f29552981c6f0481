"""Landed files that change while a batch runs, and what it costs to see that: one listing, whatever reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from coset.batches import steps
from coset.batches.ref import BatchRef
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.model.streams import InputFile
from tests.faults import FaultProxy
from tests.landed import land_table
from tests.running import next_batch, run_groups

FILES, TASKS = 6, 4
Change = Callable[[Store, str], None]


def planned(store: Store) -> BatchRef:
    """A batch of one stream partition in many files, which many tasks read."""
    source = f"{store.root}/topics"
    table = pa.table({"tailnum": [f"N{number % 100}" for number in range(960)], "delay": range(960)})
    land_table(table, "flights", source, key="tailnum", partitions=1, files=FILES)
    pipeline = Pipeline("delays", source=source)
    flights = pipeline.stream("flights", key="tailnum", partitions=1)
    flights.aggregate("count(*) AS flights", name="tails").write("delays")
    return next_batch(pipeline, store.root, Settings.parse(scheme=[f"elastic({TASKS})"], groups=2))


def files_of(ref: BatchRef) -> tuple[InputFile, ...]:
    return ref.load()[1].stream("flights").partitions[0].files


def remove(store: Store, key: str) -> None:
    store.delete(key)


def rewrite(store: Store, key: str) -> None:
    """The same bytes but for one."""
    data = bytearray(store.get(key) or b"")
    data[-20] ^= 1
    store.put(key, bytes(data))


@pytest.mark.parametrize(("change", "says"), [(rewrite, "changed"), (remove, "gone")])
def test_a_file_that_changed_after_it_was_opened_is_refused_and_what_was_read_is_not_used(
    change: Change, says: str, store: Store, tmp_path: Path
) -> None:
    ref = planned(store)
    run_groups(ref)
    path = files_of(ref)[5].path
    key = path.removeprefix(f"{store.root}/")
    before = store.get(key)
    assert before is not None
    change(store, key)
    with pytest.raises(Refused, match=f"the file is {says}|the file was {says}") as refused:
        steps.audit(ref)
    (finding,) = refused.value.findings
    assert finding.where == path
    assert "restore the file as it was planned" in finding.then
    assert "coset replan delays" in finding.then

    # What the next step says helps; what was read is read again.
    store.put(key, before)
    with pytest.raises(Refused, match="has no receipt"):
        steps.audit(ref)
    run_groups(ref)
    assert "attempt 1, is audited" in steps.audit(ref)
    assert "attempt 1" in steps.check(ref, tmp_path)


def test_tasks_that_read_together_look_at_a_file_once_and_the_audit_at_none(store: Store, proxy: FaultProxy) -> None:
    ref = planned(store)
    asked = proxy.count("HEAD|GET", "/topics/", lambda: run_groups(ref))
    _, plan = ref.load()
    assert [len(group.tasks) for group in plan.groups] == [TASKS // 2] * 2
    assert asked == FILES * len(plan.groups)
    assert proxy.count("HEAD|GET", "/topics/|prefix=.*topics/", lambda: steps.audit(ref)) == 1


def test_what_is_read_of_a_file_of_some_megabytes_comes_by_one_request(store: Store, proxy: FaultProxy) -> None:
    source = f"{store.root}/topics"
    random = np.random.default_rng(1)
    table = pa.table(
        {"tailnum": ["N1"] * 900, "delay": range(900), "told": [random.bytes(1500).hex() for _ in range(900)]}
    )
    land_table(table, "flights", source, key="tailnum", partitions=1, files=1)
    pipeline = Pipeline("delays", source=source)
    pipeline.stream("flights", key="tailnum", partitions=1).aggregate("sum(delay) AS delay").write("delays")
    ref = next_batch(pipeline, store.root)
    (file,) = files_of(ref)
    assert 1 << 20 < file.size < 4 << 20
    # The columns come before, with the footer.
    assert proxy.count("GET", "/topics/", lambda: run_groups(ref)) == 2
