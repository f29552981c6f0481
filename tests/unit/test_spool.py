"""A spool gives rows by partition, also those that it has spilled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.engine.writers import Spool

ROWS = [([1, 2, 3], [7, 0, 7]), ([4, 5], [0, 9]), ([6], [7])]


@pytest.mark.parametrize(("held", "spilled"), [(1 << 20, 0), (0, 3)])
def test_rows_keep_their_order_in_each_partition(held: int, spilled: int, tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64())])
    two = [Spool(schema, tmp_path, held), Spool(schema, tmp_path, held)]
    for one in two:
        for numbers, partitions in ROWS:
            one.add(pa.record_batch([pa.array(numbers)], schema=schema), np.array(partitions))
    for one in two:
        found = {partition: [n for rows in there for n in rows["n"].to_pylist()] for partition, there in one.parts()}
        assert found == {0: [2, 4], 7: [1, 3, 6], 9: [5]}
    assert len(list(tmp_path.iterdir())) == 2 * spilled
