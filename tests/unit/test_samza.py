"""Samza's groupers, groupings, key buckets and checkpoints: answers and faults of the real classes beside Coset's."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import lcm
from typing import Any

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.words import KeyFormatName
from partitioning.cosets import assign
from partitioning.documents.document import digest
from partitioning.errors import Refused
from partitioning.hashes import hash_of, java_hash, placement_hash
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.schemes import Scheme
from partitioning.model.statistics import Locality
from partitioning.planning.groups.built_in import balanced_sticky
from partitioning.planning.groups.grouping import Grouped, SizedTask, grouped
from partitioning.planning.groups.packing import Balance
from partitioning.samza.checkpoints import (
    Checkpoint,
    SlotClaims,
    bucket_of,
    claims_of,
    read_checkpoints,
    starts,
)
from partitioning.samza.groupers import (
    ELASTIC_FINAL,
    RELEASE,
    Grouping,
    SystemPartition,
    group_by_container_count,
    group_by_container_ids,
    group_by_partition,
    group_by_stream_partition,
    key_bucket,
    previous_partition,
)
from tests.plans import arrived, plan_of, takers
from tests.refused import finding_of
from tests.samza import answers

# ---- groupers


BY_COUNT = answers("group_by_container_count")
BY_IDS, BY_PLACES = (
    [case for case in answers("group_by_container_ids") if (case["kind"] == "ids") is ids] for ids in (True, False)
)


def tasks(names: Sequence[str]) -> list[SizedTask]:
    """Samza's tasks, which have no size."""
    return [SizedTask(TaskRef(name, 0), 0, 0, {}) for name in names]


def containers(answer: Grouped) -> dict[int, list[str]]:
    """The names of the tasks of each group, sorted as text, as Samza's answers are."""
    found: dict[int, list[str]] = {}
    for task, group in answer.groups.items():
        found.setdefault(group, []).append(task.stage)
    return {group: sorted(names) for group, names in found.items()}


def by_count(case: Mapping[str, Any]) -> Grouped:
    before = {TaskRef(name, 0): int(container) for name, container in case["previous"].items()}
    return group_by_container_count(tasks(case["tasks"]), range(case["containerCount"]), before, Locality())


def named(case: Mapping[str, Any]) -> str:
    return f"{case['id']}-{case['kind']}"


@pytest.mark.parametrize("case", BY_COUNT, ids=named)
def test_group_by_container_count_answers_as_samza(case: Mapping[str, Any]) -> None:
    result = case["result"]
    if result.get("error") == "NullPointerException":
        # The one deviation: as many tasks as before with other names make Samza fail; they are grouped anew.
        assert by_count(case) == by_count({**case, "previous": {}})
    elif "error" in result:
        with pytest.raises(Refused):
            by_count(case)
    else:
        assert containers(by_count(case)) == {int(number): names for number, names in result.items()}


@pytest.mark.parametrize("case", BY_IDS, ids=named)
def test_group_by_container_ids_answers_as_samza(case: Mapping[str, Any]) -> None:
    # Groups have numbers: Samza's ids are numbered in the order of their text. It makes up ids if none are given.
    ids = case["result"] if case["containerIds"] is None else case["containerIds"]
    names = sorted(set(ids))
    groups = [names.index(each) for each in ids]
    if "error" in case["result"]:
        with pytest.raises(Refused):
            group_by_container_ids(tasks(case["tasks"]), groups, {}, Locality())
    else:
        answer = group_by_container_ids(tasks(case["tasks"]), groups, {}, Locality())
        assert {names[group]: found for group, found in containers(answer).items()} == case["result"]


def test_as_many_tasks_with_other_names_are_grouped_anew_where_samza_fails() -> None:
    before = {TaskRef(f"old-{number}", 0): number % 3 for number in range(6)}
    answer = group_by_container_count(tasks([f"new-{number}" for number in range(6)]), range(2), before, Locality())
    assert containers(answer) == {0: ["new-0", "new-2", "new-4"], 1: ["new-1", "new-3", "new-5"]}


@pytest.mark.parametrize("name", ["group_by_container_count", "group_by_container_ids"])
def test_a_pipeline_names_them_by_import_path(name: str) -> None:
    some = [SizedTask(TaskRef("views", number), 0, 0, {}) for number in range(12)]
    first = grouped(some, f"partitioning.samza.groupers:{name}", 3).groups[0]
    # By text views/10 and views/11 come before views/2.
    assert [task.task for task in first.tasks] == [0, 4, 7, 11]


