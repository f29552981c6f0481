"""The real system's physical plans, as files of cases."""

from __future__ import annotations

from pathlib import Path

VECTORS = Path(__file__).parent / "vectors" / "apex"
FILES = ("linear", "mxn", "cascade_full", "fan", "parallel", "random")
RESIDUES = 64  # finer than any mask of these plans
