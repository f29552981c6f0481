"""Who can write to the store can write a plan; no plan can make Coset call what the deployment has not allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coset.batches.ref import BatchRef
from partitioning.documents.document import canonical, digest_of, pack, unpack
from partitioning.documents.store import Store
from partitioning.errors import Refused
from tests.real_batches import delays, land_flights, land_planes, stored
from tests.running import run_and_publish


def planted(store: Store, ref: BatchRef, function: str, of: str = '"murmur2"') -> BatchRef:
    """The stored plan, valid in itself, with `function` in the place of each hash, or of something else."""
    key = ref.plan_uri.removeprefix(f"{store.root}/")
    data = store.get(key)
    assert data is not None
    document = json.loads(
        unpack(data, key).replace(of.encode(), (f'"{function}"' if of[0] == '"' else function).encode())
    )
    del document["digest"]
    digest = digest_of(canonical(document))
    store.put(key, pack(canonical(document | {"digest": digest})))
    return BatchRef(ref.plan_uri, digest)


@pytest.mark.parametrize("function", ["os:system", "subprocess:getoutput", "posix:system", "pickle:loads"])
def test_a_planted_plan_calls_nothing(function: str, store: Store, tmp_path: Path) -> None:
    marker = tmp_path / "called"
    land_flights(store, [f"touch {marker}"])
    land_planes(store)
    ref = planted(store, stored(store, delays(store)), function)
    with pytest.raises(Refused, match=f"'{function}' is not allowed to be called here") as caught:
        run_and_publish(ref, tmp_path / "docs")
    assert "COSET_IMPORTS=" in caught.value.findings[0].then
    assert not marker.exists()


def test_what_the_deployment_allows_is_called(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = tmp_path / "called"
    land_flights(store, [f"touch {marker}"])
    land_planes(store)
    ref = planted(store, stored(store, delays(store)), "os:system")
    monkeypatch.setenv("COSET_IMPORTS", "shop, os")
    with pytest.raises(Refused):
        run_and_publish(ref, tmp_path / "docs")
    assert marker.exists()


@pytest.mark.parametrize(
    "sql",
    [
        "(SELECT count(*) FROM read_text('/etc/hostname'))",
        "(SELECT count(*) FROM read_csv('/etc/passwd'))",
        "(SELECT count(*) FROM '/etc/passwd')",
        "getenv('HOME')",
    ],
)
def test_planted_sql_reads_nothing_and_is_refused(sql: str, store: Store, tmp_path: Path) -> None:
    land_flights(store, ["N1"])
    land_planes(store)
    ref = planted(store, stored(store, delays(store)), f"{sql} AS flights", "count(*) AS flights")
    with pytest.raises(Refused) as caught:
        run_and_publish(ref, tmp_path / "docs")
    finding = caught.value.findings[0]
    assert finding.what.startswith("SQL failed: ")
    assert finding.where.startswith("step ")
