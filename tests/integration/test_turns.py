"""Who runs a batch that others run too gets a share of its work, and waits for nobody who has gone."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from coset.batches import interpreter
from coset.batches.interpreter import BatchStep, OfBatch, run_batch
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.batches.turns import Turn, Turns, group_work
from partitioning.authoring.settings import Settings
from partitioning.documents.document import encode
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.values import replace
from tests.real_batches import delays, land_delays, stored
from tests.running import run_and_publish
from tests.small import SmallBatch, small_batch, until

WORK = group_work(0)
# Longer than a test may take: who is waited for so long is not taken for gone.
PATIENT, IMPATIENT = 3600.0, 0.5


@pytest.fixture
def batch(s3: object) -> SmallBatch:
    return small_batch()


def turns(batch: SmallBatch, silent: float = PATIENT) -> Turns:
    return Turns(batch.ledger, batch.plan, beat=0.05, silent=silent)


def hold(batch: SmallBatch, turn: Turn) -> None:
    """Let the process of a turn have it."""
    batch.ledger.store.put(batch.ledger.key("turns", 0, WORK), encode(turn))


def take(of: Turns, wait: bool = True) -> bool:
    with of.turn(WORK, wait=wait) as ours:
        return ours


@pytest.mark.parametrize("at_once", [1, 2])
def test_runners_of_one_batch_share_its_groups(
    at_once: int, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Local, "at_once", at_once)
    ref = stored(land_delays(store), delays(store), settings=Settings(groups=4))
    said = list[tuple[str, str]]()

    @contextmanager
    def show(name: str) -> Iterator[list[str]]:
        words = list[str]()
        yield words
        said.extend((name, sentence) for sentence in words)

    def run(number: int) -> None:
        with Local(processes=1) as runner:
            run_batch(ref, runner, tmp_path / str(number), show)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))
    assert sorted(name for name, sentence in said if "wrote" in sentence) == [f"run group {n}" for n in range(4)]
    assert all("nothing to do" in sentence for name, sentence in said if name.startswith("wait for"))
    ledger, plan = ref.load()
    verdict = ledger.verdict(plan.batch)
    assert verdict is not None
    written = {entry.key for entry in store.list("tables/delays/data/")}
    assert written
    assert written <= {artefact.path for artefact in verdict.artefacts}
    assert not list(store.list("delays/turns/"))


def test_a_turn_is_had_by_one_at_a_time_and_then_by_the_next(batch: SmallBatch) -> None:
    with ThreadPoolExecutor(1) as pool:
        with turns(batch).turn(WORK, wait=False) as ours:
            assert ours
            assert not take(turns(batch), wait=False)
            # It is heard of, so it is waited for.
            waiting = pool.submit(take, turns(batch, IMPATIENT))
            time.sleep(3 * IMPATIENT)
            assert not waiting.done()
        assert waiting.result(timeout=60)


def test_a_process_that_has_ended_is_not_waited_for(batch: SmallBatch) -> None:
    program = "from coset.batches.turns import Turn; from partitioning.documents.document import encode; "
    program += "import sys; sys.stdout.buffer.write(encode(Turn.of_this_process()))"
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout
    batch.ledger.store.put(batch.ledger.key("turns", 0, WORK), ended)
    assert not take(turns(batch), wait=False)
    assert take(turns(batch))


def test_a_process_elsewhere_is_waited_for_as_long_as_it_is_heard_of(batch: SmallBatch) -> None:
    elsewhere = replace(Turn.of_this_process(), host="elsewhere.example")
    hold(batch, elsewhere)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(take, turns(batch, silent=IMPATIENT))
        for beats in range(1, 20):
            hold(batch, replace(elsewhere, beats=beats))
            time.sleep(IMPATIENT / 10)
            assert not waiting.done()
        assert waiting.result(timeout=60)


def test_who_is_told_to_end_waits_for_nobody(batch: SmallBatch) -> None:
    hold(batch, replace(Turn.of_this_process(), host="elsewhere.example"))
    ended = turns(batch)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(take, ended)
        assert not waiting.done()
        ended.cancel()
        assert not waiting.result(timeout=60)


def test_what_another_could_not_do_is_tried(batch: SmallBatch, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool, turns(batch).turn(WORK, wait=False):
        waiting = pool.submit(run_and_publish, batch.ref, tmp_path)
        # All others have run by then.
        assert until(lambda: batch.ledger.receipt(0, 0, 1) is not None)
        assert batch.ledger.receipt(0, 0, 0) is None
    waiting.result(timeout=60)
    assert batch.ledger.receipt(0, 0, 0) is not None


def test_a_turn_that_nobody_wrote_is_refused(batch: SmallBatch) -> None:
    batch.ledger.store.put(batch.ledger.key("turns", 0, WORK), b"{}")
    with pytest.raises(Refused, match="turns/0/group-0"):
        take(turns(batch))


def test_all_steps_that_are_listed_are_done_in_their_order_and_turn(
    batch: SmallBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def turns_taken(ref: BatchRef, _: object) -> str:
        return str([entry.key for entry in ref.load()[0].store.list("sums/turns/")])

    extra = BatchStep("weigh", "Say whose turn it is.", OfBatch(turns_taken, turn="weigh"))
    monkeypatch.setattr(interpreter, "STEPS", (*interpreter.STEPS, extra))
    shown, pages = list[tuple[str, list[str]]](), list[str]()

    def show(name: str) -> nullcontext[list[str]]:
        shown.append((name, []))
        return nullcontext(shown[-1][1])

    with Local(processes=1) as runner:
        run_batch(batch.ref, runner, tmp_path, show, show_page=pages.append)
    assert [name for name, _ in shown] == ["run group 0", "run group 1", "audit", "check", "publish", "weigh"]
    assert shown[-1][1] == [f"['{batch.ledger.key('turns', 0, 'weigh')}']"]
    assert [page.partition("\n")[0] for page in pages] == ["## sums, batch 0: ✓ proved"]