Answer = dict[str, int]


def resized(case: Mapping[str, Any]) -> tuple[Answer, Answer, Callable[[Answer], int], int]:
    """The group of each task by Samza and by us, how many moves an answer is, and how many groups there are: a move is
    a task in another container than before, if that is still there."""
    count, before = case["containerCount"], {name: int(number) for name, number in case["previous"].items()}
    samza = {name: int(number) for number, names in case["result"].items() for name in names}
    was = {TaskRef(name, 0): number for name, number in before.items()}
    ours = balanced_sticky(tasks(case["tasks"]), range(count), was, Locality()).groups

    def moves(answer: Answer) -> int:
        return sum(before.get(name, count) < count and before[name] != now for name, now in answer.items())

    return samza, {task.stage: group for task, group in ours.items()}, moves, count


def located(case: Mapping[str, Any]) -> tuple[Answer, Answer, Callable[[Answer], int], int]:
    """The same of tasks with locations: a move is a task away from where it ran although a processor is there."""
    # Samza keeps the first processors by name where there are more than tasks.
    processors = sorted(case["processorLocality"])[: len(case["tasks"])]
    sites = {number: case["processorLocality"][name] for number, name in enumerate(processors)}
    places = {name: place for name, place in case["taskLocality"].items() if place in sites.values()}
    samza = {name: processors.index(processor) for processor, names in case["result"].items() for name in names}
    locality = Locality(sites, {TaskRef(name, 0): place for name, place in places.items()})
    ours = balanced_sticky(tasks(case["tasks"]), range(len(processors)), {}, locality).groups

    def moves(answer: Answer) -> int:
        return sum(sites[answer[name]] != place for name, place in places.items())

    return samza, {task.stage: group for task, group in ours.items()}, moves, len(processors)


@pytest.mark.parametrize(
    ("compared", "cases"),
    [(resized, [case for case in BY_COUNT if case["previous"]]), (located, BY_PLACES)],
    ids=["resized", "located"],
)
def test_balanced_sticky_moves_less_than_samza_at_the_same_balance(compared: Any, cases: list[dict[str, Any]]) -> None:
    moved, heaviest = Counter[str](), Counter[str]()
    for case in (case for case in cases if "error" not in case["result"]):
        samza, ours, moves, count = compared(case)
        balance = Balance.of([1] * len(ours), count)
        sizes = [[Counter(answer.values())[group] for group in range(count)] for answer in (samza, ours)]
        theirs, own = (all(balance.least <= size <= balance.most for size in answer) for answer in sizes)
        assert own, case["id"]
        # With as many containers as before Samza leaves any imbalance as it is.
        assert moves(ours) <= moves(samza) if theirs else (case["kind"], moves(samza)) == ("prior-custom", 0), case[
            "id"
        ]
        moved += Counter(samza=moves(samza), ours=moves(ours))
        heaviest += Counter(samza=max(sizes[0]), ours=max(sizes[1]))
    assert moved["ours"] < moved["samza"]
    assert heaviest["ours"] <= heaviest["samza"]


# ---- groupings


def as_samza_wrote(grouping: Grouping) -> dict[str, list[str]]:
    return {task: [as_text(part) for part in parts] for task, parts in grouping.items()}


def as_text(part: SystemPartition) -> str:
    return "/".join(
        map(str, (part.system, part.stream, part.partition, *([] if part.bucket is None else [part.bucket])))
    )


@pytest.mark.parametrize(
    ("name", "group"), [("group_by_partition", group_by_partition), ("group_by_ssp", group_by_stream_partition)]
)
def test_groupings_are_samzas_in_every_case_of_both_builds(name: str, group: Any) -> None:
    for case in answers(name):
        inputs = {stream.replace("/", "."): count for stream, count in case["inputs"].items()}
        for build, expected in (
            (RELEASE, case["result"]),
            (ELASTIC_FINAL, case.get("resultElasticFinal", case["result"])),
        ):
            asked = {"broadcast": case["broadcast"], "factor": case["elasticityFactor"], "build": build}
            if "error" in expected:
                with pytest.raises(Refused):
                    group(inputs, **asked)
            elif set(expected) == {"tasks"}:  # Of a large answer only the number of tasks was kept.
                assert len(group(inputs, **asked)) == expected["tasks"]
            else:
                assert as_samza_wrote(group(inputs, **asked)) == expected, (case["id"], build)
                assert list(group(inputs, **asked)) == sorted(expected), "tasks are in Samza's order"


