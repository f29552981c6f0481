"""Look for new counterexamples: property tests and histories with fresh seeds, file after file, until the time is over.

Usage: python -m tests.explore MINUTES. Ends with the first failure.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

_TESTS = Path(__file__).parent


def explore(minutes: float) -> int:
    """Run the files in any order, again and again; the exit code of the last."""
    end, files_run = time.monotonic() + 60 * minutes, 0
    while True:
        files = sorted([*_TESTS.glob("property/test_*.py"), _TESTS / "integration" / "test_changing_histories.py"])
        random.shuffle(files)
        for file in files:
            if time.monotonic() > end:
                print(f"No counterexample in {minutes:g} minutes: {files_run} runs of {len(files)} files")
                return 0
            command = [sys.executable, "-m", "pytest", "--hypothesis-profile", "exploring", str(file)]
            code = subprocess.run(command, check=False).returncode
            if code:
                print(f"The same example first: pytest --hypothesis-profile exploring {file}")
                return code
            files_run += 1


if __name__ == "__main__":
    sys.exit(explore(float(sys.argv[1])))
