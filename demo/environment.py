"""Variables of this process that are set for a while."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def set_for_a_while(more: Mapping[str, str]) -> Iterator[None]:
    """Set variables; afterwards all are as they were."""
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
