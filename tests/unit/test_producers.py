"""What the page on producers says of each client, against what the real clients answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from expectations import ExpectKeysToHashToTheirPartition
from expectations.colocation import FITS
from expectations.key_hashes import hashes_or_why
from partitioning.hashes import hash_of
from partitioning.model.placement import (
    HASHES,
    ICEBERG,
    JAVA,
    KNOWN_HASHES,
    OPAQUE,
    HashName,
    hash_findings,
    keeps_empty,
)
from spark_jobs.engine.hashing import placement_hashes

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "vectors" / "producers"
KEYS = [bytes.fromhex(line).decode() for line in (VECTORS / "keys.txt").read_text().split("\n")[:-1]]


def _rows() -> dict[tuple[str, ...], tuple[str, ...]]:
    """What the page says, by client, version and setting: the hash, and where records without and with an empty key
    lie."""
    lines = (ROOT / "docs" / "guide" / "producers.md").read_text().split("\n")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    said = {tuple(cell.strip("`") for cell in row[:3]): tuple(row[3:]) for row in cells[2:]}
    assert len(said) == len(cells) - 2
    return said


ROWS = _rows()
ANSWERED: dict[tuple[str, ...], dict[str, Any]] = {
    (each["client"], each["version"], each["setting"]): each
    for each in map(json.loads, (VECTORS / "placements.jsonl").read_text().splitlines())
}
PLACED = [who for who in ANSWERED if not ROWS[who][0].startswith(f"`{OPAQUE}`")]


def test_the_page_has_a_row_for_each_client_and_setting_that_was_asked_and_for_no_other() -> None:
    assert sorted(ROWS) == sorted(ANSWERED)


def test_each_hash_has_a_client_on_the_page() -> None:
    # Samza's and Iceberg's are in their own vectors.
    assert {said.strip("`") for said, *_ in ROWS.values()} == {*set(HASHES) - {JAVA, ICEBERG, OPAQUE}, "opaque`, moved"}


@pytest.mark.parametrize("who", ANSWERED, ids=" ".join)
def test_the_page_says_where_each_client_puts_keys(who: tuple[str, ...]) -> None:
    answer, (said, without, empty) = ANSWERED[who], ROWS[who]
    assert without == ("anywhere" if answer["none"] is None else "one")
    assert {"anywhere": True, "hashed": False}[empty] is all(of[0] is None for of in answer["placed"].values())
    if who not in PLACED:
        assert all(place is None for of in answer["placed"].values() for place in of)
        return
    name = said.strip("`")
    assert keeps_empty(name) is (empty == "hashed")
    one_by_one = [hash_of(name, "here")(key, "string") for key in KEYS]
    assert placement_hashes(pa.array(KEYS), "string", name).tolist() == one_by_one
    assert hashes_or_why(KEYS, "string", name, "here") == one_by_one
    first = 0 if keeps_empty(name) else 1
    for count, places in answer["placed"].items():
        assert [h % int(count) for h in one_by_one[first:]] == places[first:]


@pytest.mark.parametrize("who", PLACED, ids=" ".join)
def test_whatever_is_declared_the_refusal_names_the_clients_hash(who: tuple[str, ...]) -> None:
    places = ANSWERED[who]["placed"]["12"]
    # An empty key that may lie anywhere lies here.
    frame = pd.DataFrame({"k": KEYS, "p": [5 if place is None else place for place in places]})
    right = HashName(ROWS[who][0].strip("`"))
    named = "crc32" if right.startswith("crc32") else right
    for declared in set(KNOWN_HASHES) - {right, named, ICEBERG}:
        assert not any(hash_findings(declared, "string", "here"))
        expectation = ExpectKeysToHashToTheirPartition(
            key_column="k", partition_column="p", partitions=12, hash=declared
        )
        assert expectation.answer("keys", frame).result["details"][FITS] == named
