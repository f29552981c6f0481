"""Packing: an archive with what tasks import, for workers that have nothing of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coset.batches.runners.packed import pack, settings_for
from coset.cli.output import Answer
from partitioning.sections import size


def packed(file: Path, also: Sequence[str]) -> Answer:
    """Write the archive, and say with which settings of Spark it is used."""
    code, settings = pack(file, also), settings_for(file)
    bytes_ = file.stat().st_size
    text = [
        f"{file} has {code}, {size(bytes_)}",
        "Spark's workers need nothing but Spark and this Python. Give the commands that run Spark:",
        *(f"  --conf {name}={value}" for name, value in settings.items()),
    ]
    return Answer({"file": str(file), "bytes": bytes_, "code": code, "settings": settings}, text)
