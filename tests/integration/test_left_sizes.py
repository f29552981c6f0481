"""What tasks leave for later tasks is compressed where that spares anything."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from coset.testing.runs import Trial
from partitioning.authoring.pipeline import Pipeline

TEXT = "x" * 200


def test_few_rows_are_left_as_they_are_and_many_are_compressed_and_both_are_read() -> None:
    pipeline = Pipeline("small")
    orders = pipeline.stream("orders", key="k", partitions=1, source="s3://lake/orders")
    orders.latest("n", name="newest").write("newest", mode="upsert")
    with Trial.made(pipeline) as place:
        for batch, count in enumerate((3, 2_000, 3)):
            place.land({"orders": [{"k": f"k{n}", "n": n + batch, "text": TEXT} for n in range(count)]})
            place.run()
        few, many, _ = (b"".join(_left(place, batch)) for batch in range(3))
        assert place.verify() == {}
    assert few.count(TEXT.encode()) == 3
    assert 0 < len(many) < 1_000 * len(TEXT)


def _left(place: Trial, batch: int) -> list[bytes]:
    """The files that a batch left."""
    return [file.read_bytes() for file in Path(urlsplit(place.root).path).glob(f"small/left/{batch}/*/newest*/*.arrow")]
