"""What a join in time gives once its time is over is given once by batches that are killed, and again by a backfill."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from tests.as_of import AS_OF, in_time, rows_of
from tests.backfilled import run_again
from tests.begun import Begun
from tests.examples import few
from tests.killed import killed_once
from tests.outer import some

_PIPELINE = str(Path(__file__).parents[1] / "pipelines" / "in_time.py")
_ARRIVED = some(random.Random(7), 40)
# Each point has two of the joins or all, and each join has three of the points.
_KILLED = (
    *(("verdict.after", how) for how in (AS_OF, "left", "full")),
    ("group-0.before", AS_OF),
    ("group-0.before", "full"),
    ("group-0.after", "left"),
    ("group-0.after", AS_OF),
    ("delta.after", "full"),
    ("delta.after", "left"),
)


@pytest.mark.parametrize(("point", "how"), few(_KILLED))
def test_a_batch_that_is_killed_gives_what_is_over_once(point: str, how: str, begun: Begun, tmp_path: Path) -> None:
    store = begun.by(_begin, how)
    joined = in_time(store, how)
    killed_once(point, _PIPELINE, store.root, tmp_path, IN_TIME_STORE=store.root, IN_TIME_HOW=how)
    joined.close()
    assert joined.pairs() == rows_of(_ARRIVED, how)


def _begin(how: str, store: Store) -> None:
    joined = in_time(store, how)
    joined.batch(_ARRIVED.clicks[:20], _ARRIVED.views[:20])
    joined.batch(_ARRIVED.clicks[20:30], _ARRIVED.views[20:30], "tasks(2)")
    joined.land(_ARRIVED.clicks[30:], _ARRIVED.views[30:])


@pytest.mark.long
@pytest.mark.parametrize("how", [AS_OF, "left", "full"])
def test_a_backfill_with_other_tasks_gives_the_same_rows_by_the_same_watermarks(
    how: str, store: Store, tmp_path: Path
) -> None:
    chance = random.Random(8)
    arrived, joined = some(chance, 30), in_time(store, how)
    joined.all_in(arrived, 3, chance)
    backfill = run_again(joined.pipeline, store, Asked(0, None, Settings.parse(scheme="tasks(2)")), tmp_path)
    assert str(actions.comparison(store, backfill)).startswith("identical: ")
