"""What Samza answered when it put tasks into containers, and Coset's answer beside it.

`python -m tests.samza_containers` prints the totals.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partitioning.model.plan import TaskRef
from partitioning.model.statistics import Locality
from partitioning.planning.groups.built_in import balanced_sticky
from partitioning.planning.groups.grouping import SizedTask

ANSWERS = Path(__file__).parent / "vectors" / "samza"


def cases(name: str) -> list[dict[str, Any]]:
    """The cases of a file of answers."""
    found: list[dict[str, Any]] = json.loads((ANSWERS / name).read_text())["cases"]
    return found


def tasks(names: Sequence[str]) -> list[SizedTask]:
    """Samza's tasks, which have no size."""
    return [SizedTask(TaskRef(name, 0), 0, 0, {}) for name in names]


def by_task(result: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The container of each task."""
    return {name: container for container, names in result.items() for name in names}


@dataclass(frozen=True)
class Compared:
    """One case: tasks moved by Samza and by us, and the sizes of all containers."""

    case: int
    kind: str
    moves: tuple[int, int]
    sizes: tuple[list[int], list[int]]


def resized() -> list[Compared]:
    """Every case with former containers: a move is a task in another container than before, if that is still there."""
    return [
        _resized(case)
        for case in cases("group_by_container_count.json")
        if case["previous"] and "error" not in case["result"]
    ]


def _resized(case: Mapping[str, Any]) -> Compared:
    groups, before = range(case["containerCount"]), {name: int(number) for name, number in case["previous"].items()}
    samza = {name: int(number) for name, number in by_task(case["result"]).items()}
    was = {TaskRef(name, 0): number for name, number in before.items()}
    answer = balanced_sticky(tasks(case["tasks"]), groups, was, Locality()).groups
    ours = {task.stage: group for task, group in answer.items()}
    moves = [
        sum(before.get(name) in groups and before[name] != now for name, now in each.items()) for each in (samza, ours)
    ]
    return Compared(case["id"], case["kind"], (moves[0], moves[1]), (_sizes(samza, groups), _sizes(ours, groups)))


def located() -> list[Compared]:
    """Every case with locations: a move is a task away from where it ran although a processor is there."""
    return [
        _located(case)
        for case in cases("group_by_container_ids.json")
        if case["kind"] != "ids" and "error" not in case["result"]
    ]


def _located(case: Mapping[str, Any]) -> Compared:
    # Samza keeps the first processors by name where there are more than tasks.
    processors = sorted(case["processorLocality"])[: len(case["tasks"])]
    sites = {number: case["processorLocality"][name] for number, name in enumerate(processors)}
    places = {name: place for name, place in case["taskLocality"].items() if place in sites.values()}
    samza = {name: processors.index(processor) for name, processor in by_task(case["result"]).items()}
    locality = Locality(sites, {TaskRef(name, 0): place for name, place in places.items()})
    answer = balanced_sticky(tasks(case["tasks"]), range(len(processors)), {}, locality).groups
    ours = {task.stage: group for task, group in answer.items()}
    moves = [sum(sites[each[name]] != place for name, place in places.items()) for each in (samza, ours)]
    return Compared(
        case["id"],
        case["kind"],
        (moves[0], moves[1]),
        (_sizes(samza, range(len(processors))), _sizes(ours, range(len(processors)))),
    )


def _sizes(answer: Mapping[str, int], groups: Sequence[int]) -> list[int]:
    count = Counter(answer.values())
    return [count[group] for group in groups]


def totals() -> str:
    """What both moved, and how well they balanced, in all cases together."""
    lines = []
    for name, compared in (("resized", resized()), ("located", located())):
        fewer = sum(each.moves[1] < each.moves[0] for each in compared)
        lines.append(f"{name}: {len(compared)} cases, fewer moves than Samza in {fewer}")
        for who, side in (("Samza", 0), ("Coset", 1)):
            moves = sum(each.moves[side] for each in compared)
            heaviest = sum(max(each.sizes[side]) for each in compared)
            spread = max(max(each.sizes[side]) - min(each.sizes[side]) for each in compared)
            lines.append(f"  {who}: {moves} moves, heaviest groups {heaviest} tasks together, spread up to {spread}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(totals())