def test_the_mapper_is_samzas_in_every_case_but_of_no_partitions_where_samza_divides_by_zero() -> None:
    for case in answers("hash_ssp_mapper"):
        counts = (case["partition"], case["previousPartitionCount"], case["currentPartitionCount"])
        if isinstance(case["previousPartition"], int):
            assert previous_partition(*counts) == case["previousPartition"], case["id"]
        else:
            with pytest.raises(Refused, match="no multiple"):
                previous_partition(*counts)
    with pytest.raises(Refused):
        previous_partition(0, 0, 4)


def test_everything_wrong_with_a_grouping_is_found_at_once() -> None:
    with pytest.raises(Refused) as refused:
        group_by_partition({"views": 1}, broadcast="kafka.views, kafka.a#[1-2", factor=0, build="1.8.0")
    assert [finding.where for finding in refused.value.findings] == [
        "factor", "build", "inputs", "broadcast", "broadcast",
    ]  # fmt: skip


# ---- key buckets


# Java's type of a key: the format it has here, and how the answers write it.
TYPES: dict[str, tuple[str, Callable[[Any], object]]] = {
    "String": ("string", str),
    "Integer": ("int", int),
    "Long": ("long", int),
    "Double": ("double", float),
    "Boolean": ("string", bool),
    "null": ("string", lambda _: None),
}


def test_hashes_and_buckets_are_samzas_in_every_case_of_both_builds() -> None:
    for case in answers("key_buckets"):
        key_format, read = TYPES[case["type"]]
        key, offset = read(case["key"]), case["offset"]
        if case["type"] != "Boolean":
            assert java_hash(offset if key is None else key, key_format) == case["javaHash"], case
        for build, expected in ((RELEASE, case["bucket"]), (ELASTIC_FINAL, case["bucketElasticFinal"])):
            found = {
                factor: key_bucket(key, offset, int(factor), key_format=key_format, build=build) for factor in expected
            }
            assert found == expected, (case, build)


def test_buckets_of_records_without_key_and_offset_and_of_booleans_are_those_of_java() -> None:
    assert key_bucket(None, None, 4) == 0
    assert key_bucket("user-1", "0", 1) == -1
    assert [key_bucket(key, "0", 10_000) for key in (True, False)] == [1231, 1237]


@pytest.mark.parametrize(("factor", "build"), [(0, RELEASE), (-1, ELASTIC_FINAL), (2, "1.8.0")])
def test_a_factor_or_build_that_does_not_exist_is_refused(factor: int, build: str) -> None:
    with pytest.raises(Refused):
        key_bucket("user-1", "0", factor, build=build)


@pytest.mark.parametrize(
    ("key", "key_format"), [("polygenelubricants", "string"), (-(2**31), "int"), (2**31, "long"), (-0.0, "double")]
)
def test_a_key_whose_hash_java_cannot_make_positive_has_no_task_in_samza_but_one_here(
    key: object, key_format: KeyFormatName
) -> None:
    assert java_hash(key, key_format) == -(2**31)
    assert key_bucket(key, "0", 3, key_format=key_format) < 0
    assert all(key_bucket(key, "0", factor, key_format=key_format, build=ELASTIC_FINAL) < 0 for factor in range(3, 17))
    tasks = assign([("views", 8)], Scheme.parse("elastic(3)")).tasks
    for hash in ("murmur2", "java"):
        h = hash_of(hash, "here")(key, key_format)
        assert takers(tasks, "views", h % 8, h) == [h % 24]


def test_the_placement_java_gives_the_releases_buckets_and_nought_for_the_negative_ones() -> None:
    h = hash_of("java", "here")
    for case in answers("key_buckets"):
        key_format, read = TYPES[case["type"]]
        if case["type"] in ("null", "Boolean"):
            continue
        for factor, expected in case["bucket"].items():
            ours = h(read(case["key"]), key_format) % int(factor)
            assert ours == (0 if case["javaHash"] == -(2**31) else expected), case


