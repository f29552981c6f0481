"""Documents: the bytes are the identity, what is not exactly ours is refused, and what is drawn together comes back."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioning.documents.document import canonical, decode, digest, encode
from partitioning.documents.document import plain as shown_plain
from partitioning.documents.plan_form import from_columns, to_columns
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.receipt import Offender, PartitionReceipt, Receipt, TaskReceipt, Violation
from partitioning.model.takes import Task
from partitioning.model.verdict import Decision, GivenUp, Verdict
from partitioning.values import Value, replace
from tests.plans import plan_of, tails, tails_found
from tests.refused import finding_of

VERDICT = Verdict("sha256:0", 3, Decision.ABANDON, 1, GivenUp("no longer wanted — «так»"), ())
PARTITION = PartitionReceipt(
    "a", 0, 0, 1, 1, 0, 0, 1, "0" * 16, 0, 0, 0, 0, (Offender(Violation.NULL_KEY, 0, 0, None),), ()
)
WHERE = "s3://coset/p/verdicts/3.json"


def sealed(plain: dict[str, Any]) -> bytes:
    """Canonical bytes with a digest that is right, whatever they say."""
    return canonical(plain | {"digest": "sha256:" + hashlib.sha256(canonical(plain)).hexdigest()})


def plain(**changes: Any) -> dict[str, Any]:
    read = json.loads(encode(VERDICT))
    del read["digest"]
    return read | changes


def refusal(data: bytes, cls: type[Any] = Verdict) -> str:
    finding = finding_of(decode, cls, data, WHERE)
    assert finding.where == WHERE
    return finding.what


def test_a_plan_comes_back_as_it_was_and_people_see_it_whole() -> None:
    plan = plan_of(tails(), tails_found(), scheme="tasks(12)")
    again = decode(Plan, encode(plan), WHERE)
    assert again == plan
    assert digest(again) == digest(plan)
    plan = plan_of(tails(), tails_found())
    shown = json.loads(json.dumps(shown_plain(plan)))
    assert shown["digest"] == digest(plan)
    assert shown["stages"][0]["tasks"][3]["reads"] == {"flights": [3, 7, 11], "planes": [3, 7]}
    assert [part["end"] for part in shown["streams"][1]["partitions"]] == [100] * 8


def test_a_plan_is_stored_as_rules_and_exceptions() -> None:
    plan = plan_of(tails(), tails_found(), scheme="tasks(12)")
    stored = json.loads(encode(plan))
    assert stored["stages"][0]["tasks"] == {"count": 12, "exceptions": {}}
    assert stored["streams"][0]["partitions"]["fields"]["end"] == {"first": 250, "step": 0}
    odd = replace(plan.stages[0], tasks=(*plan.stages[0].tasks[:-1], Task(11, {"planes": (1,)})))
    changed = replace(plan, stages=(odd,))
    assert list(json.loads(encode(changed))["stages"][0]["tasks"]["exceptions"]) == ["11"]
    assert decode(Plan, encode(changed), WHERE) == changed


def test_a_rule_that_is_written_out_is_refused() -> None:
    stored = json.loads(encode(plan_of(tails(), tails_found())))
    del stored["digest"]
    stored["streams"][0]["partitions"]["fields"]["end"] = [250] * 12
    assert "not in canonical form" in refusal(sealed(stored), Plan)


def test_optional_values_come_back_as_none() -> None:
    assert PARTITION.offenders[0].key is None
    receipt = Receipt("sha256:0", 0, 0, (TaskReceipt(TaskRef("a", 0), (PARTITION,), (), 2000),))
    assert decode(Receipt, encode(receipt), WHERE) == receipt


def test_bytes_are_canonical_and_the_digest_is_theirs_and_other_bytes_are_refused() -> None:
    data = encode(VERDICT)
    assert data == sealed(plain())
    assert digest(VERDICT) == json.loads(data)["digest"]
    read = json.loads(encode(VERDICT))
    assert "canonical form" in refusal(json.dumps(read, sort_keys=True).encode())
    assert "canonical form" in refusal(encode(VERDICT) + b"\n")
    assert "is no JSON" in refusal(encode(VERDICT).decode().encode("utf-16"))
    assert canonical({"x": float("nan")}) == b'{"x":null}'


def test_any_flipped_bit_is_refused() -> None:
    data = encode(VERDICT)
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            refusal(bytes(flipped))


def test_any_truncation_is_refused() -> None:
    data = encode(VERDICT)
    for length in range(len(data)):
        refusal(data[:length])


def test_a_document_of_another_kind_is_refused_by_name() -> None:
    assert "is 'coset.plan/3', not 'coset.verdict/4'" in refusal(encode(plan_of(tails(), tails_found())))
    for form in (
        "coset.verdict/0",
        "coset.verdict/03",
        "coset.verdict/-1",
        "coset.verdict/",
        "coset.verdict",
        "",
        3,
        None,
    ):
        assert f"is {form!r}, not 'coset.verdict/4'" in refusal(sealed(plain(format=form)))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"a":1,"a":1}', "has no format and digest"),
        (b'{"digest":"","format":"coset.verdict/4","x":{"a":1,"a":2}}', "has digest sha256:"),
        (b'{"digest":"","format":"coset.verdict/4","batch":NaN}', "is no JSON"),
        (b'{"digest":"","format":"coset.verdict/4","batch":-Infinity}', "is no JSON"),
        (b'{"digest":"","format":"coset.verdict/4","batch":1e999}', "is no JSON"),
        (b'{"digest":"","format":"coset.verdict/4","why":"\\ud800"}', "is no JSON"),
        (b'{"digest":"","format":"coset.verdict/4","why":' + b"[" * 100_000, "is no JSON"),
        (b'{"digest":"","format":"coset.verdict/4","batch":' + b"9" * 5000 + b"}", "is no JSON"),
        (b"\xff\xfe", "is no JSON"),
        (b"", "is no JSON"),
        (b"[]", "has no format and digest"),
        (b"null", "has no format and digest"),
        (b'{"format":"coset.verdict/4"}', "has no format and digest"),
    ],
)
def test_what_is_no_document_is_refused(data: bytes, said: str) -> None:
    assert said in refusal(data)


@pytest.mark.parametrize(
    "changes",
    [
        {"more": 1},
        {"batch": "3"},
        {"batch": 3.0},
        {"batch": True},
        {"batch": None},
        {"artefacts": {}},
        {"artefacts": [{"name": "t"}]},
        {"artefacts": [1]},
        {"why": ["a"]},
    ],
)
def test_a_field_that_is_unknown_or_of_another_type_is_refused_even_with_a_right_digest(
    changes: dict[str, Any],
) -> None:
    assert "does not fit coset.verdict/4" in refusal(sealed(plain(**changes)))


def test_a_field_that_is_missing_there_twice_or_of_no_kind_is_refused_even_with_a_right_digest() -> None:
    short = plain()
    del short["why"]
    assert "does not fit" in refusal(sealed(short))
    assert "canonical form" in refusal(encode(VERDICT).replace(b'"batch":3', b'"batch":3,"batch":3'))
    assert "Invalid value 'on a whim'" in refusal(sealed(plain(why={"reason": "on a whim", "words": "so"})))
    assert "Invalid enum value 'maybe'" in refusal(sealed(plain(decision="maybe")))


# ---- unions, words and columns


def spoiled(*path: str | int, value: object) -> bytes:
    """A plan's bytes with a right digest in which one value is another."""
    stored = json.loads(encode(plan_of(tails(), tails_found())))
    del stored["digest"]
    *way, last = path
    inner = stored
    for step in way:
        inner = inner[step]
    assert last in inner or isinstance(last, int)
    inner[last] = value
    return sealed(stored)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("stages", 0, "inputs", 0, "kind"), "kafka", "Invalid value 'kafka' - at `$[0].kind`"),
        (("stages", 0, "inputs", 0, "kind"), 7, "Expected `str`"),
        (("stages", 0, "inputs", 0), {"name": "flights"}, "missing required field `kind`"),
        (("stages", 0, "why", "reason"), "on a whim", "Invalid value 'on a whim'"),
    ],
)
def test_a_kind_that_is_none_is_refused(path: tuple[str | int, ...], value: object, said: str) -> None:
    what = refusal(spoiled(*path, value=value), Plan)
    assert "does not fit coset.plan/3" in what
    assert said in what


