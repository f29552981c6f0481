"""Hot keys whose own task runs wrongly: records that it loses, doubles or swaps with others are all caught.

One batch joins two streams in full, so each task has both sides of its keys.
"""

from __future__ import annotations

from partitioning.documents.store import Store
from partitioning.model.reasons import OwnTasks
from spark_jobs.engine.take import LEFT, TAKEN
from tests.hot import HOT, Met
from tests.judged import COVERED, IN_PLACE, MEET, PRODUCED
from tests.running import run_and_publish
from tests.wrong_tasks import doubled, first, goes_by, lost, of_others, read_nothing, refused, says, ways, writes

# The task of the hot key.
OWN = 4
ELSEWHERE = {COVERED, IN_PLACE, MEET}
TAKE, LOSE, TAKE_ANOTHER = first(LEFT, TAKEN, hot=True), first(TAKEN, LEFT, hot=True), first(LEFT, TAKEN, hot=False)


@ways
def test_a_task_of_a_hot_key_that_goes_wrong_is_refused_and_its_batch_is_published_once_nothing_is(
    some: str, store: Store
) -> None:
    met = Met(store)
    met.land(1)
    met.run(None)
    met.land(2)
    own, plan = met.planned()
    (stage,) = plan.stages
    assert isinstance(stage.why, OwnTasks)
    assert [key.key for key in stage.why.keys] == [HOT]
    others = of_others(own, OWN)
    refused(own, some, {
        # Each record of the key is in its task.
        "it loses a record": ({COVERED}, says(OWN, "views", LOSE)),
        "it loses the other side": ({COVERED}, says(OWN, "clicks", LOSE)),
        "the task of the others takes one too": (ELSEWHERE, says(others, "views", TAKE)),
        "both take the other side": (ELSEWHERE, says(others, "clicks", TAKE)),
        "the task of the others takes one in its place": (
            {IN_PLACE, MEET}, lambda p: [says(others, "views", TAKE)(p), says(OWN, "views", LOSE)(p)]
        ),
        # No record of another key is in it.
        "it takes another key": (ELSEWHERE, says(OWN, "views", first(LEFT, TAKEN, hot=False))),
        "nobody takes another key": ({COVERED}, says(others, "views", first(TAKEN, LEFT))),
        # Each task goes by its residues and its files.
        "it takes all of its partitions": (ELSEWHERE, goes_by(OWN, None)),
        "it goes by another residue": (ELSEWHERE, goes_by(OWN, 8)),
        "the task of the others keeps the key": (ELSEWHERE, goes_by(others, None)),
        "it reads nothing": ({COVERED}, lambda p: read_nothing(p, lambda order, _: order.task.task == OWN)),
        # Each row of it is written once.
        "a row is lost when it is written": ({PRODUCED}, writes(OWN, lost)),
        "a row is doubled when it is written": ({PRODUCED}, writes(OWN, doubled)),
    })  # fmt: skip
    run_and_publish(own)
    assert met.rows() == met.direct()
