"""What a task takes of all keys at once, against the rule asked of each key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from partitioning.model.takes import Residues, Task, taken, takes

few = st.integers(1, 6)


def divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


@st.composite
def tasks(draw: st.DrawFn, modulus: int) -> Task:
    """A task that reads some of 12 partitions, and perhaps keeps several residues of a divisor of the modulus."""
    reads = {"views": tuple(sorted(draw(st.sets(st.integers(0, 11)))))}
    finer = draw(st.sampled_from(divisors(modulus)))
    kept = draw(st.none() | st.sets(st.integers(0, finer - 1), min_size=1))
    filters = {} if kept is None else {"views": Residues(finer, tuple(sorted(kept)))}
    return Task(0, reads, filters, null_keys=draw(st.booleans()), keyless=reads)


@given(few, few, st.data())
def test_taken_says_of_all_keys_what_takes_says_of_each(step: int, factor: int, data: st.DataObject) -> None:
    modulus = step * factor
    task = data.draw(tasks(modulus))
    found = taken(task, "views", modulus, step)
    assert all(len(set(residues)) == len(residues) for residues in found.values())
    assert set(found) <= {partition % step for partition in task.reads["views"]}
    for partition in range(12):
        for h in range(partition % step, 2 * modulus, step):
            at_once = partition in task.reads["views"] and h % modulus in found.get(partition % step, ())
            assert takes(task, "views", partition, h) == at_once


@given(few, st.data())
def test_of_an_input_that_it_does_not_read_a_task_takes_nothing(modulus: int, data: st.DataObject) -> None:
    task = data.draw(tasks(modulus))
    assert taken(task, "clicks", modulus, 1) == {}
    assert not any(takes(task, "clicks", partition, h) for partition in range(12) for h in (None, *range(modulus)))


@given(few, st.data())
def test_a_task_for_records_without_a_key_takes_no_others(modulus: int, data: st.DataObject) -> None:
    task = data.draw(tasks(modulus))
    alone = [p for p in range(12) if takes(task, "views", p, None)]
    assert alone == list(task.reads["views"])
    if task.null_keys:
        assert taken(task, "views", modulus, 1) == {}