# What Samza does with a stream partition that it finds no checkpoint for: by default it starts at its end.
UPCOMING = 100


def checkpoints(stored: dict[str, dict[str, str] | None]) -> list[Checkpoint]:
    """Checkpoints as the answers write them; one that is null or empty says nothing."""
    return [
        Checkpoint(task, system, stream, int(partition), int(offset))
        for task, offsets in stored.items()
        for name, offset in (offsets or {}).items()
        for system, stream, partition in [name.split("/")]
    ]


def least_done(found: Sequence[Checkpoint], task: tuple[int, int], where: str) -> int:
    """How far all of a task's keys are done, slot by slot: the oracle."""
    done = [
        (bucket_of(each.task), each.offset + 1)
        for each in found
        if f"{each.system}/{each.stream}/{each.partition}" == where
    ]
    slots = lcm(task[1], *(factor for (_, factor), _ in done))
    return min(
        max((offset for (bucket, factor), offset in done if slot % factor == bucket), default=0)
        for slot in range(slots)
        if slot % task[1] == task[0]
    )


def test_a_task_starts_where_the_slot_that_is_furthest_behind_does_and_loses_nothing() -> None:
    """Samza resumes beyond that in some cases (records are lost), before it in others (more is replayed)."""
    outcome: Counter[str] = Counter()
    for case in answers("elastic_checkpoints"):
        found, task = checkpoints(case["checkpoints"]), bucket_of(case["task"])
        for where in case["inputs"]:
            system, stream, partition = where.split("/")
            ours = claims_of(found, system, stream, int(partition)).start(*task, beginning=0)
            assert ours == least_done(found, task, where), case
            theirs = int(case["result"][where]) + 1 if where in case["result"] else UPCOMING
            outcome["the same" if ours == theirs else "Samza loses" if theirs > ours else "Samza replays more"] += 1
    assert outcome["the same"]
    assert outcome["Samza loses"]


def whose(task: str) -> str | None:
    """Kind, stream and partition of a task, by its name."""
    match = re.match(r"Partition \d+|SystemStreamPartition \[[^,]+, [^,]+, \d+", task)
    return match[0] if match else None


def test_a_claim_counts_for_those_tasks_alone_all_of_whose_keys_it_covers() -> None:
    """Samza takes any other factor's task for an ancestor, although 2 does not divide 3: those are the losses."""
    wrong = 0
    for case in answers("elastic_lineage"):
        if whose(case["task"]) is None:
            assert (case["ancestors"], case["descendants"]) == ([], [])
            continue
        bucket, factor = bucket_of(case["task"])
        for other in (each for each in answers_universe() if whose(each) == whose(case["task"])):
            claims = SlotClaims().claim(*bucket_of(other), 10)
            covers = claims.start(bucket, factor, beginning=0) == 10
            ancestor = other in case["ancestors"]
            if factor % bucket_of(other)[1] == 0:
                assert covers is ancestor, (case["task"], other)
            else:
                assert not covers, (case["task"], other)
                wrong += ancestor
    assert wrong


def answers_universe() -> list[str]:
    """All tasks that are named by some case."""
    return sorted({name for case in answers("elastic_lineage") for name in [case["task"], *case["descendants"]]})


def names_of(parts: dict[str, Any]) -> set[str]:
    """The names that Samza's groupers give to a task of these parts: under a factor, and without one."""
    bucket, factor = parts["keyBucket"], parts["elasticityFactor"]
    if parts["system"]:
        whole = f"{parts['system']}, {parts['stream']}, {parts['partition']}"
        under, without = f"SystemStreamPartition [{whole}, {bucket}]_{factor}", f"SystemStreamPartition [{whole}]"
    else:
        under, without = f"Partition {parts['partition']}_{bucket}_{factor}", f"Partition {parts['partition']}"
    return {under, without} if factor == 1 else {under}


def test_task_names_are_read_as_samza_reads_them_if_its_groupers_make_them_and_refused_otherwise() -> None:
    """Samza also takes names that merely begin so, those of 1.8.0 among them, and guesses the factor 1 for the rest."""
    read = 0
    for case in answers("elastic_task_names"):
        name, parts = case["taskName"], case["parts"]
        if "error" not in parts and name in names_of(parts) and parts["keyBucket"] < parts["elasticityFactor"]:
            assert bucket_of(name) == (parts["keyBucket"], parts["elasticityFactor"]), name
            read += 1
        else:
            with pytest.raises(Refused, match="does not say which keys"):
                bucket_of(name)
    assert read


