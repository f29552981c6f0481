"""Documents: the bytes are the identity, and what is not exactly ours is refused."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from partitioning.documents.document import canonical, decode, digest, encode
from partitioning.documents.document import plain as shown_plain
from partitioning.errors import Refused
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.receipt import Receipt, TaskReceipt
from partitioning.model.tasks import Task
from partitioning.model.verdict import ABANDON, Verdict
from tests.plans import plan_of, tails, tails_found

VERDICT = Verdict("sha256:0", 3, ABANDON, 1, "no longer wanted — «так»", ())
WHERE = "s3://coset/p/verdicts/3.json"


def sealed(plain: dict[str, Any]) -> bytes:
    """Canonical bytes with a digest that is right, whatever they say."""
    return canonical(plain | {"digest": "sha256:" + hashlib.sha256(canonical(plain)).hexdigest()})


def plain(**changes: Any) -> dict[str, Any]:
    read = json.loads(encode(VERDICT))
    del read["digest"]
    return read | changes


def refusal(data: bytes, cls: type[Any] = Verdict) -> str:
    with pytest.raises(Refused) as refused:
        decode(cls, data, WHERE)
    (finding,) = refused.value.findings
    assert finding.where == WHERE
    return finding.what


def test_a_plan_comes_back_as_it_was() -> None:
    plan = plan_of(tails(), tails_found(), scheme="tasks(12)")
    again = decode(Plan, encode(plan), WHERE)
    assert again == plan
    assert digest(again) == digest(plan)


def test_a_plan_is_stored_as_rules_and_exceptions() -> None:
    plan = plan_of(tails(), tails_found(), scheme="tasks(12)")
    stored = json.loads(encode(plan))
    assert stored["stages"][0]["tasks"] == {"count": 12, "exceptions": {}}
    assert stored["streams"][0]["partitions"]["fields"]["end"] == {"first": 250, "step": 0}
    odd = replace(plan.stages[0], tasks=(*plan.stages[0].tasks[:-1], Task(11, {"planes": (1,)})))
    changed = replace(plan, stages=(odd,))
    assert list(json.loads(encode(changed))["stages"][0]["tasks"]["exceptions"]) == ["11"]
    assert decode(Plan, encode(changed), WHERE) == changed


def test_what_people_see_of_a_plan_is_not_drawn_together() -> None:
    plan = plan_of(tails(), tails_found())
    shown = json.loads(json.dumps(shown_plain(plan)))
    assert shown["digest"] == digest(plan)
    assert shown["stages"][0]["tasks"][3]["reads"] == {"flights": [3, 7, 11], "planes": [3, 7]}
    assert [part["end"] for part in shown["streams"][1]["partitions"]] == [100] * 8


def test_a_rule_that_is_written_out_is_refused() -> None:
    stored = json.loads(encode(plan_of(tails(), tails_found())))
    del stored["digest"]
    stored["streams"][0]["partitions"]["fields"]["end"] = [250] * 12
    assert "not in canonical form" in refusal(sealed(stored), Plan)


def test_optional_values_come_back_as_none() -> None:
    receipt = Receipt("sha256:0", 0, 0, (TaskReceipt(TaskRef("a", 0), (), (), None, 2.0),))
    assert decode(Receipt, encode(receipt), WHERE) == receipt


def test_the_bytes_are_canonical_and_the_digest_is_theirs() -> None:
    data = encode(VERDICT)
    assert data == sealed(plain())
    assert digest(VERDICT) == json.loads(data)["digest"]


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


def test_a_document_of_another_kind_or_version_is_refused_by_name() -> None:
    assert "'coset.plan/1', this version reads 'coset.verdict/1'" in refusal(encode(plan_of(tails(), tails_found())))
    assert "'coset.verdict/2'" in refusal(sealed(plain(format="coset.verdict/2")))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"a":1,"a":1}', "a name is there twice"),
        (b'{"digest":"","format":"coset.verdict/1","x":{"a":1,"a":2}}', "a name is there twice"),
        (b'{"digest":"","format":"coset.verdict/1","batch":NaN}', "NaN is no JSON number"),
        (b'{"digest":"","format":"coset.verdict/1","batch":-Infinity}', "-Infinity is no JSON number"),
        (b'{"digest":"","format":"coset.verdict/1","batch":1e999}', "no canonical form"),
        (b'{"digest":"","format":"coset.verdict/1","why":"\\ud800"}', "no canonical form"),
        (b'{"digest":"","format":"coset.verdict/1","why":' + b"[" * 100_000, "is no JSON"),
        (b'{"digest":"","format":"coset.verdict/1","batch":' + b"9" * 5000 + b"}", "is no JSON"),
        (b"\xff\xfe", "is no JSON"),
        (b"", "is no JSON"),
        (b"[]", "has no format and digest"),
        (b"null", "has no format and digest"),
        (b'{"format":"coset.verdict/1"}', "has no format and digest"),
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
        {"files": {}},
        {"files": [{"table": "t"}]},
        {"files": [1]},
        {"why": ["a"]},
    ],
)
def test_a_field_that_is_unknown_or_of_another_type_is_refused_even_with_a_right_digest(
    changes: dict[str, Any],
) -> None:
    assert "does not fit coset.verdict/1" in refusal(sealed(plain(**changes)))


def test_a_field_that_is_missing_is_refused_even_with_a_right_digest() -> None:
    short = plain()
    del short["why"]
    assert "does not fit" in refusal(sealed(short))


def test_the_same_content_in_other_bytes_is_refused() -> None:
    read = json.loads(encode(VERDICT))
    assert "canonical form" in refusal(json.dumps(read, sort_keys=True).encode())
    assert "canonical form" in refusal(encode(VERDICT) + b"\n")
    assert "canonical form" in refusal(encode(VERDICT).decode().encode("utf-16"))


def test_what_json_cannot_hold_is_never_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical({"x": float("nan")})
