"""The files that a table has in a version are those that delta-rs says, whichever versions were asked for before."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from coset.batches.tables.live_files import live_files
from coset.batches.tables.logs import opened
from tests.there import there


def test_files_of_versions_asked_for_in_any_order_are_those_of_delta_rs(tmp_path: Path) -> None:
    chance, where = random.Random(2), f"file://{tmp_path}/rows"
    for number in range(25):
        row = pa.table({"n": [number]})
        if chance.random() < 0.2:
            write_deltalake(where, row, mode="overwrite")
        else:
            write_deltalake(where, row, mode="append")
        table = DeltaTable(where)
        if chance.random() < 0.4:
            table.delete(f"n = {chance.randrange(number + 1)}")
        if chance.random() < 0.1:
            table.create_checkpoint()
        for back in chance.sample(range(4), chance.randrange(3)):
            with opened(where) as log:
                version = max(0, there(log).version() - back)
                found = [each.path for each in live_files(there(log), version)]
            assert found == sorted(path.rpartition("/")[2] for path in DeltaTable(where, version).file_uris())