def test_a_start_up_never_begins_beyond_what_is_done_as_samzas_does() -> None:
    later = 0
    for case in answers("elastic_offset_manager"):
        found = checkpoints({task: {"kafka/views/0": offset} for task, offset in case["checkpoints"].items()})
        if any(re.fullmatch(r"Partition \d+ \d+", each.task) for each in found):
            with pytest.raises(Refused, match="does not say which keys"):
                starts(found, "kafka", "views", [0])
            continue
        for task, theirs in case["startingOffsets"].items():
            try:
                own = bucket_of(task)
            except Refused:  # A name of 1.8.0: its keys are not known, so they start at the beginning.
                assert re.fullmatch(r"Partition \d+ \d+", task)
                continue
            ours = claims_of(found, "kafka", "views", 0).start(*own, beginning=0)
            assert ours == least_done(found, own, "kafka/views/0")
            later += int(theirs) > ours
    assert later


# What Samza 1.8.0 checkpoints under a factor is empty, so that a plain restart begins at the default offset.
LOSES_ITS_CHECKPOINT = ("release",)


def test_a_plain_restart_goes_on_where_it_stopped_under_any_factor() -> None:
    for case in answers("elastic_restart"):
        factor = case["elasticityFactor"]
        claims = SlotClaims()
        for task in range(factor):
            claims = claims.claim(task, factor, 41 + task)
        ours = [claims.start(task, factor, beginning=0) for task in range(factor)]
        assert ours == [41 + task for task in range(factor)]
        theirs = [int(offset) for _, offset in sorted(case["startingOffsetsAfterRestart"].items())]
        lost = case["build"] in LOSES_ITS_CHECKPOINT and factor > 1
        assert (theirs == ours) is not lost, case


def by_samzas_slot(key: str) -> int:
    """The slot of a key that the last elastic build deals to its buckets, 31 of them."""
    return key_bucket(key, None, 31, build=ELASTIC_FINAL)


def replayed(case: dict[str, Any], h: Any) -> tuple[int, int]:
    """Lost and replayed records if each task stops where it did in Samza, and claims are kept by slot."""
    keys, claims = case["keys"], SlotClaims()
    times = [0] * len(keys)
    lost = set()
    for generation, factor in zip(case["generations"], case["history"], strict=True):
        stopped = {bucket_of(task): int(offset) for task, offset in generation["committed"].items()}
        ends = stopped if generation is not case["generations"][-1] else {(t, factor): len(keys) for t in range(factor)}
        for (task, count), last in ends.items():
            before = claims
            for offset in range(before.start(task, count, beginning=0), min(last + 1, len(keys))):
                if h(keys[offset]) % count == task and not before.holds(h(keys[offset]), offset):
                    times[offset] += 1
            claims = claims.claim(task, count, last + 1)
        lost |= {o for o, key in enumerate(keys) if not times[o] and claims.holds(h(key), o)}
    assert all(times), "the last tasks read to the end"
    return len(lost), sum(count - 1 for count in times)


@pytest.mark.parametrize("h", [by_samzas_slot, placement_hash], ids=["Samza's slots", "placement hash"])
def test_no_record_is_lost_or_replayed_over_any_history_of_factors(h: Any) -> None:
    cases = answers("elastic_histories")
    lost = sum(len(generation["lostOffsets"]) for case in cases for generation in case["generations"])
    again = sum(generation["replayed"] for case in cases for generation in case["generations"])
    ours = [replayed(case, h) for case in cases]
    assert ours == [(0, 0)] * len(cases)
    assert lost
    assert again


def test_two_tasks_that_processed_the_same_keys_are_refused() -> None:
    found = [Checkpoint(f"Partition {task}", "kafka", "rates", 0, offset) for task, offset in enumerate([40, 7])]
    with pytest.raises(Refused, match="'Partition 0' and 'Partition 1' both processed rates-0"):
        starts(found, "kafka", "rates", [0])


