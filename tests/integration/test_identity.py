"""A machine that has an identity and no key: each part asks for credentials, and again when they expire."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable

from coset.batches import steps
from coset.batches.runners.local import Local
from coset.sources.s3 import storage_options
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from tests.identity import IDENTITY, SHORT, STATIC, identity
from tests.small import KEYS, SLOW, small_batch


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    with identity(tmp_path_factory.mktemp("identity") / "s3", ("test",)) as variables:
        yield variables


@pytest.fixture
def on_it(machine: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in STATIC:
        monkeypatch.delenv(name, raising=False)
    for name, value in machine.items():
        monkeypatch.setenv(name, value)


def test_credentials_that_expire_in_the_middle_of_each_step_are_asked_for_again(on_it: None, tmp_path: Path) -> None:
    batch = small_batch(SLOW)
    with Local(processes=1) as runner:
        for group in batch.plan.groups:
            began = time.monotonic()
            assert "2 tasks read" in runner.group(batch.ref, group.group)
            assert time.monotonic() - began > SHORT
    for step in (steps.audit, partial(steps.check, docs_folder=tmp_path), partial(steps.publish, docs_folder=tmp_path)):
        time.sleep(SHORT + 1)
        step(batch.ref)
    table = DeltaTable(f"{batch.ledger.store.root}/tables/sums", storage_options=storage_options())
    assert table.to_pyarrow_table().num_rows == KEYS


def test_a_machine_without_credentials_is_told_what_it_may_have(on_it: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(IDENTITY)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(Refused, match="there are no S3 credentials") as refusal:
        store_at(f"s3://test/{uuid.uuid4().hex}").get("a")
    assert "AWS_SHARED_CREDENTIALS_FILE" in str(refusal.value)