@pytest.mark.parametrize(
    ("path", "word"),
    [
        (("streams", 0, "declared", "null_keys"), "keep"),
        (("streams", 0, "declared", "key_format"), "avro"),
        (("stages", 0, "steps", 0, "op"), "explode"),
        (("stages", 0, "scheme", "kind"), "sideways"),
    ],
)
def test_a_word_that_is_none_of_its_kind_is_refused(path: tuple[str | int, ...], word: str) -> None:
    what = refusal(spoiled(*path, value=word), Plan)
    assert f"does not fit coset.plan/3: Invalid enum value {word!r}" in what


COLUMNS = ("streams", 0, "partitions", "fields")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((*COLUMNS, "end"), {"first": "250", "step": 0}),
        ((*COLUMNS, "end"), {"first": 250.0, "step": 0}),
        ((*COLUMNS, "end"), {"first": True, "step": 0}),
        ((*COLUMNS, "end"), ["250"] * 12),
        ((*COLUMNS, "end"), [None] * 12),
        ((*COLUMNS, "end"), 250),
        ((*COLUMNS, "end"), {"prefix": "250", "rest": [""] * 12}),
        ((*COLUMNS, "files"), []),
        ((*COLUMNS, "files", "rows", "fields", "path"), [1] * 36),
        ((*COLUMNS, "files", "rows", "fields", "path"), {"first": 0, "step": 1}),
        ((*COLUMNS, "files", "rows", "fields", "path"), {"prefix": 1, "rest": [""] * 36}),
        ((*COLUMNS, "files", "counts"), {"first": 2, "step": 0}),
        (("streams", 0, "partitions", "count"), "12"),
        (("streams", 0, "partitions"), []),
        (("stages", 0, "tasks", "count"), "4"),
        (("stages", 0, "tasks", "exceptions"), {"one": {}}),
        (("stages", 0, "tasks", "exceptions"), {"1": {"task": "1", "reads": {}}}),
    ],
)
def test_values_of_another_type_inside_what_is_drawn_together_are_refused(
    path: tuple[str | int, ...], value: object
) -> None:
    assert "does not fit coset.plan/3" in refusal(spoiled(*path, value=value), Plan)