def test_what_the_checkpoint_tool_prints_is_read_and_any_other_line_is_refused() -> None:
    text = "# of job views\n\ntasknames.Partition 0_1_2.systems.kafka.streams.views.eu.partitions.12=41\n"
    assert read_checkpoints(text, "offsets") == (Checkpoint("Partition 0_1_2", "kafka", "views.eu", 12, 41),)
    finding = finding_of(read_checkpoints, text + "tasknames.Partition 0=41\nviews", "offsets")
    assert [each.where for each in finding.places] == ["line 4 of offsets", "line 5 of offsets"]


PARTITIONS = 4
KEYS = [f"N{number}" for number in range(60)]


def views() -> Pipeline:
    """Views counted by key: a keyed stage over one stream."""
    pipeline = Pipeline("views_counted", source="s3://landing/topics")
    pipeline.stream("views", key="tailnum", partitions=PARTITIONS).aggregate("count(*) AS views").write("views_counted")
    return pipeline


def log(rounds: int) -> list[list[str]]:
    """The keys of each partition's records by offset, as producers put them there: every key so many times."""
    return [[key for key in KEYS if placement_hash(key) % PARTITIONS == p] * rounds for p in range(PARTITIONS)]


def planned(schemes: Sequence[str], *, unpublished: Sequence[int] = ()) -> list[Plan]:
    """One batch under each scheme, five records of each partition in each but the last, which takes the rest."""
    plans: list[Plan] = []
    published: Plan | None = None
    for batch, scheme in enumerate(schemes):
        last = batch == len(schemes) - 1
        plan = plan_of(
            views(),
            [arrived("views", [len(keys) for keys in log(2)])],
            batch=batch,
            parent=digest(plans[-1]) if plans else None,
            published=published,
            scheme=scheme,
            limit=None if last else 5,
        )
        plans.append(plan)
        published = published if batch in unpublished else plan
    return plans


def taken(plan: Plan) -> dict[tuple[int, int], list[int]]:
    """The tasks that take each record of the batch, by partition and offset: all tasks, one by one."""
    (stage,) = plan.stages
    hashes = [[placement_hash(key) for key in keys] for keys in log(2)]
    return {
        (number, offset): takers(stage.tasks, "views", number, hashes[number][offset])
        for number in range(PARTITIONS)
        for span in [plan.stream("views").range(number)]
        for offset in range(span.start, span.end)
    }


def expect_every_record_once(published: Sequence[Plan]) -> None:
    """Over the published batches no record is left out or read twice, and in each a key's records meet in one task."""
    times: Counter[tuple[int, int]] = Counter()
    for plan in published:
        met: defaultdict[str, set[int]] = defaultdict(set)
        for (partition, offset), takes in taken(plan).items():
            times[partition, offset] += len(takes)
            met[log(2)[partition][offset]].update(takes)
        assert {len(tasks) for tasks in met.values()} == {1}
    assert times == {(p, offset): 1 for p, keys in enumerate(log(2)) for offset in range(len(keys))}


@pytest.mark.parametrize(
    ("schemes", "unpublished"),
    [
        # Samza skips 42 to 99 at the first scale-up; after a scale-down bucket 1, which was never read, stays so.
        (["elastic(1)", "elastic(2)"], []),
        (["elastic(1)", "elastic(2)", "elastic(1)"], [1]),
        # Of bucket 1 of 2, done to 20 only, it takes a half for done; and 1.8.0 begins at the end after any restart.
        (["elastic(2)", "elastic(3)"], []),
        (["elastic(2)", "elastic(2)"], []),
        (["elastic(2)", "tasks(3)", "tasks(1)"], []),
        # The histories that Samza was taken through, which lost and replayed records there, and one more.
        *(
            ([f"elastic({factor})" for factor in factors], [])
            for factors in ((1, 2, 4, 8), (2, 8, 4), (4, 8, 1), (3, 2), (3, 4, 2), (4, 4), (5, 1, 7, 2))
        ),
    ],
)
def test_any_history_of_factors_reads_every_record_once(schemes: list[str], unpublished: list[int]) -> None:
    plans = planned(schemes, unpublished=unpublished)
    factors = [int(scheme.partition("(")[2][:-1]) * (PARTITIONS if "elastic" in scheme else 1) for scheme in schemes]
    assert [plan.stages[0].cosets for plan in plans] == factors
    published = [plan for plan in plans if plan.batch not in unpublished]
    for before, plan in pairwise(plans):
        last = before if before in published else published[0]
        assert [each.start for each in plan.ranges()] == [each.end for each in last.ranges()]
    expect_every_record_once(published)
