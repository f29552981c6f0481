"""A disk that is full: what is to be done is to free it, and the same command goes on."""

import pyarrow as pa
import pytest

from coset.sources.s3 import AGAIN, reaching
from partitioning.errors import Unreachable


def test_a_full_disk_is_freed_before_the_same_command_is_run_again() -> None:
    full = "/dev/full"
    with (
        pytest.raises(Unreachable, match=r"the file cannot be written: .* No space left on device") as caught,
        reaching("the file cannot be written", full, AGAIN),
        pa.OSFile(full, "wb") as file,
    ):
        file.write(b"1")
    assert caught.value.findings[0].then == "free its disk, then run the same command again"
