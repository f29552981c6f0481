"""All at once, while all goes wrong: `python -m tests.soak` for as long as somebody likes, and here for two minutes."""

from __future__ import annotations

import pytest

from tests.soak import soak


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_soak_loses_and_doubles_nothing() -> None:
    found = soak(2, seed=1)
    assert {"run done", "run killed", "stopped"} <= found.done.keys()
    assert found.rests
