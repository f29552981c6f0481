"""What the real classes of Samza answered: the cases by file, whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_ANSWERS = Path(__file__).parent / "vectors" / "samza"


def answers(name: str) -> list[dict[str, Any]]:
    """All cases of a file that is there; a missing or empty one fails."""
    cases: list[dict[str, Any]] = json.loads((_ANSWERS / f"{name}.json").read_text())["cases"]
    assert cases
    return cases