@pytest.mark.parametrize(
    "path",
    [
        ("streams", 0),
        ("streams", 0, "declared"),
        ("streams", 0, "partitions"),
        COLUMNS,
        ("stages", 0),
        ("stages", 0, "inputs", 0),
        ("stages", 0, "inputs", 0, "placement"),
        ("stages", 0, "why"),
        ("stages", 0, "tasks"),
        ("groups", 0),
    ],
)
def test_a_field_that_is_unknown_is_refused_wherever_it_is(path: tuple[str | int, ...]) -> None:
    stored = json.loads(encode(plan_of(tails(), tails_found())))
    for step in path:
        stored = stored[step]
    refusal(spoiled(*path, value=stored | {"more": 1}), Plan)


# Each kind is a new one, with parts that are new as well: so what it is decoded by is worked out as often.
MET_AT_ONCE = """
import sys
from threading import Barrier, Thread
from msgspec import defstruct
from partitioning.documents.document import decode, encode
from partitioning.values import Document, Value

sys.setswitchinterval(1e-6)
for _ in range(100):
    parts = [defstruct(f"Part{n}", [("a", int, 1)], bases=(Value,), frozen=True) for n in range(20)]
    fields = [(part.__name__.lower(), part, part()) for part in parts]
    kind = defstruct("Kind", fields, bases=(Document,), frozen=True, namespace={"FORMAT": "coset.kind/1"})
    data, begin, read = encode(kind()), Barrier(4), []

    def read_at_once():
        begin.wait()
        read.append(decode(kind, data, "a store"))

    threads = [Thread(target=read_at_once) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert read == [kind()] * 4
"""


def test_threads_may_meet_a_kind_of_document_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", MET_AT_ONCE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# ---- columns that are drawn together


class File(Value, frozen=True):
    path: str
    size: int


class Part(Value, frozen=True):
    number: int
    name: str
    end: int
    files: tuple[File, ...]


PARTS = st.builds(
    Part,
    st.integers(0, 5),
    st.text(max_size=2),
    st.integers(),
    st.lists(st.builds(File, st.text(max_size=4), st.integers(0, 3)), max_size=3).map(tuple),
)


@given(st.lists(PARTS, max_size=6).map(tuple))
def test_rows_come_back_as_they_were(rows: tuple[Part, ...]) -> None:
    assert from_columns(Part, to_columns(Part, rows)) == rows


def test_numbers_in_a_row_and_common_beginnings_are_stored_once() -> None:
    rows = [Part(n, str(n), 7, (File(f"topics/flights/{n}.parquet", 10 * n),)) for n in range(1000)]
    fields = to_columns(Part, rows)["fields"]
    assert fields["number"] == {"first": 0, "step": 1}
    assert fields["end"] == {"first": 7, "step": 0}
    assert fields["files"]["counts"] == {"first": 1, "step": 0}
    assert fields["files"]["rows"]["fields"]["size"] == {"first": 0, "step": 10}
    assert fields["files"]["rows"]["fields"]["path"]["prefix"] == "topics/flights/"


GOOD = to_columns(Part, [Part(0, "a", 1, ()), Part(4, "ab", 5, (File("a", 1),))])


@pytest.mark.parametrize(
    "spoiled",
    [
        GOOD | {"count": 3},
        GOOD | {"count": "2"},
        {"count": 2, "fields": GOOD["fields"] | {"number": {"prefix": "1", "rest": ["", "0"]}}},
        {"count": 2, "fields": GOOD["fields"] | {"name": {"first": 0, "step": 1}}},
        GOOD | {"more": 1},
        {"count": 2, "fields": {name: GOOD["fields"][name] for name in ("number", "name", "end")}},
        {"count": 2, "fields": GOOD["fields"] | {"number": {"first": 0}}},
        {"count": 2, "fields": GOOD["fields"] | {"number": {"first": 0, "step": "1"}}},
        {"count": 2, "fields": GOOD["fields"] | {"number": [1]}},
    ],
)
def test_what_does_not_fit_is_an_error(spoiled: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError, KeyError)):
        from_columns(Part, spoiled)
