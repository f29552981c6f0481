"""Golden files: what people read, kept to be read in a diff.

`COSET_REWRITE_GOLDEN=1` writes them anew; read the diff before you keep it.
"""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"


def expect_golden(name: str, text: str) -> None:
    """Compare `text` with the golden file `name`."""
    path = GOLDEN / name
    if os.environ.get("COSET_REWRITE_GOLDEN") == "1":
        path.write_text(text)
    assert text == path.read_text()
